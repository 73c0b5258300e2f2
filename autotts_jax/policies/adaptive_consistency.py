"""ASC, adaptive self-consistency: read one by one until the majority is sure (Aggarwal et al., 2023)."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Int32

from autotts_jax.core.controller import Family
from autotts_jax.core.view import View
from autotts_jax.core.votes import confidence_table
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

    def sure(self, view: View) -> tuple[Bool[Array, ""], Int32[Array, ""]]:
        vote = view.vote_finals()
        # Confidence rises with the leader's votes: it takes at least as many of them as suffice.
        by_leader = jnp.asarray(confidence_table(view.width).T, jnp.float32)[vote.top2]
        needed = jnp.sum(by_leader <= self.threshold, dtype=jnp.int32) - vote.top1
        sure = (vote.confidence > self.threshold) & (view.opened >= 2)
        return sure, jnp.maximum(jnp.maximum(needed, 2 - view.opened), 1)


FAMILY = Family.over_branches("asc", AdaptiveConsistency, (1, 4, 8, 16, 32, 64))
"""The family over n, the number of branches."""
