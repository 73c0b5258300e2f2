"""What a policy sees of an episode: features of branches and of the whole, or all that was revealed.

Answers are only ever compared with one another here, so that ids never reach a policy; whatever depends on a
branch's unread part stays out. `tests/test_env_leaks.py` scrambles everything unrevealed to make sure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int, Int16, Int32, UInt

from autotts_jax.core import view as views
from autotts_jax.core import votes
from autotts_jax.core.view import View
from autotts_jax.core.votes import Vote
from autotts_jax.replay.matrix import NONE
from autotts_jax.replay.signals import DTYPE
from autotts_jax.typing import Array, Scalar

DEPTH_SCALE = 64
"""Intervals that a depth of 1.0 stands for."""
STREAK_SCALE = 16
"""Steps that a streak of 1.0 stands for."""
CLIP = 4
"""The largest value of a scaled count."""
GAMMA_DECADES = 8
"""γ = 10^-8 and below is shown as 1.0, γ >= 1 as 0.0."""
UNREVEALED, REVEALED_NONE = -1, -2
"""In a history: a probe not revealed yet, and a revealed one whose answer may not vote."""
LARGEST_SIGNAL = float(np.finfo(DTYPE).max)
"""The largest magnitude of a signal."""


class Feature(NamedTuple):
    """A feature, the largest value that it takes (the least is 0), and what it says."""

    name: str
    high: float
    meaning: str


BRANCH_FEATURES = (
    Feature("opened", 1, "1 once opened"),
    Feature("active", 1, "1 while opened and not pruned"),
    Feature("finished", 1, "1 once read to the end"),
    Feature("revealed", 1, "1 if the answer at the current depth is revealed"),
    Feature("answered", 1, "1 if its latest answer counts in votes"),
    Feature("depth", CLIP, f"depth / {DEPTH_SCALE}"),
    Feature("streak", CLIP, f"consecutive steps that revealed the same answer / {STREAK_SCALE}"),
    Feature("finals_share", 1, "share of votes of finals for its latest answer"),
    Feature("latest_share", 1, "share of votes of latest answers for its latest answer"),
    Feature("with_finals", 1, "1 if its latest answer leads the vote of finals"),
    Feature("with_latest", 1, "1 if its latest answer leads the vote of latest answers"),
    Feature("rank", 1, "rank of its latest answer among active branches / W; equal for equal answers"),
)
"""The columns of ``branches``, shape (W, F)."""

_VOTE = (
    ("voters", "votes / W"),
    ("top1", "votes of the leading answer / W"),
    ("top2", "votes of the runner-up / W"),
    ("confidence", "confidence that the leader is ahead, 1 - BetaCDF(0.5; top1 + 1, top2 + 1)"),
    ("entropy", "entropy of the votes / log W"),
)

GLOBAL_FEATURES = (
    Feature("time", 1, "steps taken / step limit"),
    Feature("opened", 1, "opened branches / W"),
    Feature("live", 1, "active unfinished branches / W"),
    Feature("finished", 1, "active finished branches / W"),
    Feature("pruned", 1, "pruned branches / W"),
    Feature("cost", CLIP, f"intervals read / ({DEPTH_SCALE} W)"),
    Feature("budget_left", 1, "share of the token budget that is left; 1 without a budget"),
    *(Feature(f"finals_{name}", 1, f"finals of active branches: {what}") for name, what in _VOTE),
    *(Feature(f"latest_{name}", 1, f"latest answers of active branches: {what}") for name, what in _VOTE),
    Feature("gamma", 1, f"the price γ of an interval: -log10(γ) / {GAMMA_DECADES}, within 0 … 1"),
)
"""The entries of ``globals``, shape (G,)."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Tracker:
    """What the steps so far have shown that the state does not hold; shape (W,).

    Attributes:
        completion: finals that were revealed in steps before the branch's own was; 0 until it is. It orders
            the finals by completion, those of one step in opening order.
        streak: steps in a row that revealed the same answer.
        keys: key of each branch's latest answer; never shown.
        counts: votes of active branches for each branch's latest answer: those of finals in the lower half of
            the word, those of latest answers in the upper half.
        first: the first active branch with each branch's latest answer; W where none has it. None where it is
            not kept.
        finals: the vote of the finals; among answers with as many votes, the one completed first wins.
        latest: the vote of the latest answers; among equals, the one of the branch opened first.
    """

    completion: Int16[Array, " W"]
    streak: Int16[Array, " W"]
    keys: Int16[Array, " W"]
    counts: UInt[Array, " W"]
    first: Int16[Array, " W"] | None
    finals: Vote
    latest: Vote


