"""Doubling self-consistency: 2, 4, 8 … branches, until most of them agree."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Int32

from autotts_jax.core.controller import Controller, Family, first_of, within
from autotts_jax.core.view import Action, StopReason, View
from autotts_jax.core.votes import Vote
from autotts_jax.replay.matrix import NONE
from autotts_jax.typing import Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Doubling(Controller):
    """Reads two branches in full, then as many again as it has, until a share of the votes agrees.

    Attributes:
        branches: n, branches to read at most; the last step is cut there.
        threshold: share of the votes from which it stops.
    """

    branches: int = within(1)
    threshold: float = within(0, 1, default=0.75)

    def init(self, view: View) -> tuple[Int32[Array, ""], Action]:  # noqa: ARG002
        return jnp.int32(NONE), Action(read=jnp.minimum(self.branches, 2))

    def act(self, before: Int32[Array, ""], view: View) -> tuple[Int32[Array, ""], Action]:
        """Doubles the branches; remembers how many there were, to see whether any could be read."""
        vote, opened = view.vote_finals(), view.opened
        stop = first_of(
            ((vote.voters > 0) & (vote.top1 >= self.threshold * vote.voters), StopReason.DECIDED),
            (opened >= self.branches, StopReason.STEP_LIMIT),
            ((opened == 0) | (opened == before), StopReason.EXHAUSTED),
        )
        return opened, Action(stop, read=jnp.minimum(opened, self.branches - opened))

    def answer(self, before: Int32[Array, ""], view: View) -> Vote:  # noqa: ARG002
        return view.vote_finals()


FAMILY = Family.over_branches("doubling-sc", Doubling)
"""The family over n, the number of branches."""
