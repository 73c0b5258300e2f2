"""What a run is trained and validated on: folds of the questions, and the episodes over them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from jaxtyping import Int

from autotts_jax.envs import EnvParams, cost_of_models
from autotts_jax.envs.difficulty import vary_difficulty
from autotts_jax.envs.targets import poll
from autotts_jax.errors import InputError
from autotts_jax.policies.neural.actions import HEADS
from autotts_jax.policies.neural.network import SignalInput
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.replay.matrix import ProbeMatrix
from autotts_jax.replay.parts import select_part
from autotts_jax.replay.signals import check_signals, readable
from autotts_jax.training.config import Config, DataSettings

FOLD_SEED = 0
"""Seed of the folds. It does not depend on the run's, so that all runs have the same folds."""


def split_questions(dataset: ProbeDataset, settings: DataSettings) -> tuple[ProbeDataset, ProbeDataset]:
    """Splits a dataset into questions to train on and questions to validate on, as a configuration says.

    Args:
        dataset: the questions.
        settings: ``[data]`` of the configuration.

    Returns:
        The questions to train on and those to validate on. With ``split`` the part ``test`` is in neither.

    Raises:
        InputError: there are too few distinct questions.
    """
    if settings.split:
        return select_part(dataset, "train"), select_part(dataset, "validation")
    return split_folds(dataset, settings.folds, settings.fold)


def split_folds(dataset: ProbeDataset, folds: int, fold: int | None) -> tuple[ProbeDataset, ProbeDataset]:
    """Splits a dataset into questions to train on and questions to validate on.

    Args:
        dataset: the questions.
        folds: number of folds.
        fold: the fold that is held out of training; None to train and validate on all questions.

    Returns:
        The questions of the other folds and those of the fold, each question in one of them.

    Raises:
        InputError: there are fewer distinct questions than folds.
    """
    if fold is None:
        return dataset, dataset
    inside = fold_of(dataset, folds) == fold
    return dataset.select(np.flatnonzero(~inside)), dataset.select(np.flatnonzero(inside))


def fold_of(dataset: ProbeDataset, folds: int) -> Int[np.ndarray, " Q"]:
    """Assigns each question to a fold.

    All copies of a question, one for each model that answered it, are in the same fold. The folds depend on
    the questions' texts only: not on their order, nor on a run's seed.

    Args:
        dataset: the questions.
        folds: number of folds.

    Returns:
        The fold of each question, in 0 … folds - 1.

    Raises:
        InputError: there are fewer distinct questions than folds.
    """
    texts, text = np.unique([question.text for question in dataset.questions], return_inverse=True)
    if len(texts) < folds:
        raise InputError(
            f"{len(texts)} distinct questions cannot be dealt into {folds} folds; choose at most as many "
            "folds as there are questions, or leave out fold to train on all of them"
        )
    order = np.random.default_rng(FOLD_SEED).permutation(len(texts))
    fold = np.empty(len(texts), int)
    fold[order] = np.arange(len(texts)) % folds
    return fold[text]


def make_params(config: Config, dataset: ProbeDataset, seed: int) -> EnvParams:
    """Makes the episodes of a run: branch orders, the range of γ, the targets, and what episodes cost.

    Args:
        config: the configuration.
        dataset: the questions.
        seed: seed of the branch orders.

    Returns:
        Parameters of the environment that the configuration's ``network.actions`` name.

    Raises:
        InputError: a model of the data has no profile, no price or no room in memory, there are too few
            branches, or the data lacks a signal that the network reads.
    """
    objective, max_branches, signals = config.objective, config.trainer.max_branches, config.network.signals
    check_signals(signals, dataset.matrix.signals, "the network", "the data has")
    dataset.warn_without_probes()
    environment = HEADS[config.network.actions].environment(max_branches, signals)
    cost = cost_of_models(objective.cost_charged, [cell.model for cell in dataset.cells])
    params = environment.make_params(
        dataset.matrix, gamma=objective.gamma, reward=objective.reward, cost=cost, seed=seed
    )
    if objective.voters:
        params = poll(params, objective.voters, max_branches)
    if objective.difficulty_std:
        params = vary_difficulty(params, objective.difficulty_std, seed)
    return params


def measure_signals(matrix: ProbeMatrix, names: Iterable[str]) -> tuple[SignalInput, ...]:
    """Measures the means and standard deviations that standardise the signals of a network.

    Args:
        matrix: the training questions.
        names: names of the signals.

    Returns:
        The signals, with the mean and the standard deviation of their finite values at all depths that can
        be read. A signal that is the same everywhere has a standard deviation of 1.

    Raises:
        InputError: a signal has no finite value.
    """
    there, found = readable(matrix), []
    for name in names:
        values = np.asarray(matrix.signals[name], float)[there]
        values = values[np.isfinite(values)]
        if not values.size:
            raise InputError(f"the signal {name} has no finite value to train on; leave it out")
        std = float(values.std()) if np.ptp(values) else 1.0
        found.append(SignalInput(name, float(values.mean()), std))
    return tuple(found)
