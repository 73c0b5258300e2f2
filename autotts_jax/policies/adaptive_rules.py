"""ASC's other stopping rules: Dirichlet, entropy and majority (Aggarwal et al., 2023, arXiv 2305.11860).

The paper's main rule, which compares the two leading answers, is `AdaptiveConsistency`. These follow the code
that was released with it: thresholds are inclusive, and no rule stops after a single answer.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Int32

from autotts_jax.core import votes
from autotts_jax.core.controller import Family
from autotts_jax.core.view import View
from autotts_jax.policies.dirichlet import probability_of_leader
from autotts_jax.policies.one_by_one import OneByOne
from autotts_jax.replay.matrix import NONE
from autotts_jax.typing import Array

LEADING = 5
"""Answers that the Dirichlet rule compares."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class DirichletConsistency(OneByOne):
    """Stops when the majority is probably the most frequent of the five leading answers.

    By a uniform prior the frequencies of these answers have a Dirichlet distribution. The released code
    samples the probability that the majority's is the largest; here it is integrated.

    Attributes:
        branches: n, branches to read at most.
        threshold: probability from which it stops.
    """

    threshold: float = 0.95

    def sure(self, view: View) -> tuple[Bool[Array, ""], int]:
        counts = leading_counts(view)
        return (jnp.sum(counts) >= 2) & (probability_of_leader(counts, view.width) >= self.threshold), 1


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class EntropyConsistency(OneByOne):
    """Stops when the entropy of the answers, divided by that of as many equally frequent ones, is small.

    Where all branches agree the quotient is not defined; then, as in the released code, a second answer is
    counted once. So it takes four equal answers to stop.

    Attributes:
        branches: n, branches to read at most.
        threshold: normalised entropy up to which it stops.
    """

    threshold: float = 0.75

    def sure(self, view: View) -> tuple[Bool[Array, ""], int]:
        voters = view.finished & (view.answer_keys != NONE)
        number = jnp.sum(voters)
        count = jnp.maximum(votes.support(view.answer_keys, voters), 1)
        distinct = jnp.rint(jnp.sum(jnp.where(voters, 1 / count, 0)))
        alone = distinct < 2
        total = jnp.where(alone, number + 1, number)
        # Each of the c branches that give an answer adds 1/c of its term; the second answer has c = 1.
        terms = jnp.sum(jnp.where(voters, jnp.log(total / count), 0)) + jnp.where(alone, jnp.log(total), 0)
        entropy = terms / (total * jnp.log(jnp.maximum(distinct, 2)))
        return (number >= 2) & (entropy <= self.threshold), 1


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class MajorityConsistency(OneByOne):
    """Stops when the majority has a large enough share of the votes.

    Attributes:
        branches: n, branches to read at most.
        threshold: share from which it stops.
    """

    threshold: float = 0.8

    def sure(self, view: View) -> tuple[Bool[Array, ""], int]:
        vote = view.vote_finals()
        return (vote.voters >= 2) & (vote.top1 / vote.voters >= self.threshold), 1


def leading_counts(view: View) -> Int32[Array, " 5"]:
    """Counts the votes of finished branches for each of the five leading answers.

    Returns:
        The counts, largest first; 0 where there are fewer answers.
    """
    keys, rest = view.answer_keys, view.finished & (view.answer_keys != NONE)
    count = votes.support(keys, rest)
    counts = []
    for _ in range(LEADING):
        left = jnp.where(rest, count, 0)
        leader = jnp.argmax(left)
        counts.append(left[leader])
        rest = rest & (keys != keys[leader])
    return jnp.stack(counts)


DIRICHLET = Family.over_branches("asc-dirichlet", DirichletConsistency)
"""The family of the Dirichlet rule over n, the number of branches."""

ENTROPY = Family.over_branches("asc-entropy", EntropyConsistency)
"""The family of the entropy rule over n, the number of branches."""

MAJORITY = Family.over_branches("asc-majority", MajorityConsistency)
"""The family of the majority rule over n, the number of branches."""
