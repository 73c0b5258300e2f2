"""The benchmark: parts, tuned settings, scores and their intervals, agents, determinism, bad input."""

import csv
import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import jax
import numpy as np
import pytest
import scipy.stats

import autotts_jax as at
from autotts_jax.experiments import benchmark
from autotts_jax.experiments.benchmark import FEWEST_SEEDS, TASKS, Agent, Task, bench
from autotts_jax.experiments.random_play import RandomPolicy
from autotts_jax.replay import SYNTHETIC_MODELS, part_of, synthetic
from autotts_jax.user_code import load_object

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
GAMMA = (1e-4, 1e-2)
TINY = Task("tiny", None, 4, GAMMA, "WidthDepthMacro-v0", (10, 20))
OPEN_ONE, ANSWER, READ_ALL, OPEN_FOUR = 0, 1, 2, 7
SEEDS = 5


@pytest.fixture(scope="module", autouse=True)
def few_published():
    """Two families and two values of γ, which are played in seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(benchmark, "PUBLISHED", ("sc", "asc"))
        patch.setattr(benchmark, "GAMMAS", 2)
        yield


@pytest.fixture(scope="module")
def data():
    return synthetic(models=SYNTHETIC_MODELS[1:3], questions=10, branches=6)


@pytest.fixture(scope="module")
def one_model():
    """Enough questions for intervals, and few settings."""
    return synthetic(models=SYNTHETIC_MODELS[1:2], questions=20, branches=6)


def reading(opening, rounds):
    """An agent that opens branches, reads all for some rounds and answers; the other branch of a test."""

    def act(observation):
        assert set(observation) == {"branches", "globals", "action_mask"}
        assert observation["action_mask"].dtype == np.int8
        opened = observation["branches"][:, :, 0].sum(axis=1)
        steps = np.round(observation["globals"][:, 0] * 100).astype(int)
        more = (observation["action_mask"][:, READ_ALL] > 0) & (steps <= rounds)
        return np.where(opened == 0, opening, np.where(more, READ_ALL, ANSWER))

    return act


class Model:
    """A model as Stable-Baselines3 has it, whose own ``env`` is none of this package."""

    env = None

    def predict(self, observation, state=None, episode_start=None, deterministic=False):  # noqa: ARG002
        assert deterministic
        return reading(OPEN_FOUR, 100)(observation), state


@pytest.fixture(scope="module")
def players():
    learner = {
        10: [reading(OPEN_ONE, rounds) for rounds in range(5)],
        20: [reading(OPEN_FOUR, 100) for _ in range(5)],
    }
    return ["sc@4", "asc", "random", {"model": Model(), "learner": learner}]


@pytest.fixture(scope="module")
def result(data, players):
    return bench(TINY, players, data=data, seeds=SEEDS)


def by_hand(result, name, setting=None):
    """Mean objective, averaged over γ, of the scored episodes of a player; by seed and question."""
    (play,) = (play for play in result.evaluation.plays if play.player.name == name)
    index = 0 if setting is None else play.player.values.index(setting)
    inside = np.flatnonzero(part_of(result.evaluation.dataset) == result.part)
    worth = [play.correct[index] - gamma * play.intervals[index] for gamma in result.task.gammas]
    return np.mean(worth, axis=0)[:, inside]


@pytest.mark.slow
def test_scores_are_the_objective_between_one_branch_and_the_best_published(result):
    scores = {(score.name, score.steps): score for score in result.scores}
    low, best, mine = scores["sc@1", None], scores["published", None], scores["sc@4", None]
    assert (low.score, best.score, best.gain) == (0, pytest.approx(1), 0)
    assert low.objective == pytest.approx(by_hand(result, "reference lowest").mean())
    assert mine.objective == pytest.approx(by_hand(result, "sc", 4).mean())
    expected = (mine.objective - low.objective) / (best.objective - low.objective)
    assert mine.score == pytest.approx(expected)
    assert mine.gain == pytest.approx(mine.objective - best.objective)
    assert result.questions == 4  # two fifths of ten, which both models answered
    assert np.isnan([mine.score_low, mine.score_high, mine.gain_low, mine.gain_high]).all()  # too few


@pytest.mark.slow
def test_settings_are_chosen_for_each_gamma_on_the_other_parts(result):
    dataset = result.evaluation.dataset
    known = np.flatnonzero(part_of(dataset) != "test")
    (play,) = (play for play in result.evaluation.plays if play.player.name == "asc tuned")
    chosen = [
        max(
            range(len(play.player.values)),
            key=lambda index: (play.correct[index] - gamma * play.intervals[index])[:, known].mean(),
        )
        for gamma in TINY.gammas
    ]
    assert len(set(chosen)) > 1
    (score,) = (score for score in result.scores if score.name == "asc")
    assert score.setting == ", ".join(dict.fromkeys(f"asc@{play.player.values[index]:g}" for index in chosen))
    by_gamma = [
        (play.correct[index] - gamma * play.intervals[index])[:, part_of(dataset) == "test"].mean()
        for index, gamma in zip(chosen, TINY.gammas, strict=True)
    ]
    assert score.objective == pytest.approx(np.mean(by_gamma))


@pytest.mark.slow
def test_learners_are_scored_by_training_seed_and_length(result):
    found = [(score.name, score.steps, score.training_seeds) for score in result.scores]
    assert found[2:] == [
        ("sc@4", None, 0),
        ("asc", None, 0),
        ("random", None, FEWEST_SEEDS),
        ("model", None, 1),
        ("learner", 10, 5),
        ("learner", 20, 5),
    ]
    shown = str(result.table())
    assert "learner/10: 5 training seeds\n" in shown
    assert "learner/20: 5 training seeds" in shown


@pytest.mark.slow
def test_what_makes_learners_hard_to_compare_is_said(data):
    env, _ = at.make("WidthDepthMacro-v0", data, max_branches=4, mask_in_obs=True)
    opening = reading(OPEN_FOUR, 100)
    few = bench(TINY, [{"learner": {15: ["sc@4"]}, "bare": opening}, Agent(opening, env)], data=data, seeds=5)
    shown = str(few.table()).splitlines()
    assert "learner/15: 1 training seed, fewer than 5; not comparable with 10, 20 steps" in shown
    assert "bare: 1 training seed, fewer than 5" in shown
    assert "Agent: 1 training seed, fewer than 5" in shown


def test_controllers_that_answered_alike_are_not_told_to_be_equal(one_model):
    """As by `evaluate`, with the interval of a paired difference; the baseline's own gain is not shown."""
    found = bench(TINY, ["sc@4", {"same": "sc@4"}], data=one_model, seeds=SEEDS, baseline="sc@4")
    four, same = found.scores[2:]
    assert (four.gain_low, four.gain_high) == (0, 0)
    assert (same.objective, same.gain) == (four.objective, 0)
    assert same.gain_low < -0.01 < 0.01 < same.gain_high
    assert str(found.table()).count("+0.000 [") == 1