def start_tracking(width: int, keep_first: bool = False) -> Tracker:
    """Makes the tracker of an episode in which nothing is opened.

    Args:
        width: W, branches that an episode can open.
        keep_first: keep `Tracker.first` (static), for episodes of atomic steps alone.
    """
    zeros = jnp.zeros(width, jnp.int16)
    nobody = Vote.nobody(width)
    return Tracker(
        completion=zeros,
        streak=zeros,
        keys=jnp.full(width, NONE, jnp.int16),
        counts=jnp.zeros(width, _counter(width)[0]),
        first=jnp.full(width, width, jnp.int16) if keep_first else None,
        finals=nobody,
        latest=nobody,
    )


class Before(NamedTuple):
    """What has to be known of an episode before a step, to tell what the step has shown.

    Attributes:
        revealed_depth: the deepest revealed depth of each branch. Shape (W,).
        active: branches that were opened and not pruned. Shape (W,).
        finals: number of revealed finals. Shape ().
    """

    revealed_depth: Int32[Array, " W"]
    active: Bool[Array, " W"]
    finals: Int16[Array, ""]

    @classmethod
    def of(cls, view: View) -> Before:
        """Takes it of a view."""
        return cls(view.revealed_depth, view.active, jnp.sum(final_revealed(view), dtype=jnp.int16))


def track(tracker: Tracker, before: Before, after: View, atomic: bool = False) -> Tracker:
    """Updates the tracker after a step.

    Args:
        tracker: the tracker before the step.
        before: the episode before the step.
        after: the episode after it.
        atomic: the step revealed answers of, or pruned, one branch at most (static); those of others are not
            looked up again, nor other votes counted.
    """
    width = after.width
    fresh = after.revealed_depth > before.revealed_depth
    if atomic:
        touched = fresh | (after.active != before.active)
        branch = jnp.max(jnp.where(touched, jnp.arange(width), 0))
        keys = jnp.where(fresh, after.answer_key(branch), tracker.keys).astype(jnp.int16)
    else:
        keys = jnp.astype(after.answer_keys, jnp.int16)
    completion = jnp.where(fresh & after.finished, before.finals, tracker.completion)
    final, voting = _voters(after, keys)
    word, half = _counter(width)
    ballots = jnp.asarray(final.astype(word) + (voting.astype(word) << half))
    counts, first = tracker.counts, tracker.first
    if atomic:
        for key in (tracker.keys[branch], keys[branch]):  # no other answer has won or lost votes
            same = keys == key
            counts = jnp.where(same, jnp.sum(jnp.where(same, ballots, 0), dtype=word), counts)
            if first is not None:
                speaker = jnp.min(jnp.where(same & voting, jnp.arange(width), width))
                first = jnp.where(same, speaker, first).astype(jnp.int16)
    else:
        counts = votes.weigh(keys, ballots)
    final_support, support = _supports(counts)
    return Tracker(
        completion=completion,
        streak=jnp.where(fresh, jnp.where(keys == tracker.keys, tracker.streak, 0) + 1, tracker.streak),
        keys=keys,
        counts=counts,
        first=first,
        finals=votes.elect(keys, final_support, final, completion),
        latest=votes.elect(keys, support, voting),
    )


def _voters(view: View, keys: Int16[Array, " W"]) -> tuple[Bool[Array, " W"], Bool[Array, " W"]]:
    """The active branches with an answer that may vote: those whose final was revealed, and all."""
    voting = view.active & (keys != NONE)
    return voting & final_revealed(view), voting


def _first_voters(keys: Int16[Array, " W"], voting: Bool[Array, " W"]) -> Int16[Array, " W"]:
    """The first branch that votes for each branch's answer; W where none does."""
    width = keys.shape[0]
    order = jnp.where(voting, jnp.arange(width), width).astype(jnp.int16)
    return votes.fold_ballots(
        lambda least, ballot, voter: jnp.minimum(least, jnp.where(keys == ballot, voter, width)),
        jnp.full_like(order, width),
        keys,
        order,
    )


def _counter(width: int) -> tuple[type, int]:
    """A word for two counts of up to ``width``, and half its bits; short words pass twice as fast."""
    return (jnp.uint16, 8) if width < 2**8 else (jnp.uint32, 16)


def _supports(counts: UInt[Array, " W"]) -> tuple[Int32[Array, " W"], Int32[Array, " W"]]:
    """The two counts in each word of `Tracker.counts`."""
    _, half = _counter(counts.shape[0])
    return (counts & (2**half - 1)).astype(jnp.int32), (counts >> half).astype(jnp.int32)


