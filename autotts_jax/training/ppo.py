"""PPO (arXiv 1707.06347): rollout, advantages and gradient steps of an update in one compiled function.

`init` and `update` are pure functions of settings whose rates are traced, so that ``jax.vmap`` trains under
several seeds or rates at once; `PPO` binds them to their data as a `Trainer`.

Rewards are not discounted: an episode is worth their sum, which is the objective. They are counted in units
of 1 plus the price of a typical episode, so that dear episodes do not drown out the others.

The critic is thrown away after training, so it may know what a policy may not, such as the right answer: that
explains nearly all of what returns differ by, and leaves what decisions are to blame for.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Bool, Float, Int32, PRNGKeyArray, UInt32

from autotts_jax.core.compiling import COMPILER_OPTIONS
from autotts_jax.core.pool import ReplayPool
from autotts_jax.envs.environment import Environment
from autotts_jax.envs.params import EnvParams, EnvState
from autotts_jax.errors import InputError
from autotts_jax.policies.neural.actions import ActionHead
from autotts_jax.policies.neural.network import GLOBAL_INPUTS, Inputs, RecurrentState, encode, initial_state
from autotts_jax.policies.neural.policy import NeuralPolicy, Parameters, apply_network, head_of
from autotts_jax.replay.matrix import NONE, ProbeMatrix
from autotts_jax.training.trainer import Metrics
from autotts_jax.typing import Array

MAX_LOG_RATIO = 20.0
"""Log-ratios are cut to it: where exp overflows, even a gradient that the clip discards is not a number."""

TYPICAL_READS = 16
"""Intervals that a typical episode reads, for each branch that it can open."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PPOSettings:
    """How PPO trains. Whole numbers are static; rates are traced, and can be batched.

    Attributes:
        max_branches: W, branches that an episode can open.
        environments: episodes that are played side by side.
        rounds: rounds that an update plays of each, or atomic actions.
        epochs: times that an update learns from all that it played.
        minibatches: gradient steps of an epoch.
        decay_updates: updates over which the learning rates fall linearly to zero.
        learning_rate: Adam's learning rate of the policy at the first update.
        critic_rate: the critic's.
        clip: ε; no decision gains from a ratio of its probabilities that is further than this from 1.
        gae_lambda: λ of `advantages`.
        entropy_weight: weight of a decision's entropy, in nats.
        max_norm: norm that the policy's gradient and the critic's are cut down to, each by itself.
        target_kl: divergence from the policy that played, in nats, beyond which an update stops learning.
    """

    max_branches: int = dataclasses.field(default=64, metadata={"static": True})
    environments: int = dataclasses.field(default=1024, metadata={"static": True})
    rounds: int = dataclasses.field(default=32, metadata={"static": True})
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

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value, least = getattr(self, field.name), 1 if field.metadata else 0
            most = 1 if field.name in ("clip", "gae_lambda") else math.inf
            # Arrays of rates, and what JAX puts in their place, are not looked at.
            if isinstance(value, int | float) and not least <= value <= most:
                limits = f"at least {least}" if most == math.inf else f"in {least} … {most}"
                raise InputError(f"{field.name} is {value}, but it must be {limits}")
        if self.environments * self.rounds % self.minibatches:
            raise InputError(
                f"{self.environments} environments x {self.rounds} rounds cannot be dealt into "
                f"{self.minibatches} minibatches of one size; give a number that divides them"
            )


class Weights(NamedTuple):
    """What is learned.

    Attributes:
        network: the policy's parameters.
        critic: the critic's.
    """

    network: Parameters
    critic: Parameters


class Episode(NamedTuple):
    """An episode under way.

    Attributes:
        state: the environment's state.
        recall: what the policy remembers.
    """

    state: EnvState
    recall: RecurrentState


class PPOState(NamedTuple):
    """Everything that goes on from update to update.

    Attributes:
        weights: what is learned.
        optimiser: Adam's moments.
        episodes: those under way; leaves have a leading axis E.
        key: key data. Shape (2,).
        step: updates made. Shape ().
    """

    weights: Weights
    optimiser: optax.OptState
    episodes: Episode
    key: UInt32[Array, " 2"]
    step: Int32[Array, ""]


