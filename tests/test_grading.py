"""Grading and clustering of answers in worker processes."""

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from answer_cases import CASES
from grading_cases import NO_ANSWER, PAIRS, TOPICS
from hypothesis import given, settings
from hypothesis import strategies as st

from autotts_jax.collect import MathGrader, grading
from autotts_jax.errors import InputError

FORMULAS = [rf"{i} + \sqrt{{2}}" for i in range(100)]
"""Answers for which workers need seconds."""


@pytest.fixture(scope="module")
def grader():
    with MathGrader(workers=2, timeout=1) as grader:
        yield grader


def children():
    """The processes that this one has started."""
    return {process.pid for process in psutil.Process().children()}


def gone(pids, seconds=60):
    """Waits until none of some processes runs."""
    end = time.monotonic() + seconds
    while any(map(psutil.pid_exists, pids)) and time.monotonic() < end:
        time.sleep(0.02)
    return not any(map(psutil.pid_exists, pids))


# --- verdicts


@pytest.fixture(scope="module")
def forms(grader):
    """The canonical form of each answer of the corpus, found in one call."""
    answers = dict.fromkeys([*NO_ANSWER, *itertools.chain(*itertools.chain(*TOPICS.values()))])
    return dict(zip(answers, grader.forms(list(answers)), strict=True))


@pytest.mark.slow
def test_every_verdict_is_as_listed(grader):
    with ThreadPoolExecutor(4) as threads:
        verdicts = threads.map(lambda case: grader.correct(case[2], [case[3]]), CASES)
        wrong = [case for case, verdict in zip(CASES, verdicts, strict=True) if verdict != [case[4]]]
    assert wrong == []


@pytest.mark.parametrize("topic", TOPICS)
def test_answers_are_equal_as_the_corpus_says(forms, topic):
    found = [[forms[answer] for answer in same] for same in TOPICS[topic]]
    assert [set(same) for same in found] == [{same[0]} for same in found]
    assert len({same[0] for same in found}) == len(found)
    assert "ERR" not in itertools.chain(*found)


def test_the_corpus_is_large_enough():
    assert len(set(PAIRS)) >= 400
    assert sum(verdict for *_, verdict in PAIRS) >= 400


def test_what_is_no_answer_is_never_right(grader, forms):
    assert {answer: forms[answer] for answer in NO_ANSWER} == dict.fromkeys(NO_ANSWER, "ERR")
    assert not any(grader.correct("12", NO_ANSWER))


def test_unrelated_equations_are_not_equal(grader):
    equations = ["184 + 184 = 360", "128 + 42 = 160", "1+1=2", "3+3=6", "360"]
    assert grader.forms(equations) == ["360", "160", "2", "6", "360"]
    assert grader.correct("72", equations) == [False] * 5


def test_the_question_again_is_no_answer(grader):
    assert grader.correct("12", ["7 + 5", "7 + 5 = 12", "12", "7 + 5 = 13"]) == [False, True, True, False]
    assert grader.forms(["7 + 5", "9 * 3", "x = 9 * 3"]) == ["ERR"] * 3
    # An option says otherwise, and a reference answer may be arithmetic.
    with MathGrader(1, arithmetic=True) as evaluating:
        assert evaluating.forms(["7 + 5", "9 * 3", "x = 9 * 3"]) == ["12", "27", "27"]
    assert grader.correct("7 + 5", ["12", "7 + 5"]) == [True, False]


def test_a_form_is_the_form_of_itself(grader, forms):
    """What is written in canonical forms can be graded again."""
    written = list(dict.fromkeys(forms.values()))
    assert grader.forms(written) == written


ANSWERS = sorted({*NO_ANSWER, *itertools.chain(*itertools.chain(*TOPICS.values()))})


@settings(max_examples=50, deadline=None)
@given(*[st.sampled_from(ANSWERS)] * 3)
def test_being_equal_is_an_equivalence(grader, forms, a, b, c):
    """It is so by construction; these are the verdicts of pairs that are graded on their own."""

    def equal(one, other):
        return grader.forms([one]) == grader.forms([other])

    assert equal(a, a)
    assert equal(a, b) == equal(b, a)
    if equal(a, b) and equal(b, c):
        assert equal(a, c)
    if "ERR" not in (forms[a], forms[b]):
        assert grader.correct(a, [b]) == grader.correct(b, [a]) == [equal(a, b)]


def test_known_strings_need_no_worker():
    before = children()
    with contextlib.closing(MathGrader(workers=1)) as idle:
        known = ["12", "+12.0", "13", "ERR", "some words", "(b)", "12 cm", "7 + 5"]
        assert idle.correct("12", known) == [True, True, False, False, False, False, True, False]
        assert children() == before


