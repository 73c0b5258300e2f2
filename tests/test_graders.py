"""Graders by name: functions that give canonical forms, wherever answers are compared."""

import dataclasses
import json
import sys

import pytest

import autotts_jax as at
from autotts_jax.cli import main as cli
from autotts_jax.collect import (
    FormGrader,
    LocalWorkers,
    Plan,
    Problem,
    Sampling,
    SimulatedEngine,
    Store,
    collect,
    open_grader,
)
from autotts_jax.errors import InputError, InputWarning

SAMPLING = Sampling(interval=20, max_tokens=100)
PLAN = Plan(
    "sim",
    "digits",
    (Problem("Which digit?", "3"), Problem("Or which?", "8")),
    num_branches=8,
    sampling=SAMPLING,
)


def parity(answer):
    """Digits are equal if both are odd or both even."""
    return ("odd" if int(answer) % 2 else "even") if answer.isdigit() else None


PARITY = f"{__file__}:parity"


def test_a_function_says_which_answers_are_equal():
    with open_grader(parity) as grader:
        assert grader.forms(["1", "2", "3", "x", "ERR", "1"]) == ["odd", "even", "odd", "ERR", "ERR", "odd"]
        assert grader.correct("3", ["1", "2", "x", "ERR"]) == [True, False, False, False]
        assert grader.correct("x", ["x", "ERR"]) == [False, False]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda _: 7, "a grader returns a string or None, but this one returned 7"),
        (lambda _: "x" * 201, "returned 201 characters for 'a', but a form has 200 at most"),
        (lambda _: {}["key"], r"the grader failed on 'a':(.|\n)*KeyError"),
    ],
)
def test_a_function_that_gives_no_forms_is_named(function, message):
    with pytest.raises(InputError, match=message):
        FormGrader(function).forms(["a"])


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("colour", "there is no grader of this name; give one of math, arithmetic, "),
        ("no_such_module:form", "there is no module no_such_module"),
        (f"{__file__}:PLAN", "name a function of an answer"),
        (7, "it must be a grader, its name or a function"),
    ],
)
def test_what_is_no_grader_is_refused(spec, message):
    with pytest.raises(InputError, match=message):
        open_grader(spec)


def test_a_collection_is_graded_by_it_and_graded_anew(tmp_path):
    plan = dataclasses.replace(PLAN, grader=PARITY)
    data = collect(plan, tmp_path, LocalWorkers(SimulatedEngine()))
    for question, gold in zip(data.questions, ("odd", "even"), strict=True):
        assert question.gold == gold
        assert set(question.vocabulary) <= {"odd", "even"}
    units = {path: path.read_bytes() for path in (tmp_path / "units").iterdir()}
    again = collect(PLAN, tmp_path, lambda *_: pytest.fail("what is there is collected again"))
    assert [question.gold for question in again.questions] == ["3", "8"]
    assert {path: path.read_bytes() for path in (tmp_path / "units").iterdir()} == units
    assert Store(tmp_path).plan.grader == "math"


@pytest.mark.slow
def test_unevaluated_arithmetic_is_an_answer_by_name(tmp_path, capsys, monkeypatch):
    rule = f"{__file__}:a_sum"
    line = ["collect", "--engine", "simulated", "--questions", "arithmetic:1", "--out", str(tmp_path / "run")]
    line += ["--branches", "2", "--interval", "20", "--max-tokens", "60", "--answers", rule]
    forms = []
    for grader in ("math", "arithmetic"):
        monkeypatch.setattr(sys, "argv", ["autotts-jax", *line, "--grader", grader])
        with pytest.raises(SystemExit, match="0"):
            cli.main()
        forms.append(at.load(tmp_path / "run").questions[0].vocabulary)
    gold = "33"
    assert [set(found) - {"ERR", gold} for found in forms] == [set(), {"27"}]
    assert "wrote matrix.npz" in capsys.readouterr().out


def a_sum(_):
    return "9 * 3"


def test_a_manifest_without_a_grader_is_one_of_mathematics(tmp_path):
    collect(PLAN, tmp_path, LocalWorkers(SimulatedEngine()))
    manifest = json.loads((tmp_path / "collection.json").read_text())
    del manifest["plan"]["grader"]
    (tmp_path / "collection.json").write_text(json.dumps(manifest))
    assert Store(tmp_path).plan == PLAN
    assert len(Store(tmp_path).done()) == 2


def test_loading_runs_no_code_that_an_unfinished_collection_names(tmp_path):
    plan = dataclasses.replace(PLAN, grader=PARITY)
    collect(plan, tmp_path, LocalWorkers(SimulatedEngine()))
    (tmp_path / "matrix.npz").unlink()
    with pytest.raises(
        InputError, match=r"unfinished, .*test_graders\.py:parity, which loading does not run"
    ):
        at.load(tmp_path)
    collect(PLAN, tmp_path, LocalWorkers(SimulatedEngine()))
    (tmp_path / "matrix.npz").unlink()
    with pytest.warns(InputWarning, match="unfinished"):
        assert len(at.load(tmp_path)) == 2


@pytest.mark.parametrize("grader", [PARITY, parity, FormGrader(parity)])
def test_a_live_answer_is_a_form(grader):
    found = at.answer(
        SimulatedEngine(), "Which digit?", "sc@4", sampling=SAMPLING, max_branches=4, grader=grader
    )
    assert found.answer in ("odd", "even")
    assert {votes.answer for votes in found.votes} <= {"odd", "even"}


def test_many_live_answers_are_those_of_replay(tmp_path):
    plan = dataclasses.replace(PLAN, grader=PARITY)
    collect(plan, tmp_path / "collection", LocalWorkers(SimulatedEngine()))
    settings = {"sampling": SAMPLING, "max_branches": 8, "collection": tmp_path / "collection"}
    run = at.answer_questions(
        SimulatedEngine(), PLAN.questions, "sc@4", out=tmp_path / "run", grader=PARITY, **settings
    )
    assert all(row.same_answer and row.same_tokens for row in run.compared)
    assert [row.correct for row in run.answered] == [row.correct for row in run.compared]
    with pytest.raises(InputError, match=r"settings: grader was '.*parity' and is 'math'"):
        at.answer_questions(SimulatedEngine(), PLAN.questions, "sc@4", out=tmp_path / "other", **settings)
