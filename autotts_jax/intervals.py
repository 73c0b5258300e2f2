"""What a mean over questions may claim: one interval and p-value for means, gains and ratios.

Questions are drawn again with random weights (Bayesian bootstrap, Rubin, doi 10.1214/aos/1176345338), and
with them two unseen questions, the best and the worst that there could be. Without these, thirty gains of
which three are not 0 would claim to know what they have not seen. docs/explanation/statistics.md
measures how often it holds.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from jaxtyping import Float, Int

DRAWS = 10_000
"""Draws of the weights of questions."""

UNSEEN = 0.75
"""What each of the two unseen questions counts, in questions."""

DETECTABLE = NormalDist().inv_cdf(0.975) + NormalDist().inv_cdf(0.8)
"""Standard errors of the smallest difference that a test at 5 % finds four times in five."""

FEWEST = 6
"""Questions below which nothing is claimed: intervals and p-values are NaN."""


@dataclasses.dataclass(frozen=True, eq=False)
class Uncertain:
    """A number over questions, and what it could be over others.

    Attributes:
        value: the number.
        draws: what it is under each draw of the weights; NaN where there are too few questions.
    """

    value: float
    draws: Float[np.ndarray, " R"]

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval: the middle of the draws, and the number itself."""
        return self._quantile(0.025), self._quantile(0.975)

    @property
    def se(self) -> float:
        """The standard error."""
        return float(np.std(self.draws))

    @property
    def p(self) -> float:
        """The two-sided p-value of the number against 0; it is below 5 % where the interval leaves 0 out."""
        if np.isnan(self.draws).any():
            return math.nan
        signs = np.sign(np.round([self.value, *self.draws], 12))  # sums in another order differ at the end
        rarer = len(signs) if signs[0] == 0 else min((signs[1:] <= 0).sum(), (signs[1:] >= 0).sum())
        return float(min(1.0, 2 * (rarer + 1) / len(signs)))

    def lower(self, level: float) -> float:
        """Computes a lower confidence bound.

        Args:
            level: the chance that the number is below the bound.

        Returns:
            The bound; minus infinity where there are too few questions.
        """
        low = self._quantile(level)
        return -math.inf if math.isnan(low) else low

    def _quantile(self, level: float) -> float:
        furthest = min if level < 0.5 else max
        return float(furthest(np.quantile(self.draws, level), self.value))


class Questions:
    """Questions that stand for others like them.

    A question that several models answered is one question: its rows are drawn together. Each axis of seeds
    is drawn independently of the questions and of the other axes, as in the pigeonhole bootstrap (Owen, arXiv
    0712.1111), so that an episode under another seed never counts as another question. Each question comes
    with its own recorded branches, so that what another collection would have recorded of it is part of what
    differs between questions.

    Attributes:
        number: J, distinct questions.
        weight: what each row counts. Shape (Q,).
        few: whether they are fewer than `FEWEST`.
        weights: of the questions in order of their texts, then of the unseen two; each row adds up to 1. The
            first row is the questions as they are. Shape (1 + R, J + 2).
    """

    def __init__(self, weight: Float[np.ndarray, " Q"], texts: Sequence[str]):
        """Takes the questions.

        Args:
            weight: what each row counts, see `equal_weights`.
            texts: the question of each row, Q of them.
        """
        distinct, self._question = np.unique(np.asarray(texts), return_inverse=True)
        self.weight = np.asarray(weight)
        self._mass = np.bincount(self._question, weights=self.weight)
        self.number = len(distinct)
        self.few = self.number < FEWEST

    @functools.cached_property
    def weights(self) -> Float[np.ndarray, "1+R J+2"]:
        """Weights of the questions and of the unseen two."""
        mass = np.append(self._mass, [self._mass.mean()] * 2)
        drawn = np.vstack([np.append(np.ones(self.number), [0, 0]), random_weights(self.number)]) * mass
        return drawn / drawn.sum(axis=1, keepdims=True)

    def means(self, values: Float[np.ndarray, "*seeds Q"]) -> Float[np.ndarray, "*seeds J"]:
        """Averages the rows of each question.

        Args:
            values: values of the rows.
        """
        rows = np.asarray(values, float).reshape(-1, len(self.weight)) * self.weight
        sums = np.stack([np.bincount(self._question, row, self.number) for row in rows])
        return (sums / self._mass).reshape(*np.shape(values)[:-1], self.number)

    def mean(
        self,
        values: Float[np.ndarray, "*seeds Q"],
        bounds: tuple[float, float] | None = (0, 1),
        cost: Float[np.ndarray, "*seeds Q"] | None = None,
    ) -> Uncertain:
        """Infers a mean of values, such as an accuracy or an objective.

        Args:
            values: values by row, or by seed and row.
            bounds: the least and the most that a value can be, which the unseen questions have; None for the
                least and the most of these questions, where there are no bounds.
            cost: what is subtracted of the values; None for nothing.
        """
        means = self.means(values)
        return self._less(means, bounds or _ends(_over_seeds(means)), cost)

    def gain(
        self, gain: Float[np.ndarray, "*seeds Q"], cost: Float[np.ndarray, "*seeds Q"] | None = None
    ) -> Uncertain:
        """Infers a mean gain in accuracy, or in an objective.

        The unseen questions gain and lose as much as `reach` says.

        Args:
            gain: difference of two accuracies on the same episodes, by row, or by seed and row.
            cost: what is subtracted of it, the difference of the costs; None for nothing.
        """
        gains = self.means(gain)
        far = reach(_over_seeds(gains))
        return self._less(gains, (-far, far), cost)

    def ratio(self, mine: Float[np.ndarray, " Q"], its: Float[np.ndarray, " Q"]) -> Uncertain:
        """Infers the ratio of two means; the unseen questions have the least and the largest of these ratios.

        Args:
            mine: the numerator by row, at least 0.
            its: the denominator by row, at least 0. The ratio is NaN where all of it is 0.
        """
        mine, its = self.means(mine), self.means(its)
        if not its.any():
            return Uncertain(math.nan, np.full(DRAWS, np.nan))
        typical = float(its.mean())
        least, most = _ends(mine[its > 0] / its[its > 0])
        above = self._drawn(mine, least * typical, most * typical)
        below = self._drawn(its, typical, typical)
        return Uncertain(above.value / below.value, above.draws / below.draws)

    def needed(self, gain: Float[np.ndarray, " Q"], size: float) -> int | None:
        """Computes how many questions it takes to tell a gain, where they differ as much as these.

        Args:
            gain: difference of two accuracies on the same episodes, by row.
            size: the mean gain to tell, above 0.

        Returns:
            The questions with which four of five tests at 5 % find it; None where these are too few to tell.
        """
        if self.few:
            return None
        gains = self.means(gain)
        variance, unseen = float(np.var(gains, ddof=1)), 2 * UNSEEN
        squared = (size / DETECTABLE) ** 2  # what the variance of the mean, as `gain` has it, must be
        half = variance / 2 / squared - unseen
        root = math.sqrt(half**2 - unseen**2 + unseen * reach(gains) ** 2 / squared)
        return max(FEWEST, math.ceil(half + root))

    def _less(
        self,
        means: Float[np.ndarray, "*seeds J"],
        ends: tuple[float, float],
        cost: Float[np.ndarray, "*seeds Q"] | None,
    ) -> Uncertain:
        """The mean less a cost, where the unseen questions have the worst and the best of both."""
        if cost is None:
            return self._drawn(means, *ends)
        costs = self.means(cost)
        least, most = _ends(_over_seeds(costs))
        return self._drawn(means - costs, ends[0] - most, ends[1] - least)

    def _drawn(self, means: Float[np.ndarray, "*seeds J"], low: float, high: float) -> Uncertain:
        *seeds, _ = means.shape
        flat = means.reshape(-1, self.number)
        value = float((flat.mean(axis=0) @ self._mass) / self._mass.sum())
        if self.few:
            return Uncertain(value, np.full(DRAWS, np.nan))
        unseen = np.broadcast_to([[low], [high]], (2, len(flat)))
        draws = (self.weights[1:] @ np.vstack([flat.T, unseen])).reshape(-1, *seeds)
        for axis, count in enumerate(seeds, 1):  # the unseen seeds are the least and the largest of these
            draws = np.concatenate([draws, draws.min(1, keepdims=True), draws.max(1, keepdims=True)], axis=1)
            draws = np.einsum("rs,rs...->r...", random_weights(count, axis), draws)
        return Uncertain(value, draws)


