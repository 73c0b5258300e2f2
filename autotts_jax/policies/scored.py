"""Weighted majority and best-of-n: votes by a score of each branch, as of a verifier or a reward model."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from autotts_jax.core.controller import Family
from autotts_jax.core.view import View
from autotts_jax.core.votes import Vote
from autotts_jax.policies.self_consistency import SelfConsistency
from autotts_jax.replay.matrix import NONE
from autotts_jax.replay.signals import SCORE


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class WeightedMajority(SelfConsistency):
    """Reads n branches in full and answers what has the largest sum of scores.

    A score below 0 counts as 0, so it has to be a probability or another weight.

    Attributes:
        branches: n, branches to read.
    """

    signals = (SCORE,)

    def answer(self, memory: None, view: View) -> Vote:  # noqa: ARG002
        return view.vote_finals(weights=view.signal(SCORE))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class BestOfN(SelfConsistency):
    """Reads n branches in full and answers as the one with the highest score; of equal ones, their majority.

    Attributes:
        branches: n, branches to read.
    """

    signals = (SCORE,)

    def answer(self, memory: None, view: View) -> Vote:  # noqa: ARG002
        score = view.signal(SCORE)
        answers = view.finished & (view.answer_keys != NONE)
        return view.vote_finals(score >= jnp.max(jnp.where(answers, score, -jnp.inf)))


WEIGHTED = Family.over_branches("weighted-majority", WeightedMajority)
"""The family of the weighted majority over n, the number of branches."""

BEST_OF_N = Family.over_branches("best-of-n", BestOfN)
"""The family of best-of-n over n, the number of branches."""
