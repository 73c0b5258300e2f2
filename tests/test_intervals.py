"""What a mean over questions may claim: intervals, p-values and how often they hold."""

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis.extra import numpy as hnp

from autotts_jax.intervals import (
    DETECTABLE,
    DRAWS,
    FEWEST,
    UNSEEN,
    Questions,
    adjusted_p_values,
    random_weights,
    reach,
)


def questions(number):
    return Questions(np.full(number, 1 / number), [f"question {q:04}" for q in range(number)])


def shares(least, most):
    return hnp.arrays(float, st.integers(FEWEST, 40), elements=st.floats(least, most, width=32))


def test_of_right_and_wrong_the_interval_is_that_of_a_beta_distribution():
    """A Bayesian bootstrap of 0 and 1 with 0.75 at each end is Beta(right + 0.75, wrong + 0.75)."""
    right = np.repeat([1.0, 0.0], [12, 18])
    expected = scipy.stats.beta(12 + UNSEEN, 18 + UNSEEN).ppf([0.025, 0.975])
    assert questions(30).mean(right).interval == pytest.approx(expected, abs=0.006)
    never = questions(30).mean(np.zeros(30)).interval
    assert never == pytest.approx((0, scipy.stats.beta(UNSEEN, 30 + UNSEEN).ppf(0.975)), abs=0.006)


def test_intervals_have_the_width_that_theory_gives_where_questions_are_many():
    difference = np.random.default_rng(0).normal(0.1, 0.2, 400).clip(-1, 1)
    found = questions(400).gain(difference)
    error = difference.std() / 20
    expected = difference.mean() - 1.96 * error, difference.mean() + 1.96 * error
    assert found.interval == pytest.approx(expected, abs=0.15 * error)
    assert found.se == pytest.approx(error, rel=0.05)


def test_a_sparse_gain_is_not_told_from_none():
    """Two of thirty questions gain 0.1 and 0.3: percentile bootstrap p = 0.0002 of 2 and 3 gains alike."""
    gain = np.zeros(30)
    gain[[3, 7]] = 0.1, 0.3
    found = questions(30).gain(gain)
    assert found.interval[0] < 0 < found.interval[1]
    assert found.p > 0.2
    assert questions(30).gain(np.full(30, 0.2)).p < 0.001


def test_few_questions_claim_nothing():
    for number in range(1, FEWEST):
        few = questions(number)
        for found in (few.mean(np.ones(number)), few.gain(np.ones(number)), few.ratio(*np.ones((2, number)))):
            assert found.value == 1
            assert np.isnan([*found.interval, found.p, found.se]).all()
            assert found.lower(0.05) == -np.inf
        assert few.needed(np.ones(number), 0.1) is None
    assert np.isfinite(questions(FEWEST).gain(np.ones(FEWEST)).interval).all()


@given(shares(-1, 1))
@settings(max_examples=30, deadline=None)
def test_p_value_and_interval_agree_about_0(gain):
    found = questions(len(gain)).gain(gain)
    low, high = found.interval
    assert low <= found.value <= high
    if abs(found.p - 0.05) > 10 / DRAWS:
        assert (found.p < 0.05) == (low > 0 or high < 0)


@given(shares(-1, 1), st.randoms(use_true_random=False))
@settings(max_examples=20, deadline=None)
def test_the_order_of_questions_does_not_matter(gain, random):
    texts = [f"{q:03}" for q in range(len(gain))]
    order = list(range(len(gain)))
    random.shuffle(order)
    weight = np.full(len(gain), 1 / len(gain))
    shuffled = Questions(weight, [texts[q] for q in order]).gain(gain[order])
    assert shuffled.interval == pytest.approx(Questions(weight, texts).gain(gain).interval, abs=1e-9)


@given(shares(0, 1))
@settings(max_examples=20, deadline=None)
def test_loss_mirrors_gain(gain):
    over = questions(len(gain))
    low, high = over.gain(gain).interval
    other_low, other_high = over.gain(-gain).interval
    width = max(high - low, 1e-9)
    assert (-other_high, -other_low) == pytest.approx((low, high), abs=0.05 * width)


def test_a_question_of_two_models_is_one_question():
    difference = np.random.default_rng(0).uniform(-1, 1, 20)
    texts = [str(q) for q in range(20)]
    once = Questions(np.full(20, 1 / 20), texts).gain(difference).interval
    twice = Questions(np.full(40, 1 / 40), texts * 2).gain(np.tile(difference, 2)).interval
    assert once == pytest.approx(twice)


