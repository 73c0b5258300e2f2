"""Controllers given by five rules: what to open, read and prune, when to stop, and what a vote counts.

Everything else of a round is the same for all of them and stands here once. Programs that discovery finds are
rules, as data or as exported source; CMC, Parallel-Probe and SC can be written this way, too.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Bool, Float, Int32, Num

from autotts_jax.core import votes
from autotts_jax.core.controller import Controller, first_of, keep_live, within
from autotts_jax.core.lanes import choose
from autotts_jax.core.view import Action, StopReason, View
from autotts_jax.core.votes import Vote, WeightedVote, vote_weighted
from autotts_jax.policies.cmc import MOMENTUM_WINDOW, ROUNDS, completion_rank
from autotts_jax.replay.matrix import NONE
from autotts_jax.typing import Array, Scalar

LIGHTEST, HEAVIEST = 1e-30, 1e30
"""Weights of votes between which one can be divided by another. Heavier votes count as the heaviest does."""


class Seen(NamedTuple):
    """What rules decide on; of the pool, shape (), and of each branch, shape (W,).

    Attributes:
        round: rounds played.
        opened: branches opened.
        live: branches that can be read on.
        finished: branches read to their end.
        agreeing: live branches whose answer is the leader's.
        voters: votes in the last vote.
        top1: votes for its leader's answer.
        top2: votes for the runner-up.
        distinct: answers voted for in it.
        stable: rounds since the leader's answer last changed.
        confidence: the vote's confidence.
        ema: moving average of the confidence.
        momentum: how much that has risen over the window.
        depth: intervals read of each branch.
        streak: rounds since its answer last changed.
        disagreement: rounds, from ``warm_up`` on, since its answer last was the leader's.
        support: votes for its answer in the last vote.
        agrees: whether its answer is the leader's.
        ended: whether it was read to its end.
    """

    round: Int32[Array, ""]
    opened: Int32[Array, ""]
    live: Int32[Array, ""]
    finished: Int32[Array, ""]
    agreeing: Int32[Array, ""]
    voters: Float[Array, ""]
    top1: Float[Array, ""]
    top2: Float[Array, ""]
    distinct: Int32[Array, ""]
    stable: Int32[Array, ""]
    confidence: Float[Array, ""]
    ema: Float[Array, ""]
    momentum: Float[Array, ""]
    depth: Int32[Array, " W"]
    streak: Int32[Array, " W"]
    disagreement: Int32[Array, " W"]
    support: Float[Array, " W"]
    agrees: Bool[Array, " W"]
    ended: Bool[Array, " W"]


class RuleMemory(NamedTuple):
    """What a rule controller remembers; per-branch arrays have shape (W,), the others ().

    Attributes:
        round: rounds played.
        began: whether the last look has begun a round; if not, it has opened branches to be seen first.
        idle: whether that round had nothing to read.
        depth: intervals that were read of each branch before it.
        finished: branches that were read to the end before it.
        vote: the last vote.
        winner: key of the leader's answer.
        stable: rounds since that last changed.
        ema: moving average of the vote's confidence.
        momentum: how much it has risen over the window.
        recent: its values in the last rounds, the newest first. Shape (8,).
        keys: key of each branch's answer in the last round.
        streak: rounds since it last changed.
        disagreement: rounds since it last was the leader's.
        completion: orders branches by when they were read to their end.
    """

    round: Int32[Array, ""]
    began: Bool[Array, ""]
    idle: Bool[Array, ""]
    depth: Int32[Array, " W"]
    finished: Bool[Array, " W"]
    vote: WeightedVote
    winner: Int32[Array, ""]
    stable: Int32[Array, ""]
    ema: Float[Array, ""]
    momentum: Float[Array, ""]
    recent: Float[Array, " 8"]
    keys: Int32[Array, " W"]
    streak: Int32[Array, " W"]
    disagreement: Int32[Array, " W"]
    completion: Int32[Array, " W"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RuleController(Controller):
    """Plays by five rules, and optionally a sixth for the votes in its answer.

    A round prunes, reads, votes, and then answers or opens. A round in which nothing is read or opened is the
    last. A subclass is a registered dataclass, like any `Controller`; each rule is called with `Seen`.

    Attributes:
        initial: branches opened at the start.
        max_branches: branches opened at most.
        warm_up: the round from which disagreement is counted.
        spare: live branches that pruning leaves: 0, 1 or 2.
        alpha: weight of a new confidence in the moving average.
        window: rounds over which momentum is measured, at most 8.
        in_full: 1 to open branches by reading them to their end.
        by_completion: of answers with as many votes the leader is the one voted for first: by completion of
            the branch (1) or by branch (0).
    """

    initial: Scalar
    max_branches: Scalar
    warm_up: Scalar = within(0, default=0)
    spare: Scalar = within(0, 2, default=0)
    alpha: float | Float[Array, ""] = within(0, 1, default=1.0)
    window: Scalar = within(1, MOMENTUM_WINDOW, default=1)
    in_full: Scalar = 0
    by_completion: Scalar = 1

    def open(self, seen: Seen) -> Scalar:  # noqa: ARG002
        """How many branches to open at the end of a round."""
        return 0

    def read(self, seen: Seen) -> Num[Array, "..."] | int:  # noqa: ARG002
        """How many intervals to read of each live branch."""
        return 1

    def prune(self, seen: Seen) -> Bool[Array, "..."] | bool:  # noqa: ARG002
        """Which live branches to prune, at the start of a round."""
        return False

    def stop(self, seen: Seen) -> Bool[Array, ""] | bool:  # noqa: ARG002
        """Whether to answer, at the end of a round."""
        return False

    @abc.abstractmethod
    def weigh(self, seen: Seen) -> Num[Array, "..."] | int:
        """How much each branch's vote counts, in quarters up to 1; pruned branches do not vote."""

    def weigh_answer(self, seen: Seen) -> Num[Array, " W"] | None:  # noqa: ARG002
        """How much each branch's vote counts in the answer alone; None for as much as `weigh` says.

        Larger weights than 1e30 count as that; a branch whose weight is NaN or below 1e-30 does not vote. If
        none votes, the answer is that of `weigh`.
        """
        return None

    def init(self, view: View) -> tuple[RuleMemory, Action]:
        zero, zeros, no = jnp.int32(0), jnp.zeros(view.width, jnp.int32), jnp.bool_(False)
        memory = RuleMemory(
            round=zero,
            began=no,
            idle=no,
            depth=zeros,
            finished=view.finished,
            vote=WeightedVote.nobody(view.width),
            winner=jnp.int32(NONE),
            stable=zero,
            ema=jnp.float32(0),
            momentum=jnp.float32(0),
            recent=jnp.zeros(MOMENTUM_WINDOW, jnp.float32),
            keys=zeros + NONE,
            streak=zeros,
            disagreement=zeros,
            completion=jnp.arange(view.width, dtype=jnp.int32),
        )
        return memory, self._opens(jnp.minimum(self.initial, self.max_branches))

    def act(self, memory: RuleMemory, view: View) -> tuple[RuleMemory, Action]:
        """Ends the round that was begun at the last look, and begins the next or opens branches."""
        polled = self.poll(memory, view)
        stop, opening = self.conclude(polled, view)
        ended = choose(memory.began, polled._replace(round=memory.round + 1), memory)
        opening = jnp.where(memory.began, opening, 0)
        opens = opening > 0

        stop = jnp.where(memory.began, stop, StopReason.RUNNING)
        stays = opens | (stop != StopReason.RUNNING) | (view.budget_spent & (view.rounds > 0))

        begun, prune, read = self.begin(ended, view)
        action = self._opens(opening)._replace(
            stop=stop, prune=prune & ~opens, advance=jnp.where(opens, 0, read)
        )
        return choose(stays, ended._replace(began=jnp.bool_(False)), begun), action

    def _opens(self, count: Scalar) -> Action:
        in_full = jnp.asarray(self.in_full) > 0
        return Action(open=jnp.where(in_full, 0, count), read=jnp.where(in_full, count, 0))

    def see(self, memory: RuleMemory, view: View) -> Seen:
        """What the rules see between rounds."""
        live, agrees = view.live, view.agrees(memory.vote.leader)
        return Seen(
            round=memory.round,
            opened=view.opened,
            live=jnp.sum(live),
            finished=jnp.sum(view.finished),
            agreeing=jnp.sum(live & agrees),
            voters=memory.vote.voters,
            top1=memory.vote.top1,
            top2=memory.vote.top2,
            distinct=memory.vote.distinct,
            stable=memory.stable,
            confidence=memory.vote.confidence,
            ema=memory.ema,
            momentum=memory.momentum,
            depth=view.depth,
            streak=memory.streak,
            disagreement=memory.disagreement,
            support=memory.vote.support,
            agrees=agrees,
            ended=view.finished,
        )

    def look(self, memory: RuleMemory, view: View) -> tuple[RuleMemory, Seen]:
        """What the rules see at the start of a round, and the memory with this round counted."""
        counted = (memory.round >= self.warm_up) & view.live & (memory.vote.voters > 0)
        strayed = jnp.where(view.agrees(memory.vote.leader), 0, memory.disagreement + 1)
        memory = memory._replace(
            ema=self._smooth(memory.ema, memory.vote.confidence),
            disagreement=jnp.where(counted, strayed, memory.disagreement),
        )
        return memory, self.see(memory, view)

    def begin(
        self, memory: RuleMemory, view: View
    ) -> tuple[RuleMemory, Bool[Array, " W"], Int32[Array, " W"]]:
        """Begins a round: also returns which branches to prune, and how far to read the others."""
        memory, seen = self.look(memory, view)
        prune = keep_live(view.live & self.prune(seen), memory.disagreement, view.live, self.spare)
        live = view.live & ~prune
        read = jnp.where(live, self.read(seen), 0).astype(jnp.int32)
        memory = memory._replace(
            began=jnp.bool_(True), idle=~jnp.any(read > 0), depth=view.depth, finished=view.finished
        )
        return memory, prune, read

    def conclude(self, memory: RuleMemory, view: View) -> tuple[Array, Int32[Array, ""]]:
        """Ends a round: why the episode ends, if it does, and otherwise how many branches to open."""
        seen = self.see(memory, view)
        room = jnp.maximum(self.max_branches - view.opened, 0)
        opening = jnp.minimum(self.open(seen), room).astype(jnp.int32)
        idle = memory.idle | ~jnp.any(view.live)
        stop = first_of(
            (jnp.asarray(self.stop(seen), bool), StopReason.DECIDED),
            (idle & (opening <= 0), StopReason.EXHAUSTED),
            (memory.round + 1 >= ROUNDS, StopReason.STEP_LIMIT),
        )
        return stop, jnp.where(stop == StopReason.RUNNING, opening, 0)

    def answer(self, memory: RuleMemory, view: View) -> Vote:
        """The last weighted vote; without one, that of the branches not pruned."""
        held = memory.vote.unweighted.or_else(view.vote(view.active))
        weights = self.weigh_answer(self.see(memory, view))
        if weights is None:
            return held
        # What is not a weight counts nothing. As shares of the largest, sums neither overflow nor vanish.
        weights = jnp.nan_to_num(jnp.asarray(weights, jnp.float32), nan=0.0, posinf=HEAVIEST)
        weights = jnp.clip(weights, 0, HEAVIEST)
        voters = view.active & (memory.keys != NONE) & (weights >= LIGHTEST)
        largest = jnp.max(weights, where=voters, initial=LIGHTEST)
        shares = weights / largest
        return votes.vote(memory.keys, voters, memory.completion, shares).or_else(held)

    def poll(self, memory: RuleMemory, view: View) -> RuleMemory:
        """Has the branches vote after they were read, and follows what comes of it."""
        keys = view.answer_keys.astype(jnp.int32)
        same = (keys == memory.keys) & (keys != NONE)
        streak = jnp.where(view.depth > memory.depth, jnp.where(same, memory.streak + 1, 0), memory.streak)
        order = jnp.arange(view.width, dtype=jnp.int32)
        joined = view.finished & ~memory.finished
        completion = jnp.where(joined, completion_rank(memory.round, memory.depth), memory.completion)
        memory = memory._replace(keys=keys, streak=streak, completion=completion)

        weights = jnp.where(view.active, self.weigh(self.see(memory, view)), 0)
        vote = vote_weighted(keys, weights, jnp.where(jnp.asarray(self.by_completion) > 0, completion, order))
        winner = jnp.where(vote.leader == NONE, NONE, keys[vote.leader])
        ema = self._smooth(memory.ema, vote.confidence)
        recent = jnp.roll(memory.recent, 1).at[0].set(ema)
        return memory._replace(
            vote=vote,
            winner=winner,
            stable=jnp.where((winner == memory.winner) & (winner != NONE), memory.stable + 1, 0),
            ema=ema,
            recent=recent,
            momentum=ema - recent[jnp.minimum(memory.round, self.window - 1)],
        )

    def _smooth(self, ema: Array, confidence: Array) -> Array:
        return (1 - self.alpha) * ema + self.alpha * confidence
