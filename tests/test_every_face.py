"""Every player on every face: in batches, look by look in replay, on a running model, in an environment.

The batches are played by what another process would be given.
"""

from __future__ import annotations

import dataclasses
import functools
import pickle
from pathlib import Path
from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import mark_for
from matrices import BRANCHES, random_matrix, shared_orders
from matrices import WIDTH as SMALL_WIDTH

import autotts_jax as at
from autotts_jax.collect import MathGrader, Plan, Problem, Sampling, SimulatedEngine, Store, collect_unit
from autotts_jax.core import (
    Decision,
    Ended,
    Episodes,
    ReplayExecutor,
    ReplayPool,
    StopReason,
    View,
    rollout,
)
from autotts_jax.envs import EnvironmentExecutor, play_in_environment
from autotts_jax.errors import InputError
from autotts_jax.live import answer
from autotts_jax.policies import (
    CMC,
    CONTROLLERS,
    DeepConf,
    NeuralPolicy,
    ParallelProbe,
    SelfConsistency,
    as_player,
)
from autotts_jax.policies.neural.policy import initial_parameters
from autotts_jax.replay import SYNTHETIC_MODELS, BranchOrders, synthetic

WIDTH = 8
GAMMA, KAPPA = 1e-4, 0.5
SAMPLING = Sampling(interval=20, max_tokens=400, seed=3)
QUESTIONS = tuple(Problem(text, "7") for text in ("What is 3 + 4?", "What is 9 - 2?", "What is 1 * 7?"))
ORDERS = BranchOrders(np.arange(WIDTH, dtype=np.int32)[None, None], np.zeros(len(QUESTIONS), np.int32))
EXAMPLES = Path(__file__).parents[1] / "examples"


def random_atomic_policy() -> NeuralPolicy:
    """A network with random parameters, scaled up so that it does many things, by atomic actions."""
    parameters = initial_parameters(4, jax.random.key(12), "atomic")
    return NeuralPolicy(jax.tree.map(lambda leaf: 3 * leaf, parameters), 1e-4)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class DeepestFirst(SelfConsistency):
    """Answers the final of the longest branches, whatever the majority is."""

    def answer(self, memory, view):  # noqa: ARG002
        return view.vote_finals(weights=4.0**view.depth)


PROGRAMS = f"{EXAMPLES}/released_programs.py"


def program(name, **config):
    """A program of the examples with settings of its own."""
    return dataclasses.replace(as_player(f"{PROGRAMS}:{name}"), config=config)


pytestmark = pytest.mark.filterwarnings("ignore:neural was trained on 500 tokens between two probes")

PLAYERS = {
    "SC": "sc@8",
    "ASC": "asc@8",
    "ESC": "esc@8",
    "Parallel-Probe": "parallel-probe@8",
    "CMC of the least budget": "cmc@0",
    "CMC": "cmc@0.3",
    "distilled": "distilled@0.4",
    "short-m": "short-m@8",
    "first finish": "first-finish@8",
    "SPRT": "sprt@8",
    "ASC by Dirichlet": "asc-dirichlet@8",
    "ASC by entropy": "asc-entropy@8",
    "ASC by majority": "asc-majority@8",
    "Best-of-∞": "best-of-infinity@8",
    "certified majority": "certified-majority@8",
    "doubling": "doubling-sc@8",
    "ES-CoT": "es-cot@2",
    "weighted": lambda: DeepestFirst(8),
    "single": "single@2",
    "neural": "neural@5e-5",
    "neural, atomic": random_atomic_policy,
    "own controller": f"{EXAMPLES}/my_controller.py:first_finishers@0",
    "program": f"{PROGRAMS}:OptimalController@0.05",
    "Parallel-Probe as a program": functools.partial(program, "ParallelProbe", num_chains=WIDTH),
}


@functools.cache
def player(name):
    found = PLAYERS[name]
    return as_player(found() if callable(found) else found)


@pytest.fixture(scope="module")
def grader():
    with MathGrader(1) as grader:
        yield grader


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """What a collection with the live runs' seed has recorded."""
    plan = Plan("simulated", "sums", QUESTIONS, num_branches=WIDTH, chunk=4, sampling=SAMPLING)
    with Store.writing(tmp_path_factory.mktemp("live") / "run", plan, {}) as store:
        for unit in store.missing():
            store.write(collect_unit(SimulatedEngine(), plan, unit))
        return store.export()


