"""CMC, the Confidence Momentum Controller: the program that AutoTTS discovered."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int32

from autotts_jax.core.controller import Controller, Family, check_beta, first_of, keep_live
from autotts_jax.core.pool import BranchPool, Pool, StopReason
from autotts_jax.core.votes import Vote
from autotts_jax.typing import Array

ROUNDS = 500
MOMENTUM_WINDOW = 8
"""The longest window of past EMA values that any β asks for."""
MOST_READS = 1024
"""More probes than a branch can have; orders completions within a round."""


class CMCMemory(NamedTuple):
    """What CMC remembers; per-branch arrays have shape (W,).

    Attributes:
        round: t. Shape ().
        pooled: the finished branches' vote. It stands until branches are read on, because none ends when it
            is opened.
        ema: smoothed confidence of the pool. Shape ().
        recent: EMA values of the last rounds, the newest first. Shape (8,).
        disagreement: consecutive rounds in which the branch's answer was not the winner.
        completion: rank that orders finished branches by when they joined the pool.
    """

    round: Int32[Array, ""]
    pooled: Vote
    ema: Float[Array, ""]
    recent: Float[Array, " 8"]
    disagreement: Int32[Array, " W"]
    completion: Int32[Array, " W"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class CMC(Controller):
    """Follows the momentum of the vote among finished branches (AutoTTS, section 4 and appendix).

    It reads all open branches side by side, gives up those that keep disagreeing with the finished ones,
    reads those that agree faster, opens more while confidence does not rise, and answers once smoothed
    confidence is high and no longer falling.

    Attributes:
        n_init: branches opened at the start.
        max_use: branches opened at most.
        warm_up: rounds before which it neither abandons, bursts nor answers.
        patience: disagreeing rounds after which a branch may be abandoned.
        ema_window: EMA values between whose ends momentum is measured.
        alpha: weight of a new confidence in the EMA.
        threshold: EMA from which it may answer.
        slack: loss of momentum that it tolerates when it answers.
        burst: intervals a round for a branch that agrees with the winner.
        widen: branches opened at a time.
        trend: momentum up to which it opens more.
        min_complete: finished branches that it needs to answer.
    """

    n_init: int
    max_use: int
    warm_up: int
    patience: int
    ema_window: int
    alpha: float
    threshold: float
    slack: float
    burst: int
    widen: int
    trend: float
    min_complete: int

    @classmethod
    def of_beta(cls, beta: float) -> Self:
        """Makes CMC(β). The rounding is Python's, half to even.

        Args:
            beta: β in [0, 1]; a larger β means a larger budget.

        Raises:
            InputError: β is out of range.
        """
        beta = check_beta(beta)
        return cls(
            n_init=max(2, round(2 + 6 * beta)),
            max_use=min(64, round(4 + 60 * beta)),
            warm_up=max(2, round(2 + 8 * beta)),
            patience=max(3, round(3 + 9 * beta)),
            ema_window=max(2, round(2 + 6 * beta)),
            alpha=round(0.70 - 0.40 * beta, 4),
            threshold=round(0.85 + 0.12 * beta, 4),
            slack=round(0.04 - 0.03 * beta, 4),
            burst=max(1, round(1 + 2 * beta)),
            widen=max(1, round(1 + 3 * beta)),
            trend=round(0.04 - 0.03 * beta, 4),
            min_complete=max(2, round(2 + 3 * beta)),
        )

    def start(self, pool: Pool) -> tuple[CMCMemory, Pool]:
        none = jnp.zeros(pool.width, jnp.int32)
        zero = jnp.zeros_like(jnp.asarray(self.alpha))
        recent = jnp.zeros(MOMENTUM_WINDOW, zero.dtype)
        memory = CMCMemory(jnp.int32(0), pool.vote_finals(), zero, recent, none, none)
        return memory, pool.open(self.n_init)

    def round(self, memory: CMCMemory, pool: Pool) -> tuple[CMCMemory, Pool, Array]:
        warm = memory.round >= self.warm_up
        pooled = memory.pooled
        ema = self._smooth(memory.ema, pooled)

        agrees = pool.agrees(pooled.leader)
        disagreement = jnp.where(
            warm & pool.live & (pooled.voters > 0),
            jnp.where(agrees, 0, memory.disagreement + 1),
            memory.disagreement,
        )
        stubborn = warm & pool.live & (pooled.voters > 0) & (disagreement >= self.patience)
        pool = pool.prune(keep_live(stubborn, disagreement, pool.live, 2))

        before = pool
        pool, played = self._advance(memory, pool, jnp.where(warm & agrees, self.burst, 1))
        last = memory.round + played - 1
        # Where several rounds were played, each read every branch by one interval.
        depth = jnp.where(played > 1, pool.depth - 1, before.depth)
        joined = pool.finished & ~before.finished
        completion = jnp.where(joined, completion_rank(last, depth), memory.completion)

        pooled = pool.vote_finals(rank=completion)
        ema = self._smooth(ema, pooled)
        recent = jnp.roll(memory.recent, 1).at[0].set(ema)
        delta = ema - recent[jnp.minimum(last, self.ema_window - 1)]

        sure = (last >= self.warm_up) & (pooled.voters >= self.min_complete) & (ema >= self.threshold)
        stop = first_of(
            (sure & (delta >= -self.slack), StopReason.DECIDED),
            (~jnp.any(pool.live), StopReason.EXHAUSTED),
            (last + 1 >= ROUNDS, StopReason.STEP_LIMIT),
        )
        unsure = (delta <= self.trend) & (ema < self.threshold)
        widen = unsure & (last >= self._first_widening()) & (stop == StopReason.RUNNING)
        room = jnp.maximum(self.max_use - pool.opened, 0)
        pool = pool.open(jnp.where(widen, jnp.minimum(self.widen, room), 0))
        memory = CMCMemory(last + 1, pooled, ema, recent, disagreement, completion)
        return memory, pool, stop

    def vote(self, memory: CMCMemory, pool: BranchPool) -> Vote:
        """The finished branches' vote; without one, that of the branches not abandoned."""
        return memory.pooled.or_else(pool.vote(pool.active))

    def _advance(self, memory: CMCMemory, pool: Pool, count: Array) -> tuple[Pool, Array]:
        """Reads on by a round; until a branch ends by all rounds, as it is known what is done in them.

        Until then nothing is pooled, and confidence and momentum, on which it decides, are 0.
        """
        known = (memory.pooled.voters == 0) & (self.min_complete > 0) & (self.n_init > 0)
        widens = known & (self.trend >= 0) & (self.threshold > 0)
        return pool.advance_rounds(
            count,
            rounds=jnp.where(known, ROUNDS - memory.round, 1),
            opening=jnp.where(widens, self.widen, 0),
            most=self.max_use,
            wait=self._first_widening() - memory.round,
        )

    def _first_widening(self) -> Array:
        """The first round at whose end it may open branches."""
        return jnp.maximum(1, self.warm_up // 2)

    def _smooth(self, ema: Array, pooled: Vote) -> Array:
        return (1 - self.alpha) * ema + self.alpha * pooled.confidence


def completion_rank(round_: Array, depth: Int32[Array, " W"]) -> Int32[Array, " W"]:
    """Orders completions: by round, then the branch that was read most, then branch order.

    Args:
        round_: the round in which branches are read to their end.
        depth: intervals read of each branch before it.
    """
    order = jnp.arange(depth.shape[0], dtype=jnp.int32)
    return (round_ * MOST_READS + (MOST_READS - depth)) * depth.shape[0] + order


FAMILY = Family("cmc", tuple(i / 10 for i in range(11)), CMC.of_beta, "β")
"""The family over β."""
