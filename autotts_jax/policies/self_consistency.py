"""SC, self-consistency: read n branches, answer by majority (Wang et al., 2023)."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp

from autotts_jax.core.controller import Controller, Family, of_branches, within
from autotts_jax.core.pool import BranchPool, Pool, StopReason
from autotts_jax.core.votes import Vote
from autotts_jax.typing import Scalar


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class SelfConsistency(Controller):
    """SC@n reads n branches in full and answers the majority of their finals.

    Attributes:
        branches: n, branches to read.
    """

    branches: int = within(1)

    def start(self, pool: Pool) -> tuple[None, Pool]:
        return None, pool.read(self.branches)

    def round(self, memory: None, pool: Pool) -> tuple[None, Pool, Scalar]:
        read = pool.opened >= self.branches
        return memory, pool, jnp.where(read, StopReason.DECIDED, StopReason.BUDGET)

    def vote(self, memory: None, pool: BranchPool) -> Vote:  # noqa: ARG002
        return pool.vote_finals()


FAMILY = Family("sc", (1, 4, 8, 16, 32, 64), functools.partial(of_branches, SelfConsistency), "branches")
"""The family over n, the number of branches."""
