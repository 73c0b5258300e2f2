"""The final answer: what the vote of each finished branch weighs, learned from how episodes of a policy end.

The logarithm of a weight is linear in `VOTE_INPUTS`, and the probability that an answer is right is taken to
be proportional to a power of the weight of its votes: a conditional logit (McFadden, 1974), fitted by maximum
likelihood with a small price on the coefficients. With coefficients of zero it is the plain majority.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from jaxtyping import Bool, Float, Int, Int16, PRNGKeyArray

from autotts_jax.core import votes
from autotts_jax.core.pool import ReplayPool, StopReason
from autotts_jax.envs import observations
from autotts_jax.policies.neural.network import VOTE_INPUTS, vote_inputs
from autotts_jax.policies.neural.policy import NeuralPolicy, Parameters
from autotts_jax.replay.matrix import NONE, ProbeMatrix
from autotts_jax.training.arena import Arena, draw_prices
from autotts_jax.typing import Array

PRICES = 16
"""Values of γ at which every question is played, …"""

ORDERS = 8
"""… in so many branch orders at each."""

RIDGE = 1e-3
"""Price of a squared coefficient, in nats an episode."""

TINY = 1e-30
"""Weights smaller than this count as this one, so that logarithms are finite."""


def learn_votes(parameters: Parameters, arena: Arena, key: PRNGKeyArray) -> Parameters:
    """The parameters with weights of votes that fit the episodes that a network with them plays.

    Args:
        parameters: the network's parameters.
        arena: the training questions.
        key: what prices and episodes are drawn with.
    """
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    questions = np.repeat(np.arange(arena.matrix.num_questions), ORDERS)
    parts = []
    for gamma in draw_prices(arena.gamma_range, PRICES, rng):
        orders, labels = arena.draw(questions, rng)
        ended = jax.device_get(last_votes(parameters, jnp.float32(gamma), arena.matrix, orders, questions))
        parts.append((*ended, labels))
    columns, answers, labels = (np.concatenate(leaves) for leaves in zip(*parts, strict=True))
    coefficients = fit(columns, answers, labels)
    return {**parameters, "of_vote": {"kernel": coefficients[:, None]}}


@jax.jit
def last_votes(
    parameters: Parameters,
    gamma: Float[Array, ""],
    matrix: ProbeMatrix,
    orders: Int[Array, "E W"],
    questions: Int[Array, " E"],
) -> tuple[Float[Array, "E V W"], Int16[Array, "E W"]]:
    """Each branch's `VOTE_INPUTS` when an episode ends, and what it votes for; ``NONE`` without a vote."""
    policy = NeuralPolicy(parameters, gamma)  # type: ignore[arg-type]  # it is traced

    def play(order, question):
        empty = ReplayPool.begin(matrix, question, order, labels=False, revealed=False, equivalence=False)
        memory, pool, _ = jax.lax.while_loop(
            lambda carry: carry[2] == StopReason.RUNNING,
            lambda carry: policy.round(*carry[:2]),
            (*policy.start(empty), jnp.int32(StopReason.RUNNING)),
        )
        stand = observations.standing(pool, memory.tracker)
        return vote_inputs(pool, memory.tracker), jnp.where(stand.final, stand.keys, NONE)

    return jax.vmap(play)(orders, questions)


def fit(
    columns: Float[np.ndarray, "E V W"], answers: Int[np.ndarray, "E W"], labels: Int[np.ndarray, " E"]
) -> Float[np.ndarray, " V"]:
    """The coefficients, given what was right; zeros where nothing speaks for the answers that have votes.

    Args:
        columns: each branch's `VOTE_INPUTS`.
        answers: what each branch votes for; ``NONE`` where it casts no vote.
        labels: what is right in each episode. Episodes in which nobody voted for it, or all did, say nothing.
    """
    voting = answers != NONE
    right = voting & (answers == labels[:, None])
    told = right.any(axis=1) & (voting & ~right).any(axis=1)
    if not told.any():
        return np.zeros(len(VOTE_INPUTS), np.float32)
    data = [jnp.asarray(part[told]) for part in (columns, answers, voting, right)]

    def value_and_gradient(point):
        loss, gradient = _loss(jnp.asarray(point, jnp.float32), *data)
        return float(loss), np.asarray(gradient, float)

    start = np.append(np.zeros(len(VOTE_INPUTS)), 1.0)
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
    """Mean negative log-likelihood of the right answers; the last coordinate is the power."""
    coefficients, power = point[:-1], point[-1]

    def of_episode(columns, answers, voting, right):
        weight = votes.weigh(answers, jax.nn.softmax(coefficients @ columns, where=voting))
        score = power * jnp.log(jnp.maximum(weight, TINY))
        # An answer with c votes is there c times.
        each = score - jnp.log(jnp.maximum(votes.weigh(answers, voting.astype(jnp.float32)), 1))
        total = jax.nn.logsumexp(each, where=voting)
        return total - jnp.max(score, where=right, initial=-jnp.inf)

    losses = jax.vmap(of_episode)(columns, answers, voting, right)
    return jnp.mean(losses) + RIDGE * jnp.sum(coefficients**2)