class Watched(gymnasium.Wrapper):
    """Keeps what the environment told last."""

    def reset(self, **kwargs):
        observation, self.told = self.env.reset(**kwargs)
        return observation, self.told

    def step(self, action):
        *rest, self.told = self.env.step(action)
        return *rest, self.told


@pytest.fixture(scope="module")
def make(dataset):
    """Makes an environment over the dataset."""

    def make(name="WidthDepth-v0", **settings):
        common = {"data": dataset.matrix, "max_branches": WIDTH, "obs": "history"}
        settings = common | {"gamma": GAMMA, "kappa_probe": KAPPA} | settings
        return Watched(gymnasium.make(name, disable_env_checker=True, **settings))

    return make


@pytest.fixture(scope="module")
def environment(make):
    return make()


class Played(NamedTuple):
    """An episode that was played one look at a time."""

    decisions: list[Decision]
    ended: Ended
    view: View


def replayed(dataset, row, play, budget=None) -> Played:
    pool = ReplayPool.begin(jax.device_put(dataset.matrix), row, ORDERS.of(row, 0), budget)
    return stepped(ReplayExecutor(pool, dataset.questions[row].answer), play)


def stepped(executor, play) -> Played:
    decisions: list[Decision] = []
    ended = play(executor, decisions.append)
    return Played(decisions, ended, executor.view())


def in_environment(env, row, play, budget=None) -> tuple[Played, EnvironmentExecutor]:
    options = {"question": row, "order": ORDERS.of(row, 0)}
    executor = EnvironmentExecutor(env, options=options, budget=budget)
    return stepped(executor, play), executor


QUICK = ("CMC",)
SLOW = (
    "DEER",
    "CMC of the least budget",
    "SC",
    "ASC",
    "ESC",
    "Parallel-Probe",
    "distilled",
    "short-m",
    "first finish",
    "SPRT",
    "neural, atomic",
    "program",
    "CISC",
    "DeepConf",
    "Dynasor",
)
"""Players that do what no other does; those that are neither quick nor here are played nightly."""


def played_by(names):
    """Parameters of a test, one a player."""
    return [pytest.param(name, marks=mark_for(name, SLOW, QUICK)) for name in names]


@pytest.mark.parametrize("name", played_by(PLAYERS))
def test_a_player_plays_the_same_episode_everywhere(name, dataset, grader, environment):
    batch = pickle.loads(pickle.dumps(player(name))).play(dataset, ORDERS)
    for row, question in enumerate(QUESTIONS):
        replay = replayed(dataset, row, player(name).play_episode)
        assert_same_in_batch(batch, row, replay)
        decisions, ended, view = replay
        if row == 0:
            trace = at.trace(dataset, player(name), recorded=True, max_branches=WIDTH)
            *steps, last = [step.decision for step in trace.steps]
            assert (steps, last.action, trace.answer) == (decisions, "answer", ended.answer)
            assert (last.round, trace.stop_reason) == (ended.rounds, ended.stop_reason)
        live = answer(
            SimulatedEngine(),
            question.text,
            player(name),
            grader=grader,
            sampling=SAMPLING,
            max_branches=WIDTH,
        )
        assert live.decisions == decisions
        assert (live.answer, live.stop_reason, live.rounds) == (ended.answer, ended.stop_reason, ended.rounds)
        assert live.sequential_tokens == ended.sequential_tokens
        assert live.tokens == int(view.tokens)
        assert len(live.texts) == int(view.opened)

        played, executor = in_environment(environment, row, player(name).play_episode)
        assert_same_in_environment(dataset, row, played, replay)
        assert_environment_answers(dataset, row, environment, executor, played, ended)


def assert_same_in_batch(batch, row, replay):
    _, ended, view = replay
    assert ended.answer == batch.answer[0, 0, row]
    assert ended.sequential_tokens == batch.sequential_tokens[0, 0, row]
    for name in ("tokens", "intervals", "probes"):
        assert int(getattr(view, name)) == getattr(batch, name)[0, 0, row]
    assert int(view.opened) == batch.branches[0, 0, row]
    if batch.rounds is not None:
        assert (ended.rounds, ended.stop_reason) == (batch.rounds[0, 0, row], batch.stop_reason[0, 0, row])


