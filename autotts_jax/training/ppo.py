"""PPO (arXiv 1707.06347): rounds played, advantages and gradient steps of an update in one compiled function.

`init` and `update` are pure functions of settings whose rates are traced, so that ``jax.vmap`` trains under
several seeds or rates at once; `PPO` binds them to their data as a `Trainer`.

Rewards are not discounted: an episode is worth their sum, which is the objective. They are counted in units
of 1 plus the cost of a typical episode, so that expensive episodes do not drown out the others.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Bool, Float, Int32, PRNGKeyArray, UInt32

from autotts_jax.core.compiling import COMPILER_OPTIONS
from autotts_jax.core.controller import first_of
from autotts_jax.core.lanes import Lane, LanePlay, Run, pack, play_lanes, unpack
from autotts_jax.core.pool import ReplayPool, StopReason
from autotts_jax.envs import Environment, EnvParams, EnvState
from autotts_jax.errors import InputError
from autotts_jax.policies.neural.network import Inputs, RecurrentState, encode, initial_state
from autotts_jax.policies.neural.policy import NeuralPolicy, Parameters, apply_network, head_of
from autotts_jax.training.critic import (
    Critic,
    Privileged,
    apply_critic,
    privileged_features,
    reward_unit,
    shares_of_finals,
)
from autotts_jax.training.settings import Settings
from autotts_jax.training.trainer import Metrics
from autotts_jax.typing import Array

ENDLESS = 2**31 - 1
"""Length of the queue of episodes."""

MAX_LOG_RATIO = 20.0
"""Log-ratios are cut to it: where exp overflows, even a gradient that the clip discards is not a number."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PPOSettings(Settings):
    """Settings of `PPO`. Whole numbers are static; rates are traced, and can be batched.

    Attributes:
        max_branches: W, branches that an episode can open.
        num_envs: E, environments that are played side by side.
        num_steps: T, steps that an update plays in each: rounds, or atomic actions.
        epochs: passes of an update over all that it played.
        minibatches: gradient steps of an epoch.
        decay_updates: updates over which the learning rates fall linearly to zero.
        learning_rate: Adam's learning rate of the policy at the first update.
        critic_rate: Adam's learning rate of the critic.
        clip: ε; no action gains from a ratio of its probabilities that is further than this from 1.
        gae_lambda: λ of `advantages`.
        entropy_weight: weight of an action's entropy, in nats.
        max_norm: norm that the policy's gradient and the critic's are clipped to, each by itself.
        target_kl: divergence from the policy that played, in nats, beyond which an update stops learning.
        kind: the trainer's name in a configuration.
    """

    max_branches: int = dataclasses.field(default=64, metadata={"static": True})
    num_envs: int = dataclasses.field(default=1024, metadata={"static": True})
    num_steps: int = dataclasses.field(default=32, metadata={"static": True})
    epochs: int = dataclasses.field(default=2, metadata={"static": True})
    minibatches: int = dataclasses.field(default=8, metadata={"static": True})
    decay_updates: int = dataclasses.field(default=300, metadata={"static": True})
    learning_rate: float = 3e-4
    critic_rate: float = 3e-3
    clip: float = 0.2
    gae_lambda: float = 0.98
    entropy_weight: float = 0.0
    max_norm: float = 0.5
    target_kl: float = 0.05
    kind: Literal["ppo"] = dataclasses.field(default="ppo", metadata={"static": True})

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value, least = getattr(self, field.name), 1 if field.metadata else 0
            most = 1 if field.name in ("clip", "gae_lambda") else math.inf
            # Arrays of rates, and what JAX puts in their place, are not checked.
            if isinstance(value, int | float) and not least <= value <= most:
                limits = f"at least {least}" if most == math.inf else f"in {least} … {most}"
                raise InputError(f"{field.name} is {value}, but it must be {limits}")
        if self.num_envs * self.num_steps % self.minibatches:
            raise InputError(
                f"minibatches is {self.minibatches}, but it must divide num_envs x num_steps, "
                f"{self.num_envs} x {self.num_steps}"
            )


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


