"""Statistics of a cell, by hand and against the published values."""

import dataclasses
import math

import numpy as np
import pytest

from autotts_jax.errors import InputError
from autotts_jax.experiments import questions_table
from autotts_jax.replay import read_files
from autotts_jax.replay.dataset import EQUIV, EXACT, Cell, ProbeDataset, Question, stack
from autotts_jax.replay.matrix import NONE, ProbeMatrix
from autotts_jax.replay.statistics import cell_statistics, question_statistics

# Over all 128 branches, in percent: mean@1, label_accuracy, pass@128, majority_ratio, reward_accuracy.
PUBLISHED = {
    "Qwen3-0.6B/aime24": (10.89, 23.33, 56.67, 26.80, 81.12),
    "Qwen3-0.6B/aime25": (16.77, 33.33, 60.00, 31.02, 83.98),
    "Qwen3-1.7B/aime24": (45.94, 73.33, 80.00, 54.90, 89.22),
    "Qwen3-1.7B/aime25": (35.36, 43.33, 76.67, 52.19, 77.81),
    "Qwen3-4B/aime24": (71.85, 80.00, 90.00, 80.08, 90.68),
    "Qwen3-4B/aime25": (64.84, 76.67, 90.00, 73.49, 89.90),
    "Qwen3-8B/aime24": (75.70, 80.00, 93.33, 83.44, 90.23),
    "Qwen3-8B/aime25": (67.06, 76.67, 90.00, 73.52, 91.67),
}


@pytest.fixture(scope="module")
def cells(replay_dir):
    return read_files([replay_dir])


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_values(cells, name):
    cell = [cell.name for cell in cells.cells].index(name)
    found = cell_statistics(cells, cell)
    keys = ("mean@1", "label_accuracy", "pass@n", "majority_ratio", "reward_accuracy")
    values = [100 * found[key] for key in keys]
    np.testing.assert_allclose(values, PUBLISHED[name], atol=0.00501)
    assert (found["questions"], found["branches"], found["interval"]) == (30, 128, 500)
    assert 3 <= found["probes_min"] <= found["probes_max"] <= 80
    assert 26.5 <= found["probes_mean"] <= 38.5
    assert 1130 <= found["tokens_min"] <= found["tokens_max"] <= 41509
    assert found["answers_max"] <= 902
    assert 0.02 <= found["error_share"] <= 0.16
    assert 0.08 <= found["overrun_share"] <= 0.21
    assert found["settled_first"] < found["settled_middle"] < found["settled_last"]
    assert found["length_correlation"] < 0


def dataset(rows, gold, tokens, encoding=EXACT, vocabulary=("a", "b", "ERR")):
    """Questions from the answers of their branches, the last of each its final one."""
    width = max(len(ids) for branches in rows for ids in branches)
    answers = [[ids + [NONE] * (width - len(ids)) for ids in branches] for branches in rows]
    matrix = ProbeMatrix(
        answers=np.array(answers, np.int16),
        lengths=np.array([[len(ids) - 1 for ids in branches] for branches in rows], np.int32),
        tokens=np.array(tokens, np.int32),
        gold=np.array(gold, np.int16),
        interval=np.full(len(rows), 100, np.int32),
        cell=np.zeros(len(rows), np.int32),
        vocabulary=3,
    )
    questions = tuple(Question(q, str(q), vocabulary[g], vocabulary) for q, g in enumerate(gold))
    return ProbeDataset(matrix, questions, (Cell("m", "b", len(rows[0]), "made up", ""),), encoding)


ROWS = [
    [[0, 1, 0], [2, 1], [2, 1, 1, 1], [0, 0]],  # finals a b b a: a tie, a came first
    [[2, 2], [2, 2, 2], [1, 0], [0, 2]],  # finals ERR ERR a ERR
]
TOKENS = [[150, 100, 999, 99], [100, 100, 100, 100]]


