"""Questions like those that were recorded, but easier and harder: a smoothed bootstrap.

Which of two controllers is better on thirty questions is decided by the few whose votes are contested, and a
controller that is fitted to their gold answers learns these by heart. So an episode does not draw branches
evenly. The right ones come with exp(δ) times the odds of the others, and δ, normal around 0, is drawn for
every order: the same branches then make a question that is contested, one that is not, and one that the
majority gets wrong. It is a kernel estimate of the distribution of questions, the kernel being one of
log-odds (Silverman and Young, "The bootstrap: to smooth or not to smooth?", 1987).
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np

from autotts_jax.envs.params import EnvParams
from autotts_jax.replay.matrix import NONE
from autotts_jax.replay.orders import BranchOrders


def vary_difficulty(params: EnvParams, std: float, seed: int) -> EnvParams:
    """Episodes whose branches are drawn as if their questions were easier or harder.

    Args:
        params: the episodes. Their branch orders are drawn anew, other ones for each question.
        std: standard deviation of δ, in nats of log-odds.
        seed: what is drawn with.
    """
    matrix = params.matrix
    lengths, gold = np.asarray(matrix.lengths), np.asarray(matrix.gold)
    right = (np.asarray(matrix.finals()) == gold[:, None]) & (gold[:, None] != NONE)
    rng = np.random.default_rng(seed)
    table = np.empty((len(gold), params.orders.num_rows, matrix.num_branches), np.int16)
    for question, order in enumerate(table):
        δ = std * rng.standard_normal((len(order), 1))
        # The largest of log-weights with Gumbel noise: drawn by weight, without replacement.
        drawn = δ * right[question] + rng.gumbel(size=order.shape)
        drawn[:, lengths[question] == 0] = -np.inf
        order[:] = np.argsort(-drawn, axis=1)
    orders = BranchOrders(jnp.asarray(table), jnp.arange(len(gold)))
    return dataclasses.replace(params, orders=orders)
