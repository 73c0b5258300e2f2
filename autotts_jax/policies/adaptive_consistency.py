"""ASC, adaptive self-consistency: read one by one until the majority is sure (Aggarwal et al., 2023)."""

from __future__ import annotations

import dataclasses

import jax
from jaxtyping import Int32

from autotts_jax.core.controller import Controller, Family, check_branches, first_of
from autotts_jax.core.pool import BranchPool, Pool, StopReason
from autotts_jax.core.votes import Vote
from autotts_jax.typing import Array, Scalar


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class AdaptiveConsistency(Controller):
    """ASC@n reads up to n branches in full, one after another.

    From the second on it stops when the vote's confidence exceeds ``threshold``; it answers the majority.

    Attributes:
        branches: n, branches to read at most.
        threshold: confidence above which it stops.
    """

    branches: int
    threshold: float = 0.95

    def start(self, pool: Pool) -> tuple[None, Pool]:
        return None, pool

    def round(self, memory: None, pool: Pool) -> tuple[None, Pool, Scalar]:
        opened = pool.opened
        pool = pool.read(1)
        sure = pool.vote_finals().confidence > self.threshold
        stop = first_of(
            (sure & (pool.opened >= 2), StopReason.DECIDED),
            (pool.opened >= self.branches, StopReason.STEP_LIMIT),
            (pool.opened == opened, StopReason.EXHAUSTED),
        )
        return memory, pool, stop

    def vote(self, memory: None, pool: BranchPool) -> Vote:  # noqa: ARG002
        return pool.vote_finals()

    def sequential_tokens(self, memory: None, pool: BranchPool) -> Int32[Array, ""]:  # noqa: ARG002
        """All tokens: no branch starts before the one before it has ended."""
        return pool.tokens


FAMILY = Family("asc", (1, 4, 8, 16, 32, 64), lambda n: AdaptiveConsistency(check_branches(n)), "branches")
"""The family over n, the number of branches."""
