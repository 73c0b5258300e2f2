"""A critic that needs no model: candidates that behave alike fare alike.

A program is described by what it would do in a few situations, which are always the same: what each of its
slots says at a few values of β, and its hyperparameters. Nothing is played for it. A candidate's score is
the share of the search's earlier candidates that reached the last rung, where near ones count more: their
weight falls exponentially with distance. The better half of a round is accepted.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float
from scipy.spatial.distance import cdist

from autotts_jax.discovery.archive.archive import Record
from autotts_jax.discovery.archive.records import CANDIDATE
from autotts_jax.discovery.critics.critic import Opinion
from autotts_jax.discovery.critics.report import succeeds
from autotts_jax.discovery.judging.judge import SEARCH_BETAS
from autotts_jax.discovery.programs.interpreter import BRANCH_SLOTS, decision_list
from autotts_jax.discovery.programs.rules import (
    BRANCH_FEATURES,
    DEFAULTS,
    HYPERPARAMETERS,
    POOL_FEATURES,
    SLOT_VALUES,
    SLOTS,
    Program,
)

NEAREST = "nearest"
"""Name of the critic."""

NEIGHBOURS = 16
"""The median distance to so many nearest candidates is the scale on which weights fall."""

REMEMBERED = 2048
"""The latest candidates of a search, which scores count."""

SITUATIONS = 32
"""Situations that programs are described by."""

HYPERPARAMETER_WEIGHT = 4.0
"""What a hyperparameter counts for in a distance, in situations."""


@dataclasses.dataclass(frozen=True)
class Nearest:
    """Accepts the half of a round's programs whose neighbours reached the last rung most often."""

    name: str = NEAREST

    def judge(
        self,
        records: Sequence[Record],
        past: Sequence[Record],
        folder: Path,  # noqa: ARG002
        round_number: int,  # noqa: ARG002
    ) -> list[Opinion | None]:
        """Judges programs once enough of the search have been executed; it cannot judge files."""
        known = [record for record in past if record["kind"] == CANDIDATE and "gated" not in record]
        known = known[-REMEMBERED:]
        programs = [record for record in records if record["kind"] == CANDIDATE]
        if len(known) < NEIGHBOURS or not programs:
            return [None] * len(records)
        hits = np.array([succeeds(record, {}) for record in known], float)
        distances = cdist(_described(programs), _described(known), "cityblock")
        near = np.partition(distances, NEIGHBOURS - 1, axis=1)[:, :NEIGHBOURS]
        farther = distances - near.min(axis=1, keepdims=True)
        weights = np.exp(-farther / max(float(np.median(near)), 1e-9))
        scores = np.round((weights @ hits) / weights.sum(axis=1), 6)
        accepts = scores >= np.median(scores)
        opinions = iter(
            [Opinion(float(score), bool(one)) for score, one in zip(scores, accepts, strict=True)]
        )
        return [next(opinions) if record["kind"] == CANDIDATE else None for record in records]


def _described(records: Sequence[Record]) -> Float[np.ndarray, "N D"]:
    return np.stack([_description(json.dumps(record["program"])) for record in records])


@functools.lru_cache(maxsize=8 * REMEMBERED)
def _description(program: str) -> Float[np.ndarray, " D"]:
    return behaviour(Program.from_json(program))


def behaviour(program: Program) -> Float[np.ndarray, " D"]:
    """Describes what a program would do.

    Returns:
        Numbers between 0 and 1, hyperparameters times their weight.
    """
    pool, branch = _situations()
    columns = []
    for beta in SEARCH_BETAS:
        member = decision_list(program, beta)
        of_pool = _inside(np.asarray(member.pool_low), np.asarray(member.pool_high), pool)
        of_branch = _inside(np.asarray(member.branch_low), np.asarray(member.branch_high), branch)
        for at, slot in enumerate(SLOTS):
            holds = of_pool[at]
            if slot in BRANCH_SLOTS:
                holds = holds & of_branch[BRANCH_SLOTS.index(slot)]
            said = np.full(SITUATIONS, DEFAULTS[slot], float)
            for clause in reversed(range(len(holds))):
                said = np.where(holds[clause], member.values[at, clause], said)
            columns.append(_scaled(said, SLOT_VALUES[slot].high))
        hyperparameters = np.array(
            [
                _scaled(program.hyperparameter(name, beta), HYPERPARAMETERS[name].high)
                for name in HYPERPARAMETERS
            ]
        )
        columns.append(HYPERPARAMETER_WEIGHT * hyperparameters)
    return np.concatenate(columns)


def _scaled(value: float | np.ndarray, high: float) -> np.ndarray:
    """A number between 0 and 1; of large ones orders of magnitude count."""
    return np.asarray(value, float) if high <= 1 else np.log1p(value) / np.log1p(high)


def _inside(low: np.ndarray, high: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Whether situations lie in clauses' boxes. Shape (slots, clauses, S)."""
    inside = (low[:, :, None] <= values) & (values < high[:, :, None])
    return np.all(inside, axis=3)


@functools.cache
def _situations() -> tuple[Float[np.ndarray, "S Fp"], Float[np.ndarray, "S Fb"]]:
    """Situations such as episodes have them: features of the pool, and of one of its branches."""
    rng = np.random.default_rng(0)

    def upto(most: np.ndarray) -> np.ndarray:
        return np.floor(rng.random(SITUATIONS) * (most + 1))

    pool = {"round": np.floor(np.exp(rng.uniform(0, np.log(129), SITUATIONS)))}
    pool["opened"] = np.floor(np.exp(rng.uniform(0, np.log(65), SITUATIONS)))
    pool["live"] = upto(pool["opened"])
    pool["finished"] = upto(pool["opened"] - pool["live"])
    pool["agreeing"] = upto(pool["live"])
    pool["voters"] = pool["finished"]
    pool["top1"] = np.ceil(pool["voters"] * rng.uniform(0.3, 1, SITUATIONS))
    pool["top2"] = upto(np.minimum(pool["top1"], pool["voters"] - pool["top1"]))
    pool["distinct"] = np.minimum(pool["voters"], 1 + upto(pool["top2"]))
    pool["stable"] = upto(pool["round"])
    pool["confidence"] = rng.random(SITUATIONS)
    pool["ema"] = np.clip(pool["confidence"] + rng.normal(0, 0.1, SITUATIONS), 0, 1)
    pool["momentum"] = rng.normal(0, 0.05, SITUATIONS)
    branch = {"depth": 1 + upto(pool["round"] - 1)}
    branch["streak"] = upto(branch["depth"])
    branch["disagreement"] = upto(pool["round"])
    branch["agrees"] = (rng.random(SITUATIONS) < 0.5).astype(float)
    branch["support"] = np.where(branch["agrees"] > 0, pool["top1"], upto(pool["top2"]))
    branch["ended"] = (rng.random(SITUATIONS) < 0.5).astype(float)
    return (
        np.stack([pool[name] for name in POOL_FEATURES], axis=1),
        np.stack([branch[name] for name in BRANCH_FEATURES], axis=1),
    )
