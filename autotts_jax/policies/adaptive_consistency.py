"""ASC, adaptive self-consistency: read one by one until the majority is sure (Aggarwal et al., 2023)."""

from __future__ import annotations

import dataclasses
import functools

import jax
from jaxtyping import Bool

from autotts_jax.core.controller import Family, of_branches
from autotts_jax.core.pool import BranchPool
from autotts_jax.policies.one_by_one import OneByOne
from autotts_jax.typing import Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class AdaptiveConsistency(OneByOne):
    """ASC@n reads up to n branches in full, one after another.

    From the second on it stops when the vote's confidence exceeds ``threshold``; it answers the majority.

    Attributes:
        branches: n, branches to read at most.
        threshold: confidence above which it stops.
    """

    threshold: float = 0.95

    def sure(self, pool: BranchPool) -> Bool[Array, ""]:
        return (pool.vote_finals().confidence > self.threshold) & (pool.opened >= 2)


FAMILY = Family("asc", (1, 4, 8, 16, 32, 64), functools.partial(of_branches, AdaptiveConsistency), "branches")
"""The family over n, the number of branches."""
