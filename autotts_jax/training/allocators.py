"""Learning an allocator: evolution of the weights of an index, on sets of training questions."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from autotts_jax.checks import check_int
from autotts_jax.core.batch import Readings, read_through, spend
from autotts_jax.core.forks import refuse_forks
from autotts_jax.core.votes import is_correct
from autotts_jax.errors import InputError
from autotts_jax.policies.allocators import LinearIndex
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.replay.orders import BranchOrders, repo100_orders
from autotts_jax.training.arena import draw_log_uniform
from autotts_jax.training.evolution import EvolutionSettings, EvolutionStrategy, Played

ORDERS = 16
"""Branch orders of each cell, as ``repo100`` draws them from seeds that no evaluation plays, …"""

PLAYED = 4
"""… and of these, how many a generation plays."""

FIRST_SEED = 2**31
"""The seed of the first of these orders."""

FEWEST = 2
"""Mean branches a question of the smallest budget; the largest is for half of the branches."""


class _Cell(NamedTuple):
    """A set of questions: what each weight is multiplied with, and what its branches answer and cost."""

    features: Float[np.ndarray, "F R Q W"]
    readings: Readings
    gold: Int[np.ndarray, " Q"]


class IndexEvolution(EvolutionStrategy):
    """Trains the weights of an index: the mean accuracy of a set of questions over token budgets grows.

    In every generation all members share out the same budgets, which are drawn log-uniformly, among the
    questions of one cell in the same branch orders.

    Args:
        settings: its settings; ``num_gammas`` is how many budgets a generation plays.
        datasets: the training questions, every cell a set.
        start: the index that it starts from.
    """

    def __init__(self, settings: EvolutionSettings, datasets: Sequence[ProbeDataset], start: LinearIndex):
        super().__init__(settings, jax.tree.map(jnp.float32, start))
        self._cells = []
        for dataset, place in _cells(datasets):
            matrix = dataset.select(dataset.cell_questions(place)).matrix
            orders = repo100_orders(dataset.cells[place].num_branches, range(FIRST_SEED, FIRST_SEED + ORDERS))
            orders = orders[None, :, : settings.max_branches]
            table = BranchOrders(orders, np.zeros(matrix.num_questions, np.int32))
            # The index is linear: with one weight of 1, and the others 0, it is what that is multiplied with.
            names = [field.name for field in dataclasses.fields(LinearIndex)]
            units = [LinearIndex(**{name: float(name == one) for name in names}) for one in names]
            read = [read_through(unit, matrix, table) for unit in units]
            features = np.stack([readings.urgency for readings in read])
            self._cells.append(_Cell(features, read[0], np.asarray(matrix.gold)))

    def _play(self, members: LinearIndex, key: PRNGKeyArray) -> Played:
        rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        features, readings, gold = self._cells[rng.integers(len(self._cells))]
        rows = rng.choice(ORDERS, PLAYED, replace=False)
        weights = np.stack(jax.tree.leaves(members), axis=1)
        urgency = np.tensordot(weights, features[:, rows, :, 1:], axes=1)
        urgency = np.pad(urgency, [(0, 0)] * 3 + [(1, 0)], constant_values=np.inf)
        population, _, questions, width = urgency.shape
        cost, answer = (np.tile(part[rows], (population, 1, 1)) for part in (readings.cost, readings.answer))
        largest = max(width / 2, FEWEST)
        branches = draw_log_uniform(FEWEST, largest, self._settings.num_gammas, rng)
        budgets = np.ceil(branches * questions * readings.cost.mean()).astype(int)
        played = Readings(urgency.reshape(-1, questions, width).astype(np.float32), answer, cost)
        spent, answers = played.after(spend(played, budgets))
        right = is_correct(answers, gold).reshape(len(budgets), population, -1)
        return Played(right.mean(axis=(0, 2)), {"accuracy": right.mean(), "tokens": spent.mean()})

    def _policy(self, parameters: LinearIndex) -> LinearIndex:
        return jax.tree.map(float, parameters)


def _cells(datasets: Sequence[ProbeDataset]) -> list[tuple[ProbeDataset, int]]:
    return [(dataset, cell) for dataset in datasets for cell in range(len(dataset.cells))]


def train_allocator(
    data: ProbeDataset | Sequence[ProbeDataset],
    *,
    updates: int = 100,
    seed: int = 0,
    start: LinearIndex | None = None,
    settings: EvolutionSettings | None = None,
) -> LinearIndex:
    """Learns the weights of an index on sets of questions.

    Args:
        data: the training questions, every cell a set; of several datasets, all of them.
        updates: generations.
        seed: seed of all that is drawn.
        start: the index to start from; `LinearIndex()` when None.
        settings: settings of the evolution; when None, those that suit six weights.

    Returns:
        The index, which `autotts_jax.policies.save_weights` writes to a file.

    Raises:
        InputError: a value is out of range, or a question has fewer branches than ``max_branches``.

    Example:
        >>> import autotts_jax as at
        >>> from autotts_jax.training import train_allocator
        >>> index = train_allocator(at.load("smollm2"), updates=2)
        >>> result = at.evaluate_batch("smollm2", ["uniform", index], budgets=[20_000], seeds=5)
    """
    refuse_forks()
    updates = check_int("updates", updates, 1)
    datasets = [data] if isinstance(data, ProbeDataset) else data
    if not isinstance(datasets, Sequence) or not all(isinstance(one, ProbeDataset) for one in datasets):
        raise InputError(
            f"data is {data!r:.60}, but it must be a dataset or several, as autotts_jax.load reads"
        )
    if not datasets:
        raise InputError("data is empty; give at least one dataset")
    if not isinstance(start, LinearIndex | None):
        raise InputError(f"start is {start!r:.60}, but it must be a LinearIndex")
    least = min(dataset.cells[cell].num_branches for dataset, cell in _cells(datasets))
    settings = settings or EvolutionSettings(
        std=0.15, learning_rate=0.1, decay_updates=updates, max_branches=min(least, 32)
    )
    check_int("max_branches", settings.max_branches, 1, least)
    trainer = IndexEvolution(settings, datasets, start or LinearIndex())
    state = trainer.init(jax.random.key(check_int("seed", seed, 0, 2**32 - 1)))
    for _ in range(updates):
        state, _ = trainer.update(state)
    return trainer.policy(state)
