"""Tuning of files: constants of controllers times factors, and what becomes of the file."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autotts_jax as at
from autotts_jax.discovery import Course, Judge, measure
from autotts_jax.discovery.judging.tuning import GENERATION, with_factors
from autotts_jax.discovery.proposers.prompts import CONTRACT, code_of
from autotts_jax.policies import (
    CMC,
    DEER,
    ControllerPlayer,
    EarlyStopping,
    SelfConsistency,
    ShortM,
    as_player,
    select,
    tuned,
)
from autotts_jax.policies.scaling import constants, scaled
from autotts_jax.policies.sealed.playing import MOST_CONSTANTS, constants_of, is_name

EXAMPLE = code_of(CONTRACT.read_text())
HASTY = EXAMPLE.replace("quorum=round(2 + 6 * beta)", "quorum=1")
"""It answers what the first finished branch says, whatever β is."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Fields(SelfConsistency):
    flag: bool = True
    share: float = 0.25
    small: np.float32 = dataclasses.field(default_factory=lambda: np.float32(0.5))
    whole: jax.Array = dataclasses.field(default_factory=lambda: jnp.int32(3))
    weights: tuple = (np.ones(2), {"part": 7})
    kind: str = dataclasses.field(default="static", metadata={"static": True})


def test_constants_are_single_numbers():
    assert constants(Fields(4)) == ("branches", "share", "small", "whole", "weights.1.part")
    assert set(constants(CMC.of_beta(0.5))) == {field.name for field in dataclasses.fields(CMC)}


def test_no_more_than_can_be_shown_is_tuned():
    parts = {"line\nbreak": 1.0, "": 2.0, "x" * 200: 3.0} | {f"part{number:03}": 4.0 for number in range(100)}
    player = ControllerPlayer("odd", (Fields(4, weights=(parts,)),))
    names = constants_of(player)
    assert len(names) == MOST_CONSTANTS
    assert all(is_name(name) for name in names)
    assert {"branches", "weights.0.part000"} < set(names)
    assert constants_of(as_player("cmc")) == constants(CMC.of_beta(0.5))


def test_factors_change_constants_alone():
    before = Fields(5)
    after = scaled(before, dict.fromkeys(constants(before), 1.5) | {"flag": 3.0, "weights.0": 3.0})
    assert (after.branches, type(after.branches)) == (8, int)
    assert (after.share, after.small, after.whole) == (0.375, np.float32(0.75), 4)
    assert (after.small.dtype, after.whole.dtype) == (np.float32, np.int32)
    assert (after.flag, after.kind, after.weights[1]) == (True, "static", {"part": 10})
    assert after.weights[0] is before.weights[0]
    assert scaled(before, {}) == before
    assert tuned(CMC.of_beta, {"max_use": 0.5})(1.0) == dataclasses.replace(CMC.of_beta(1.0), max_use=32)


def test_factors_keep_to_limits():
    assert scaled(EarlyStopping(64), {"window": 0.01}).window == 1
    assert scaled(SelfConsistency(np.int32(2**30)), {"branches": 3.0}).branches == 2**31 - 1
    assert scaled(SelfConsistency(2**30), {"branches": 3.0}).branches == 2**31 - 1
    assert scaled(ShortM(4, np.int32(2)), {"quorum": 0.1}).quorum == 1
    assert repr(scaled(DEER(4, 0.95), {"threshold": 8.0}).threshold) == "1.0"


def test_factors_become_part_of_the_file():
    names = {}
    exec(with_factors(EXAMPLE + "\n\n\n", "candidate", {"branches": 0.5, "quorum": 2.0}), names)
    plain = {}
    exec(EXAMPLE, plain)
    for beta in (0.0, 1.0):
        before, after = plain["candidate"](beta), names["candidate"](beta)
        assert (after.branches, after.quorum) == (before.branches // 2, 2 * before.quorum)
        assert after.patience == before.patience


def course(tries):
    judge = Judge.of(at.load("smollm2").select(range(0, 40, 4)), 8, 0)
    return Course.of(judge, select("sc"), np.arange(10), range(2), (0.0, 0.5, 1.0), tries=tries)


@pytest.mark.nightly
def test_a_file_is_measured_with_the_constants_that_were_found():
    plain, tuning = course(0), course(3 * GENERATION)
    found = measure(HASTY, tuning)
    assert found.untuned == measure(HASTY, plain).metrics
    assert found.metrics["objective"] > found.untuned["objective"]
    assert found.source.startswith(HASTY.rstrip())
    assert "candidate = tuned(candidate, {'branches'" in found.source
    assert measure(found.source, plain).metrics == found.metrics
