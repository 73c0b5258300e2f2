"""What a controller is: the contract between policies and rollouts."""

from __future__ import annotations

import abc
from typing import Any, ClassVar, Self

import jax.numpy as jnp
from jaxtyping import Bool, Int32

from autotts_jax.core.mdp import Scalar
from autotts_jax.core.pool import BranchPool, StopReason
from autotts_jax.core.votes import Vote
from autotts_jax.errors import InputError
from autotts_jax.typing import Array

Memory = Any
"""A pytree of arrays that a controller carries from round to round."""


class Controller(abc.ABC):
    """Decides, round after round, what to do with a pool of branches.

    A subclass is a frozen dataclass registered as a pytree (`jax.tree_util.register_dataclass`) whose fields
    are its hyper-parameters, numbers or arrays. They are traced, so one compilation serves any values of
    them; its methods must therefore branch on them with ``jnp.where``, not with ``if``. Everything it
    remembers travels in `Memory`.
    """

    family: ClassVar[tuple[float, ...]] = ()
    """The values that the controller is swept over, increasing in budget."""

    value_name: ClassVar[str] = "value"
    """What the values of the family are called in messages."""

    @property
    def needs_history(self) -> bool:
        """Whether its pool has to keep which depths were probed."""
        return False

    @classmethod
    @abc.abstractmethod
    def at(cls, value: float) -> Self:
        """The member of the family at ``value``: β in [0, 1], or a number of branches.

        Raises:
            InputError: there is none.
        """

    @abc.abstractmethod
    def start(self, pool: BranchPool) -> tuple[Memory, BranchPool]:
        """Opens the first branches."""

    @abc.abstractmethod
    def round(self, memory: Memory, pool: BranchPool) -> tuple[Memory, BranchPool, Scalar]:
        """One round: acts on the pool, and returns a `StopReason`, `RUNNING` to go on."""

    @abc.abstractmethod
    def vote(self, memory: Memory, pool: BranchPool) -> Vote:
        """The vote whose winner the controller would answer now; asked for when an episode ends."""

    def sequential_tokens(self, memory: Memory, pool: BranchPool) -> Int32[Array, ""]:  # noqa: ARG002
        """Latency proxy: the most tokens on one branch, for branches that run in parallel."""
        return jnp.max(pool.branch_tokens)


def first_of(*rules: tuple[Bool[Array, ""], StopReason]) -> Int32[Array, ""]:
    """The reason of the first rule that holds, `RUNNING` where none does."""
    stop = jnp.int32(StopReason.RUNNING)
    for holds, reason in reversed(rules):
        stop = jnp.where(holds, jnp.int32(reason), stop)
    return stop


def check_beta(value: float) -> float:
    """β, if it is in [0, 1].

    Raises:
        InputError: it is not.
    """
    if not 0.0 <= value <= 1.0:
        raise InputError(f"β is {value}, but it must be between 0 and 1")
    return float(value)


def check_branches(value: float, least: int = 1) -> int:
    """A number of branches, if it is a whole number of at least ``least``.

    Raises:
        InputError: it is not.
    """
    if not float(value).is_integer() or value < least:
        raise InputError(f"the number of branches is {value:g}, but it must be a whole number >= {least}")
    return int(value)
