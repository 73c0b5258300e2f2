"""Experience: the steps that a policy and a critic play in their environment, lane by lane."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int32, PRNGKeyArray

from autotts_jax.core.controller import first_of
from autotts_jax.core.lanes import Lane, LanePlay, RolloutState, pack, play_lanes, unpack, while_running
from autotts_jax.core.pool import ReplayPool
from autotts_jax.core.view import StopReason
from autotts_jax.envs import Environment, EnvParams, EnvState
from autotts_jax.policies.neural.network import Inputs, RecurrentState, SignalInput, encode, initial_state
from autotts_jax.policies.neural.policy import Parameters, apply_network, head_of
from autotts_jax.training.critic import (
    Privileged,
    apply_critic,
    privileged_features,
    reward_unit,
    shares_of_finals,
)
from autotts_jax.typing import Array

ENDLESS = 2**31 - 1
"""Length of the queue of episodes."""


class Weights(NamedTuple):
    """What is learned.

    Attributes:
        network: parameters of the policy.
        critic: parameters of the critic.
    """

    network: Parameters
    critic: Parameters


class Carry(NamedTuple):
    """An episode between two updates.

    Attributes:
        state: the environment's state.
        recurrent: the policy's recurrent state.
    """

    state: EnvState
    recurrent: RecurrentState


class Transition(NamedTuple):
    """A step as it was played; leaves have leading axes (T, E), steps and environments.

    Attributes:
        inputs: the network's inputs.
        privileged: the critic's privileged features.
        mask: what was admissible.
        action: what was done.
        log_prob: log-probability of the action.
        value: the critic's value of the state before the step.
        reward: the reward, in the episode's `reward_unit` like the values.
        next_value: the critic's value of the state after the step, in the same episode.
        terminated: the episode ended with an answer.
        truncated: the step limit ended the episode.
        correct: the answer that would be given after the step is the gold one.
        tokens: tokens charged so far.
        objective: 1{correct} - γ·C so far.
    """

    inputs: Inputs
    privileged: Privileged
    mask: Any
    action: Any
    log_prob: Float[Array, "..."]
    value: Float[Array, "..."]
    reward: Float[Array, "..."]
    next_value: Float[Array, "..."]
    terminated: Bool[Array, "..."]
    truncated: Bool[Array, "..."]
    correct: Bool[Array, "..."]
    tokens: Int32[Array, "..."]
    objective: Float[Array, "..."]


class Lanes(NamedTuple):
    """E episodes in flight between two updates.

    Attributes:
        lane: the lanes, each with a `Carry`; leaves have a leading axis E.
        taken: episodes begun so far. Shape ().
    """

    lane: Lane
    taken: Int32[Array, ""]


def begin_lanes(
    parameters: Parameters, params: EnvParams, max_branches: int, num_envs: int, key: PRNGKeyArray
) -> Lanes:
    """Begins an episode in every lane."""
    environment = head_of(parameters).environment(max_branches)
    number = jnp.arange(num_envs, dtype=jnp.int32)
    zeros = jnp.zeros_like(number)
    body = jax.vmap(lambda number: _start(environment, params, jax.random.fold_in(key, number)))(number)
    return Lanes(Lane(body, number, zeros, zeros + StopReason.RUNNING), jnp.int32(num_envs))


def play(
    weights: Weights,
    params: EnvParams,
    lanes: Lanes,
    key: PRNGKeyArray,
    max_branches: int,
    num_steps: int,
    signal_inputs: tuple[SignalInput, ...] = (),
) -> tuple[Lanes, Transition]:
    """Plays steps in every lane, one episode after the other.

    Args:
        weights: parameters of the policy and the critic.
        params: parameters of the environment.
        lanes: the episodes to continue.
        key: the key to draw actions and episodes with.
        max_branches: branches that an episode can open (static).
        num_steps: T, steps to play (static).
        signal_inputs: the signals that the policy reads (static).

    Returns:
        The episodes after the steps, and the transitions, with leading axes (T, E).
    """
    player = _Player(weights, params, max_branches, key, signal_inputs)
    rows = num_steps, lanes.lane.episode.shape[0]
    zero = jnp.int32(0)
    state = RolloutState(
        lanes=dataclasses.replace(lanes.lane, body=jax.vmap(player.resume)(lanes.lane.body)),
        taken=lanes.taken,
        ended=zero,
        time=zero,
        results={},
        records=jax.tree.map(lambda leaf: jnp.zeros(rows + leaf.shape, leaf.dtype), pack(player.blank)),
    )
    state = play_lanes(
        LanePlay(
            begin=player.begin,
            round=player.step,
            end=lambda _: (),
            record=lambda _, after: after.body.last,
        ),
        state,
        num_episodes=ENDLESS,
        target=ENDLESS,
        refill=1,
        until=num_steps,
    )
    lane = dataclasses.replace(state.lanes, body=state.lanes.body.carry)
    return Lanes(lane, state.taken), unpack(state.records, player.blank)


class _Assessment(NamedTuple):
    """A state as the policy and the critic see it.

    Attributes:
        inputs: the network's inputs.
        recurrent: the policy's recurrent state with this state in it.
        privileged: the critic's privileged features.
        value: the critic's value.
    """

    inputs: Inputs
    recurrent: RecurrentState
    privileged: Privileged
    value: Float[Array, ""]


class _Body(NamedTuple):
    """An episode in a lane.

    Attributes:
        carry: the episode.
        assessed: its state, assessed.
        last: the step that led to the state; zeros before the first.
    """

    carry: Carry
    assessed: _Assessment
    last: Transition


class _Player:
    """Plays episodes during an update.

    Attributes:
        blank: a transition of zeros.
    """

    def __init__(
        self,
        weights: Weights,
        params: EnvParams,
        max_branches: int,
        key: PRNGKeyArray,
        signal_inputs: tuple[SignalInput, ...],
    ):
        self._weights, self._params, self._signal_inputs = weights, params, signal_inputs
        self._head = head_of(weights.network)
        self._environment = self._head.environment(max_branches)
        self._finals = shares_of_finals(params.matrix)
        self._reset_key, self._act_key = jax.random.split(key)
        self.blank: Transition = cast(Any, None)
        zero = jnp.int32(0)
        shapes = jax.eval_shape(lambda: self._stepped(Lane(self.begin(zero), zero, zero, zero))[0].last)
        self.blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

    def begin(self, number: Int32[Array, ""]) -> _Body:
        """Begins an episode."""
        carry = _start(self._environment, self._params, jax.random.fold_in(self._reset_key, number))
        # The pool of no particular episode: under ``vmap`` little is then computed for every lane.
        assessed = self._assess(carry, carry.state.pool.unopened(self._params.matrix))
        return _Body(carry, assessed, self.blank)

    def resume(self, carry: Carry) -> _Body:
        """Continues an episode with the weights of this update."""
        return _Body(carry, self._assess(carry, self._pool(carry)), self.blank)

    def step(self, lane: Lane) -> tuple[_Body, Int32[Array, ""]]:
        """Plays a step, unless the episode has ended."""
        body, stop = self._stepped(lane)
        return while_running(lane, body, lane.body), stop

    def _stepped(self, lane: Lane) -> tuple[_Body, Int32[Array, ""]]:
        before, assessed, _ = lane.body
        head, environment = self._head, self._environment
        mask = head.mask(self._pool(before).view(before.state.time))
        logits = apply_network(self._weights.network, assessed.inputs, mask)
        key = jax.random.fold_in(jax.random.fold_in(self._act_key, lane.episode), lane.rounds)
        action = head.sample(key, logits)
        _, state, reward, terminated, info = environment.step_env(
            key, before.state, head.for_environment(action), self._params
        )
        truncated = ~terminated & environment.is_truncated(state, self._params)
        after = Carry(state, assessed.recurrent._replace(tracker=state.tracker))
        following = self._assess(after, self._pool(after))
        transition = Transition(
            inputs=assessed.inputs,
            privileged=assessed.privileged,
            mask=mask,
            action=action,
            log_prob=head.log_prob(logits, action),
            value=assessed.value,
            reward=reward / reward_unit(state),
            next_value=following.value,
            terminated=terminated,
            truncated=truncated,
            correct=info["correct"],
            tokens=info["tokens"],
            objective=info["correct"] - state.gamma * info["cost"],
        )
        stop = first_of((terminated, StopReason.DECIDED), (truncated, StopReason.STEP_LIMIT))
        return _Body(after, following, transition), stop

    def _pool(self, carry: Carry) -> ReplayPool:
        return carry.state.pool.with_matrix(self._params.matrix)

    def _assess(self, carry: Carry, pool: ReplayPool) -> _Assessment:
        state = carry.state
        atomic = self._environment.atomic
        inputs, recurrent = encode(
            pool.view(state.time), carry.recurrent, state.gamma, atomic, self._signal_inputs
        )
        privileged = privileged_features(state, pool, self._params.matrix, self._finals)
        value = apply_critic(self._weights.critic, privileged, inputs)
        return _Assessment(inputs, recurrent, privileged, value)


def _start(environment: Environment, params: EnvParams, key: PRNGKeyArray) -> Carry:
    """Starts an episode."""
    state = environment.reset_env(key, params)[1]
    return Carry(state, initial_state(environment.max_branches)._replace(tracker=state.tracker))
