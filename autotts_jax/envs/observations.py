"""What a policy sees of an episode: features of branches and of the whole, or all that was revealed.

Answers are only ever compared with one another here, so that ids never reach a policy; whatever depends on a
branch's unread part stays out. `tests/test_env_leaks.py` scrambles everything unrevealed to make sure.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int16, Int32

from autotts_jax.envs import core, votes
from autotts_jax.envs import pool as branch_pool
from autotts_jax.envs.core import Scalar
from autotts_jax.envs.pool import ReplayPool
from autotts_jax.envs.votes import Vote
from autotts_jax.replay.matrix import NONE, ProbeMatrix
from autotts_jax.typing import Array

DEPTH_SCALE = 64
"""Intervals that a depth of 1.0 stands for."""
STREAK_SCALE = 16
"""Steps that a streak of 1.0 stands for."""
CLIP = 4.0
"""The largest value of a scaled count."""
GAMMA_DECADES = 8
"""γ = 10^-8 and below is shown as 1.0, γ >= 1 as 0.0."""
UNREVEALED, REVEALED_NONE = -1, -2
"""In a history: a probe not revealed yet, and a revealed one whose answer may not vote."""


class Feature(NamedTuple):
    """A feature, the largest value that it takes (the least is 0), and what it says."""

    name: str
    high: float
    meaning: str


BRANCH_FEATURES = (
    Feature("opened", 1, "1 once opened"),
    Feature("active", 1, "1 while opened and not pruned"),
    Feature("finished", 1, "1 once read to the end"),
    Feature("revealed", 1, "1 where the answer at the current depth is revealed"),
    Feature("answered", 1, "1 where some revealed answer may vote"),
    Feature("depth", CLIP, f"depth / {DEPTH_SCALE}"),
    Feature("streak", CLIP, f"steps in a row that revealed the same answer / {STREAK_SCALE}"),
    Feature("against", CLIP, f"steps in a row that revealed an answer unlike the finals' / {STREAK_SCALE}"),
    Feature("finals_share", 1, "share of the finals' votes that its latest answer has"),
    Feature("latest_share", 1, "share of the latest answers' votes that its latest answer has"),
    Feature("with_finals", 1, "1 where its latest answer leads the finals' vote"),
    Feature("with_latest", 1, "1 where its latest answer leads the vote of latest answers"),
    Feature("rank", 1, "rank of its latest answer among active branches' / W; equal for equal answers"),
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
    Feature("budget_left", 1, "share of the token budget that is left; 1 without one"),
    *(Feature(f"finals_{name}", 1, f"finals of active branches: {what}") for name, what in _VOTE),
    *(Feature(f"latest_{name}", 1, f"latest answers of active branches: {what}") for name, what in _VOTE),
    Feature("stable", CLIP, f"steps in a row with the same leader of the latest answers / {DEPTH_SCALE}"),
    Feature("gamma", 1, f"the price γ of an interval: -log10(γ) / {GAMMA_DECADES}, within 0 … 1"),
)
"""The entries of ``globals``, shape (G,)."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Tracker:
    """What the steps so far have shown that the state does not hold; per-branch arrays have shape (W,).

    Attributes:
        shown_at: when the latest answer was revealed, as a number that grows with time and then with
            opening order; orders the finals by completion.
        streak: steps in a row that revealed the same answer.
        against: steps in a row that revealed another answer than that leading the finals.
        leader: answer id that leads the latest answers; never shown. Shape ().
        stable: steps in a row with that leader. Shape ().
    """

    shown_at: Int32[Array, " W"]
    streak: Int32[Array, " W"]
    against: Int32[Array, " W"]
    leader: Int32[Array, ""]
    stable: Int32[Array, ""]


def start_tracking(width: int) -> Tracker:
    """The tracker of an episode in which nothing was opened."""
    zeros = jnp.zeros(width, jnp.int32)
    return Tracker(zeros, zeros, zeros, jnp.int32(NONE), jnp.int32(0))


