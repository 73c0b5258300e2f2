"""short-m@k: read k branches side by side, answer once m have finished (arXiv 2505.17813).

With m = 1 it is first-finish search (arXiv 2505.18149).
"""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp

from autotts_jax.core.controller import Controller, Family, first_of, of_branches, within
from autotts_jax.core.pool import BranchPool, Pool, StopReason
from autotts_jax.core.votes import Vote
from autotts_jax.typing import Scalar


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ShortM(Controller):
    """short-m@k reads k branches side by side until m have finished, and answers their majority.

    Of several answers with as many votes, the one that was finished first wins. Branches that finish within
    the same interval cannot be told apart by length: all of them vote, and the earlier opened counts as
    shorter.

    Attributes:
        branches: k, branches to open.
        quorum: m, finished branches at which it answers.
    """

    branches: int = within(1)
    quorum: int = within(1)

    def start(self, pool: Pool) -> tuple[None, Pool]:
        return None, pool.open(self.branches)

    def round(self, memory: None, pool: Pool) -> tuple[None, Pool, Scalar]:
        # Nothing is decided before a branch ends.
        pool, _ = pool.advance_rounds(jnp.ones(pool.width, jnp.int32), pool.max_depth)
        stop = first_of(
            (jnp.sum(pool.finished) >= self.quorum, StopReason.DECIDED),
            (~jnp.any(pool.live), StopReason.EXHAUSTED),
        )
        return memory, pool, stop

    def vote(self, memory: None, pool: BranchPool) -> Vote:  # noqa: ARG002
        """The finished branches vote; where a budget has ended the episode before any has, all do."""
        return pool.vote_finals(rank=pool.depth * pool.width + jnp.arange(pool.width)).or_else(
            pool.vote(pool.active)
        )


def _short_m(branches: float) -> ShortM:
    return of_branches(ShortM, branches, quorum=max(1, round(branches / 4)))


FAMILY = Family("short-m", (4, 8, 16, 32, 64), _short_m, "branches")
"""The family over k, the number of branches; m is a quarter of it."""

FIRST_FINISH = Family(
    "first-finish", (1, 4, 8, 16, 32, 64), functools.partial(of_branches, ShortM, quorum=1), "branches"
)
"""The family of first-finish search over k, the number of branches."""