class PPO:
    """The trainer.

    Args:
        settings: its settings.
        params: training questions, branch orders, the range of γ and the reward, for as many branches as
            ``settings.max_branches``.
        parameters: where the policy starts.
        devices: devices to share environments and minibatches among; all when None, of all processes.

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
                f"the data has {branches} branches a question, fewer than max_branches, "
                f"{settings.max_branches}; give a smaller one"
            )
        size = settings.environments * settings.rounds // settings.minibatches
        for name, number in (("environments", settings.environments), ("rounds of a minibatch", size)):
            if number % mesh.size:
                raise InputError(f"{mesh.size} devices cannot share {number} {name}; give a multiple of them")
        self._settings = settings
        self._params = jax.device_put(params, NamedSharding(mesh, WHOLE))
        self._parameters = parameters
        self._mesh = mesh
        self._gamma = math.sqrt(float(params.gamma_low) * float(params.gamma_high))

    def init(self, key: PRNGKeyArray) -> PPOState:
        """The state before the first update."""
        return _init(self._settings, self._params, self._parameters, key, self._mesh)

    def update(self, state: PPOState) -> tuple[PPOState, Metrics]:
        """One `update`. It takes the memory of the state that it is given, which is then gone."""
        return _update(self._settings, self._params, state, self._mesh)

    def policy(self, state: PPOState) -> NeuralPolicy:
        """The policy that makes the likeliest decisions."""
        return NeuralPolicy(state.weights.network, self._gamma)


def init(
    settings: PPOSettings,
    params: EnvParams,
    parameters: Parameters,
    key: PRNGKeyArray,
    mesh: Mesh | None = None,
) -> PPOState:
    """The state before the first update.

    Args:
        settings: how to train.
        params: what is played.
        parameters: where the policy starts.
        key: where all randomness comes from.
        mesh: a mesh of one axis, ``devices``, to share the environments among; None for a single device.
    """
    reset_key, critic_key, key = jax.random.split(key, 3)
    keys = jax.random.split(reset_key, settings.environments)
    environment = head_of(parameters).environment(settings.max_branches)
    episodes = jax.vmap(functools.partial(_start, environment, params))(keys)
    critic = nnx.to_pure_dict(nnx.state(Critic(rngs=nnx.Rngs(critic_key))))
    weights = Weights(parameters, critic)
    moments = _optimiser(settings, 0).init(weights)
    state = PPOState(weights, moments, episodes, jax.random.key_data(key), jnp.int32(0))
    return _constrained(state, mesh, PLACES)


def update(
    settings: PPOSettings, params: EnvParams, state: PPOState, mesh: Mesh | None = None
) -> tuple[PPOState, Metrics]:
    """Plays, and learns from what was played.

    Args:
        settings: how to train.
        params: what is played.
        state: what to go on from.
        mesh: that of `init`.

    Returns:
        The state after it, and what it measured: ``accuracy``, ``tokens`` and ``objective``, means over the
        episodes that ended in it (NaN where none did), and their number ``episodes``;
        ``explained_variance`` of the critic; the means of `loss`'s figures over the gradient steps that were
        made, and ``learned``, the share of all steps that these are.
    """
    play_key, learn_key, key = jax.random.split(jax.random.wrap_key_data(jnp.asarray(state.key)), 3)
    episodes, played = rollout(settings, params, state, play_key)
    gain = advantages(
        played.reward,
        played.value,
        played.next_value,
        played.terminated,
        played.truncated,
        settings.gae_lambda,
    )
    target = gain + played.value
    normal = (gain - jnp.mean(gain)) / (jnp.std(gain) + 1e-8)
    batch = Batch(played.view, played.facts, played.allowed, played.decision, played.log_prob, normal, target)
    weights, moments, figures = _learn(settings, state, batch, learn_key, mesh)
    ended = played.terminated | played.truncated
    metrics = {
        "accuracy": jnp.mean(played.correct, where=ended),
        "tokens": jnp.mean(played.tokens, where=ended),
        "objective": jnp.mean(played.objective, where=ended),
        "episodes": jnp.sum(ended),
        "explained_variance": 1 - jnp.var(gain) / jnp.var(target),
        **figures,
    }
    state = PPOState(weights, moments, episodes, jax.random.key_data(key), state.step + 1)
    return _constrained(state, mesh, PLACES), metrics


_init = jax.jit(init, static_argnums=4)
_update = jax.jit(update, static_argnums=3, donate_argnums=2, compiler_options=COMPILER_OPTIONS)


WHOLE, SHARED = PartitionSpec(), PartitionSpec("devices")
"""On each device, or one part on each."""

PLACES = PPOState(WHOLE, WHOLE, SHARED, WHOLE, WHOLE)  # type: ignore[arg-type]
"""Where a state's parts are."""


