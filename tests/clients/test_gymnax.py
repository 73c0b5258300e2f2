"""Trainers for gymnax: its own wrappers, rejax and stoa from the package index, PureJaxRL from a clone."""

import importlib
import os
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autotts_jax as at
from autotts_jax.envs import as_gymnax

gymnax = pytest.importorskip(
    "gymnax", reason="gymnax is not installed; make test-clients has an environment with it"
)
wrappers = pytest.importorskip("gymnax.wrappers")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of gymnax, rejax and distrax

KEY = jax.random.key(0)
LANES, STEPS = 4, 16
ID = "WidthDepthSmall-v0"


@pytest.fixture(scope="module")
def make():
    data = at.load("synthetic")

    def make(name="WidthDepth-v0", old_step=False, **settings):
        env, params = at.make(name, data, **{"max_branches": 3, "gamma": 1e-3, "obs": "flat"} | settings)
        return as_gymnax(env, params, old_step=old_step)

    return make


def play(env):
    """What random play of several environments returns, stacked over steps."""
    params = env.default_params
    obs, state = jax.vmap(env.reset, (0, None))(jax.random.split(KEY, LANES), params)

    def step(state, key):
        act_key, step_key = jax.random.split(key)
        action = jax.vmap(env.action_space(params).sample)(jax.random.split(act_key, LANES))
        keys = jax.random.split(step_key, LANES)
        _, state, *rest = jax.vmap(env.step, (0, 0, 0, None))(keys, state, action, params)
        return state, rest

    return obs, jax.jit(lambda: jax.lax.scan(step, state, jax.random.split(KEY, STEPS))[1])()


@pytest.mark.parametrize("obs", ["features", "history", "flat"])
@pytest.mark.parametrize("name", ["WidthDepth-v0", "WidthDepthRounds-v0"])
def test_the_quickstart_of_gymnax_runs(make, name, obs):
    env = make(name, obs=obs)
    params = env.default_params
    key, reset_key, act_key, step_key = jax.random.split(KEY, 4)
    seen, state = env.reset(reset_key, params)
    action = env.action_space(params).sample(act_key)
    assert env.action_space(params).contains(action)
    following, *_ = env.step(step_key, state, action, params)
    sampled = env.observation_space(params).sample(key)
    sampled = sampled if obs == "flat" else dict(sampled)
    for shown in (seen, following):
        assert jax.tree.map(jnp.shape, shown) == jax.tree.map(jnp.shape, sampled)
    assert obs == "flat" or "action_mask" in sampled
    assert isinstance(env, gymnax.environments.environment.Environment)


@pytest.mark.parametrize(
    ("wrapper", "values"),
    [
        ("LogWrapper", 6),
        ("FlattenObservationWrapper", 6),
        ("StickyActionWrapper", 6),
        ("LegacyStepAPIWrapper", 5),
    ],
)
def test_wrappers_of_gymnax_run(make, wrapper, values):
    env = getattr(wrappers, wrapper)(make())
    obs, (_, *ends, info) = play(env)
    assert obs.shape == (LANES, *env.observation_space(env.default_params).shape)
    assert len(ends) == values - 4
    assert np.asarray(ends).any()
    if wrapper == "LogWrapper":
        assert info["returned_episode"].any()
        np.testing.assert_allclose(info["returned_episode_lengths"].min(), 0)


def test_log_wrapper_takes_rounds_too(make):
    env = wrappers.LogWrapper(make("WidthDepthRounds-v0", obs="features"))
    _, (_, terminated, _, _) = play(env)
    assert terminated.any()


def test_the_old_step_is_todays_with_one_flag(make):
    (obs, (reward, terminated, truncated, info)), (obs_old, (reward_old, done, info_old)) = (
        play(make(old_step=old, max_steps=5)) for old in (False, True)
    )
    assert (terminated & ~truncated).any()
    assert truncated.any()
    for given, expected in ((obs_old, obs), (reward_old, reward), (done, terminated | truncated)):
        np.testing.assert_array_equal(given, expected)
    assert {"final_observation", "action_mask", "truncated"} <= info_old.keys()
    jax.tree.map(np.testing.assert_array_equal, info_old, info)


def make_by_id():
    return as_gymnax(*at.make(ID), old_step=True)


