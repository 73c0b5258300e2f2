"""Runs of a search that take seconds, and runs that were written by hand."""

import json

import numpy as np

import autotts_jax as at
from autotts_jax.discovery import cmc
from autotts_jax.discovery.archive.archive import Archive
from autotts_jax.discovery.judging.judge import Outcome
from autotts_jax.discovery.search import DiscoveryRun
from autotts_jax.policies import SelfConsistency, as_player

RUNGS = ((16, 1), (6, 2))
FEW = at.Family("sc", (1, 4, 8, 16), lambda branches: SelfConsistency(int(branches)), "branches")


def run_of(
    folder,
    data=None,
    *,
    seed=0,
    proposers=("rules",),
    rungs=RUNGS,
    incumbent=FEW,
    test_orders=2,
    **switches,
):
    data = at.load("smollm2").select(np.arange(6)) if data is None else data
    return DiscoveryRun(
        data, folder, proposers, as_player(incumbent), seed, 16, rungs, test_orders, **switches
    )


def made_up(_judge, candidates, questions, *_):
    """Outcomes that no episode has: every controller opens as many branches as it says, and CMC four."""
    opened = [
        [getattr(one, "max_branches", None) or getattr(one, "branches", 4) for one in of] for of in candidates
    ]
    width = np.array(opened, float)[..., None] * np.ones(len(questions))
    return Outcome(width / (width + 1 + np.asarray(questions) % 3), width, width)


TRIED = {
    "kind": "candidate",
    "number": 0,
    "proposer": "rules",
    "parents": [],
    "fold": None,
    "program": cmc().to_tree(),
    "scores": [0.1],
    "cost": 1.0,
    "width": 1.0,
}
TESTED = {"kind": "test", "number": 0, "gain": 0.1, "low": 0.1, "level": 0.025, "falls": [], "tokens": [1]}
TESTED |= {"matched_tokens": [None], "matched_accuracy": [0.1], "promotes": True}
ENDED = {"kind": "round", "round": 0, "cpu_seconds": 1.0}


def written_by_hand(folder, *records, **manifest):
    """A run's folder with these records."""
    (folder / "manifest.json").write_text(json.dumps({"incumbent": ["cmc@0.5"]} | manifest))
    (folder / "archive.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


HYPERPARAMETERS = (
    "initial",
    "max_branches",
    "warm_up",
    "spare",
    "alpha",
    "window",
    "in_full",
    "by_completion",
)
FOUND = {
    "hyperparameters": {name: [1, 0.0] for name in HYPERPARAMETERS},
    "stop": [[[["round", ">=", [9, 0.0]]], [1, 0.0]]],
}


def archive(folder, *_, **__):
    """A run of a search with one round, in place of one that takes minutes."""
    manifest = {"incumbent": ["cmc@0.5"], "proposers": ["rules"], "max_branches": 64, "seed": 0}
    run = Archive(folder, manifest)
    candidate = {
        "number": 0,
        "proposer": "start",
        "parents": [],
        "fold": 0,
        "program": FOUND,
        "scores": [0.1],
    }
    if not list(run.records()):
        tested = {"kind": "test", "number": 0, "promotes": False, "gains": [0.0, 0.0]}
        tested |= dict.fromkeys(("gain", "low", "level"), 0.0)
        tested |= {"falls": [0.0], "tokens": [1.0], "matched_tokens": [None], "matched_accuracy": [None]}
        run.append([{"kind": "candidate"} | candidate, tested], {"round": 1, "cpu_seconds": 1.0})
    run.search, run.untested, run.rounds = (lambda *_: 1), False, 1
    return run


def lines_of(folder):
    """The archive without the CPU time."""
    records = [json.loads(line) for line in (folder / "archive.jsonl").read_text().splitlines()]
    return [{key: value for key, value in record.items() if key != "cpu_seconds"} for record in records]
