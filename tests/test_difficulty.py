"""Questions that are easier and harder than recorded."""

import jax.numpy as jnp
import numpy as np
import pytest

from autotts_jax.envs import WidthDepthRounds
from autotts_jax.envs.difficulty import vary_difficulty
from autotts_jax.replay.matrix import NONE, ProbeMatrix

BRANCHES, RIGHT = 40, (0, 8, 30, 40)


@pytest.fixture(scope="module")
def params():
    """Four questions of a cell, the last branches of the first one missing; a fifth has no known answer."""
    finals = (np.arange(BRANCHES) >= np.array([*RIGHT, 20])[:, None]).astype(np.int16)
    lengths = np.ones((5, BRANCHES), np.int32)
    lengths[0, 33:] = 0
    matrix = ProbeMatrix(
        answers=jnp.stack([jnp.full(finals.shape, NONE, jnp.int16), finals], axis=-1),
        lengths=jnp.asarray(lengths),
        tokens=jnp.asarray(lengths),
        gold=jnp.array([0, 0, 0, 0, NONE], jnp.int16),
        interval=jnp.full(5, 10, jnp.int32),
        cell=jnp.zeros(5, jnp.int32),
        vocabulary=2,
    )
    return WidthDepthRounds(16).make_params(matrix, seed=3)


def shares(params, width=BRANCHES // 2):
    """The share of right ones among the first branches. Shape (Q, R)."""
    right = np.asarray(params.matrix.finals() == 0)[:4]
    played = np.asarray(params.orders.table)[:4, :, :width]
    return np.take_along_axis(right[:, None], played, axis=2).mean(axis=2)


def test_each_question_has_orders_of_its_own_branches(params):
    varied = vary_difficulty(params, 2.0, seed=0)
    np.testing.assert_array_equal(varied.orders.group, np.arange(5))
    orders = np.asarray(varied.orders.table)
    np.testing.assert_array_equal(np.sort(orders, axis=2), np.broadcast_to(np.arange(BRANCHES), orders.shape))
    assert orders.shape[:2] == (5, params.orders.num_rows)
    assert (orders[0, :, :33] < 33).all()  # what is missing comes last
    assert all(getattr(varied, name) is getattr(params, name) for name in ("gamma_low", "reward", "targets"))


def test_first_branches_are_right_with_the_odds_of_the_varied_question(params):
    std, rows = 1.5, params.orders.num_rows
    first = np.asarray(vary_difficulty(params, std, seed=1).orders.table)[:, :, 0]
    δ, weight = np.polynomial.hermite_e.hermegauss(60)
    for question, right in enumerate(RIGHT):
        odds = right / max(33 if question == 0 else BRANCHES - right, 1e-9) * np.exp(std * δ)
        expected = weight @ (odds / (1 + odds)) / weight.sum()
        counted = np.mean(first[question] < right)
        assert counted == pytest.approx(expected, abs=4 * np.sqrt(0.25 / rows))


def test_easier_and_harder_are_as_likely(params):
    as_recorded, varied = (shares(vary_difficulty(params, std, seed=2)) for std in (0.0, 3.0))
    np.testing.assert_allclose(as_recorded.mean(axis=1), np.array(RIGHT) / BRANCHES, atol=0.02)
    spread = varied.std(axis=1)
    assert (spread[1:3] > 2 * as_recorded.std(axis=1)[1:3]).all()
    assert spread[0] == spread[3] == 0  # where all or none are right, no draw changes it
    # A question that most get right is now often one that most get wrong, and the other way round.
    assert 0.1 < np.mean(varied[2] < 0.5 + 1e-9) < 0.4


def test_without_a_known_answer_branches_are_drawn_evenly(params):
    orders = np.asarray(vary_difficulty(params, 5.0, seed=4).orders.table)[4]
    first = np.mean(orders[:, :20] < 20, axis=1)
    assert first.mean() == pytest.approx(0.5, abs=0.02)
    assert first.std() < 0.12


def test_a_seed_draws_the_same_orders(params):
    one, same, other = (vary_difficulty(params, 1.0, seed=seed).orders.table for seed in (5, 5, 6))
    np.testing.assert_array_equal(one, same)
    assert (np.asarray(one) != np.asarray(other)).any()
