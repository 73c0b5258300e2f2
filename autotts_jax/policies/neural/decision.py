"""Decisions of a round, and the masked distribution over them that the network's heads stand for.

A decision has W + 2 parts: whether to answer, how many branches to open, and what to do with each branch.
Given the state they are independent; the parts other than the answer count where there is none.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int32, PRNGKeyArray

from autotts_jax.envs.pool import BranchPool
from autotts_jax.policies.neural.network import MAX_ADVANCE, OPENINGS, Heads
from autotts_jax.typing import Array

IMPOSSIBLE = -1e9
"""Logit of what is not admissible."""


class Decision(NamedTuple):
    """What to do in a round.

    Attributes:
        answer: whether to answer. Shape ().
        opening: index in `OPENINGS`. Shape ().
        choice: of each branch, 0 to hold it, 1 to prune it, 1 + k to read k intervals. Shape (W,).
    """

    answer: Bool[Array, ""]
    opening: Int32[Array, ""]
    choice: Int32[Array, " W"]


class Options(NamedTuple):
    """What is admissible.

    Attributes:
        answer: whether an answer may be given. Shape ().
        go_on: whether anything else may be done. Shape ().
        opening: which of `OPENINGS` may be opened. Shape (O,).
        choice: which choices each branch has. Shape (C, W).
    """

    answer: Bool[Array, ""]
    go_on: Bool[Array, ""]
    opening: Bool[Array, " O"]
    choice: Bool[Array, "C W"]


def options(pool: BranchPool) -> Options:
    """What is admissible: live branches are pruned or read, all others are held.

    So that every round makes progress, the first opens branches, and one without live branches answers.
    """
    count, live = jnp.array(OPENINGS), pool.live
    began = pool.opened > 0
    return Options(
        answer=began,
        go_on=~began | jnp.any(live),
        opening=(count <= pool.width - pool.opened) & ((count > 0) | began),
        choice=jnp.stack([~live] + [live] * (1 + MAX_ADVANCE)),
    )


def mask(heads: Heads, allowed: Options) -> Heads:
    """The heads with `IMPOSSIBLE` where something is not admissible."""
    return heads._replace(
        answer=jnp.where(
            allowed.answer,
            jnp.where(allowed.go_on, heads.answer, -IMPOSSIBLE),
            IMPOSSIBLE,
        ),
        opening=jnp.where(allowed.opening, heads.opening, IMPOSSIBLE),
        choice=jnp.where(allowed.choice, heads.choice, IMPOSSIBLE),
    )


def greedy(heads: Heads) -> Decision:
    """The most likely decision of masked heads."""
    return Decision(
        heads.answer > 0,
        jnp.argmax(heads.opening).astype(jnp.int32),
        jnp.argmax(heads.choice, axis=0).astype(jnp.int32),
    )


def sample(key: PRNGKeyArray, heads: Heads) -> Decision:
    """A decision drawn from masked heads."""
    answer, opening, choice = jax.random.split(key, 3)
    return Decision(
        jax.random.bernoulli(answer, jax.nn.sigmoid(heads.answer)),
        jax.random.categorical(opening, heads.opening).astype(jnp.int32),
        jax.random.categorical(choice, heads.choice, axis=0).astype(jnp.int32),
    )


def log_prob(heads: Heads, decision: Decision) -> Float[Array, ""]:
    """Log-probability of a decision under masked heads."""
    opening = jax.nn.log_softmax(heads.opening)[decision.opening]
    choice = jnp.take_along_axis(jax.nn.log_softmax(heads.choice, axis=0), decision.choice[None], axis=0)
    goes_on = jax.nn.log_sigmoid(-heads.answer) + opening + jnp.sum(choice)
    return jnp.where(decision.answer, jax.nn.log_sigmoid(heads.answer), goes_on)


def entropy(heads: Heads) -> Float[Array, ""]:
    """Entropy of the decision under masked heads, in nats."""
    p = jax.nn.sigmoid(heads.answer)
    answer = -(p * jax.nn.log_sigmoid(heads.answer) + (1 - p) * jax.nn.log_sigmoid(-heads.answer))
    return answer + (1 - p) * (_entropy(heads.opening) + jnp.sum(_entropy(heads.choice)))


def _entropy(logits: Float[Array, "N ..."]) -> Float[Array, "..."]:
    log = jax.nn.log_softmax(logits, axis=0)
    return -jnp.sum(jnp.exp(log) * log, axis=0)


def action(decision: Decision) -> Int32[Array, " 2+W"]:
    """A decision as an action of `WidthDepthRounds`."""
    opened = jnp.array(OPENINGS, jnp.int32)[decision.opening]
    return jnp.concatenate([jnp.stack([decision.answer.astype(jnp.int32), opened]), decision.choice])