class PPOState(NamedTuple):
    """What is carried from update to update.

    Attributes:
        weights: what is learned.
        optimiser: Adam's moments.
        lanes: E episodes in flight, each a `Carry`; leaves have a leading axis E.
        taken: episodes begun so far. Shape ().
        key: key data. Shape (2,).
        step: updates made. Shape ().
    """

    weights: Weights
    optimiser: optax.OptState
    lanes: Lane
    taken: Int32[Array, ""]
    key: UInt32[Array, " 2"]
    step: Int32[Array, ""]


class PPO:
    """The trainer.

    Args:
        settings: its settings.
        params: training questions, branch orders, the range of γ and the reward, for as many branches as
            ``settings.max_branches``.
        parameters: the policy's parameters at the start.
        devices: devices to share environments and minibatches among; by default all, of all processes.

    Raises:
        InputError: the data has too few branches, or the devices cannot share evenly.
    """

    def __init__(
        self,
        settings: PPOSettings,
        params: EnvParams,
        parameters: Parameters,
        devices: Sequence[jax.Device] | None = None,
    ):
        mesh = Mesh(np.array(jax.devices() if devices is None else devices), ("devices",))
        branches = params.orders.width
        if branches < settings.max_branches:
            raise InputError(
                f"max_branches is {settings.max_branches}, but the data has {branches} branches a question; "
                "give a smaller number"
            )
        size = settings.num_envs * settings.num_steps // settings.minibatches
        for name, number in (("environments", settings.num_envs), ("steps of a minibatch", size)):
            if number % mesh.size:
                raise InputError(
                    f"{mesh.size} devices cannot share {number} {name} evenly; give a multiple of {mesh.size}"
                )
        self._settings = settings
        self._params = jax.device_put(params, NamedSharding(mesh, WHOLE))
        self._parameters = parameters
        self._mesh = mesh
        self._gamma = math.sqrt(float(params.gamma_low) * float(params.gamma_high))

    def init(self, key: PRNGKeyArray) -> PPOState:
        """Makes the state before the first update.

        Args:
            key: the key that everything is drawn with.
        """
        return _init(self._settings, self._params, self._parameters, key, self._mesh)

    def update(self, state: PPOState) -> tuple[PPOState, Metrics]:
        """Makes one `update`.

        Args:
            state: the state before it; its memory is reused, and it cannot be read afterwards.

        Returns:
            The state after it and the metrics.
        """
        return _update(self._settings, self._params, state, self._mesh)

    def policy(self, state: PPOState) -> NeuralPolicy:
        """Returns the policy that plays the most likely actions.

        Args:
            state: the state.
        """
        return NeuralPolicy(state.weights.network, self._gamma)


def init(
    settings: PPOSettings,
    params: EnvParams,
    parameters: Parameters,
    key: PRNGKeyArray,
    mesh: Mesh | None = None,
) -> PPOState:
    """Makes the state before the first update.

    Args:
        settings: the settings.
        params: parameters of the environment.
        parameters: the policy's parameters at the start.
        key: the key that everything is drawn with.
        mesh: a mesh of one axis, ``devices``, to share the environments among; None for a single device.

    Returns:
        The state.
    """
    reset_key, critic_key, key = jax.random.split(key, 3)
    environment = head_of(parameters).environment(settings.max_branches)
    number = jnp.arange(settings.num_envs, dtype=jnp.int32)
    zeros = jnp.zeros_like(number)
    body = jax.vmap(lambda number: start(environment, params, jax.random.fold_in(reset_key, number)))(number)
    critic = nnx.to_pure_dict(nnx.state(Critic(rngs=nnx.Rngs(critic_key))))
    weights = Weights(parameters, critic)
    state = PPOState(
        weights,
        _optimiser(settings, 0).init(weights),
        Lane(body, episode=number, rounds=zeros, stop=zeros + StopReason.RUNNING),
        jnp.int32(settings.num_envs),
        jax.random.key_data(key),
        jnp.int32(0),
    )
    return _constrained(state, mesh, PLACES)


