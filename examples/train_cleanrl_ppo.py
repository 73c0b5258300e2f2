"""PPO in one file and in PyTorch, as CleanRL has it (https://github.com/vwxyzjn/cleanrl), over ``make_vec``.

Run it as ``python examples/train_cleanrl_ppo.py``; it needs ``pip install autotts-jax[examples]``.
Weights are random at first.
"""

from typing import Any

import gymnasium as gym
import numpy as np
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
from torch import nn
from torch.distributions import Categorical

CLIP, VALUE_WEIGHT, MAX_NORM = 0.2, 0.5, 0.5

torch.set_num_threads(1)  # The network is too small to share among threads.


def network(inputs: int, outputs: int, scale: float) -> nn.Sequential:
    layers = [nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, outputs)]
    for layer in layers[::2]:
        nn.init.orthogonal_(layer.weight, scale if layer is layers[-1] else 2**0.5)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers)


class Agent(nn.Module):
    def __init__(self, envs: Any):
        super().__init__()
        self.env = envs.unwrapped.environment
        self.sizes = envs.single_action_space.nvec.tolist()
        inputs = envs.single_observation_space.shape[0]
        self.actor, self.critic = network(inputs, sum(self.sizes), 0.01), network(inputs, 1, 1.0)
        self.actor[-1].bias.data = torch.from_numpy(first_logits(self.env))

    def parts(self, obs: torch.Tensor, mask: torch.Tensor) -> list[Categorical]:
        """The distribution of each entry of an action."""
        logits = torch.where(mask, self.actor(obs), -1e8)
        return [Categorical(logits=part) for part in logits.split(self.sizes, dim=-1)]

    def log_prob(self, obs: torch.Tensor, mask: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Of an action; when it answers, the other entries are not looked at."""
        each = [part.log_prob(entry) for part, entry in zip(self.parts(obs, mask), action.T, strict=True)]
        return each[0] + torch.where(action[:, 0] == 0, sum(each[1:]), 0)

    def value(self, obs: torch.Tensor) -> torch.Tensor:
        return self.critic(obs)[:, 0]

    @torch.no_grad()
    def predict(self, observation, state=None, episode_start=None, deterministic=False, action_masks=None):
        """As Stable-Baselines3 has it, for the evaluation."""
        parts = self.parts(torch.tensor(observation), torch.tensor(action_masks))
        entries = [part.probs.argmax(-1) if deterministic else part.sample() for part in parts]
        return torch.stack(entries, dim=-1).numpy(), state


def learn_from(envs: Any, agent: Agent, updates: int, seed: int) -> None:
    optimizer = torch.optim.Adam(agent.parameters(), lr=RATE, eps=1e-5)
    seen, infos = envs.reset(seed=seed)
    for update in range(updates):
        optimizer.param_groups[0]["lr"] = RATE * (1 - update / updates)
        played = []
        for _ in range(ROUNDS):
            mask = infos["action_mask"].astype(bool)
            action, _ = agent.predict(seen, action_masks=mask)
            following, reward, terminated, truncated, infos = envs.step(action)
            if truncated.any():  # The episode would have gone on: what it would have come to is added.
                last = torch.tensor(np.stack(infos["final_obs"][truncated]))
                reward[truncated] += DISCOUNT * agent.value(last).detach().numpy()
            played.append((seen, mask, action, reward, terminated | truncated))
            seen = following
        learn(
            agent, optimizer, *map(torch.tensor, map(np.array, zip(*played, strict=True))), torch.tensor(seen)
        )


def learn(agent, optimizer, obs, mask, action, reward, ended, following) -> None:
    """One update from arrays of shape (rounds, envs, ...), and the observation after them."""
    with torch.no_grad():
        value = agent.value(torch.cat([obs, following[None]]).flatten(0, 1)).view(ROUNDS + 1, -1)
        gain = torch.zeros_like(value)
        for t in reversed(range(ROUNDS)):
            goes_on = (~ended[t]).float()
            delta = reward[t].float() + DISCOUNT * goes_on * value[t + 1] - value[t]
            gain[t] = delta + DISCOUNT * GAE_LAMBDA * goes_on * gain[t + 1]
        obs, mask, action = (x.flatten(0, 1) for x in (obs, mask, action))
        gain, target = gain[:-1].flatten(), (gain + value)[:-1].flatten()
        before = agent.log_prob(obs, mask, action)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(obs)).chunk(MINIBATCHES):
            ratio = (agent.log_prob(obs[rows], mask[rows], action[rows]) - before[rows]).exp()
            normal = (gain[rows] - gain[rows].mean()) / (gain[rows].std() + 1e-8)
            actor = -torch.min(ratio * normal, ratio.clamp(1 - CLIP, 1 + CLIP) * normal).mean()
            critic = (agent.value(obs[rows]) - target[rows]).square().mean()
            optimizer.zero_grad()
            (actor + VALUE_WEIGHT * critic).backward()
            nn.utils.clip_grad_norm_(agent.parameters(), MAX_NORM)
            optimizer.step()


def train(seed: int, steps: int) -> Agent:
    torch.manual_seed(seed)
    name = f"autotts_jax:{TASK.environment}"
    envs = gym.make_vec(name, num_envs=ENVS, autoreset_mode="SameStep", **FLAT)
    agent = Agent(envs)
    learn_from(envs, agent, max(1, steps // (ENVS * ROUNDS)), seed)
    return agent


if __name__ == "__main__":
    run(__doc__, cleanrl=train)
