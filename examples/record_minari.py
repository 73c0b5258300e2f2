"""Minari data sets of the benchmark's tasks: what random play, controllers and policies do in `WidthDepth`.

Run it as ``python examples/record_minari.py``; it needs ``pip install minari``. Data sets go where Minari
keeps them, a folder that ``MINARI_DATASETS_PATH`` names.
"""

import argparse
from typing import Any

import gymnasium as gym
import minari

from autotts_jax.envs import play_in_environment
from autotts_jax.envs.registry import TASK_SETTINGS
from autotts_jax.policies import as_player

RANDOM = "random"


class InStep(gym.Wrapper[Any, Any, Any, Any]):
    """What a controller plays in, which sees histories; what is recorded plays the same episodes in step."""

    def __init__(self, env: gym.Env[Any, Any], recorded: gym.Env[Any, Any]):
        super().__init__(env)
        self.recorded = recorded

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Starts the same episode in both."""
        self.recorded.reset(seed=seed, options=options)
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        """Plays the same action in both."""
        self.recorded.step(action)
        return self.env.step(action)


def play_at_random(env: gym.Env[Any, Any], seed: int, most: int = 10_000) -> None:
    """Plays admissible actions."""
    _, info = env.reset(seed=seed)
    for _ in range(most):
        *_, terminated, truncated, info = env.step(env.action_space.sample(info["action_mask"]))
        if terminated or truncated:
            return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", choices=TASK_SETTINGS, default="laptop")
    parser.add_argument("--players", nargs="+", default=[RANDOM, "cmc@0.5", "neural@1e-4"])
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="seed of the first episode")
    arguments = parser.parse_args()
    name_of_env = f"WidthDepth-{arguments.task.title()}-Train-v0"
    names = {
        player: f"autotts-jax/{arguments.task}-{player.partition('@')[0]}-v0" for player in arguments.players
    }
    if len(set(names.values())) < len(names):
        parser.error("two players would have one data set; give one of each name, whatever is behind its @")
    if there := sorted(set(names.values()) & set(minari.list_local_datasets())):
        parser.error(
            f"{', '.join(there)} exists; delete it with minari.delete_dataset, or leave its player out"
        )
    for player, name in names.items():
        env = minari.DataCollector(gym.make(name_of_env), record_infos=True)
        seen = InStep(gym.make(name_of_env, obs="history"), env)
        env.action_space.seed(arguments.seed)
        for seed in range(arguments.seed, arguments.seed + arguments.episodes):
            if player == RANDOM:
                play_at_random(env, seed)
            else:
                play_in_environment(as_player(player).controllers[0], seen, seed=seed)
        test = gym.spec(name_of_env.replace("Train", "Test"))
        env.create_dataset(dataset_id=name, algorithm_name=player, eval_env=test)
        print(f"{name}: {arguments.episodes} episodes")


if __name__ == "__main__":
    main()
