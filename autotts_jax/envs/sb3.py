"""The vector environments for Stable-Baselines3, whose own ones step one environment after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from autotts_jax.envs.gym_vector import WidthDepthVectorEnv
from autotts_jax.extras import needs

with needs("sb3", "a vector environment for Stable-Baselines3"):
    from stable_baselines3.common.vec_env import VecEnv
    from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvObs, VecEnvStepReturn


class SB3VecEnv(VecEnv):
    """A vector environment of this package as one of Stable-Baselines3.

    MaskablePPO of sb3-contrib finds the action masks by ``action_masks``, as in Gymnasium.

    Args:
        envs: the environments, in autoreset mode ``SameStep``.
        reward_scale: what rewards are multiplied by.
    """

    def __init__(self, envs: WidthDepthVectorEnv, reward_scale: float = 1.0):
        self.envs, self.reward_scale = envs, reward_scale
        self._actions: np.ndarray | None = None
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)

    @classmethod
    def make(cls, name: str, num_envs: int, reward_scale: float, **settings: Any) -> SB3VecEnv:
        """Makes the environments of an id; see `autotts_jax.envs.sb3_vec_env`."""
        envs = gymnasium.make_vec(name, num_envs, autoreset_mode=AutoresetMode.SAME_STEP, **settings)
        return cls(cast(WidthDepthVectorEnv, envs), reward_scale)

    def reset(self) -> VecEnvObs:
        """Starts an episode in every environment."""
        obs, _ = self.envs.reset(seed=list(self._seeds))
        self._reset_seeds()
        return obs

    def step_async(self, actions: np.ndarray) -> None:
        """Takes the actions of `step_wait`."""
        self._actions = actions

    def step_wait(self) -> VecEnvStepReturn:
        """Plays them; an episode that ends with them is followed by the next one's first observation."""
        obs, reward, terminated, truncated, infos = self.envs.step(self._actions)
        done = terminated | truncated
        told: list[dict[str, Any]] = [{} for _ in done]
        for lane in np.flatnonzero(done):
            last = infos["final_obs"][lane]
            told[lane] = {"terminal_observation": last, "TimeLimit.truncated": bool(truncated[lane])}
        return obs, reward * self.reward_scale, done, told

    def get_images(self) -> Sequence[np.ndarray | None]:
        """Draws each environment, if its render mode is ``rgb_array``."""
        return self.envs.render() or [None] * self.num_envs

    def env_method(
        self,
        method_name: str,
        *method_args: Any,
        indices: VecEnvIndices = None,
        **method_kwargs: Any,
    ) -> list[Any]:
        """Calls a method that has a row for each environment, as ``action_masks``."""
        rows = getattr(self.envs, method_name)(*method_args, **method_kwargs)
        return [rows[lane] for lane in self._get_indices(indices)]

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """Gives an attribute, which all environments share."""
        return [getattr(self.envs, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:  # noqa: ARG002
        """Sets an attribute of all environments."""
        setattr(self.envs, attr_name, value)

    def env_is_wrapped(
        self,
        wrapper_class: type[gymnasium.Wrapper[Any, Any, Any, Any]],  # noqa: ARG002
        indices: VecEnvIndices = None,
    ) -> list[bool]:
        """Returns False for each environment."""
        return [False for _ in self._get_indices(indices)]

    def close(self) -> None:
        """Closes the environments."""
        self.envs.close()
