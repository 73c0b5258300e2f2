"""Where populations of controllers are compared: all of them on the same episodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, Int32, PRNGKeyArray

from autotts_jax.core.controller import Controller
from autotts_jax.core.rollout import Episodes, rollout
from autotts_jax.envs.params import EnvParams
from autotts_jax.replay.matrix import NONE


class Scores(NamedTuple):
    """What M members did at P prices on Q questions.

    Attributes:
        gammas: the prices. Shape (P,).
        right: whether the answer was right. Shape (M, P, Q), as are the following.
        intervals: Σ l_i.
        tokens: tokens charged.
    """

    gammas: Float[np.ndarray, " P"]
    right: Bool[np.ndarray, "M P Q"]
    intervals: Int32[np.ndarray, "M P Q"]
    tokens: Int32[np.ndarray, "M P Q"]

    @property
    def objective(self) -> Float[np.ndarray, " M"]:
        """Each member's mean of 1{right} - γ·C."""
        return np.mean(self.right - self.gammas[:, None] * self.intervals, axis=(1, 2))


class Arena:
    """Training questions, and the draws of episodes over them.

    Args:
        params: questions, branch orders, the range of γ, and what counts as right.
        max_branches: branches that an episode can open.
        devices: local devices to share the episodes among; all when None, of all processes.

    Attributes:
        matrix: the probe matrix.
        targets: what counts as right for each question and row of its orders. Shape (Q, R).
        gamma_range: least and largest γ.
    """

    def __init__(
        self,
        params: EnvParams,
        max_branches: int,
        devices: Sequence[jax.Device] | None = None,
    ):
        self.matrix, self._devices = params.matrix, devices
        self._orders = jax.tree.map(np.asarray, params.orders.first(max_branches))
        gold = np.broadcast_to(
            np.asarray(params.matrix.gold)[:, None], (self.matrix.num_questions, self._orders.num_rows)
        )
        self.targets = gold if params.targets is None else np.asarray(params.targets)
        self.gamma_range = float(params.gamma_low), float(params.gamma_high)

    def draw(
        self, questions: Int[np.ndarray, " E"], rng: np.random.Generator
    ) -> tuple[Int32[np.ndarray, "E W"], Int[np.ndarray, " E"]]:
        """A branch order for each question, and what counts as right in it."""
        row = rng.integers(self._orders.num_rows, size=len(questions))
        return self._orders.of(questions, row).astype(np.int32), self.targets[questions, row]

    @property
    def middle_gamma(self) -> float:
        """The γ in the middle of the range."""
        low, high = self.gamma_range
        return float(np.sqrt(low * high))

    def play(
        self,
        controller: Callable[[int, float], Controller],
        members: int,
        prices: int,
        key: PRNGKeyArray,
    ) -> Scores:
        """Every member plays every question at every price, each in one branch order that all members share.

        Args:
            controller: the controller of a member at a γ; all of one class.
            members: M.
            prices: P; see `draw_prices`.
            key: what prices and orders are drawn with.
        """
        rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        questions = self.matrix.num_questions
        gammas = draw_prices(self.gamma_range, prices, rng)
        row = rng.integers(self._orders.num_rows, size=(prices, questions))
        settings = [controller(member, float(gamma)) for member in range(members) for gamma in gammas]
        setting, question = (axis.reshape(-1) for axis in np.indices((len(settings), questions)))
        rows = np.tile(row, (members, 1)).reshape(-1)
        episodes = Episodes(question, rows, setting)
        played = rollout(settings, self.matrix, self._orders, episodes, devices=self._devices)
        right = (played.answer == self.targets[question, rows]) & (played.answer != NONE)
        columns = (right, played.intervals, played.tokens)
        return Scores(gammas, *(column.reshape(members, prices, questions) for column in columns))


def draw_prices(
    gamma_range: tuple[float, float], prices: int, rng: np.random.Generator
) -> Float[np.ndarray, " P"]:
    """P log-uniform values of γ, one from each of P strata."""
    low, high = np.log(gamma_range)
    return np.exp(low + (high - low) * (np.arange(prices) + rng.uniform(size=prices)) / prices)
