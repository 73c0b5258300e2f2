"""PPO's critic. It is thrown away after training, so it may know what a policy may not.

With privileged features such as the right answer it explains nearly all of what returns differ by, and leaves
what decisions are to blame for.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Float, Int

from autotts_jax.core.pool import ReplayPool
from autotts_jax.envs import EnvState
from autotts_jax.policies.neural.network import GLOBAL_INPUTS, Inputs
from autotts_jax.policies.neural.policy import Parameters
from autotts_jax.replay.matrix import NONE, ProbeMatrix
from autotts_jax.typing import Array

TYPICAL_READS = 16
"""Intervals that a typical episode reads, for each branch that it can open."""


class Privileged(NamedTuple):
    """Features of a state that the critic sees and the network does not, or not in proportion; shape ().

    Attributes:
        right: 1 where the answer that would be given is right.
        share: share of the right answer among the finals of all recorded branches.
        rival: the largest share of another answer.
        will_be: share of active branches that end with the right answer.
        is_now: share of active branches whose latest answer is right.
        to_read: intervals left in live branches, in typical episodes.
        share_of_cost: cost of a typical episode over 1 plus that cost: 0 where reading is free, 1 where only
            its cost matters.
        bill: `to_read` times `share_of_cost`.
    """

    right: Float[Array, "..."]
    share: Float[Array, "..."]
    rival: Float[Array, "..."]
    will_be: Float[Array, "..."]
    is_now: Float[Array, "..."]
    to_read: Float[Array, "..."]
    share_of_cost: Float[Array, "..."]
    bill: Float[Array, "..."]


def reward_unit(state: EnvState) -> Float[Array, ""]:
    """Returns the unit of an episode's rewards and values: 1 plus the cost of a typical episode."""
    return 1 + state.gamma * TYPICAL_READS * state.pool.width


class FinalShares(NamedTuple):
    """Shares of answers among the finals of all branches that are recorded for a question.

    Attributes:
        share: share of each answer. Shape (Q, V).
        leader: the answer with the largest share. Shape (Q,).
        first: its share. Shape (Q,).
        second: the largest share of another answer. Shape (Q,).
    """

    share: Float[Array, "Q V"]
    leader: Int[Array, " Q"]
    first: Float[Array, " Q"]
    second: Float[Array, " Q"]


def shares_of_finals(matrix: ProbeMatrix) -> FinalShares:
    """Counts the finals of each question."""

    def of_question(answers: Array, lengths: Array) -> FinalShares:
        finals = jnp.take_along_axis(answers, lengths[:, None], axis=1)[:, 0]
        voters = (lengths > 0) & (finals != NONE)
        ids = jnp.where(voters, finals, matrix.vocabulary)
        count = jnp.zeros(matrix.vocabulary).at[ids].add(1.0, mode="drop")
        share = count / jnp.maximum(jnp.sum(voters), 1)
        leader = jnp.argmax(share)
        return FinalShares(share, leader, share[leader], jnp.max(share.at[leader].set(0)))

    return jax.vmap(of_question)(jnp.asarray(matrix.answers), jnp.asarray(matrix.lengths))


def privileged_features(
    state: EnvState, pool: ReplayPool, matrix: ProbeMatrix, finals: FinalShares
) -> Privileged:
    """Computes the privileged features of a state."""
    hidden, question = pool.hidden, state.question
    known = state.target != NONE
    # Where no answer counts as right, one that no branch gives.
    target = jnp.where(known, state.target, matrix.vocabulary)
    at_end = jnp.asarray(matrix.answers).reshape(-1)[hidden.start + hidden.length]
    active = jnp.maximum(jnp.sum(pool.active), 1)
    to_read = jnp.sum(jnp.where(pool.live, hidden.length + 1 - pool.depth, 0)) / (TYPICAL_READS * pool.width)
    share_of_cost = 1 - 1 / reward_unit(state)
    features = Privileged(
        right=state.answer == target,
        share=jnp.where(known, finals.share[question, state.target], 0),
        rival=jnp.where(finals.leader[question] == target, finals.second[question], finals.first[question]),
        will_be=jnp.sum(pool.active & (at_end == target)) / active,
        is_now=jnp.sum(pool.active & (state.tracker.keys == target)) / active,
        to_read=to_read,
        share_of_cost=share_of_cost,
        bill=share_of_cost * to_read,
    )
    return jax.tree.map(lambda feature: jnp.asarray(feature, jnp.float32), features)


class PrivilegedCritic(nnx.Module):
    """Predicts a right answer and a cost, and weighs them by γ: all values of γ share both."""

    def __init__(self, hidden: int = 32, *, rngs: nnx.Rngs):
        small = nnx.initializers.variance_scaling(0.01, "fan_in", "normal")
        self.first = nnx.Linear(len(Privileged._fields) + len(GLOBAL_INPUTS), hidden, rngs=rngs)
        self.second = nnx.Linear(hidden, hidden, rngs=rngs)
        self.last = nnx.Linear(hidden, 2, kernel_init=small, rngs=rngs)

    def __call__(self, privileged: Privileged, inputs: Inputs) -> Float[Array, ""]:
        """Predicts the return of the rest of an episode, in its `reward_unit`."""
        layer = nnx.relu(self.first(jnp.concatenate([jnp.stack(privileged), inputs.episode])))
        right, cost = self.last(nnx.relu(self.second(layer)))
        return (1 - privileged.share_of_cost) * right - privileged.share_of_cost * cost


def apply_critic(parameters: Parameters, privileged: Privileged, inputs: Inputs) -> Float[Array, ""]:
    """Predicts the return of the rest of an episode."""
    return nnx.merge(_structure(), parameters)(privileged, inputs)


@functools.cache
def _structure() -> nnx.GraphDef[PrivilegedCritic]:
    with jax.ensure_compile_time_eval():
        return nnx.split(PrivilegedCritic(rngs=nnx.Rngs(0)))[0]
