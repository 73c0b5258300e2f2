"""Signals in observations: what is seen of them, and what is said where that cannot be."""

import re

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autotts_jax as at
from autotts_jax.envs import WidthDepth, WidthDepthRounds
from autotts_jax.policies import as_controller
from autotts_jax.replay import SYNTHETIC_MODELS, synthetic
from autotts_jax.testing import check_controller, check_functional_env

NAMES = ("eat", "conf_low")  # not in alphabetical order
W = 3
BRANCH, PROBE_0, CONTINUE_0 = 0, 2 + W, 2


@pytest.fixture(scope="module")
def data():
    return synthetic(seed=2, models=SYNTHETIC_MODELS[1:2], questions=4, branches=8, signals=True)


def test_a_branch_shows_them_at_its_deepest_revealed_depth(data):
    env = gym.make("WidthDepth-v0", data=data, max_branches=W, signals=NAMES)
    recorded = np.stack([data.matrix.signals[name][1, 5] for name in NAMES], axis=-1).astype(np.float32)
    obs, _ = env.reset(seed=0, options={"question": 1, "order": [5, 0, 2]})
    seen = []
    for action in (None, BRANCH, PROBE_0, CONTINUE_0, CONTINUE_0, PROBE_0):
        obs = obs if action is None else env.step(action)[0]
        assert env.observation_space.contains(obs)
        assert obs["signals"].dtype == np.float32
        np.testing.assert_array_equal(obs["signals"][1:], 0)
        # The streak tells what is revealed from what is not.
        assert (obs["branches"][0, 6] > 0) == (len(seen) > 1)
        seen.append(obs["signals"][0])
    nothing = np.zeros(2, np.float32)
    np.testing.assert_array_equal(seen, [nothing, nothing, *[recorded[0]] * 3, recorded[2]])


@pytest.mark.slow
def test_a_flat_observation_ends_with_them(data):
    rng = np.random.default_rng(0)
    dicts, vectors = (
        gym.make_vec("WidthDepthRounds-v0", 4, data=data, max_branches=W, signals=NAMES, obs=obs, max_steps=5)
        for obs in ("features", "flat")
    )
    parts, vector = dicts.reset(seed=1)[0], vectors.reset(seed=1)[0]
    for _ in range(12):  # past the end of episodes
        rows = [parts[name].reshape(4, -1) for name in ("branches", "globals", "signals")]
        np.testing.assert_array_equal(vector, np.concatenate(rows, axis=1))
        assert vectors.observation_space.contains(vector)
        action = rng.integers(0, vectors.single_action_space.nvec, (4, 2 + W))
        parts, vector = dicts.step(action)[0], vectors.step(action)[0]


@pytest.mark.slow
def test_an_environment_with_them_is_as_all_are(data):
    check_functional_env(WidthDepthRounds(W, signals=NAMES, obs="history"), data.matrix, steps=24)


@pytest.mark.slow
def test_without_them_nothing_changes(data):
    """The compiled program is the same on data with signals, of which none gets to the device."""
    env, key = WidthDepth(W), jax.random.key(0)
    texts = set()
    for given in (data, data.with_signals({})):
        params = env.make_params(given.matrix)
        assert not params.matrix.signals
        obs, state = env.reset(key, params)
        assert "signals" not in obs
        texts.add(jax.jit(env.step).lower(key, state, jnp.int32(0), params).as_text())
    assert len(texts) == 1


class Sure:
    """Opens two branches, and reads the surer one to its end."""

    def __init__(self, env):
        self.env = env

    def act(self, observation, memory):
        sure = jnp.where(observation["branches"][:, 2] == 1, -1.0, observation["signals"][:, 1])
        done = jnp.any(observation["branches"][:, 2] == 1)
        reads = jnp.where(jnp.arange(W) == jnp.argmax(sure), 2, 0)
        opens = observation["globals"][1] == 0
        entries = jnp.stack([done.astype(int), jnp.where(opens, 2, 0)])
        return jnp.concatenate([entries, jnp.where(opens, 0, reads)]), memory


@pytest.mark.slow
def test_policies_read_them_wherever_controllers_play(data):
    policy = as_controller(Sure(WidthDepthRounds(W, signals=NAMES)), 1e-4)
    check_controller(policy, data, max_branches=W, episodes=6)
    at.evaluate(data, [policy], seeds=2, max_branches=W)
    with pytest.raises(at.InputError, match=r"reads the signal eat, and the data has none"):
        at.evaluate(data.with_signals({}), [policy], seeds=2, max_branches=W)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"signals": "eat"}, "signals is 'eat', but it must be a sequence of names, as ('conf_low',)"),
        ({"signals": None}, "signals is None, but it must be a sequence"),
        ({"signals": ["eat", "eat"]}, "name each signal once"),
        ({"signals": [3]}, "a signal cannot be named 3"),
        ({"signals": ["nope"]}, "reads the signal nope, and the data has conf_low, conf_mean"),
        ({"signals": ["conf_lo"]}, "probe_p_mean; did you mean conf_low? If not, use data"),
        ({"signals": ["eat"], "data": "smollm2"}, "reads the signal eat, and the data has"),
        ({"signals": ["eat"], "data": ["smollm2", "synthetic-signals"]}, "signal eat, and the data has none"),
    ],
)
@pytest.mark.filterwarnings("ignore:SmolLM2-135M-Instruct/arithmetic has no signal")
def test_what_cannot_be_observed_is_said(settings, message):
    with pytest.raises(at.InputError, match=re.escape(message)):
        gym.make("WidthDepthRounds-v0", max_branches=W, **settings)


def test_values_of_another_kind_are_refused(data):
    wide = {"eat": np.asarray(data.matrix.signals["eat"], np.float64)}
    matrix = data.matrix.__class__(**vars(data.matrix) | {"signals": wide})
    with pytest.raises(at.InputError, match="the signal eat is float64 of shape"):
        gym.make("WidthDepth-v0", data=matrix, max_branches=W, signals=["eat"])
