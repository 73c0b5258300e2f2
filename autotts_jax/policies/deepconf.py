"""DeepConf: keep the branches of which the model was sure, and weigh their votes by it (arXiv 2508.15260)."""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float32, Int32

from autotts_jax.core.controller import Controller, Family, first_of, of_branches, within
from autotts_jax.core.pool import BranchPool, Pool, StopReason
from autotts_jax.core.votes import Vote, largest
from autotts_jax.policies.self_consistency import SelfConsistency
from autotts_jax.replay.matrix import NONE
from autotts_jax.typing import Array, Scalar


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class DeepConfOffline(SelfConsistency):
    """Reads n branches in full; the η % with the highest confidence at their end vote, weighed by it.

    Attributes:
        branches: n, branches to read.
        keep: η, percent of the branches with an answer that vote: 10 or 90 in the paper.
    """

    keep: float = within(0, 100, default=10.0)

    signals = ("conf_tail",)

    def vote(self, memory: None, pool: BranchPool) -> Vote:  # noqa: ARG002
        score = pool.signal("conf_tail")
        bar = bar_of(score, pool.finished & (pool.answer_keys != NONE), self.keep)
        return pool.vote_finals(score >= bar, weights=score)


class Confidence(NamedTuple):
    """What is known of the branches.

    Attributes:
        least: the lowest confidence of each so far, infinite where none is known. Shape (W,).
        bar: s, the confidence below which a branch is given up; NaN while the first branches are read.
    """

    least: Float32[Array, " W"]
    bar: Float32[Array, ""]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class DeepConf(Controller):
    """Reads some branches to their ends, and the others only while their confidence is as high.

    The bar is the (100 - η)th percentile of the lowest confidences of the first branches. Branches that never
    were below it vote, each weighed by its lowest confidence, the first branches included. Confidence is
    known once an interval, so a branch is given up at the end of an interval.

    Attributes:
        branches: n, branches to read.
        keep: η, percent of the first branches that reach the bar: 10 or 90 in the paper.
        warm_up: branches that are read first.
    """

    branches: int = within(1)
    keep: float = within(0, 100, default=10.0)
    warm_up: int = within(1, default=16)

    signals = ("conf_low",)

    def start(self, pool: Pool) -> tuple[Confidence, Pool]:
        before, pool = pool, pool.open(jnp.minimum(self.warm_up, self.branches))
        memory = Confidence(jnp.full(pool.width, jnp.inf), jnp.float32(jnp.nan))
        return self._followed(memory, before, pool), pool

    def round(self, memory: Confidence, pool: Pool) -> tuple[Confidence, Pool, Scalar]:
        before, pool = pool, pool.advance(jnp.where(pool.live, 1, 0))
        memory = self._followed(memory, before, pool)
        first_read = jnp.isnan(memory.bar) & ~jnp.any(pool.live)
        bar = jnp.where(first_read, bar_of(memory.least, pool.finished, self.keep), memory.bar)
        before, pool = pool, pool.open(jnp.where(first_read, self.branches - pool.opened, 0))
        memory = self._followed(Confidence(memory.least, bar), before, pool)
        pool = pool.prune(~self._is_first(pool) & (memory.least < bar))
        return memory, pool, first_of((~jnp.any(pool.live), StopReason.DECIDED))

    def vote(self, memory: Confidence, pool: BranchPool) -> Vote:
        """Where a budget has ended the episode before there is a bar, all finished branches vote, or all."""
        weights = memory.least
        sure = pool.vote_finals(weights >= memory.bar, weights=weights)
        return sure.or_else(pool.vote_finals(weights=weights)).or_else(pool.vote(pool.active))

    def sequential_tokens(self, memory: Confidence, pool: BranchPool) -> Int32[Array, ""]:  # noqa: ARG002
        """The longest of the first branches, and then the longest of the others."""
        tokens, first = pool.branch_tokens, self._is_first(pool)
        return largest(jnp.where(first, tokens, 0)) + largest(jnp.where(first, 0, tokens))

    def _is_first(self, pool: BranchPool) -> Bool[Array, " W"]:
        return jnp.arange(pool.width) < self.warm_up

    def _followed(self, memory: Confidence, before: BranchPool, pool: BranchPool) -> Confidence:
        """Takes notice of the confidence of the branches that an operation has read."""
        fresh = pool.revealed_depth > before.revealed_depth
        least = jnp.minimum(memory.least, jnp.where(fresh, pool.signal("conf_low"), jnp.inf))
        return memory._replace(least=least)


def bar_of(score: Float32[Array, " W"], branches: Bool[Array, " W"], keep: float) -> Float32[Array, ""]:
    """Computes the score that a share of some branches reaches.

    Args:
        score: score of each branch.
        branches: the branches.
        keep: η, the share in percent.

    Returns:
        The (100 - η)th percentile of their scores, interpolated linearly; NaN if there are none.
    """
    return jnp.nanpercentile(jnp.where(branches, score, jnp.nan), 100 - jnp.asarray(keep, jnp.float32))


OFFLINE = Family(
    "deepconf-offline", (4, 8, 16, 32, 64), functools.partial(of_branches, DeepConfOffline), "branches"
)
"""The family of the offline variant over n, the number of branches, with η = 10."""

FAMILY = Family("deepconf", (24, 32, 48, 64), functools.partial(of_branches, DeepConf), "branches")
"""The family over n, the number of branches, with η = 10 and 16 first branches."""
