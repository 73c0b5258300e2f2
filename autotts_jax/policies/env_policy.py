"""Policies for the environments, played as controllers are: on the same episodes, in the same tables."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Int32

from autotts_jax.checks import check_float
from autotts_jax.core.controller import Controller
from autotts_jax.core.costs import MOST_GAMMA
from autotts_jax.core.view import Action, StopReason, View
from autotts_jax.core.votes import Vote
from autotts_jax.envs import observations
from autotts_jax.envs.environment import Environment, Observation
from autotts_jax.envs.observations import Before, History, Tracker
from autotts_jax.errors import InputError
from autotts_jax.typing import Array
from autotts_jax.user_code import last_lines


class EnvPolicy(Protocol):
    """A policy in JAX for one episode of an environment.

    If it is a pytree, its leaves are traced, and policies that differ in them share a compilation; else they
    are constants.
    """

    env: Environment
    """The environment that it was made for; nothing but its settings is used."""

    def start(self) -> Any:
        """What it remembers at first: a pytree of arrays. May be left out."""
        return ()

    def act(self, observation: Observation, memory: Any) -> tuple[Array, Any]:
        """An action of ``env.action_space()``, and what it remembers from now on; a pure function."""


class PolicyMemory(NamedTuple):
    """What goes on beside the episode while a policy plays.

    Attributes:
        own: what the policy remembers.
        before: what was seen at the last look.
        tracker: what the steps up to then have shown.
        history: all that was revealed; None unless it is observed.
        time: steps taken. Shape ().
    """

    own: Any
    before: Before
    tracker: Tracker
    history: History | None
    time: Int32[Array, ""]


@jax.tree_util.register_static
class _Constant:
    """A policy that is not a pytree: to JAX all that it holds is constant."""

    def __init__(self, policy: EnvPolicy):
        self.policy = policy

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Constant) and self.policy is other.policy

    def __hash__(self) -> int:
        return id(self.policy)


class EnvController(Controller):
    """A controller whose rounds are steps of an environment.

    The episode's width has to be the environment's. The answer is the environment's aggregate, and where the
    environment truncates an episode it ends for `StopReason.STEP_LIMIT`.

    Attributes:
        env: the environment.
        gamma: γ, the price of an interval that the policy is shown.
    """

    env: Environment
    gamma: float

    @property
    def signals(self) -> tuple[str, ...]:  # type: ignore[override]  # the environment says it
        """Names of the signals that are observed."""
        return self.env.signals

    def begin(self, view: View, own: Any) -> PolicyMemory:
        """Makes the memory at the start of an episode.

        Raises:
            InputError: the episode's width is not the environment's.
        """
        width = self.env.max_branches
        if view.width != width:
            raise InputError(
                f"the policy's environment opens {width} branches, but the episode has {view.width}; give "
                f"--max-branches {width}"
            )
        history = observations.start_history(view) if self.env.obs == "history" else None
        tracker = observations.start_tracking(width, self.env.atomic)
        return PolicyMemory(own, Before.of(view), tracker, history, jnp.int32(0))

    def observe(self, memory: PolicyMemory, view: View) -> tuple[PolicyMemory, Observation]:
        """Takes notice of what the last step has shown, and makes the observation."""
        memory = memory._replace(
            before=Before.of(view),
            tracker=observations.track(memory.tracker, memory.before, view, self.env.atomic),
            history=memory.history and observations.extend_history(memory.history, view),
        )
        limit, gamma = self._limit(view), jnp.asarray(self.gamma)
        return memory, self.env.observe(view, memory.tracker, memory.history, memory.time, limit, gamma)

    def step(self, memory: PolicyMemory, view: View, action: Array) -> tuple[PolicyMemory, Action]:
        """Takes a step of the environment."""
        decoded, _ = self.env.decode(view, action)
        over = memory.time >= self._limit(view)
        decoded = decoded._replace(stop=jnp.where(over, StopReason.STEP_LIMIT, decoded.stop))
        return memory._replace(time=memory.time + 1), decoded

    def answer(self, memory: PolicyMemory, view: View) -> Vote:
        return self.env.aggregate(view, memory.tracker)

    def _limit(self, view: View) -> int:
        return self.env.default_max_steps(view.max_depth)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PolicyController(EnvController):
    """A policy in JAX as a controller, made by `as_controller`.

    Attributes:
        policy: the policy.
        gamma: γ, the price of an interval that the policy is shown.
    """

    policy: EnvPolicy | _Constant
    gamma: float

    @property
    def env(self) -> Environment:  # type: ignore[override]
        """The policy's environment."""
        return self._policy.env

    def init(self, view: View) -> PolicyMemory:
        return self.begin(view, jax.tree.map(jnp.asarray, getattr(self._policy, "start", tuple)()))

    def act(self, memory: PolicyMemory, view: View) -> tuple[PolicyMemory, Action]:
        memory, observation = self.observe(memory, view)
        action, own = self._act(observation, memory.own)
        return self.step(memory._replace(own=own), view, action)

    @property
    def _policy(self) -> EnvPolicy:
        return self.policy.policy if isinstance(self.policy, _Constant) else self.policy

    def _act(self, observation: Observation, memory: Any) -> tuple[Array, Any]:
        """The policy's action and memory, if they are what they have to be."""
        name = _name(self._policy)
        try:
            action, remembered = self._policy.act(observation, memory)
        except Exception as error:
            raise InputError(f"policy {name}: act failed:\n{last_lines(error)}") from error
        check_action(name, self.env.action_space(), action, ())
        if _shapes(remembered) != _shapes(memory):
            raise InputError(
                f"policy {name}: act was given the memory {_shapes(memory)} and returned "
                f"{_shapes(remembered)}; shapes and dtypes must stay as start() gave them"
            )
        return jnp.asarray(action), remembered


