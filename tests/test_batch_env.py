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
from autotts_jax.core import read_through
from autotts_jax.envs import QUESTION_FEATURES, WidthDepthBatchEnv
from autotts_jax.errors import InputError
from autotts_jax.experiments import branch_orders
from autotts_jax.policies import ALLOCATORS
from autotts_jax.replay import NONE, select_part, stack, synthetic

NAME, WIDTH = "WidthDepthBatch-v0", 5
TASK = "WidthDepthBatch-Hard-Test-v0"


@pytest.fixture(scope="module")
def data():
    return as_dataset(random_matrix(0))


@pytest.fixture(scope="module")
def budget(data):
    return int(np.asarray(data.matrix.tokens).mean() * len(data) * 2.5)


def check_equals_replay(env, data, allocator, seeds=2):
    """The agent that plays an allocator's indices has the accuracy of the allocator, for every cell."""
    kind, budget = env.unwrapped.environment, int(env.unwrapped.params.budget)
    width, (slots,) = kind.max_branches, env.action_space.shape
    (play,) = at.evaluate_batch(
        data, allocator, budgets=[budget], seeds=seeds, max_branches=width, at_once=kind.at_once
    ).plays
    for cell in range(len(data.cells)):
        chosen = data.cell_questions(cell)
        of_cell = data.select(chosen)
        orders = branch_orders(of_cell, "repo100", range(seeds), width)
        index = read_through(ALLOCATORS[allocator], of_cell.matrix, orders).urgency
        # Nothing is left after the last branch, and in a smaller cell the last questions are none.
        index = np.pad(index, ((0, 0), (0, slots - len(chosen)), (0, 1)), constant_values=-np.inf)
        for seed in range(seeds):
            observation, info = env.reset(options={"question": chosen[0], "order": seed})
            assert info["action_mask"].tolist() == [1] * len(chosen) + [0] * (slots - len(chosen))
            ended, rewards = False, []
            while not ended:
                reads = np.rint(observation["questions"][:, 0] * width).astype(int)
                observation, reward, ended, truncated, info = env.step(index[seed, range(slots), reads])
                rewards.append(reward)
                assert not truncated
            reads = np.rint(observation["questions"][:, 0] * width).astype(int)
            assert reads[: len(chosen)].tolist() == play.branches[0, seed, chosen].tolist()
            assert not observation["questions"][len(chosen) :].any()
            assert info["tokens"] == play.tokens[0, seed, chosen].sum() <= budget
            assert observation["left"][0] == pytest.approx(1 - info["tokens"] / budget, abs=1e-6)
            assert info["accuracy"] == pytest.approx(play.correct[0, seed, chosen].mean())
            assert sum(rewards) == pytest.approx(info["accuracy"], abs=1e-6)
            with pytest.raises(ResetNeeded):
                env.step(np.zeros(slots))


@pytest.mark.parametrize("at_once", [1, 3])
@pytest.mark.parametrize("name", ["uniform", "asc", "dirichlet", "shadow-price"])
def test_episodes_equal_the_replay_of_an_allocator(data, budget, name, at_once):
    other = as_dataset(random_matrix(1), "other").select([0])
    data = stack([data, other])
    env = gymnasium.make(NAME, data=data, max_branches=WIDTH, budget=budget, at_once=at_once)
    check_equals_replay(env, data, name)


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_episodes_of_a_task_equal_the_replay_of_its_part(whole):
    data = at.load("synthetic-hard") if whole else synthetic(questions=10, branches=16)
    given = {} if whole else {"data": data, "budget": 500_000}
    check_equals_replay(gymnasium.make(TASK, **given), select_part(data, "test"), "long-first", seeds=1)


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


@pytest.mark.filterwarnings("ignore:.*symmetric and normalized space")
def test_check_env_finds_nothing():
    data = synthetic(questions=10, branches=16)
    check_env(gymnasium.make(TASK, data=data).unwrapped, skip_render_check=True)


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


def test_a_step_limit_truncates(data):
    envs = gymnasium.make_vec(NAME, num_envs=2, data=data, max_branches=WIDTH, max_episode_steps=1)
    envs.reset(seed=0)
    _, _, terminated, truncated, _ = envs.step(np.zeros(envs.action_space.shape))
    assert truncated.all()
    assert not terminated.any()


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


def test_every_cell_is_a_set_that_episodes_draw():
    data = stack([as_dataset(random_matrix(0), "one"), as_dataset(random_matrix(1), "other")])
    env, params = at.make(NAME, data, max_branches=WIDTH)
    seen, states = jax.vmap(lambda key: env.reset(key, params))(jax.random.split(jax.random.key(0), 40))
    assert seen["questions"].shape == (40, len(data) // 2, 5)
    assert set(states.row.tolist()) == {0, 1}


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
    with pytest.raises(InputError, match="unknown option 'gamma'"):
        env.reset(options={"gamma": 1.0})
    with pytest.raises(InputError, match="option 'question' is 2"):
        env.reset(options={"question": 2})
    with pytest.raises(InputError, match="question is 2"):
        env.environment.reset(jax.random.key(0), env.params, 2)
    with pytest.raises(InputError, match="different branches"):
        env.reset(options={"order": [0] * WIDTH})
    env.reset(seed=0)
    for action in (np.zeros(len(data) + 1), "x", np.zeros((len(data), 1)), np.zeros(len(data), complex)):
        with pytest.raises(InputError, match="an action must be numbers of shape"):
            env.step(action)