def final_revealed(view: View) -> Bool[Array, " W"]:
    """Finds the branches whose final answer was revealed."""
    return view.finished & (view.revealed_depth == view.depth)


class VoteCounts(NamedTuple):
    """How the votes of a state stand; per-branch arrays have shape (W,).

    Attributes:
        view: what the episode has revealed.
        keys: key of each branch's latest answer; never shown.
        final: active branches with a final answer that was revealed and may vote.
        voting: active branches with a revealed answer that may vote.
        final_support: finals that are equal to the branch's latest answer.
        support: latest answers that are equal to it.
        first: the first branch that votes for it, see `Tracker`.
        finals: the vote of the finals, see `Tracker`.
        latest: the vote of the latest answers, see `Tracker`.
    """

    view: View
    keys: Int16[Array, " W"]
    final: Bool[Array, " W"]
    voting: Bool[Array, " W"]
    final_support: Int32[Array, " W"]
    support: Int32[Array, " W"]
    first: Int16[Array, " W"] | None
    finals: Vote
    latest: Vote


def vote_counts(view: View, tracker: Tracker) -> VoteCounts:
    """Finds how the votes stand."""
    keys = tracker.keys
    final, voting = _voters(view, keys)
    supports = _supports(tracker.counts)
    return VoteCounts(view, keys, final, voting, *supports, tracker.first, tracker.finals, tracker.latest)


def branch_features(counts: VoteCounts, tracker: Tracker) -> Float[Array, "W F"]:
    """Computes the features of each branch, `BRANCH_FEATURES`."""
    numbers = _branch_numbers(counts, tracker)
    # Stacked as rows and turned: as columns XLA would make each of them anew for every feature on a CPU. And
    # stacked before they are scaled, as short numbers have half of the bytes to be moved.
    rows = jnp.stack([numbers[name][0].astype(jnp.int16) for name, _, _ in BRANCH_FEATURES])
    scales = jnp.stack([jnp.asarray(numbers[name][1], jnp.float32) for name, _, _ in BRANCH_FEATURES])
    return (rows / scales[:, None]).T


def branch_columns(counts: VoteCounts, tracker: Tracker) -> dict[str, Float[Array, " W"]]:
    """Computes the same by name; what is not used of it is not computed under ``jit``."""
    numbers = _branch_numbers(counts, tracker)
    return {name: number.astype(jnp.float32) / scale for name, (number, scale) in numbers.items()}


def _branch_numbers(
    counts: VoteCounts, tracker: Tracker
) -> dict[str, tuple[Bool[Array, " W"] | Int[Array, " W"], Scalar]]:
    """The features of each branch as whole numbers, each with the scale that they are divided by."""
    view, keys = counts.view, counts.keys
    answered, opened = keys != NONE, view.depth > 0
    finals, latest = counts.finals, counts.latest
    return {
        "opened": (opened, 1),
        "active": (view.active, 1),
        "finished": (view.finished & opened, 1),
        "revealed": ((view.revealed_depth == view.depth) & opened, 1),
        "answered": (answered, 1),
        "depth": (jnp.minimum(view.depth, CLIP * DEPTH_SCALE), DEPTH_SCALE),
        "streak": (jnp.minimum(tracker.streak, CLIP * STREAK_SCALE), STREAK_SCALE),
        "finals_share": (jnp.where(answered, counts.final_support, 0), jnp.maximum(finals.voters, 1)),
        "latest_share": (jnp.where(answered, counts.support, 0), jnp.maximum(latest.voters, 1)),
        "with_finals": (answered & (finals.voters > 0) & (keys == keys[finals.leader]), 1),
        "with_latest": (answered & (latest.voters > 0) & (keys == keys[latest.leader]), 1),
        "rank": (_rank(counts), view.width),
    }


def branch_signals(view: View, names: Sequence[str]) -> Float[Array, "W S"]:
    """Looks up what each branch shows besides its latest revealed answer.

    Returns:
        The values; 0 where nothing is revealed, as networks cannot read NaN. The streak is 0 there, and
        above it elsewhere.
    """
    values = jnp.stack([view.signal(name) for name in names], axis=1)
    return jnp.where(view.revealed_depth[:, None] > 0, values, 0)


def global_features(
    counts: VoteCounts, time: Scalar, max_steps: Scalar, gamma: Float[Array, ""]
) -> Float[Array, " G"]:
    """Computes the features of the episode, `GLOBAL_FEATURES`."""
    entries = global_entries(counts, time, max_steps, gamma)
    return jnp.stack([entries[name] for name, _, _ in GLOBAL_FEATURES])


