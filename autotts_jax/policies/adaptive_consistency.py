"""ASC, adaptive self-consistency: read one by one until the majority is sure (Aggarwal et al., 2023)."""

from __future__ import annotations

import dataclasses
import functools

import jax
from jaxtyping import Bool, Int32

from autotts_jax.core.controller import Family, of_branches
from autotts_jax.core.votes import Vote
from autotts_jax.policies.one_by_one import ByVote
from autotts_jax.typing import Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class AdaptiveConsistency(ByVote):
    """ASC@n reads up to n branches in full, one after another.

    From the second on it stops when the vote's confidence exceeds ``threshold``; it answers the majority.

    Attributes:
        branches: n, branches to read at most.
        threshold: confidence above which it stops.
    """

    threshold: float = 0.95

    def sure(self, vote: Vote, opened: Int32[Array, ""]) -> Bool[Array, ""]:
        return (vote.confidence > self.threshold) & (opened >= 2)


FAMILY = Family("asc", (1, 4, 8, 16, 32, 64), functools.partial(of_branches, AdaptiveConsistency), "branches")
"""The family over n, the number of branches."""
