"""The functional environments as environments of gymnax, of today or with the step from before 1.0."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces as gymnasium_spaces

from autotts_jax.envs.environment import Functional, Observation
from autotts_jax.envs.params import EnvParams, EnvState
from autotts_jax.extras import needs
from autotts_jax.typing import Array

with needs("gymnax", "an environment of gymnax"):
    from gymnax.environments import environment, spaces


class GymnaxEnv(environment.Environment):  # type: ignore[misc]
    """An environment of gymnax 1.0: what wraps or trains on those takes it."""

    def __init__(self, env: Functional, params: Any):
        self._env, self._params = env, params

    @property
    def default_params(self) -> EnvParams:
        """The parameters that it was made with."""
        return self._params

    @property
    def name(self) -> str:
        """The environment's name."""
        return self._env.name

    @property
    def num_actions(self) -> int:
        """Number of actions, or of entries of an action."""
        return self._env.num_actions

    def action_space(self, params: EnvParams | None = None) -> spaces.Space:
        """Makes the space of actions."""
        return _convert(self._env.action_space(params or self._params))

    def observation_space(self, params: EnvParams | None = None) -> spaces.Space:
        """Makes the space of observations."""
        return _convert(self._env.observation_space(params or self._params))

    def reset(self, key: jax.Array, params: EnvParams | None = None) -> tuple[Observation, EnvState]:
        """Starts an episode."""
        return self._env.reset(key, params or self._params)

    def step(self, key: jax.Array, state: EnvState, action: Array, params: EnvParams | None = None) -> Any:
        """Takes a step; an episode that ends with it is followed by the first state of the next one.

        Returns:
            Observation, state, reward, terminated, truncated and info.
        """
        return self._env.step(key, state, action, params or self._params)

    def reset_env(self, key: jax.Array, params: EnvParams) -> tuple[Observation, EnvState]:
        """Starts an episode."""
        return self._env.reset_env(key, params)

    def step_env(self, key: jax.Array, state: EnvState, action: Array, params: EnvParams) -> Any:
        """Takes a step without auto-reset."""
        return self._env.step_env(key, state, action, params)

    def get_obs(self, state: EnvState, params: EnvParams | None = None, key: Any = None) -> Observation:  # noqa: ARG002
        """Makes the observation of a state."""
        return self._env.get_obs(state, params or self._params)

    def is_terminated(self, state: EnvState, params: EnvParams) -> Array:
        """Returns False: only ANSWER terminates an episode."""
        return self._env.is_terminated(state, params)

    def is_truncated(self, state: EnvState, params: EnvParams) -> Array:
        """Decides whether the step limit was reached."""
        return self._env.is_truncated(state, params)


class OldGymnaxEnv(GymnaxEnv):
    """The same with the step of gymnax before 1.0: one flag for both kinds of ends.

    `gymnax.wrappers.LegacyStepAPIWrapper` does the like, but cannot be copied, and rejax copies environments.
    """

    def step(self, key: jax.Array, state: EnvState, action: Array, params: EnvParams | None = None) -> Any:
        """Takes a step; an episode that ends with it is followed by the first state of the next one.

        Returns:
            Observation, state, reward, done and info, in which ``truncated`` and ``final_observation`` tell
            what to bootstrap from.
        """
        obs, state, reward, terminated, truncated, info = super().step(key, state, action, params)
        return obs, state, reward, terminated | truncated, info


class MultiDiscrete(spaces.Space):  # type: ignore[misc]
    """A number for each entry; gymnax has no such space."""

    def __init__(self, nvec: np.ndarray):
        self.nvec = np.asarray(nvec, np.int32)
        self.shape, self.dtype = self.nvec.shape, jnp.int32

    def sample(self, key: jax.Array) -> jax.Array:
        """Samples an action."""
        return jax.random.randint(key, self.shape, 0, self.nvec)

    def contains(self, x: jax.Array) -> Any:
        """Decides whether all entries are in their range."""
        return jnp.all((x >= 0) & (x < self.nvec))


def _convert(space: Any) -> spaces.Space:
    """A space of Gymnasium as one of gymnax."""
    if isinstance(space, gymnasium_spaces.Discrete):
        return spaces.Discrete(int(space.n))
    if isinstance(space, gymnasium_spaces.MultiDiscrete):
        return MultiDiscrete(space.nvec)
    if isinstance(space, gymnasium_spaces.Dict):
        return spaces.Dict({name: _convert(part) for name, part in space.spaces.items()})
    return spaces.Box(space.low, space.high, space.shape, space.dtype)
