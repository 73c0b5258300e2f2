"""Probe matrices as device arrays: a pytree that replaces the LLM."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jaxtyping import Float16, Int, Int16, Int32

from autotts_jax.replay.equivalence import NONE as NONE
from autotts_jax.terminal import brief
from autotts_jax.typing import Array

MAX_ENTRIES = 2**28
"""The most entries of `ProbeMatrix.answers`, padding included."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)  # arrays cannot say whether they are equal
class ProbeMatrix:
    """What every branch of every question would answer at every depth.

    A branch with ``L`` probes has ``L + 1`` readable depths: depth ``k <= L`` shows probe ``k``, depth
    ``L + 1`` shows the final answer. ``answers[q, b, k]`` is what branch ``b`` of question ``q`` answers at
    depth ``k + 1``; positions beyond the final answer hold `NONE` and are never read.

    Answer ids are small integers *per question*; ids of different questions must not be compared.

    Attributes:
        answers: answer ids, ``NONE`` where there is no answer that may vote. Shape (Q, N, K).
        lengths: probes of each branch, L >= 1; 0 where a cell has no such branch. Shape (Q, N).
        tokens: tokens of each branch when read to its end, T >= 1; 0 likewise. Shape (Q, N).
        gold: id of the reference answer. Shape (Q,).
        interval: tokens between two probes, the paper's Δ. Shape (Q,).
        cell: index of the (model, benchmark) pair that the question belongs to. Shape (Q,).
        vocabulary: one more than the largest answer id (static, so that label tables have a shape).
        signals: what branches show besides, by name: ``signals[name][q, b, k]`` is shown with the answer at
            depth ``k + 1``, and finite there; NaN beyond the final answer. Each of shape (Q, N, K).
    """

    answers: Int16[Array, "Q N K"]
    lengths: Int32[Array, "Q N"]
    tokens: Int32[Array, "Q N"]
    gold: Int16[Array, " Q"]
    interval: Int32[Array, " Q"]
    cell: Int32[Array, " Q"]
    vocabulary: int = dataclasses.field(metadata={"static": True})
    signals: Mapping[str, Float16[Array, "Q N K"]] = dataclasses.field(default_factory=dict)

    __repr__ = brief

    @property
    def num_questions(self) -> int:
        """Q, the number of questions."""
        return self.answers.shape[0]

    @property
    def num_branches(self) -> int:
        """N, the number of recorded branches of each question."""
        return self.answers.shape[1]

    @property
    def max_depth(self) -> int:
        """K, the largest readable depth: one more than the longest branch's probes."""
        return self.answers.shape[2]

    def finals(self) -> Int16[Array, "Q N"]:
        """Looks up the final answer of every branch.

        Returns:
            Answer ids, `NONE` for branches that the cell does not have. Shape (Q, N).
        """
        return jnp.take_along_axis(jnp.asarray(self.answers), jnp.asarray(self.lengths)[..., None], axis=-1)[
            ..., 0
        ]

    def select(self, questions: Int[Array, " q"]) -> ProbeMatrix:
        """Selects questions; works under ``jit``.

        Args:
            questions: their positions, in the order wanted. Shape (q,).

        Returns:
            The matrix of these questions; N, K and ``vocabulary`` stay.
        """
        return jax.tree.map(lambda leaf: leaf[questions], self)