def update(
    settings: PPOSettings, params: EnvParams, state: PPOState, mesh: Mesh | None = None
) -> tuple[PPOState, Metrics]:
    """Plays steps in every environment, and learns from them.

    Args:
        settings: the settings.
        params: parameters of the environment.
        state: the state before the update.
        mesh: the mesh that `init` was given.

    Returns:
        The state after the update, and its metrics: ``accuracy``, ``tokens`` and ``objective``, means over
        the episodes that ended in it (NaN where none did), and their number ``episodes``;
        ``explained_variance`` of the critic; the means of the metrics of `loss` over the gradient steps that
        were made, and ``learned``, their share of all steps.
    """
    play_key, learn_key, key = jax.random.split(jax.random.wrap_key_data(jnp.asarray(state.key)), 3)
    lanes, taken, played = play(settings, params, state, play_key)
    advantage = advantages(
        played.reward,
        played.value,
        played.next_value,
        played.terminated,
        played.truncated,
        settings.gae_lambda,
    )
    target = advantage + played.value
    normal = (advantage - jnp.mean(advantage)) / (jnp.std(advantage) + 1e-8)
    batch = Batch(
        played.inputs, played.privileged, played.mask, played.action, played.log_prob, normal, target
    )
    weights, moments, learned = _learn(settings, state, batch, learn_key, mesh)
    ended = played.terminated | played.truncated
    metrics = {
        "accuracy": jnp.mean(played.correct, where=ended),
        "tokens": jnp.mean(played.tokens, where=ended),
        "objective": jnp.mean(played.objective, where=ended),
        "episodes": jnp.sum(ended),
        "explained_variance": 1 - jnp.var(advantage) / jnp.var(target),
        **learned,
    }
    state = PPOState(weights, moments, lanes, taken, jax.random.key_data(key), state.step + 1)
    return _constrained(state, mesh, PLACES), metrics


_init = jax.jit(init, static_argnums=4)
_update = jax.jit(update, static_argnums=3, donate_argnums=2, compiler_options=COMPILER_OPTIONS)


WHOLE, SHARED = PartitionSpec(), PartitionSpec("devices")
"""A copy on each device, or a part on each."""

PLACES = PPOState(WHOLE, WHOLE, SHARED, WHOLE, WHOLE, WHOLE)  # type: ignore[arg-type]
"""The placement of each part of a state."""


def _constrained(tree: Any, mesh: Mesh | None, places: Any) -> Any:
    """Places the arrays of a tree on the mesh."""
    if mesh is None:
        return tree
    return jax.lax.with_sharding_constraint(
        tree, jax.tree.map(lambda place: NamedSharding(mesh, place), places)
    )


# --- playing --------------------------------------------------------------------------------------------


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


def play(
    settings: PPOSettings, params: EnvParams, state: PPOState, key: PRNGKeyArray
) -> tuple[Lane, Int32[Array, ""], Transition]:
    """Plays `PPOSettings.num_steps` steps in every lane, one episode after the other.

    Args:
        settings: the settings.
        params: parameters of the environment.
        state: the state to continue from.
        key: the key to draw actions and episodes with.

    Returns:
        The lanes after the steps, the episodes begun so far, and the transitions, with leading axes (T, E).
    """
    player = _Player(settings, params, state.weights, key)
    rows = settings.num_steps, settings.num_envs
    zero = jnp.int32(0)
    run = Run(
        lanes=dataclasses.replace(state.lanes, body=jax.vmap(player.resume)(state.lanes.body)),
        taken=state.taken,
        ended=zero,
        time=zero,
        results={},
        records=jax.tree.map(lambda leaf: jnp.zeros(rows + leaf.shape, leaf.dtype), pack(player.blank)),
    )
    run = play_lanes(
        LanePlay(
            begin=player.begin,
            round=player.step,
            end=lambda _: (),
            record=lambda _, after: after.body.last,
        ),
        run,
        num_episodes=ENDLESS,
        target=ENDLESS,
        refill=1,
        until=settings.num_steps,
    )
    lanes = dataclasses.replace(run.lanes, body=run.lanes.body.carry)
    return lanes, run.taken, unpack(run.records, player.blank)