@pytest.mark.slow
def test_agents_play_the_episodes_of_controllers(result):
    """Opening all branches and reading them to their end is self-consistency."""
    scores = {(score.name, score.steps): score for score in result.scores}
    same = ["objective", "accuracy", "score", "gain"]  # SC is charged the tokens of a branch's last interval
    expected = [getattr(scores["sc@4", None], name) for name in same]
    for agent in (("model", None), ("learner", 20)):
        assert [getattr(scores[agent], name) for name in same] == pytest.approx(expected)


@pytest.mark.slow
def test_the_same_call_gives_the_same_scores_to_the_digit(result, data, players):
    again = bench(TINY, players, data=data, seeds=SEEDS)
    assert repr(again.scores) == repr(result.scores)  # few questions have no intervals: NaN
    assert str(again.table()) == str(result.table())


@pytest.mark.slow
def test_random_play_of_an_episode_depends_on_nothing_beside_it(result, data):
    def played(found):
        plays = [play for play in found.evaluation.plays if play.player.name.startswith("random of seed")]
        return np.stack([[play.tokens, play.branches, play.rounds] for play in plays])

    more = bench(TINY, "random", data=data, seeds=SEEDS + 2)
    np.testing.assert_array_equal(played(more)[..., :SEEDS, :], played(result))
    assert len(np.unique(played(result).reshape(FEWEST_SEEDS, -1), axis=0)) == FEWEST_SEEDS


