"""The Gymnasium face: what Gymnasium checks, and that vector environments equal single ones."""

import dataclasses
import importlib
import os
import subprocess
import sys

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from marks import mark_for
from matrices import BRANCHES, as_dataset, random_matrix

import autotts_jax
from autotts_jax.envs import (
    ENVIRONMENTS,
    OBSERVATIONS,
    TASK_ENVIRONMENTS,
    WidthDepth,
    WidthDepthEnv,
    WidthDepthRounds,
    WidthDepthRoundsEnv,
    WidthDepthRoundsVectorEnv,
    WidthDepthVectorEnv,
    gym_episodes,
)
from autotts_jax.envs.observations import BRANCH_FEATURES
from autotts_jax.errors import InputError
from autotts_jax.replay import SYNTHETIC_MODELS, embedded, part_of, synthetic, write_compact
from autotts_jax.replay.orders import repo100_orders

ATOMIC, ROUNDS, MACRO = "WidthDepth-v0", "WidthDepthRounds-v0", "WidthDepthMacro-v0"
IDS = (ATOMIC, ROUNDS)
ONE_ID = (ATOMIC, pytest.param(ROUNDS, marks=pytest.mark.slow))
"""For what the faces do alike, whatever the actions are."""
WIDTH, LANES, STEPS = 6, 3, 12
BRANCH, ANSWER = 0, 1


@pytest.fixture(scope="module")
def data():
    return synthetic(seed=1, models=SYNTHETIC_MODELS[1:2], questions=4, branches=16)


@pytest.fixture(scope="module")
def make(data):
    def make(name=ATOMIC, **arguments):
        return gymnasium.make(name, **({"data": data, "max_branches": WIDTH} | arguments)).unwrapped

    return make


@pytest.fixture(scope="module")
def make_vec(data):
    def make_vec(name=ATOMIC, num_envs=LANES, **arguments):
        arguments = {"data": data, "max_branches": WIDTH} | arguments
        return gymnasium.make_vec(name, num_envs=num_envs, **arguments)

    return make_vec


def some_action(name, rng):
    """An action of the space that seldom answers."""
    if name == ATOMIC:
        return rng.choice([BRANCH, *range(2, 2 + 3 * WIDTH)])
    return np.concatenate(
        [[0], rng.integers(0, 3, 1), rng.choice([0, 1, 2, 5], WIDTH, p=[0.3, 0.1, 0.3, 0.3])]
    )


# --- registration ---------------------------------------------------------------------------------------


def test_import_registers_all_ids_without_jax():
    code = "import autotts_jax, gymnasium, sys; assert 'jax' not in sys.modules; print(*gymnasium.registry)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names = {**ENVIRONMENTS, **TASK_ENVIRONMENTS}
    assert {*names, *(f"autotts_jax/{name}" for name in names)} <= set(done.stdout.split())


@pytest.mark.parametrize("prefix", ["", "autotts_jax:", "autotts_jax/", "autotts_jax:autotts_jax/"])
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_every_id_makes_its_environment(name, prefix, data):
    single = gymnasium.make(prefix + name, data=data, max_branches=4)
    many = gymnasium.make_vec(prefix + name, num_envs=2, data=data, max_branches=4)
    kind, settings = ENVIRONMENTS[name]
    for env in (single.unwrapped, many):
        assert type(env.environment).__name__ == kind
        assert {key: getattr(env.environment, key) for key in settings if key != "max_branches"} == {
            key: value for key, value in settings.items() if key != "max_branches"
        }
    assert single.unwrapped.environment == autotts_jax.make(name, data, max_branches=4)[0]


def test_the_small_ids_suit_scripts_that_take_nothing_but_an_id():
    for name in ENVIRONMENTS:
        if "Small" in name:
            env = gymnasium.make(name)
            assert isinstance(env.observation_space, gymnasium.spaces.Box)
            assert len(env.observation_space.shape) == 1
            assert env.unwrapped.environment.max_branches == 8


def test_importing_twice_registers_once():
    importlib.reload(autotts_jax)  # a warning is an error


def test_the_synthetic_data_is_the_default_and_made_once():
    env = gymnasium.make(f"autotts_jax:{ATOMIC}")
    assert env.observation_space["branches"].shape == (64, len(BRANCH_FEATURES))
    first, second = (embedded.load("synthetic").matrix.answers for _ in range(2))
    assert np.shares_memory(first, second)


@pytest.mark.parametrize("name", ONE_ID)
def test_specs_survive_json(name, data, tmp_path):
    path = tmp_path / "data.npz"
    write_compact(data, path)
    arguments = {"data": str(path), "max_branches": WIDTH, "gamma": [1e-5, 1e-3], "reward": "progress"}
    single = gymnasium.make(name, **arguments)
    again = gymnasium.make(EnvSpec.from_json(single.spec.to_json()))
    assert again.spec == single.spec
    assert data_equivalence(again.reset(seed=3), single.reset(seed=3))
    many = gymnasium.make_vec(name, num_envs=LANES, autoreset_mode="SameStep", **arguments)
    many_again = gymnasium.make_vec(EnvSpec.from_json(many.spec.to_json()))
    assert many_again.num_envs == LANES
    assert many_again.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert data_equivalence(many_again.reset(seed=3), many.reset(seed=3))


@pytest.mark.slow
@pytest.mark.parametrize("make_one", [gymnasium.make, gymnasium.make_vec])
@pytest.mark.parametrize("task", ["Macro-Laptop-Train", "Macro-Laptop-Test", "Batch-Easy-Train"])
def test_specs_of_tasks_survive_json(make_one, task):
    env = make_one(f"autotts_jax:WidthDepth{task}-v0")
    again = make_one(EnvSpec.from_json(env.spec.to_json()))
    assert again.spec == env.spec
    assert data_equivalence(env.reset(seed=3), again.reset(seed=3))
    env.action_space.seed(3)
    for _ in range(6):
        action = env.action_space.sample()
        one, other = env.step(action), again.step(action)
        assert data_equivalence(list(one), list(other))
        if one[2] is True:
            break