def test_by_hand():
    found = cell_statistics(dataset(ROWS, [0, 0], TOKENS), 0)
    assert found == {
        "questions": 2,
        "branches": 4,
        "interval": 100,
        "probes_mean": 12 / 8,
        "probes_min": 1,
        "probes_max": 3,
        "tokens_mean": 1748 / 8,
        "tokens_min": 99,
        "tokens_max": 999,
        "answers_max": 3,
        "answers_median": 3.0,
        "error_share": 5 / 12,
        "overrun_share": 3 / 8,
        "mean@1": 3 / 8,
        "label_accuracy": 1 / 2,
        "majority_ratio": (2 / 4 + 3 / 4) / 2,
        "reward_accuracy": 4 / 8,
        "pass@n": 1.0,
        "settled_first": pytest.approx(4 / 8),
        "settled_middle": pytest.approx(5 / 8),
        "settled_last": pytest.approx(4 / 8),
        "length_correlation": pytest.approx(
            np.mean(
                [np.corrcoef([2, 1, 3, 1], [1, 0, 0, 1])[0, 1], np.corrcoef([1, 2, 1, 1], [0, 0, 1, 0])[0, 1]]
            )
        ),
    }


def test_questions_by_hand():
    data = dataset(ROWS, [0, 0], TOKENS)
    assert question_statistics(data) == [(2 / 4, 2 / 11), (1 / 4, 6 / 9)]
    table = str(questions_table(data))
    assert [line.split() for line in table.splitlines()[3:6]] == [
        ["0", "a", "50.0", "18.2"],
        ["1", "a", "25.0", "66.7"],
        ["mean", "of", "all", "37.5", "42.4"],
    ]
    assert "1 of 2 questions have ERR, no answer, in 20% or more of" in table


def test_of_many_questions_those_with_the_most_errors_are_shown():
    rows = [[[0, 0], [0, 2 if q == 23 else 1]] for q in range(25)]
    table = str(questions_table(dataset(rows, [0] * 25, [[100, 100]] * 25)))
    shown = [line.split()[0] for line in table.splitlines()[3:23]]
    assert shown == [*map(str, range(19)), "23"]
    assert table.startswith("20 of 25 questions")


def test_no_answer_never_votes():
    rows = [[[NONE if i == 2 else i for i in ids] for ids in branches] for branches in ROWS]
    found = cell_statistics(dataset(rows, [0, 0], TOKENS, EQUIV, ("a", "b")), 0)
    assert found["label_accuracy"] == 1.0
    assert found["error_share"] == 5 / 12
    assert found["answers_max"] == 2
    nothing = dataset([[[0, NONE], [1, NONE]]], [0], [[9, 9]], EQUIV, ("a", "b"))
    assert cell_statistics(nothing, 0)["label_accuracy"] == 0.0


def test_tenths_of_a_long_branch():
    final = [1] * 2 + [0] * 8 + [1, 0, 1] + [0] * 8 + [0, 1, 0] + [1]  # 24 probes, three in a tenth
    found = cell_statistics(dataset([[final]], [1], [[2400]]), 0)
    assert found["settled_first"] == pytest.approx(2 / 3)
    assert found["settled_middle"] == pytest.approx(2 / 3)
    assert found["settled_last"] == pytest.approx(1 / 3)


def test_questions_that_do_not_vary_have_no_correlation():
    always = dataset([[[0, 0], [0, 0, 0]], [[0, 0], [0, 1]]], [0, 0], [[9, 9], [9, 9]])
    assert math.isnan(cell_statistics(always, 0)["length_correlation"])


def test_padding_and_other_cells_do_not_count():
    alone = dataset(ROWS, [0, 0], TOKENS)
    longer = dataset([[[1] * 9, [0] * 4] + [[0, 0]] * 4], [1], [[9] * 6])
    longer = dataclasses.replace(longer, cells=(Cell("other", "b", 6, "made up", ""),))
    both = stack([longer, alone])
    assert cell_statistics(both, 1) == cell_statistics(alone, 0)
    assert cell_statistics(both, 0) == cell_statistics(longer, 0)


def test_cells_that_are_not_there():
    both = dataset(ROWS, [0, 0], TOKENS)
    with pytest.raises(InputError, match="no cell 1; the dataset has cells 0 to 0"):
        cell_statistics(both, 1)
    none_left = dataclasses.replace(both, cells=(*both.cells, Cell("x", "b", 4, "made up", "")))
    with pytest.raises(InputError, match="no question of cell x/b"):
        cell_statistics(none_left, 1)
