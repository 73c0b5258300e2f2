"""Loggers: what TensorBoard reads, and what others are told."""

import math
import sys
import types

import pytest
from searches import ENDED, TESTED, TRIED, written_by_hand
from toy_runs import Toy, train

import autotts_jax as at
from autotts_jax.discovery import entry
from autotts_jax.errors import InputError, InputWarning
from autotts_jax.loggers import LOGGERS, check_loggers, opened
from autotts_jax.training import RunSettings, read_metrics


class Kept:
    """A logger of one's own."""

    def __init__(self):
        self.logged, self.closed = [], 0

    def log(self, step, metrics):
        assert not self.closed
        self.logged.append((step, dict(metrics)))

    def close(self):
        self.closed += 1


def test_tensorboard_reads_what_training_writes(tmp_path):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    kept = Kept()
    settings = RunSettings(updates=4, validate_every=2, seed=5)
    train(tmp_path, Toy(), settings, loggers=("tensorboard", kept))
    read = events.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    lines = {line.pop("update"): line for line in read_metrics(tmp_path)}
    assert [step for step, _ in kept.logged] == list(lines) == [0, 1, 2, 3, 4]
    assert kept.closed == 1
    for name in ("train/loss", "validation/objective"):
        expected = [(step, line[name]) for step, line in lines.items() if name in line]
        shown = [(event.step, event.value) for event in read.Scalars(name)]
        assert [step for step, _ in shown] == [step for step, _ in expected]
        assert [value for _, value in shown] == pytest.approx([value for _, value in expected])


def test_a_logger_is_told_the_course_of_a_discovery(tmp_path, monkeypatch):
    kept = Kept()
    folder = written_by_hand(tmp_path, TRIED, ENDED, TESTED, ENDED)
    monkeypatch.setattr(
        entry,
        "DiscoveryRun",
        lambda *_, **__: types.SimpleNamespace(
            search=lambda _candidates, _seconds, on_round: on_round(progress),
            test=lambda _: None,
            untested=True,
            rounds=6,
        ),
    )
    best = types.SimpleNamespace(score=0.25)
    progress = types.SimpleNamespace(round=6, candidates=96, cpu_seconds=3.0, fold=1, best=best)
    monkeypatch.setattr(entry.rendering, "available", lambda: False)
    at.discover("smollm2", out=folder, candidates=640, loggers=[kept])
    told = {"search/candidates": 96, "search/cpu_seconds": 3.0, "score/without_fold_1": 0.25}
    assert kept.logged == [(6, told), (6, {"test/gain": 0.1, "test/low": 0.1})]
    assert kept.closed == 1


@pytest.mark.parametrize("name", ["wandb", "trackio", "mlflow"])
def test_trackers_are_told_finite_numbers(tmp_path, monkeypatch, name):
    told = []
    names = ("init", "log", "finish", "start_run", "log_metrics", "end_run")
    tracker = types.ModuleType(name)
    for method in names:
        setattr(tracker, method, lambda *a, _of=method, **k: told.append((_of, a, k)))
    monkeypatch.setitem(sys.modules, name, tracker)
    with opened([name], tmp_path / "mine", 0) as log:
        log(3, {"loss": 0.5, "worse": math.nan})
    begin, logged, end = told
    assert begin[2].get("name", begin[2].get("run_name")) == "mine"
    assert logged[1:] == (({"loss": 0.5},), {"step": 3})
    assert end[0] in ("finish", "end_run")


@pytest.mark.parametrize("name", LOGGERS)
def test_a_logger_that_is_not_installed_is_named(tmp_path, monkeypatch, name):
    package = "tensorboardX" if name == "tensorboard" else name
    for module in [package, f"{package}.event_file_writer"]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=f"needs .*: pip install .*{name}"), opened([name], tmp_path, 0):
        pass
    with pytest.raises(InputError, match=f"needs .*: pip install .*{name}"):
        check_loggers([name])


def test_a_logger_that_cannot_be_closed_costs_nothing_else(tmp_path):
    class Fails(Kept):
        def close(self):
            raise ValueError("lost")

    kept = Kept()
    warned = pytest.warns(InputWarning, match="the logger Fails could not be closed: lost")
    with warned, opened([kept, Fails()], tmp_path, 0) as log:
        log(1, {"loss": 0.5})
    assert (kept.logged, kept.closed) == ([(1, {"loss": 0.5})], 1)


def test_a_logger_that_fails_is_told_no_more_and_costs_nothing_else(tmp_path):
    class Fails(Kept):
        def log(self, step, metrics):
            super().log(step, metrics)
            raise KeyError

    fails, kept = Fails(), Kept()
    with pytest.warns(InputWarning, match="the logger Fails failed, and is told no more: KeyError") as warned:
        train(tmp_path, Toy(), RunSettings(updates=2, validate_every=2, seed=5), loggers=(fails, kept))
    assert len(warned) == 1
    assert [step for step, _ in fails.logged] == [0]
    assert [step for step, _ in kept.logged] == [0, 1, 2]
    assert (fails.closed, kept.closed) == (1, 1)


def test_what_a_logger_does_to_the_numbers_no_other_sees(tmp_path):
    class Clears(Kept):
        def log(self, step, metrics):  # noqa: ARG002
            metrics.clear()

    kept = Kept()
    with opened([Clears(), kept], tmp_path, 0) as log:
        log(1, {"loss": 0.5})
    assert kept.logged == [(1, {"loss": 0.5})]


@pytest.mark.parametrize("loggers", ["tensorboard", b"tensorboard", ["tensorbord"], [3], [Kept], None])
def test_wrong_loggers_are_refused_before_the_data_is_read(tmp_path, loggers):
    with pytest.raises(InputError, match="logger"):
        at.discover("nowhere", out=tmp_path / "run", candidates=640, loggers=loggers)
    assert not (tmp_path / "run").exists()
