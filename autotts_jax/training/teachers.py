"""Teachers: code controllers whose constants are functions of γ, found by CMA-ES on the training questions.

CMC ties its twelve constants to β by hand. Here each is a quadratic in log γ behind a link that keeps it in
its range, and the covariance-matrix adaptation evolution strategy (Hansen, arXiv 1604.00772) fits the
coefficients to the mean objective over the range of γ.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from evosax.algorithms import CMA_ES
from jaxtyping import Float, PRNGKeyArray

from autotts_jax.policies.cmc import CMC
from autotts_jax.training.arena import Arena

STD = 0.3
"""Standard deviation of the coefficients at first."""

PRICES = 8
"""Values of γ at which a candidate plays each question."""


@dataclasses.dataclass(frozen=True)
class _Link:
    """A constant in a range, log-scaled or not, as a function of a real number."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def to(self, real: float) -> float:
        share = 1 / (1 + np.exp(-real))
        low, high = (np.log(self.low), np.log(self.high)) if self.log else (self.low, self.high)
        value = low + (high - low) * share
        value = float(np.exp(value) if self.log else value)
        return int(np.rint(value)) if self.whole else value

    def back(self, value: float) -> float:
        low, high, value = (np.log(v) if self.log else v for v in (self.low, self.high, value))
        share = np.clip((value - low) / (high - low), 0.02, 0.98)
        return float(np.log(share / (1 - share)))


LINKS = {
    "n_init": _Link(1, 64.4, log=True, whole=True),
    "max_use": _Link(1, 64.4, log=True, whole=True),
    "warm_up": _Link(0.5, 40, log=True, whole=True),
    "patience": _Link(1, 40, log=True, whole=True),
    "ema_window": _Link(1, 8, whole=True),
    "alpha": _Link(0.05, 1.0),
    "threshold": _Link(0.5, 1.0),
    "slack": _Link(0.0, 0.2),
    "burst": _Link(1, 5, whole=True),
    "widen": _Link(1, 16, log=True, whole=True),
    "trend": _Link(-0.15, 0.15),
    "min_complete": _Link(1, 16, log=True, whole=True),
}

Coefficients = Float[np.ndarray, "... 12 3"]
"""Of the constants in the order of `LINKS`, each with its powers of log γ."""


def teacher(coefficients: Coefficients, gamma: float, gamma_range: tuple[float, float]) -> CMC:
    """The controller that coefficients stand for at a price."""
    low, high = np.log(gamma_range)
    x = (2 * np.log(gamma) - low - high) / max(high - low, 1e-9)
    reals = np.asarray(coefficients, float) @ [1.0, x, x * x]
    constants: dict[str, Any] = {
        name: link.to(real) for (name, link), real in zip(LINKS.items(), reals, strict=True)
    }
    return CMC(**constants)


def published() -> Coefficients:
    """CMC's own constants: β falls from 1 to 0.1 as γ rises through the range."""
    at = [(-1.0, CMC.of_beta(1.0)), (0.0, CMC.of_beta(0.55)), (1.0, CMC.of_beta(0.1))]
    reals = np.array([[link.back(getattr(cmc, name)) for name, link in LINKS.items()] for _, cmc in at])
    line = np.polynomial.polynomial.polyfit([x for x, _ in at], reals, 1)
    return np.concatenate([line, np.zeros((1, len(LINKS)))]).T


def tune(
    arena: Arena,
    key: PRNGKeyArray,
    *,
    generations: int,
    population: int,
    on_progress: Callable[[int, float], None] | None = None,
) -> Coefficients:
    """Coefficients with a better objective than CMC's own: the mean of the strategy's over its second half.

    Args:
        arena: the training questions.
        key: what candidates and episodes are drawn with.
        generations: generations of the strategy.
        population: candidates of each.
        on_progress: told of every generation and its mean objective.
    """
    start = published()
    strategy = CMA_ES(population, jnp.zeros(start.size))
    params = strategy.default_params.replace(std_init=STD)
    state = strategy.init(key, jnp.asarray(start.reshape(-1)), params)
    means = []
    for generation in range(generations):
        ask, tell, draw, key = jax.random.split(key, 4)
        candidates, state = strategy.ask(ask, state, params)
        rows = np.asarray(candidates).reshape(population, *start.shape)

        def candidate(member: int, gamma: float, rows: Coefficients = rows) -> CMC:
            return teacher(rows[member], gamma, arena.gamma_range)

        scores = arena.play(candidate, population, PRICES, draw)
        state, _ = strategy.tell(tell, candidates, jnp.asarray(-scores.objective), state, params)
        means.append(np.asarray(strategy.get_mean(state)))
        if on_progress:
            on_progress(generation + 1, float(scores.objective.mean()))
    return np.mean(means[generations // 2 :], axis=0).reshape(start.shape)
