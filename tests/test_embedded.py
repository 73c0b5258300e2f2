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
from autotts_jax.replay import SIGNALS, write_compact
from autotts_jax.replay.embedded import EMBEDDED, SMOLLM2, SMOLLM2_SIGNALS, load, smollm2
from autotts_jax.replay.signals import first_gap
from autotts_jax.replay.statistics import cell_statistics

CELL = "SmolLM2-135M-Instruct/arithmetic"
RECORDED = {"smollm2": SMOLLM2, "smollm2-signals": SMOLLM2_SIGNALS}


@pytest.fixture(scope="module", params=RECORDED)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def recorded(name):
    return load(name)


@pytest.fixture(scope="module")
def card(name):
    return RECORDED[name].with_suffix(".md").read_text(encoding="utf-8")


def table(text, header):
    """The rows of the Markdown table with this header, as lists of cells without their markup."""
    lines = text.split(header)[1].splitlines()[2:]
    rows = itertools.takewhile(lambda line: line.startswith("|"), lines)
    return [[cell.strip(" `") for cell in row.strip("|").split("|")] for row in rows]


def printed(number, like):
    """A number with as many decimals as another has."""
    return f"{number:.{len(like.partition('.')[2])}f}"


def test_the_recorded_data_is_what_its_card_says(recorded, card):
    stated = {statistic: value for statistic, value, _ in table(card, "| statistic | value | meaning |")}
    for signal in recorded.matrix.signals:
        (values,) = (
            row[1:] for row in table(card, "| signal | mean | least | largest | AUROC |") if row[0] == signal
        )
        stated |= zip([f"{signal}_{end}" for end in ("mean", "min", "max", "auroc")], values, strict=True)
    statistics = cell_statistics(recorded, 0)
    assert list(stated) == list(statistics)
    for statistic, value in stated.items():
        assert printed(statistics[statistic], value) == value, statistic


def test_the_recorded_questions_are_those_of_the_generator(recorded):
    asked = arithmetic(64)[:40]
    assert [(q.text, q.gold) for q in recorded.questions] == [(q.text, q.gold) for q in asked]


def test_the_recorded_answers_are_those_of_the_grader_as_it_is(recorded):
    with MathGrader(1) as grader:
        for question in recorded.questions:
            assert grader.forms(question.vocabulary) == list(question.vocabulary)
            assert grader.reference(question.gold) == question.gold


def test_the_card_says_how_each_topic_went(recorded, card):
    branches = recorded.matrix.num_branches
    stated = table(
        card, f"| topic | questions | mean@1 | label accuracy | pass@{branches} | probes | tokens |"
    )
    topics = [question.topic for question in arithmetic(64)[:40]]
    assert [row[0] for row in stated] == list(dict.fromkeys(topics))
    for topic, *figures in stated:
        statistics = cell_statistics(recorded.select(np.flatnonzero(np.array(topics) == topic)), 0)
        shown = "questions", "mean@1", "label_accuracy", "pass@n", "probes_mean", "tokens_mean"
        for statistic, figure in zip(shown, figures, strict=True):
            assert printed(statistics[statistic], figure) == figure, (topic, statistic)


def test_the_recorded_data_is_small_and_says_nothing_of_where_it_was_made(recorded, name):
    assert RECORDED[name].stat().st_size < 300_000
    (cell,) = recorded.cells
    assert cell.name == CELL + name.removeprefix("smollm2")
    assert not Path(cell.source).is_absolute()


def test_the_signals_are_those_of_the_published_controllers():
    matrix = load("smollm2-signals").matrix
    assert set(matrix.signals) == set(SIGNALS)
    assert first_gap(matrix) is None


def test_embedded_data_is_read_by_name_beside_files(tmp_path, monkeypatch):
    write_compact(load("synthetic").select([0, 1]), tmp_path / "two.npz")
    monkeypatch.chdir(tmp_path)
    both = load(["smollm2", "two.npz", "smollm2"])
    assert [cell.name for cell in both.cells][:2] == [CELL, "synthetic-S/synthetic"]
    assert len(both) == 42
    np.testing.assert_array_equal(both.matrix.gold[:40], smollm2().matrix.gold)


@pytest.mark.parametrize(
    "embedded",
    [pytest.param(name, marks=[pytest.mark.slow] * name.startswith("synthetic-")) for name in EMBEDDED],
)
def test_what_is_done_to_loaded_data_is_not_in_what_is_loaded_later(embedded):
    first = load(embedded).matrix
    first.signals["mine"] = first.answers
    for array in jax.tree.leaves(first):
        if array.flags.writeable:
            array[:] = 1
    second = load(embedded).matrix
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


@pytest.mark.nightly
def test_the_card_shows_what_controllers_reach_on_it(recorded, name, card):
    """Accuracy in percent, tokens and, where the card has it, the gain with its interval, over 100 seeds."""
    commands = re.findall(rf"^autotts-jax evaluate --data {name} --controllers (\S+)$", card, re.MULTILINE)
    assert commands
    headers = re.findall(r"^\| .* \| accuracy, % \| tokens \|.*$", card, re.MULTILINE)
    for controllers, header in zip(commands, headers, strict=True):
        stated = table(card, header)
        assert [row[0] for row in stated] == controllers.split(",")
        rows = evaluate(recorded, [select(row[0]) for row in stated], seeds=100).rows
        for number, (told, row) in enumerate(zip(stated, rows, strict=True)):
            told_gain = [f"{100 * part:+.1f}" for part in (row.gain, row.gain_low, row.gain_high)]
            shown = [row.name, f"{100 * row.accuracy:.1f}", f"{row.tokens:,.0f}"]
            if len(told) > len(shown):
                shown.append("{} [{}, {}]".format(*told_gain) if number else "")
            assert told == shown
