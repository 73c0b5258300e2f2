"""Tests that the mean of a bounded loss is below a bound, valid for any number of independent losses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

CAP = 0.75
"""The largest bet, as a share of what would lose everything at once on the largest loss."""

MOST_LOSSES = 1_000_000
"""Losses up to which `losses_needed` searches."""


def binomial_p_value(losses: Float[np.ndarray, " n"], bound: float) -> float:
    """Tests by the binomial distribution that the mean of losses of 0 or 1 is below a bound.

    Returns:
        The p-value: the probability of as few ones or fewer if the mean is the bound.
    """
    import scipy.special  # here, as few need it

    return float(scipy.special.bdtr(np.sum(losses), len(losses), bound))


def betting_p_value(losses: Float[np.ndarray, " n"], bound: float, delta: float, least: float = 0.0) -> float:
    """Tests by betting that the mean of losses is below a bound (Waudby-Smith and Ramdas, arXiv 2010.09686).

    Each loss is bet to be below the bound, with a stake that depends on those before it. If the mean is the
    bound or above it, the stakes multiply by 1/p or more at any time with a probability of at most p. The
    stakes are the paper's for a fixed number of losses. The losses are bet on in an order drawn once and for
    all, as that of a file may mean something.

    Returns:
        The p-value.
    """
    number, mean = len(losses), (bound - least) / (1 - least)
    shuffled = np.random.default_rng(0).permutation(losses)
    shares = (np.asarray(shuffled, float) - least) / (1 - least)
    before = np.arange(1, number + 1)  # losses that the estimates are of, with ½ as one more
    means = (0.5 + shares.cumsum()) / (before + 1)
    variances = (0.25 + ((shares - means) ** 2).cumsum()) / (before + 1)
    variance = np.concatenate([[0.25], variances[:-1]])
    stake = np.minimum(np.sqrt(2 * np.log(1 / delta) / (number * variance)), CAP / (1 - mean))
    gains = np.log1p(stake * (mean - shares)).cumsum()
    return float(np.exp(-max(gains.max(initial=0), 0)))


def losses_needed(
    p_value: Callable[[Float[np.ndarray, " m"]], float], losses: Float[np.ndarray, " n"], delta: float
) -> int | None:
    """Estimates how many losses like some a test needs to rule out its bound.

    Returns:
        The number at which it does; None where it takes more than `MOST_LOSSES`.
    """

    def passes(number: int) -> bool:
        return p_value(np.resize(losses, number)) <= delta

    enough = 1
    while not passes(enough):
        enough *= 2
        if enough > MOST_LOSSES:
            return None
    short = enough // 2
    while enough - short > 1:
        middle = (enough + short) // 2
        short, enough = (short, middle) if passes(middle) else (middle, enough)
    return enough
