"""The interpreter: one controller that plays every program, so that one compilation serves them all.

A clause is a box: the conjunction of its comparisons says for each feature from where to where it may lie.
The boxes and values of a program at one β are a handful of arrays, which are traced: candidates, values of β,
questions and branch orders are the lanes of one rollout.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int32

from autotts_jax.core import votes
from autotts_jax.core.controller import Controller, Family, first_of, keep_live
from autotts_jax.core.pool import BranchPool, Pool, StopReason
from autotts_jax.core.votes import Vote, WeightedVote
from autotts_jax.discovery.rules import (
    BRANCH_FEATURES,
    DEFAULTS,
    DIALS,
    MAX_CLAUSES,
    POOL_FEATURES,
    SLOT_VALUES,
    SLOTS,
    Program,
    range_of,
)
from autotts_jax.replay.matrix import NONE
from autotts_jax.typing import Array

BRANCH_SLOTS = ("read", "prune", "weigh")
"""The slots that are asked of every branch."""

LONGEST_WINDOW = int(DIALS["window"].high)

ROUNDS = 500
"""Rounds of an episode at most."""

MOST_READS = 1024
"""More intervals than a branch has; orders completions within a round."""


class ListMemory(NamedTuple):
    """What the interpreter remembers; per-branch arrays have shape (W,), the others ().

    Attributes:
        round: rounds played.
        vote: the last vote.
        winner: key of the leader's answer.
        stable: rounds since that last changed.
        ema: moving average of the confidence.
        momentum: how much it has risen over the window.
        recent: its values in the last rounds, the newest first. Shape (8,).
        keys: key of each branch's answer in the last round.
        streak: rounds since it last changed.
        disagreement: rounds since it last was the leader's.
        completion: orders branches by when they were read to their end.
    """

    round: Int32[Array, ""]
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


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class DecisionList(Controller):
    """Plays a program at one β; made by `decision_list`.

    A round prunes, reads, votes, and then answers or opens. A round in which nothing is read or opened is the
    last.

    Attributes:
        dials: the dials, in the order of `DIALS`. Shape (8,).
        pool_low: least value of each feature of the pool, by slot and clause. Shape (5, 3, Fp).
        pool_high: the value that it must be below. Shape (5, 3, Fp).
        branch_low: least value of each feature of a branch, by slot of `BRANCH_SLOTS`. Shape (3, 3, Fb).
        branch_high: the value that it must be below. Shape (3, 3, Fb).
        values: what the clauses say. Shape (5, 3).
    """

    dials: Float[Array, " D"]
    pool_low: Float[Array, "S C Fp"]
    pool_high: Float[Array, "S C Fp"]
    branch_low: Float[Array, "B C Fb"]
    branch_high: Float[Array, "B C Fb"]
    values: Float[Array, "S C"]

    def start(self, pool: Pool) -> tuple[ListMemory, Pool]:
        zero, zeros = jnp.int32(0), jnp.zeros(pool.width, jnp.int32)
        nothing = jnp.zeros_like(jnp.asarray(self.dials)[0])
        memory = ListMemory(
            round=zero,
            vote=WeightedVote.nobody(pool.width),
            winner=jnp.int32(NONE),
            stable=zero,
            ema=nothing,
            momentum=nothing,
            recent=jnp.zeros(LONGEST_WINDOW, nothing.dtype),
            keys=zeros + NONE,
            streak=zeros,
            disagreement=zeros,
            completion=jnp.arange(pool.width, dtype=jnp.int32),
        )
        return memory, self._open(pool, jnp.minimum(self._dial("initial"), self._dial("max_branches")))

    def round(self, memory: ListMemory, pool: Pool) -> tuple[ListMemory, Pool, Array]:
        ema = self._smooth(memory.ema, memory.vote.confidence)
        agrees = pool.agrees(memory.vote.leader)
        counted = (memory.round >= self._dial("warm_up")) & pool.live & (memory.vote.voters > 0)
        strayed = jnp.where(agrees, 0, memory.disagreement + 1)
        disagreement = jnp.where(counted, strayed, memory.disagreement)
        memory = memory._replace(ema=ema, disagreement=disagreement)

        seen = self._seen(memory, pool)
        prune = pool.live & (self._of_branches("prune", memory, pool, seen) > 0)
        pool = pool.prune(keep_live(prune, disagreement, pool.live, self._dial("spare")))
        depth = pool.depth
        read = jnp.where(pool.live, self._of_branches("read", memory, pool, seen), 0)
        live = pool.live
        pool = pool.advance(read)
        memory = self._vote(memory, pool, live, depth)

        seen = self._seen(memory, pool)
        room = jnp.maximum(self._dial("max_branches") - pool.opened, 0)
        opening = jnp.minimum(self._of_pool("open", seen), room)
        idle = ~jnp.any(pool.live) | ~jnp.any(read > 0)
        stop = first_of(
            (self._of_pool("stop", seen) > 0, StopReason.DECIDED),
            (idle & (opening <= 0), StopReason.EXHAUSTED),
            (memory.round + 1 >= ROUNDS, StopReason.STEP_LIMIT),
        )
        pool = self._open(pool, jnp.where(stop == StopReason.RUNNING, opening, 0))
        return memory._replace(round=memory.round + 1), pool, stop

    def vote(self, memory: ListMemory, pool: BranchPool) -> Vote:
        """The last weighted vote; without one, that of the branches not pruned."""
        return memory.vote.unweighted.or_else(pool.vote(pool.active))

    def _open(self, pool: Pool, count: Array) -> Pool:
        in_full = self._dial("in_full") > 0
        return pool.open(jnp.where(in_full, 0, count)).read(jnp.where(in_full, count, 0))

    def _vote(
        self, memory: ListMemory, pool: Pool, was_live: Bool[Array, " W"], was_at: Int32[Array, " W"]
    ) -> ListMemory:
        """Has the branches vote, and follows what comes of it."""
        keys = pool.answer_keys.astype(jnp.int32)
        same = (keys == memory.keys) & (keys != NONE)
        streak = jnp.where(pool.depth > was_at, jnp.where(same, memory.streak + 1, 0), memory.streak)
        order = jnp.arange(pool.width, dtype=jnp.int32)
        done = (memory.round * MOST_READS + (MOST_READS - was_at)) * pool.width + order
        completion = jnp.where(was_live & pool.finished, done, memory.completion)
        memory = memory._replace(keys=keys, streak=streak, completion=completion)

        weights = jnp.where(pool.active, self._of_branches("weigh", memory, pool), 0)
        rank = jnp.where(self._dial("by_completion") > 0, completion, order)
        vote = votes.vote_weighted(keys, weights, rank)
        winner = jnp.where(vote.leader == NONE, NONE, keys[vote.leader])
        ema = self._smooth(memory.ema, vote.confidence)
        recent = jnp.roll(memory.recent, 1).at[0].set(ema)
        return memory._replace(
            vote=vote,
            winner=winner,
            stable=jnp.where((winner == memory.winner) & (winner != NONE), memory.stable + 1, 0),
            ema=ema,
            recent=recent,
            momentum=ema - recent[jnp.minimum(memory.round, self._dial("window") - 1)],
        )

    def _seen(self, memory: ListMemory, pool: BranchPool) -> list[Array]:
        """The features of the pool, in the order of `POOL_FEATURES`."""
        live = pool.live
        values = {
            "round": memory.round,
            "opened": pool.opened,
            "live": jnp.sum(live),
            "finished": jnp.sum(pool.finished),
            "agreeing": jnp.sum(live & pool.agrees(memory.vote.leader)),
            "voters": memory.vote.voters,
            "top1": memory.vote.top1,
            "top2": memory.vote.top2,
            "distinct": memory.vote.distinct,
            "stable": memory.stable,
            "confidence": memory.vote.confidence,
            "ema": memory.ema,
            "momentum": memory.momentum,
        }
        return [jnp.asarray(values[name], jnp.float32) for name in POOL_FEATURES]

    def _of_pool(self, slot: str, seen: Sequence[Array]) -> Int32[Array, ""]:
        """What a slot says of the pool."""
        at = SLOTS.index(slot)
        holds = _inside(self.pool_low[at], self.pool_high[at], seen)
        return _first(holds, self.values[at], DEFAULTS[slot]).astype(jnp.int32)

    def _of_branches(
        self, slot: str, memory: ListMemory, pool: BranchPool, seen: Sequence[Array] | None = None
    ) -> Array:
        """What a slot says of each branch: int32, and float32 for weights."""
        values = {
            "depth": pool.depth,
            "streak": memory.streak,
            "disagreement": memory.disagreement,
            "support": memory.vote.support,
            "agrees": pool.agrees(memory.vote.leader),
            "ended": pool.finished,
        }
        features = [jnp.asarray(values[name], jnp.float32) for name in BRANCH_FEATURES]
        at, place = SLOTS.index(slot), BRANCH_SLOTS.index(slot)
        low, high = self.branch_low[place][..., None], self.branch_high[place][..., None]
        holds = _inside(jnp.moveaxis(low, 1, -1), jnp.moveaxis(high, 1, -1), features)
        if seen is not None:
            holds &= _inside(self.pool_low[at], self.pool_high[at], seen)[:, None]
        said = _first(holds, self.values[at], DEFAULTS[slot])
        return said if slot == "weigh" else said.astype(jnp.int32)

    def _dial(self, name: str) -> Int32[Array, ""]:
        return jnp.asarray(self.dials[list(DIALS).index(name)], jnp.int32)

    def _smooth(self, ema: Array, confidence: Array) -> Array:
        alpha = self.dials[list(DIALS).index("alpha")]
        return (1 - alpha) * ema + alpha * confidence


def _inside(low: Array, high: Array, features: Sequence[Array]) -> Bool[Array, "C ..."]:
    """Whether the features lie in each clause's box; its bounds have the features last."""
    inside = [(low[..., at] <= value) & (value < high[..., at]) for at, value in enumerate(features)]
    return functools.reduce(jnp.logical_and, inside)


