"""The training examples run, from random weights, and print the scores of their policies."""

import csv
import importlib
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import cloudpickle
import pytest

import autotts_jax as at

EXAMPLES = Path(__file__).parents[1] / "examples"
TORCH, SB3 = ("torch",), ("torch", "stable_baselines3", "sb3_contrib")
SHORT = ["--steps", "10000", "--seeds", "0", "--orders", "5"]
ROW = re.compile(r"^(\S+) +(-?\d\.\d+) ± \d\.\d+ +(\d+\.\d+) ", re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "needs", "name"),
    [
        ("train_purejaxrl_ppo.py", (), "purejax"),
        ("train_cleanrl_ppo.py", TORCH, "cleanrl"),
        # Stable-Baselines3 also trains in quick tests.
        pytest.param("train_sb3_ppo.py", SB3, "sb3", marks=pytest.mark.nightly),
        pytest.param("train_maskable_ppo.py", SB3, "maskable", marks=pytest.mark.nightly),
    ],
)
def test_training_examples_run(script, needs, name, tmp_path):
    missing = [need for need in needs if importlib.util.find_spec(need) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}: pip install autotts-jax[examples]")
    command = [sys.executable, EXAMPLES / script, *SHORT, "--out", tmp_path / "run"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = {name: float(objective) for name, objective, _ in ROW.findall(done.stdout)}
    assert list(rows) == ["sc@1", "published", "sc", "cmc", f"{name}/10k"], done.stdout
    scored = list(csv.DictReader((tmp_path / "run" / "scores.csv").read_text().splitlines()))
    assert [(row["name"], row["steps"]) for row in scored[-1:]] == [(name, "10000")]
    assert f"{float(scored[-1]['objective']):.3f}" == f"{rows[f'{name}/10k']:.3f}"


@pytest.mark.nightly
def test_learners_are_trained_by_one_command(tmp_path):
    names = ["recurrent", "evolution", "dagger"]
    command = [sys.executable, EXAMPLES / "train_baselines.py", *SHORT, "--learners", *names]
    done = subprocess.run(
        [*command, "--out", tmp_path], check=False, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    scored = list(csv.DictReader((tmp_path / "scores.csv").read_text().splitlines()))
    assert [(row["name"], row["steps"]) for row in scored[-3:]] == [(name, "10000") for name in names]
    assert float(scored[-1]["objective"]) > float(scored[0]["objective"])  # DAgger, and one branch
    policies = {file.name: file for file in (tmp_path / "policies").iterdir()}
    assert set(policies) == {"recurrent-10000-0.pkl", "evolution-10000-0.npz", "dagger-10000-0.npz"}
    # Both play as they did, where the examples are not among Python's paths.
    recurrent = cloudpickle.loads(policies["recurrent-10000-0.pkl"].read_bytes())
    dagger = f"neural:{policies['dagger-10000-0.npz']}"
    again = at.bench("laptop", {"recurrent": [recurrent], "dagger": [dagger]}, seeds=5)
    for score, row in zip(again.scores[-2:], (scored[-3], scored[-1]), strict=True):
        assert f"{score.objective:.4f}" == f"{float(row['objective']):.4f}"


@pytest.mark.parametrize(
    ("task", "options", "said"),
    [
        ("nope", [], "TASK is 'nope', but it must be one of laptop, easy"),
        ("recorded", [], "TASK is 'recorded', but it must be one of"),
        ("hard", ["--seeds", "0", "0"], "--seeds: one is given twice"),
        ("hard", ["--learners", "dagger", "dagger"], "--learners: one is given twice"),
        ("hard", ["--orders", "4"], "--orders: 4 is below 5"),
        ("hard", ["--out", __file__], "test_examples.py"),
    ],
)
def test_what_cannot_be_scored_is_found_out_before_training(task, options, said, monkeypatch, capsys):
    monkeypatch.setenv("TASK", task)
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    monkeypatch.delitem(sys.modules, "common", raising=False)
    monkeypatch.setattr(sys, "argv", ["train.py", *options])
    with pytest.raises((SystemExit, at.InputError)) as failure:
        importlib.import_module("common").run("Trains.", dagger=lambda *_: pytest.fail("it trained"))
    monkeypatch.delitem(sys.modules, "common", raising=False)
    assert said in str(failure.value) + capsys.readouterr().err


@pytest.mark.shipped
@pytest.mark.nightly
def test_ppo_from_random_weights_gains_on_sc_as_reported(tmp_path):
    """The row of the reference table, for one training seed; its interval has 0 in it."""
    options = ["--steps", "1000000", "--seeds", "0", "--out", tmp_path / "run"]
    command = [sys.executable, EXAMPLES / "train_purejaxrl_ppo.py", *options]
    subprocess.run(command, check=True, capture_output=True, timeout=900)
    rows = csv.DictReader((tmp_path / "run" / "scores.csv").read_text().splitlines())
    scores = {row["name"]: row for row in rows}
    assert float(scores["sc"]["gain"]) == 0
    assert float(scores["purejax"]["gain"]) == pytest.approx(0.019, abs=0.006)


def test_a_model_is_written_where_there_is_nothing(tmp_path):
    command = [sys.executable, EXAMPLES / "smollm2_model.py", tmp_path]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{tmp_path} exists; give another folder" in done.stderr