def _constrained(tree: Any, mesh: Mesh | None, places: Any) -> Any:
    """The same arrays in these places."""
    if mesh is None:
        return tree
    return jax.lax.with_sharding_constraint(
        tree, jax.tree.map(lambda place: NamedSharding(mesh, place), places)
    )


# --- playing --------------------------------------------------------------------------------------------


class Played(NamedTuple):
    """A round as it was played; leaves have leading axes (T, E), rounds and environments.

    Attributes:
        view: what the network read.
        facts: what the critic knew.
        allowed: what was admissible.
        decision: what was decided.
        log_prob: log-probability of that.
        value: what the critic expected of the rest of the episode, this round included.
        reward: the reward, in the episode's unit as the values are.
        next_value: what it expected after this round, if the episode went on.
        terminated: the episode ended with an answer.
        truncated: the step limit cut it off.
        correct: the answer that would be given after the round is the gold one.
        tokens: tokens charged so far.
        objective: 1{correct} - γ·C so far.
    """

    view: Inputs
    facts: Facts
    allowed: Any
    decision: Any
    log_prob: Float[Array, "..."]
    value: Float[Array, "..."]
    reward: Float[Array, "..."]
    next_value: Float[Array, "..."]
    terminated: Bool[Array, "..."]
    truncated: Bool[Array, "..."]
    correct: Bool[Array, "..."]
    tokens: Int32[Array, "..."]
    objective: Float[Array, "..."]


def rollout(
    settings: PPOSettings, params: EnvParams, state: PPOState, key: PRNGKeyArray
) -> tuple[Episode, Played]:
    """Plays `PPOSettings.rounds` rounds in every environment, one episode after the other.

    Returns:
        The episodes under way after them, and the rounds, with leading axes (T, E).
    """
    network = functools.partial(apply_network, state.weights.network)
    decisions = head_of(state.weights.network)
    environment = decisions.environment(settings.max_branches)
    finals = shares_of_finals(params.matrix)

    def judge(episode: Episode) -> Judged:
        pool = episode.state.pool.with_matrix(params.matrix)
        seen, recall = encode(pool, episode.recall, episode.state.gamma, environment.atomic)
        facts = facts_of(episode.state, pool, params.matrix, finals[episode.state.question])
        return Judged(pool, seen, recall, facts, apply_critic(state.weights.critic, facts, seen))

    def value(episode: Episode) -> Float[Array, ""]:
        return judge(episode).value

    play = jax.vmap(functools.partial(_round, decisions, environment, params, network, judge))

    def step(episodes, key):
        following, last, played = play(episodes, jax.random.split(key, settings.environments))
        # Judging where a truncated episode stopped is half the work of a round, and seldom needed.
        cut_off = jax.lax.cond(
            jnp.any(played.truncated), jax.vmap(value), lambda _: jnp.zeros_like(played.value), last
        )
        return following, played._replace(next_value=cut_off)

    episodes, played = jax.lax.scan(step, state.episodes, jax.random.split(key, settings.rounds))
    next_value = jnp.concatenate([played.value[1:], jax.vmap(value)(episodes)[None]])
    next_value = jnp.where(played.truncated, played.next_value, next_value)
    return episodes, played._replace(next_value=next_value)