class _Player:
    """Plays episodes during an update.

    Args:
        settings: the settings.
        params: parameters of the environment.
        weights: parameters of the policy and the critic.
        key: the key to draw actions and episodes with.

    Attributes:
        blank: a transition of zeros.
    """

    def __init__(self, settings: PPOSettings, params: EnvParams, weights: Weights, key: PRNGKeyArray):
        self._params, self._weights = params, weights
        self._head = head_of(weights.network)
        self._environment = self._head.environment(settings.max_branches)
        self._finals = shares_of_finals(params.matrix)
        self._reset_key, self._act_key = jax.random.split(key)
        self.blank: Transition = cast(Any, None)
        zero = jnp.int32(0)
        shapes = jax.eval_shape(lambda: self.step(Lane(self.begin(zero), zero, zero, zero))[0].last)
        self.blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

    def begin(self, number: Int32[Array, ""]) -> _Body:
        """Begins an episode."""
        carry = start(self._environment, self._params, jax.random.fold_in(self._reset_key, number))
        # The pool of no particular episode: under ``vmap`` little is then computed for every lane.
        assessed = self._assess(carry, carry.state.pool.unopened(self._params.matrix))
        return _Body(carry, assessed, self.blank)

    def resume(self, carry: Carry) -> _Body:
        """Continues an episode with the weights of this update."""
        return _Body(carry, self._assess(carry, self._pool(carry)), self.blank)

    def step(self, lane: Lane) -> tuple[_Body, Int32[Array, ""]]:
        """Plays a step."""
        before, assessed, _ = lane.body
        head, environment = self._head, self._environment
        mask = head.mask(self._pool(before))
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
        inputs, recurrent = encode(pool, carry.recurrent, state.gamma, self._environment.atomic)
        privileged = privileged_features(state, pool, self._params.matrix, self._finals)
        value = apply_critic(self._weights.critic, privileged, inputs)
        return _Assessment(inputs, recurrent, privileged, value)


def start(environment: Environment, params: EnvParams, key: PRNGKeyArray) -> Carry:
    """Starts an episode.

    Args:
        environment: the environment.
        params: its parameters.
        key: the key to draw the episode with.
    """
    return Carry(environment.reset_env(key, params)[1], initial_state(environment.max_branches))


def advantages(
    reward: Float[Array, "T E"],
    value: Float[Array, "T E"],
    next_value: Float[Array, "T E"],
    terminated: Bool[Array, "T E"],
    truncated: Bool[Array, "T E"],
    gae_lambda: float | Float[Array, ""],
) -> Float[Array, "T E"]:
    """Computes generalised advantage estimates (arXiv 1506.02438), undiscounted.

    A terminated episode brings nothing more; a truncated one would have gone on, and the critic predicts what
    it would have brought. Neither depends on the episode that is played after it.

    Args:
        reward: r_t.
        value: V(s_t).
        next_value: V(s_{t+1}) of the same episode, even where it was truncated.
        terminated: the episode ended with this step.
        truncated: it was truncated after this step.
        gae_lambda: λ.
    """

    def back(later: jax.Array, played: Any) -> tuple[jax.Array, jax.Array]:
        td_error, ended = played
        advantage = td_error + jnp.where(ended, 0, gae_lambda * later)
        return advantage, advantage

    td_error = reward + jnp.where(terminated, 0, next_value) - value
    _, advantage = jax.lax.scan(
        back, jnp.zeros_like(value[0]), (td_error, terminated | truncated), reverse=True
    )
    return advantage


# --- learning -------------------------------------------------------------------------------------------


class Batch(NamedTuple):
    """Steps to learn from; the leaves' leading axes are as in `Transition`, or one, B.

    Attributes:
        inputs: the network's inputs.
        privileged: the critic's privileged features.
        mask: what was admissible.
        action: what was done.
        log_prob: log-probability of the action when it was played.
        advantage: the advantage, normalised.
        target: the value that the critic should have predicted.
    """

    inputs: Inputs
    privileged: Privileged
    mask: Any
    action: Any
    log_prob: Float[Array, "..."]
    advantage: Float[Array, "..."]
    target: Float[Array, "..."]


