"""Votes against Python's ``Counter``, which defines them."""

from collections import Counter

import jax
import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from autotts_jax.core import votes
from autotts_jax.replay.matrix import NONE

WIDTH = 40

vote = jax.jit(votes.vote)
vote_by_masks = jax.jit(
    lambda answers, voters, rank=None: votes.vote_by_masks(votes.equivalence_masks(answers), voters, rank)
)

elect = jax.jit(
    lambda answers, voters, rank: votes.elect(
        answers, votes.support(answers, voters), voters & (answers != NONE), rank
    )
)

weighted = jax.jit(votes.vote_weighted)

ballots = st.tuples(
    st.lists(st.integers(NONE, 5), min_size=WIDTH, max_size=WIDTH),
    st.lists(st.booleans(), min_size=WIDTH, max_size=WIDTH),
    st.permutations(range(WIDTH)),
)


def test_ranks_may_be_small_integers():
    answers, voters = np.array([0, 1, 0, 1, 1] + [NONE] * 35, np.int16), np.ones(WIDTH, bool)
    rank = np.arange(WIDTH)[::-1]
    expected = vote(answers, voters, rank.astype(np.int32))
    for kind in (np.int8, np.int16):
        assert jax.tree.map(int, vote(answers, voters, rank.astype(kind))) == jax.tree.map(int, expected)


@given(ballots)
def test_votes_are_those_of_a_counter(ballot):
    answers, voters, rank = (
        np.array(part, kind) for part, kind in zip(ballot, ("i4", "?", "i4"), strict=True)
    )
    order = [i for i in np.argsort(rank) if voters[i] and answers[i] != NONE]
    counted = Counter(int(answers[i]) for i in order).most_common()
    for hold in (vote, vote_by_masks, elect):
        outcome = hold(answers, voters, rank)
        assert int(outcome.voters) == len(order)
        assert [int(outcome.top1), int(outcome.top2)] == [*(count for _, count in counted), 0, 0][:2]
        if counted:
            winner = counted[0][0]
            assert int(outcome.leader) == next(i for i in order if answers[i] == winner)
        else:
            assert int(outcome.leader) == NONE
            assert float(outcome.confidence) == 0.0


def test_no_answer_is_correct_not_even_where_gold_is_none():
    assert votes.is_correct(np.array([0, 1, NONE, NONE]), np.array([0, 0, 0, NONE])).tolist() == [1, 0, 0, 0]


@given(ballots, st.lists(st.sampled_from([0.25, 1, 1, 1, 2.5]), min_size=WIDTH, max_size=WIDTH))
def test_the_heaviest_answer_wins(ballot, weights):
    """Weight first, then votes, then who came first; the outcome still tells numbers of votes."""
    answers, voters, rank = (
        np.array(part, kind) for part, kind in zip(ballot, ("i4", "?", "i4"), strict=True)
    )
    voters &= answers != NONE
    order = [i for i in np.argsort(rank) if voters[i]]
    count = Counter(int(answers[i]) for i in order)
    weight = {a: sum(weights[i] for i in order if answers[i] == a) for a in count}
    outcome = vote(answers, voters, rank, np.float32(weights))
    equal = vote(answers, voters, rank, np.ones(WIDTH, np.float32))
    assert jax.tree.map(int, equal) == jax.tree.map(int, vote(answers, voters, rank))
    assert int(outcome.voters) == len(order)
    if not order:
        assert int(outcome.leader) == NONE
        return
    winner = max(count, key=lambda a: (weight[a], count[a]))  # of equal ones the first
    assert int(outcome.leader) == next(i for i in order if answers[i] == winner)
    assert int(outcome.top1) == count.pop(winner)
    assert int(outcome.top2) == max(count.values(), default=0)


@given(ballots, st.lists(st.integers(0, 4), min_size=WIDTH, max_size=WIDTH))
def test_weighted_votes_add_up_to_what_a_sum_over_branches_does(ballot, quarters):
    answers, rank = (np.array(part, "i4") for part in (ballot[0], ballot[2]))
    order = [i for i in np.argsort(rank) if quarters[i] and answers[i] != NONE]
    weight = dict.fromkeys(answers[order].tolist(), 0.0)
    for i in order:
        weight[int(answers[i])] += quarters[i] / 4
    outcome = weighted(answers, np.float32(quarters) / 4, rank)
    assert [float(outcome.top1), float(outcome.top2)] == [*sorted(weight.values(), reverse=True), 0, 0][:2]
    assert float(outcome.voters) == sum(weight.values())
    assert int(outcome.distinct) == len(weight)
    assert [float(outcome.support[i]) for i in order] == [weight[int(answers[i])] for i in order]
    if not order:
        assert (int(outcome.leader), float(outcome.confidence)) == (NONE, 0.0)
        return
    winner = max(weight, key=weight.__getitem__)  # of equal ones the first
    assert int(outcome.leader) == next(i for i in order if answers[i] == winner)
    expected = 1 - scipy.stats.beta.cdf(0.5, float(outcome.top1) + 1, float(outcome.top2) + 1)
    assert float(outcome.confidence) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("weights", "leader"),
    [([1, 1, 3], 2), ([0.25, 0.5, 1], 2), ([1, np.nan, 0.5], 0), ([1, -9, 0.5], 0), ([0, 0, 0], 0)],
)
def test_what_is_no_weight_weighs_nothing(weights, leader):
    outcome = vote(np.array([4, 4, 7], np.int32), np.ones(3, bool), None, np.float32(weights))
    assert [int(number) for number in (outcome.leader, outcome.voters)] == [leader, 3]


def test_ties_go_to_the_answer_inserted_first_in_branch_order_by_default():
    answers = np.array([3, 1, 1, 3] + [NONE] * (WIDTH - 4), np.int32)
    everyone = np.ones(WIDTH, bool)
    assert int(vote(answers, everyone).leader) == 0
    assert int(vote(answers, everyone & (np.arange(WIDTH) > 0)).leader) == 1
    assert int(vote_by_masks(answers, everyone).leader) == 0


def test_confidence_is_the_beta_tail():
    table = votes.confidence_table(8)
    for top1, top2 in [(1, 0), (3, 1), (8, 8), (8, 0), (2, 7)]:
        expected = 1 - scipy.stats.beta.cdf(0.5, top1 + 1, top2 + 1)
        assert table[top1, top2] == pytest.approx(expected, abs=1e-12)
    assert table[0, 0] == 0.0


def test_pack_bits_puts_the_lowest_bit_first():
    mask = np.zeros(40, bool)
    mask[[0, 5, 32, 39]] = True
    assert votes.pack_bits(mask).tolist() == [0b100001, 0b10000001]
