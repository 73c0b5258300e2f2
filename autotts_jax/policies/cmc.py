"""CMC, the Confidence Momentum Controller: the program that AutoTTS discovered."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int32

from autotts_jax.core.controller import Controller, Family, check_beta, first_of, keep_live
from autotts_jax.core.view import Action, StopReason, View
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
        round: t, the round that was begun last. Shape ().
        looked: rounds of the episode at the last look. Shape ().
        opened: whether nothing but opening branches was asked for then, for CMC to see them. Shape ().
        pooled: the finished branches' vote.
        ema: smoothed confidence of the pool. Shape ().
        recent: EMA values of the last rounds, the newest first. Shape (8,).
        disagreement: consecutive rounds in which the branch's answer was not the winner.
        completion: rank that orders finished branches by when they joined the pool; of the others, the rank
            that they get if they join it in this round.
    """

    round: Int32[Array, ""]
    looked: Int32[Array, ""]
    opened: Bool[Array, ""]
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

    def init(self, view: View) -> tuple[CMCMemory, Action]:
        none, zero = jnp.zeros(view.width, jnp.int32), jnp.zeros_like(jnp.asarray(self.alpha))
        memory = CMCMemory(
            round=jnp.int32(0),
            looked=jnp.int32(0),
            opened=jnp.bool_(True),
            pooled=Vote.nobody(view.width),
            ema=zero,
            recent=jnp.zeros(MOMENTUM_WINDOW, zero.dtype),
            disagreement=none,
            completion=completion_rank(jnp.int32(-1), none),
        )
        return memory, Action(open=self.n_init)

    def act(self, memory: CMCMemory, view: View) -> tuple[CMCMemory, Action]:
        # What was read since the last look: nothing, one round, or several in which it was known what to do.
        read, played = ~memory.opened, view.rounds - memory.looked
        ended, stop, opening = self.conclude(memory, view, read, played)
        # New branches are looked at before the next round, unless nothing is pooled to compare them with.
        known = (ended.pooled.voters == 0) & (self.min_complete > 0) & (self.n_init > 0)
        opens_only = (opening > 0) & ~known
        begun, prune, advance = self.begin(ended, view)
        action = Action(
            stop,
            prune=prune & ~opens_only,
            open=opening,
            advance=jnp.where(opens_only, 0, advance),
            repeat=jnp.where(known & ~opens_only, self._known_rounds(ended.round, opening, view), 1),
        )
        memory = begun._replace(
            opened=opens_only,
            ema=jnp.where(opens_only, ended.ema, begun.ema),
            disagreement=jnp.where(opens_only, ended.disagreement, begun.disagreement),
        )
        return memory, action

    def conclude(
        self, memory: CMCMemory, view: View, read: Array, played: Array
    ) -> tuple[CMCMemory, Array, Array]:
        """Ends a round: why the episode ends, if it does, and otherwise how many branches to open.

        Args:
            memory: what CMC remembers.
            view: what the episode has revealed.
            read: whether a round was played since the last look.
            played: how many were.
        """
        last = memory.round + played - 1
        pooled = view.vote_finals(rank=memory.completion)
        ema = jnp.where(read, self._smooth(memory.ema, pooled), memory.ema)
        recent = jnp.where(read, jnp.roll(memory.recent, 1).at[0].set(ema), memory.recent)
        delta = ema - recent[jnp.minimum(last, self.ema_window - 1)]

        sure = (last >= self.warm_up) & (pooled.voters >= self.min_complete) & (ema >= self.threshold)
        stop = first_of(
            (read & sure & (delta >= -self.slack), StopReason.DECIDED),
            (read & ~jnp.any(view.live), StopReason.EXHAUSTED),
            (read & (last + 1 >= ROUNDS), StopReason.STEP_LIMIT),
        )
        unsure = (delta <= self.trend) & (ema < self.threshold)
        widen = read & unsure & (last >= self._first_widening()) & (stop == StopReason.RUNNING)
        opening = jnp.where(widen, jnp.minimum(self.widen, self._room(view)), 0)
        ended = memory._replace(
            round=jnp.where(read, last + 1, memory.round),
            looked=view.rounds,
            pooled=pooled,
            ema=ema,
            recent=recent,
        )
        return ended, stop, opening

    def begin(self, memory: CMCMemory, view: View) -> tuple[CMCMemory, Array, Array]:
        """Begins a round: also returns which branches to prune, and how far to read the others.

        Args:
            memory: what CMC remembers.
            view: what the episode has revealed.
        """
        warm, agrees = memory.round >= self.warm_up, view.agrees(memory.pooled.leader)
        counted = warm & view.live & (memory.pooled.voters > 0)
        strayed = jnp.where(agrees, 0, memory.disagreement + 1)
        disagreement = jnp.where(counted, strayed, memory.disagreement)
        stubborn = counted & (disagreement >= self.patience)
        begun = memory._replace(
            opened=jnp.bool_(False),
            ema=self._smooth(memory.ema, memory.pooled),
            disagreement=disagreement,
            completion=jnp.where(view.finished, memory.completion, completion_rank(memory.round, view.depth)),
        )
        prune = keep_live(stubborn, disagreement, view.live, 2)
        return begun, prune, jnp.where(warm & agrees, self.burst, 1)

    def answer(self, memory: CMCMemory, view: View) -> Vote:
        """The finished branches' vote; without one, that of the branches not abandoned."""
        return memory.pooled.or_else(view.vote(view.active))

    def _known_rounds(self, round_: Array, opening: Array, view: View) -> Array:
        """For how many rounds it is known what is done in them, before a branch ends.

        Until then nothing is pooled, and confidence and momentum, on which it decides, are 0. So it reads on
        until it may widen, widens in each round while there is room for whole lots, and then reads on.
        """
        widens = (self.trend >= 0) & (self.threshold > 0)
        waiting = widens & (round_ <= self._first_widening())
        lots = jnp.where(opening == self.widen, self._room(view) // jnp.maximum(self.widen, 1), 1)
        until = jnp.where(widens & (opening > 0), lots, ROUNDS - round_)
        return jnp.where(waiting, jnp.maximum(self._first_widening() + 1 - round_, 1), until)

    def _room(self, view: View) -> Array:
        return jnp.maximum(self.max_use - view.opened, 0)

    def _first_widening(self) -> Array:
        """The first round at whose end it may open branches."""
        return jnp.maximum(1, self.warm_up // 2)

    def _smooth(self, ema: Array, pooled: Vote) -> Array:
        return (1 - self.alpha) * ema + self.alpha * pooled.confidence


def completion_rank(round_: Array, depth: Int32[Array, " W"]) -> Int32[Array, " W"]:
    """Orders completions: by round, then the branch that was read most, then branch order."""
    order = jnp.arange(depth.shape[0], dtype=jnp.int32)
    return (round_ * MOST_READS + (MOST_READS - depth)) * depth.shape[0] + order


FAMILY = Family("cmc", tuple(i / 10 for i in range(11)), CMC.of_beta, "β")
"""The family over β."""
