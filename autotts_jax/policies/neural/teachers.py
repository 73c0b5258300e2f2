"""Teachers: code controllers for every γ, found on the training questions by random search.

CMC ties its twelve constants to β. A teacher ties one of them to γ: the number of branches, whose logarithm
is linear in that of γ. It opens no more later, and shares its other constants among all prices: a few dozen
questions do not tell more than a few constants apart.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from autotts_jax.policies.cmc import CMC
from autotts_jax.policies.neural.arena import Arena

PRICES = 8
"""Values of γ at which a candidate plays each question in the first round of a search."""


@dataclasses.dataclass(frozen=True)
class Range:
    """Where a constant is drawn from, evenly or evenly in its logarithm."""

    low: float
    high: float
    log: bool = False
    whole: bool = True

    def at(self, share: float) -> float:
        """The value with this share of the range below it."""
        low, high = (np.log(self.low), np.log(self.high)) if self.log else (self.low, self.high)
        value = low + (high - low) * share
        value = float(np.exp(value) if self.log else value)
        return int(np.rint(value)) if self.whole else value


WIDTHS = {"cheap": Range(16, 128, log=True, whole=False), "dear": Range(2, 16, log=True, whole=False)}
"""Of the branches at the lowest and at the highest γ; no more than the pool has are opened."""

CONSTANTS = {
    "warm_up": Range(4, 40, log=True),
    "patience": Range(1, 20, log=True),
    "ema_window": Range(1, 8),
    "alpha": Range(0.1, 1, whole=False),
    "threshold": Range(0.5, 1, whole=False),
    "slack": Range(0, 0.2, whole=False),
    "burst": Range(1, 5),
    "min_complete": Range(1, 12, log=True),
}
"""Of the constants of CMC that all prices share."""


@dataclasses.dataclass(frozen=True)
class Teacher:
    """A controller for every price in a range.

    Attributes:
        widths: branches at the lowest and at the highest γ.
        constants: CMC's other constants.
    """

    widths: tuple[float, float]
    constants: dict[str, float]

    @classmethod
    def draw(cls, shares: Float[np.ndarray, " K"]) -> Teacher:
        """The teacher at these shares of the ranges in `WIDTHS` and `CONSTANTS`."""
        values = [
            range_.at(float(share))
            for range_, share in zip([*WIDTHS.values(), *CONSTANTS.values()], shares, strict=True)
        ]
        cheap, dear, *constants = values
        return cls((cheap, dear), dict(zip(CONSTANTS, constants, strict=True)))

    def at(self, gamma: float, gamma_range: tuple[float, float]) -> CMC:
        """What it plays at a price."""
        width = np.interp(np.log(gamma), np.log(gamma_range), np.log(self.widths))
        n = int(np.rint(np.exp(width)))
        return CMC(n_init=n, max_use=n, widen=0, trend=0.0, **self.constants)  # type: ignore[arg-type]


def search(
    arena: Arena,
    key: PRNGKeyArray,
    *,
    candidates: int,
    survivors: int,
    on_progress: Callable[[int, float], None] | None = None,
) -> Teacher:
    """The middle of the best of random teachers, by successive halving (arXiv 1502.07943).

    Every round the better half by mean objective goes on, and plays at twice as many prices, each question
    in a branch order drawn anew. Of each constant the median of the survivors is taken: which of them is the
    best is more chance than merit.

    Args:
        arena: the training questions.
        key: what teachers and episodes are drawn with.
        candidates: teachers in the first round.
        survivors: teachers after the last round.
        on_progress: told of every round and its mean objective.
    """
    draw, key = jax.random.split(key)
    field = np.asarray(jax.random.uniform(draw, (candidates, len(WIDTHS) + len(CONSTANTS))))
    prices, round_ = PRICES, 0
    while len(field) > survivors:
        play, key = jax.random.split(key)
        drawn = [Teacher.draw(shares) for shares in field]

        def candidate(member: int, gamma: float, drawn: list[Teacher] = drawn) -> CMC:
            return drawn[member].at(gamma, arena.gamma_range)

        scores = arena.play(candidate, len(field), prices, play)
        field = field[np.argsort(-scores.objective)[: max(survivors, (len(field) + 1) // 2)]]
        prices, round_ = 2 * prices, round_ + 1
        if on_progress:
            on_progress(round_, float(scores.objective.mean()))
    return Teacher.draw(np.median(field, axis=0))
