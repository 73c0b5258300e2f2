"""ESC, early-stopping self-consistency: read windows until one is unanimous (Li et al., 2024)."""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Int32

from autotts_jax.core.controller import Controller, Family, first_of, of_branches, within
from autotts_jax.core.pool import BranchPool, Pool, StopReason
from autotts_jax.core.votes import Vote, largest
from autotts_jax.typing import Array, Scalar

WINDOW = 8


class Window(NamedTuple):
    """The window that was read last.

    Attributes:
        members: its branches. Shape (W,).
        unanimous: whether they all gave one answer. Shape ().
        sequential: tokens of the longest branch of each window read so far, added up. Shape ().
    """

    members: Bool[Array, " W"]
    unanimous: Bool[Array, ""]
    sequential: Int32[Array, ""]


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

    def start(self, pool: Pool) -> tuple[Window, Pool]:
        return Window(jnp.zeros(pool.width, bool), jnp.bool_(False), jnp.int32(0)), pool

    def round(self, memory: Window, pool: Pool) -> tuple[Window, Pool, Scalar]:
        opened = pool.opened
        pool = pool.read(self.window)
        members = pool.active & (jnp.arange(pool.width) >= opened)
        unanimous = pool.vote_finals(members).top1 == self.window
        stop = first_of(
            (unanimous, StopReason.DECIDED),
            (pool.opened + self.window > self.branches, StopReason.STEP_LIMIT),
            (pool.opened < opened + self.window, StopReason.EXHAUSTED),
        )
        longest = largest(jnp.where(members, pool.branch_tokens, 0))
        return Window(members, unanimous, memory.sequential + longest), pool, stop

    def vote(self, memory: Window, pool: BranchPool) -> Vote:
        return pool.vote_finals(memory.members | ~memory.unanimous)

    def sequential_tokens(self, memory: Window, pool: BranchPool) -> Int32[Array, ""]:  # noqa: ARG002
        """The sum over windows of each window's longest branch."""
        return memory.sequential


FAMILY = Family("esc", (16, 32, 64), functools.partial(of_branches, EarlyStopping, least=WINDOW), "branches")
"""The family over n, the number of branches."""