@pytest.mark.parametrize(
    "name", [pytest.param("WidthDepthMacro-v0", marks=pytest.mark.slow), "WidthDepthRounds-v0"]
)
def test_random_play_draws_uniformly_from_what_is_admissible(data, name):
    env, params = at.make(name, data, max_branches=4)
    observation, _ = jax.jit(env.reset)(jax.random.key(0), params)
    keys = jax.random.key_data(jax.random.split(jax.random.key(1), 2000))
    policy = RandomPolicy(keys[0], env)
    drawn = np.asarray(jax.jit(jax.vmap(policy.act, (None, 0)))(observation, keys)[0]).reshape(2000, -1)
    sizes = getattr(env.action_space(), "nvec", [env.num_actions])
    masks = np.split(np.asarray(observation["action_mask"]), np.cumsum(sizes)[:-1])
    for entry, mask in zip(drawn.T, masks, strict=True):
        share = np.bincount(entry, minlength=len(mask)) / len(entry)
        np.testing.assert_allclose(share, mask / mask.sum(), atol=0.05)


@pytest.mark.nightly
def test_two_processes_give_the_same_scores_to_the_digit(tmp_path):
    """Whatever the number of cores, which the command line makes devices."""
    written = []
    for devices in ("1", "2"):
        folder = tmp_path / devices
        command = [sys.executable, "-m", "autotts_jax", "bench", "--controllers", "random,sc,neural"]
        subprocess.run(
            [*command, "--seeds", "5", "--out", folder],
            env=os.environ | {"JAX_NUM_CPU_DEVICES": devices, "PJRT_NPROC": devices},
            check=True,
            capture_output=True,
            timeout=600,
        )
        written.append((folder / "scores.csv").read_text())
    assert written[0] == written[1]


@pytest.mark.slow
def test_the_results_are_written(result, tmp_path):
    files = result.save(tmp_path)
    assert [file.name for file in files] == ["scores.csv", "manifest.json"]
    rows = list(csv.DictReader(files[0].read_text().splitlines()))
    assert [row["name"] for row in rows] == [score.name for score in result.scores]
    assert float(rows[2]["score"]) == pytest.approx(result.scores[2].score)
    manifest = json.loads(files[1].read_text())
    assert (manifest["task"]["name"], manifest["part"], manifest["seeds"]) == ("tiny", "test", SEEDS)


@pytest.mark.slow
def test_learning_curves_are_drawn_of_results_and_more_steps_compared(result, tmp_path):
    result.save(tmp_path / "run")
    objectives = {10: [0.1, 0.3, 0.2], 100: [0.5, 0.6, 0.9, 0.7]}
    rows = [
        f"other,mine,{steps},{len(found)},{np.mean(found)},{scipy.stats.sem(found)}"
        for steps, found in objectives.items()
    ]
    header = "task,name,steps,training_seeds,objective,objective_se"
    (tmp_path / "other.csv").write_text("\n".join([header, *rows]))
    files = [tmp_path / "run" / "scores.csv", tmp_path / "other.csv", "--out", tmp_path / "a.png"]
    command = [sys.executable, BENCHMARKS / "learning_curves.py", *files]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    low, high = scipy.stats.ttest_ind(objectives[100], objectives[10], equal_var=False).confidence_interval()
    told = f"other mine, 10 to 100 steps: {(low + high) / 2:+.3f} ± {(high - low) / 2:.3f}"
    assert done.stdout.splitlines()[-1] == told
    assert done.stdout.startswith("learner, 10 to 20 steps: ")


