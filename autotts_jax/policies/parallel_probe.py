"""Parallel-Probe: read branches side by side, prune outliers, stop on consensus (arXiv 2602.03845)."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Int32

from autotts_jax.core.controller import Controller, Family, first_of, within
from autotts_jax.core.view import Action, StopReason, View
from autotts_jax.core.votes import Vote
from autotts_jax.replay.matrix import NONE
from autotts_jax.typing import Array


class ParallelProbeMemory(NamedTuple):
    """What Parallel-Probe remembers.

    Attributes:
        winner: key of the last step's winning answer. Shape ().
        stable: consecutive steps with the same winner. Shape ().
        off_track: consecutive steps in which a branch's answer was not the winner. Shape (W,).
    """

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

    def init(self, view: View) -> tuple[ParallelProbeMemory, Action]:
        memory = ParallelProbeMemory(jnp.int32(NONE), jnp.int32(0), jnp.zeros(view.width, jnp.int32))
        return memory, Action(open=self.branches)

    def act(self, memory: ParallelProbeMemory, view: View) -> tuple[ParallelProbeMemory, Action]:
        # Nothing has been read on at the first look; each further one ends a step.
        step = view.rounds - 1
        stepped = step >= 0
        vote = view.vote(view.active)
        winner = jnp.where(stepped, vote.winner(view.answer_keys), NONE)

        pruning = stepped & (step >= self.warm_up) & (jnp.sum(view.active) > 1)
        strayed = jnp.where(view.agrees(vote.leader), 0, memory.off_track + 1)
        off_track = jnp.where(pruning & view.live, strayed, memory.off_track)
        # No second vote: a pruned branch did not vote for the winner, so the winner stays the winner.
        prune = pruning & view.live & (off_track >= self.prune_patience)
        live = view.live & ~prune

        stable = jnp.where((winner == memory.winner) & (winner != NONE), memory.stable + 1, 0)
        stop = first_of(
            (stepped & (stable >= self.stability), StopReason.DECIDED),
            (stepped & ~jnp.any(live), StopReason.EXHAUSTED),
            (stepped & (step + 1 >= self.max_steps), StopReason.STEP_LIMIT),
        )
        action = Action(stop, prune=prune, advance=jnp.where(live, self.burst, 0))
        return ParallelProbeMemory(winner, stable, off_track), action

    def answer(self, memory: ParallelProbeMemory, view: View) -> Vote:  # noqa: ARG002
        return view.vote(view.active)


FAMILY = Family.over_branches("parallel-probe", ParallelProbe, (1, 4, 8, 16, 32, 64))
"""The family over n, the number of branches."""
