"""Stable-Baselines3 and sb3-contrib train on the environments, made in one line."""

import sys

import numpy as np
import pytest

import autotts_jax as at

SETTINGS = {"data": "smollm2", "max_branches": 4}


def test_without_stable_baselines3_the_extra_is_named(monkeypatch):
    monkeypatch.delitem(sys.modules, "autotts_jax.envs.sb3", raising=False)
    monkeypatch.setitem(sys.modules, "stable_baselines3.common.vec_env", None)
    with pytest.raises(at.InputError, match=r"needs stable_baselines3: pip install 'autotts-jax\[sb3\]'"):
        at.sb3_vec_env()


@pytest.mark.slow
def test_episodes_end_as_stable_baselines3_expects():
    pytest.importorskip("stable_baselines3", reason="pip install autotts-jax[sb3]")
    envs = at.sb3_vec_env(num_envs=3, reward_scale=10.0, max_steps=2, gamma=0.01, **SETTINGS)
    envs.seed(0)
    first = envs.reset()
    opening = np.zeros((3, 2 + 4), int)
    opening[:, 1] = 2
    _, rewards, done, _ = envs.step(opening)
    np.testing.assert_allclose(rewards, -0.2)
    assert not done.any()
    opening[0, 0] = 1
    again, _, done, infos = envs.step(opening)
    assert done.all()
    assert [info["TimeLimit.truncated"] for info in infos] == [False, True, True]
    assert infos[1]["terminal_observation"]["branches"][:, 0].sum() == 4
    assert first.keys() == again.keys() == infos[0]["terminal_observation"].keys()
    assert again["branches"][:, :, 0].sum() == 0
    assert np.array(envs.env_method("action_masks", indices=[2])).shape == (1, 2 + 5 + 4 * 6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "name", "policy", "id_", "settings"),
    [
        ("stable_baselines3", "PPO", "MultiInputPolicy", "WidthDepthRounds-v0", {}),
        ("stable_baselines3", "DQN", "MlpPolicy", "autotts_jax/WidthDepthMacroSmall-v0", {}),
        ("sb3_contrib", "MaskablePPO", "MultiInputPolicy", "WidthDepthRounds-v0", {"mask_in_obs": True}),
    ],
)
def test_a_trainer_takes_them_in_one_line(module, name, policy, id_, settings):
    trainers = pytest.importorskip(module, reason="pip install autotts-jax[examples]")
    short = {"learning_starts": 8} if name == "DQN" else {"n_steps": 8}
    envs = at.sb3_vec_env(id_, num_envs=4, **SETTINGS, **settings)
    model = getattr(trainers, name)(policy, envs, device="cpu", batch_size=32, **short).learn(32)
    assert model.num_timesteps == 32
