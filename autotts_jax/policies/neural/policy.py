"""A network as a controller, played as all others are."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar, Self, cast

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Bool, Float, PRNGKeyArray

from autotts_jax.core import votes
from autotts_jax.core.controller import Controller, first_of
from autotts_jax.core.mdp import Scalar
from autotts_jax.core.pool import BranchPool, ReplayPool, StopReason
from autotts_jax.core.votes import Vote
from autotts_jax.envs import observations
from autotts_jax.policies.env_policy import check_gamma
from autotts_jax.policies.neural.actions import KINDS, Decisions
from autotts_jax.policies.neural.network import (
    PolicyNetwork,
    Recall,
    View,
    look,
    start_recall,
    turn,
    vote_columns,
)
from autotts_jax.typing import Array

ROUNDS = 120
"""Rounds after which an episode is ended, as `Recall` counts them."""

Parameters = dict[str, Any]
"""A network's parameters: nested dicts of float32 arrays."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class NeuralPolicy(Controller):
    """The most likely decisions of a network that was told a price γ.

    Its answer is that of the finals whose votes weigh most; while there are none, the majority of the latest
    answers.

    Attributes:
        parameters: the network's parameters; their shapes say of which kind its decisions are.
        gamma: γ, the price of an interval.
    """

    parameters: Parameters
    gamma: float

    family: ClassVar = (
        2e-4,
        1.4e-4,
        1e-4,
        7e-5,
        5e-5,
        3.5e-5,
        2.5e-5,
        1.8e-5,
        1.2e-5,
        8e-6,
        5.6e-6,
        4e-6,
    )
    value_name: ClassVar = "γ"

    def at(self, value: float) -> Self:  # type: ignore[override]  # only an instance has parameters
        """The same policy told another γ.

        Raises:
            InputError: it is no price.
        """
        check_gamma(value)
        return dataclasses.replace(self, gamma=value)

    def start(self, pool: BranchPool) -> tuple[Recall, BranchPool]:
        return start_recall(pool.width), pool

    def round(self, memory: Recall, pool: BranchPool) -> tuple[Recall, BranchPool, Scalar]:
        before = cast(ReplayPool, pool)
        atomic = decisions_of(self.parameters).environment(before.width).atomic
        seen, recall = look(before, memory, jnp.asarray(self.gamma), atomic)
        after, answered = act(self.parameters, seen, before)
        stop = first_of(
            (answered, StopReason.DECIDED),
            (recall.round >= ROUNDS, StopReason.STEP_LIMIT),
        )
        return turn(recall, before, after, atomic), after, stop

    def vote(self, memory: Recall, pool: BranchPool) -> Vote:
        state = cast(ReplayPool, pool)
        stand = observations.standing(state, memory.tracker)
        weights = jax.nn.softmax(
            log_weights(self.parameters, vote_columns(state, memory.tracker)), where=stand.final
        )
        weight = votes.weigh(stand.ids, weights)
        completion = memory.tracker.completion
        finals = votes.elect_heaviest(stand.ids, stand.final_support, weight, stand.final, completion)
        return finals.or_else(stand.latest)


def decisions_of(parameters: Parameters) -> Decisions:
    """The kind of decisions that a network with these parameters makes."""
    outputs = parameters["of_branch"]["bias"].shape[-1]
    return next(kind for kind in KINDS.values() if kind.branch_outputs == outputs)


def apply_network(parameters: Parameters, seen: View) -> Any:
    """The heads that the network with these parameters has in a state."""
    return decisions_of(parameters).heads(_network(parameters)(seen))


def act(parameters: Parameters, seen: View, pool: ReplayPool) -> tuple[ReplayPool, Bool[Array, ""]]:
    """What the most likely decision leads to, and whether it is to answer.

    Args:
        parameters: the network's parameters.
        seen: what it reads of the state, see `look`.
        pool: the state.
    """
    decisions = decisions_of(parameters)
    heads = decisions.mask(apply_network(parameters, seen), decisions.options(pool))
    action = decisions.action(decisions.greedy(heads))
    after, answered, _ = decisions.environment(pool.width).act(pool, action)
    return after, answered


def log_weights(parameters: Parameters, columns: Float[Array, "V W"]) -> Float[Array, " W"]:
    """The logarithm of what each branch's vote weighs with these parameters, from its `VOTE_INPUTS`."""
    return _network(parameters).log_weights(columns)


def _network(parameters: Parameters) -> PolicyNetwork:
    hidden, decisions = parameters["trunk"]["bias"].shape[-1], decisions_of(parameters)
    return nnx.merge(_structure(hidden, decisions.branch_outputs), parameters)


@functools.cache
def _structure(hidden: int, branch_outputs: int) -> nnx.GraphDef:
    """The network without its parameters."""
    with jax.ensure_compile_time_eval():
        return nnx.split(PolicyNetwork(hidden, branch_outputs, rngs=nnx.Rngs(0)))[0]


def initial_parameters(hidden: int, key: PRNGKeyArray, actions: str = "rounds") -> Parameters:
    """Random parameters.

    Args:
        hidden: width of the network's layers.
        key: what they are drawn with.
        actions: a key of `KINDS`.
    """
    network = PolicyNetwork(hidden, KINDS[actions].branch_outputs, rngs=nnx.Rngs(key))
    return nnx.to_pure_dict(nnx.state(network))
