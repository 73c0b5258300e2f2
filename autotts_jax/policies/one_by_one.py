"""Controllers that read branches one after another until a rule says that the majority is sure."""

from __future__ import annotations

import abc
import dataclasses

from jaxtyping import Bool, Int32

from autotts_jax.core.controller import Controller, first_of
from autotts_jax.core.pool import BranchPool, Pool, StopReason
from autotts_jax.core.votes import Vote
from autotts_jax.typing import Array, Scalar


@dataclasses.dataclass(frozen=True)
class OneByOne(Controller):
    """Reads up to n branches in full, one after another, and answers the majority of their finals.

    A subclass says when to stop before all are read.

    Attributes:
        branches: n, branches to read at most.
    """

    branches: int

    @abc.abstractmethod
    def sure(self, pool: BranchPool) -> Bool[Array, ""]:
        """Tells whether to answer now; called after each branch.

        Args:
            pool: the pool, all of whose opened branches are finished.
        """

    def start(self, pool: Pool) -> tuple[None, Pool]:
        return None, pool

    def round(self, memory: None, pool: Pool) -> tuple[None, Pool, Scalar]:
        opened = pool.opened
        pool = pool.read(1)
        stop = first_of(
            (self.sure(pool), StopReason.DECIDED),
            (pool.opened >= self.branches, StopReason.STEP_LIMIT),
            (pool.opened == opened, StopReason.EXHAUSTED),
        )
        return memory, pool, stop

    def vote(self, memory: None, pool: BranchPool) -> Vote:  # noqa: ARG002
        return pool.vote_finals()

    def sequential_tokens(self, memory: None, pool: BranchPool) -> Int32[Array, ""]:  # noqa: ARG002
        """All tokens: no branch starts before the one before it has ended."""
        return pool.tokens
