"""The episodes of one player, as arrays."""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Bool, Int

from autotts_jax.policies.players import Selection


@dataclasses.dataclass(frozen=True, eq=False)
class Play:
    """The episodes of one player: V values x S seeds x Q questions.

    Attributes:
        selection: the player.
        answer: answer texts, None for no answer.
        correct: whether the answer is the gold answer.
        tokens: tokens charged.
        intervals: Σ l_i, intervals read on all branches.
        probes: |Ω|, probes read.
        sequential_tokens: tokens that have to be generated one after another, a proxy for latency.
        branches: branches opened.
        rounds: rounds of the controller; None for a released program, which has none.
        stop_reason: `StopReason`; None for a released program.
        compile_seconds: wall time of tracing and compiling.
        run_seconds: wall time of running.
    """

    selection: Selection
    answer: np.ndarray
    correct: Bool[np.ndarray, "V S Q"]
    tokens: Int[np.ndarray, "V S Q"]
    intervals: Int[np.ndarray, "V S Q"]
    probes: Int[np.ndarray, "V S Q"]
    sequential_tokens: Int[np.ndarray, "V S Q"]
    branches: Int[np.ndarray, "V S Q"]
    rounds: Int[np.ndarray, "V S Q"] | None
    stop_reason: Int[np.ndarray, "V S Q"] | None
    compile_seconds: float
    run_seconds: float
