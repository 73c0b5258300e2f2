"""How a run measures its policies."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from autotts_jax.core.controller import Controller
from autotts_jax.core.rollout import Episodes, rollout
from autotts_jax.intervals import Questions, Uncertain
from autotts_jax.policies import cmc, self_consistency
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


class Difference(NamedTuple):
    """A policy against a published controller, at its best value for each γ, in the same episodes.

    Attributes:
        baseline: the controller's name.
        gain: objective of the policy minus that of the controller.
        gain_low: lower end of its 95 % interval, over questions; NaN where they are too few.
        gain_high: upper end of it.
        accuracy: accuracy of the policy minus that of the controller, in -1 … 1.
        accuracy_low: lower end of its interval, likewise.
        accuracy_high: upper end of it.
        tokens_ratio: tokens of the policy over those of the controller.
    """

    baseline: str
    gain: float
    gain_low: float
    gain_high: float
    accuracy: float
    accuracy_low: float
    accuracy_high: float
    tokens_ratio: float


class Validation:
    """Measures policies on some questions, in the same episodes every time.

    Args:
        config: the configuration.
        dataset: the questions.
    """

    def __init__(self, config: Config, dataset: ProbeDataset):
        self._dataset = dataset
        self._params = make_params(config, dataset, VALIDATION_SEED)
        self._orders = self._params.orders.first(config.trainer.max_branches)
        self._gammas = np.geomspace(*config.objective.gamma, VALIDATION_GAMMAS)
        targets = self._params.targets
        targets = dataset.matrix.gold[:, None] if targets is None else np.asarray(targets)
        self._targets = np.broadcast_to(targets, (len(dataset), self._orders.num_rows))

    def __call__(self, policy: NeuralPolicy) -> dict[str, float]:
        """Measures a policy.

        Args:
            policy: the policy.

        Returns:
            The means over branch orders and values of γ: ``objective``, 1{right} - γ·C; ``accuracy``; and
            ``tokens``.
        """
        played = self._play(self._at_gammas(policy))
        return {
            "objective": float(self._worth(played).mean()),
            "accuracy": float(played.right.mean()),
            "tokens": float(played.tokens.mean()),
        }

    def compare(self, policy: NeuralPolicy) -> list[Difference]:
        """Compares a policy with self-consistency and with CMC; in the process that calls it alone.

        Args:
            policy: the policy.

        Returns:
            The differences. Each controller has the value of the best objective for each γ on these same
            questions, which favours the controller.
        """
        here = jax.local_devices()
        own = _over_orders(self._play(self._at_gammas(policy), here))
        texts = [question.text for question in self._dataset.questions]
        questions = Questions(np.full(len(texts), 1 / len(texts)), texts)
        gammas = self._gammas[:, None]

        width = self._orders.width
        branches = (*(value for value in self_consistency.FAMILY.values if value < width), width)
        found = []
        for family in (dataclasses.replace(self_consistency.FAMILY, values=branches), cmc.FAMILY):
            its = _over_orders(self._play([family.member(value) for value in family.values], here))
            # Each value at each γ. Shape (V, G, Q).
            worth = its.right[:, None] - gammas * its.costs[:, None]
            best = worth.mean(axis=-1).argmax(axis=0)
            right = (own.right - its.right[best]).mean(axis=0)
            cost = (gammas * (own.costs - its.costs[best])).mean(axis=0)
            objective, accuracy = questions.gain(right, cost), questions.gain(right)
            tokens_ratio = float(own.tokens.mean() / its.tokens[best].mean())
            found.append(Difference(family.name, *_ends(objective), *_ends(accuracy), tokens_ratio))
        return found

    def _at_gammas(self, policy: NeuralPolicy) -> list[NeuralPolicy]:
        return [dataclasses.replace(policy, gamma=float(gamma)) for gamma in self._gammas]

    def _worth(self, played: _Played) -> np.ndarray:
        """The objective of what was played with a setting for each γ."""
        gammas = self._gammas.reshape(-1, *[1] * (played.right.ndim - 1))
        return played.right - gammas * played.costs

    def _play(
        self, controllers: Sequence[Controller], devices: Sequence[jax.Device] | None = None
    ) -> _Played:
        """Plays every question under every order with each of V controllers. Shape (V, R, Q) each."""
        shape = len(controllers), VALIDATION_ORDERS, len(self._dataset)
        setting, row, question = (axis.reshape(-1) for axis in np.indices(shape))
        played = rollout(
            controllers,
            self._dataset.matrix,
            self._orders,
            Episodes(question, row, setting),
            devices=devices,
            hooks=hooks_of(self._params),
        )
        right = (played.answer == self._targets[question, row]) & (played.answer != NONE)
        columns = (right, costs_of(self._params, played, question), played.tokens)
        return _Played(*(column.reshape(shape) for column in columns))


class _Played(NamedTuple):
    """What episodes came to."""

    right: np.ndarray
    costs: np.ndarray
    tokens: np.ndarray


def _over_orders(played: _Played) -> _Played:
    """Means over the branch orders. Shape (V, Q) each."""
    return _Played(*(column.mean(axis=1) for column in played))


def _ends(gain: Uncertain) -> tuple[float, float, float]:
    return gain.value, *gain.interval
