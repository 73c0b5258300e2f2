"""Best-of-∞: read one by one until a Bayes factor says that the majority would last (arXiv 2509.21091)."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Bool

from autotts_jax.core import votes
from autotts_jax.core.controller import Family, within
from autotts_jax.core.view import View
from autotts_jax.policies.dirichlet import doubt_of_leader
from autotts_jax.policies.one_by_one import OneByOne
from autotts_jax.replay.matrix import NONE
from autotts_jax.typing import Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class BestOfInfinity(OneByOne):
    """Stops when the Bayes factor for the majority being that of infinitely many branches is large.

    The prior of the answers' shares is a Dirichlet process. The Bayes factor is the posterior odds that the
    leader is the most frequent answer, times the number of distinct answers, which stands for the prior odds.
    The paper samples these odds; here they are integrated.

    Attributes:
        branches: n, branches to read at most; 100 in the paper.
        threshold: B, the Bayes factor from which it stops. The paper sweeps it and settles on none.
    """

    threshold: float = within(above=0, default=100.0)

    def sure(self, view: View) -> tuple[Bool[Array, ""], int]:
        voters = view.finished & (view.answer_keys != NONE)
        count = jnp.maximum(votes.support(view.answer_keys, voters), 1)
        vote = view.vote_finals()
        # Each of the c branches that give an answer counts 1/c for it.
        share = jnp.where(voters & ~view.agrees(vote.leader), 1 / count, 0)
        others = share @ (count[:, None] == jnp.arange(view.width + 1)).astype(jnp.float32)
        distinct = jnp.rint(jnp.sum(share)) + 1
        doubt = doubt_of_leader(jnp.maximum(vote.top1, 1), others, view.width)
        return (vote.voters > 0) & (distinct * (1 - doubt) >= self.threshold * doubt), 1


FAMILY = Family.over_branches("best-of-infinity", BestOfInfinity)
"""The family over n, the number of branches."""
