"""Stable-Baselines3 and sb3-contrib train on the environments, made in one line."""

import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence

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


@pytest.fixture
def beside():
    """Environments of this package, and those of Stable-Baselines3 of as many single ones."""
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env", reason="pip install autotts-jax[sb3]")
    settings = SETTINGS | {"max_steps": 3, "gamma": 0.01}
    ours = at.sb3_vec_env("WidthDepth-v0", num_envs=3, **settings)
    theirs = vec_env.DummyVecEnv([lambda: gymnasium.make("WidthDepth-v0", **settings).unwrapped] * 3)
    for envs in (ours, theirs):
        envs.seed(0)
    return ours, theirs


def test_infos_are_those_of_stable_baselines3s_own_environments(beside):
    first = [envs.reset() for envs in beside]
    assert data_equivalence(*map(dict, first))
    for action in (0, 0, 2, 0, 1, 0, 0):
        played = [envs.step(np.array([action, 0, 2])) for envs in beside]
        for ours, theirs in zip(played[0][3], played[1][3], strict=True):
            assert data_equivalence(ours, theirs)
        assert data_equivalence(*(envs.reset_infos for envs in beside))
    assert beside[0].get_attr("action_space") == beside[1].get_attr("action_space")


@pytest.mark.slow
def test_monitors_keep_what_they_are_asked_for():
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env", reason="pip install autotts-jax[sb3]")
    envs = at.sb3_vec_env("WidthDepthMacro-v0", num_envs=2, **SETTINGS)
    monitored = vec_env.VecMonitor(envs, info_keywords=("correct", "tokens"))
    monitored.reset()
    assert {"question", "action_mask"} <= envs.reset_infos[0].keys()
    monitored.step(np.array([0, 0]))
    _, _, done, infos = monitored.step(np.array([1, 1]))
    assert done.all()
    assert infos[0]["episode"]["tokens"] > 0
    assert type(infos[0]["episode"]["correct"]) is bool


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"question": 2, "order": 3}, marks=pytest.mark.slow),
        [{"question": q, "gamma": q / 10} for q in (4, 0, 1)],
        None,
    ],
)
def test_options_are_those_of_the_next_reset(beside, options):
    for envs in beside:
        envs.reset()
        envs.set_options(options)
    assert data_equivalence(*(dict(envs.reset()) for envs in beside))
    ours, theirs = (envs.reset_infos for envs in beside)
    assert [info["question"] for info in ours] == [info["question"] for info in theirs]
    assert data_equivalence(*(dict(envs.reset()) for envs in beside))  # options are used once


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"questions": 1}, "unknown option 'questions'"),
        ([{"question": 1}, {}, {}], "options of the same names"),
        ([{"question": 1}], "each of 3 environments"),
        (["question"] * 3, "it must be a dict"),
        ([{"order": seed} for seed in range(3)], "give each its branches"),
    ],
)
def test_bad_options(options, message):
    pytest.importorskip("stable_baselines3", reason="pip install autotts-jax[sb3]")
    envs = at.sb3_vec_env("WidthDepth-v0", num_envs=3, **SETTINGS)
    envs.set_options(options)
    with pytest.raises(at.InputError, match=message):
        envs.reset()


@pytest.mark.filterwarnings("ignore:Your observation (branches|questions) has an unconventional shape")
@pytest.mark.filterwarnings("ignore:We recommend you to use a symmetric and normalized Box")
@pytest.mark.parametrize(
    "name",
    [
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("WidthDepth-v0", "WidthDepthRounds-v0")),
        "WidthDepthMacroSmall-v0",
        "WidthDepthBatch-v0",
    ],
)
def test_the_checker_of_stable_baselines3_finds_nothing(name):
    checker = pytest.importorskip("stable_baselines3.common.env_checker", reason="autotts-jax[sb3]")
    checker.check_env(gymnasium.make(name, **SETTINGS))  # a warning is an error


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "name", "policy", "id_", "settings"),
    [
        ("stable_baselines3", "PPO", "MultiInputPolicy", "WidthDepthRounds-v0", {}),
        ("stable_baselines3", "PPO", "MultiInputPolicy", "WidthDepthBatch-v0", {}),
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