class Judged(NamedTuple):
    """A state as the policy and the critic know it.

    Attributes:
        pool: its pool, with the matrix.
        view: what the network reads.
        recall: what the policy remembers from here on.
        facts: what the critic knows.
        value: what the critic expects.
    """

    pool: ReplayPool
    view: Inputs
    recall: RecurrentState
    facts: Facts
    value: Float[Array, ""]


def _start(environment: Environment, params: EnvParams, key: PRNGKeyArray) -> Episode:
    return Episode(environment.reset_env(key, params)[1], initial_state(environment.max_branches))


def _round(
    decisions: ActionHead,
    environment: Environment,
    params: EnvParams,
    network: Callable[[Inputs, Any], Any],
    judge: Callable[[Episode], Judged],
    episode: Episode,
    key: PRNGKeyArray,
) -> tuple[Episode, Episode, Played]:
    """A round of one environment.

    Returns:
        The episode after it, or the next one where this one ended; this one's last state; and what was
        played, but for the next value.
    """
    act_key, reset_key = jax.random.split(key)
    judged = judge(episode)
    allowed = decisions.mask(judged.pool)
    heads = network(judged.view, allowed)
    decided = decisions.sample(act_key, heads)
    _, state, reward, terminated, info = environment.step_env(
        reset_key, episode.state, decisions.for_environment(decided), params
    )
    truncated = ~terminated & environment.is_truncated(state, params)
    last = Episode(state, judged.recall._replace(tracker=state.tracker))
    following = jax.tree.map(
        lambda new, old: jnp.where(terminated | truncated, new, old),
        _start(environment, params, reset_key),
        last,
    )
    played = Played(
        view=judged.view,
        facts=judged.facts,
        allowed=allowed,
        decision=decided,
        log_prob=decisions.log_prob(heads, decided),
        value=judged.value,
        reward=reward / _unit(state),
        next_value=jnp.zeros_like(judged.value),
        terminated=terminated,
        truncated=truncated,
        correct=info["correct"],
        tokens=info["tokens"],
        objective=info["correct"] - state.gamma * info["cost"],
    )
    return following, last, played


def advantages(
    reward: Float[Array, "T E"],
    value: Float[Array, "T E"],
    next_value: Float[Array, "T E"],
    terminated: Bool[Array, "T E"],
    truncated: Bool[Array, "T E"],
    gae_lambda: float | Float[Array, ""],
) -> Float[Array, "T E"]:
    """Generalised advantage estimation (arXiv 1506.02438), undiscounted.

    A terminated episode brings nothing more; a truncated one would have gone on, and the critic guesses what
    it would have brought. Neither knows of the episode that is played after it.

    Args:
        reward: r_t.
        value: V(s_t).
        next_value: V(s_{t+1}) of the same episode, even where it was truncated.
        terminated: the episode ended with this round.
        truncated: it was cut off after this round.
        gae_lambda: λ.
    """

    def back(later, played):
        surprise, ended = played
        gain = surprise + jnp.where(ended, 0, gae_lambda * later)
        return gain, gain

    surprise = reward + jnp.where(terminated, 0, next_value) - value
    _, gain = jax.lax.scan(back, jnp.zeros_like(value[0]), (surprise, terminated | truncated), reverse=True)
    return gain


# --- the critic -----------------------------------------------------------------------------------------


class Facts(NamedTuple):
    """What the critic knows of a state and the network does not, or not in proportion; all of shape ().

    Attributes:
        right: 1 where the answer that would be given is right.
        share: share of the right answer among the finals of all recorded branches.
        rival: the largest share of another answer.
        will_be: share of active branches that end with the right answer.
        is_now: share of active branches whose latest answer is right.
        to_read: intervals left in live branches, in typical episodes.
        share_of_cost: what a typical episode costs, over 1 plus that: 0 where reading is free, 1 where only
            it matters.
        bill: their product.
    """

    right: Float[Array, "..."]
    share: Float[Array, "..."]
    rival: Float[Array, "..."]
    will_be: Float[Array, "..."]
    is_now: Float[Array, "..."]
    to_read: Float[Array, "..."]
    share_of_cost: Float[Array, "..."]
    bill: Float[Array, "..."]


