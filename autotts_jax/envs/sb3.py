"""The vector environments for Stable-Baselines3, whose own ones step one environment after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from autotts_jax.envs.gym_base import as_options
from autotts_jax.envs.gym_vector import WidthDepthVectorEnv
from autotts_jax.errors import InputError
from autotts_jax.extras import needs

with needs("sb3", "a vector environment for Stable-Baselines3"):
    from stable_baselines3.common.vec_env import VecEnv
    from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvObs, VecEnvStepReturn


class SB3VecEnv(VecEnv):
    """A vector environment of this package as one of Stable-Baselines3.

    MaskablePPO of sb3-contrib finds the action masks by ``action_masks``, as in Gymnasium.
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
        """Starts an episode in every environment, with the options of `set_options`."""
        obs, infos = self.envs.reset(seed=list(self._seeds), options=_together(self._options, self.num_envs))
        self.reset_infos = _apart(infos, self.num_envs)
        self._reset_seeds()
        self._reset_options()
        return obs

    def step_async(self, actions: np.ndarray) -> None:
        """Takes the actions of `step_wait`."""
        self._actions = actions

    def step_wait(self) -> VecEnvStepReturn:
        """Plays them; an episode that ends with them is followed by the next one's first observation."""
        obs, reward, terminated, truncated, infos = self.envs.step(self._actions)
        last = infos.pop("final_obs", None), infos.pop("final_info", {})
        told = _apart(infos, self.num_envs)
        if last[0] is not None:
            ended = _apart(last[1], self.num_envs)
            for lane in np.flatnonzero(terminated | truncated):
                self.reset_infos[lane] = told[lane]
                told[lane] = ended[lane] | {"terminal_observation": last[0][lane]}
        for info, cut in zip(told, (truncated & ~terminated).tolist(), strict=True):
            info["TimeLimit.truncated"] = cut
        return obs, reward * self.reward_scale, terminated | truncated, told

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
        """Gives an attribute, which all environments share; of spaces, that of one environment."""
        name = f"single_{attr_name}" if attr_name in ("action_space", "observation_space") else attr_name
        return [getattr(self.envs, name) for _ in self._get_indices(indices)]

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


def _together(options: Sequence[Any], num_envs: int) -> dict[str, Any]:
    """The options of all environments as those of one reset: one value for all, or an array for each."""
    each = [as_options(of_one) for of_one in options]
    if len(each) != num_envs or any(of_one.keys() != each[0].keys() for of_one in each):
        raise InputError(
            f"set_options must give each of {num_envs} environments options, and all of them options of the "
            f"same names, but it gives {[sorted(of_one) for of_one in each]!r:.100}"
        )
    together = {}
    for name in each[0]:
        values = [of_one[name] for of_one in each]
        same = all(np.array_equal(value, values[0]) for value in values)
        if name == "order" and not same and np.ndim(values[0]) == 0:
            raise InputError("option 'order' is another seed for each environment; give each its branches")
        together[name] = values[0] if same else values
    return together


def _apart(infos: Mapping[str, Any], num_envs: int) -> list[dict[str, Any]]:
    """The infos of each environment, numbers as Python's own."""
    columns = {name: column for name, column in infos.items() if not name.startswith("_")}
    rows = {
        name: _apart(column, num_envs)
        if isinstance(column, Mapping)
        else column.tolist()
        if column.ndim == 1
        else list(column)
        for name, column in columns.items()
    }
    return [dict(zip(rows, row, strict=True)) for row in zip(*rows.values(), strict=True)]
