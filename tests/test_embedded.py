"""The datasets that come with the package."""

import itertools
import re
from pathlib import Path

import jax
import numpy as np
import pytest

from autotts_jax.collect.arithmetic import arithmetic
from autotts_jax.collect.grading import MathGrader
from autotts_jax.errors import InputError
from autotts_jax.experiments.evaluation import evaluate
from autotts_jax.policies.players import select
from autotts_jax.replay import write_compact
from autotts_jax.replay.embedded import EMBEDDED, SMOLLM2, load, smollm2
from autotts_jax.replay.statistics import cell_statistics

CELL = "SmolLM2-135M-Instruct/arithmetic"


@pytest.fixture(scope="module")
def recorded():
    return smollm2()


def card():
    return SMOLLM2.with_suffix(".md").read_text(encoding="utf-8")


def table(text, header):
    """The rows of the Markdown table with this header, as lists of cells without their markup."""
    lines = text.split(header)[1].splitlines()[2:]
    rows = itertools.takewhile(lambda line: line.startswith("|"), lines)
    return [[cell.strip(" `") for cell in row.strip("|").split("|")] for row in rows]


def printed(number, like):
    """A number with as many decimals as another has."""
    return f"{number:.{len(like.partition('.')[2])}f}"


def test_the_recorded_data_is_what_its_card_says(recorded):
    stated = {name: value for name, value, _ in table(card(), "| statistic | value | meaning |")}
    statistics = cell_statistics(recorded, 0)
    assert list(stated) == list(statistics)
    for name, value in stated.items():
        assert printed(statistics[name], value) == value, name


def test_the_recorded_questions_are_those_of_the_generator(recorded):
    asked = arithmetic(64)[:40]
    assert [(q.text, q.gold) for q in recorded.questions] == [(q.text, q.gold) for q in asked]


def test_the_recorded_answers_are_those_of_the_grader_as_it_is(recorded):
    with MathGrader(1) as grader:
        for question in recorded.questions:
            assert grader.forms(question.vocabulary) == list(question.vocabulary)
            assert grader.reference(question.gold) == question.gold


def test_the_card_says_how_each_topic_went(recorded):
    stated = table(card(), "| topic | questions | mean@1 | label accuracy | pass@128 | probes | tokens |")
    topics = [question.topic for question in arithmetic(64)[:40]]
    assert [row[0] for row in stated] == list(dict.fromkeys(topics))
    for topic, *figures in stated:
        statistics = cell_statistics(recorded.select(np.flatnonzero(np.array(topics) == topic)), 0)
        names = "questions", "mean@1", "label_accuracy", "pass@n", "probes_mean", "tokens_mean"
        for name, figure in zip(names, figures, strict=True):
            assert printed(statistics[name], figure) == figure, (topic, name)


def test_the_recorded_data_is_small_and_says_nothing_of_where_it_was_made(recorded):
    assert SMOLLM2.stat().st_size < 1_000_000
    (cell,) = recorded.cells
    assert cell.name == CELL
    assert not Path(cell.source).is_absolute()


def test_embedded_data_is_read_by_name_beside_files(recorded, tmp_path, monkeypatch):
    write_compact(load("synthetic").select([0, 1]), tmp_path / "two.npz")
    monkeypatch.chdir(tmp_path)
    both = load(["smollm2", "two.npz", "smollm2"])
    assert [cell.name for cell in both.cells][:2] == [CELL, "synthetic-S/synthetic"]
    assert len(both) == 42
    np.testing.assert_array_equal(both.matrix.gold[:40], recorded.matrix.gold)


@pytest.mark.parametrize("name", EMBEDDED)
def test_what_is_done_to_loaded_data_is_not_in_what_is_loaded_later(name):
    first = load(name).matrix
    first.signals["mine"] = first.answers
    for array in jax.tree.leaves(first):
        if array.flags.writeable:
            array[:] = 1
    second = load(name).matrix
    assert "mine" not in second.signals
    assert not any(np.array_equal(array, np.ones_like(array)) for array in jax.tree.leaves(second))


def test_a_folder_called_like_embedded_data_is_named_by_its_path(tmp_path, monkeypatch):
    (tmp_path / "smollm2").mkdir()
    write_compact(load("synthetic").select([3]), tmp_path / "smollm2" / "one.npz")
    monkeypatch.chdir(tmp_path)
    assert len(load("smollm2")) == 40
    assert len(load("./smollm2")) == 1


def test_what_there_is_not_is_said():
    with pytest.raises(InputError, match="nothing found at 'smollm3'"):
        load("smollm3")
    with pytest.raises(InputError, match="the synthetic data has only the exact encoding"):
        load(["smollm2", "synthetic"], "equiv")
    with pytest.raises(InputError, match="names nothing"):
        load([])


@pytest.mark.slow
def test_the_card_shows_what_controllers_reach_on_it(recorded):
    """Accuracy in percent / tokens, over 100 seeds, as the card prints them."""
    text = card()
    stated = table(text, f"| {CELL} | accuracy, % | tokens |")
    (controllers,) = re.findall(
        r"^autotts-jax evaluate --data smollm2 --controllers (\S+)$", text, re.MULTILINE
    )
    assert [name for name, *_ in stated] == controllers.split(",")
    evaluation = evaluate(recorded, [select(name) for name, *_ in stated], seeds=100)
    rows = {row.name: row for row in evaluation.rows}
    for name, accuracy, tokens in stated:
        assert f"{100 * rows[name].accuracy:.1f}" == accuracy, name
        assert f"{rows[name].tokens:,.0f}" == tokens, name
