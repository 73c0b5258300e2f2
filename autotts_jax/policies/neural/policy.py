"""A network as a controller, played as all others are."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar, Self, cast

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import PRNGKeyArray

from autotts_jax.envs.controller import Controller, first_of
from autotts_jax.envs.core import Scalar
from autotts_jax.envs.pool import BranchPool, ReplayPool, StopReason
from autotts_jax.envs.votes import Vote
from autotts_jax.envs.width_depth import WidthDepthRounds
from autotts_jax.policies.env_policy import check_gamma
from autotts_jax.policies.neural import decision
from autotts_jax.policies.neural.network import (
    MAX_ADVANCE,
    Heads,
    PolicyNetwork,
    Recall,
    View,
    look,
    start_recall,
    turn,
)

ROUNDS = 120
"""Rounds after which an episode is ended."""

Parameters = dict[str, Any]
"""A network's parameters: nested dicts of float32 arrays."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class NeuralPolicy(Controller):
    """The most likely decisions of a network that was told a price γ.

    Attributes:
        parameters: the network's parameters.
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
        seen, recall = look(before, memory, jnp.asarray(self.gamma))
        heads = decision.mask(apply_network(self.parameters, seen), decision.options(before))
        after, answered, _ = environment(before.width).act(before, decision.action(decision.greedy(heads)))
        stop = first_of(
            (answered, StopReason.DECIDED),
            (recall.round >= ROUNDS, StopReason.STEP_LIMIT),
        )
        return turn(recall, before, after), after, stop

    def vote(self, memory: Recall, pool: BranchPool) -> Vote:
        return environment(pool.width).aggregate(cast(ReplayPool, pool), memory.tracker)


def apply_network(parameters: Parameters, seen: View) -> Heads:
    """What the network with these parameters says of a state."""
    hidden = parameters["trunk"]["bias"].shape[-1]
    return nnx.merge(_structure(hidden), parameters)(seen)


@functools.cache
def _structure(hidden: int) -> nnx.GraphDef:
    """The network without its parameters."""
    with jax.ensure_compile_time_eval():
        return nnx.split(PolicyNetwork(hidden, rngs=nnx.Rngs(0)))[0]


def initial_parameters(hidden: int, key: PRNGKeyArray) -> Parameters:
    """Random parameters."""
    return nnx.to_pure_dict(nnx.state(PolicyNetwork(hidden, rngs=nnx.Rngs(key))))


@functools.cache
def environment(width: int) -> WidthDepthRounds:
    """The environment whose actions a policy's decisions are."""
    return WidthDepthRounds(width, max_advance=MAX_ADVANCE)