def track(tracker: Tracker, before: ReplayPool, after: ReplayPool, time: Scalar) -> Tracker:
    """The tracker after step number ``time`` led from one pool to the other."""
    width = after.width
    old, ids = branch_pool.answer_ids(before), branch_pool.answer_ids(after)
    fresh = branch_pool.state_of(after).shown > branch_pool.state_of(before).shown
    shown_at = jnp.where(fresh, time * width + jnp.arange(width, dtype=jnp.int32), tracker.shown_at)
    finals = branch_pool.leader_answer(after, finals_vote(after, shown_at))
    latest = branch_pool.leader_answer(after, latest_vote(after))
    other = (ids != finals) & (finals != NONE)
    return Tracker(
        shown_at=shown_at,
        streak=jnp.where(fresh, jnp.where(ids == old, tracker.streak, 0) + 1, tracker.streak),
        against=jnp.where(fresh, jnp.where(other, tracker.against + 1, 0), tracker.against),
        leader=latest,
        stable=jnp.where((latest == tracker.leader) & (latest != NONE), tracker.stable + 1, 0),
    )


def finals_vote(pool: ReplayPool, shown_at: Int32[Array, " W"]) -> Vote:
    """The vote of the active branches' finals, in order of completion."""
    return pool.vote_finals(pool.active, shown_at)


def latest_vote(pool: ReplayPool) -> Vote:
    """The vote of the active branches' latest answers, in opening order."""
    return pool.vote(pool.active)


def branch_features(pool: ReplayPool, tracker: Tracker) -> Float[Array, "W F"]:
    """The features of each branch, `BRANCH_FEATURES`."""
    state, ids = branch_pool.state_of(pool), branch_pool.answer_ids(pool)
    answered = ids != NONE
    finals, latest = finals_vote(pool, tracker.shown_at), latest_vote(pool)
    final_voters = pool.active & _final_shown(pool)
    columns = {
        "opened": pool.depth > 0,
        "active": pool.active,
        "finished": pool.finished & (pool.depth > 0),
        "revealed": (state.shown == pool.depth) & (pool.depth > 0),
        "answered": answered,
        "depth": jnp.minimum(pool.depth / DEPTH_SCALE, CLIP),
        "streak": jnp.minimum(tracker.streak / STREAK_SCALE, CLIP),
        "against": jnp.minimum(tracker.against / STREAK_SCALE, CLIP),
        "finals_share": _share(ids, final_voters, finals.voters),
        "latest_share": _share(ids, pool.active, latest.voters),
        "with_finals": answered & (ids == branch_pool.leader_answer(pool, finals)),
        "with_latest": answered & (ids == branch_pool.leader_answer(pool, latest)),
        "rank": _rank(ids, pool.active),
    }
    return jnp.stack([columns[name].astype(jnp.float32) for name, _, _ in BRANCH_FEATURES], axis=-1)


def global_features(
    pool: ReplayPool, tracker: Tracker, time: Scalar, max_steps: Scalar, gamma: Float[Array, ""]
) -> Float[Array, " G"]:
    """The features of the episode, `GLOBAL_FEATURES`."""
    width, ids = pool.width, branch_pool.answer_ids(pool)
    finals, latest = finals_vote(pool, tracker.shown_at), latest_vote(pool)
    budget = branch_pool.budget_of(pool)
    entries = {
        "time": jnp.minimum(time / max_steps, 1),
        "opened": pool.opened / width,
        "live": jnp.sum(pool.live) / width,
        "finished": jnp.sum(pool.active & pool.finished) / width,
        "pruned": (pool.opened - jnp.sum(pool.active)) / width,
        "cost": jnp.minimum(core.intervals(branch_pool.state_of(pool)) / (DEPTH_SCALE * width), CLIP),
        "budget_left": 1 if budget is None else jnp.clip(1 - pool.tokens / jnp.maximum(budget, 1), 0, 1),
        **_vote_features("finals", finals, ids, pool.active & _final_shown(pool)),
        **_vote_features("latest", latest, ids, pool.active),
        "stable": jnp.minimum(tracker.stable / DEPTH_SCALE, CLIP),
        "gamma": jnp.clip(-jnp.log10(jnp.maximum(gamma, 1e-30)) / GAMMA_DECADES, 0, 1),
    }
    return jnp.stack([jnp.asarray(entries[name], jnp.float32) for name, _, _ in GLOBAL_FEATURES])