def test_ppo_of_rejax_trains_by_id():
    rejax = pytest.importorskip("rejax")
    gymnax.register(ID, make_by_id)
    algorithm = rejax.PPO.create(
        env=ID,
        num_envs=8,
        num_steps=16,
        num_epochs=1,
        num_minibatches=2,
        total_timesteps=256,
        eval_freq=128,
    )
    _, (lengths, returns) = jax.jit(algorithm.train)(KEY)
    assert returns.shape == (3, 128)
    assert np.isfinite(returns).all()
    assert (lengths >= 1).all()


def test_wrappers_of_stoa_run_by_id():
    stoa = pytest.importorskip("stoa")
    adapters = pytest.importorskip("stoa.env_adapters.gymnax")
    env = stoa.RecordEpisodeMetrics(stoa.AutoResetWrapper(adapters.GymnaxToStoa(make_by_id())))
    actions = env.action_space()

    def step(state, key):
        state, timestep = env.step(state, actions.sample(key))
        return state, (timestep.observation, timestep.reward, timestep.extras["episode_metrics"])

    state, first = env.reset(KEY)
    keys = jax.random.split(KEY, 64)
    seen, rewards, metrics = jax.jit(lambda: jax.lax.scan(step, state, keys)[1])()
    assert seen.shape == (64, *first.observation.shape) == (64, *env.observation_space().shape)
    ends = np.flatnonzero(metrics["is_terminal_step"]) + 1
    assert len(ends) > 1
    of_episodes = [part.sum() for part in np.split(np.asarray(rewards), ends)[:-1]]
    np.testing.assert_allclose(metrics["episode_return"][ends - 1], of_episodes, atol=1e-6)


def test_ppo_of_purejaxrl_runs(make, monkeypatch):
    if "PUREJAXRL" not in os.environ:
        pytest.skip("set PUREJAXRL to a clone of luchris429/purejaxrl")
    monkeypatch.syspath_prepend(os.environ["PUREJAXRL"])
    training = types.ModuleType("brax.envs.wrappers.training")  # its wrappers import brax and navix
    training.EpisodeWrapper = training.AutoResetWrapper = object
    for name in ("brax", "brax.envs", "brax.envs.wrappers", "navix"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, training.__name__, training)
    sys.modules["brax"].envs = sys.modules["brax.envs"]
    ppo = importlib.import_module("purejaxrl.ppo")
    gymnax.register("WidthDepth", lambda: make(old_step=True))
    config = {
        "LR": 2.5e-4,
        "NUM_ENVS": 8,
        "NUM_STEPS": 32,
        "TOTAL_TIMESTEPS": 1024,
        "UPDATE_EPOCHS": 1,
        "NUM_MINIBATCHES": 4,
        "GAMMA": 0.99,
        "GAE_LAMBDA": 0.95,
        "CLIP_EPS": 0.2,
        "ENT_COEF": 0.01,
        "VF_COEF": 0.5,
        "MAX_GRAD_NORM": 0.5,
        "ACTIVATION": "tanh",
        "ENV_NAME": "WidthDepth",
        "ANNEAL_LR": True,
        "DEBUG": False,
    }
    metrics = jax.jit(ppo.make_train(config))(jax.random.PRNGKey(30))["metrics"]
    assert metrics["returned_episode"].shape == (4, 32, 8)
    assert metrics["returned_episode"].any()
    assert np.isfinite(metrics["returned_episode_returns"]).all()


def test_a_batch_is_an_environment_of_gymnax():
    data = at.load("smollm2")  # of another size than what is played by default
    env, params = at.make("WidthDepthBatch-v0", data, max_branches=5)
    wrapped = as_gymnax(env, params)
    observation, state = wrapped.reset(KEY)
    # One space at a time, as gymnax's Dict looks for attributes.
    spaces = wrapped.observation_space().spaces
    assert observation.keys() == spaces.keys()
    assert all(space.contains(observation[name]) for name, space in spaces.items())
    assert wrapped.action_space().shape == (len(data) // len(data.cells),)
    observation, *_ = wrapped.step(KEY, state, jnp.zeros(wrapped.action_space().shape))
    assert observation["questions"][0, 0] == pytest.approx(1 / 5)
