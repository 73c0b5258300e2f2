"""What counts as right without gold answers, when few branches vote on it.

The majority of all branches that are not played is nearly always the same answer, and far more often than it
is right. A controller that is paid for agreeing with it buys more branches than they are worth. A few voters
disagree with the majority about as often as gold answers do.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from autotts_jax.core import votes
from autotts_jax.envs.width_depth import EnvParams
from autotts_jax.errors import InputError
from autotts_jax.typing import Array


def poll(params: EnvParams, voters: int, max_branches: int) -> EnvParams:
    """Episodes in which the majority of a few branches that are not played counts as right.

    Args:
        params: the episodes, with the reward ``majority``.
        voters: branches that vote: in each order the first ones that are not played.
        max_branches: branches that an episode can open.

    Raises:
        InputError: fewer branches are not played.
    """
    rest = params.matrix.num_branches - max_branches
    if voters > rest:
        raise InputError(
            f"voters is {voters}, but only {rest} branches of a question are not played; give {rest} or fewer"
        )
    asked = np.asarray(params.orders[..., max_branches : max_branches + voters])[
        np.asarray(params.matrix.cell)
    ]
    finals = np.take_along_axis(np.asarray(params.matrix.finals())[:, None], asked, axis=2)
    return dataclasses.replace(params, labels=_majorities(finals))


@jax.jit
@jax.vmap
@jax.vmap
def _majorities(answers: Int[Array, " V"]) -> Int[Array, ""]:
    """The majority of each row, the first of those with as many votes."""
    return votes.vote(answers, jnp.ones(answers.shape, bool)).winner(answers)
