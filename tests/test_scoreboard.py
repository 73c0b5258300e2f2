"""The scoreboard: whatever plays a task has the objective that its row says."""

import csv
from pathlib import Path

import numpy as np
import pytest

import autotts_jax as at
from autotts_jax.experiments import TASKS, Objective
from autotts_jax.intervals import equal_weights
from autotts_jax.replay import select_part

ROOT = Path(__file__).parents[1]
SCOREBOARD = ROOT / "docs" / "reference" / "scoreboard.csv"
ROWS = list(csv.DictReader(SCOREBOARD.read_text().splitlines()))


def case(row):
    quick = row["task"] == "laptop" and row["player"].startswith("sc@")
    return pytest.param(row, marks=() if quick else pytest.mark.nightly, id=f"{row['task']}-{row['player']}")


@pytest.mark.parametrize("row", map(case, ROWS))
def test_a_row_is_what_its_player_comes_to(row, monkeypatch):
    monkeypatch.chdir(ROOT)  # files are named from there
    task = TASKS[row["task"]]
    dataset = select_part(task.load(), "test")
    (play,) = at.evaluate(
        dataset, row["player"], seeds=int(row["seeds"]), max_branches=task.max_branches
    ).plays
    worth = np.mean([Objective(gamma).of(play, dataset)[0].mean(axis=0) for gamma in task.gammas], axis=0)
    found = worth @ equal_weights(np.asarray(dataset.matrix.cell))
    assert float(row["objective"]) == pytest.approx(found, abs=6e-4)


def test_rows_differ():
    keys = [(row["task"], row["player"]) for row in ROWS]
    assert len(set(keys)) == len(keys)
