"""SC, self-consistency: read n branches, answer by majority (Wang et al., 2023)."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Self

import jax

from autotts_jax.core.controller import Controller, check_branches
from autotts_jax.core.mdp import Scalar
from autotts_jax.core.pool import BranchPool, StopReason
from autotts_jax.core.votes import Vote


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class SelfConsistency(Controller):
    """SC@n reads n branches in full and answers the majority of their finals.

    Attributes:
        branches: n, branches to read.
    """

    branches: int

    family: ClassVar = (1, 4, 8, 16, 32, 64)
    value_name: ClassVar = "branches"

    @classmethod
    def at(cls, value: float) -> Self:
        return cls(check_branches(value))

    def start(self, pool: BranchPool) -> tuple[None, BranchPool]:
        return None, pool.read(self.branches)

    def round(self, memory: None, pool: BranchPool) -> tuple[None, BranchPool, Scalar]:
        return memory, pool, StopReason.STEP_LIMIT

    def vote(self, memory: None, pool: BranchPool) -> Vote:  # noqa: ARG002
        return pool.vote_finals()