def global_entries(
    counts: VoteCounts, time: Scalar, max_steps: Scalar, gamma: Float[Array, ""]
) -> dict[str, Float[Array, ""]]:
    """Computes the same by name."""
    view = counts.view
    width, budget = view.width, view.budget
    finished = jnp.sum(view.active & view.finished)
    active = jnp.sum(view.active)
    entries = {
        "time": jnp.minimum(time / max_steps, 1),
        "opened": view.opened / width,
        "live": (active - finished) / width,
        "finished": finished / width,
        "pruned": (view.opened - active) / width,
        "cost": jnp.minimum(view.intervals / (DEPTH_SCALE * width), CLIP),
        "budget_left": 1 if budget is None else jnp.clip(1 - view.tokens / jnp.maximum(budget, 1), 0, 1),
        **_vote_features("finals", counts.finals, counts.final, counts.final_support),
        **_vote_features("latest", counts.latest, counts.voting, counts.support),
        "gamma": jnp.clip(-jnp.log10(jnp.maximum(gamma, 1e-30)) / GAMMA_DECADES, 0, 1),
    }
    return {name: jnp.asarray(entry, jnp.float32) for name, entry in entries.items()}


def _vote_features(
    prefix: str, vote: Vote, voters: Bool[Array, " W"], support: Int32[Array, " W"]
) -> dict[str, Array]:
    width = vote.width
    share = support / jnp.maximum(vote.voters, 1)
    # Over voters, not answers: an answer with c of n votes comes c times, each with weight 1 / n.
    log = jnp.where(voters, jnp.log(jnp.maximum(share, 1 / width)), 0)
    entropy = -jnp.sum(log) / jnp.maximum(vote.voters, 1)
    return {
        f"{prefix}_voters": vote.voters / width,
        f"{prefix}_top1": vote.top1 / width,
        f"{prefix}_top2": vote.top2 / width,
        f"{prefix}_confidence": vote.confidence,
        f"{prefix}_entropy": jnp.clip(entropy / jnp.log(max(width, 2)), 0, 1),
    }


def _rank(counts: VoteCounts) -> Int[Array, " W"]:
    """Rank of each voter's answer by votes, then by its first voter; W for who does not vote."""
    voting, width = counts.voting, counts.view.width
    # Short words pass twice as fast, where scores of up to W (W + 1) fit.
    word = jnp.int16 if width * (width + 1) < 2**15 else jnp.int32
    first = _first_voters(counts.keys, voting) if counts.first is None else counts.first
    first = jnp.astype(first, word)
    score = counts.support.astype(word) * (width + 1) - first
    # Each answer is counted once, where its first voter speaks for it.
    speaker = jnp.where(voting & (first == jnp.arange(width)), score, jnp.iinfo(word).min)
    ahead = votes.fold_ballots(lambda count, other: count + (other > score), jnp.zeros_like(score), speaker)
    return jnp.where(voting, ahead, width)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class History:
    """Everything revealed, with answers numbered in the order in which they were first revealed.

    Attributes:
        shown: number of the answer at each depth, `UNREVEALED` or `REVEALED_NONE` without one. Shape (W, K).
        numbers: number of each answer key, ``NONE`` where it was not revealed yet. Shape (V,).
    """

    shown: Int16[Array, "W K"]
    numbers: Int16[Array, " V"]


def start_history(view: View) -> History:
    """Makes the history of an episode in which nothing is revealed."""
    return History(
        jnp.full((view.width, view.max_depth), UNREVEALED, jnp.int16),
        jnp.full(view.num_keys, NONE, jnp.int16),
    )


def extend_history(history: History, view: View) -> History:
    """Adds what a step revealed; that of one step is numbered by branch, then by depth."""
    width, depths = history.shown.shape
    num_keys = history.numbers.shape[0]
    keys = view.revealed_keys
    fresh = (keys != views.UNREVEALED) & (history.shown == UNREVEALED)
    numbered = jnp.where(keys < 0, 0, history.numbers[keys]) != NONE
    place = jnp.arange(width * depths).reshape(width, depths)
    new = fresh & (keys != NONE) & ~numbered
    first = jnp.full(num_keys, width * depths).at[jnp.where(new, keys, num_keys)].min(place, mode="drop")
    leads = new & (first[keys] == place)
    number = jnp.max(history.numbers) + jnp.cumsum(leads.reshape(-1)).reshape(leads.shape)
    numbers = (
        jnp.asarray(history.numbers)
        .at[jnp.where(leads, keys, num_keys)]
        .set(number.astype(jnp.int16), mode="drop")
    )
    shown = jnp.where(keys == NONE, jnp.int16(REVEALED_NONE), numbers[keys])
    return History(jnp.where(fresh, shown, history.shown), numbers)