def _first(holds: Bool[Array, "C ..."], values: Float[Array, " C"], default: float) -> Float[Array, "..."]:
    """The value of the first clause that holds."""
    said = jnp.full(holds.shape[1:], default, jnp.float32)
    for clause in reversed(range(holds.shape[0])):
        said = jnp.where(holds[clause], values[clause], said)
    return said


def decision_list(program: Program, beta: float) -> DecisionList:
    """Makes the controller that a program is at β.

    Args:
        program: the program.
        beta: β in [0, 1].

    Raises:
        InputError: β is out of range.
    """
    shape = (len(SLOTS), MAX_CLAUSES)
    # A clause that is not there never holds.
    low = np.full((*shape, len(POOL_FEATURES) + len(BRANCH_FEATURES)), np.inf, np.float32)
    high = np.full_like(low, np.inf)
    values = np.zeros(shape, np.float32)
    names = [*POOL_FEATURES, *BRANCH_FEATURES]
    for at, slot in enumerate(SLOTS):
        for row, clause in enumerate(program.slot(slot)):
            low[at, row] = -np.inf
            values[at, row] = clause.value.at(beta, SLOT_VALUES[slot])
            for feature, op, number in clause.comparisons:
                column, bound = names.index(feature), np.float32(number.at(beta, range_of(feature)))
                if op in ("<=", ">"):
                    bound = _next(bound)
                if op in (">", ">="):
                    low[at, row, column] = max(low[at, row, column], bound)
                else:
                    high[at, row, column] = min(high[at, row, column], bound)
    split = len(POOL_FEATURES)
    branches = [SLOTS.index(slot) for slot in BRANCH_SLOTS]
    return DecisionList(
        dials=np.array([program.dial(name, beta) for name in DIALS], np.float32),
        pool_low=low[..., :split],
        pool_high=high[..., :split],
        branch_low=low[branches][..., split:],
        branch_high=high[branches][..., split:],
        values=values,
    )


def _next(bound: np.float32) -> np.float32:
    """The next larger number that hardware does not take for zero."""
    above, tiny = np.nextafter(bound, np.float32(np.inf)), np.finfo(np.float32).tiny
    return tiny if -tiny < above < tiny else above


BETAS = tuple(float(beta) for beta in np.arange(11) / 10)
"""The values of β that a sweep plays."""


def family(name: str, program: Program) -> Family:
    """Makes the family of controllers that a program is.

    Args:
        name: its name in results.
        program: the program.
    """
    return Family(name, BETAS, functools.partial(decision_list, program), "β")