def test_weighted_means_equal_plain_python():
    rng = np.random.default_rng(1)
    texts = [str(q % 9) for q in range(15)]
    values, weight = rng.random(15), rng.random(15)
    over = Questions(weight, texts)
    assert over.mean(values).value == pytest.approx((weight * values).sum() / weight.sum())
    names = sorted(set(texts))
    means = [
        np.average(values[[t == n for t in texts]], weights=weight[[t == n for t in texts]]) for n in names
    ]
    np.testing.assert_allclose(over.means(values), means)
    drawn = random_weights(9) * [*np.bincount([int(t) for t in texts], weight), *[weight.sum() / 9] * 2]
    expected = (drawn @ [*means, 0, 1]) / drawn.sum(axis=1)
    np.testing.assert_allclose(over.mean(values).draws, expected)


def test_ratios_are_of_means_and_cover_the_ratios_of_questions():
    rng = np.random.default_rng(2)
    its = rng.lognormal(size=40)
    over = questions(40)
    exact = over.ratio(its / 3, its)
    assert [exact.value, *exact.interval] == pytest.approx([1 / 3] * 3)
    mine = its * rng.uniform(0.2, 0.6, 40)
    found = over.ratio(mine, its)
    assert found.value == pytest.approx(mine.sum() / its.sum())
    assert 0.2 < found.interval[0] < found.value < found.interval[1] < 0.6
    assert np.isnan(over.ratio(mine, np.zeros(40)).interval).all()
    mine, its = rng.integers(1000, 3000, (2, 2000))
    ratio = mine.mean() / its.mean()
    error = np.std(mine / mine.mean() - its / its.mean()) / np.sqrt(2000) * ratio
    expected = ratio - 1.96 * error, ratio + 1.96 * error
    assert questions(2000).ratio(mine, its).interval == pytest.approx(expected, abs=0.2 * error)


def test_an_unseen_question_reaches_as_far_as_gains_leave_open():
    assert reach(np.zeros(30)) == 1
    assert reach(np.full(30, 0.1 + 0.2 - 0.3)) == 1
    assert reach(np.array([0.0, 0.5])) == pytest.approx(0.75)
    assert reach(np.array([0.1] * 9 + [0.0] * 21)) == pytest.approx((9 * 0.1 + 1) / 10)
    assert reach(np.array([-1.0, 0.2])) == 1


def test_costs_move_a_gain_and_widen_it():
    rng = np.random.default_rng(3)
    gain = rng.choice([0.0, 0.3], 30)
    over = questions(30)
    same = over.gain(gain, np.full(30, 0.1))
    alone = over.gain(gain)
    assert same.interval == pytest.approx([end - 0.1 for end in alone.interval])
    wider = over.gain(gain, rng.choice([0.0, 0.4], 30))
    assert np.ptp(wider.interval) > np.ptp(alone.interval)


def test_seeds_are_drawn_but_are_no_questions():
    rng = np.random.default_rng(0)
    by_question = rng.uniform(-1, 1, 30)
    over = questions(30)
    alone = over.gain(by_question).interval
    # Other seeds that show the same narrow nothing.
    assert over.gain(np.tile(by_question, (5, 20, 1))).interval == pytest.approx(alone)
    # A training seed that is better or worse on all questions widens the interval.
    low, high = over.gain(by_question + rng.normal(size=(5, 20, 1))[:, :1]).interval
    assert high - low > 1.5 * (alone[1] - alone[0])


def test_intervals_over_seeds_and_questions_hold_as_often_as_they_say():
    rng = np.random.default_rng(1)
    missed = 0
    for _ in range(60):
        values = rng.normal(0, 1, (5, 1)) + rng.normal(0, 2, (1, 40)) + rng.normal(0, 1, (5, 40))
        low, high = questions(40).gain(values).interval
        missed += not low <= 0 <= high
    assert missed <= 8, "3 are expected"


def test_as_many_questions_as_needed_tell_a_gain_four_times_in_five():
    rng = np.random.default_rng(4)

    def sample(number):
        return (rng.random(number) < 0.3) * rng.choice([-0.2, 0.4], number, p=[0.25, 0.75])

    number = questions(4_000).needed(sample(4_000), 0.3 * 0.25)
    over = questions(number)
    found = np.mean([over.gain(sample(number)).p < 0.05 for _ in range(100)])
    assert 0.72 < found < 0.92
    more = sample(200)
    assert questions(200).needed(more, 0.01) > questions(200).needed(more, 0.05) >= FEWEST
    se = DETECTABLE * questions(200).gain(more).se
    assert questions(200).needed(more, se) == pytest.approx(200, rel=0.05)


def test_p_values_are_adjusted_as_scipy_adjusts_them():
    values = np.random.default_rng(0).choice([1e-4, 0.01, 0.2, 0.2, 0.7, 1.0], 12)
    for number in range(1, 13):
        expected = scipy.stats.false_discovery_control(values[:number])
        np.testing.assert_allclose(adjusted_p_values(values[:number]), expected, rtol=1e-12)