def test_ids_of_tasks_play_the_questions_of_their_part():
    laptop = autotts_jax.load("synthetic")
    parts = part_of(laptop)
    for part in ("train", "validation", "test"):
        name = f"WidthDepthRounds-Laptop-{part.title()}-v0"
        expected = laptop.select(np.flatnonzero(parts == part)).matrix
        _, params = autotts_jax.make(name)
        for matrix in (gymnasium.make(name).unwrapped.params.matrix, params.matrix):
            np.testing.assert_array_equal(matrix.lengths, expected.lengths)


@pytest.mark.slow
def test_an_id_of_a_task_takes_other_settings():
    name = "WidthDepth-Laptop-Train-v0"
    assert gymnasium.make(name, obs="history").observation_space["history"].shape[0] == 8
    other = gymnasium.make(name, part="test").unwrapped
    assert not np.array_equal(other.params.matrix.gold, gymnasium.make(name).unwrapped.params.matrix.gold)
    more = synthetic(questions=10, branches=4)
    env, params = autotts_jax.make(name, more, part="test", max_branches=3)
    assert (env.max_branches, params.matrix.num_questions) == (3, 16)


def test_bad_parts(make, data):
    with pytest.raises(InputError, match="unknown part 'dev'"):
        gymnasium.make("WidthDepth-Laptop-Train-v0", part="dev")
    with pytest.raises(InputError, match="data is a matrix, whose questions have no texts"):
        make(data=data.matrix, part="train")


def run_async(folder, context, timeout):
    """Resets environments in two worker processes, in a process of its own."""
    script = folder / "workers.py"
    script.write_text(
        "import gymnasium\n"
        "if __name__ == '__main__':\n"
        f"    envs = gymnasium.make_vec('autotts_jax:{ROUNDS}', num_envs=2, vectorization_mode='async',\n"
        f"        vector_kwargs={{'context': {context!r}}}, max_branches=4)\n"
        "    print(envs.reset(seed=0)[0]['branches'].shape)\n"
        "    envs.close()\n"
    )
    command = [sys.executable, script]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)


@pytest.mark.slow
def test_forked_workers_are_refused_within_a_deadline(tmp_path):
    """JAX does not run in a fork of a process that has used it; unrefused, reset would wait for ever."""
    done = run_async(tmp_path, "fork", timeout=120)
    assert done.returncode != 0
    *_, message = done.stderr.splitlines()
    assert "InputError: JAX does not run in a process that was forked after" in message
    assert 'vector_kwargs={"context": "spawn"}' in message


def test_an_environment_is_refused_in_any_fork(make, monkeypatch):
    make()
    monkeypatch.setattr(os, "getpid", lambda: 0)  # what a fork is told; a real one could wait for ever
    with pytest.raises(InputError, match="play in a spawned process"):
        make()


@pytest.mark.slow
def test_spawned_workers_play(tmp_path):
    assert run_async(tmp_path, "spawn", timeout=300).stdout.splitlines() == ["(2, 4, 12)"]


# --- what Gymnasium checks ------------------------------------------------------------------------------


SHOWN = [pytest.param(obs, marks=[pytest.mark.slow] * (obs != "features")) for obs in OBSERVATIONS]


@pytest.mark.parametrize("obs", SHOWN)
@pytest.mark.parametrize("name", ONE_ID)
def test_check_env_finds_nothing(make, name, obs):
    check_env(make(name, obs=obs))  # renders in both modes; a warning is an error


@pytest.mark.parametrize(
    "reward",
    [*(pytest.param(of, marks=pytest.mark.slow) for of in ("outcome", "progress", "regret")), "majority"],
)
@pytest.mark.parametrize("name", ONE_ID)
def test_check_env_finds_nothing_for_any_reward(make, name, reward):
    check_env(make(name, reward=reward, gamma=(1e-5, 1e-3)), skip_render_check=True)


@pytest.mark.parametrize("obs", SHOWN)
@pytest.mark.parametrize("name", IDS)
def test_observations_are_in_their_space(make, name, obs):
    env = make(name, obs=obs)
    rng = np.random.default_rng(0)
    for seed in range(5):
        observation, _ = env.reset(seed=seed)
        for _ in range(60):
            assert observation in env.observation_space
            observation, *_ = env.step(some_action(name, rng))


def test_results_are_pythons_and_numpys_own(make):
    env = make()
    observation, info = env.reset(seed=0)
    assert all(type(part) is np.ndarray and part.flags.writeable for part in observation.values())
    _, reward, terminated, truncated, after = env.step(np.int64(BRANCH))
    assert (type(reward), type(terminated), type(truncated)) == (float, bool, bool)
    for told in (info, after):
        types = {name: type(value) for name, value in told.items() if name != "action_mask"}
        assert types == {
            **dict.fromkeys(("invalid_action", "correct"), bool),
            **dict.fromkeys(("tokens", "intervals", "probes", "interval", "question", "answer"), int),
            "cost": float,
        }
        assert told["action_mask"].dtype == np.int8


def test_closing_twice_is_fine(make, make_vec):
    for env in (make(), make_vec()):
        env.reset(seed=0)
        env.close()
        env.close()


