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
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Bool, Float, Int32, PRNGKeyArray, UInt32

from autotts_jax.core.compiling import COMPILER_OPTIONS
from autotts_jax.envs import EnvParams
from autotts_jax.errors import InputError
from autotts_jax.policies.neural.network import SignalInput
from autotts_jax.policies.neural.policy import NeuralPolicy, Parameters, apply_network, head_of
from autotts_jax.terminal import counted_branches
from autotts_jax.training.advantages import advantages
from autotts_jax.training.critic import PrivilegedCritic, apply_critic
from autotts_jax.training.experience import Lanes, Transition, Weights, begin_lanes, play
from autotts_jax.training.settings import MAX_SIZE, Settings
from autotts_jax.training.trainer import Metrics
from autotts_jax.typing import Array

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
            most = {"clip": 1, "gae_lambda": 1, "num_envs": MAX_SIZE}.get(field.name, math.inf)
            # Arrays of rates, and what JAX puts in their place, are not checked.
            if isinstance(value, int | float) and not least <= value <= most:
                limits = f"at least {least}" if most == math.inf else f"in {least} … {most}"
                raise InputError(f"{field.name} is {value}, but it must be {limits}")
        if self.num_envs * self.num_steps % self.minibatches:
            raise InputError(
                f"minibatches is {self.minibatches}, but it must divide num_envs x num_steps, "
                f"{self.num_envs} x {self.num_steps}"
            )


class PPOState(NamedTuple):
    """What is carried from update to update.

    Attributes:
        weights: what is learned.
        optimiser: Adam's moments.
        lanes: the episodes in flight.
        key: key data. Shape (2,).
        step: updates made. Shape ().
    """

    weights: Weights
    optimiser: optax.OptState
    lanes: Lanes
    key: UInt32[Array, " 2"]
    step: Int32[Array, ""]


class PPO:
    """Trains a policy by proximal policy optimisation, with a critic that sees privileged features.

    Args:
        settings: its settings.
        params: training questions, branch orders, the range of γ and the reward, for as many branches as
            ``settings.max_branches``.
        parameters: the policy's parameters at the start.
        devices: devices to share environments and minibatches among; by default all, of all processes.
        signal_inputs: the signals that the policy reads; ``params`` are those of an environment that shows
            them.

    Raises:
        InputError: the data has too few branches, or the devices cannot share evenly.
    """

    def __init__(
        self,
        settings: PPOSettings,
        params: EnvParams,
        parameters: Parameters,
        devices: Sequence[jax.Device] | None = None,
        signal_inputs: tuple[SignalInput, ...] = (),
    ):
        mesh = Mesh(np.array(jax.devices() if devices is None else devices), ("devices",))
        branches = params.orders.width
        if branches < settings.max_branches:
            raise InputError(
                f"max_branches is {settings.max_branches}, but the data has {counted_branches(branches)} a "
                "question; give a smaller number"
            )
        size = settings.num_envs * settings.num_steps // settings.minibatches
        for name, number in (("environments", settings.num_envs), ("steps of a minibatch", size)):
            if number % mesh.size:
                raise InputError(
                    f"{mesh.size} devices cannot share {number} {name} evenly; give a multiple of {mesh.size}"
                )
        self._settings = settings
        # Of several processes `device_put` refuses what is not equal in all, and NaN in signals never is.
        self._params = multihost_utils.host_local_array_to_global_array(params, mesh, WHOLE)
        self._parameters = parameters
        self._signal_inputs = signal_inputs
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
        return _update(self._settings, self._params, state, self._mesh, self._signal_inputs)

    def policy(self, state: PPOState) -> NeuralPolicy:
        """Returns the policy that plays the most likely actions.

        Args:
            state: the state.
        """
        return NeuralPolicy(state.weights.network, self._gamma, signal_inputs=self._signal_inputs)


def init(
    settings: PPOSettings,
    params: EnvParams,
    parameters: Parameters,
    key: PRNGKeyArray,
    mesh: Mesh | None = None,
) -> PPOState:
    """Makes the state before the first update.

    Returns:
        The state.
    """
    reset_key, critic_key, key = jax.random.split(key, 3)
    critic = nnx.to_pure_dict(nnx.state(PrivilegedCritic(rngs=nnx.Rngs(critic_key))))
    weights = Weights(parameters, critic)
    moments = make_optimiser(settings, 0).init(weights)
    lanes = begin_lanes(parameters, params, settings.max_branches, settings.num_envs, reset_key)
    state = PPOState(weights, moments, lanes, jax.random.key_data(key), jnp.int32(0))
    return _constrained(state, mesh, PLACES)


def update(
    settings: PPOSettings,
    params: EnvParams,
    state: PPOState,
    mesh: Mesh | None = None,
    signal_inputs: tuple[SignalInput, ...] = (),
) -> tuple[PPOState, Metrics]:
    """Plays steps in every environment, and learns from them.

    Args:
        settings: the settings.
        params: parameters of the environment.
        state: the state before the update.
        mesh: the mesh that `init` was given.
        signal_inputs: the signals that the policy reads (static).

    Returns:
        The state after the update, and its metrics: ``accuracy``, ``tokens`` and ``objective``, means over
        the episodes that ended in it (NaN where none did), and their number ``episodes``;
        ``explained_variance`` of the critic; the means of the metrics of `loss` over the gradient steps that
        were made, and ``learned``, their share of all steps.
    """
    play_key, learn_key, key = jax.random.split(jax.random.wrap_key_data(jnp.asarray(state.key)), 3)
    width, steps = settings.max_branches, settings.num_steps
    lanes, played = play(state.weights, params, state.lanes, play_key, width, steps, signal_inputs)
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
    batch = Batch(played, normal, target)
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
    state = PPOState(weights, moments, lanes, jax.random.key_data(key), state.step + 1)
    return _constrained(state, mesh, PLACES), metrics


