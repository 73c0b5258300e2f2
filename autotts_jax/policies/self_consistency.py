"""SC, self-consistency: read n branches, answer by majority (Wang et al., 2023)."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from autotts_jax.core.controller import Controller, Family, within
from autotts_jax.core.view import Action, StopReason, View
from autotts_jax.core.votes import Vote


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class SelfConsistency(Controller):
    """SC@n reads n branches in full and answers the majority of their finals.

    Attributes:
        branches: n, branches to read.
    """

    branches: int = within(1)

    def init(self, view: View) -> tuple[None, Action]:  # noqa: ARG002
        return None, Action(read=self.branches)

    def act(self, memory: None, view: View) -> tuple[None, Action]:
        return memory, Action(jnp.where(view.opened >= self.branches, StopReason.DECIDED, StopReason.BUDGET))

    def answer(self, memory: None, view: View) -> Vote:  # noqa: ARG002
        return view.vote_finals()


FAMILY = Family.over_branches("sc", SelfConsistency, (1, 4, 8, 16, 32, 64))
"""The family over n, the number of branches."""