# --- episodes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ONE_ID)
def test_the_single_environment_is_the_functional_one(make, name):
    env = make(name, kappa_probe=0.5)
    functional, params = env.environment, env.params
    order = np.arange(WIDTH)[::-1].copy()
    seen, _ = env.reset(seed=0, options={"question": 2, "order": order})
    start = jax.jit(functional.reset)
    expected, state = start(jax.random.key(9), params, question=2, order=order)
    step = jax.jit(functional.step_env)
    rng = np.random.default_rng(1)
    for _ in range(30):
        for part in seen:
            np.testing.assert_allclose(seen[part], expected[part], rtol=1e-6)
        action = some_action(name, rng)
        seen, reward, terminated, truncated, info = env.step(action)
        expected, state, worth, answered, told = step(jax.random.key(9), state, action, params)
        assert reward == pytest.approx(float(worth), abs=1e-6)
        assert (terminated, truncated) == (bool(answered), False)
        assert info.keys() == told.keys()
        for entry in told:
            np.testing.assert_allclose(info[entry], told[entry], rtol=1e-6)


def test_rewards_sum_to_the_objective(make):
    env = make(gamma=1e-3)
    env.reset(seed=4)
    rewards = [env.step(action)[1] for action in [BRANCH, BRANCH, 2, 2 + WIDTH, 2, 3 + WIDTH]]
    *_, last, terminated, truncated, info = env.step(ANSWER)
    assert (terminated, truncated) == (True, False)
    assert sum(rewards) + last == pytest.approx(info["correct"] - 1e-3 * info["cost"], abs=1e-6)


def test_the_step_limit_truncates(make):
    env = make(max_steps=2)
    env.reset(seed=0)
    assert env.step(BRANCH)[2:4] == (False, False)
    assert env.step(BRANCH)[2:4] == (False, True)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize("registered", [False, True])
def test_vectors_take_max_episode_steps_as_single_environments_do(make_vec, registered, mode):
    limit = {"max_episode_steps": 2}
    spec = dataclasses.replace(gymnasium.spec(ATOMIC), **limit) if registered else ATOMIC
    given = {} if registered else limit
    vector = make_vec(spec, autoreset_mode=mode, **given)
    single = {"vectorization_mode": "sync", "vector_kwargs": {"autoreset_mode": mode}}
    if registered:
        sync = make_vec(spec, **single)
    else:
        sync = SyncVectorEnv(
            [lambda: gymnasium.make(ATOMIC, data=vector.params.matrix, max_branches=WIDTH, **limit)] * LANES,
            autoreset_mode=mode,
        )
    same(vector.reset(seed=0), sync.reset(seed=0))
    ends = []
    for action in ([BRANCH, BRANCH, ANSWER], [BRANCH, ANSWER, BRANCH], [BRANCH] * 3, [2, 2, 2]):
        results = vector.step(np.array(action))
        same(results, sync.step(np.array(action)))
        ends.append((results[2] & results[3]).any())
    assert any(ends)  # a limit that an answer reaches is said, too


def test_bad_max_episode_steps(data):
    with pytest.raises(InputError, match="max_episode_steps is 0"):
        WidthDepthVectorEnv(data, max_branches=WIDTH, max_episode_steps=0)
    assert WidthDepthVectorEnv(data, max_branches=WIDTH, max_episode_steps=-1).num_envs == 1


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_gymnasium_records_the_statistics_of_episodes(make_vec, mode, request):
    if mode is AutoresetMode.SAME_STEP and gymnasium.__version__ < "1.4":
        request.applymarker(pytest.mark.xfail(reason="Gymnasium #1624", strict=True))
    envs = gymnasium.wrappers.vector.RecordEpisodeStatistics(make_vec(autoreset_mode=mode, gamma=0.01))
    envs.reset(seed=0)
    rng = np.random.default_rng(0)
    total, length, begun = np.zeros(LANES), np.zeros(LANES, int), np.zeros(LANES, bool)
    seen = 0
    for _ in range(40):
        _, reward, terminated, truncated, infos = envs.step(rng.choice([BRANCH, ANSWER, 2], LANES))
        counted = ~begun if mode is AutoresetMode.NEXT_STEP else np.ones(LANES, bool)
        total[counted] += reward[counted]
        length[counted] += 1
        ended = terminated | truncated
        if ended.any():
            np.testing.assert_allclose(infos["episode"]["r"][ended], total[ended])
            np.testing.assert_array_equal(infos["episode"]["l"][ended], length[ended])
        total[ended], length[ended], begun = 0, 0, ended
        seen += ended.sum()
    assert seen > 20


@pytest.mark.parametrize("last", [ANSWER, BRANCH])
def test_no_step_without_an_episode(make, last):
    env = make(max_steps=1)
    for call in (lambda: env.step(BRANCH), env.action_masks):
        with pytest.raises(ResetNeeded):
            call()
    env.reset(seed=0)
    env.step(last)
    with pytest.raises(ResetNeeded):
        env.step(BRANCH)


def test_seeds_say_which_episodes_follow(make):
    env = make(gamma=[1e-6, 1e-2])

    def episodes(seed):
        return [env.reset(seed=given) for given in (seed, *[None] * 20)]

    first = episodes(2**40 + 1)
    assert data_equivalence(first, episodes(2**40 + 1), exact=True)
    assert not data_equivalence(first, episodes(1))
    assert {info["question"] for _, info in first} == {0, 1, 2, 3}
    assert len({float(observation["globals"][-1]) for observation, _ in first}) == len(first)


def test_unseeded_environments_differ(make):
    draws = [[env.reset()[1]["question"] for _ in range(40)] for env in (make(), make())]
    assert draws[0] != draws[1]


# --- options --------------------------------------------------------------------------------------------


