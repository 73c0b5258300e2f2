"""Targets by vote of few branches."""

from collections import Counter

import numpy as np
import pytest

from autotts_jax.envs import WidthDepthRounds
from autotts_jax.envs.targets import poll
from autotts_jax.errors import InputError
from autotts_jax.replay import SYNTHETIC_MODELS, synthetic
from autotts_jax.replay.matrix import NONE
from autotts_jax.training import make_params, read_config

PLAYED, BRANCHES = 4, 12


@pytest.fixture(scope="module")
def dataset():
    return synthetic(0, SYNTHETIC_MODELS[:2], 3, BRANCHES)


@pytest.mark.parametrize("voters", [1, 3])
def test_the_first_branches_that_are_not_played_vote(dataset, voters):
    params = WidthDepthRounds(PLAYED).make_params(dataset.matrix, reward="majority")
    polled = poll(params, voters, PLAYED)
    finals, orders = np.asarray(dataset.matrix.finals()), np.asarray(params.orders.table)
    targets = np.asarray(polled.targets)
    assert targets.shape == (6, orders.shape[1])
    for question, cell in enumerate(dataset.matrix.cell):
        for row in range(50):
            asked = orders[cell, row, PLAYED : PLAYED + voters]
            counted = Counter(int(finals[question, branch]) for branch in asked)
            counted.pop(NONE, None)
            expected = counted.most_common(1)[0][0] if counted else NONE
            assert targets[question, row] == expected
    assert (targets != np.asarray(params.targets)).any()
    assert polled.orders is params.orders


def test_there_must_be_enough_voters(dataset):
    params = WidthDepthRounds(PLAYED).make_params(dataset.matrix, reward="majority")
    with pytest.raises(InputError, match="voters is 9, but only 8 branches of a question are not played"):
        poll(params, 9, PLAYED)


def test_a_run_is_trained_on_them(dataset, tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(
        f"[objective]\nreward = 'majority'\nvoters = 3\n"
        f"[trainer]\nkind = 'evolution'\nmax_branches = {PLAYED}\n[run]\nupdates = 1\n"
    )
    config = read_config(file)
    plain = WidthDepthRounds(PLAYED).make_params(dataset.matrix, reward="majority", seed=7)
    expected = poll(plain, 3, PLAYED).targets
    np.testing.assert_array_equal(make_params(config, dataset, 7).targets, expected)