OF_SIGNALS = {
    "CISC": "cisc@8",
    "offline DeepConf": "deepconf-offline@8",
    "DeepConf": lambda: DeepConf(WIDTH, warm_up=4),
    "Dynasor": "dynasor@2",
    "DEER": "deer@0.8",
    "EAT": "eat@0.3",
}
"""Players that read signals, which this collection does not have."""


@pytest.fixture(scope="module")
def with_signals(make):
    """Data with signals, and an environment over them that shows all."""
    data = synthetic(models=SYNTHETIC_MODELS[:1], questions=len(QUESTIONS), branches=WIDTH, signals=True)
    # Some answer with a branch that is not finished.
    return data, make(data=data.matrix, signals=sorted(data.matrix.signals), aggregate="latest")


@pytest.mark.parametrize("name", played_by(OF_SIGNALS))
def test_a_player_of_signals_plays_the_same_episode_in_every_replay(name, with_signals):
    data, env = with_signals
    found = OF_SIGNALS[name]
    reader = as_player(found() if callable(found) else found)
    batch = pickle.loads(pickle.dumps(reader)).play(data, ORDERS)
    for row in range(len(QUESTIONS)):
        replay = replayed(data, row, reader.play_episode)
        assert_same_in_batch(batch, row, replay)
        played, executor = in_environment(env, row, reader.play_episode)
        assert_same_in_environment(data, row, played, replay)
        for signal in data.matrix.signals:
            np.testing.assert_array_equal(played.view.signal(signal), replay.view.signal(signal))
        view = played.view
        if np.any(view.active & view.agrees(replay.ended.leader)):  # those that leave a branch prune it
            assert_environment_answers(data, row, env, executor, played, replay.ended)


def test_every_registered_player_is_here():
    specs = [
        spec.partition("@")[0] for spec in (*PLAYERS.values(), *OF_SIGNALS.values()) if isinstance(spec, str)
    ]
    assert {*CONTROLLERS, "neural"} - {*specs} == {
        "deepconf",  # it is here with fewer first branches
        "best-of-n",  # scores are not among the signals that are collected
        "weighted-majority",
    }


def assert_same_in_environment(dataset, row, played, replay):
    """The same but for names of answers, and for tokens of full reads, which are charged as stepwise."""
    assert [(d.round, d.action, d.branches, d.intervals) for d in played.decisions] == [
        (d.round, d.action, d.branches, d.intervals) for d in replay.decisions
    ]
    numbers: dict[str | None, str | None] = {None: None}
    beyond, full = stepwise_beyond(dataset.matrix, row), 0
    for ours, theirs in zip(played.decisions, replay.decisions, strict=True):
        for number, text in zip(ours.answers, theirs.answers, strict=True):
            assert numbers.setdefault(number, text) == text
        full += sum(beyond[ours.branches]) if ours.action == "read" else 0
        assert ours.tokens == theirs.tokens + full
    assert len(set(numbers.values())) == len(numbers)
    assert numbers[played.ended.answer] == replay.ended.answer
    assert played.ended[1:4] == replay.ended[1:4]  # leader, stop and rounds
    assert full or played.ended.sequential_tokens == replay.ended.sequential_tokens
    for name in ("depth", "active", "finished", "revealed_depth", "opened", "intervals", "probes"):
        assert np.array_equal(getattr(played.view, name), getattr(replay.view, name)), name


def stepwise_beyond(matrix, row):
    """By how much reading each branch step by step exceeds its tokens."""
    return np.maximum(matrix.interval[row] * matrix.lengths[row] - matrix.tokens[row], 0)


def assert_environment_answers(dataset, row, env, executor, played, ended):
    """The environment answers as the player does, and pays for it."""
    executor.answer_with(played.ended.leader)
    told = env.told
    assert dataset.questions[row].answer(told["answer"]) == ended.answer
    assert told["correct"] == (ended.answer == dataset.questions[row].gold)
    assert told["tokens"] == int(played.view.tokens)
    cost = told["intervals"] + KAPPA * told["probes"]
    assert executor.total_reward == pytest.approx(told["correct"] - GAMMA * cost, abs=1e-6)


