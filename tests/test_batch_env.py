"""Many questions as an environment: equal to the replay of allocators, in Gymnasium, JAX and gymnax."""

import dataclasses

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import SyncVectorEnv
from matrices import as_dataset, random_matrix

import autotts_jax as at
from autotts_jax.core import read_through, spend
from autotts_jax.envs import QUESTION_FEATURES, WidthDepthBatchEnv
from autotts_jax.errors import InputError
from autotts_jax.experiments import branch_orders
from autotts_jax.policies import ALLOCATORS
from autotts_jax.replay import NONE, stack

NAME, WIDTH = "WidthDepthBatch-v0", 5


@pytest.fixture(scope="module")
def data():
    return as_dataset(random_matrix(0))


@pytest.fixture(scope="module")
def budget(data):
    return int(np.asarray(data.matrix.tokens).mean() * len(data) * 2.5)


@pytest.mark.parametrize("at_once", [1, 3])
@pytest.mark.parametrize("name", ["uniform", "asc", "dirichlet", "shadow-price"])
def test_episodes_equal_the_replay_of_an_allocator(data, budget, name, at_once):
    env = gymnasium.make(NAME, data=data, max_branches=WIDTH, budget=budget, at_once=at_once)
    readings = read_through(ALLOCATORS[name], data.matrix, branch_orders(data, "repo100", range(2), WIDTH))
    replayed = spend(readings, np.array([budget]), at_once)[0]
    index = np.pad(readings.urgency, ((0, 0), (0, 0), (0, 1)), constant_values=-np.inf)
    questions = np.arange(len(data))
    for seed in range(2):
        observation, info = env.reset(options={"order": seed})
        ended, rewards = False, []
        while not ended:
            reads = np.rint(observation["questions"][:, 0] * WIDTH).astype(int)
            observation, reward, ended, truncated, info = env.step(index[seed, questions, reads])
            rewards.append(reward)
            assert not truncated
        reads = np.rint(observation["questions"][:, 0] * WIDTH).astype(int)
        assert reads.tolist() == replayed[seed].tolist()
        spent = sum(readings.cost[seed, q, :n].sum() for q, n in enumerate(reads))
        assert info["tokens"] == spent <= budget
        assert observation["left"][0] == pytest.approx(1 - spent / budget, abs=1e-6)
        answers = readings.answer[seed, questions, reads]
        accuracy = np.mean((answers != NONE) & (answers == data.matrix.gold))
        assert info["accuracy"] == pytest.approx(accuracy)
        assert sum(rewards) == pytest.approx(accuracy, abs=1e-6)
        with pytest.raises(ResetNeeded):
            env.step(np.zeros(len(data)))


def test_a_question_shows_its_votes_and_its_tokens(data, budget):
    env = gymnasium.make(NAME, data=data, max_branches=WIDTH, budget=budget)
    env.reset(options={"order": list(range(WIDTH))})
    chosen = np.full(len(data), -np.inf)
    chosen[1] = 1
    for _ in range(3):
        observation, *_ = env.step(chosen)
    finals = np.asarray(data.matrix.finals())[1, :3]
    counts = np.sort(np.unique(finals[finals != NONE], return_counts=True)[1])[::-1].tolist()
    tokens = np.asarray(data.matrix.tokens)[1, :3].sum()
    shown = [3, *[*counts, 0, 0][:2], sum(counts)]
    assert observation["questions"][1] == pytest.approx([*np.array(shown) / WIDTH, tokens / budget])
    assert not observation["questions"][[0, *range(2, len(data))]].any()
    assert len(QUESTION_FEATURES) == observation["questions"].shape[1]


def test_what_has_no_branch_left_is_left_and_nan_is_told(data):
    env = gymnasium.make(NAME, data=data, max_branches=1, budget=10**6)
    _, info = env.reset(seed=0)
    wanted = np.array([*[5.0] * (len(data) - 1), np.nan])
    for _ in range(len(data) - 1):
        *_, ended, _, info = env.step(wanted)
        assert info["invalid_action"]
        assert not ended
    assert info["action_mask"].tolist() == [0] * (len(data) - 1) + [1]
    *_, ended, _, info = env.step(np.zeros(len(data)))
    assert ended
    assert not info["invalid_action"]
    assert not info["action_mask"].any()
    env.reset(seed=0)
    *_, ended, _, info = env.step(np.full(len(data), -np.inf))  # nothing is urgent
    assert (ended, info["tokens"]) == (True, 0)


