"""Resampling protocols: in which order the recorded branches of a question are opened."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np


def repo100_orders(num_branches: int, seeds: Sequence[int]) -> np.ndarray:
    """Branch orders of the released evaluator, which published its tables over seeds 0 to 99.

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
    """Branch orders drawn independently for every (seed, question), after the paper's text.

    The first W branches of an order are a random subset of size W of the pool.

    Args:
        num_questions: Q, questions 0 to Q - 1.
        num_branches: N, the recorded branches of each question.
        seeds: S seeds, each in [0, 2**32).

    Returns:
        Branches in opening order, int16. Shape (S, Q, N).
    """
    import jax  # here, so that worker processes of the released interface can do without it

    def order(seed: jax.Array, question: jax.Array) -> jax.Array:
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(0), seed), question)
        return jax.random.permutation(key, num_branches)

    of_questions = jax.vmap(order, in_axes=(None, 0))
    orders = jax.jit(jax.vmap(of_questions, in_axes=(0, None)))
    return np.asarray(orders(np.asarray(seeds, np.uint32), np.arange(num_questions)), np.int16)