BUDGET = 900
BUDGETED = ("CMC", "Parallel-Probe", "neural, atomic")
"""Players that read step by step: a full read that exceeds the budget is left out, and its steps are not."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=mark_for(name, ["CMC"])) for name in BUDGETED])
def test_a_budget_ends_the_same_episode_everywhere(name, dataset, make):
    env = make(budget=BUDGET)
    batch = player(name).play(dataset, ORDERS, budget=BUDGET)
    assert (batch.tokens <= BUDGET).all()
    assert StopReason.BUDGET in batch.stop_reason
    for row in range(len(QUESTIONS)):
        replay = replayed(dataset, row, player(name).play_episode, BUDGET)
        assert replay.ended.answer == batch.answer[0, 0, row]
        assert (replay.ended.rounds, replay.ended.stop_reason) == (
            batch.rounds[0, 0, row],
            batch.stop_reason[0, 0, row],
        )
        assert int(replay.view.tokens) == batch.tokens[0, 0, row]
        played, executor = in_environment(env, row, player(name).play_episode, BUDGET)
        assert_same_in_environment(dataset, row, played, replay)
        assert_environment_answers(dataset, row, env, executor, played, replay.ended)


# --- environments ---------------------------------------------------------------------------------------


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LastOne(SelfConsistency):
    """Answers what the last branch says, whatever the majority is."""

    def answer(self, memory, view):  # noqa: ARG002
        return view.vote(jnp.arange(view.width) == view.width - 1)


SMALL = random_matrix(5, abstain=0.2)
"""Answers that may not vote, finals that do not repeat the last probe, and steps that exceed T and do not."""
SMALL_ORDERS = shared_orders([np.random.default_rng(s).permutation(BRANCHES)[:SMALL_WIDTH] for s in range(3)])


@pytest.mark.parametrize(
    ("controller", "aggregate"),
    [
        pytest.param(CMC.of_beta(0.5), "majority", marks=pytest.mark.slow),
        pytest.param(
            ParallelProbe(SMALL_WIDTH, stability=10, prune_patience=3, warm_up=4, burst=5),
            "latest",
            marks=pytest.mark.slow,
        ),
        pytest.param(SelfConsistency(SMALL_WIDTH), "majority", marks=pytest.mark.slow),
        pytest.param(LastOne(SMALL_WIDTH), "latest", marks=pytest.mark.slow),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_the_environment_answers_as_the_controller_does(controller, aggregate, make):
    env = make(data=SMALL, max_branches=SMALL_WIDTH, aggregate=aggregate)
    question, row = (axis.reshape(-1) for axis in np.indices((SMALL.num_questions, SMALL_ORDERS.num_rows)))
    results = rollout([controller], SMALL, SMALL_ORDERS, Episodes(question, row, 0 * row))
    for e, (q, order) in enumerate(zip(question.tolist(), SMALL_ORDERS.of(question, row), strict=True)):
        decisions: list[Decision] = []
        ended, reward = play_in_environment(
            controller, env, options={"question": q, "order": order}, on_decision=decisions.append
        )
        assert env.told["answer"] == results.answer[e]
        assert (ended.rounds, ended.stop_reason) == (results.rounds[e], results.stop_reason[e])
        assert sum(sum(decision.intervals) for decision in decisions) == results.intervals[e]
        assert (env.told["intervals"], env.told["probes"]) == (results.intervals[e], results.probes[e])
        full = [b for decision in decisions if decision.action == "read" for b in decision.branches]
        stepwise = np.sum(stepwise_beyond(SMALL, q)[order[full]])
        assert env.told["tokens"] == results.tokens[e] + stepwise
        paid = GAMMA * (env.told["intervals"] + KAPPA * env.told["probes"])
        assert reward == pytest.approx(results.correct[e] - paid, abs=1e-6)


def test_the_seed_draws_the_episode(make):
    env = make()
    told = []
    for seed in (1, 1, 2):
        play_in_environment(CMC.of_beta(0.3), env, seed=seed)
        told.append(dict(env.told, action_mask=None))
    assert told[0] == told[1] != told[2]


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("WidthDepth-v0", {"obs": "features"}, "obs='history'"),
        pytest.param("WidthDepth-v0", {"obs": "flat"}, "obs='history'", marks=pytest.mark.slow),
        ("WidthDepth-v0", {"fused": True}, "or is fused"),
        ("WidthDepthRounds-v0", {}, "other actions than WidthDepth-v0's"),
        ("WidthDepth-v0", {"max_steps": 9}, "larger max_steps"),
    ],
)
def test_environments_that_do_not_fit_are_refused(make, name, settings, message):
    with pytest.raises(InputError, match=message):
        play_in_environment(CMC.of_beta(0.3), make(name, **settings))