def _unit(state: EnvState) -> Float[Array, ""]:
    """1 plus the price of a typical episode: the unit of an episode's rewards."""
    return 1 + state.gamma * TYPICAL_READS * state.pool.width


def shares_of_finals(matrix: ProbeMatrix) -> Float[Array, "Q V"]:
    """The share that each answer has of the finals of all branches recorded for a question."""

    def of_question(answers, lengths):
        finals = jnp.take_along_axis(answers, lengths[:, None], axis=1)[:, 0]
        voters = (lengths > 0) & (finals != NONE)
        ids = jnp.where(voters, finals, matrix.vocabulary)
        count = jnp.zeros(matrix.vocabulary).at[ids].add(1.0, mode="drop")
        return count / jnp.maximum(jnp.sum(voters), 1)

    return jax.vmap(of_question)(jnp.asarray(matrix.answers), jnp.asarray(matrix.lengths))


def facts_of(state: EnvState, pool: ReplayPool, matrix: ProbeMatrix, finals: Float[Array, " V"]) -> Facts:
    """The facts of a state.

    Args:
        state: the state.
        pool: its pool, with the matrix.
        matrix: the probe matrix.
        finals: the question's `shares_of_finals`.
    """
    hidden = pool.hidden
    # Where no answer counts as right, one that no branch gives.
    label = jnp.where(state.target == NONE, matrix.vocabulary, state.target)
    at_end = jnp.asarray(matrix.answers).reshape(-1)[hidden.start + hidden.length]
    is_right = jnp.arange(matrix.vocabulary) == label
    active = jnp.maximum(jnp.sum(pool.active), 1)
    to_read = jnp.sum(jnp.where(pool.live, hidden.length + 1 - pool.depth, 0)) / (TYPICAL_READS * pool.width)
    share_of_cost = 1 - 1 / _unit(state)
    known = Facts(
        right=state.answer == label,
        share=jnp.sum(finals, where=is_right),
        rival=jnp.max(finals, where=~is_right, initial=0),
        will_be=jnp.sum(pool.active & (at_end == label)) / active,
        is_now=jnp.sum(pool.active & (state.tracker.keys == label)) / active,
        to_read=to_read,
        share_of_cost=share_of_cost,
        bill=share_of_cost * to_read,
    )
    return jax.tree.map(lambda fact: jnp.asarray(fact, jnp.float32), known)


class Critic(nnx.Module):
    """Expects a right answer and a cost, and weighs them by the price: all prices share both."""

    def __init__(self, hidden: int = 32, *, rngs: nnx.Rngs):
        small = nnx.initializers.variance_scaling(0.01, "fan_in", "normal")
        self.first = nnx.Linear(len(Facts._fields) + len(GLOBAL_INPUTS), hidden, rngs=rngs)
        self.second = nnx.Linear(hidden, hidden, rngs=rngs)
        self.last = nnx.Linear(hidden, 2, kernel_init=small, rngs=rngs)

    def __call__(self, known: Facts, seen: Inputs) -> Float[Array, ""]:
        """What the rest of the episode is expected to bring, in its unit."""
        layer = nnx.relu(self.first(jnp.concatenate([jnp.stack(known), seen.episode])))
        right, cost = self.last(nnx.relu(self.second(layer)))
        return (1 - known.share_of_cost) * right - known.share_of_cost * cost


def apply_critic(parameters: Parameters, known: Facts, seen: Inputs) -> Float[Array, ""]:
    """What a critic with these parameters expects."""
    return nnx.merge(_critic_structure(), parameters)(known, seen)


@functools.cache
def _critic_structure() -> nnx.GraphDef:
    with jax.ensure_compile_time_eval():
        return nnx.split(Critic(rngs=nnx.Rngs(0)))[0]


