"""Policies for the environments, played as controllers are: on the same episodes, in the same tables."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, Protocol, cast

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Int32

from autotts_jax.core import pool as branch_pool
from autotts_jax.core.controller import Controller, first_of
from autotts_jax.core.mdp import Scalar
from autotts_jax.core.pool import BranchPool, ReplayPool, StopReason
from autotts_jax.core.votes import Vote
from autotts_jax.envs import observations
from autotts_jax.envs.observations import History, Tracker
from autotts_jax.envs.width_depth import Environment, Observation
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
    """What goes on beside the pool while a policy plays.

    Attributes:
        own: what the policy remembers.
        tracker: what the steps have shown.
        history: all that was revealed; None unless it is observed.
        time: steps taken. Shape ().
    """

    own: Any
    tracker: Tracker
    history: History | None
    time: Int32[Array, ""]


@jax.tree_util.register_static
class _Constant:
    """A policy that is no pytree: to JAX all that it holds is constant."""

    def __init__(self, policy: EnvPolicy):
        self.policy = policy

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Constant) and self.policy is other.policy

    def __hash__(self) -> int:
        return id(self.policy)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PolicyController(Controller):
    """A policy as a controller, made by `as_controller`: a round is one step of its environment.

    The pool's width has to be the environment's. The answer is the environment's aggregate, and where the
    environment truncates an episode it ends for `StopReason.STEP_LIMIT`.

    Attributes:
        policy: the policy.
        gamma: γ, the price of an interval that the policy is shown.
        max_steps: the step limit; the environment's own for the data when None.
    """

    policy: EnvPolicy | _Constant
    gamma: float
    max_steps: int | None = dataclasses.field(default=None, metadata={"static": True})

    value_name = "γ"

    @property
    def env(self) -> Environment:
        """The policy's environment."""
        return self._policy.env

    @property
    def needs_history(self) -> bool:
        return self.env.obs == "history"

    def at(self, value: float) -> PolicyController:  # type: ignore[override]  # only an instance has a policy
        """The same policy shown another γ."""
        return as_controller(self._policy, value, self.max_steps)

    def start(self, pool: BranchPool) -> tuple[PolicyMemory, BranchPool]:
        width = self.env.max_branches
        if pool.width != width:
            raise InputError(
                f"policy {_name(self._policy)}: its environment opens {width} branches, the pool {pool.width}"
            )
        own = jax.tree.map(jnp.asarray, getattr(self._policy, "start", tuple)())
        tracker = observations.start_tracking(width)
        history = None
        if self.needs_history:
            history = observations.start_history(branch_pool.matrix_of(cast(ReplayPool, pool)), width)
        return PolicyMemory(own, tracker, history, jnp.int32(0)), pool

    def round(self, memory: PolicyMemory, pool: BranchPool) -> tuple[PolicyMemory, BranchPool, Scalar]:
        before = cast(ReplayPool, pool)
        limit = self.max_steps or self.env.default_max_steps(branch_pool.matrix_of(cast(ReplayPool, pool)))
        seen = self.env.observe(
            before, memory.tracker, memory.history, memory.time, limit, jnp.asarray(self.gamma)
        )
        action, own = self._act(seen, memory.own)
        after, answered, _ = self.env.act(before, action)
        time = memory.time + 1
        tracker = observations.track(memory.tracker, before, after, self.env.atomic)
        history = memory.history and observations.extend_history(memory.history, before, after)
        stop = first_of((answered, StopReason.DECIDED), (time >= limit, StopReason.STEP_LIMIT))
        return PolicyMemory(own, tracker, history, time), after, stop

    def vote(self, memory: PolicyMemory, pool: BranchPool) -> Vote:
        return self.env.aggregate(cast(ReplayPool, pool), memory.tracker)

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


def as_controller(policy: EnvPolicy, gamma: float, max_steps: int | None = None) -> PolicyController:
    """A policy as a controller.

    Args:
        policy: the policy.
        gamma: γ, the price of an interval that it is shown.
        max_steps: the step limit; the environment's own for the data when None.

    Raises:
        InputError: the policy lacks something, or γ is no price.
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
        return PolicyController(_Constant(policy), gamma, max_steps)
    for path, leaf in jax.tree_util.tree_leaves_with_path(policy):
        if not isinstance(leaf, jax.Array | np.ndarray | np.generic | float | int):
            raise InputError(
                f"policy {_name(policy)} is a pytree whose leaf {jax.tree_util.keystr(path)} is "
                f"{type(leaf).__name__}, but leaves are arrays and numbers; make it a static field"
            )
    return PolicyController(policy, gamma, max_steps)


def check_policy(policy: Any, method: str) -> None:
    """Raises an `InputError` where a policy lacks its environment or a method."""
    if not isinstance(getattr(policy, "env", None), Environment):
        raise InputError(
            f"policy {_name(policy)} has no env; set it to the WidthDepth or WidthDepthRounds of "
            "autotts_jax.envs.width_depth that the policy was made for"
        )
    if not callable(getattr(policy, method, None)):
        raise InputError(
            f"policy {_name(policy)} has no method {method}; give it act(observation, memory) in JAX, or "
            "predict(observation, state, episode_start, deterministic) as Stable-Baselines3 has it"
        )


def check_gamma(gamma: float) -> None:
    """Raises an `InputError` for a γ that is no price."""
    if not 0 <= gamma < np.inf:
        raise InputError(f"γ is {gamma}, but it must be a finite number of at least 0")


def check_action(name: str, space: spaces.Space, action: Any, batch: tuple[int, ...]) -> None:
    """Raises an `InputError` unless an action, or a batch of them, has the shape and kind of a space's."""
    shape = (*batch, *(space.shape or ()))
    if np.shape(action) != shape or not jnp.issubdtype(jnp.result_type(action), jnp.integer):
        raise InputError(
            f"policy {name}: its action is {_shapes(action)}, but it must be int of shape {shape} for {space}"
        )


def _name(policy: Any) -> str:
    return type(policy).__name__


def _shapes(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: f"{jnp.result_type(leaf)}{list(np.shape(leaf))}", tree)