def test_the_oracle_gains_nothing_by_luck():
    """Where half of the branches are right, as many as are wrong alike, every plan is right half the time."""
    oracle = load_object(f"{BENCHMARKS}/headroom.py:oracle", "function")
    questions, branches = 60, 64
    halves = np.tile(np.arange(branches) % 2, (questions, 1))
    answers = np.repeat(np.random.default_rng(0).permuted(halves, axis=1)[..., None], 3, axis=2)
    matrix = SimpleNamespace(
        answers=answers,
        lengths=np.full((questions, branches), 2),
        gold=np.arange(questions) % 2,
        cell=np.zeros(questions, int),
        num_questions=questions,
    )
    dataset = mock.MagicMock(matrix=matrix, cells=[SimpleNamespace(num_branches=branches)])
    dataset.__len__.return_value = questions
    found = oracle(dataset, 8, [0.0])
    assert found.mean() == pytest.approx(0.5, abs=0.05)


def test_learning_curves_of_two_tasks_are_not_drawn_as_one(tmp_path):
    shipped, other = BENCHMARKS.parent / "docs" / "learners.csv", tmp_path / "other.csv"
    other.write_text("task,name,steps,objective,objective_se\nlaptop,sc@1,,0.398,0.003\n")
    command = [sys.executable, BENCHMARKS / "learning_curves.py", shipped, other, "--out", tmp_path / "a.png"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.stderr == "sc@1 has two objectives; tell tasks apart by a column 'task'\n"
    command.remove(other)
    subprocess.run(command, check=True, capture_output=True, timeout=120)


@pytest.mark.slow
def test_gains_are_measured_over_a_baseline(result, data):
    over = bench(TINY, ["sc@4", "asc"], data=data, seeds=SEEDS, baseline="asc")
    scores = {score.name: score for score in over.scores}
    before = {score.name: score for score in result.scores if score.steps is None}
    assert (scores["asc"].gain, scores["asc"].gain_low, scores["asc"].gain_high) == (0, 0, 0)
    for name, score in scores.items():
        assert score.gain == pytest.approx(score.objective - scores["asc"].objective)
        alike = (dataclasses.replace(one, gain=0, gain_low=0, gain_high=0) for one in (score, before[name]))
        assert len(set(map(repr, alike))) == 1
    assert "Δ asc, 95 %" in str(over.table())
    assert "Δ asc: gain in objective over asc;" in str(over.table())


def test_settings_of_a_task_make_its_environment(data):
    env, params = at.make(TINY.environment, **TINY.settings("train", data))
    assert env.max_branches == 4
    assert params.matrix.num_questions == 8
    assert (float(params.gamma_low), float(params.gamma_high)) == pytest.approx(GAMMA)


@pytest.mark.parametrize(
    "name", ["laptop", pytest.param("hard", marks=pytest.mark.slow), "arithmetic", "frontier"]
)
def test_settings_of_a_task_are_plain_json(name):
    task = TASKS[name]
    assert json.loads(json.dumps(task.settings("test"))) == task.settings("test")
    env, params = at.make(task.environment, **task.settings("train", obs="flat"))
    assert env.observation_space(params).shape == (task.max_branches * 12 + 18,)


def test_no_score_where_the_best_published_controller_is_no_better(one_model):
    free = dataclasses.replace(TINY, gamma=(1.0, 1.0))
    found = bench(free, data=one_model, seeds=SEEDS)
    assert all(np.isnan(score.score) for score in found.scores)
    assert "there are no scores, for here the best published controller is no better" in str(found.table())


FAILS = """
class Fails:
    def __init__(self, config=None):
        pass

    def solve(self, question):
        raise ArithmeticError
"""


def test_an_entry_that_breaks_a_limit_while_it_is_loaded_has_no_score(one_model, tmp_path):
    file = tmp_path / "fails.py"
    file.write_text(FAILS + "HELD = bytearray(400 << 20)\n")
    players, limits = [f"{file}:Fails", "sc@4"], at.Sealing(sandbox=at.Sandbox(memory=300 << 20))
    with pytest.warns(at.errors.InputWarning, match=r"Fails has no results: (?s:.*)Memory"):
        found = bench(TINY, players, data=one_model, seeds=SEEDS, sealing=limits)
    assert [score.name for score in found.scores] == ["sc@1", "published", "sc@4"]
    assert list(found.evaluation.refused) == players[:1]


@pytest.mark.slow
def test_an_entry_that_fails_has_no_score_and_the_others_have_theirs(data, tmp_path):
    file = tmp_path / "fails.py"
    file.write_text(FAILS)
    players = [f"{file}:Fails", {"mine": "sc@4"}]
    with pytest.warns(at.errors.InputWarning, match="Fails.* has no results: program 'Fails.*' failed"):
        found = bench(TINY, players, data=data, seeds=SEEDS)
    assert [score.name for score in found.scores] == ["sc@1", "published", "mine"]
    expected = bench(TINY, players[1:], data=data, seeds=SEEDS)
    assert found.scores[-1].objective == expected.scores[-1].objective
    with (
        pytest.warns(at.errors.InputWarning),
        pytest.raises(at.InputError, match=r"baseline .*Fails has no"),
    ):
        bench(TINY, players, data=data, seeds=SEEDS, baseline=players[0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"task": "laptpo"}, "unknown task 'laptpo'; did you mean 'laptop'"),
        ({"task": TASKS["laptop"]}, "task 'laptop' has data of its own, synthetic"),
        ({"data": None}, "task 'tiny' needs data; give the files"),
        ({"part": "dev"}, "unknown part 'dev'; there are train, validation, test"),
        ({"seeds": 4}, "seeds is 4"),
        ({"players": {"mine": {0: "sc@4"}}}, "the steps that mine was trained for is 0"),
        (
            {"players": Agent(print, at.make("WidthDepth-v0", "smollm2", max_branches=2)[0])},
            "opens 2 branches",
        ),
        ({"players": "esc"}, "esc has no values to sweep"),
        ({"players": {"mine": {10.0: "sc@4"}}}, "the steps that mine was trained for is 10.0"),
        ({"players": {"mine": []}}, "mine has no policies; give one of each training seed"),
        ({"players": {"mine": {10: []}}}, "mine has no policies"),
        ({"players": {"mine": {}}}, "mine has no policies"),
        ({"players": {"mine": {10: ["sc@4", "sc@2", "sc@4"]}}}, "mine has a policy twice"),
        ({"players": {"mine": [print] * 5}}, "mine has a policy twice"),
        ({"players": {1: "sc@4"}}, "the name of an entry is 1, but it must be text"),
        ({"players": {"": "sc@4"}}, "the name of an entry is ''"),
        ({"players": {"published": "sc@4"}}, "an entry is called published, but so is a reference"),
        ({"players": [{"a": "sc@4"}, {"a": "sc@2"}]}, "a: given more than once; name your own"),
        ({"players": [{"a": {10: "sc@4"}}, {"a": {10: "sc@2"}}]}, "a/10: given more than once"),
        ({"players": np.array(["sc@4", "sc@2"])}, "ndarray is neither a Controller"),
        ({"baseline": "sc@2"}, "baseline is 'sc@2', but it must be sc@1, published or an entry"),
        ({"players": "random", "baseline": "random"}, "an entry with one training seed and one length"),
        ({"players": {"a": {10: "sc@4", 20: "sc@2"}}, "baseline": "a"}, "an entry with one training seed"),
    ],
)
def test_bad_arguments(data, arguments, message):
    with pytest.raises(at.InputError, match=message):
        bench(**({"task": TINY, "data": data, "players": "sc@1"} | arguments))
