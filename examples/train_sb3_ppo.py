"""PPO of Stable-Baselines3. It knows no masks: inadmissible parts of an action are drawn, and do nothing.

Run it as ``python examples/train_sb3_ppo.py``; it needs ``pip install autotts-jax[examples]``.
"""

import argparse
import copy
import time

import torch
from common import DISCOUNT, REWARD, SCALE, SHAPE, compare, first_logits
from stable_baselines3 import PPO

import autotts_jax as at


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=500_000, help="rounds to train on")
    parser.add_argument("--envs", type=int, default=512, help="episodes side by side")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--orders", type=int, default=50, help="branch orders to evaluate on")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # The network is too small to share among threads.

    envs = at.sb3_vec_env(
        "WidthDepthRounds-v0", arguments.envs, reward_scale=1 / SCALE, obs="flat", **SHAPE, **REWARD
    )
    model = PPO(
        "MlpPolicy",
        envs,
        n_steps=32,
        batch_size=4 * arguments.envs,
        n_epochs=4,
        learning_rate=lambda left: 1e-3 * left,
        gamma=DISCOUNT,
        gae_lambda=0.95,
        ent_coef=0.0,
        seed=arguments.seed,
        device="cpu",
        policy_kwargs={"activation_fn": torch.nn.ReLU},
    )
    policy = model.policy
    policy.env = envs.envs.environment
    policy.action_net.bias.data = torch.from_numpy(first_logits(policy.env))
    untrained = copy.deepcopy(policy)
    began = time.perf_counter()
    model.learn(arguments.steps)
    print(f"trained in {time.perf_counter() - began:.0f} s")
    compare({"untrained": untrained, "PPO": policy}, arguments.orders)


if __name__ == "__main__":
    main()
