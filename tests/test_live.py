"""Players on a running model: budgets, cancelling and failures; test_every_face has what they play."""

from __future__ import annotations

import contextlib
import dataclasses
import threading

import numpy as np
import pytest

from autotts_jax.collect import (
    Cancelled,
    EngineError,
    Finish,
    LocalWorkers,
    MathGrader,
    Plan,
    Problem,
    Sampling,
    SimulatedEngine,
    collect,
)
from autotts_jax.core import StopReason
from autotts_jax.errors import InputError
from autotts_jax.live import Votes, answer
from autotts_jax.policies import select
from autotts_jax.policies.sealed.question import BudgetError
from autotts_jax.replay import BranchOrders

WIDTH = 8
SAMPLING = Sampling(interval=20, max_tokens=400, seed=3)
QUESTION = "What is 3 + 4?"


@pytest.fixture(scope="module")
def grader():
    with MathGrader(1) as grader:
        yield grader


def live(spec, grader, question=QUESTION, engine=None, **settings):
    engine = engine or SimulatedEngine()
    settings = {"sampling": SAMPLING, "max_branches": WIDTH} | settings
    return answer(engine, question, spec, grader=grader, **settings)


@pytest.mark.slow
def test_real_tokens_are_those_that_were_charged_but_for_short_branches(grader):
    found = live("cmc@0.3", grader)
    assert 0 < found.usage.generated <= found.tokens
    assert found.usage.probes > 0
    assert found.usage.forced == 2 * found.usage.probes  # a digit and a brace


def test_a_budget_is_kept(grader):
    for budget in (20, 300, 1000):
        found = live("cmc@0.3", grader, budget=budget)
        assert found.tokens <= budget
        assert found.usage.generated <= budget
        assert found.stop_reason in (StopReason.BUDGET, StopReason.EXHAUSTED)
        assert found.limited
    assert found.answer is not None
    assert not live("cmc@0.3", grader).limited


@pytest.mark.parametrize("player", ["cmc@0.3", "sc@4", pytest.param("asc@4", marks=pytest.mark.slow)])
@pytest.mark.parametrize("budget", [1, 19, 50])
def test_the_first_branch_is_cut_off_where_the_budget_ends(grader, player, budget):
    found = live(player, grader, budget=budget)
    assert found.usage.generated <= found.tokens <= budget
    assert found.limited
    if budget < SAMPLING.interval:
        assert (found.stop_reason, len(found.texts)) == (StopReason.BUDGET, 1)
        assert [decision.action for decision in found.decisions] == ["read"]
    whole = budget - budget % SAMPLING.interval  # of the last interval the engine is asked for less
    assert found.texts[0][:whole] == live(player, grader).texts[0][:whole]
    assert found.answer is not None


def test_branches_are_read_until_their_lengths_have_spent_the_budget(grader):
    """A full read is priced at the most tokens that a branch can have, which hardly one has."""
    whole = live("sc@4", grader)
    # With the token that ends a text, unless it was cut off.
    lengths = [min(len(text) + 1, SAMPLING.max_tokens) for text in whole.texts]
    assert (whole.stop_reason, whole.limited) == (StopReason.DECIDED, False)
    assert sum(lengths) == whole.tokens < 4 * SAMPLING.max_tokens
    enough = live("sc@4", grader, budget=whole.tokens)
    assert (enough.answer, enough.texts, enough.limited) == (whole.answer, whole.texts, False)
    short = live("sc@4", grader, budget=sum(lengths[:2]) + SAMPLING.interval)
    assert short.texts == [*whole.texts[:2], whole.texts[2][: SAMPLING.interval]]
    assert (short.stop_reason, short.limited) == (StopReason.BUDGET, True)
    fewer = live("sc@4", grader, budget=sum(lengths[:2]) + SAMPLING.interval - 1)
    assert (fewer.texts, fewer.stop_reason, fewer.limited) == (whole.texts[:2], StopReason.BUDGET, True)


def test_a_budget_of_nothing_is_refused(grader):
    with pytest.raises(InputError, match="a budget of 0 tokens is enough for no branch; give 1 at least"):
        live("cmc@0.3", grader, budget=0)


