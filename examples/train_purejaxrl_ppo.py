"""PPO as PureJaxRL has it (https://github.com/luchris429/purejaxrl): environments and learner in one ``jit``.

Run it as ``python examples/train_purejaxrl_ppo.py``. `make_train` makes a function of a key, so that
``jax.vmap(train)`` trains under several seeds at once.
Weights are random at first.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from common import DISCOUNT, ENVS, EPOCHS, GAE_LAMBDA, MINIBATCHES, RATE, ROUNDS, TASK, first_logits, run

import autotts_jax as at
from autotts_jax.core import COMPILER_OPTIONS
from autotts_jax.envs import EnvParams

ENV, PARAMS = at.make(TASK.environment, **TASK.settings("train"))
HIDDEN = 32


@dataclasses.dataclass(frozen=True)
class Config:
    steps: int
    envs: int = ENVS
    rounds: int = ROUNDS
    epochs: int = EPOCHS
    minibatches: int = MINIBATCHES
    learning_rate: float = RATE
    discount: float = DISCOUNT
    gae_lambda: float = GAE_LAMBDA
    clip: float = 0.2
    value_weight: float = 0.5
    max_norm: float = 0.5
    recurrent: bool = False

    @property
    def length(self) -> int:
        """Rounds that gradients flow back through."""
        return self.rounds if self.recurrent else 1

    @property
    def updates(self) -> int:
        return max(1, self.steps // (self.envs * self.rounds))


class Choices(NamedTuple):
    """Something for each option of each part of an action, as masks or logits."""

    answer: jax.Array  # (..., 2)
    opening: jax.Array  # (..., W + 1)
    branch: jax.Array  # (..., W, 2 + max_advance)


class ActorCritic(nn.Module):
    """One network for every branch, which sees it with what all have in common.

    A recurrent one remembers that from round to round, in a gated recurrent unit.
    """

    recurrent: bool = False

    def start(self, *lanes: int) -> jax.Array:
        """What it remembers at first, shape (lanes, M)."""
        return jnp.zeros((*lanes, HIDDEN if self.recurrent else 0))

    @nn.compact
    def __call__(self, obs: dict[str, jax.Array], memory: jax.Array) -> tuple[Choices, jax.Array, jax.Array]:
        dense = functools.partial(nn.Dense, HIDDEN, kernel_init=nn.initializers.orthogonal(2**0.5))
        head = functools.partial(nn.Dense, kernel_init=nn.initializers.orthogonal(0.01))
        branches = nn.relu(dense()(obs["branches"]) + dense()(obs["globals"])[..., None, :])
        whole = jnp.concatenate([branches.mean(-2), branches.max(-2), obs["globals"]], -1)
        whole = nn.relu(dense()(whole))
        if self.recurrent:
            memory, whole = nn.GRUCell(HIDDEN)(memory, whole)
        branches = nn.relu(dense()(branches) + dense()(whole)[..., None, :])
        value = nn.Dense(1, kernel_init=nn.initializers.orthogonal(1.0))(whole)[..., 0]
        opening, choice = head(ENV.max_branches + 1)(whole), head(2 + ENV.max_advance)(branches)
        logits = Choices(head(2)(whole), opening, choice)
        first = split(first_logits(ENV))
        mask = split(obs["action_mask"])
        masked = Choices(*map(lambda m, x, bias: jnp.where(m, x + bias, -1e9), mask, logits, first))
        return masked, value, memory


def split(options: jax.Array) -> Choices:
    """What is in the order of the action mask, by parts."""
    answer, opening, branch = jnp.split(options, [2, 3 + ENV.max_branches], axis=-1)
    return Choices(answer, opening, branch.reshape(*branch.shape[:-1], ENV.max_branches, -1))


def join(answer: jax.Array, opening: jax.Array, branch: jax.Array) -> jax.Array:
    """The action of its parts."""
    return jnp.concatenate([answer[..., None], opening[..., None], branch], -1)


def log_prob(logits: Choices, action: jax.Array) -> jax.Array:
    """Of an action; what is not looked at when it answers counts for nothing."""
    chosen = Choices(action[..., 0], action[..., 1], action[..., 2:])
    answer, opening, branch = (
        jnp.take_along_axis(jax.nn.log_softmax(x), i[..., None], -1)[..., 0]
        for x, i in zip(logits, chosen, strict=True)
    )
    return answer + jnp.where(chosen.answer == 0, opening + branch.sum(-1), 0)


class Transition(NamedTuple):
    obs: dict[str, jax.Array]
    memory: jax.Array
    action: jax.Array
    log_prob: jax.Array
    value: jax.Array
    next_value: jax.Array
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array

    def kept(self, memory: jax.Array) -> jax.Array:
        """What is remembered after the round: nothing of an episode that has ended."""
        return jnp.where((self.terminated | self.truncated)[:, None], 0, memory)


def make_train(config: Config, params: EnvParams):
    """A function of a key that returns trained weights."""
    network = ActorCritic(config.recurrent)
    rate = optax.linear_schedule(
        config.learning_rate, 0.0, config.updates * config.epochs * config.minibatches
    )
    optimiser = optax.chain(optax.clip_by_global_norm(config.max_norm), optax.adam(rate, eps=1e-5))

    def play(weights, envs, key):
        obs, state, memory = envs
        key, *act_keys = jax.random.split(key, 4)
        logits, value, later = network.apply(weights, obs, memory)
        action = join(*map(jax.random.categorical, act_keys, logits))
        keys = jax.random.split(key, config.envs)
        following, state, reward, terminated, truncated, info = jax.vmap(ENV.step, (0, 0, 0, None))(
            keys, state, action, params
        )
        # What follows may begin the next episode, but a truncated one would have gone on.
        _, next_value, _ = network.apply(weights, info["final_observation"], later)
        before = log_prob(logits, action)
        seen = Transition(obs, memory, action, before, value, next_value, reward, terminated, truncated)
        return (following, state, seen.kept(later)), seen

    def advantage(later, seen):
        worth = seen.reward + config.discount * jnp.where(seen.terminated, 0, seen.next_value)
        carried = config.discount * config.gae_lambda * jnp.where(seen.terminated | seen.truncated, 0, later)
        now = worth - seen.value + carried
        return now, now

    def loss(weights, batch):
        seen, gain = batch

        def again(memory, seen):
            logits, value, memory = network.apply(weights, seen.obs, memory)
            return seen.kept(memory), (log_prob(logits, seen.action), value)

        _, (now, value) = jax.lax.scan(again, seen.memory[0], seen)
        ratio = jnp.exp(now - seen.log_prob)
        clipped = jnp.clip(ratio, 1 - config.clip, 1 + config.clip)
        normal = (gain - gain.mean()) / (gain.std() + 1e-8)
        actor = -jnp.minimum(ratio * normal, clipped * normal).mean()
        return actor + config.value_weight * jnp.square(value - seen.value - gain).mean()

    def learn(batch, carry, rows):
        weights, moments = carry
        minibatch = jax.tree.map(lambda x: x[:, rows], batch)
        change, moments = optimiser.update(jax.grad(loss)(weights, minibatch), moments)
        return (optax.apply_updates(weights, change), moments), None

    def update(carry, key):
        learner, envs = carry
        play_key, learn_key = jax.random.split(key)
        keys = jax.random.split(play_key, config.rounds)
        envs, seen = jax.lax.scan(functools.partial(play, learner[0]), envs, keys)
        _, gain = jax.lax.scan(advantage, jnp.zeros(config.envs), seen, reverse=True)
        shape = config.length, gain.size // config.length
        batch = jax.tree.map(lambda x: x.reshape(*shape, *x.shape[2:]), (seen, gain))

        def epoch(learner, key):
            order = jax.random.permutation(key, shape[1]).reshape(config.minibatches, -1)
            return jax.lax.scan(functools.partial(learn, batch), learner, order)

        learner, _ = jax.lax.scan(epoch, learner, jax.random.split(learn_key, config.epochs))
        return (learner, envs), None

    def train(key):
        reset_key, init_key, key = jax.random.split(key, 3)
        obs, state = jax.vmap(ENV.reset, (0, None))(jax.random.split(reset_key, config.envs), params)
        envs = obs, state, network.start(config.envs)
        weights = network.init(init_key, obs, envs[-1])
        learner = weights, optimiser.init(weights)
        keys = jax.random.split(key, config.updates)
        ((trained, _), _), _ = jax.lax.scan(update, (learner, envs), keys)
        return trained

    return train


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Policy:
    """Takes the likeliest option of every part."""

    weights: Any
    network: ActorCritic = dataclasses.field(default=ActorCritic(), metadata={"static": True})
    env = ENV

    def start(self) -> jax.Array:
        return self.network.start()

    def act(self, observation: dict[str, jax.Array], memory: jax.Array) -> tuple[jax.Array, jax.Array]:
        logits, _, memory = self.network.apply(self.weights, observation, memory)
        return join(*(jnp.argmax(part, -1) for part in logits)), memory


@functools.lru_cache
def compiled(config: Config):
    return jax.jit(make_train(config, PARAMS), compiler_options=COMPILER_OPTIONS)


def train(seed: int, steps: int, recurrent: bool = False) -> Policy:
    weights = compiled(Config(steps, recurrent=recurrent))(jax.random.key(seed))
    return Policy(jax.block_until_ready(weights), ActorCritic(recurrent))


if __name__ == "__main__":
    run(__doc__, purejax=train)
