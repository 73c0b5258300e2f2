"""CISC: self-consistency in which votes weigh by the model's confidence (arXiv 2502.06233)."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from autotts_jax.core.controller import Family, within
from autotts_jax.core.view import View
from autotts_jax.core.votes import Vote
from autotts_jax.policies.self_consistency import SelfConsistency


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class CISC(SelfConsistency):
    """Reads n branches in full; each final answer weighs exp(c/T), c being the branch's confidence.

    The confidence is the probability of a token in the branch's last interval, the geometric mean; the
    paper's response probability is that of the whole branch. Dividing the weights by their sum, as the paper
    does, changes no vote.

    Attributes:
        branches: n, branches to read.
        temperature: T; the paper chooses one for each model.
    """

    temperature: float = within(1e-6, default=0.1)

    signals = ("logprob_mean",)

    def answer(self, memory: None, view: View) -> Vote:  # noqa: ARG002
        confidence = jnp.exp(view.signal("logprob_mean"))
        # From the largest down, so that no weight is infinite and not all are 0.
        largest = jnp.max(jnp.where(view.finished, confidence, 0))
        return view.vote_finals(weights=jnp.exp((confidence - largest) / self.temperature))


FAMILY = Family.over_branches("cisc", CISC)
"""The family over n, the number of branches."""
