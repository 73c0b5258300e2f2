"""Parallel-Probe: read branches side by side, prune outliers, stop on consensus (arXiv 2602.03845)."""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Int32

from autotts_jax.core.controller import Controller, Family, first_of, of_branches, within
from autotts_jax.core.pool import BranchPool, Pool, StopReason
from autotts_jax.core.votes import Vote
from autotts_jax.replay.matrix import NONE
from autotts_jax.typing import Array, Scalar


class ParallelProbeMemory(NamedTuple):
    """What Parallel-Probe remembers.

    Attributes:
        step: t. Shape ().
        winner: key of the last step's winning answer. Shape ().
        stable: consecutive steps with the same winner. Shape ().
        off_track: consecutive steps in which a branch's answer was not the winner. Shape (W,).
    """

    step: Int32[Array, ""]
    winner: Int32[Array, ""]
    stable: Int32[Array, ""]
    off_track: Int32[Array, " W"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ParallelProbe(Controller):
    """Parallel-Probe@n reads n branches side by side and votes on their latest answers at every step.

    After a warm-up, branches that disagree with the winner for too long are pruned; it answers once the
    winner has been the same for long enough.

    Attributes:
        branches: n, branches to open.
        stability: T, steps with the same winner after which it answers.
        prune_patience: disagreeing steps after which a branch is pruned.
        warm_up: steps before which none is pruned.
        max_steps: steps at most.
        burst: intervals a step.
    """

    branches: int = within(1)
    stability: int = 40
    prune_patience: int = 7
    warm_up: int = 15
    max_steps: int = 100
    burst: int = 1

    def start(self, pool: Pool) -> tuple[ParallelProbeMemory, Pool]:
        zero = jnp.int32(0)
        memory = ParallelProbeMemory(zero, jnp.int32(NONE), zero, jnp.zeros(pool.width, jnp.int32))
        return memory, pool.open(self.branches)

    def round(self, memory: ParallelProbeMemory, pool: Pool) -> tuple[ParallelProbeMemory, Pool, Scalar]:
        pool = pool.advance(jnp.where(pool.live, self.burst, 0))
        vote = pool.vote(pool.active)
        winner = vote.winner(pool.answer_keys)

        pruning = (memory.step >= self.warm_up) & (jnp.sum(pool.active) > 1)
        strayed = jnp.where(pool.agrees(vote.leader), 0, memory.off_track + 1)
        off_track = jnp.where(pruning & pool.live, strayed, memory.off_track)
        # No second vote: a pruned branch did not vote for the winner, so the winner stays the winner.
        pool = pool.prune(pruning & pool.live & (off_track >= self.prune_patience))

        stable = jnp.where((winner == memory.winner) & (winner != NONE), memory.stable + 1, 0)
        stop = first_of(
            (stable >= self.stability, StopReason.DECIDED),
            (~jnp.any(pool.live), StopReason.EXHAUSTED),
            (memory.step + 1 >= self.max_steps, StopReason.STEP_LIMIT),
        )
        return ParallelProbeMemory(memory.step + 1, winner, stable, off_track), pool, stop

    def vote(self, memory: ParallelProbeMemory, pool: BranchPool) -> Vote:  # noqa: ARG002
        return pool.vote(pool.active)


FAMILY = Family(
    "parallel-probe", (1, 4, 8, 16, 32, 64), functools.partial(of_branches, ParallelProbe), "branches"
)
"""The family over n, the number of branches."""