def first_answers(env):
    """The answer of each branch when all are opened and probed."""
    answers = []
    for branch in range(WIDTH):
        env.step(BRANCH)
        answers.append(env.step(2 + WIDTH + branch)[4]["answer"])
        env.step(2 + 2 * WIDTH + branch)
    return answers


def test_question_and_order_can_be_asked_for(make, data):
    env = make()
    depth_one = np.asarray(data.matrix.answers)[..., 0]
    for question in range(4):
        order = np.random.default_rng(question).permutation(16)[:WIDTH]
        _, info = env.reset(options={"question": question, "order": order.tolist()})
        assert info["question"] == question
        assert first_answers(env) == depth_one[question, order].tolist()
        env.reset(options={"question": np.int64(question), "order": 7})
        assert first_answers(env) == depth_one[question, repo100_orders(16, [7])[0, :WIDTH]].tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"questions": 1}, "unknown option 'questions'; did you mean 'question'?"),
        ({"question": 4}, "'question' is 4, but it must be one of 0 … 3"),
        ({"question": -1}, "'question' is -1"),
        ({"question": True}, "'question' is True"),
        ({"question": [[1], [1, 2]]}, "'question' is"),
        ({"gamma": -1e-3}, "'gamma' is -0.001, but it must be a number of at least 0"),
        ({"gamma": float("nan")}, "'gamma' is nan"),
        ({"gamma": "low"}, "'gamma' is 'low'"),
        ({"question": 1.0}, "'question' is 1.0"),
        ({"question": [1, 2]}, "'question' is"),
        ({"order": -1}, "'order' is -1"),
        ({"order": "x"}, "'order' must be a seed or 6 branches"),
        ({"order": [0, 1]}, "'order' must be a seed or 6 branches"),
        ({"order": np.arange(6.0)}, "'order' must be a seed or 6 branches"),
        ({"order": [0, 1, 2, 3, 4, 4]}, "6 different branches of 0 … 15"),
        ({"order": [0, 1, 2, 3, 4, 16]}, "6 different branches"),
        ({"order": [0, 1, 2, 3, 4, -1]}, "6 different branches"),
    ],
)
def test_bad_options(make, make_vec, options, message):
    for env in (make(), make_vec()):
        with pytest.raises(InputError, match=message):
            env.reset(options=options)


@pytest.mark.slow
def test_a_grid_is_one_batch(make, make_vec):
    questions, gammas = np.array([3, 0, 2]), np.array([0.1, 0.2, 0.3])
    orders = np.array([np.random.default_rng(seed).permutation(16)[:WIDTH] for seed in range(3)])
    vector = make_vec(num_envs=3)
    vector.reset(seed=0, options={"question": questions, "order": orders, "gamma": gammas})
    action = np.zeros(3, int)
    obs, reward, *_, infos = vector.step(action)
    assert infos["question"].tolist() == [3, 0, 2]
    single = make()
    for lane in range(3):
        options = {"question": questions[lane], "order": orders[lane], "gamma": gammas[lane]}
        single.reset(options=options)
        seen, gained, *_, info = single.step(0)
        assert gained == reward[lane] == pytest.approx(-gammas[lane] * info["cost"])
        for part in seen:
            np.testing.assert_array_equal(seen[part], obs[part][lane])
    with pytest.raises(InputError, match=r"'question' is .* or 3 of them"):
        vector.reset(options={"question": [0, 1]})
    with pytest.raises(InputError, match="or 3 times as many"):
        vector.reset(options={"order": orders[:2]})


@pytest.mark.parametrize("many", [False, True])
def test_an_episode_goes_on_from_a_snapshot(make, make_vec, many):
    env, other = [make_vec() if many else make() for _ in range(2)]
    with pytest.raises(InputError, match="get_state"):
        env.set_state(env)
    env.reset(seed=5)
    env.step(np.zeros(LANES, int) if many else 0)
    snapshot = env.get_state()
    rng = np.random.default_rng(0)
    actions = rng.integers(2, 2 + WIDTH, (4, LANES)) if many else rng.integers(2, 2 + WIDTH, 4).tolist()
    first = [env.step(action) for action in actions]
    for again in (env, other, env):
        again.set_state(snapshot)
        np.testing.assert_array_equal(again.action_masks(), snapshot_masks(snapshot, many))
        same(first, [again.step(action) for action in actions])


def snapshot_masks(snapshot, many):
    return np.asarray(snapshot.last.info["action_mask"], bool) if many else snapshot.last


@pytest.mark.parametrize("seed", ["a", -1, 1.5])
def test_bad_seeds(make, seed):
    with pytest.raises(InputError, match="seed is"):
        make().reset(seed=seed)


def test_a_seed_of_an_order_needs_one_number_of_branches(make):
    dataset = as_dataset(random_matrix(0))
    (cell,) = dataset.cells
    fewer = dataclasses.replace(cell, benchmark="fewer", num_branches=BRANCHES - 1)
    matrix = dataclasses.replace(dataset.matrix, cell=np.array([0, 1], np.int32))
    uneven = dataclasses.replace(dataset, matrix=matrix, cells=(cell, fewer))
    env = make(data=uneven, max_branches=4)
    with pytest.raises(InputError, match="give option 'question' too"):
        env.reset(options={"order": 3})
    with pytest.raises(InputError, match="different branches of 0 … 4"):
        env.reset(options={"order": [0, 1, 2, 5]})
    env.reset(options={"order": [0, 1, 2, 5], "question": 0})


# --- actions --------------------------------------------------------------------------------------------

OUT_OF_RANGE = [-1, 2 + 3 * WIDTH, 2**31, 2**32, -(2**32), 2**63, np.uint64(2**64 - 2), np.array(99, np.int8)]


