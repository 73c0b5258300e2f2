"""Tuning of files: an evolution strategy over the constants of a controller that plays sealed.

The constants of a controller are traced, so that other ones cost no compilation. What is found becomes part
of the file, which then plays these episodes wherever it is played.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

import numpy as np

from autotts_jax.errors import InputError
from autotts_jax.extras import needs
from autotts_jax.policies.player import Play
from autotts_jax.policies.sealed.player import SealedPlayer
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.replay.orders import BranchOrders

TRIES = 32
"""Factors that are tried of a file in a run."""

GENERATION = 8
"""Factors that are tried before any is learned from."""

FIRST_STEP = 0.3
"""Standard deviation of the first factors, in nats."""

LARGEST = 8.0
"""The largest factor; the least is its inverse."""

_TUNED = """

from autotts_jax.policies import tuned

{name} = tuned({name}, {factors})
"""
"""What is added to a file that is tuned."""


def check_installed() -> None:
    """Checks that the evolution strategy is installed.

    Raises:
        InputError: it is not.
    """
    with needs("discover", "tuning files"):
        import cmaes  # noqa: F401


def best_factors(
    player: SealedPlayer,
    data: ProbeDataset,
    orders: BranchOrders,
    objective: Callable[[Play], float],
    tries: int,
    seed: str,
) -> tuple[Play, dict[str, float]]:
    """Looks for factors of a controller's constants; episodes that it plays for that are not checked.

    Returns:
        What the controller came to as it was; and the factor of each constant that is to change, none where
        nothing better was found.

    Raises:
        InputError: the player failed as it was.
    """
    with player.with_factors(data, orders) as (names, play):
        first = play({})
        try:
            found = _search(names, lambda factors: objective(play(factors)), objective(first), tries, seed)
        except InputError:
            found = {}  # It cannot be tuned, or takes too long for it.
    return first, {name: factor for name, factor in found.items() if factor != 1}


def _search(
    names: tuple[str, ...],
    objective: Callable[[Mapping[str, float]], float],
    best: float,
    tries: int,
    seed: str,
) -> dict[str, float]:
    """The best factors, if they are better than what is the best without."""
    from cmaes import CMA

    found: dict[str, float] = {}
    if not names:
        return found
    number = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4])
    strategy = CMA(np.zeros(len(names)), FIRST_STEP, seed=number, population_size=GENERATION)
    for _ in range(tries // GENERATION):
        points = [strategy.ask() for _ in range(GENERATION)]
        told = []
        for point in points:
            factors = _factors(names, point)
            score = objective(factors)
            told.append((point, -score))
            if score > best:
                best, found = score, factors
        strategy.tell(told)
    return found


def with_factors(source: str, name: str, factors: Mapping[str, float]) -> str:
    """Adds factors of constants to a file."""
    return source.rstrip() + "\n" + _TUNED.format(name=name, factors=dict(factors))


def _factors(names: tuple[str, ...], point: np.ndarray) -> dict[str, float]:
    """The factors at a point, whose coordinates are in nats; short ones, as they are read by people."""
    bound = np.log(LARGEST)
    return {
        name: round(float(np.exp(nats)), 3)
        for name, nats in zip(names, np.clip(point, -bound, bound), strict=True)
    }
