"""Policies outside JAX, such as a Stable-Baselines3 model, on the same episodes as controllers."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int

from autotts_jax.core import stepping
from autotts_jax.core.rollout import Episodes, Hooks, Pause, Results, rollout
from autotts_jax.core.stepping import Decision, Ended, Executor
from autotts_jax.core.view import Action, View
from autotts_jax.envs.environment import Environment, Observation
from autotts_jax.errors import InputError
from autotts_jax.policies.env_policy import (
    EnvController,
    PolicyMemory,
    check_action,
    check_gamma,
    check_policy,
)
from autotts_jax.policies.player import Play, Player, Prepared, all_episodes, play_of
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.replay.matrix import ProbeMatrix
from autotts_jax.replay.orders import BranchOrders
from autotts_jax.typing import Array
from autotts_jax.user_code import last_lines

LANES = 256
"""Episodes that a policy is asked about at a time, at most."""

REFILL = 0.25
"""Share of the lanes that have to have ended before further episodes take their place."""


class HostPolicy(Protocol):
    """A policy of NumPy arrays for a batch of episodes, with the ``predict`` of Stable-Baselines3."""

    env: Environment
    """The environment that it was made for; nothing but its settings is used."""

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Bool[np.ndarray, " L"] | None = None,
        deterministic: bool = False,
    ) -> tuple[Int[np.ndarray, "L ..."], Any]:
        """Actions of ``env.action_space()`` for L episodes, and the state from now on.

        The observation is that of Gymnasium, which has the action mask with ``mask_in_obs`` alone. The mask
        is also given as ``action_masks``, bool (L, A), to a ``predict`` that has an argument of this name, as
        sb3-contrib's MaskablePPO has.
        """


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class HostController(EnvController):
    """Takes the steps that a policy on the host has decided; it remembers the next one.

    Attributes:
        gamma: γ, the price of an interval that the policy is shown.
        env: the environment (static).
    """

    gamma: float
    env: Environment = dataclasses.field(metadata={"static": True})

    def init(self, view: View) -> PolicyMemory:
        return self.begin(view, jnp.zeros(self.env.action_space().shape or (), jnp.int32))

    def act(self, memory: PolicyMemory, view: View) -> tuple[PolicyMemory, Action]:
        """Takes the step that was decided; the policy was asked in between, see `show`."""
        memory, _ = self.observe(memory, view)
        return self.step(memory, view, memory.own)

    def show(self, memory: PolicyMemory, view: View) -> tuple[Observation, Bool[Array, " A"]]:
        """Makes what the policy is asked with: the observation as in Gymnasium, and the action mask."""
        _, observation = self.observe(memory, view)
        if isinstance(observation, dict):
            observation = dict(observation)
            mask = observation.pop("action_mask")
            if self.env.mask_in_obs:
                observation["action_mask"] = mask.astype(jnp.int8)
        return observation, self.env.action_mask(view)


@dataclasses.dataclass(frozen=True)
class HostPlayer(Player):
    """A host policy at a γ.

    Attributes:
        policy: the policy.
        gamma: γ, the price of an interval that the policy is shown.
        name: the name in results.
        values: γ as the name in results has it; None where it has none.
        trusted: see `Player`.
    """

    policy: HostPolicy
    gamma: float
    name: str = "policy"
    values: tuple[float | None] = (None,)
    trusted: bool = True

    def __post_init__(self) -> None:
        check_policy(self.policy, "predict")
        check_gamma(self.gamma)

    @property
    def width(self) -> int:  # type: ignore[override]
        """Branches that an episode of the policy's environment can open."""
        return self.policy.env.max_branches

    @property
    def controllers(self) -> tuple[HostController]:
        """The controller that takes the policy's steps."""
        return (HostController(self.gamma, self.policy.env),)

    @property
    def pause(self) -> Pause:
        """Asks the policy before each round; to be made anew for each play."""
        return _Predictions(self.controllers[0], self.policy, self.name)

    @property
    def signals(self) -> tuple[str, ...]:  # type: ignore[override]
        """Names of the signals that the policy's environment shows."""
        return self.policy.env.signals

    def prepare(
        self,
        dataset: ProbeDataset,
        orders: BranchOrders,
        *,
        budget: int | None = None,
        processes: int = 1,  # noqa: ARG002
        critical_path: bool = False,
    ) -> Prepared:
        """Has all episodes played in one rollout, with the policy asked before each step."""

        def play(on_progress: Callable[[int], None] | None) -> Play:
            results = self.rollout(
                dataset.matrix,
                orders,
                all_episodes(self, dataset, orders),
                budget=budget,
                critical_path=critical_path,
                on_progress=on_progress,
            )
            return play_of(self, dataset, orders, results)

        return play

    def play_episode(
        self, executor: Executor, on_decision: Callable[[Decision], None] | None = None
    ) -> Ended:
        """Plays one episode, with the policy asked before each step."""
        return stepping.play(self.controllers[0], executor, on_decision, pause=self.pause)

    def rollout(
        self,
        matrix: ProbeMatrix,
        orders: BranchOrders,
        episodes: Episodes,
        *,
        budget: int | None = None,
        critical_path: bool = False,
        on_progress: Callable[[int], None] | None = None,
    ) -> Results:
        """Plays every episode on one device; as `autotts_jax.rollout`, with a single setting.

        Args:
            matrix: the probe matrix.
            orders: branch orders.
            episodes: which episodes to play; their setting is 0.
            budget: token budget B; None for no limit.
            critical_path: count the tokens on the critical path.
            on_progress: called from time to time with the number of episodes that have ended.

        Raises:
            InputError: ``predict`` failed or returned no actions.
        """
        # One device, so that a policy that draws, or that rounds by the size of a batch, decides the same
        # with any number of cores.
        return rollout(
            self.controllers,
            matrix,
            orders,
            episodes,
            budget=budget,
            lanes=min(len(np.asarray(episodes.question)), LANES),
            refill=REFILL,
            devices=jax.local_devices()[:1],
            hooks=Hooks(critical_path=critical_path),
            pause=self.pause,
            on_progress=on_progress,
        )


class _Predictions:
    """Asks a policy for the actions of all lanes, and carries its state from call to call."""

    def __init__(self, controller: HostController, policy: HostPolicy, name: str):
        self._show = jax.jit(jax.vmap(controller.show))
        self._policy, self._name = policy, name
        self._state: Any = None

    def __call__(self, memory: PolicyMemory, view: View) -> PolicyMemory:
        # Copies, which the policy may write to.
        seen, mask = jax.tree.map(np.array, self._show(memory, view))
        starting = np.asarray(view.rounds) == 0
        try:
            masks = {"action_masks": mask} if self._takes_masks else {}
            action, self._state = self._policy.predict(
                seen, state=self._state, episode_start=starting, deterministic=True, **masks
            )
        except Exception as error:
            raise InputError(f"policy {self._name}: predict failed:\n{last_lines(error)}") from error
        check_action(self._name, self._policy.env.action_space(), action, starting.shape)
        placed = memory.own.sharding if isinstance(memory.own, jax.Array) else None
        # Numbers that int32 does not hold stay out of range.
        decided = np.clip(np.asarray(action).astype(np.int64), -1, np.iinfo(np.int32).max).astype(np.int32)
        return memory._replace(own=jax.device_put(decided, placed))

    @functools.cached_property
    def _takes_masks(self) -> bool:
        return "action_masks" in inspect.signature(self._policy.predict).parameters
