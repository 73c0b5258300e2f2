"""ESC, early-stopping self-consistency: read windows until one is unanimous (Li et al., 2024)."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Int32

from autotts_jax.core.controller import Controller, Family, first_of, within
from autotts_jax.core.view import Action, StopReason, View
from autotts_jax.core.votes import Vote
from autotts_jax.typing import Array

WINDOW = 8


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class EarlyStopping(Controller):
    """ESC@n reads n // window windows of full branches, at least one, and stops at a unanimous one.

    It answers that window's answer, else the majority of everything read. Branches left over by the integer
    division are never read.

    Attributes:
        branches: n, branches to read at most, but for the first window.
        window: branches a window.
    """

    branches: int = within(1)
    window: int = within(1, default=WINDOW)

    def init(self, view: View) -> tuple[Int32[Array, ""], Action]:  # noqa: ARG002
        return jnp.int32(0), Action(read=self.window)

    def act(self, before: Int32[Array, ""], view: View) -> tuple[Int32[Array, ""], Action]:
        """Reads the next window; remembers how many branches there were before the last one."""
        stop = first_of(
            (self._is_unanimous(before, view), StopReason.DECIDED),
            (view.opened + self.window > self.branches, StopReason.STEP_LIMIT),
            (view.opened < before + self.window, StopReason.EXHAUSTED),
        )
        return jnp.where(stop == StopReason.RUNNING, view.opened, before), Action(stop, read=self.window)

    def answer(self, before: Int32[Array, ""], view: View) -> Vote:
        return view.vote_finals(_since(before, view) | ~self._is_unanimous(before, view))

    def _is_unanimous(self, before: Int32[Array, ""], view: View) -> Bool[Array, ""]:
        return view.vote_finals(_since(before, view)).top1 == self.window


def _since(before: Int32[Array, ""], view: View) -> Bool[Array, " W"]:
    """The window that was read last."""
    return view.active & (jnp.arange(view.width) >= before)


FAMILY = Family.over_branches("esc", EarlyStopping, (16, 32, 64), least=WINDOW)
"""The family over n, the number of branches."""
