"""Grading and clustering of answers in worker processes."""

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
from hypothesis import given, settings
from hypothesis import strategies as st

from autotts_jax.collect import AnswerBook, Grader, grading
from autotts_jax.errors import InputError

DECIMALS = [f"{i}.5" for i in range(400)]
"""Answers for which workers need about a second."""


@pytest.fixture(scope="module")
def grader():
    with Grader(workers=2, timeout=1) as grader:
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


def test_every_verdict_is_as_listed(grader):
    with ThreadPoolExecutor(4) as threads:
        verdicts = threads.map(lambda case: grader.correct(case[2], [case[3]]), CASES)
        wrong = [case for case, verdict in zip(CASES, verdicts, strict=True) if verdict != [case[4]]]
    assert wrong == []


ANSWERS = [
    *("0.5", "1/2", r"\frac{1}{2}", "$ .5 $", "2", "2.0", "x = 2", r"50\%", "50", "yes", r"\text{Yes}"),
    *("silent", "listen", "4*(2+", "ERR", "", "1, 2", r"\{2, 1\}", "B", "(b)", "(0,1)", "0<x<1"),
]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(ANSWERS)), st.sampled_from([None, "2", "1/2", "yes", "x=2", "ERR", "0<x<1"]))
def test_the_views_agree(grader, answers, gold):
    classes = grader.cluster(answers, gold)
    assert [c for c in dict.fromkeys(classes) if c != -1] == list(range(max(classes, default=-1) + 1))
    assert [c == -1 for c in classes] == [answer in ("ERR", "") for answer in answers]
    spelled = grader.canonical(answers, gold)
    ids = {text: i for i, text in enumerate(dict.fromkeys(text for text in spelled if text != "ERR"))}
    assert [ids.get(text, -1) for text in spelled] == classes
    if gold:
        right = grader.correct(gold, answers)
        assert right == [text == gold and text != "ERR" for text in spelled]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.sampled_from(ANSWERS))))
def test_a_book_gives_the_ids_of_cluster(grader, batches):
    book = AnswerBook(grader)
    ids = [i for batch in batches for i in book.ids(batch)]
    assert ids == grader.cluster([answer for batch in batches for answer in batch])


def test_a_class_keeps_its_id(grader):
    book = AnswerBook(grader)
    assert book.ids(["7", "ERR", "1/2"]) == [0, -1, 1]
    assert book.ids(["0.5", "7.0", "8", "word"]) == [1, 0, 2, 3]
    assert book.ids(["9", "word", "8", "0.5", "7", "9.0", ""]) == [4, 3, 2, 1, 0, 4, -1]


def test_known_strings_need_no_worker():
    before = children()
    idle = Grader(workers=1)  # its workers are started at the first question for them
    assert idle.correct("12", ["12", "+12", "13", "ERR", "words"]) == [True, True, False, False, False]
    assert children() == before
    with Grader(workers=1, timeout=1) as grader:
        book = AnswerBook(grader, gold="1/2")
        assert book.ids(["7", "0.5"]) == [1, 0]
    assert book.ids([" 7. ", "0.5", r"\text{7}", "ERR", "some words"]) == [1, 0, 1, -1, 2]
    with pytest.raises(InputError, match="the grader is closed"):
        book.ids(["8"])


def test_the_canonical_spelling_is_golds_or_the_first(grader):
    answers = ["2/4", "3.0", "ERR", "", "3", "0.5", "no way", "No way."]
    spelled = ["\\frac{1}{2}", "3.0", "ERR", "ERR", "3.0", "\\frac{1}{2}", "no way", "no way"]
    assert grader.canonical(answers, "\\frac{1}{2}") == spelled
    assert grader.canonical(answers)[0] == "2/4"
    assert grader.canonical([], "5") == []


COUNTING = r"""
import math_verify
from autotts_jax.replay.equivalence import Classes, parse_answer, start_worker

start_worker(1)
compared = []
verify = math_verify.verify
math_verify.verify = lambda *pair, **options: compared.append(pair) or verify(*pair, **options)
classes = Classes(parse_answer("5/7"))
answers = [*map(str, range(300)), *(rf"\frac{{{i}}}{{7}}" for i in range(300))]
print([classes.of(parse_answer(answer)) for answer in answers].count(0), len(compared))
"""


