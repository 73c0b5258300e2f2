"""Rewards for training controllers: what a step is worth."""

from __future__ import annotations

import enum

import jax.numpy as jnp
from jaxtyping import Bool, Float

from autotts_jax.typing import Array, Scalar


class Reward(enum.IntEnum):
    """Reward modes; J_t is 1 where the answer that would be given at step t is right, and else 0."""

    OUTCOME = 0
    """1{right} at ANSWER, and -γ·ΔC at every step: the objective of AutoTTS (arXiv 2605.08083)."""
    PROGRESS = 1
    """`OUTCOME` plus α·(J_{t+1} - J_t): the progress bonus of MRT (arXiv 2503.07572, definition 6.1)."""
    REGRET = 2
    """-(1 - J_t)·ΔC / C0, and the rest of C0 charged at ANSWER: the regret of MRT, definition 4.1."""
    MAJORITY = 3
    """`OUTCOME` with the majority of held-out branches for the right answer: TTRL, no gold label."""


def reward(
    mode: Scalar,
    answered: Bool[Array, ""],
    right_before: Bool[Array, ""],
    right_after: Bool[Array, ""],
    cost_before: Float[Array, ""],
    cost_after: Float[Array, ""],
    gamma: Float[Array, ""],
    progress_weight: float | Float[Array, ""],
    regret_budget: float | Float[Array, ""],
) -> Float[Array, ""]:
    """The reward of one step.

    The sum over an episode is 1{right} - γ·C for `Reward.OUTCOME` and `Reward.MAJORITY`; that plus
    α·(J_T - J_0) for `Reward.PROGRESS`; and minus the share of C0 spent without the right answer in hand for
    `Reward.REGRET`.

    Args:
        mode: a `Reward`; may be traced.
        answered: the step was an admissible ANSWER.
        right_before: J_t.
        right_after: J_{t+1}.
        cost_before: C_t in intervals.
        cost_after: C_{t+1} in intervals.
        gamma: γ, the price of an interval.
        progress_weight: α.
        regret_budget: C0 in intervals.
    """
    outcome = jnp.where(answered & right_after, 1.0, 0.0) - gamma * (cost_after - cost_before)
    progress = progress_weight * (right_after.astype(jnp.float32) - right_before)
    until = jnp.where(answered, regret_budget, jnp.minimum(cost_after, regret_budget))
    charged = until - jnp.minimum(cost_before, regret_budget)
    regret = -jnp.where(right_before, 0.0, charged / regret_budget)
    return jnp.where(
        jnp.asarray(mode) == Reward.REGRET,
        regret,
        outcome + jnp.where(jnp.asarray(mode) == Reward.PROGRESS, progress, 0.0),
    ).astype(jnp.float32)