def _vote_features(prefix: str, vote: Vote, ids: Int32[Array, " W"], voters: Bool[Array, " W"]) -> dict:
    width = vote.width
    voters &= ids != NONE
    share = _share(ids, voters, vote.voters)
    entropy = -jnp.sum(jnp.where(voters, jnp.log(jnp.maximum(share, 1e-9)), 0)) / jnp.maximum(vote.voters, 1)
    return {
        f"{prefix}_voters": vote.voters / width,
        f"{prefix}_top1": vote.top1 / width,
        f"{prefix}_top2": vote.top2 / width,
        f"{prefix}_confidence": vote.confidence,
        f"{prefix}_entropy": jnp.clip(entropy / jnp.log(max(width, 2)), 0, 1),
    }


def _final_shown(pool: ReplayPool) -> Bool[Array, " W"]:
    """Branches whose final answer was revealed."""
    state = branch_pool.state_of(pool)
    return pool.finished & (state.shown == state.depth) & (state.depth > 0)


def _share(ids: Int32[Array, " W"], voters: Bool[Array, " W"], cast: Int32[Array, ""]) -> Float[Array, " W"]:
    """The share of the votes cast that each branch's answer has."""
    return jnp.where(ids != NONE, votes.support(ids, voters), 0) / jnp.maximum(cast, 1)


def _rank(ids: Int32[Array, " W"], voters: Bool[Array, " W"]) -> Float[Array, " W"]:
    """Rank of each voter's answer by votes, then by its first voter, over W; 1 for who does not vote."""
    width = ids.shape[0]
    voters = voters & (ids != NONE)
    order = jnp.arange(width, dtype=jnp.int32)
    ballots = [(ids == ids[i]) & voters[i] for i in range(width)]
    first = functools.reduce(jnp.minimum, [jnp.where(same, i, width) for i, same in enumerate(ballots)])
    score = votes.support(ids, voters) * (width + 1) - first
    speaks = jnp.where(voters & (first == order), score, jnp.iinfo(jnp.int32).min)
    ahead = functools.reduce(jnp.add, [(speaks[i] > score).astype(jnp.int32) for i in range(width)])
    return jnp.where(voters, ahead / width, 1)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class History:
    """Everything revealed, with answers numbered in the order in which they were first revealed.

    Attributes:
        shown: number of the answer at each depth, `UNREVEALED` or `REVEALED_NONE` without one. Shape (W, K).
        labels: number of each answer id, ``NONE`` where it was not revealed yet. Shape (V,).
    """

    shown: Int16[Array, "W K"]
    labels: Int16[Array, " V"]


def start_history(matrix: ProbeMatrix, width: int) -> History:
    """The history of an episode in which nothing was revealed."""
    return History(
        jnp.full((width, matrix.max_depth), UNREVEALED, jnp.int16),
        jnp.full(matrix.vocabulary, NONE, jnp.int16),
    )


def extend_history(history: History, before: ReplayPool, after: ReplayPool) -> History:
    """The history after a step; what one step reveals is numbered by branch, then by depth."""
    width, depths = history.shown.shape
    vocabulary = history.labels.shape[0]
    fresh = revealed_depths(after, depths) & ~revealed_depths(before, depths)
    ids = branch_pool.all_answer_ids(after)
    numbered = jnp.where(ids == NONE, 0, history.labels[ids]) != NONE
    place = jnp.arange(width * depths).reshape(width, depths)
    new = fresh & ~numbered
    first = jnp.full(vocabulary, width * depths).at[jnp.where(new, ids, vocabulary)].min(place, mode="drop")
    leads = new & (first[ids] == place)
    number = jnp.max(history.labels) + jnp.cumsum(leads.reshape(-1)).reshape(leads.shape)
    labels = (
        jnp.asarray(history.labels)
        .at[jnp.where(leads, ids, vocabulary)]
        .set(number.astype(jnp.int16), mode="drop")
    )
    shown = jnp.where(ids == NONE, jnp.int16(REVEALED_NONE), labels[ids])
    return History(jnp.where(fresh, shown, history.shown), labels)


def revealed_depths(pool: ReplayPool, depths: int) -> Bool[Array, "W K"]:
    """Which probes are in Ω."""
    words = branch_pool.state_of(pool).revealed
    assert words is not None, "the pool was begun without a history"
    depth = jnp.arange(depths, dtype=jnp.uint32)
    return (words[:, depth // core.WORD] >> (depth % core.WORD)) & 1 == 1
