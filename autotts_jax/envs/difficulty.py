"""Questions that are easier and harder than recorded: a smoothed bootstrap.

On thirty questions, which of two controllers is better depends on the few whose votes are contested, and a
controller that is fitted to their gold answers memorises them. So an episode does not draw branches evenly:
right ones are drawn with exp(δ) times the odds of the others, with a normal δ around 0 for every order. The
same branches then make a contested question, a clear one, and one that the majority gets wrong. This is a
kernel estimate of the distribution of questions with a kernel in log-odds (Silverman and Young, "The
bootstrap: to smooth or not to smooth?", 1987).
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np

from autotts_jax.envs.params import EnvParams
from autotts_jax.replay.matrix import NONE, ProbeMatrix
from autotts_jax.replay.orders import BranchOrders


def vary_difficulty(params: EnvParams, std: float, seed: int) -> EnvParams:
    """Draws branch orders as if the questions were easier or harder.

    Returns:
        The parameters with new branch orders, different ones for each question.
    """
    orders = varied_orders(params.matrix, params.orders.num_rows, std, seed)
    table, group = jnp.asarray(orders.table), jnp.asarray(orders.group)
    return dataclasses.replace(params, orders=BranchOrders(table, group))


def varied_orders(matrix: ProbeMatrix, rows: int, std: float, seed: int) -> BranchOrders:
    """Draws branch orders as if the questions were easier or harder."""
    lengths, gold = np.asarray(matrix.lengths), np.asarray(matrix.gold)
    right = (np.asarray(matrix.finals()) == gold[:, None]) & (gold[:, None] != NONE)
    rng = np.random.default_rng(seed)
    table = np.empty((len(gold), rows, matrix.num_branches), np.int16)
    for question, order in enumerate(table):
        δ = std * rng.standard_normal((len(order), 1))
        # Sorting log-weights with Gumbel noise draws by weight, without replacement.
        drawn = δ * right[question] + rng.gumbel(size=order.shape)
        drawn[:, lengths[question] == 0] = -np.inf
        order[:] = np.argsort(-drawn, axis=1)
    return BranchOrders(table, np.arange(len(gold)))
