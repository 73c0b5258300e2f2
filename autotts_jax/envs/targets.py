"""Targets: the answers that count as right where gold answers are not used.

The target of an episode is the majority of the finals of branches that it does not play. The majority of all
of these is nearly always the same answer, far more often than it is right, and a controller that is rewarded
for agreeing with it buys more branches than they are worth. A few voters disagree with the majority about as
often as gold answers do.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int, Int16, Int32

from autotts_jax.core import votes
from autotts_jax.envs.params import EnvParams
from autotts_jax.errors import InputError
from autotts_jax.replay.matrix import ProbeMatrix
from autotts_jax.replay.orders import BranchOrders
from autotts_jax.typing import Array, Scalar


def poll(params: EnvParams, voters: int, max_branches: int) -> EnvParams:
    """Makes the majority of a few branches that are not played the target of each episode.

    Returns:
        The parameters with these targets.

    Raises:
        InputError: there are fewer branches that are not played.
    """
    rest = params.orders.width - max_branches
    if voters > rest:
        raise InputError(
            f"voters is {voters}, but only {rest} branches of a question are not played; give {rest} or fewer"
        )
    orders = jax.tree.map(np.asarray, params.orders)
    asked = orders.table[orders.group, :, max_branches : max_branches + voters]
    finals = np.take_along_axis(np.asarray(params.matrix.finals())[:, None], asked, axis=2)
    return dataclasses.replace(params, targets=_majorities(finals))


@jax.jit
@jax.vmap
@jax.vmap
def _majorities(answers: Int[Array, " V"]) -> Int[Array, ""]:
    """Returns the majority of each row, of equal ones the first."""
    return votes.vote(answers, jnp.ones(answers.shape, bool)).winner(answers)


def majority_target(matrix: ProbeMatrix, question: Scalar, played: Int[Array, " W"]) -> Int32[Array, ""]:
    """Finds the majority of the finals of all branches that are not played.

    Returns:
        The answer id; ``NONE`` without votes.
    """
    answers, lengths = jnp.asarray(matrix.answers)[question], jnp.asarray(matrix.lengths)[question]
    finals = jnp.take_along_axis(answers, lengths[:, None], axis=1)[:, 0].astype(jnp.int32)
    voters = jnp.asarray(lengths > 0).at[played].set(False)
    return votes.vote(finals, voters).winner(finals)


@jax.jit(static_argnums=2)
def majority_targets(matrix: ProbeMatrix, orders: BranchOrders, width: int) -> Int16[Array, "Q R"]:
    """Finds the `majority_target` of every question and row of its orders, of which W branches are played.

    Returns:
        The answer ids; ``NONE`` without votes.
    """

    def of_question(question: Array) -> Array:
        played = orders.of(question, jnp.arange(orders.num_rows))[:, :width]
        return jax.vmap(lambda branches: majority_target(matrix, question, branches))(played)

    return jax.lax.map(of_question, jnp.arange(matrix.num_questions)).astype(jnp.int16)
