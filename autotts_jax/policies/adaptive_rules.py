"""ASC's other stopping rules: Dirichlet, entropy and majority (Aggarwal et al., 2023, arXiv 2305.11860).

The paper's main rule, which compares the two leading answers, is `AdaptiveConsistency`. These follow the code
that was released with it: thresholds are inclusive, and no rule stops after a single answer.
"""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int32

from autotts_jax.core import votes
from autotts_jax.core.controller import Family, of_branches
from autotts_jax.core.view import View
from autotts_jax.policies.one_by_one import OneByOne
from autotts_jax.replay.matrix import NONE
from autotts_jax.typing import Array

LEADING = 5
"""Answers that the Dirichlet rule compares."""

STEP = 0.1
"""Distance of the square roots of the points at which the Dirichlet rule's integrand is evaluated."""


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

    Args:
        view: the episode.

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


def probability_of_leader(counts: Int32[Array, " A"], width: int) -> Float[Array, ""]:
    """Computes the probability that the first of some answers is the most frequent one.

    Frequencies with a Dirichlet distribution are independent gamma variables, divided by their sum. So it is
    the integral of the leader's density times the probabilities that the others are smaller.

    Args:
        counts: votes for each answer, largest first. An answer without votes is none, except that there is a
            second one.
        width: W, the largest number of votes (static).
    """
    density, below = (jnp.asarray(table, jnp.float32) for table in _gamma_tables(width))
    others = jnp.where(
        (counts[1:, None] > 0) | (jnp.arange(1, counts.size) == 1)[:, None], below[counts[1:]], 1
    )
    return jnp.sum(density[counts[0]] * jnp.prod(others, axis=0))


@functools.lru_cache
def _gamma_tables(width: int) -> tuple[np.ndarray, np.ndarray]:
    """Tabulates gamma variables for 0 … W votes, at the midpoints of equal steps of their square roots.

    There all of them are about equally wide, half a unit, so that one step serves all.

    Returns:
        The densities times the width of the step, and the probabilities to be smaller. Shape (W + 1, points).
    """
    import scipy.special  # here, as few need it and each sealed process would import it

    root = np.arange(STEP / 2, np.sqrt(width + 1) + 6, STEP)
    point, votes_ = root**2, np.arange(width + 1)[:, None]
    density = np.exp(scipy.special.xlogy(votes_, point) - point - scipy.special.gammaln(votes_ + 1))
    return density * 2 * root * STEP, scipy.special.gammainc(votes_ + 1, point)


_VALUES = (4, 8, 16, 32, 64)

DIRICHLET = Family("asc-dirichlet", _VALUES, functools.partial(of_branches, DirichletConsistency), "branches")
"""The family of the Dirichlet rule over n, the number of branches."""

ENTROPY = Family("asc-entropy", _VALUES, functools.partial(of_branches, EntropyConsistency), "branches")
"""The family of the entropy rule over n, the number of branches."""

MAJORITY = Family("asc-majority", _VALUES, functools.partial(of_branches, MajorityConsistency), "branches")
"""The family of the majority rule over n, the number of branches."""