def loss(settings: PPOSettings, weights: Weights, batch: Batch) -> tuple[Float[Array, ""], Metrics]:
    """Computes the loss that a gradient step lowers.

    Args:
        settings: the settings.
        weights: the weights to differentiate by.
        batch: the steps, with one leading axis B.

    Returns:
        The loss and its metrics: ``loss``; ``policy_loss``, ``value_loss`` and ``entropy``, its parts;
        ``kl``, an estimate of the divergence from the policy that played, the mean of ρ - 1 - log ρ; and
        ``clip_fraction``, the share of actions whose ratio ρ is beyond the clip.
    """
    head = head_of(weights.network)

    def of_step(row: Batch) -> tuple[Array, Array, Array]:
        logits = apply_network(weights.network, row.inputs, row.mask)
        value = apply_critic(weights.critic, row.privileged, row.inputs)
        return head.log_prob(logits, row.action) - row.log_prob, head.entropy(logits), value

    log_ratio, entropy, value = jax.vmap(of_step)(batch)
    ratio = jnp.exp(jnp.minimum(log_ratio, MAX_LOG_RATIO))
    clipped = jnp.clip(ratio, 1 - settings.clip, 1 + settings.clip)
    policy_loss = -jnp.mean(jnp.minimum(ratio * batch.advantage, clipped * batch.advantage))
    value_loss = jnp.mean(jnp.square(value - batch.target))
    entropy = jnp.mean(entropy)
    total = policy_loss + value_loss - settings.entropy_weight * entropy
    return total, {
        "loss": total,
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy,
        "kl": jnp.mean(ratio - 1 - log_ratio),
        "clip_fraction": jnp.mean(jnp.abs(ratio - 1) > settings.clip),
    }


_Learner = tuple[Weights, optax.OptState]
"""What gradient steps change: the weights, and the moments of the optimiser."""


def _learn(
    settings: PPOSettings, state: PPOState, batch: Batch, key: PRNGKeyArray, mesh: Mesh | None
) -> tuple[Weights, optax.OptState, Metrics]:
    """Makes epochs of gradient steps, until one finds the policy too far from the one that played."""
    optimiser = _optimiser(settings, state.step)
    gradient_of = jax.grad(functools.partial(loss, settings), has_aux=True)
    size = settings.num_envs * settings.num_steps
    batch = jax.tree.map(lambda leaf: leaf.reshape(size, *leaf.shape[2:]), batch)

    def descend(learner: _Learner, rows: Array) -> tuple[_Learner, Metrics]:
        weights, moments = learner
        minibatch = jax.tree.map(lambda leaf: leaf[rows], batch)
        gradient, metrics = gradient_of(weights, _constrained(minibatch, mesh, SHARED))
        change, moments = optimiser.update(gradient, moments)
        return (optax.apply_updates(weights, change), moments), metrics

    def rest(learner: _Learner, rows: Array) -> tuple[_Learner, Metrics]:
        _, metrics = jax.eval_shape(descend, learner, rows)
        return learner, jax.tree.map(lambda metric: jnp.zeros(metric.shape, metric.dtype), metrics)

    def step(
        carry: tuple[_Learner, Array], rows: Array
    ) -> tuple[tuple[_Learner, Array], tuple[Metrics, Array]]:
        learner, near = carry
        learner, metrics = jax.lax.cond(near, descend, rest, learner, rows)
        return (learner, near & (metrics["kl"] <= settings.target_kl)), (metrics, near)

    orders = jax.vmap(jax.random.permutation, (0, None))(jax.random.split(key, settings.epochs), size)
    rows = orders.reshape(settings.epochs * settings.minibatches, -1)
    start = (state.weights, state.optimiser), jnp.bool_(True)
    ((weights, moments), _), (metrics, made) = jax.lax.scan(step, start, rows)
    means: Metrics = {name: jnp.mean(metric, where=made) for name, metric in metrics.items()}
    return weights, moments, means | {"learned": jnp.mean(made)}


def _optimiser(settings: PPOSettings, step: int | Int32[Array, ""]) -> optax.GradientTransformation:
    """Optimises the policy and the critic apart, as their gradients have nothing to do with each other."""

    def of(rate: float) -> optax.GradientTransformation:
        decayed = optax.linear_schedule(rate, 0.0, settings.decay_updates)(step)
        return optax.chain(optax.clip_by_global_norm(settings.max_norm), optax.adam(decayed))

    labels = Weights(*Weights._fields)  # type: ignore[arg-type]
    return optax.multi_transform(
        {"network": of(settings.learning_rate), "critic": of(settings.critic_rate)}, labels
    )