_init = jax.jit(init, static_argnums=4)
_update = jax.jit(update, static_argnums=(3, 4), donate_argnums=2, compiler_options=COMPILER_OPTIONS)


WHOLE, SHARED = PartitionSpec(), PartitionSpec("devices")
"""A copy on each device, or a part on each."""

PLACES = PPOState(WHOLE, WHOLE, Lanes(SHARED, WHOLE), WHOLE, WHOLE)  # type: ignore[arg-type]
"""The placement of each part of a state."""


def _constrained(tree: Any, mesh: Mesh | None, places: Any) -> Any:
    """Places the arrays of a tree on the mesh."""
    if mesh is None:
        return tree
    return jax.lax.with_sharding_constraint(
        tree, jax.tree.map(lambda place: NamedSharding(mesh, place), places)
    )


class Batch(NamedTuple):
    """Steps to learn from; the leaves' leading axes are (T, E), steps and environments, or one, B.

    Attributes:
        step: the step as it was played.
        advantage: its advantage, normalised.
        target: the value that the critic should have predicted.
    """

    step: Transition
    advantage: Float[Array, "..."]
    target: Float[Array, "..."]


def loss(settings: PPOSettings, weights: Weights, batch: Batch) -> tuple[Float[Array, ""], Metrics]:
    """Computes the loss that a gradient step lowers.

    Returns:
        The loss and its metrics: ``loss``; ``policy_loss``, ``value_loss`` and ``entropy``, its parts;
        ``kl``, an estimate of the divergence from the policy that played, the mean of ρ - 1 - log ρ; and
        ``clip_fraction``, the share of actions whose ratio ρ is beyond the clip.
    """
    head = head_of(weights.network)

    def of_step(row: Batch) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
        step = row.step
        logits = apply_network(weights.network, step.inputs, step.mask)
        value = apply_critic(weights.critic, step.privileged, step.inputs)
        return head.log_prob(logits, step.action) - step.log_prob, head.entropy(logits), value

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


def _learn(
    settings: PPOSettings, state: PPOState, batch: Batch, key: PRNGKeyArray, mesh: Mesh | None
) -> tuple[Weights, optax.OptState, Metrics]:
    """Makes epochs of gradient steps, until one finds the policy too far from the one that played."""
    optimiser = make_optimiser(settings, state.step)
    gradient_of = jax.grad(functools.partial(loss, settings), has_aux=True)
    size = settings.num_envs * settings.num_steps
    batch = jax.tree.map(lambda leaf: leaf.reshape(size, *leaf.shape[2:]), batch)

    def descend(learner: _Learner, rows: Int32[Array, " B"]) -> tuple[_Learner, Metrics]:
        weights, moments = learner
        minibatch = jax.tree.map(lambda leaf: leaf[rows], batch)
        gradient, metrics = gradient_of(weights, _constrained(minibatch, mesh, SHARED))
        change, moments = optimiser.update(gradient, moments)
        return (optax.apply_updates(weights, change), moments), metrics

    def rest(learner: _Learner, rows: Int32[Array, " B"]) -> tuple[_Learner, Metrics]:
        _, metrics = jax.eval_shape(descend, learner, rows)
        return learner, jax.tree.map(lambda metric: jnp.zeros(metric.shape, metric.dtype), metrics)

    def step(
        carry: tuple[_Learner, Bool[Array, ""]], rows: Int32[Array, " B"]
    ) -> tuple[tuple[_Learner, Bool[Array, ""]], tuple[Metrics, Bool[Array, ""]]]:
        learner, near = carry
        learner, metrics = jax.lax.cond(near, descend, rest, learner, rows)
        return (learner, near & (metrics["kl"] <= settings.target_kl)), (metrics, near)

    orders = jax.vmap(jax.random.permutation, (0, None))(jax.random.split(key, settings.epochs), size)
    rows = orders.reshape(settings.epochs * settings.minibatches, -1)
    start = (state.weights, state.optimiser), jnp.bool_(True)
    ((weights, moments), _), (metrics, made) = jax.lax.scan(step, start, rows)
    means: Metrics = {name: jnp.mean(metric, where=made) for name, metric in metrics.items()}
    return weights, moments, means | {"learned": jnp.mean(made)}


def make_optimiser(settings: PPOSettings, step: int | Int32[Array, ""]) -> optax.GradientTransformation:
    """Makes the optimiser of an update, apart for policy and critic, whose gradients are unrelated."""

    def of(rate: float) -> optax.GradientTransformation:
        decayed = optax.linear_schedule(rate, 0.0, settings.decay_updates)(step)
        return optax.chain(optax.clip_by_global_norm(settings.max_norm), optax.adam(decayed))

    labels = Weights(*Weights._fields)  # type: ignore[arg-type]
    return optax.multi_transform(
        {"network": of(settings.learning_rate), "critic": of(settings.critic_rate)}, labels
    )
