"""Candidates that are whole files: what is measured of them, what fails, and what they cannot do."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest

import autotts_jax as at
from autotts_jax.core.controller import Family
from autotts_jax.discovery.judging.judge import Judge, price
from autotts_jax.discovery.judging.measuring import MAX_SOURCE, TRACE, Course, measure, outcome_of
from autotts_jax.discovery.proposers.prompts import CONTRACT, code_of
from autotts_jax.policies import select, self_consistency
from autotts_jax.policies.players import as_player
from autotts_jax.sandbox import Sandbox
from autotts_jax.sandbox.process import LevelError

BETAS = (0.0, 0.5, 1.0)
BRANCHES = 8

VOTES = """
class Votes:
    def __init__(self, config):
        self.branches = 1 + round(6 * config["beta"])

    def solve(self, question):
        shown = [question.get_new_branch_final_answer() for _ in range(self.branches)]
        return max(shown, key=shown.count)


candidate = Votes
"""


@pytest.fixture(scope="module")
def judge():
    return Judge.of(at.load("smollm2").select(range(0, 40, 4)), BRANCHES, 0)


@pytest.fixture(scope="module")
def course(judge):
    limits = Sandbox(seconds=30, memory=1 << 30, wall_seconds=100)
    # Both are played as they are: at β = 0, 0.5 and 1 SC@1, SC@4 and SC@7.
    make = self_consistency.FAMILY.make
    sc = as_player(Family("sc", BETAS, lambda beta: make(1 + round(6 * beta))))
    return Course.of(judge, sc, np.arange(10), range(2), BETAS, limits)


def test_a_program_comes_to_what_the_same_controller_comes_to(course):
    """Votes is SC, which is the incumbent here."""
    measured = measure(VOTES, course)
    metrics = measured.metrics
    theirs = outcome_of(course.incumbent, course.unit)
    assert metrics["objective"] == pytest.approx(float(theirs.objective(BETAS)[0]), abs=1e-6)
    assert metrics["accuracy"] == pytest.approx(theirs.accuracy[0].mean(axis=1).tolist(), abs=1e-4)
    assert metrics["branches"] == [1.0, 4.0, 7.0]
    assert metrics["monotone"]
    # At each price the incumbent has the setting that is best there.
    assert metrics["gain"] <= 0
    assert metrics["gain_low"] <= metrics["gain"] <= metrics["gain_high"]
    assert measured.level == "kernel"
    json.dumps(metrics, allow_nan=False)


def test_feedback_shows_labels_and_is_bounded(course):
    """A program that probes one branch and takes its answer loses where three votes win."""
    source = VOTES.replace('1 + round(6 * config["beta"])', '7 - round(6 * config["beta"])')
    measured = measure(source, course)
    assert not measured.metrics["monotone"]
    text = measured.feedback
    assert "FALL from β = 0, 0.5 to the next" in text
    assert "gain over sc" in text
    assert "trace at β = 1: wrong, where sc is right with" in text
    assert len(text) < 10_000
    for answer in re.findall(r"answered (\S+);|\((\S+):\d+", text):
        assert re.fullmatch(r"a\d+", "".join(answer))


@pytest.mark.slow
def test_feedback_can_hold_no_traces(course):
    source = VOTES.replace('1 + round(6 * config["beta"])', '7 - round(6 * config["beta"])')
    shown, untold = (measure(source, dataclasses.replace(course, traces=traces)) for traces in (True, False))
    assert measure(source, course) == shown
    assert untold.metrics == shown.metrics
    assert shown.feedback.startswith(untold.feedback)
    assert TRACE in shown.feedback
    assert TRACE not in untold.feedback


@pytest.mark.slow
def test_a_file_without_beta_is_judged_at_every_price(course):
    """At β = 1/2 it is SC@7."""
    source = VOTES.replace("1 + round(6 *", "round(14 *")
    measured = measure(source, dataclasses.replace(course, settings=(0.5,)))
    assert measured.metrics["branches"] == [7.0]
    theirs = outcome_of(course.incumbent, course.unit)
    accuracy, cost = theirs.accuracy[0, 2].mean(), theirs.cost[0, 2].mean()
    assert measured.metrics["objective"] == pytest.approx(accuracy - price(BETAS).mean() * cost, abs=1e-6)
    assert "mean tokens" not in measured.feedback
    assert TRACE + "0.5" in measured.feedback


@pytest.mark.slow
def test_the_example_of_the_contract_plays(course):
    example = code_of(CONTRACT.read_text(encoding="utf-8"))
    measured = measure(example, course)
    assert measured.metrics is not None, measured.feedback
    assert measured.metrics["monotone"]
    assert "trace at β" in measured.feedback


FAILURES = {
    "syntax": ("def candidate(beta:\n", "SyntaxError"),
    "no name": ("found = 1\n", "candidate.py has no candidate candidate; it has found"),
    "import": ("import not_there\n", "No module named 'not_there'"),
    "raises": (VOTES.replace("return max", "raise KeyError('deep')\n        return max"), "KeyError: 'deep'"),
    "exits": ("raise SystemExit(0)\n", "SystemExit"),
    "no program": (VOTES.replace("config):", "config, more):"), "missing 1 required positional argument"),
    "no number": ("candidate = float('nan')\n", "not callable"),
    "no controller": ("def candidate(beta):\n    return beta\n", "but it must return a Controller"),
    "loops": (
        VOTES.replace("self, question):", "self, question):\n        while True: pass"),
        "took longer than the 3 s",
    ),
    "dawdles": (
        VOTES.replace(
            "shown =",
            "[__import__('time').sleep(0.3) for _ in range(99)\n"
            "         if question.get_seq_and_total_tokens()]\n        shown =",
        ),
        "took longer than the 5 s that it has as a whole",
    ),
    "hoards": ("stuff = [bytes(1 << 27) for _ in range(99)]\n", "memory|MemoryError"),
    "prints": ("print('x' * 10**6)\nraise ValueError('y' * 10**6)\n", "^.{0,2100}$"),
    "long": ("#" * MAX_SOURCE + "\n", f"{MAX_SOURCE} are allowed"),
}


WAITING = ("loops", "dawdles", "no number", "no controller", "no program")
"""Failures that take seconds to come to."""


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind in WAITING)) for kind in FAILURES]
)
def test_failures_are_messages_and_never_scores(course, kind):
    source, message = FAILURES[kind]
    limits = {
        "loops": Sandbox(seconds=3, memory=1 << 30),
        "dawdles": Sandbox(seconds=30, memory=1 << 30, wall_seconds=5),
    }.get(kind, course.sandbox)
    measured = measure(source, dataclasses.replace(course, sandbox=limits))
    assert measured.metrics is None
    assert re.search(message, measured.feedback, re.DOTALL)
    assert str(Path(at.__file__).parents[1]) not in measured.feedback


def test_a_file_does_not_see_the_key(course, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-to-be-seen")
    measured = measure("import os\n\nraise ValueError(sorted(os.environ.items()))\n", course)
    assert "ValueError: [(" in measured.feedback
    assert "sk-not-to-be-seen" not in measured.feedback


def test_messages_that_are_no_unicode_are_made_so(course):
    """They become part of a prompt."""
    measured = measure("raise ValueError('\\ud800')\n", course)
    assert measured.metrics is None
    assert b"ValueError" in measured.feedback.encode()


@pytest.mark.parametrize("source", ["# \ud800\ncandidate = 1\n", "\0", "(" * 5000, ""])
def test_odd_texts_are_failures(course, source):
    assert measure(source, course).metrics is None


def test_a_sandbox_that_the_machine_does_not_offer_is_an_error(judge, monkeypatch):
    """It is not a failure of the candidates, all of which would fail."""
    from autotts_jax.policies.sealed import worker_pool

    def refuse(*_, **__):
        raise LevelError("this machine does not confine processes by its kernel")

    monkeypatch.setattr(worker_pool.WorkerPool, "describe", refuse)
    with pytest.raises(LevelError, match="does not confine"):
        Course.of(judge, select("cmc"), np.arange(10), range(2), BETAS)
