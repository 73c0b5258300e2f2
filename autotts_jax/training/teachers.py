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
from jaxtyping import Float, PRNGKeyArray

from autotts_jax.policies.cmc import CMC
from autotts_jax.training.arena import Arena

STD = 0.3
"""Standard deviation of the coefficients at first."""

NUM_GAMMAS = 8
"""Values of γ at which a candidate plays each question."""


@dataclasses.dataclass(frozen=True)
class Bijector:
    """Maps the real numbers to the range of a constant.

    Attributes:
        low: least value.
        high: largest value.
        log: whether the range is logarithmic.
        whole: whether values are rounded to whole numbers.
    """

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def value(self, real: float) -> float:
        """Returns the value of the constant at a real number."""
        share = 1 / (1 + np.exp(-real))
        low, high = (np.log(self.low), np.log(self.high)) if self.log else (self.low, self.high)
        value = low + (high - low) * share
        value = float(np.exp(value) if self.log else value)
        return int(np.rint(value)) if self.whole else value

    def real(self, value: float) -> float:
        """Returns the real number that a value belongs to."""
        low, high, value = (np.log(v) if self.log else v for v in (self.low, self.high, value))
        share = np.clip((value - low) / (high - low), 0.02, 0.98)
        return float(np.log(share / (1 - share)))


LINKS = {
    "n_init": Bijector(1, 64.4, log=True, whole=True),
    "max_use": Bijector(1, 64.4, log=True, whole=True),
    "warm_up": Bijector(0.5, 40, log=True, whole=True),
    "patience": Bijector(1, 40, log=True, whole=True),
    "ema_window": Bijector(1, 8, whole=True),
    "alpha": Bijector(0.05, 1.0),
    "threshold": Bijector(0.5, 1.0),
    "slack": Bijector(0.0, 0.2),
    "burst": Bijector(1, 5, whole=True),
    "widen": Bijector(1, 16, log=True, whole=True),
    "trend": Bijector(-0.15, 0.15),
    "min_complete": Bijector(1, 16, log=True, whole=True),
}
"""The links of CMC's constants."""

Coefficients = Float[np.ndarray, "... 12 3"]
"""Coefficients of the constants in the order of `LINKS`, each of the powers 0, 1 and 2 of log γ."""


def teacher(coefficients: Coefficients, gamma: float, gamma_range: tuple[float, float]) -> CMC:
    """Makes the controller that coefficients describe at a γ.

    Args:
        coefficients: the coefficients.
        gamma: γ.
        gamma_range: least and largest γ that the coefficients are fitted for.
    """
    low, high = np.log(gamma_range)
    x = (2 * np.log(gamma) - low - high) / max(high - low, 1e-9)
    reals = np.asarray(coefficients, float) @ [1.0, x, x * x]
    constants: dict[str, Any] = {
        name: link.value(real) for (name, link), real in zip(LINKS.items(), reals, strict=True)
    }
    return CMC(**constants)


def published() -> Coefficients:
    """Returns the coefficients of CMC's own constants: β falls from 1 to 0.1 as γ rises through the range."""
    at = [(-1.0, CMC.of_beta(1.0)), (0.0, CMC.of_beta(0.55)), (1.0, CMC.of_beta(0.1))]
    reals = np.array([[link.real(getattr(cmc, name)) for name, link in LINKS.items()] for _, cmc in at])
    line = np.polynomial.polynomial.polyfit([x for x, _ in at], reals, 1)
    return np.concatenate([line, np.zeros((1, len(LINKS)))]).T


def tune(
    arena: Arena,
    key: PRNGKeyArray,
    *,
    generations: int,
    population: int,
    on_generation: Callable[[int, float], None] | None = None,
) -> Coefficients:
    """Searches for coefficients with a better objective than CMC's own.

    Args:
        arena: the training questions.
        key: the key to draw candidates and episodes with.
        generations: generations of the strategy.
        population: candidates of each generation.
        on_generation: called after every generation with its number and its mean objective.

    Returns:
        The mean of the strategy, averaged over the second half of the generations.
    """
    from evosax.algorithms import CMA_ES  # here, as it starts JAX

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

        scores = arena.play(candidate, population, NUM_GAMMAS, draw)
        state, _ = strategy.tell(tell, candidates, jnp.asarray(-scores.objective), state, params)
        means.append(np.asarray(strategy.get_mean(state)))
        if on_generation:
            on_generation(generation + 1, float(scores.objective.mean()))
    return np.mean(means[generations // 2 :], axis=0).reshape(start.shape)
