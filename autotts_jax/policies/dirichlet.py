"""Dirichlet posteriors of how often each answer is given: how probable it is that the leader leads in truth.

Shares with a Dirichlet distribution are independent gamma variables, divided by their sum. So the probability
that one share is the largest is the integral of its gamma density times the probabilities that the others are
smaller.
"""

from __future__ import annotations

import functools

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int32

from autotts_jax.typing import Array

STEP = 0.1
"""Distance of the square roots of the points at which the integrand is evaluated."""

UNSEEN = 0.3
"""α, the weight of all answers that were not given yet, in the prior of Best-of-∞."""


def probability_of_leader(counts: Int32[Array, " A"], width: int) -> Float[Array, ""]:
    """Computes the probability that the first of some answers is the most frequent, a uniform prior given.

    Args:
        counts: votes for each answer, largest first. An answer without votes is none, except that there is a
            second one.
        width: W, the largest number of votes (static).
    """
    density, below = (jnp.asarray(table, jnp.float32) for table in _gamma_tables(width, 1.0))
    others = jnp.where(
        (counts[1:, None] > 0) | (jnp.arange(1, counts.size) == 1)[:, None], below[counts[1:]], 1
    )
    return jnp.sum(density[counts[0]] * jnp.prod(others, axis=0))


def doubt_of_leader(leader: Int32[Array, ""], others: Float[Array, " W+1"], width: int) -> Float[Array, ""]:
    """Computes the probability that the leader is not the most frequent answer.

    The prior is a Dirichlet process of concentration `UNSEEN`. It is approximated as in Best-of-∞ (arXiv
    2509.21091): the answers that were given have their votes as parameters, and all others together α.

    Args:
        leader: votes for the leader, at least 1.
        others: how many other answers have 0 … W votes; of none at 0.
        width: W (static).

    Returns:
        The probability, in full precision where it is small.
    """
    density, below = _gamma_tables(width, 0.0)
    unseen = jnp.asarray(np.log(_below(UNSEEN, _points(width))), jnp.float32)
    # The logarithm of a product over the other answers, as a product of matrices; 0 is far enough at 1e-38.
    smaller = others @ jnp.asarray(np.log(np.maximum(below, 1e-38)), jnp.float32) + unseen
    return jnp.sum(jnp.asarray(density, jnp.float32)[leader] * -jnp.expm1(smaller))


@functools.lru_cache
def _gamma_tables(width: int, prior: float) -> tuple[np.ndarray, np.ndarray]:
    """Tabulates gamma variables for 0 … W votes and what the prior adds to them, at `_points`.

    Returns:
        The densities times the width of the step, and the probabilities to be smaller. Shape (W + 1, points).
    """
    import scipy.special  # here, as few need it and each sealed process would import it

    point, shape = _points(width), np.arange(width + 1)[:, None] + prior
    log_density = scipy.special.xlogy(shape - 1, point) - point - scipy.special.gammaln(shape)
    return np.exp(log_density) * 2 * np.sqrt(point) * STEP, _below(shape, point)


def _points(width: int) -> np.ndarray:
    """Midpoints of equal steps of the square root, which of every gamma variable spreads by about ½."""
    return np.arange(STEP / 2, np.sqrt(width + 1) + 6, STEP) ** 2


def _below(shape: np.ndarray | float, point: np.ndarray) -> np.ndarray:
    import scipy.special

    return scipy.special.gammainc(shape, point)