@pytest.mark.parametrize("action", [2, 2 + WIDTH, 2 + 2 * WIDTH, *OUT_OF_RANGE])
def test_inadmissible_actions_do_nothing(make, action):
    env = make(invalid_penalty=0.25)
    before, _ = env.reset(seed=0)
    after, reward, terminated, truncated, info = env.step(action)
    assert info["invalid_action"]
    assert (reward, terminated, truncated) == (-0.25, False, False)
    assert data_equivalence(after["branches"], before["branches"], exact=True)
    assert info["tokens"] == 0


@pytest.mark.parametrize("entry", range(2 + WIDTH))
@pytest.mark.parametrize("value", OUT_OF_RANGE[:-2])
def test_out_of_range_entries_of_a_round_do_nothing(make, entry, value):
    env = make(ROUNDS)
    env.reset(seed=0)
    env.step([0, WIDTH, *[0] * WIDTH])
    action = np.zeros(2 + WIDTH, np.uint64 if value == 2**63 else np.int64)
    action[entry] = value
    _, _, terminated, _, info = env.step(action)
    assert info["invalid_action"]
    assert not terminated
    assert info["intervals"] == WIDTH


@pytest.mark.parametrize(
    "action", [1.0, np.nan, np.float32(0), True, None, "BRANCH", [0], np.zeros((1, 1), int), 10**30]
)
def test_actions_of_a_wrong_type_are_refused(make, action):
    env = make()
    env.reset(seed=0)
    with pytest.raises(InputError, match="an action must be an integer, but it is"):
        env.step(action)
    assert not env.step(BRANCH)[4]["invalid_action"]


@pytest.mark.slow
@pytest.mark.parametrize("name", IDS)
def test_vector_actions_of_a_wrong_type_are_refused(make_vec, name):
    env = make_vec(name)
    env.reset(seed=0)
    good = env.action_space.sample()
    for action in (good.astype(float), good[:2], good[0], good[..., None], None):
        with pytest.raises(InputError, match="an action must be integers of shape"):
            env.step(action)
    env.step(good)


@pytest.mark.parametrize("name", IDS)
def test_masks_say_what_is_admissible(make, name):
    env = make(name)
    space = env.action_space
    space.seed(0)
    _, info = env.reset(seed=0)
    ended = 0
    while ended < 5:
        mask = info["action_mask"]
        assert env.action_masks().dtype == bool
        np.testing.assert_array_equal(env.action_masks(), mask)
        parts = mask if name == ATOMIC else tuple(np.split(mask, np.cumsum(space.nvec)[:-1]))
        *_, terminated, truncated, info = env.step(space.sample(mask=parts))
        assert not info["invalid_action"]
        if terminated or truncated:
            ended += 1
            _, info = env.reset()


@pytest.mark.slow
def test_the_mask_is_in_the_observation_where_it_is_asked_for(make, make_vec):
    flat, rounds = make_vec(obs="flat", mask_in_obs=True), make(ROUNDS, obs="history", mask_in_obs=True)
    assert set(flat.single_observation_space) == {"action_mask", "observations"}
    assert set(rounds.observation_space) == {"action_mask", "branches", "globals", "history"}
    for env, action in ((flat, np.full(LANES, BRANCH)), (rounds, np.zeros(2 + WIDTH, int))):
        observation, info = env.reset(seed=0)
        for _ in range(2):
            assert observation in env.observation_space
            assert observation["action_mask"].dtype == np.int8
            np.testing.assert_array_equal(observation["action_mask"], info["action_mask"])
            observation, *_, info = env.step(action)


def test_masks_are_found_behind_wrappers(data):
    env = gymnasium.make(ROUNDS, data=data, max_branches=WIDTH)
    _, info = env.reset(seed=0)
    for masks in (env.unwrapped.action_masks(), env.get_wrapper_attr("action_masks")()):
        assert masks.dtype == bool
        np.testing.assert_array_equal(masks, info["action_mask"])


# --- macro-actions --------------------------------------------------------------------------------------


def as_round(action, obs, mask):
    """The action of a round that a macro-action stands for, by what is seen before it."""
    column = dict(zip((feature.name for feature in BRANCH_FEATURES), obs["branches"].T, strict=True))
    active, agrees = column["active"] > 0, column["with_latest"] > 0
    voted = (active & (column["answered"] > 0)).any()
    advance = mask[2 + WIDTH + 1 :].reshape(WIDTH, -1)[:, -1] > 0
    entries = np.zeros(2 + WIDTH, int)
    entries[0] = action == ANSWER
    entries[1] = {0: 1, 6: 2, 7: 4}.get(action, 0)
    chosen = {2: active, 3: active & agrees, 4: active & ~agrees & voted}.get(action, ~active & active)
    entries[2:][chosen & advance] = 1 + 4
    if action == 5:
        entries[2:][active & ~agrees & voted] = 1
    return entries


def test_macro_actions_are_the_rounds_that_they_stand_for(make):
    macro, rounds = make(MACRO), make(ROUNDS)
    assert macro.action_space.n == 8  # 1, 2 and 4 of 6 branches can be opened at a time
    rng = np.random.default_rng(0)
    seen = set()
    for seed in range(12):
        obs, info = macro.reset(seed=seed)
        obs_again, info_again = rounds.reset(seed=seed)
        ended = False
        while not ended:
            assert data_equivalence(obs, obs_again)
            action = int(
                rng.choice([2, 3, 4, 5, 0, 6, 7, ANSWER], p=[0.2, 0.2, 0.15, 0.1, 0.1, 0.1, 0.1, 0.05])
            )
            entries = as_round(action, obs, info_again["action_mask"])
            possible = entries.any() and entries[1] <= WIDTH - (obs["branches"][:, 0] > 0).sum()
            assert info["action_mask"][action] == possible
            obs, reward, ended, truncated, info = macro.step(action)
            assert info["invalid_action"] == (not possible)
            obs_again, *same, info_again = rounds.step(entries if possible else np.zeros(2 + WIDTH, int))
            assert same == [reward, ended, truncated]
            shared = info.keys() - {"action_mask", "invalid_action"}
            assert {key: info[key] for key in shared} == {key: info_again[key] for key in shared}
            seen |= {action} if possible else set()
    assert seen == set(range(8))


