"""Random play, the floor of the benchmark."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Int32, UInt32

from autotts_jax.core import stepping
from autotts_jax.core.rollout import Hooks, prepare_rollout
from autotts_jax.core.stepping import Decision, Ended, Executor
from autotts_jax.envs.environment import Environment, Observation
from autotts_jax.policies.env_policy import EnvPolicy, PolicyController, as_controller
from autotts_jax.policies.player import Player, Prepared, all_episodes, play_of
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.replay.orders import BranchOrders
from autotts_jax.typing import Array

GENERATOR = "threefry2x32"
"""What draws, whichever generator JAX is set to."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class RandomPolicy(EnvPolicy):
    """Draws each entry of an action uniformly from its admissible options.

    Attributes:
        key: data of the random key that an episode begins with. Shape (2,).
        env: the environment, whose observations have the mask (static).
    """

    key: UInt32[Array, "2"]
    env: Environment = dataclasses.field(metadata={"static": True})

    def start(self) -> Array:
        """Gives the key for the first step."""
        return self.key

    def act(self, observation: Observation, memory: Array) -> tuple[Int32[Array, "..."], Array]:
        """Draws an action, and gives the key for the next step."""
        following, own = jax.random.split(jax.random.wrap_key_data(jnp.asarray(memory), impl=GENERATOR))
        mask = observation["action_mask"]
        # Whole numbers, which every machine compares alike.
        scores = jnp.where(mask, (jax.random.bits(own, mask.shape) >> 1).astype(jnp.int32), -1)
        space = self.env.action_space()
        if isinstance(space, spaces.Discrete):
            action = jnp.argmax(scores)
        else:
            action = jnp.stack([jnp.argmax(part) for part in jnp.split(scores, np.cumsum(space.nvec)[:-1])])
        return action.astype(jnp.int32), jax.random.key_data(following)


@dataclasses.dataclass(frozen=True)
class RandomPlayer(Player):
    """Random play whose draws depend on its seed, the question, the branch order and the step alone.

    So it plays the same whatever is played beside an episode, and in whatever order.

    Attributes:
        env: the environment that it plays in.
        seed: the seed.
        name: the name in results.
        values: it has one setting, without a value.
    """

    env: Environment
    seed: int
    name: str = "random"
    values: tuple[float | None, ...] = (None,)

    @property
    def width(self) -> int:  # type: ignore[override]
        """Branches that an episode of the environment can open."""
        return self.env.max_branches

    def prepare(
        self,
        dataset: ProbeDataset,
        orders: BranchOrders,
        *,
        budget: int | None = None,
        processes: int = 1,  # noqa: ARG002
        critical_path: bool = False,
    ) -> Prepared:
        """Compiles one rollout of all episodes, each with a key of its own as its setting."""
        episodes = all_episodes(self, dataset, orders)
        places = zip(episodes.question, episodes.row, strict=True)
        own = [self._controller(int(question), int(row)) for question, row in places]
        run = prepare_rollout(
            own,
            dataset.matrix,
            orders,
            episodes._replace(setting=np.arange(len(own))),
            budget=budget,
            hooks=Hooks(critical_path=critical_path),
        )
        return lambda on_progress: play_of(self, dataset, orders, run(on_progress))

    def play_episode(
        self, executor: Executor, on_decision: Callable[[Decision], None] | None = None
    ) -> Ended:
        """Plays one episode, the same whichever it is."""
        return stepping.play(self._controller(), executor, on_decision)

    def _controller(self, *episode: int) -> PolicyController:
        key = np.random.SeedSequence((self.seed, *episode)).generate_state(2)
        return as_controller(RandomPolicy(key, self.env), gamma=0.0)
