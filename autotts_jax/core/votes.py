"""Majority votes among branches, with Python's ``Counter.most_common`` order on ties.

The answer with the most votes wins; among answers with as many, the one that was voted for first. "First" is
given by an integer rank of each voter (smaller is earlier), so that a vote needs no sorted pool. Where votes
have weights, the heaviest answer wins.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int, Int32, Num, UInt32

from autotts_jax.core.mdp import WORD
from autotts_jax.errors import InputError
from autotts_jax.replay.matrix import NONE
from autotts_jax.typing import Array, checked


def is_correct(answer: Int[np.ndarray, "*any"], gold: Int[np.ndarray, "*any"]) -> Bool[np.ndarray, "*any"]:
    """Whether ids of answers are that of the gold answer; a missing answer never is.

    Args:
        answer: ids of answers; ``NONE`` for none.
        gold: ids of the gold answers, in a shape that broadcasts.
    """
    return (answer != NONE) & (answer == gold)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Vote:
    """The outcome of a vote among W branches.

    Attributes:
        leader: the branch that cast the winning answer's first vote; ``NONE`` without votes. Shape ().
        top1: votes of the winning answer. Shape ().
        top2: the most votes of another answer, 0 where there is none. Shape ().
        voters: number of votes cast. Shape ().
        width: W (static).
    """

    leader: Int32[Array, ""]
    top1: Int32[Array, ""]
    top2: Int32[Array, ""]
    voters: Int32[Array, ""]
    width: int = dataclasses.field(metadata={"static": True})

    @classmethod
    def nobody(cls, width: int) -> Vote:
        """Makes a vote that nobody has voted in.

        Args:
            width: W.

        Returns:
            The vote, without a leader.
        """
        zero = jnp.int32(0)
        return cls(jnp.int32(NONE), zero, zero, zero, width=width)

    @property
    def confidence(self) -> Float[Array, ""]:
        """Confidence in the leader: ``1 - BetaCDF(0.5; top1 + 1, top2 + 1)``, and 0 without votes."""
        table = jnp.asarray(confidence_table(self.width), jnp.float32)
        return table.reshape(-1)[self.top1 * (self.width + 1) + self.top2]

    def winner(self, answers: Int[Array, " W"]) -> Int[Array, ""]:
        """Looks up the winning answer.

        Args:
            answers: the answers that were voted on.

        Returns:
            The leader's answer; ``NONE`` without votes.
        """
        return jnp.where(self.leader == NONE, NONE, answers[self.leader])

    def or_else(self, other: Vote) -> Vote:
        """Replaces the vote by another one where nobody voted.

        Args:
            other: the other vote.

        Returns:
            This vote; the other one without votes.
        """
        return jax.tree.map(lambda ours, others: jnp.where(self.voters > 0, ours, others), self, other)


MOST_BRANCHES = 1290
"""The largest W that `elect` can count: W³ fits into 31 bits."""

VOTE_UNITS = 4
"""Weighted votes count multiples of 1 / `VOTE_UNITS`."""


class WeightedVote(NamedTuple):
    """The outcome of a vote in which votes count differently.

    Attributes:
        leader: the branch that cast the winning answer's first vote; ``NONE`` without votes. Shape ().
        top1: votes of the winning answer. Shape ().
        top2: the most votes of another answer, 0 where there is none. Shape ().
        voters: votes cast. Shape ().
        distinct: answers voted for. Shape ().
        confidence: as `Vote.confidence`. Shape ().
        support: votes for each branch's answer. Shape (W,).
    """

    leader: Int32[Array, ""]
    top1: Float[Array, ""]
    top2: Float[Array, ""]
    voters: Float[Array, ""]
    distinct: Int32[Array, ""]
    confidence: Float[Array, ""]
    support: Float[Array, " W"]

    @classmethod
    def nobody(cls, width: int) -> WeightedVote:
        """Makes a vote that nobody has voted in.

        Args:
            width: W.
        """
        zero = jnp.float32(0)
        return cls(jnp.int32(NONE), zero, zero, zero, jnp.int32(0), zero, jnp.zeros(width, jnp.float32))

    @property
    def unweighted(self) -> Vote:
        """The vote with its numbers rounded up to whole votes."""
        top1, top2, voters = (
            jnp.ceil(count).astype(jnp.int32) for count in (self.top1, self.top2, self.voters)
        )
        return Vote(self.leader, top1, top2, voters, width=self.support.shape[0])


@functools.lru_cache
def confidence_table(width: int, units: int = 1) -> np.ndarray:
    """Tabulates the confidence for every (top1, top2) up to ``width`` votes each.

    ``1 - BetaCDF(x; a, b) = BetaCDF(1 - x; b, a)`` keeps full precision where the confidence is near 1.

    Args:
        width: W, the largest number of votes.
        units: the table's steps in a vote.

    Returns:
        Confidences in float64. Shape (units · W + 1, units · W + 1).
    """
    import scipy.special  # here, as few need it and each sealed process would import it

    votes = np.arange(units * width + 1) / units
    table = scipy.special.betainc(votes[None, :] + 1, votes[:, None] + 1, 0.5)
    table[0, 0] = 0.0  # an empty pool; by the formula it would be 1/2
    return table


def largest(values: Int[Array, " W"]) -> Int[Array, ""]:
    """Finds the largest of integers.

    On a CPU it is the negative of the least: XLA computes a minimum by vector instructions there, and a
    maximum by a chain of comparisons, in eight times as long. On a GPU XLA, as of JAX 0.11.2, gets the least
    of negated integers wrong.
    """
    return jax.lax.platform_dependent(values, cpu=lambda values: -jnp.min(-values), default=jnp.max)


@checked
def vote(
    answers: Int[Array, " W"],
    voters: Bool[Array, " W"],
    rank: Int[Array, " W"] | None = None,
    weights: Float[Array, " W"] | None = None,
) -> Vote:
    """Holds a vote among branches by comparing their answers.

    Args:
        answers: answer ids, keys or labels; ``NONE`` casts no vote.
        voters: the branches that vote.
        rank: insertion order, distinct among voters; branch order by default.
        weights: what each branch's vote weighs, at least 0; NaN weighs 0. The answer with the largest weight
            wins, of equally heavy ones that with the most votes. The same for all by default.
    """
    voters = voters & (answers != NONE)
    count = support(answers, voters)
    eligible = voters
    if weights is not None:
        weight = weigh(answers, jnp.where(voters & (weights > 0), weights, 0))
        eligible = voters & (weight == jnp.max(jnp.where(voters, weight, -jnp.inf)))
    leader, top1 = _lead(count, eligible, rank)
    return _count_others(answers, count, voters, leader, top1)


@checked
def vote_weighted(
    answers: Int[Array, " W"], weights: Num[Array, " W"], rank: Int[Array, " W"]
) -> WeightedVote:
    """Holds a vote in which votes count differently.

    Args:
        answers: answer ids, keys or labels; ``NONE`` casts no vote.
        weights: what each branch's vote counts, in [0, 1]; rounded to multiples of 1 / `VOTE_UNITS`.
        rank: insertion order that decides ties, distinct among voters.
    """
    units = jnp.rint(jnp.asarray(weights, jnp.float32) * VOTE_UNITS).astype(jnp.int32)
    units = jnp.where(answers == NONE, 0, units)
    count = weigh(answers, units)
    leader, top1 = _lead(count, units > 0, rank)
    top2 = largest(jnp.where((units > 0) & (answers != answers[leader]), count, 0))
    size = VOTE_UNITS * answers.shape[0] + 1
    table = jnp.asarray(confidence_table(answers.shape[0], VOTE_UNITS), jnp.float32)
    # The votes for an answer, each divided by all of them, add up to one.
    distinct = jnp.rint(jnp.sum(units / jnp.maximum(count, 1))).astype(jnp.int32)
    return WeightedVote(
        leader=leader,
        top1=top1 / VOTE_UNITS,
        top2=top2 / VOTE_UNITS,
        voters=jnp.sum(units) / VOTE_UNITS,
        distinct=distinct,
        confidence=table.reshape(-1)[top1 * size + top2],
        support=count / VOTE_UNITS,
    )


@checked
def support(answers: Int[Array, " W"], voters: Bool[Array, " W"]) -> Int32[Array, " W"]:
    """Tallies the votes for each branch's answer.

    Returns:
        For each branch the number of voters that give its answer; of no use where that is ``NONE``.
    """
    ballots = jnp.where(voters, answers, jnp.asarray(NONE, answers.dtype))
    # Unrolled over the ballots: XLA makes one pass of it on a CPU, and a slow W x W reduction otherwise.
    # Counted in as many bits as the ids have, as twice as many of 16 fit a vector unit.
    agreeing = ((answers == ballot).astype(answers.dtype) for ballot in ballots)
    return functools.reduce(jnp.add, agreeing).astype(jnp.int32)


def fold_ballots(fold: Callable[..., Array], start: Num[Array, " W"], *ballots: Array) -> Num[Array, " W"]:
    """Folds a function over the branches.

    In two unrolled halves: unrolled, XLA makes one pass of it on a CPU; the loop makes it keep the total
    instead of computing it anew for each use.

    Args:
        fold: maps a total and the ballot of one branch to the next total.
        start: the first total. Shape (W,).
        ballots: arrays with an entry a branch. Shape (W,) each.
    """
    width = start.shape[0]
    half = width // 2

    def fold_all(total: Array, parts: Sequence[Array]) -> Array:
        return functools.reduce(lambda total, ballot: fold(total, *ballot), zip(*parts, strict=True), total)

    def fold_half(index: Array, total: Array) -> Array:
        return fold_all(total, [jax.lax.dynamic_slice_in_dim(part, index * half, half) for part in ballots])

    total = jax.lax.fori_loop(0, 2, fold_half, start) if half else start
    return fold_all(total, [part[2 * half :] for part in ballots])


@checked
def weigh(answers: Int[Array, " W"], weights: Num[Array, " W"]) -> Num[Array, " W"]:
    """Adds up, for each branch, the weights of the branches that give its answer.

    Returns:
        Sums in the weights' dtype.
    """

    def add(total: Array, ballot: Array, weight: Array) -> Array:
        return total + jnp.where(answers == ballot, weight, 0)

    return fold_ballots(add, jnp.zeros_like(weights), answers, weights)


@checked
def elect(
    answers: Int[Array, " W"],
    count: Int32[Array, " W"],
    voters: Bool[Array, " W"],
    rank: Int[Array, " W"] | None = None,
) -> Vote:
    """Determines the outcome of a vote from its tally, in a single reduction.

    Args:
        answers: answer ids.
        count: votes of each branch's answer, see `support`.
        voters: the branches that vote; all of them have an answer.
        rank: insertion order of each voter, in 0 … W - 1; equal ones and the default are in branch order.

    Raises:
        InputError: there are more than `MOST_BRANCHES` branches.
    """
    width = voters.shape[0]
    if width > MOST_BRANCHES:
        raise InputError(f"a vote can be held among {MOST_BRANCHES} branches at most, but there are {width}")
    order = jnp.arange(width, dtype=jnp.int32)
    rank = jnp.zeros_like(order) if rank is None else rank
    nobody = -jnp.iinfo(jnp.int32).max
    best = largest(jnp.where(voters, (count * width - rank) * width - order, nobody))
    leader = jnp.where(best == nobody, NONE, -best % width)
    top1 = jnp.where(best == nobody, 0, count[leader])
    return _count_others(answers, count, voters, leader, top1)


@checked
def vote_by_masks(
    masks: UInt32[Array, "W words"], voters: Bool[Array, " W"], rank: Int[Array, " W"] | None = None
) -> Vote:
    """Holds a vote on answers that do not change, from masks that say which branches agree.

    W population counts instead of W x W comparisons.

    Args:
        masks: bit j of row i is set where branches i and j have the same answer (see `equivalence_masks`).
        voters: the branches that vote.
        rank: insertion order, distinct among voters; branch order by default.
    """
    voters = voters & jnp.any(masks != 0, axis=1)
    ballots = pack_bits(voters)
    count = jnp.sum(jax.lax.population_count(masks & ballots), axis=1, dtype=jnp.int32)
    leader, top1 = _lead(count, voters, rank)
    bit = jnp.arange(voters.shape[0], dtype=jnp.uint32)
    words = jnp.repeat(masks[leader], WORD)[: voters.shape[0]]
    rest = voters & ((words >> (bit % WORD)) & 1 == 0)
    return _outcome(leader, top1, largest(jnp.where(rest, count, 0)), voters)


@checked
def equivalence_masks(answers: Int[Array, " W"]) -> UInt32[Array, "W words"]:
    """Finds the branches that agree with each branch.

    Returns:
        For each branch the set of branches with the same answer, itself included, as a bit set; empty for
        ``NONE``.
    """
    words = []
    for first in range(0, answers.shape[0], WORD):
        ballots = enumerate(answers[first : first + WORD])
        agreeing = (jnp.where(answers == ballot, np.uint32(1 << bit), 0) for bit, ballot in ballots)
        words.append(functools.reduce(jnp.bitwise_or, agreeing))
    # Stacked as rows and turned, which XLA does in half of the time that columns take it on a CPU.
    return jnp.where(answers != NONE, jnp.stack(words), jnp.uint32(0)).T


def pack_bits(mask: Bool[Array, " W"]) -> UInt32[Array, " words"]:
    """Packs a boolean mask into 32-bit words, lowest bit first."""
    bits = jnp.pad(mask, (0, -mask.shape[0] % WORD)).reshape(-1, WORD).astype(jnp.uint32)
    return jnp.sum(bits << jnp.arange(WORD, dtype=jnp.uint32), axis=-1, dtype=jnp.uint32)


def _lead(
    count: Int32[Array, " W"], voters: Bool[Array, " W"], rank: Int[Array, " W"] | None
) -> tuple[Int32[Array, ""], Int32[Array, ""]]:
    """The earliest voter among those with the most votes, and that number of votes."""
    width = count.shape[0]
    order = jnp.arange(width, dtype=jnp.int32)
    if rank is None:  # then one reduction finds both
        nobody = -width
        best = largest(jnp.where(voters, count * width - order, nobody))
        leader = -best % width
        is_nobody = best == nobody
        return jnp.where(is_nobody, NONE, leader), jnp.where(is_nobody, 0, (best + leader) // width)
    count = jnp.where(voters, count, 0)
    top1 = largest(count)
    last = jnp.iinfo(jnp.int32).max
    rank = rank.astype(jnp.int32)
    earliest = jnp.min(jnp.where(voters & (count == top1), rank, last))
    index = largest(jnp.where(voters & (rank == earliest), order, NONE))
    return index, top1


def _count_others(answers: Array, count: Array, voters: Array, leader: Array, top1: Array) -> Vote:
    """The outcome of a vote whose leader is known."""
    rest = voters & (answers != answers[leader])
    return _outcome(leader, top1, largest(jnp.where(rest, count, 0)), voters)


def _outcome(leader: Array, top1: Array, top2: Array, voters: Array) -> Vote:
    cast = jnp.sum(voters, dtype=jnp.int32)
    return Vote(leader, top1, top2, cast, width=voters.shape[0])
