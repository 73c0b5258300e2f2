"""This package's verdicts beside those of math-verify."""

import dataclasses
import importlib.util

import pytest
from matrices import spelled_dataset

from autotts_jax.collect import Disagreement, check_grading
from autotts_jax.errors import InputError, InputWarning
from autotts_jax.replay import EQUIV, write_json

DATASET = spelled_dataset(
    ([["ERR", "12.0", "13"], ["12", "12", "12"]], [1000, 1000], "12", 500),
    ([["0.5", "50 cm", r"50\%"], ["50", "5 tigers", "50"]], [1000, 1000], "50", 500),
    ([["x^2-1", "2x+3"], ["3+2x", "y=2x+3"]], [500, 500], "2x+3", 500),
)
needs_verify = pytest.mark.skipif(
    importlib.util.find_spec("math_verify") is None, reason="math-verify is not installed"
)


@pytest.mark.slow
@needs_verify
def test_verdicts_that_differ_are_listed():
    progress = []
    found = check_grading(DATASET, lambda *numbers: progress.append(numbers))
    assert (found.answers, found.undecided) == (9, 0)
    assert found.disagreements == (Disagreement("", 9, "2x+3", "y=2x+3", "2x - y + 3 = 0", right=False),)
    assert progress == [(0, 9)]


@pytest.mark.slow
@needs_verify
def test_what_takes_too_long_is_counted():
    dataset = spelled_dataset(([["7", r"\sum_{k=1}^{10^9} \frac{1}{k}"]], [500], "7", 500))
    with pytest.warns(InputWarning, match="1 answer exceeds"):
        found = check_grading(dataset)
    assert (found.answers, found.undecided, found.disagreements) == (1, 1, ())


@pytest.mark.slow
@needs_verify
def test_the_command_lists_them(run, tmp_path):
    file = tmp_path / "cell.json"
    write_json(DATASET, file)
    status, shown, _ = run("data", "check-grading", file)
    assert status == 0
    assert f"{file}, question 2, gold 2x+3: y=2x+3 has the form 2x - y + 3 = 0 and is wrong" in shown
    assert shown.endswith("answers: 9; disagreements: 1\n")


def test_merged_answers_cannot_be_checked():
    merged = dataclasses.replace(DATASET, encoding=EQUIV)
    with pytest.raises(InputError, match="answers as they were written"):
        check_grading(merged)


def test_without_math_verify(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(InputError, match=r"pip install 'autotts-jax\[verify\]'"):
        check_grading(DATASET)
