"""One branch, read until its answer settles."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Int32

from autotts_jax.core.controller import Controller, Family, first_of, within
from autotts_jax.core.view import Action, StopReason, View
from autotts_jax.core.votes import Vote
from autotts_jax.errors import InputError
from autotts_jax.replay.matrix import NONE
from autotts_jax.typing import Array


class Latest(NamedTuple):
    """The latest answer of the branch.

    Attributes:
        key: its key. Shape ().
        streak: probes in a row that gave it. Shape ().
    """

    key: Int32[Array, ""]
    streak: Int32[Array, ""]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class SingleBranch(Controller):
    """Reads one branch to its end, or until as many consecutive probes as its patience gave one answer.

    Attributes:
        patience: consecutive probes with the same answer after which it stops.
    """

    patience: int = within(1)

    def init(self, view: View) -> tuple[Latest, Action]:  # noqa: ARG002
        return Latest(jnp.int32(NONE), jnp.int32(0)), Action(open=1)

    def act(self, memory: Latest, view: View) -> tuple[Latest, Action]:
        key = view.answer_key(0).astype(jnp.int32)
        streak = jnp.where((key == memory.key) & (key != NONE), memory.streak + 1, 1)
        settled = (streak >= self.patience) | jnp.any(view.finished)
        stop = first_of(((view.rounds > 0) & settled, StopReason.DECIDED))
        return Latest(key, streak), Action(stop, advance=jnp.where(view.live, 1, 0))

    def answer(self, memory: Latest, view: View) -> Vote:  # noqa: ARG002
        return view.vote(view.active)


def check_patience(value: float) -> int:
    """Checks that a patience is a whole number of probes.

    Raises:
        InputError: it is not whole, or below 2.
    """
    if not float(value).is_integer() or value < 2:
        raise InputError(f"the patience is {value:g}, but it must be a whole number of probes >= 2")
    return int(value)


def _of_patience(patience: float) -> SingleBranch:
    return SingleBranch(check_patience(patience))


FAMILY = Family("single", (4, 8, 12, 16, 24), _of_patience, "probes")
"""The family over the patience, in probes."""
