"""Controllers that read branches one after another until a rule says that the majority is sure."""

from __future__ import annotations

import abc
import dataclasses

from jaxtyping import Bool, Int32

from autotts_jax.core.controller import Controller, first_of, within
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

    branches: int = within(1)

    @abc.abstractmethod
    def read_on(self, pool: Pool) -> tuple[Pool, Bool[Array, ""]]:
        """Reads the next branch, or several as long as the rule is not met.

        Args:
            pool: the pool, all of whose opened branches are finished.

        Returns:
            The pool after it, and whether to answer now.
        """

    def start(self, pool: Pool) -> tuple[None, Pool]:
        return None, pool

    def round(self, memory: None, pool: Pool) -> tuple[None, Pool, Scalar]:
        opened = pool.opened
        pool, sure = self.read_on(pool)
        stop = first_of(
            (sure, StopReason.DECIDED),
            (pool.opened >= self.branches, StopReason.STEP_LIMIT),
            (pool.opened == opened, StopReason.EXHAUSTED),
        )
        return memory, pool, stop

    def vote(self, memory: None, pool: BranchPool) -> Vote:  # noqa: ARG002
        return pool.vote_finals()

    def sequential_tokens(self, memory: None, pool: BranchPool) -> Int32[Array, ""]:  # noqa: ARG002
        """All tokens: no branch starts before the one before it has ended."""
        return pool.tokens


@dataclasses.dataclass(frozen=True)
class ByVote(OneByOne):
    """Stops by the numbers of the vote."""

    @abc.abstractmethod
    def sure(self, vote: Vote, opened: Int32[Array, ""]) -> Bool[Array, ""]:
        """Tells whether to answer now; asked after each branch.

        Args:
            vote: the vote on the finals of all branches.
            opened: number of branches read.
        """

    def read_on(self, pool: Pool) -> tuple[Pool, Bool[Array, ""]]:
        return pool.read_until(self.sure, self.branches - pool.opened)
