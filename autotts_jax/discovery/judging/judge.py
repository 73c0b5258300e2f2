"""What candidates are compared on: the same questions, in the same branch orders, at the same prices.

At β a branch of mean length costs ``price(β)`` of accuracy, less the larger β is: that is what β means here.
The objective of a family is the mean over β of accuracy minus that price times its tokens. Thirty questions
are soon learned by heart, so the search plays them as if they were easier or harder (`varied_orders`), and
what a search has found is tested on questions that it has not used, as recorded.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from autotts_jax.core.controller import Controller
from autotts_jax.core.rollout import Episodes, rollout
from autotts_jax.envs.difficulty import varied_orders
from autotts_jax.experiments.evaluation import branch_orders
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.replay.orders import BranchOrders

PRICES = (6e-2, 1e-4)
"""What a branch of mean length costs at β = 0 and at β = 1, in accuracy. At the first a single branch is
about the most that pays, however it is read; at the last more pay than self-consistency ever needs."""

SEARCH_BETAS = (0.0, 0.35, 0.7, 1.0)
"""The values of β that a search plays."""

ONE_BETA = (0.5,)
"""The value of β that candidates are played at that have no β."""

DIFFICULTY_STD = 2.0
"""Spread of the questions' difficulty in the search, in nats of log-odds."""

SEARCH_ORDERS, TEST_ORDERS = 256, 64
"""Branch orders of each question that the search draws from, and that tests play. Few orders in a test blur a
gain as much as few questions do, and cost less."""


def price(beta: Float[np.ndarray, "..."] | Sequence[float] | float) -> Float[np.ndarray, "..."]:
    """Computes what a branch of mean length costs, log-linear in β.

    Args:
        beta: β in [0, 1].
    """
    first, last = np.log(PRICES)
    return np.exp(first + (last - first) * np.asarray(beta, float))


class Outcome(NamedTuple):
    """The results of M candidates at B values of β on Q questions, means over branch orders.

    Attributes:
        accuracy: share of right answers. Shape (M, B, Q).
        cost: tokens, in branches of mean length. Shape (M, B, Q).
        width: branches opened. Shape (M, B, Q).
    """

    accuracy: Float[np.ndarray, "M B Q"]
    cost: Float[np.ndarray, "M B Q"]
    width: Float[np.ndarray, "M B Q"]

    def objective(self, betas: Sequence[float]) -> Float[np.ndarray, " M"]:
        """Computes each candidate's objective.

        Args:
            betas: the B values of β.
        """
        return (self.accuracy - price(betas)[:, None] * self.cost).mean(axis=(1, 2))


@dataclasses.dataclass(frozen=True, eq=False)
class Judge:
    """Questions, and the branch orders that candidates play them in.

    Attributes:
        data: Q questions.
        search: branch orders of questions of varied difficulty, drawn anew for each question.
        test: branch orders of the questions as recorded.
        unit: mean tokens of a branch.
        group: the same number for the same question asked of several models. Shape (Q,).
        final_orders: rows of `search` in which finalists are compared; the last rung of every round plays
            those before.
    """

    final_orders: ClassVar[range] = range(12, 44)

    data: ProbeDataset
    search: BranchOrders
    test: BranchOrders
    unit: float
    group: Int[np.ndarray, " Q"]

    @classmethod
    def of(cls, data: ProbeDataset, max_branches: int, seed: int, test_orders: int = TEST_ORDERS) -> Judge:
        """Draws the branch orders.

        Args:
            data: the questions.
            max_branches: branches that an episode can open.
            seed: the seed of the search's orders; tests always play the same.
            test_orders: branch orders of each question that tests play.
        """
        recorded = np.asarray(data.matrix.lengths) > 0
        texts = [question.text for question in data.questions]
        return cls(
            data,
            search=varied_orders(data.matrix, SEARCH_ORDERS, DIFFICULTY_STD, seed).first(max_branches),
            test=branch_orders(data, "paper64", range(test_orders), max_branches),
            unit=float(np.asarray(data.matrix.tokens)[recorded].mean()),
            group=np.unique(texts, return_inverse=True)[1],
        )

    def part(
        self, questions: Int[np.ndarray, " Q"], orders: BranchOrders, rows: Sequence[int]
    ) -> tuple[ProbeDataset, BranchOrders]:
        """Selects questions, and rows of their branch orders.

        Args:
            questions: the questions.
            orders: `search` or `test`.
            rows: rows of the orders.
        """
        table = np.asarray(orders.table)[np.asarray(orders.group)[questions]][:, list(rows)]
        return self.data.select(questions), BranchOrders(table, np.arange(len(questions)))

    def play(
        self,
        candidates: Sequence[Sequence[Controller]],
        questions: Int[np.ndarray, " Q"],
        orders: BranchOrders,
        rows: Sequence[int],
        filling: Sequence[Controller] = (),
    ) -> Outcome:
        """Plays questions with every candidate at every β, in the same branch orders.

        Args:
            candidates: M candidates, each as B controllers.
            questions: the questions.
            orders: `search` or `test`.
            rows: rows of the orders.
            filling: controllers that play nothing; with them, calls of as many controllers share a
                compilation.
        """
        shape = (len(candidates) * len(candidates[0]), len(rows), len(questions))
        setting, row, question = (axis.reshape(-1) for axis in np.indices(shape))
        flat = [*(controller for candidate in candidates for controller in candidate), *filling]
        episodes = Episodes(questions[question], np.asarray(rows)[row], setting)
        played = rollout(flat, self.data.matrix, orders, episodes)
        columns = (played.correct, played.tokens / self.unit, played.branches)
        means = (np.mean(column.reshape(shape), axis=1, dtype=float) for column in columns)
        return Outcome(*(mean.reshape(len(candidates), -1, len(questions)) for mean in means))

    def play_test(self, controllers: Sequence[Controller]) -> Outcome:
        """Plays all questions, as recorded, with one candidate.

        Args:
            controllers: the candidate, as B controllers.
        """
        return self.play([controllers], np.arange(len(self.data)), self.test, range(self.test.num_rows))
