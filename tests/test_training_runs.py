"""``benchmarks/training_runs.py``: runs that are compared where they have not trained."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from autotts_jax.experiments.evaluation import Evaluation
from autotts_jax.policies import Play, select
from autotts_jax.replay import SYNTHETIC_MODELS, synthetic, write_json
from autotts_jax.user_code import load_object

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "training_runs.py"
CONFIG = """
[data]
folds = 2
[network]
hidden = 4
[objective]
gamma = [1e-5, 4e-4]
[trainer]
kind = "evolution"
population = 2
num_gammas = 1
max_branches = 4
[run]
updates = 2
validate_every = 1
"""


@pytest.mark.nightly
def test_folds_are_compared_on_what_each_was_trained_without(tmp_path):
    for model in SYNTHETIC_MODELS[:2]:
        for benchmark, seed in (("seen", 0), ("unseen", 1)):
            path = tmp_path / model.name / f"{benchmark}.json"
            path.parent.mkdir(exist_ok=True)
            write_json(synthetic(seed, [model], 4, 64), path)
    (tmp_path / "tiny.toml").write_text(CONFIG)
    options = ["--config", "tiny.toml", "--data", "*/seen.json", "--test", "*/unseen.json", "--folds"]
    command = [sys.executable, SCRIPT, *options, "--orders", "2", "--out", "runs"]
    pipes = {"capture_output": True, "text": True}
    done = subprocess.run(command, cwd=tmp_path, check=False, **pipes)
    assert done.returncode == 0, done.stderr
    runs = tmp_path / "runs"
    for run in range(2):
        config = json.loads((runs / f"run-{run}" / "manifest.json").read_text())["config"]
        assert (config["data"]["fold"], config["run"]["seed"]) == (run, run)
        assert f"run-{run}: " in done.stdout
    for folder, controllers in (("held out", 2), ("test", 3)):
        rows = (runs / folder / "summary.csv").read_text().splitlines()
        assert len({line.split(",")[2] for line in rows[1:]}) == controllers
    assert (runs / "curves.png").stat().st_size > 1000
    lines = [line.split()[0] for line in done.stdout.splitlines() if line.strip()]
    assert lines.count("held") == 3  # two models and their mean
    assert lines.count("run-0") == lines.count("median") == lines.count("spread") == 3


def test_each_question_is_played_by_the_policy_that_has_not_seen_it():
    held_out = load_object(f"{SCRIPT}:held_out", "function")
    fold = np.array([2, 0, 1, 1, 0])
    shape = (len(select("neural").values), 3, len(fold))

    def play(selection, number):
        column = np.full(shape, number) + np.arange(shape[0])[:, None, None] * 10
        return Play(selection, *(column for _ in range(9)), compile_seconds=1.0, run_seconds=1.0)

    reference, policy = select("cmc"), select("neural")
    plays = play(reference, 7), *(play(policy, number) for number in range(3))
    evaluation = held_out(Evaluation(None, plays, 3), fold)
    assert evaluation.plays[0] is plays[0]
    joined = evaluation.plays[1]
    assert joined.player.name == "held out"
    for value in range(shape[0]):
        for seed in range(3):
            assert joined.tokens[value, seed].tolist() == (fold + 10 * value).tolist()
    assert (joined.rounds == joined.tokens).all()
