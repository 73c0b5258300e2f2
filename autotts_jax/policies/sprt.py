"""SPRT consensus: read one by one until a sequential test decides for the majority (arXiv 2503.17587)."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Int32

from autotts_jax.core.controller import Family
from autotts_jax.core.view import View
from autotts_jax.policies.one_by_one import OneByOne
from autotts_jax.typing import Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class SPRTConsensus(OneByOne):
    """Stops when Wald's sequential probability ratio test decides between the two leading answers.

    Among the votes for one of the two, the share of the leader is ½ by the null hypothesis and ``p1`` by the
    other; either decision stops it, and it answers the majority. With the published constants it stops at a
    lead of three votes, or at a tie with more than 600 votes for each.

    Attributes:
        branches: n, branches to read at most.
        p1: share of the leader by the alternative.
        alpha: α, probability of a false alternative.
        beta: β, probability of a false null.
    """

    p1: float = 0.5001
    alpha: float = 0.05
    beta: float = 0.949976

    def sure(self, view: View) -> tuple[Bool[Array, ""], Int32[Array, ""]]:
        vote = view.vote_finals()
        # The logarithms of numbers that are nearly one: log1p keeps their digits in single precision.
        edge, power = 2 * self.p1 - 1, 1 - self.alpha - self.beta
        rise, fall = jnp.log1p(edge), jnp.log1p(-edge)
        ratio = vote.top1 * rise + vote.top2 * fall
        upper, lower = jnp.log1p(power / self.alpha), jnp.log1p(-power / (1 - self.alpha))
        # Votes for the leader, or for the other, after which a bound is reached; rounded on the safe side.
        more = jnp.minimum((upper - ratio) / rise, (lower - ratio) / fall)
        needed = jnp.clip(jnp.ceil(more - 0.01), 1, view.width).astype(jnp.int32)
        return (ratio >= upper) | (ratio <= lower), needed


FAMILY = Family.over_branches("sprt", SPRTConsensus)
"""The family over n, the number of branches."""
