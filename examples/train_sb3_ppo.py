"""PPO of Stable-Baselines3. It knows no masks: inadmissible parts of an action are drawn, and do nothing.

Run it as ``python examples/train_sb3_ppo.py``; it needs ``pip install autotts-jax[examples]``.
Weights are random at first.
"""

from typing import Any

import torch
from common import (
    DISCOUNT,
    ENVS,
    EPOCHS,
    FLAT,
    GAE_LAMBDA,
    MINIBATCHES,
    RATE,
    ROUNDS,
    TASK,
    first_logits,
    run,
)
from stable_baselines3 import PPO

import autotts_jax as at

torch.set_num_threads(1)  # The network is too small to share among threads.


def train(seed: int, steps: int) -> Any:
    envs = at.sb3_vec_env(TASK.environment, ENVS, **FLAT)
    model = PPO(
        "MlpPolicy",
        envs,
        n_steps=ROUNDS,
        batch_size=ROUNDS * ENVS // MINIBATCHES,
        n_epochs=EPOCHS,
        learning_rate=lambda left: RATE * left,
        gamma=DISCOUNT,
        gae_lambda=GAE_LAMBDA,
        seed=seed,
        device="cpu",
        policy_kwargs={"activation_fn": torch.nn.ReLU},
    )
    policy = model.policy
    policy.action_net.bias.data = torch.from_numpy(first_logits(envs.envs.environment))
    model.learn(steps)
    return at.Agent(policy, envs.envs.environment)


if __name__ == "__main__":
    run("sb3", __doc__, train)