@pytest.mark.parametrize("action", [-1, 8, *OUT_OF_RANGE])
def test_macro_actions_out_of_range_do_nothing(make, action):
    env = make(MACRO)
    env.reset(seed=0)
    *_, info = env.step(action)
    assert info["invalid_action"]
    assert info["intervals"] == 0


# --- environments of one's own --------------------------------------------------------------------------


class Noted(WidthDepthRounds):
    """More parts of the observation, and more entries of info."""

    def observation_space(self, params):
        inside = super().observation_space(params)
        return spaces.Dict({**inside, "tokens": spaces.Box(0, 1e6, (), np.float32)})

    def observe(self, view, *rest):
        return super().observe(view, *rest) | {"tokens": view.tokens.astype(jnp.float32)}

    def step_env(self, *given):
        obs, state, reward, terminated, info = super().step_env(*given)
        more = {"depths": state.pool.depth, "share": reward / 2, "deep": {"time": state.time}}
        return obs, state, reward, terminated, info | more


class Boxed(WidthDepth):
    """An observation of one array."""

    def observation_space(self, _):
        return spaces.Box(0, 1, (2, 3), np.float32)

    def observe(self, view, *_):
        return jnp.full((2, 3), view.opened / view.width, jnp.float32)


class NotedEnv(WidthDepthRoundsEnv):
    kind = Noted


class NotedVectorEnv(WidthDepthRoundsVectorEnv):
    kind = Noted


class BoxedEnv(WidthDepthEnv):
    kind = Boxed


class BoxedVectorEnv(WidthDepthVectorEnv):
    kind = Boxed


@pytest.mark.slow
@pytest.mark.parametrize(("single", "vector"), [(NotedEnv, NotedVectorEnv), (BoxedEnv, BoxedVectorEnv)])
def test_environments_of_ones_own_show_what_they_declare(data, single, vector):
    check_env(single(data, max_branches=WIDTH), skip_render_check=True)
    settings = {"max_branches": WIDTH, "max_steps": 3}
    together = vector(data, num_envs=LANES, autoreset_mode="SameStep", **settings)
    apart = SyncVectorEnv([lambda: single(data, **settings)] * LANES, autoreset_mode="SameStep")
    same(together.reset(seed=0), apart.reset(seed=0))
    actions = np.zeros(together.action_space.shape, int)
    if single is NotedEnv:
        actions[:, 1] = 1, 2, 3
    for _ in range(5):
        results = together.step(actions)
        same(results, apart.step(actions))
    assert single is BoxedEnv or results[-1]["deep"]["time"].tolist() == [2] * LANES


# --- vector environments --------------------------------------------------------------------------------


OBSERVED = {
    (ATOMIC, AutoresetMode.NEXT_STEP): "features",
    (ATOMIC, AutoresetMode.SAME_STEP): "history",
    (ATOMIC, AutoresetMode.DISABLED): "flat",
    (ROUNDS, AutoresetMode.NEXT_STEP): "history",
    (ROUNDS, AutoresetMode.SAME_STEP): "flat",
    (ROUNDS, AutoresetMode.DISABLED): "features",
}


@pytest.fixture(scope="module")
def pairs(make_vec):
    """By id and mode: a vector environment, and Gymnasium's of as many single ones."""
    settings = {"max_steps": 7, "gamma": [1e-5, 1e-3], "budget": 6_000, "invalid_penalty": 0.1}
    made = {}
    for name in IDS:
        for mode in AutoresetMode:
            shared = settings | {"obs": OBSERVED[name, mode]}
            vector = make_vec(name, autoreset_mode=mode, **shared)
            sync = make_vec(name, vectorization_mode="sync", vector_kwargs={"autoreset_mode": mode}, **shared)
            made[name, mode] = vector, sync
    return made


seeds = st.none() | st.integers(0, 2**70) | st.lists(st.none() | st.integers(0, 9), min_size=3, max_size=3)
actions = {
    # Opening, reading and probing the first branches come often, so that episodes get somewhere.
    ATOMIC: arrays(
        np.int64,
        (STEPS, LANES),
        elements=st.sampled_from([BRANCH, ANSWER, 2, 3, 2 + WIDTH, 3 + WIDTH])
        | st.integers(-2, 4 + 3 * WIDTH),
    ),
    ROUNDS: st.tuples(
        arrays(np.int64, (STEPS, LANES, 1), elements=st.sampled_from([0, 0, 0, 1, -1, 2])),
        arrays(np.int64, (STEPS, LANES, 1 + WIDTH), elements=st.integers(-1, 7)),
    ).map(lambda parts: np.concatenate(parts, axis=-1)),
}


@pytest.mark.parametrize(
    ("name", "mode"),
    [pytest.param(name, mode, marks=mark_for(name, [ATOMIC])) for name in IDS for mode in AutoresetMode],
)
@given(data=st.data())
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_vectors_equal_single_environments(pairs, name, mode, data):
    vector, sync = pairs[name, mode]
    assert (vector.action_space, vector.observation_space) == (sync.action_space, sync.observation_space)
    # Whatever comes before is forgotten with the first seeds.
    begin = [0, *data.draw(st.lists(seeds, max_size=2), label="seeds")]
    for seed in begin:
        same(vector.reset(seed=seed), sync.reset(seed=seed))
    for action in data.draw(actions[name], label="actions"):
        results = vector.step(action)
        same(results, sync.step(action))
        ended = results[2] | results[3]
        if mode is AutoresetMode.DISABLED and ended.any():
            seed = data.draw(seeds, label="seed")
            masked = [env.reset(seed=seed, options={"reset_mask": ended}) for env in (vector, sync)]
            same(*masked)
        np.testing.assert_array_equal(vector.action_masks(), sync.call("action_masks"))