# --- learning -------------------------------------------------------------------------------------------


class Batch(NamedTuple):
    """Rounds to learn from; the leaves' leading axes are as in `Played`, or one, B.

    Attributes:
        view: what the network read.
        facts: what the critic knew.
        allowed: what was admissible.
        decision: what was decided.
        log_prob: log-probability of that when it was played.
        advantage: how much better it turned out than expected, normalised.
        target: what the critic should have expected.
    """

    view: Inputs
    facts: Facts
    allowed: Any
    decision: Any
    log_prob: Float[Array, "..."]
    advantage: Float[Array, "..."]
    target: Float[Array, "..."]


def loss(settings: PPOSettings, weights: Weights, batch: Batch) -> tuple[Float[Array, ""], Metrics]:
    """What a gradient step on B rounds lowers.

    Returns:
        The loss and figures: ``loss``; ``policy_loss``, ``value_loss`` and ``entropy``, its parts; ``kl``, an
        estimate of the divergence from the policy that played, the mean of ρ - 1 - log ρ; and
        ``clip_fraction``, the share of decisions whose ratio ρ is beyond the clip.
    """
    decisions = head_of(weights.network)

    def of_round(row: Batch):
        heads = apply_network(weights.network, row.view, row.allowed)
        value = apply_critic(weights.critic, row.facts, row.view)
        return decisions.log_prob(heads, row.decision) - row.log_prob, decisions.entropy(heads), value

    log_ratio, entropy, value = jax.vmap(of_round)(batch)
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


def _learn(
    settings: PPOSettings, state: PPOState, batch: Batch, key: PRNGKeyArray, mesh: Mesh | None
) -> tuple[Weights, optax.OptState, Metrics]:
    """Epochs of gradient steps, up to the one that finds the policy too far from the one that played."""
    optimiser = _optimiser(settings, state.step)
    gradient_of = jax.grad(functools.partial(loss, settings), has_aux=True)
    size = settings.environments * settings.rounds
    batch = jax.tree.map(lambda leaf: leaf.reshape(size, *leaf.shape[2:]), batch)

    def descend(learner, rows):
        weights, moments = learner
        minibatch = jax.tree.map(lambda leaf: leaf[rows], batch)
        gradient, figures = gradient_of(weights, _constrained(minibatch, mesh, SHARED))
        change, moments = optimiser.update(gradient, moments)
        return (optax.apply_updates(weights, change), moments), figures

    def rest(learner, rows):
        _, figures = jax.eval_shape(descend, learner, rows)
        return learner, jax.tree.map(lambda figure: jnp.zeros(figure.shape, figure.dtype), figures)

    def step(carry, rows):
        learner, near = carry
        learner, figures = jax.lax.cond(near, descend, rest, learner, rows)
        return (learner, near & (figures["kl"] <= settings.target_kl)), (figures, near)

    orders = jax.vmap(jax.random.permutation, (0, None))(jax.random.split(key, settings.epochs), size)
    rows = orders.reshape(settings.epochs * settings.minibatches, -1)
    start = (state.weights, state.optimiser), jnp.bool_(True)
    ((weights, moments), _), (figures, made) = jax.lax.scan(step, start, rows)
    means: Metrics = {name: jnp.mean(figure, where=made) for name, figure in figures.items()}
    return weights, moments, means | {"learned": jnp.mean(made)}


def _optimiser(settings: PPOSettings, step: int | Int32[Array, ""]) -> optax.GradientTransformation:
    """Apart for the policy and the critic, whose gradients have nothing to do with one another."""

    def of(rate):
        decayed = optax.linear_schedule(rate, 0.0, settings.decay_updates)(step)
        return optax.chain(optax.clip_by_global_norm(settings.max_norm), optax.adam(decayed))

    labels = Weights(*Weights._fields)  # type: ignore[arg-type]
    return optax.multi_transform(
        {"network": of(settings.learning_rate), "critic": of(settings.critic_rate)}, labels
    )
