"""A network as a controller, played as all others are."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Float, PRNGKeyArray

from autotts_jax.core import votes
from autotts_jax.core.controller import Controller, Family
from autotts_jax.core.view import Action, StopReason, View
from autotts_jax.core.votes import Vote
from autotts_jax.envs import observations
from autotts_jax.envs.observations import Before
from autotts_jax.policies.env_policy import check_gamma
from autotts_jax.policies.neural.actions import HEADS, ActionHead
from autotts_jax.policies.neural.network import (
    BRANCH_INPUTS,
    Inputs,
    PolicyNetwork,
    RecurrentState,
    SignalInput,
    encode,
    initial_state,
    vote_inputs,
)
from autotts_jax.replay.scale import Scale
from autotts_jax.typing import Array

ROUNDS = 120
"""Rounds after which an episode is ended, as `RecurrentState` counts them."""

GAMMAS = (2e-4, 1.4e-4, 1e-4, 7e-5, 5e-5, 3.5e-5, 2.5e-5, 1.8e-5, 1.2e-5, 8e-6, 5.6e-6, 4e-6)
"""The γ values that a sweep plays."""

PRECISION = "highest"
"""Precision of matrix products: what a GPU rounds by default changes one episode in 30."""

Parameters = dict[str, Any]
"""A network's parameters: nested dicts of float32 arrays."""


class NeuralMemory(NamedTuple):
    """What a network as a controller remembers.

    Attributes:
        state: its recurrent state after the last look.
        before: what was seen then.
    """

    state: RecurrentState
    before: Before


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=("parameters", "gamma"),
    meta_fields=("signal_inputs",),
    drop_fields=("trained_on",),  # policies that were trained on different data are played together
)
@dataclasses.dataclass(frozen=True)
class NeuralPolicy(Controller):
    """Plays the most likely actions of a network that is conditioned on a price γ.

    It answers the final whose votes weigh most; while no branch has finished, the majority of the latest
    answers.

    Attributes:
        parameters: the network's parameters; their shapes say which action head it has.
        gamma: γ, the price of an interval.
        trained_on: the scale of what it was trained on; None if that is not known.
        signal_inputs: the signals that the network reads (static).
    """

    parameters: Parameters
    gamma: float
    trained_on: Scale | None = None
    signal_inputs: tuple[SignalInput, ...] = ()

    @property
    def signals(self) -> tuple[str, ...]:  # type: ignore[override]  # the network says it
        """Names of the signals that the network reads."""
        return tuple(signal.name for signal in self.signal_inputs)

    def __repr__(self) -> str:
        numbers = sum(map(np.size, jax.tree.leaves(self.parameters)))
        return f"NeuralPolicy(<{numbers:,} parameters>, gamma={self.gamma!r}, trained_on={self.trained_on!r})"

    def init(self, view: View) -> NeuralMemory:
        return NeuralMemory(initial_state(view.width), Before.of(view))

    def act(self, memory: NeuralMemory, view: View) -> tuple[NeuralMemory, Action]:
        atomic = head_of(self.parameters).environment(view.width).atomic
        tracker = observations.track(memory.state.tracker, memory.before, view, atomic)
        state = memory.state._replace(tracker=tracker)
        inputs, state = encode(view, state, jnp.asarray(self.gamma), atomic, self.signal_inputs)
        action = decide(self.parameters, inputs, view)
        over = memory.state.round >= ROUNDS
        action = action._replace(stop=jnp.where(over, StopReason.STEP_LIMIT, action.stop))
        return NeuralMemory(state, Before.of(view)), action

    def answer(self, memory: NeuralMemory, view: View) -> Vote:
        tracker = memory.state.tracker
        counts = observations.vote_counts(view, tracker)
        inputs = vote_inputs(view, tracker, self.signal_inputs)
        weights = jax.nn.softmax(log_weights(self.parameters, inputs), where=counts.final)
        # Finals of one step are in branch order.
        rank = tracker.completion.astype(jnp.int32) * view.width + jnp.arange(view.width)
        return votes.vote(counts.keys, counts.final, rank, weights).or_else(counts.latest)


def neural_family(policy: NeuralPolicy, name: str = "neural") -> Family:
    """Makes the family of a policy over γ.

    Args:
        policy: the policy.
        name: the family's name in results.
    """
    return Family(name, GAMMAS, functools.partial(_with_gamma, policy), "γ")


def _with_gamma(policy: NeuralPolicy, gamma: float) -> NeuralPolicy:
    check_gamma(gamma)
    return dataclasses.replace(policy, gamma=gamma)


def head_of(parameters: Parameters) -> ActionHead:
    """Finds the action head of a network from the shapes of its parameters."""
    outputs = parameters["of_branch"]["bias"].shape[-1]
    return next(head for head in HEADS.values() if head.branch_outputs == outputs)


def apply_network(parameters: Parameters, inputs: Inputs, mask: Any) -> Any:
    """Computes the masked logits of the action head."""
    with jax.default_matmul_precision(PRECISION):
        return head_of(parameters).logits(_network(parameters)(inputs), mask)


def decide(parameters: Parameters, inputs: Inputs, view: View) -> Action:
    """Decides on the most likely action."""
    head = head_of(parameters)
    logits = apply_network(parameters, inputs, head.mask(view))
    return head.environment(view.width).decode(view, head.for_environment(head.greedy(logits)))[0]


def log_weights(parameters: Parameters, inputs: Float[Array, "V W"]) -> Float[Array, " W"]:
    """Computes the logarithm of the weight of each branch's vote."""
    with jax.default_matmul_precision(PRECISION):
        return _network(parameters).log_weights(inputs)


def _network(parameters: Parameters) -> PolicyNetwork:
    hidden, head = parameters["trunk"]["bias"].shape[-1], head_of(parameters)
    signals = parameters["embed"]["kernel"].shape[-2] - len(BRANCH_INPUTS)
    return nnx.merge(_structure(hidden, head.branch_outputs, signals), parameters)


@functools.cache
def _structure(hidden: int, branch_outputs: int, signals: int) -> nnx.GraphDef[PolicyNetwork]:
    """The network without its parameters."""
    with jax.ensure_compile_time_eval():
        return nnx.split(PolicyNetwork(hidden, branch_outputs, signals, rngs=nnx.Rngs(0)))[0]


def initial_parameters(
    hidden: int, key: PRNGKeyArray, actions: str = "rounds", signals: int = 0
) -> Parameters:
    """Draws random parameters.

    Args:
        hidden: width of the network's layers.
        key: random key.
        actions: a key of `HEADS`.
        signals: S, signals that the network reads of each branch.
    """
    network = PolicyNetwork(hidden, HEADS[actions].branch_outputs, signals, rngs=nnx.Rngs(key))
    return nnx.to_pure_dict(nnx.state(network))
