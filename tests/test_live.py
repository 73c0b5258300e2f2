"""Controllers live and in replay: the same decisions, answers and tokens."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import jax
import numpy as np
import pytest

from autotts_jax.collect import (
    Cancelled,
    EngineError,
    Grader,
    Plan,
    Problem,
    Sampling,
    SimulatedEngine,
    Store,
    collect_unit,
)
from autotts_jax.core.pool import ReplayPool, StopReason
from autotts_jax.core.stepping import Decision, Ended, ReplayExecutor
from autotts_jax.errors import InputError
from autotts_jax.live import answer
from autotts_jax.policies import select
from autotts_jax.policies.programs import BudgetError
from autotts_jax.replay.orders import BranchOrders

pytestmark = pytest.mark.usefixtures("compile_fast")

WIDTH = 16
SAMPLING = Sampling(interval=20, max_tokens=400, seed=3)
QUESTIONS = tuple(Problem(text, "7") for text in ("What is 3 + 4?", "What is 9 - 2?", "What is 1 * 7?"))
EXAMPLES = Path(__file__).parents[1] / "examples"
PLAYERS = (
    "sc@8",
    "asc@16",
    "esc@16",
    "parallel-probe@16",
    "cmc@0",
    "cmc@0.3",
    "neural@5e-5",
    f"{EXAMPLES}/my_controller.py:first_finishers@0.25",
    f"{EXAMPLES}/released_programs.py:OptimalController@0.2",
)


@pytest.fixture(scope="module")
def grader():
    with Grader(1) as grader:
        yield grader


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """What a collection by the same seeds has recorded."""
    plan = Plan("simulated", "sums", QUESTIONS, num_branches=WIDTH, chunk=8, sampling=SAMPLING)
    with Store.writing(tmp_path_factory.mktemp("live") / "run", plan, {}) as store:
        for unit in store.missing():
            store.write(collect_unit(SimulatedEngine(), plan, unit))
        return store.export()


def live(spec, grader, question=QUESTIONS[0].text, engine=None, **settings):
    engine = engine or SimulatedEngine()
    settings = {"sampling": SAMPLING, "max_branches": WIDTH} | settings
    return answer(engine, question, spec, grader=grader, **settings)


def replayed(dataset, row: int, spec: str) -> tuple[list[Decision], Ended, ReplayPool]:
    """The episode of a player in replay."""
    pool = ReplayPool.begin(jax.device_put(dataset.matrix), row, np.arange(WIDTH, dtype=np.int32))
    executor = ReplayExecutor(pool, dataset.questions[row].answer)
    decisions: list[Decision] = []
    ended = select(spec).play_episode(executor, decisions.append)
    return decisions, ended, executor.pool


@pytest.mark.parametrize("spec", PLAYERS)
def test_a_live_run_is_the_replay_of_a_collection_by_the_same_seeds(spec, dataset, grader):
    orders = BranchOrders(np.arange(WIDTH, dtype=np.int32)[None, None], np.zeros(len(QUESTIONS), np.int32))
    play = select(spec).play(dataset, orders)
    for row, asked in enumerate(QUESTIONS):
        found = live(spec, grader, asked.text)
        decisions, ended, pool = replayed(dataset, row, spec)
        assert found.decisions == decisions
        assert found.answer == ended.answer == play.answer[0, 0, row]
        assert found.tokens == int(pool.tokens) == play.tokens[0, 0, row]
        assert found.sequential_tokens == ended.sequential_tokens == play.sequential_tokens[0, 0, row]
        assert len(found.texts) == int(pool.opened) == play.branches[0, 0, row]
        assert (found.stop, found.rounds) == (ended.stop, ended.rounds)
        if play.rounds is not None:
            assert (found.stop, found.rounds) == (play.stop_reason[0, 0, row], play.rounds[0, 0, row])


def test_real_tokens_are_those_that_were_charged_but_for_short_branches(grader):
    found = live("cmc@0.3", grader)
    assert 0 < found.usage.generated <= found.tokens
    assert found.usage.probes > 0
    assert found.usage.forced == 2 * found.usage.probes  # a digit and a brace


def test_a_budget_is_kept(grader):
    for budget in (0, 19, 20, 300, 1000):
        found = live("cmc@0.3", grader, budget=budget)
        assert found.tokens <= budget
        assert found.usage.generated <= budget
        assert found.stop in (StopReason.BUDGET, StopReason.EXHAUSTED)
    assert found.answer is not None


def test_decisions_are_told_as_they_are_made(grader):
    told = []
    found = live("cmc@0.3", grader, on_decision=told.append)
    assert told == found.decisions
    tokens = [decision.tokens for decision in told]
    assert tokens == sorted(tokens)


class Interrupting(SimulatedEngine):
    """Does something at one of its batches."""

    def __init__(self, at, what):
        super().__init__()
        self._left, self._what = at, what

    def generate(self, requests, cancel=None):
        self._left -= 1
        if self._left == 0:
            self._what()
        return super().generate(requests, cancel)


def test_a_run_ends_when_it_is_cancelled(grader):
    cancel = threading.Event()
    engine = Interrupting(5, cancel.set)
    with pytest.raises(Cancelled):
        live("cmc@0.3", grader, engine=engine, cancel=cancel)


def test_a_run_ends_when_the_engine_does(grader):
    def fail():
        raise EngineError("the engine is gone")

    with pytest.raises(EngineError, match="gone"):
        live("cmc@0.3", grader, engine=Interrupting(5, fail))


def test_a_question_that_is_too_long_is_refused(grader):
    engine = SimulatedEngine()
    engine.max_model_len = 500
    with pytest.raises(InputError, match=r"takes 500; lower max_tokens to \d+$"):
        live("sc@2", grader, "a" * 100, engine)
    with pytest.raises(InputError, match=r"takes 500; shorten the question$"):
        live("sc@2", grader, "a" * 500, engine)


# --- released programs ----------------------------------------------------------------------------------


class Greedy:
    """Reads on until the budget forbids it."""

    def __init__(self, config=None):
        self.config = config

    def solve(self, question):
        answer, index, _ = question.probe_new()
        with contextlib.suppress(BudgetError):
            while True:
                answer, finished = question.probe_more(index)
                if finished:
                    answer, index, _ = question.probe_new()
        return answer


class Broken(Greedy):
    def solve(self, question):
        return question.probe_new()[5]


class Careless(Greedy):
    def solve(self, question):
        try:
            return question.probe_new()[0]
        except Exception:
            return "7"


def test_a_released_program_keeps_its_budget_and_its_failures_are_told(grader):
    found = live(f"{__file__}:Greedy", grader, budget=330)
    assert 310 < found.tokens <= 330
    assert found.answer in set("0123456789")
    with pytest.raises(InputError, match=r"Broken' failed(.|\n)*IndexError"):
        live(f"{__file__}:Broken", grader)


def test_a_program_cannot_swallow_what_ended_the_engine(grader):
    def fail():
        raise EngineError("the engine is gone")

    with pytest.raises(EngineError, match="gone"):
        live(f"{__file__}:Careless", grader, engine=Interrupting(1, fail))
