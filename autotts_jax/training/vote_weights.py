"""Weights of votes, learned from how the episodes of a policy end.

When an episode ends, each finished branch votes for its final answer. The logarithm of a vote's weight is
linear in `vote_inputs`, and the probability that an answer is right is taken to be proportional to a power of
the weight of its votes: a conditional logit (McFadden, 1974), fitted by maximum likelihood with a small ridge
penalty. With coefficients of zero it is the plain majority.
"""

from __future__ import annotations

from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from autotts_jax.core import votes
from autotts_jax.core.controller import Controller
from autotts_jax.core.pool import ReplayPool
from autotts_jax.core.rollout import Episodes, Hooks, rollout
from autotts_jax.envs import observations
from autotts_jax.policies.neural.network import SignalInput, vote_inputs
from autotts_jax.policies.neural.policy import NeuralMemory, NeuralPolicy, Parameters
from autotts_jax.replay.matrix import NONE
from autotts_jax.training.arena import Arena, draw_log_uniform
from autotts_jax.typing import Array

NUM_GAMMAS = 16
"""Values of γ at which every question is played, …"""

NUM_ORDERS = 8
"""… in so many branch orders at each."""

RIDGE = 1e-3
"""Penalty of a squared coefficient, in nats an episode."""

TINY = 1e-30
"""The least weight, so that logarithms are finite."""


def learn_vote_weights(
    parameters: Parameters, arena: Arena, key: PRNGKeyArray, signal_inputs: tuple[SignalInput, ...] = ()
) -> Parameters:
    """Fits the weights of votes to the episodes that a network plays.

    Args:
        parameters: the network's parameters.
        arena: the training questions.
        key: the key to draw values of γ and episodes with.
        signal_inputs: the signals that the network reads.

    Returns:
        The parameters, with fitted weights of votes.
    """
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    gammas = draw_log_uniform(*arena.gamma_range, NUM_GAMMAS, rng)
    policies = [NeuralPolicy(parameters, float(gamma), signal_inputs=signal_inputs) for gamma in gammas]
    shape = (NUM_GAMMAS, arena.matrix.num_questions, NUM_ORDERS)
    setting, question, _ = (axis.reshape(-1) for axis in np.indices(shape))
    row = arena.draw_rows(question, rng)
    episodes = Episodes(question, row, setting)
    played = rollout(policies, arena.matrix, arena.orders, episodes, hooks=Hooks(at_end=final_votes))
    columns, answers = played.ends
    coefficients = fit(columns, answers, arena.targets[question, row])
    return {**parameters, "of_vote": {"kernel": coefficients[:, None]}}


def final_votes(
    policy: Controller, memory: NeuralMemory, pool: ReplayPool
) -> tuple[Float[Array, "V W"], Int[Array, " W"]]:
    """Reads the votes of an episode that has ended.

    Returns:
        The `vote_inputs` of each branch, and the answer that it votes for; ``NONE`` where it casts no vote.
    """
    view, tracker = pool.view(), memory.state.tracker
    counts = observations.vote_counts(view, tracker)
    inputs = vote_inputs(view, tracker, cast(NeuralPolicy, policy).signal_inputs)
    return inputs, jnp.where(counts.final, counts.keys, NONE)


def fit(
    columns: Float[np.ndarray, "E V W"], answers: Int[np.ndarray, "E W"], targets: Int[np.ndarray, " E"]
) -> Float[np.ndarray, " V"]:
    """Fits the coefficients of the weights.

    Args:
        columns: the `vote_inputs` of each branch.
        answers: the answer that each branch votes for; ``NONE`` where it casts no vote.
        targets: the answer that is right in each episode. Episodes in which no vote or every vote is right
            tell nothing.

    Returns:
        The coefficients; zeros where the votes speak against their own answers.
    """
    voting = answers != NONE
    right = voting & (answers == targets[:, None])
    telling = right.any(axis=1) & (voting & ~right).any(axis=1)
    if not telling.any():
        return np.zeros(columns.shape[1], np.float32)
    data = [jnp.asarray(part[telling]) for part in (columns, answers, voting, right)]

    def value_and_gradient(point: np.ndarray) -> tuple[float, np.ndarray]:
        loss, gradient = _loss(jnp.asarray(point, jnp.float32), *data)
        return float(loss), np.asarray(gradient, float)

    start = np.append(np.zeros(columns.shape[1]), 1.0)
    found = scipy.optimize.minimize(value_and_gradient, start, jac=True, method="L-BFGS-B")
    *coefficients, power = found.x
    # With a negative power votes would speak against their answer, and the lightest would have to win.
    return np.asarray(coefficients, np.float32) * (power > 0)


@jax.jit
@jax.value_and_grad
def _loss(
    point: Float[Array, " V+1"],
    columns: Float[Array, "E V W"],
    answers: Int[Array, "E W"],
    voting: Bool[Array, "E W"],
    right: Bool[Array, "E W"],
) -> Float[Array, ""]:
    """Computes the mean negative log-likelihood of the right answers; the last coordinate is the power."""
    coefficients, power = point[:-1], point[-1]

    def of_episode(columns: Array, answers: Array, voting: Array, right: Array) -> Array:
        weight = votes.weigh(answers, jax.nn.softmax(coefficients @ columns, where=voting))
        score = power * jnp.log(jnp.maximum(weight, TINY))
        # An answer with c votes is there c times.
        each = score - jnp.log(jnp.maximum(votes.weigh(answers, voting.astype(jnp.float32)), 1))
        total = jax.nn.logsumexp(each, where=voting)
        return total - jnp.max(score, where=right, initial=-jnp.inf)

    losses = jax.vmap(of_episode)(columns, answers, voting, right)
    return jnp.mean(losses) + RIDGE * jnp.sum(coefficients**2)
