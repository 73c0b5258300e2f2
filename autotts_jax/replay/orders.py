"""Branch orders: in which order an episode opens the recorded branches of its question."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Int

from autotts_jax.terminal import brief
from autotts_jax.typing import Array, Scalar


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class BranchOrders:
    """R branch orders for each question. Questions of one group share theirs.

    Attributes:
        table: branches in opening order, by group and row; int16 or int32. Shape (G, R, W).
        group: the group of each question. Shape (Q,).
    """

    table: Int[Array, "G R W"]
    group: Int[Array, " Q"]

    __repr__ = brief

    @property
    def num_rows(self) -> int:
        """R, the number of orders of each question."""
        return self.table.shape[1]

    @property
    def width(self) -> int:
        """W, the number of branches in an order."""
        return self.table.shape[2]

    def of(
        self, question: Scalar | Int[Array, "..."], row: Scalar | Int[Array, "..."]
    ) -> Int[Array, "... W"]:
        """Looks up orders; under ``jit`` as well.

        Args:
            question: index of the question, or an array of them.
            row: row of the order, of the same shape.

        Returns:
            The branches in opening order.
        """
        return self.table[self.group[question], row]

    def first(self, width: int) -> BranchOrders:
        """Keeps the first branches of every order.

        Args:
            width: number of branches to keep.
        """
        return dataclasses.replace(self, table=self.table[..., :width])


def recorded_orders(questions: int, width: int) -> BranchOrders:
    """Gives the order in which branches were recorded, in which a live model writes them, too.

    Args:
        questions: Q, number of questions.
        width: W, number of branches.

    Returns:
        One order, 0 … W - 1, for all questions.
    """
    return BranchOrders(np.arange(width, dtype=np.int32)[None, None], np.zeros(questions, np.int32))


def repo100_orders(num_branches: int, seeds: Sequence[int]) -> np.ndarray:
    """Draws the branch orders of the released evaluator, which published its tables over seeds 0 to 99.

    CPython's ``random`` shuffles the branches once a seed; all questions of a cell share that order.

    Args:
        num_branches: N, the recorded branches of each question.
        seeds: S seeds.

    Returns:
        Branches in opening order, int16. Shape (S, N).
    """
    orders = np.empty((len(seeds), num_branches), np.int16)
    for row, seed in zip(orders, seeds, strict=True):
        order = list(range(num_branches))
        random.Random(seed).shuffle(order)
        row[:] = order
    return orders


def paper64_orders(num_questions: int, num_branches: int, seeds: Sequence[int]) -> np.ndarray:
    """Draws branch orders independently for every (seed, question), after the paper's text.

    The first W branches of an order are a random subset of size W of the pool.

    Args:
        num_questions: Q, questions 0 to Q - 1.
        num_branches: N, the recorded branches of each question.
        seeds: S seeds, each in [0, 2**32).

    Returns:
        Branches in opening order, int16. Shape (S, Q, N).
    """

    def order(seed: jax.Array, question: jax.Array) -> jax.Array:
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(0), seed), question)
        return jax.random.permutation(key, num_branches)

    of_questions = jax.vmap(order, in_axes=(None, 0))
    orders = jax.jit(jax.vmap(of_questions, in_axes=(0, None)))
    return np.asarray(orders(np.asarray(seeds, np.uint32), np.arange(num_questions)), np.int16)
