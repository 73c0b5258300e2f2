"""The vector environment for Stable-Baselines3, whose own ones step one environment after the other."""

from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv
from stable_baselines3.common.vec_env import VecEnv


class SB3VecEnv(VecEnv):
    """A Gymnasium vector environment in autoreset mode ``SameStep``, with rewards divided by ``scale``."""

    def __init__(self, envs: VectorEnv, scale: float):
        self.envs, self.scale = envs, scale
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)

    def reset(self) -> np.ndarray:
        obs, _ = self.envs.reset(seed=list(self._seeds))
        self._reset_seeds()
        return obs

    def step_async(self, actions: np.ndarray) -> None:
        self.actions = actions

    def step_wait(self):
        obs, reward, terminated, truncated, infos = self.envs.step(self.actions)
        done = terminated | truncated
        told: list[dict[str, Any]] = [{} for _ in done]
        for lane in np.flatnonzero(done):
            last = infos["final_obs"][lane]
            told[lane] = {"terminal_observation": last, "TimeLimit.truncated": truncated[lane]}
        return obs, reward / self.scale, done, told

    def env_method(self, method_name: str, *args: Any, indices=None, **kwargs: Any) -> list[Any]:
        return list(getattr(self.envs, method_name)(*args, **kwargs))  # action_masks(), a row a lane

    def get_attr(self, attr_name: str, indices=None) -> list[Any]:
        return [getattr(self.envs, attr_name)] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices=None) -> None:
        setattr(self.envs, attr_name, value)

    def env_is_wrapped(self, wrapper_class: type, indices=None) -> list[bool]:
        return [False] * self.num_envs

    def close(self) -> None:
        self.envs.close()