def test_many_threads_may_use_it(grader):
    with ThreadPoolExecutor(8) as threads:
        verdicts = list(
            threads.map(lambda i: grader.correct(f"x + {i}", ["1 + x", "x+2", "3 + x", "ERR"]), range(24))
        )
    assert verdicts == [[i == 1, i == 2, i == 3, False] for i in range(24)]


# --- processes


def test_killed_workers_are_replaced():
    others = children()
    with MathGrader(workers=2, timeout=1) as grader, ThreadPoolExecutor() as threads:
        grader.forms(["x"])
        grader.correct("7", [r"\sqrt{2}"])
        first = children() - others
        verdicts = threads.submit(
            grader.correct, r"\sqrt{2}", [f"{answer} - {i}" for i, answer in enumerate(FORMULAS)]
        )
        time.sleep(0.1)
        for pid in first:
            os.kill(pid, signal.SIGKILL)
        assert not verdicts.done()
        assert all(verdicts.result(60))
        second = children() - others
    assert len(first) == len(second) == 2
    assert first.isdisjoint(second)


STUCK = """
import json, os, sys; sys.path[:] = json.loads(sys.argv[1])
from autotts_jax.collect import grading

def form(text, arithmetic, form=grading.form):
    if text == "x + 3":
        sum(range(10**15))  # in C, where no alarm ends it
    if text == "x + 4 + x":
        os.abort()
    return form(text, arithmetic)

grading.form = form
grading.serve(int(sys.argv[2]), int(sys.argv[3]))
"""


@pytest.mark.slow
def test_a_stuck_worker_costs_one_answer(monkeypatch):
    monkeypatch.setattr(grading, "PROGRAM", STUCK)
    with MathGrader(workers=1, timeout=1) as grader:
        assert grader.forms(["1 + x", "x + 3", "2 + x", "x + 2"]) == ["x + 1", "x + 3", "x + 2", "x + 2"]
        # So does one at which workers crash.
        assert grader.forms(["x+x", "x + 4 + x", "4 + 2x"]) == ["2x", "x + 4 + x", "2x + 4"]


def test_closing_leaves_no_process():
    threads_before, others = threading.active_count(), children()
    with MathGrader(workers=2, timeout=1) as grader, ThreadPoolExecutor() as threads:
        grader.correct("7", [r"\sqrt{2}"])
        left = children() - others
        busy = threads.submit(grader.forms, FORMULAS)
        time.sleep(0.1)
        grader.close()
        with pytest.raises(InputError, match="the grader is closed"):
            busy.result(10)
    assert len(left) == 2
    assert gone(left)
    assert threading.active_count() == threads_before
    with pytest.raises(InputError, match="the grader is closed"):
        grader.correct("1/2", ["0.5"])
    with pytest.raises(InputError, match="the grader is closed"):
        grader.forms(["x + 1"])
    grader.close()


SCRIPT = """
from autotts_jax.collect import MathGrader
with MathGrader(workers=2, timeout=2) as grader:
    grader.correct("7", ["x + 1"])
    print("ready", flush=True)
    grader.correct("7", ["9^{9^{9^9}}"])
"""


@pytest.mark.parametrize("sign", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)])
def test_workers_do_not_outlive_their_program(tmp_path, sign):
    """And the script needs no ``if __name__ == "__main__":``."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    with (
        (tmp_path / "errors.txt").open("w+") as errors,
        subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, stderr=errors) as program,
    ):
        program.stdout.readline()
        workers = [process.pid for process in psutil.Process(program.pid).children()]
        assert len(workers) == 2
        time.sleep(0.2)
        program.send_signal(sign)
        program.wait(60)
        errors.seek(0)
        assert ("KeyboardInterrupt" in errors.read()) == (sign == signal.SIGINT)
    # One that computes while its program is killed notices at its next answer.
    assert gone(workers)


def test_workers_import_no_jax():
    program = (
        "import sys, autotts_jax.collect.grading\n"
        "from autotts_jax.replay.equivalence import form, start_worker\n"
        "start_worker(5)\n"
        "print(form('1 + x'))\n"
        "print({'jax', 'jaxlib', 'flax'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "x + 1\nset()\n"


def test_workers_that_do_not_start(monkeypatch):
    monkeypatch.setattr(grading, "PROGRAM", "raise SystemExit")
    with MathGrader(workers=1) as grader, pytest.raises(InputError, match="do not start"):
        grader.correct("1/2", ["x + 1"])


def test_bad_arguments():
    with pytest.raises(InputError, match="workers is 0"):
        MathGrader(0)
    for timeout in (0, -1, float("inf"), float("nan")):
        with pytest.raises(InputError, match="timeout is"):
            MathGrader(1, timeout)


def test_without_the_parser(monkeypatch):
    monkeypatch.setitem(sys.modules, "latex2sympy2_extended", None)
    with pytest.raises(InputError, match=r"pip install 'autotts-jax\[equiv\]'"):
        MathGrader()