def as_controller(policy: EnvPolicy, gamma: float) -> PolicyController:
    """Makes a controller of a policy.

    Args:
        policy: the policy.
        gamma: γ, the price of an interval that it is shown.

    Raises:
        InputError: the policy lacks something, or γ is not a price.
    """
    check_policy(policy, "act")
    check_gamma(gamma)
    for leaf in jax.tree.leaves(getattr(policy, "start", tuple)()):
        if jnp.issubdtype(jnp.result_type(leaf), jax.dtypes.prng_key):
            raise InputError(
                f"policy {_name(policy)}: start() returns a random key, which a rollout cannot hold; return "
                "jax.random.key_data(key), and let act take jax.random.wrap_key_data of it"
            )
    if jax.tree_util.all_leaves([policy]):
        return PolicyController(_Constant(policy), gamma)
    for path, leaf in jax.tree_util.tree_leaves_with_path(policy):
        if not isinstance(leaf, jax.Array | np.ndarray | np.generic | float | int):
            raise InputError(
                f"policy {_name(policy)} is a pytree whose leaf {jax.tree_util.keystr(path)} is "
                f"{type(leaf).__name__}, but leaves are arrays and numbers; make it a static field"
            )
    return PolicyController(policy, gamma)


def check_policy(policy: Any, method: str) -> None:
    """Checks that a policy has its environment and a method.

    Raises:
        InputError: it lacks one of them.
    """
    if not isinstance(getattr(policy, "env", None), Environment):
        raise InputError(
            f"policy {_name(policy)} has no env; wrap it, as autotts_jax.Agent(policy, env), where "
            "autotts_jax.make returns env, or set env to the environment that it was made for"
        )
    if not callable(getattr(policy, method, None)):
        raise InputError(
            f"policy {_name(policy)} has no method {method}; give it act(observation, memory) in JAX, or "
            "predict(observation, state, episode_start, deterministic) as Stable-Baselines3 has it"
        )


def check_gamma(gamma: float) -> None:
    """Checks that γ is a price.

    Raises:
        InputError: it is negative or too large.
    """
    check_float("γ", gamma, 0, most=MOST_GAMMA)


def check_action(name: str, space: spaces.Space[Any], action: Any, batch: tuple[int, ...]) -> None:
    """Checks the shape and dtype of an action or a batch of actions.

    Raises:
        InputError: the action does not fit the space.
    """
    shape = (*batch, *(space.shape or ()))
    given = action if isinstance(action, jax.Array) else np.asarray(action)
    if given.shape != shape or not jnp.issubdtype(given.dtype, jnp.integer):
        raise InputError(
            f"policy {name}: its action is {given.dtype}{list(given.shape)}, but it must be int of shape "
            f"{shape} for {space}"
        )


def _name(policy: Any) -> str:
    return type(policy).__name__


def _shapes(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: f"{jnp.result_type(leaf)}{list(np.shape(leaf))}", tree)
