"""First finishers: read branches side by side and answer once enough finished ones agree.

A controller of a user's own, explained in ``docs/controllers.md``.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Self

import jax
import jax.numpy as jnp
from jaxtyping import Int32

from autotts_jax.core.controller import Controller, check_beta, first_of
from autotts_jax.core.pool import BranchPool, StopReason
from autotts_jax.core.votes import Vote
from autotts_jax.typing import Array, Scalar


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class MyController(Controller):
    """Reads ``branches`` branches side by side until ``quorum`` finished ones agree.

    Meanwhile it prunes branches that disagree with the finished ones for too long. Its memory is, for each
    branch, the number of rounds in a row in which it disagreed.

    Attributes:
        branches: n, branches to open.
        quorum: k, finished branches that must agree.
        patience: rounds of disagreement in a row after which a branch is pruned.
    """

    branches: int
    quorum: int
    patience: int

    family: ClassVar = (0.0, 0.25, 0.5, 0.75, 1.0)
    value_name: ClassVar = "β"

    @classmethod
    def at(cls, value: float) -> Self:
        beta = check_beta(value)
        return cls(branches=round(4 + 28 * beta), quorum=round(2 + 6 * beta), patience=round(4 + 8 * beta))

    def start(self, pool: BranchPool) -> tuple[Int32[Array, " W"], BranchPool]:
        return jnp.zeros(pool.width, jnp.int32), pool.open(self.branches)

    def round(
        self, memory: Int32[Array, " W"], pool: BranchPool
    ) -> tuple[Int32[Array, " W"], BranchPool, Scalar]:
        pool = pool.advance(jnp.where(pool.live, 1, 0))
        finals = pool.vote_finals()
        stop = first_of(
            (finals.top1 >= self.quorum, StopReason.DECIDED),
            (~jnp.any(pool.live), StopReason.EXHAUSTED),
        )
        at_peace = pool.agrees(finals.leader) | (finals.voters == 0)
        strays = jnp.where(at_peace, 0, memory + 1)
        return strays, pool.prune(pool.live & (strays >= self.patience)), stop

    def vote(self, memory: Int32[Array, " W"], pool: BranchPool) -> Vote:  # noqa: ARG002
        return pool.vote_finals().or_else(pool.vote(pool.active))