def same(of_vector, of_sync):
    """Floats may differ in their last bits, for XLA batches some operations differently."""
    assert data_equivalence(list(of_vector), list(of_sync))


@pytest.mark.slow
def test_an_end_is_seen_in_every_mode(pairs):
    """The property above has something to say: ends, final observations and resets come up."""
    for (name, mode), (vector, _) in pairs.items():
        answer = np.zeros(vector.action_space.shape, int)
        answer[...] = ANSWER
        vector.reset(seed=0)
        *_, terminated, _, info = vector.step(answer)
        assert terminated.all(), (name, mode)
        assert ("final_obs" in info) == (mode is AutoresetMode.SAME_STEP)


def test_seeds_may_be_large(make_vec):
    vector, sync = make_vec(), make_vec(vectorization_mode="sync")
    for seed in (2**64 + 1, [2**80, None, 0]):
        same(*(env.reset(seed=0) for env in (vector, sync)))
        same(*(env.reset(seed=seed) for env in (vector, sync)))


def test_a_next_step_reset_ignores_the_action(make_vec):
    env = make_vec()
    env.reset(seed=0)
    env.step(np.full(LANES, ANSWER))
    _, reward, terminated, _, info = env.step(np.full(LANES, ANSWER))
    assert not terminated.any()
    assert not reward.any()
    assert not info["tokens"].any()


def test_disabled_mode_wants_a_reset(make_vec):
    env = make_vec(autoreset_mode="Disabled")
    env.reset(seed=0)
    env.step(np.array([BRANCH, ANSWER, BRANCH]))
    with pytest.raises(ResetNeeded, match=r"environments \[1\] have ended"):
        env.step(np.full(LANES, BRANCH))
    env.reset(options={"reset_mask": np.array([False, True, False])})
    env.step(np.full(LANES, BRANCH))


def test_what_was_returned_stays(make_vec):
    """Buffers of the state are donated to the next step; what was handed out must not be among them."""
    env = make_vec(obs="history")
    kept = [env.reset(seed=0)]
    copies = [jax.tree.map(np.copy, kept[-1])]
    for _ in range(5):
        kept.append(env.step(np.array([BRANCH, 2 + WIDTH, ANSWER])))
        copies.append(jax.tree.map(np.copy, kept[-1]))
    assert all(map(data_equivalence, kept, copies))
    assert all(part.flags.writeable for part in kept[-1][0].values())


def test_one_environment_is_a_vector_too(make, make_vec):
    env = make_vec(num_envs=1)
    single, _ = make().reset(seed=3)
    observation, info = env.reset(seed=3)
    assert observation["branches"].shape == (1, *single["branches"].shape)
    assert info["action_mask"].shape == (1, 2 + 3 * WIDTH)
    assert data_equivalence({name: part[0] for name, part in observation.items()}, single)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"seed": [1, 2]}, InputError, "2 seeds for 3 environments"),
        ({"seed": -1}, InputError, "seed is -1, but it must be at least 0"),
        ({"seed": 1.5}, InputError, "seed is 1.5, but it must be a whole number"),
        ({"seed": [0, 1, "2"]}, InputError, "seed is '2', but it must be a whole number"),
        ({"options": {"reset_mask": [True, False]}}, InputError, "'reset_mask' must be bool of shape"),
        ({"options": {"reset_mask": np.array([1, 0, 1])}}, InputError, "'reset_mask' must be bool of shape"),
        ({"options": {"reset_mask": np.zeros(3, bool)}}, InputError, "and all False"),
        ({"options": {"reset_mask": np.array([True, False, True])}}, ResetNeeded, "no episode was started"),
    ],
)
def test_bad_arguments_of_a_vector_reset(make_vec, arguments, error, message):
    with pytest.raises(error, match=message):
        make_vec().reset(**arguments)


def test_a_vector_needs_a_reset_first(make_vec):
    env = make_vec(render_mode="ansi")
    for call in (lambda: env.step(np.zeros(LANES, int)), env.action_masks, env.render):
        with pytest.raises(ResetNeeded):
            call()


@pytest.mark.parametrize("name", ONE_ID)
def test_one_compilation_serves_all_episodes(make, make_vec, name):
    def counts():
        # Nothing public tells how often a function was compiled.
        compiled = (
            gym_episodes.begin_one,
            gym_episodes.play_one,
            gym_episodes.begin_all,
            gym_episodes.play_all,
        )
        return [function._cache_size() for function in compiled]  # noqa: SLF001

    rng = np.random.default_rng(0)

    def play(seed):
        env, vector = make(name, gamma=1e-3 * (seed + 1)), make_vec(name, max_steps=5 + seed)
        env.reset(seed=seed)
        vector.reset(seed=seed)
        for _ in range(12):
            env.step(some_action(name, rng).tolist())
            vector.step(np.stack([some_action(name, rng) for _ in range(LANES)]))
        env.reset()

    play(0)
    before = counts()
    for seed in range(1, 4):
        play(seed)
    assert counts() == before


# --- rendering ------------------------------------------------------------------------------------------


