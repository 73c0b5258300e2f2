"""Generalised advantage estimation."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float

from autotts_jax.typing import Array


def advantages(
    reward: Float[Array, "T E"],
    value: Float[Array, "T E"],
    next_value: Float[Array, "T E"],
    terminated: Bool[Array, "T E"],
    truncated: Bool[Array, "T E"],
    gae_lambda: float | Float[Array, ""],
) -> Float[Array, "T E"]:
    """Computes generalised advantage estimates (arXiv 1506.02438), undiscounted.

    A terminated episode brings nothing more; a truncated one would have gone on, and the critic predicts what
    it would have brought. Neither depends on the episode that is played after it.
    """

    def back(
        later: jax.Array, played: tuple[Float[Array, " E"], Bool[Array, " E"]]
    ) -> tuple[jax.Array, jax.Array]:
        td_error, ended = played
        advantage = jnp.asarray(td_error + jnp.where(ended, 0, gae_lambda * later))
        return advantage, advantage

    td_error = reward + jnp.where(terminated, 0, next_value) - value
    _, advantage = jax.lax.scan(
        back, jnp.zeros_like(value[0]), (td_error, terminated | truncated), reverse=True
    )
    return advantage
