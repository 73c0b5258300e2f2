"""The final answer: what the vote of each finished branch weighs, learned from how episodes of a policy end.

The logarithm of a weight is linear in `VOTE_INPUTS`, and the probability that an answer is right is taken to
be proportional to a power of the weight of its votes: a conditional logit (McFadden, 1974) whose coefficients
are the most likely ones. With coefficients of zero it is the plain majority.
"""

from __future__ import annotations

from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from jaxtyping import Bool, Float, Int, Int16, PRNGKeyArray

from autotts_jax.envs import observations, votes
from autotts_jax.envs.pool import ReplayPool, StopReason
from autotts_jax.envs.width_depth import EnvParams
from autotts_jax.policies.neural.arena import Arena, draw_prices
from autotts_jax.policies.neural.network import VOTE_INPUTS, ballots
from autotts_jax.policies.neural.policy import NeuralPolicy, Parameters
from autotts_jax.replay.matrix import NONE, ProbeMatrix
from autotts_jax.typing import Array

PRICES = 16
"""Values of γ at which every question is played, …"""

ORDERS = 8
"""… in so many branch orders at each."""

RIDGE = 1e-3
"""Price of a squared coefficient, in nats a question."""

TINY = 1e-30
"""A weight that is none."""


def learn_votes(
    parameters: Parameters, params: EnvParams, max_branches: int, key: PRNGKeyArray
) -> Parameters:
    """The parameters with weights of votes that fit the episodes that a network with them plays.

    Args:
        parameters: the network's parameters.
        params: training questions, branch orders, the range of γ, and what counts as right.
        max_branches: branches that an episode can open.
        key: what prices and episodes are drawn with.
    """
    arena = Arena(params, max_branches)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    questions = np.repeat(np.arange(params.matrix.num_questions), ORDERS)
    cell, orders = np.asarray(params.matrix.cell)[questions], np.asarray(params.orders)
    matrix = jax.tree.map(jnp.asarray, params.matrix)
    parts = []
    for gamma in draw_prices(arena.gamma_range, PRICES, rng):
        row = rng.integers(orders.shape[1], size=len(questions))
        order = orders[cell, row, :max_branches].astype(np.int32)
        ended = jax.device_get(_ends(parameters, jnp.float32(gamma), matrix, order, questions))
        parts.append((*ended, arena.labels[questions, row]))
    known, answers, labels = (np.concatenate(leaves) for leaves in zip(*parts, strict=True))
    coefficients = fit(known, answers, labels)
    return {**parameters, "of_vote": {"kernel": coefficients[:, None]}}


@jax.jit
def _ends(
    parameters: Parameters,
    gamma: Float[Array, ""],
    matrix: ProbeMatrix,
    orders: Int[Array, "E W"],
    questions: Int[Array, " E"],
) -> tuple[Float[Array, "E V W"], Int16[Array, "E W"]]:
    """What is known of each branch's vote when episodes end, and its answer; ``NONE`` where it casts none."""
    policy, table = NeuralPolicy(parameters, gamma), matrix.finals()  # type: ignore[arg-type]  # it is traced

    def play(order, question):
        empty = ReplayPool.begin(matrix, question, order, labels=False, history=False, finals=table)
        memory, pool, _ = jax.lax.while_loop(
            lambda carry: carry[2] == StopReason.RUNNING,
            lambda carry: policy.round(*carry[:2]),
            (*policy.start(empty), jnp.int32(StopReason.RUNNING)),
        )
        pool = cast(ReplayPool, pool)
        stand = observations.standing(pool, memory.tracker)
        return ballots(pool, memory.tracker), jnp.where(stand.final, stand.ids, NONE)

    return jax.vmap(play)(orders, questions)


def fit(
    known: Float[np.ndarray, "E V W"], answers: Int[np.ndarray, "E W"], labels: Int[np.ndarray, " E"]
) -> Float[np.ndarray, " V"]:
    """The most likely coefficients, given what was right.

    Args:
        known: what is known of each branch's vote.
        answers: what each branch votes for; ``NONE`` where it casts no vote.
        labels: what is right in each episode. Episodes in which nobody voted for it, or all did, say nothing.
    """
    voting = answers != NONE
    right = voting & (answers == labels[:, None])
    told = right.any(axis=1) & (voting & ~right).any(axis=1)
    if not told.any():
        return np.zeros(len(VOTE_INPUTS), np.float32)
    columns = [jnp.asarray(column[told]) for column in (known, answers, voting, right)]

    def value_and_gradient(point):
        loss, gradient = _loss(jnp.asarray(point, jnp.float32), *columns)
        return float(loss), np.asarray(gradient, float)

    start = np.append(np.zeros(len(VOTE_INPUTS)), 1.0)
    found = scipy.optimize.minimize(value_and_gradient, start, jac=True, method="L-BFGS-B")
    return found.x[:-1].astype(np.float32)


@jax.jit
@jax.value_and_grad
def _loss(
    point: Float[Array, " V+1"],
    known: Float[Array, "E V W"],
    answers: Int[Array, "E W"],
    voting: Bool[Array, "E W"],
    right: Bool[Array, "E W"],
) -> Float[Array, ""]:
    """Mean negative log-likelihood of the right answers; the last coordinate is the power."""
    coefficients, power = point[:-1], point[-1]

    def of_episode(known, answers, voting, right):
        weight = votes.weigh(answers, jax.nn.softmax(coefficients @ known, where=voting))
        score = power * jnp.log(jnp.maximum(weight, TINY))
        # An answer with c votes is there c times.
        each = score - jnp.log(jnp.maximum(votes.weigh(answers, voting.astype(jnp.float32)), 1))
        total = jax.nn.logsumexp(each, where=voting)
        return total - jnp.max(score, where=right, initial=-jnp.inf)

    losses = jax.vmap(of_episode)(known, answers, voting, right)
    return jnp.mean(losses) + RIDGE * jnp.sum(coefficients**2)