def test_text_shows_what_was_revealed(make, data):
    env = make(render_mode="ansi")
    env.reset(seed=0, options={"question": 1, "order": np.arange(WIDTH)})
    assert env.render() == "WidthDepth, step 0, 0 tokens, answer none\n"
    for action in (BRANCH, BRANCH, 2 + WIDTH, 2, 2, 2 + WIDTH, 3 + WIDTH, 3 + 2 * WIDTH):
        env.step(action)
    answers = np.asarray(data.matrix.answers)[1, [0, 0, 1], [0, 2, 0]].tolist()
    letters = dict(zip(dict.fromkeys(answers), "ABC", strict=False))
    first, last, other = (letters[answer] for answer in answers)
    interval = int(data.matrix.interval[1])
    assert env.render().splitlines() == [
        f"WidthDepth, step 8, {4 * interval:,} tokens, answer {last}",
        f"  0 {first}.{last} >",
        f"  1 {other} x",
    ]


@pytest.mark.parametrize("obs", SHOWN)
def test_pictures_are_of_one_size_and_leave_observations_alone(make, obs):
    env, plain = make(ROUNDS, obs=obs, render_mode="rgb_array"), make(ROUNDS, obs=obs)
    same(env.reset(seed=0), plain.reset(seed=0))
    frames = [env.render()]
    for _ in range(3):
        action = [0, 2, *[2] * WIDTH]
        same(env.step(action), plain.step(action))
        frames.append(env.render())
    assert {(frame.dtype, frame.shape) for frame in frames} == {(np.dtype(np.uint8), frames[0].shape)}
    assert frames[0].ndim == 3
    height, width = frames[0].shape[:2]
    assert (height % 2, width % 2, height <= 600, width <= 900) == (0, 0, True, True)
    assert frames[0].shape[2] == 3
    assert not np.array_equal(frames[0], frames[-1])


def test_vectors_render_each_environment(make, make_vec):
    env, single = (made(render_mode="ansi") for made in (make_vec, make))
    env.reset(seed=5)
    single.reset(seed=6)
    env.step(np.array([BRANCH, BRANCH, 2]))
    single.step(BRANCH)
    frames = env.render()
    assert len(frames) == LANES
    assert frames[1] == single.render()
    assert frames[2] != frames[1]


def test_nothing_is_rendered_without_a_mode(make, make_vec):
    for env in (make(), make_vec()):
        with pytest.warns(UserWarning, match="without a render_mode"):
            assert env.render() is None
    with pytest.raises(ResetNeeded):
        make(render_mode="ansi").render()


# --- arguments ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make_one", [gymnasium.make, gymnasium.make_vec])
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_an_unknown_argument_is_a_type_error_in_the_words_of_python(make_one, name):
    """TorchRL gives ``frameskip`` on trial, and looks for these words."""
    with pytest.raises(TypeError, match="unexpected keyword argument 'frameskip'"):
        make_one(name, frameskip=4)


@pytest.mark.parametrize("kind", [WidthDepthEnv, WidthDepthVectorEnv])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"render_mode": "human"}, "unknown render_mode 'human'"),
        ({"obs": "pixels"}, "unknown observation 'pixels'"),
        ({"reward": "best"}, "unknown reward 'best'"),
        ({"aggregate": "mean"}, "unknown aggregation 'mean'"),
        ({"max_branches": 17}, "give max_branches=16 or less"),
        ({"gamma": -1.0}, "gamma is"),
        ({"budget": -1}, "budget is -1"),
        ({"max_steps": 0}, "max_steps is 0"),
        ({"data": None, "encoding": "equiv"}, "only the exact encoding"),
        ({"data": "nowhere/*.json"}, "nowhere"),
        ({"data": 3}, "data is 3, but it must be"),
        ({"max_branches": 4.0}, "max_branches is 4.0, but it must be a whole number"),
        ({"seed": "a"}, "seed is 'a', but it must be a whole number"),
        ({"max_branch": 4}, "unexpected keyword argument 'max_branch'; did you mean 'max_branches'?"),
    ],
)
def test_bad_arguments(kind, data, arguments, message):
    with pytest.raises(InputError, match=message):
        kind(**({"data": data, "max_branches": WIDTH} | arguments))


def test_bad_arguments_of_a_vector(data):
    with pytest.raises(InputError, match="num_envs is 0"):
        WidthDepthVectorEnv(data, num_envs=0)
    with pytest.raises(InputError, match="unknown autoreset_mode 'Never'; there are NextStep, "):
        WidthDepthVectorEnv(data, autoreset_mode="Never")
    with pytest.raises(InputError, match="WidthDepth got an unexpected keyword argument 'gama'"):
        WidthDepthVectorEnv(data, gama=1.0, max_branches=WIDTH)


def test_a_dataset_that_is_opened_has_its_encoding(data):
    with pytest.raises(InputError, match="unexpected keyword argument 'encoding'"):
        autotts_jax.make("WidthDepth-v0", data, encoding="equiv")


def test_a_probe_matrix_is_data_too(make, data):
    env, other = make(data=data.matrix), make()
    same(env.reset(seed=1, options={"order": 3}), other.reset(seed=1, options={"order": 3}))
    with pytest.raises(InputError, match="data is a matrix, which does not say of which models it is"):
        make(data=data.matrix, cost="latency")


@pytest.mark.slow
def test_a_cost_by_name(make, data):
    cells = tuple(dataclasses.replace(cell, model="Qwen3-8B") for cell in data.cells)
    env = make(data=dataclasses.replace(data, cells=cells), cost="latency")
    env.reset(seed=0)
    _, reward, *_, info = env.step(BRANCH)
    assert 0.9 < info["cost"] < 1  # it is not probed
    assert reward == pytest.approx(-1e-4 * info["cost"])
    with pytest.raises(InputError, match="unknown cost 'latencies'"):
        make(cost="latencies")
