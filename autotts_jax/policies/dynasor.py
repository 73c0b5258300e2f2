"""Dynasor-CoT: leave a branch once its probes agree and none of them hedges (arXiv 2412.20993)."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Int32

from autotts_jax.core.controller import Family, within
from autotts_jax.core.view import View
from autotts_jax.policies.early_exit import EarlyExit
from autotts_jax.policies.single_branch import check_patience
from autotts_jax.replay.matrix import NONE
from autotts_jax.typing import Array


class Streak(NamedTuple):
    """The latest probes of each branch.

    Attributes:
        key: key of the latest answer. Shape (W,).
        length: probes in a row that gave it without hedging. Shape (W,).
    """

    key: Int32[Array, " W"]
    length: Int32[Array, " W"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Dynasor(EarlyExit):
    """Settles a branch whose last probes gave one answer, and after none of which the model hedged.

    The paper probes every 32 to 64 tokens; here an interval lies between two probes.

    Attributes:
        branches: n, branches to open.
        bar: probes in a row after which a branch is settled: 8, 5, 3 or 2 in the paper, the more the milder.
    """

    bar: int = within(1)

    signals = ("probe_hedge",)

    def begin(self, view: View) -> Streak:
        return Streak(jnp.full(view.width, NONE, jnp.int32), jnp.zeros(view.width, jnp.int32))

    def follow(self, state: Streak, view: View, fresh: Bool[Array, " W"]) -> tuple[Streak, Bool[Array, " W"]]:
        key = jnp.asarray(view.answer_keys, jnp.int32)
        counts = (key != NONE) & (view.signal("probe_hedge") < 0.5)
        length = jnp.where(counts, jnp.where(key == state.key, state.length, 0) + 1, 0)
        state = Streak(jnp.where(fresh, key, state.key), jnp.where(fresh, length, state.length))
        return state, state.length >= self.bar


def _of_bar(bar: float) -> Dynasor:
    return Dynasor(1, check_patience(bar))


FAMILY = Family("dynasor", (2, 3, 5, 8), _of_bar, "probes")
"""The family over the bar, in probes, with a single branch."""
