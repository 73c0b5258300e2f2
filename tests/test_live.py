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
from autotts_jax.core import pool as branch_pool
from autotts_jax.core import stepping
from autotts_jax.core.controller import Controller
from autotts_jax.core.pool import ReplayPool, StopReason
from autotts_jax.core.rollout import Episodes, rollout
from autotts_jax.errors import InputError
from autotts_jax.live import programs
from autotts_jax.live.answer import FIELDS, LivePool, answer
from autotts_jax.policies.players import select
from autotts_jax.policies.programs import BudgetError, ReplayQuestion, load_program, question_records

pytestmark = pytest.mark.usefixtures("compile_fast")

WIDTH = 16
SAMPLING = Sampling(interval=20, max_tokens=400, seed=3)
QUESTIONS = tuple(Problem(text, "7") for text in ("What is 3 + 4?", "What is 9 - 2?", "What is 1 * 7?"))
CONTROLLERS = ("sc@8", "asc@16", "esc@16", "parallel-probe@16", "cmc@0", "cmc@0.3", "neural@5e-5")


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


def controller(spec: str) -> Controller:
    (found,) = select(spec).controllers
    return found


def live(spec, grader, question=QUESTIONS[0].text, engine=None, **settings):
    engine = engine or SimulatedEngine()
    settings = {"sampling": SAMPLING, "max_branches": WIDTH} | settings
    return answer(engine, question, controller(spec), grader, **settings)


def replayed(dataset, row: int, controller: Controller) -> tuple[list[tuple], stepping.Ended, ReplayPool]:
    """What a controller does in replay, as a live run tells of it."""
    matrix, question = dataset.matrix, dataset.questions[row]
    pool = ReplayPool.begin(jax.device_put(matrix), row, np.arange(WIDTH, dtype=np.int32))
    done: list[tuple] = []

    def note(action, before, after):
        moved = (after.depth > before.depth) | (before.active & ~after.active)
        ids = np.asarray(branch_pool.answer_ids(after))
        shown = np.asarray(branch_pool.state_of(after).shown) > 0
        if (changed := np.flatnonzero(moved)).size:
            answers = [question.answer(ids[b]) if shown[b] else None for b in changed]
            done.append((action, changed.tolist(), answers, int(after.tokens)))
        return after

    def look(pool):
        return LivePool(**{field.name: getattr(pool, field.name) for field in FIELDS})

    def prune(pool, seen):
        return note("prune", pool, pool.prune(pool.active & ~seen.active))

    game = stepping.play(controller, look(pool), lambda: False)
    try:
        asked = next(game)
        while True:
            pool = prune(pool, asked.pool)
            name = type(asked).__name__.lower()
            arguments = [bool(asked.probe)] if name in ("open", "advance") else []
            pool = note(name, pool, getattr(pool, name)(asked.wanted, *arguments))
            asked = game.send(look(pool))
    except StopIteration as over:
        pool = prune(pool, over.value.pool)
        return done, over.value, pool


@pytest.mark.parametrize("spec", CONTROLLERS)
def test_a_live_run_is_the_replay_of_a_collection_by_the_same_seeds(spec, dataset, grader):
    orders = np.arange(WIDTH, dtype=np.int32)[None]
    rows = np.arange(len(QUESTIONS), dtype=np.int32)
    episodes = Episodes(rows, 0 * rows, 0 * rows)
    played = rollout([controller(spec)], dataset.matrix, orders, episodes)
    for row, asked in enumerate(QUESTIONS):
        found = live(spec, grader, asked.text)
        decisions, ended, _ = replayed(dataset, row, controller(spec))
        assert [(d.action, d.branches, d.answers, d.tokens) for d in found.decisions] == decisions
        assert found.answer == dataset.questions[row].answer(played.answer[row])
        assert found.tokens == played.tokens[row] == int(ended.pool.tokens)
        assert found.sequential_tokens == played.sequential_tokens[row]
        assert found.stop == played.stop_reason[row]
        assert found.rounds == played.rounds[row]
        assert len(found.texts) == played.branches[row]


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

PROGRAMS = str(Path(__file__).parents[1] / "examples" / "released_programs.py")


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("SelfConsistency", {"max_samples": 8}),
        ("AdaptiveConsistency", {"max_samples": 16}),
        ("OptimalController", {"beta": 0.2}),
        ("ParallelProbe", {"num_chains": 16}),
    ],
)
def test_a_released_program_live_does_what_it_does_in_replay(name, config, dataset, grader):
    for row, record in enumerate(question_records(dataset)):
        replay = ReplayQuestion(record, range(WIDTH))
        expected = load_program(f"{PROGRAMS}:{name}")(config).solve(replay)
        found = programs.answer(
            SimulatedEngine(),
            QUESTIONS[row].text,
            f"{PROGRAMS}:{name}",
            config,
            grader,
            sampling=SAMPLING,
            max_branches=WIDTH,
        )
        assert found.answer == expected
        assert (found.sequential_tokens, found.tokens) == replay.get_seq_and_total_tokens()
        assert len(found.texts) == replay.opened


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


def test_a_released_program_keeps_its_budget_and_its_failures_are_told(grader):
    def run(name, **settings):
        program = f"{Path(__file__)}:{name}"
        return programs.answer(
            SimulatedEngine(), "What?", program, None, grader, sampling=SAMPLING, **settings
        )

    found = run("Greedy", budget=330)
    assert 310 < found.tokens <= 330
    assert found.answer in set("0123456789")
    with pytest.raises(InputError, match=r"Broken' failed(.|\n)*IndexError"):
        run("Broken")