def test_few_of_many_answers_are_compared():
    """Only those that are nearly equal are: comparing all pairs would take 300 comparisons each."""
    done = subprocess.run([sys.executable, "-c", COUNTING], capture_output=True, text=True, timeout=300)
    right, compared = map(int, done.stdout.split())
    assert right == 1
    assert compared < 600


def test_many_threads_may_use_it(grader):
    with ThreadPoolExecutor(8) as threads:
        verdicts = list(
            threads.map(lambda i: grader.correct(f"{i}/2", ["0.5", "1", "1.5", "ERR"]), range(24))
        )
    assert verdicts == [[i == 1, i == 2, i == 3, False] for i in range(24)]
    book = AnswerBook(grader)
    with ThreadPoolExecutor(8) as threads:
        labels = list(threads.map(lambda i: book.ids([f"{i % 5}.5", f"{i % 5}.50"]), range(40)))
    assert {first for first, _ in labels} == set(range(5))
    assert all(first == second == labels[i % 5][0] for i, (first, second) in enumerate(labels))


# --- processes


def test_killed_workers_are_replaced():
    others = children()
    with Grader(workers=2, timeout=1) as grader, ThreadPoolExecutor() as threads:
        grader.correct("7", ["0.5"])
        first = children() - others
        verdicts = threads.submit(
            grader.correct, "1/2", [f"{answer} - {i}" for i, answer in enumerate(DECIMALS)]
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

def parse(text, parse_answer=grading.parse_answer):
    if text == "1 + 3":
        sum(range(10**15))  # in C, where no alarm ends it
    if text == "1 + 4":
        os.abort()
    return parse_answer(text)

grading.parse_answer = parse
grading.serve(int(sys.argv[2]), int(sys.argv[3]))
"""


def test_a_stuck_worker_costs_one_answer(monkeypatch):
    monkeypatch.setattr(grading, "PROGRAM", STUCK)
    with Grader(workers=1, timeout=1) as grader:
        assert grader.correct("2", ["1 + 1", "1 + 3", "2.0", "2 + 1"]) == [True, False, True, False]
        # One at which workers crash is compared by its spelling; the classes before it are not forgotten.
        assert grader.cluster(["1 + 6", "2 + 1", "1 + 4", "3.0", "1 + 4.", "4"]) == [0, 1, 2, 1, 2, 3]


def test_closing_leaves_no_process():
    threads_before, others = threading.active_count(), children()
    with Grader(workers=2, timeout=1) as grader, ThreadPoolExecutor() as threads:
        grader.correct("7", ["0.5"])
        left = children() - others
        busy = threads.submit(AnswerBook(grader).ids, DECIMALS)
        time.sleep(0.1)
        grader.close()
        with pytest.raises(InputError, match="the grader is closed"):
            busy.result(10)
    assert len(left) == 2
    assert gone(left)
    assert threading.active_count() == threads_before
    for ask in (grader.correct, AnswerBook):
        with pytest.raises(InputError, match="the grader is closed"):
            ask(*(("1/2", ["0.5"]) if ask == grader.correct else (grader, "x + 1")))
    grader.close()


SCRIPT = """
from autotts_jax.collect import Grader
with Grader(workers=2, timeout=2) as grader:
    grader.correct("7", ["0.5"])
    print("ready", flush=True)
    grader.correct("7", ["9^{9^{9^9}}"])
"""


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
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
        "from autotts_jax.replay.equivalence import Classes, parse_answer, start_worker\n"
        "start_worker(5)\n"
        "print(Classes(parse_answer('1/2')).find(parse_answer('0.5')))\n"
        "print({'jax', 'jaxlib', 'flax'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "0\nset()\n"


def test_workers_that_do_not_start(monkeypatch):
    monkeypatch.setattr(grading, "PROGRAM", "raise SystemExit")
    with Grader(workers=1) as grader, pytest.raises(InputError, match="do not start"):
        grader.correct("1/2", ["0.5"])


def test_bad_arguments():
    with pytest.raises(InputError, match="workers is 0"):
        Grader(0)
    for timeout in (0, -1, float("inf"), float("nan")):
        with pytest.raises(InputError, match="timeout is"):
            Grader(1, timeout)


def test_without_math_verify(monkeypatch):
    monkeypatch.setitem(sys.modules, "math_verify", None)
    with pytest.raises(InputError, match=r"pip install 'autotts-jax\[equiv\]'"):
        Grader()
