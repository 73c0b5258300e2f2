"""Episodes in which every round is recorded, of players that look behind the view: teachers and onlookers.

A controller is shown views and returns actions. Whoever asks what another one *would* do carries its actions
out on the side, and so needs the episode itself.
"""

from __future__ import annotations

import functools
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int

from autotts_jax.core.lanes import choose
from autotts_jax.core.pool import ReplayPool
from autotts_jax.core.rollout import kind_of
from autotts_jax.replay.matrix import ProbeMatrix
from autotts_jax.replay.orders import BranchOrders
from autotts_jax.replay.signals import keep_signals
from autotts_jax.typing import Array, Scalar


class Recorded(Protocol):
    """What is played and recorded; a pytree whose leaves are traced."""

    @property
    def signals(self) -> tuple[str, ...]:
        """Names of the signals that are read."""

    def begin(self, pool: ReplayPool) -> Any:
        """Makes what is remembered at first."""

    def round(self, memory: Any, pool: ReplayPool) -> tuple[Any, ReplayPool, Any, Scalar]:
        """Plays a round.

        Returns:
            What is remembered, the episode after the round, a pytree to record, and whether the episode ends
            with the round.
        """


def record(
    played: Recorded,
    matrix: ProbeMatrix,
    orders: BranchOrders,
    rows: Int[np.ndarray, " Q"],
    rounds: int,
) -> tuple[Any, Bool[Array, "Q T"]]:
    """Plays an episode on every question, and records its rounds.

    Returns:
        What was recorded, with leading axes (Q, T); and which rounds were played.
    """
    matrix = keep_signals(matrix, played.signals, type(played).__name__)
    questions = np.arange(matrix.num_questions)
    order = jnp.asarray(orders.table)[np.asarray(orders.group), rows]
    kind: Any = kind_of(played)  # type: ignore[arg-type]
    return _record(played, jax.device_put(matrix), questions, order, rounds=rounds, kind=kind)


@functools.partial(jax.jit, static_argnames=("rounds", "kind"))
def _record(
    played: Recorded,
    matrix: ProbeMatrix,
    questions: Int[Array, " Q"],
    orders: Int[Array, "Q W"],
    *,
    rounds: int,
    kind: Any,  # noqa: ARG001
) -> tuple[Any, Bool[Array, "Q T"]]:
    def play(question: Array, order: Array) -> tuple[Any, Array]:
        pool = ReplayPool.begin(matrix, question, order, labels=False, revealed=False, unprobed=False)

        def play_round(carry: Any, _: None) -> tuple[Any, tuple[Any, Array]]:
            memory, pool, running = carry
            later, after, recorded, ends = played.round(memory, pool.with_matrix(matrix))
            kept = choose(running, (later, after.without_matrix()), (memory, pool))
            return (*kept, running & ~ends), (recorded, running)

        start = played.begin(pool), pool.without_matrix(), jnp.bool_(True)
        return jax.lax.scan(play_round, start, None, length=rounds)[1]

    return jax.vmap(play)(questions, orders)
