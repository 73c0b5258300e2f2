"""Controllers that read branches one after another until a rule says that the majority is sure."""

from __future__ import annotations

import abc
import dataclasses

import jax.numpy as jnp
from jaxtyping import Bool, Int32

from autotts_jax.core.controller import Controller, first_of, within
from autotts_jax.core.view import Action, StopReason, View
from autotts_jax.core.votes import Vote
from autotts_jax.replay.matrix import NONE
from autotts_jax.typing import Array, Scalar


@dataclasses.dataclass(frozen=True)
class OneByOne(Controller):
    """Reads up to n branches in full, one after another, and answers the majority of their finals.

    A subclass says when to stop before all are read.

    Attributes:
        branches: n, branches to read at most.
    """

    branches: int = within(1)

    @abc.abstractmethod
    def sure(self, view: View) -> tuple[Bool[Array, ""], Int32[Array, ""] | int]:
        """Tells whether to answer now; asked after each branch.

        Returns:
            Whether to answer; and where not, how many more branches it takes at least.
        """

    def init(self, view: View) -> Int32[Array, ""]:  # noqa: ARG002
        return jnp.int32(NONE)

    def act(self, opened: Int32[Array, ""], view: View) -> tuple[Int32[Array, ""], Action]:
        """Reads the next branch, if the last one could be read; remembers how many there were before."""
        sure, more = self.sure(view)
        return view.opened, read_next(view, opened, self.branches, sure, more)

    def answer(self, memory: Int32[Array, ""], view: View) -> Vote:  # noqa: ARG002
        return view.vote_finals()


def read_next(
    view: View,
    before: Int32[Array, ""],
    branches: Scalar,
    sure: Bool[Array, ""],
    more: Int32[Array, ""] | int = 1,
) -> Action:
    """Reads one more branch in full, unless it is time to answer.

    Args:
        view: the episode.
        before: branches that were opened at the last look; ``NONE`` at the first.
        branches: n, branches to read at most.
        sure: whether to answer now.
        more: where not, how many more branches it takes at least.
    """
    stop = first_of(
        (sure & (view.opened > 0), StopReason.DECIDED),
        (view.opened >= branches, StopReason.STEP_LIMIT),
        (view.opened == before, StopReason.EXHAUSTED),
    )
    return Action(stop, read=1, repeat=jnp.minimum(more, branches - view.opened))
