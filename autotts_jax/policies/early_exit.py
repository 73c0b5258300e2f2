"""Controllers that read branches side by side and leave each as soon as a rule says that it is settled."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Bool

from autotts_jax.core.controller import Controller, first_of, within
from autotts_jax.core.pool import BranchPool, Pool, StopReason
from autotts_jax.core.votes import Vote
from autotts_jax.typing import Array, Scalar


class Followed(NamedTuple):
    """What is known of the branches.

    Attributes:
        state: what the rule remembers.
        settled: the branches that it has settled. Shape (W,).
    """

    state: Any
    settled: Bool[Array, " W"]


@dataclasses.dataclass(frozen=True)
class EarlyExit(Controller):
    """Reads n branches side by side, each to its end or until it is settled, and answers their majority.

    A branch that is settled is read no further, and votes with its latest answer. A subclass says when it is.

    Attributes:
        branches: n, branches to open.
    """

    branches: int = within(1)

    @abc.abstractmethod
    def begin(self, pool: BranchPool) -> Any:
        """Gives what the rule remembers before any branch is read.

        Args:
            pool: the pool, in which nothing is opened.
        """

    @abc.abstractmethod
    def follow(self, state: Any, pool: BranchPool, fresh: Bool[Array, " W"]) -> tuple[Any, Bool[Array, " W"]]:
        """Looks at the next probe of some branches.

        Args:
            state: what the rule remembers.
            pool: the pool.
            fresh: the branches that have a new probe.

        Returns:
            What it remembers then, and the branches that are settled.
        """

    def start(self, pool: Pool) -> tuple[Followed, Pool]:
        return self._after(Followed(self.begin(pool), pool.live), pool, pool.open(self.branches))

    def round(self, memory: Followed, pool: Pool) -> tuple[Followed, Pool, Scalar]:
        memory, pool = self._after(memory, pool, pool.advance(jnp.where(pool.live, 1, 0)))
        return memory, pool, first_of((~jnp.any(pool.live), StopReason.DECIDED))

    def vote(self, memory: Followed, pool: BranchPool) -> Vote:
        """Branches that are settled or finished vote; where a budget has ended the episode before, all do."""
        return pool.vote(memory.settled | pool.finished).or_else(pool.vote(pool.active))

    def _after(self, memory: Followed, before: Pool, pool: Pool) -> tuple[Followed, Pool]:
        """Follows the branches that an operation has read, and leaves those that are settled."""
        fresh = pool.revealed_depth > before.revealed_depth
        state, settled = self.follow(memory.state, pool, fresh)
        return Followed(state, memory.settled | settled), pool.prune(settled & pool.live)
