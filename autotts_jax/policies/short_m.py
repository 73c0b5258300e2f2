"""short-m@k: read k branches side by side, answer once m have finished (arXiv 2505.17813).

With m = 1 it is first-finish search (arXiv 2505.18149).
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from autotts_jax.core.controller import Controller, Family, check_branches, first_of, within
from autotts_jax.core.view import Action, StopReason, View
from autotts_jax.core.votes import Vote


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ShortM(Controller):
    """short-m@k reads k branches side by side until m have finished, and answers their majority.

    Of several answers with as many votes, the one that was finished first wins. Branches that finish within
    the same interval cannot be told apart by length: all of them vote, and the earlier opened counts as
    shorter.

    Attributes:
        branches: k, branches to open.
        quorum: m, finished branches at which it answers.
    """

    branches: int = within(1)
    quorum: int = within(1)

    def init(self, view: View) -> tuple[None, Action]:  # noqa: ARG002
        return None, Action(open=self.branches)

    def act(self, memory: None, view: View) -> tuple[None, Action]:
        read = view.rounds > 0
        stop = first_of(
            (read & (jnp.sum(view.finished) >= self.quorum), StopReason.DECIDED),
            (read & ~jnp.any(view.live), StopReason.EXHAUSTED),
        )
        # Nothing is decided before a branch ends.
        return memory, Action(stop, advance=jnp.where(view.live, 1, 0), repeat=view.max_depth)

    def answer(self, memory: None, view: View) -> Vote:  # noqa: ARG002
        """The finished branches vote; where a budget has ended the episode before any has, all do."""
        return view.vote_finals(rank=view.depth * view.width + jnp.arange(view.width)).or_else(
            view.vote(view.active)
        )


def _short_m(branches: float) -> ShortM:
    return ShortM(check_branches(branches), quorum=max(1, round(branches / 4)))


FAMILY = Family("short-m", (4, 8, 16, 32, 64), _short_m, "branches")
"""The family over k, the number of branches; m is a quarter of it."""

FIRST_FINISH = Family.over_branches("first-finish", ShortM, (1, 4, 8, 16, 32, 64), quorum=1)
"""The family of first-finish search over k, the number of branches."""
