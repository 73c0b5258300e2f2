"""The episodes that populations of controllers are compared on: the same ones for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, Int32, Num, PRNGKeyArray

from autotts_jax.core.controller import Controller
from autotts_jax.core.costs import spent_by
from autotts_jax.core.rollout import Episodes, Hooks, Results, rollout
from autotts_jax.envs import EnvParams
from autotts_jax.replay.matrix import NONE


class Scores(NamedTuple):
    """What M members reached at G values of γ on Q questions.

    Attributes:
        gammas: the values of γ. Shape (G,).
        right: whether the answer was right. Shape (M, G, Q), as are the following.
        costs: C; see `costs_of`.
        tokens: tokens charged.
        steps: environment steps, the one that answers included.
    """

    gammas: Float[np.ndarray, " G"]
    right: Bool[np.ndarray, "M G Q"]
    costs: Num[np.ndarray, "M G Q"]
    tokens: Int32[np.ndarray, "M G Q"]
    steps: Int32[np.ndarray, "M G Q"]

    @property
    def objective(self) -> Float[np.ndarray, " M"]:
        """Mean of 1{right} - γ·C of each member."""
        return np.mean(self.right - self.gammas[:, None] * self.costs, axis=(1, 2))


class Arena:
    """Training questions, and draws of episodes over them.

    Args:
        params: questions, branch orders, the range of γ, the targets, and what episodes cost.
        max_branches: branches that an episode can open.
        devices: local devices to share the episodes among; by default all, of all processes.

    Attributes:
        matrix: the probe matrix.
        orders: the branch orders, of as many branches as an episode can open.
        targets: the answer that counts as right for each question and row of its orders. Shape (Q, R).
        gamma_range: least and largest γ.
    """

    def __init__(
        self,
        params: EnvParams,
        max_branches: int,
        devices: Sequence[jax.Device] | None = None,
    ):
        self.matrix, self._params, self._devices = params.matrix, params, devices
        self.orders = jax.tree.map(np.asarray, params.orders.first(max_branches))
        gold = np.asarray(params.matrix.gold)[:, None]
        targets = gold if params.targets is None else np.asarray(params.targets)
        self.targets = np.broadcast_to(targets, (self.matrix.num_questions, self.orders.num_rows))
        self.gamma_range = float(params.gamma_low), float(params.gamma_high)

    def draw_rows(self, questions: Int[np.ndarray, " E"], rng: np.random.Generator) -> Int[np.ndarray, " E"]:
        """Draws a row of the branch orders for each of some questions.

        Args:
            questions: the questions.
            rng: the generator to draw with.
        """
        return rng.integers(self.orders.num_rows, size=len(questions))

    @property
    def middle_gamma(self) -> float:
        """The γ in the middle of the range, on a logarithmic scale."""
        low, high = self.gamma_range
        return float(np.sqrt(low * high))

    def play(
        self,
        controller: Callable[[int, float], Controller],
        members: int,
        num_gammas: int,
        key: PRNGKeyArray,
    ) -> Scores:
        """Plays every question with every member at every γ, in branch orders that all members share.

        Args:
            controller: returns the controller of a member at a γ; all of one class.
            members: M.
            num_gammas: G; see `draw_log_uniform`.
            key: the key to draw values of γ and orders with.

        Returns:
            The scores.
        """
        rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        questions = self.matrix.num_questions
        gammas = draw_log_uniform(*self.gamma_range, num_gammas, rng)
        row = rng.integers(self.orders.num_rows, size=(num_gammas, questions))
        settings = [controller(member, float(gamma)) for member in range(members) for gamma in gammas]
        setting, question = (axis.reshape(-1) for axis in np.indices((len(settings), questions)))
        rows = np.tile(row, (members, 1)).reshape(-1)
        episodes = Episodes(question, rows, setting)
        hooks = hooks_of(self._params)
        played = rollout(settings, self.matrix, self.orders, episodes, devices=self._devices, hooks=hooks)
        right = (played.answer == self.targets[question, rows]) & (played.answer != NONE)
        costs = costs_of(self._params, played, question)
        columns = (right, costs, played.tokens, played.rounds + 1)
        return Scores(gammas, *(column.reshape(members, num_gammas, questions) for column in columns))


def hooks_of(params: EnvParams) -> Hooks:
    """Makes the hooks of rollouts whose costs `costs_of` can compute."""
    return Hooks(critical_path=params.cost is not None and params.cost.waits)


def costs_of(params: EnvParams, played: Results, question: Int[np.ndarray, " E"]) -> Num[np.ndarray, " E"]:
    """Computes the cost C of episodes, as the environment's rewards charge it.

    Returns:
        Σ l_i, or another cost in units of a lone first interval's.
    """
    if params.cost is None:
        return played.intervals
    matrix = params.matrix
    cost = params.cost.of_cells(np.asarray(matrix.cell)[question])
    spent = spent_by(played, np.asarray(matrix.interval)[question], matrix.max_depth)
    return np.asarray(cost.in_intervals(spent))


def draw_log_uniform(
    low: float, high: float, count: int, rng: np.random.Generator
) -> Float[np.ndarray, " count"]:
    """Draws log-uniform values, one from each of equally wide strata.

    Args:
        low: the least value.
        high: the largest value.
        count: how many values are drawn.
        rng: the generator to draw with.

    Returns:
        The values, in increasing order.
    """
    low, high = np.log((low, high))
    return np.exp(low + (high - low) * (np.arange(count) + rng.uniform(size=count)) / count)
