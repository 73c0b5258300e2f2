"""Trainers that take nothing but an id: Stable-Baselines3, CleanRL, TorchRL, Tianshou; and Minari."""

import os
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from autotts_jax.envs import ENVIRONMENTS

pytest.importorskip(
    "torchrl", reason="TorchRL is not installed; make test-clients has an environment with it"
)
torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of the trainers

EXAMPLES = Path(__file__).parents[2] / "examples"
ROUNDS, MACRO, ATOMIC = (f"autotts_jax:WidthDepth{kind}Small-v0" for kind in ("Rounds", "Macro", ""))


@pytest.mark.parametrize(
    ("module", "algorithm", "name"),
    [
        ("stable_baselines3", "PPO", ROUNDS),
        ("stable_baselines3", "PPO", ATOMIC),
        ("stable_baselines3", "DQN", MACRO),
        ("sb3_contrib", "MaskablePPO", ROUNDS),
        ("sb3_contrib", "MaskablePPO", MACRO),
    ],
)
def test_stable_baselines3_trains_by_id(module, algorithm, name):
    algorithms = pytest.importorskip(module)
    short = {"learning_starts": 32} if algorithm == "DQN" else {"n_steps": 32, "batch_size": 32}
    model = getattr(algorithms, algorithm)("MlpPolicy", gym.make(name), seed=0, device="cpu", **short)
    before = [part.clone() for part in model.policy.parameters()]
    model.learn(96)
    changed = [bool((part != old).any()) for part, old in zip(model.policy.parameters(), before, strict=True)]
    assert any(changed)


@pytest.mark.parametrize("name", ["autotts_jax:autotts_jax/WidthDepthMacroSmall-v0", ATOMIC])
def test_ppo_of_cleanrl_trains_by_id(tmp_path, name):
    if "CLEANRL" not in os.environ:
        pytest.skip("set CLEANRL to a clone of vwxyzjn/cleanrl")
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    script = Path(os.environ["CLEANRL"], "cleanrl", "ppo.py").resolve()
    subprocess.run(
        [sys.executable, script, "--env-id", name, "--total-timesteps", "1024"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        timeout=600,
    )
    (written,) = (tmp_path / "runs").rglob("events.*")
    log = events.EventAccumulator(str(written)).Reload()
    for loss in ("losses/value_loss", "losses/policy_loss", "losses/entropy"):
        values = [event.value for event in log.Scalars(loss)]
        assert len(values) == 2  # updates of 4 environments and 128 steps
        assert np.isfinite(values).all()


@pytest.mark.parametrize("name", [f"autotts_jax:{name}" for name in ENVIRONMENTS])
def test_specs_of_torchrl_hold(name):
    libs = pytest.importorskip("torchrl.envs.libs.gym")
    utils = pytest.importorskip("torchrl.envs.utils")
    env = libs.GymEnv(name, device="cpu")
    utils.check_env_specs(env, seed=0)
    played = env.rollout(20)
    assert played["next", "reward"].shape == (len(played), 1)
    assert torch.isfinite(played["next", "reward"]).all()


class NamedAsTianshou(gym.ObservationWrapper):
    """Renames the parts of an observation, as Tianshou wants them."""

    def __init__(self, env):
        super().__init__(env)
        parts = env.observation_space.spaces
        self.observation_space = gym.spaces.Dict({"obs": parts["observations"], "mask": parts["action_mask"]})

    def observation(self, observation):
        return {"obs": observation["observations"], "mask": observation["action_mask"].astype(bool)}


def test_tianshou_trains_with_masks():
    data = pytest.importorskip("tianshou.data")
    from tianshou.algorithm import DQN
    from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.env import DummyVectorEnv
    from tianshou.trainer import OffPolicyTrainerParams
    from tianshou.utils.net.common import Net

    def make():
        return NamedAsTianshou(gym.make(MACRO, mask_in_obs=True))

    env = make()
    shape, actions = env.observation_space["obs"].shape, env.action_space
    network = Net(state_shape=shape, action_shape=actions.n, hidden_sizes=[16])
    policy = DiscreteQLearningPolicy(
        model=network, action_space=actions, observation_space=env.observation_space["obs"]
    )
    algorithm = DQN(policy=policy, optim=AdamOptimizerFactory(lr=1e-3))
    collector = data.Collector(
        algorithm, DummyVectorEnv([make, make]), data.VectorReplayBuffer(1000, 2), exploration_noise=True
    )
    result = algorithm.run_training(
        OffPolicyTrainerParams(
            training_collector=collector,
            max_epochs=1,
            epoch_num_steps=64,
            collection_step_num_env_steps=16,
            update_step_num_gradient_steps_per_sample=0.1,
            batch_size=16,
            verbose=False,
            show_progress=False,
        )
    )
    assert result.train_step >= 64
    seen = collector.buffer.sample(0)[0]
    assert seen.obs.mask[np.arange(len(seen)), seen.act].all()


def test_minari_records_and_recovers_the_environment(tmp_path, monkeypatch):
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    env = minari.DataCollector(gym.make(MACRO))
    returns = []
    for seed in range(3):
        _, info = env.reset(seed=seed)
        ended, total = False, 0.0
        while not ended:
            _, reward, terminated, truncated, info = env.step(env.action_space.sample(info["action_mask"]))
            ended, total = terminated or truncated, total + reward
        returns.append(total)
    env.create_dataset(dataset_id="widthdepth/random-v0")
    dataset = minari.load_dataset("widthdepth/random-v0")
    assert [episode.rewards.sum() for episode in dataset.iterate_episodes()] == pytest.approx(returns)
    recovered = dataset.recover_environment()
    assert recovered.observation_space == gym.make(MACRO).observation_space
    assert recovered.action_space == env.action_space


def test_minari_data_sets_of_players_are_recorded_by_one_command(tmp_path):
    minari = pytest.importorskip("minari")
    command = [sys.executable, EXAMPLES / "record_minari.py", "--episodes", "3"]
    run = {"env": os.environ | {"MINARI_DATASETS_PATH": str(tmp_path)}, "capture_output": True, "text": True}
    done = subprocess.run(command, check=False, timeout=600, **run)
    assert done.returncode == 0, done.stderr
    names = [f"autotts-jax/laptop-{player}-v0" for player in ("random", "cmc", "neural")]
    assert done.stdout.splitlines() == [f"{name}: 3 episodes" for name in names]
    for name in names:
        dataset = minari.MinariDataset(tmp_path / name / "data")
        episodes = list(dataset.iterate_episodes())
        assert len(episodes) == 3
        for episode in episodes:
            assert (episode.actions[-1], episode.terminations[-1]) == (1, True)  # ANSWER
            assert episode.observations.shape == (len(episode) + 1, 8 * 12 + 18)
            taken = episode.infos["action_mask"][np.arange(len(episode)), episode.actions]
            assert taken.all()
        for test in (False, True):
            recovered = dataset.recover_environment(eval_env=test)
            assert recovered.observation_space == dataset.observation_space
            assert recovered.spec.kwargs["part"] == ("test" if test else "train")
            assert recovered.reset(seed=0)[0] in recovered.observation_space
    again = subprocess.run(command, check=False, timeout=600, **run)
    assert again.returncode == 2
    assert f"{names[1]}, {names[2]}, {names[0]} exists" in again.stderr.replace("\n", " ")
    alike = subprocess.run(
        [*command, "--players", "cmc@0.5", "cmc@0.7"], check=False, timeout=600, cwd=tmp_path, **run
    )
    assert alike.returncode == 2
    assert "two players would have one data set" in alike.stderr
