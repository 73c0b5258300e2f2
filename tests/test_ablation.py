"""Ablations: what is compared, and its intervals."""

import csv
import functools
import json

import numpy as np
import pytest
from searches import FEW, made_up

import autotts_jax as at
from autotts_jax.discovery import Arm, Discovery, Judge, ablate, ablation
from autotts_jax.discovery.rounds.programs import RUNGS


def run_of(folder, gains, *, promotes=False, candidates=({"kind": "candidate"},)):
    test = {"gains": gains, "promotes": promotes}
    return Discovery(folder, "cmc", list(candidates), test, 90.0)


def test_arms_are_compared_on_the_same_seeds_and_questions(tmp_path, monkeypatch):
    """Without β all lose a point; what the seeds and questions differ by otherwise does not blur that."""
    noise = np.random.default_rng(0).normal(0, 0.1, (3, 40))
    asked = []

    def discover(_data, *, out, seed, beta=True, critic=None, **_):
        asked.append((out.parent.name, seed, beta, critic))
        return run_of(out, (noise[seed] - (0 if beta else 0.01)).tolist(), promotes=seed == 1)

    monkeypatch.setattr(ablation, "discover", discover)
    found = ablate("smollm2", out=tmp_path, seeds=3)
    assert asked[:3] == [
        ("default", 0, True, None),
        ("no-beta", 0, False, None),
        ("critic", 0, True, "nearest"),
    ]
    default, no_beta, critic = found.arms
    assert (default.difference, default.promoted, default.cpu_minutes) == (None, 1, 1.5)
    assert default.gain == pytest.approx(noise.mean())
    assert default.gain_low < 0 < default.gain_high
    assert no_beta.difference == pytest.approx(-0.01)
    assert no_beta.difference_low == pytest.approx(-0.01, abs=2e-3)
    assert critic.difference == 0
    assert critic.difference_low < 0 < critic.difference_high, "on other questions there may be one"
    with (tmp_path / "ablation.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["arm"] for row in rows] == ["default", "no-beta", "critic"]
    assert rows[0]["difference"] == ""
    assert float(rows[1]["difference"]) == pytest.approx(-0.01)
    text = str(found.table())
    assert "-1.00 [-1" in text
    assert "+0.00 [-" in text
    assert max(map(len, text.splitlines())) <= 80


def test_what_is_paid_is_added_up_and_unknown_prices_stay_unknown(tmp_path, monkeypatch):
    file = {"kind": "code", "tokens": 100, "dollars": 0.5}
    judged = file | {"critic": {"score": 1.0, "accepts": True, "tokens": 10, "dollars": 0.25}}
    unpriced = file | {"critic": {"score": 1.0, "accepts": True, "tokens": 10, "dollars": None}}

    def discover(_data, *, out, traces=True, beta=True, critic=None, **_):
        of = unpriced if critic else judged if beta else file
        assert traces != (out.parent.name == "no-traces")
        return run_of(out, [0.0] * 40, candidates=[of, file])

    class Nobody:
        name = "nobody"

        def spent(self, tokens, dollars):
            raise NotImplementedError

        def write(self, *_):
            raise NotImplementedError

    monkeypatch.setattr(ablation, "discover", discover)
    arms = {arm.arm: arm for arm in ablate("smollm2", out=tmp_path, seeds=1, proposers=[Nobody()]).arms}
    assert list(arms) == ["default", "no-beta", "critic", "no-traces"]
    assert (arms["default"].tokens, arms["default"].dollars) == (210, 1.25)
    assert (arms["no-beta"].tokens, arms["no-beta"].dollars) == (200, 1.0)
    assert (arms["critic"].tokens, arms["critic"].dollars) == (210, None)


@pytest.mark.slow
def test_arms_are_runs_that_go_on(tmp_path, monkeypatch):
    monkeypatch.setattr(Judge, "play", made_up)
    data = at.load("smollm2").select(np.arange(9))
    play = functools.partial(ablate, data, out=tmp_path, seeds=1, max_branches=16, incumbent=FEW)
    candidates = 4 * RUNGS[0][0]
    found = play(candidates=candidates)
    assert [arm.candidates for arm in found.arms] == [candidates] * 3
    assert all(isinstance(arm, Arm) and np.isfinite(arm.gain) for arm in found.arms)
    # In four rounds each search has played one, so the critic has judged nothing.
    assert found.arms[2].difference == 0
    for folder, beta in (("default/0", True), ("no-beta/0", False)):
        manifest = json.loads((tmp_path / folder / "manifest.json").read_text())
        assert (manifest["seed"], manifest["beta"]) == (0, beta)
    assert play(candidates=candidates).csv() == found.csv()


def test_the_command_prints_the_table(run, tmp_path, monkeypatch):
    monkeypatch.setattr(ablation, "discover", lambda _data, *, out, **_: run_of(out, [0.0] * 40))
    status, out, _ = run("discover", "ablate", "--data", "smollm2", "--out", tmp_path)
    assert status == 0
    assert "no-beta" in out
    assert (tmp_path / "ablation.csv").exists()
