"""How a run measures its policies."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from autotts_jax.core.rollout import Episodes, rollout
from autotts_jax.policies.neural.policy import NeuralPolicy
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.replay.matrix import NONE
from autotts_jax.training.arena import costs_of, hooks_of
from autotts_jax.training.config import Config
from autotts_jax.training.data import make_params

VALIDATION_SEED = 2**31 - 1
"""Seed of the branch orders: the same for all runs, and one that no run is likely to have."""

VALIDATION_ORDERS = 16
"""Branch orders that each question is played in, …"""

VALIDATION_GAMMAS = 8
"""… at each of so many values of γ."""


def make_validation(config: Config, dataset: ProbeDataset) -> Callable[[NeuralPolicy], dict[str, float]]:
    """Makes the function that measures a policy on some questions.

    Args:
        config: the configuration.
        dataset: the questions.

    Returns:
        A function that returns the means over branch orders and values of γ, always the same ones:
        ``objective``, 1{right} - γ·C; ``accuracy``; and ``tokens``.
    """
    params = make_params(config, dataset, VALIDATION_SEED)
    orders = params.orders.first(config.trainer.max_branches)
    low, high = config.objective.gamma
    gammas = np.geomspace(low, high, VALIDATION_GAMMAS)
    setting, row, question = (
        axis.reshape(-1) for axis in np.indices((len(gammas), VALIDATION_ORDERS, len(dataset)))
    )
    targets = dataset.matrix.gold[:, None] if params.targets is None else np.asarray(params.targets)
    target = np.broadcast_to(targets, (len(dataset), orders.num_rows))[question, row]

    def validate(policy: NeuralPolicy) -> dict[str, float]:
        policies = [dataclasses.replace(policy, gamma=float(gamma)) for gamma in gammas]
        episodes = Episodes(question, row, setting)
        played = rollout(policies, dataset.matrix, orders, episodes, hooks=hooks_of(params))
        right = (played.answer == target) & (played.answer != NONE)
        return {
            "objective": float(np.mean(right - gammas[setting] * costs_of(params, played, question))),
            "accuracy": float(right.mean()),
            "tokens": float(played.tokens.mean()),
        }

    return validate
