"""An environment of your own: ``WidthDepthRounds`` that also shows the tokens of each branch.

``docs/reference/environment.md`` says what else can be changed. Run it to check the environment and to step
a vector of it.
"""

import gymnasium as gym
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from autotts_jax.envs import WidthDepthRounds, WidthDepthRoundsEnv, WidthDepthRoundsVectorEnv
from autotts_jax.replay import synthetic
from autotts_jax.testing import check_functional_env


class WithTokens(WidthDepthRounds):
    """Adds the tokens of each branch to the observation."""

    def observation_space(self, params):
        tokens = spaces.Box(0, np.inf, (self.max_branches,), np.float32)
        return spaces.Dict({**super().observation_space(params), "tokens": tokens})

    def observe(self, view, *rest):
        return super().observe(view, *rest) | {"tokens": view.branch_tokens.astype(jnp.float32)}


class WithTokensEnv(WidthDepthRoundsEnv):
    """The environment for Gymnasium, one episode at a time."""

    kind = WithTokens


class WithTokensVectorEnv(WidthDepthRoundsVectorEnv):
    """The same, many episodes in one compiled call."""

    kind = WithTokens


if __name__ == "__main__":
    check_functional_env(WithTokens(max_branches=2), synthetic(questions=4, branches=8).matrix)
    gym.register("WithTokens-v0", entry_point=WithTokensEnv, vector_entry_point=WithTokensVectorEnv)
    envs = gym.make_vec("WithTokens-v0", num_envs=8, max_branches=4)
    observations, _ = envs.reset(seed=0)
    print("passes; tokens have the shape", observations["tokens"].shape)