@pytest.mark.filterwarnings("ignore:.*symmetric and normalized space", "ignore:.*infinity. This is probably")
def test_check_env_finds_nothing(data):
    check_env(gymnasium.make(NAME, data=data, max_branches=WIDTH).unwrapped, skip_render_check=True)


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_many_are_as_many_single_ones(data, budget, mode):
    settings = {"data": data, "max_branches": WIDTH, "budget": budget, "at_once": 2}
    together = gymnasium.make_vec(NAME, num_envs=3, autoreset_mode=mode, **settings)
    apart = SyncVectorEnv([lambda: WidthDepthBatchEnv(**settings)] * 3, autoreset_mode=mode)
    assert data_equivalence(together.reset(seed=4), apart.reset(seed=4))
    rng = np.random.default_rng(0)
    for _ in range(25):
        actions = rng.normal(size=together.action_space.shape).astype(np.float32)
        many, single = together.step(actions), apart.step(actions)
        assert data_equivalence(many[:4], single[:4])
    assert together.action_space.contains(together.action_space.sample())


def test_it_runs_compiled(data, budget):
    env, params = at.make(NAME, data, max_branches=WIDTH, budget=budget)
    traces = []

    @jax.jit
    def episode(key, budget):
        traces.append(1)
        played = dataclasses.replace(params, budget=budget)
        _, state = env.reset_env(key, played)

        def step(carry, _):
            state, ended = carry
            _, after, reward, terminated, _ = env.step_env(
                key, state, -state.reads.astype(jnp.float32), played
            )
            after = jax.tree.map(lambda old, new: jnp.where(ended, old, new), state, after)
            return (after, ended | terminated), jnp.where(ended, 0, reward)

        (state, ended), rewards = jax.lax.scan(step, (state, jnp.bool_(False)), length=len(data) * WIDTH)
        return state.spent, ended, rewards.sum()

    keys = jax.random.split(jax.random.key(0), 4)
    spent, ended, accuracy = jax.vmap(episode, (0, None))(keys, jnp.int32(budget))
    assert ended.all()
    assert (spent <= budget).all()
    assert ((accuracy >= 0) & (accuracy <= 1)).all()
    jax.vmap(episode, (0, None))(keys, jnp.int32(3))
    assert len(traces) == 1


def test_a_set_may_be_of_several_cells():
    data = stack([as_dataset(random_matrix(0), "one"), as_dataset(random_matrix(1), "other")])
    env, params = at.make(NAME, data, max_branches=WIDTH)
    observation, _ = env.reset(jax.random.key(0), params)
    assert observation["questions"].shape == (len(data), 5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"at_once": 0}, "at_once is 0"),
        ({"budget": 0}, "the token budget is 0"),
        ({"budget": 2**31}, "the token budget is 2147483648"),
        ({"budget": 1.5}, "the token budget is 1.5"),
        ({"max_branches": 60}, "fewer than the 60 that an episode can open"),
        ({"gamma": 1e-4}, "unexpected keyword argument 'gamma'"),
        ({"render_mode": "ansi"}, "render_mode"),
    ],
)
def test_wrong_settings_are_refused(data, settings, message):
    with pytest.raises(InputError, match=message):
        WidthDepthBatchEnv(data, **{"max_branches": WIDTH} | settings)


def test_wrong_actions_and_options_are_refused(data):
    env = WidthDepthBatchEnv(data, max_branches=WIDTH)
    for options in ({"question": 0}, {"gamma": 1.0}):
        with pytest.raises(InputError, match="unknown option"):
            env.reset(options=options)
    with pytest.raises(InputError, match="different branches"):
        env.reset(options={"order": [0] * WIDTH})
    env.reset(seed=0)
    for action in (np.zeros(len(data) + 1), "x", np.zeros((len(data), 1)), np.zeros(len(data), complex)):
        with pytest.raises(InputError, match="an action must be numbers of shape"):
            env.step(action)