def reach(gains: Float[np.ndarray, " J"]) -> float:
    """Computes how much an unseen question may gain or lose.

    It is between the largest gain or loss A that was seen and the largest that there can be, 1: where gains
    that add up to k times A were seen, the next is beyond A with a chance of about 1 in k + 1.

    Args:
        gains: gain in accuracy of each question, in -1 … 1.

    Returns:
        (k·A + 1) / (k + 1): 1 where no question gains, near A where many do.
    """
    sizes = np.round(np.abs(gains), 12)  # what sums in another order leave is no gain
    largest = float(sizes.max())
    number = float(sizes.sum()) / largest if largest else 0.0
    return max(largest, (number * largest + 1) / (number + 1))


def _over_seeds(means: Float[np.ndarray, "*seeds J"]) -> Float[np.ndarray, " J"]:
    return means.reshape(-1, means.shape[-1]).mean(axis=0)


def _ends(values: Float[np.ndarray, " J"]) -> tuple[float, float]:
    return float(values.min()), float(values.max())


def equal_weights(cell: Int[np.ndarray, " Q"]) -> Float[np.ndarray, " Q"]:
    """Weighs questions so that every cell counts the same, however many questions it has.

    Args:
        cell: the cell of each question.

    Returns:
        The weights; they sum to 1.
    """
    _, index, counts = np.unique(cell, return_inverse=True, return_counts=True)
    return 1 / counts[index] / len(counts)


def adjusted_p_values(values: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    """Adjusts p-values for the false discovery rate (Benjamini and Hochberg, 1995).

    As `scipy.stats.false_discovery_control`; importing that takes longer than a small evaluation.
    """
    order = np.argsort(-values, kind="stable")
    number = len(values)
    adjusted = np.empty(number)
    adjusted[order] = np.minimum.accumulate(values[order] * number / np.arange(number, 0, -1))
    return np.minimum(adjusted, 1.0)


@functools.lru_cache(maxsize=8)
def random_weights(items: int, seed: int = 0, mass: float = UNSEEN) -> Float[np.ndarray, "R items+2"]:
    """Draws the weights of questions or seeds and of two unseen ones, the same every time.

    Args:
        items: number of questions or seeds.
        seed: seed of the draws, which differs between what is drawn independently.
        mass: what each of the unseen two counts.

    Returns:
        Weights that add up to 1, of a Dirichlet distribution: those of a Bayesian bootstrap.
    """
    generator = np.random.default_rng(seed)
    seen = generator.standard_exponential((DRAWS, items))
    drawn = np.hstack([seen, generator.standard_gamma(mass, (DRAWS, 2))])
    return drawn / drawn.sum(axis=1, keepdims=True)