def test_the_text_is_that_of_a_branch_with_the_answer(grader):
    whole = live("sc@4", grader)
    assert whole.text == f"{whole.texts[1]}\n\nThe final answer is \\boxed{{{whole.answer}}}"
    assert whole.ends == [Finish.stop, Finish.length, Finish.stop, Finish.length]
    assert sum(votes.count for votes in whole.votes) == 4
    (ours,) = (votes.count for votes in whole.votes if votes.answer == whole.answer)
    assert 0.5 < whole.confidence < 1
    assert ours == whole.votes[0].count
    early = live("single@2", grader, sampling=dataclasses.replace(SAMPLING, seed=1))
    assert early.text == f"{early.texts[0]}\n\nThe final answer is \\boxed{{{early.answer}}}"
    assert (early.ends, early.votes) == ([None], [Votes(early.answer, 1)])


@pytest.mark.parametrize("player", ["cmc@0.3", "single@2", "sc@4"])
def test_without_an_answer_a_branch_is_read_to_its_end(grader, player):
    nothing = {"answers": lambda _: None}
    found = live(player, grader, **nothing)
    assert (found.answer, found.confidence) == (None, 0.0)
    assert [votes.answer for votes in found.votes] == [None]
    read_on = live(player, grader, fall_back=True, **nothing)
    assert (read_on.answer, read_on.text) == (None, read_on.texts[read_on.texts.index(read_on.text)])
    assert read_on.ends[read_on.texts.index(read_on.text)] is not None
    limited = live(player, grader, fall_back=True, budget=60, **nothing)
    assert limited.tokens <= 60
    assert limited.text


def test_several_branches_need_a_temperature(grader):
    greedy = dataclasses.replace(SAMPLING, temperature=0)
    with pytest.raises(InputError, match="temperature is 0; it must be above 0 for branches to differ"):
        live("sc@2", grader, sampling=greedy)
    assert live("sc@1", grader, sampling=greedy, max_branches=1).texts == ["3}"]


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


class Spelling(SimulatedEngine):
    """Writes one answer in many ways, by the branch."""

    WAYS = ("{}", "{}.0", "x = {}", r"\text{{{}}}", "{} cm", "9 * {}")

    def complete(self, request):
        written = super().complete(request)
        if request.temperature:
            return written
        way = self.WAYS[sum(request.prompt) % len(self.WAYS)]
        text = way.format(written.text[0]) + "}"
        return dataclasses.replace(written, text=text, tokens=self.tokenizer.encode(text))


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["sc@4", "cmc@0.3"])
def test_the_answer_is_that_of_replay_to_the_letter(grader, tmp_path, spec):
    questions = tuple(Problem(text, "7.0") for text in (QUESTION, "What is 9 - 2?"))
    sampling = dataclasses.replace(SAMPLING, max_tokens=200)  # which most branches reach
    plan = Plan("simulated", "sums", questions, num_branches=WIDTH, sampling=sampling)
    data = collect(plan, tmp_path / "run", LocalWorkers(Spelling()))
    assert {question.gold for question in data.questions} == {"7"}
    assert "ERR" in data.questions[0].vocabulary
    orders = BranchOrders(np.arange(WIDTH, dtype=np.int32)[None, None], np.zeros(len(data), np.int32))
    play = select(spec).play(data, orders)
    for row, asked in enumerate(questions):
        found = live(spec, grader, asked.text, Spelling(), sampling=sampling)
        assert found.answer == play.answer[0, 0, row]
        shown = {answer for decision in found.decisions for answer in decision.answers if answer}
        assert shown <= set(data.questions[row].vocabulary)


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


@pytest.mark.slow
def test_a_released_program_keeps_its_budget_and_its_failures_are_told(grader):
    found = live(f"{__file__}:Greedy", grader, budget=330)
    assert 310 < found.tokens <= 330
    assert found.answer in set("0123456789")
    with pytest.raises(InputError, match=r"Broken' failed(.|\n)*IndexError"):
        live(f"{__file__}:Broken", grader)


@pytest.mark.slow
def test_a_program_cannot_swallow_what_ended_the_engine(grader):
    def fail():
        raise EngineError("the engine is gone")

    with pytest.raises(EngineError, match="gone"):
        live(f"{__file__}:Careless", grader, engine=Interrupting(1, fail))
