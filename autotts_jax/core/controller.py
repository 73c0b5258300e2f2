"""What a controller is: the contract between those who decide and whatever plays them."""

from __future__ import annotations

import abc
import dataclasses
import numbers
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Int32

from autotts_jax.core.pool import BranchPool, Pool, StopReason
from autotts_jax.core.votes import Vote
from autotts_jax.errors import InputError
from autotts_jax.typing import Array, Scalar

Memory = Any
"""A pytree of arrays that a controller carries from round to round."""


class Controller(abc.ABC):
    """Decides, round after round, what to do with a pool of branches.

    A subclass is a frozen dataclass registered as a pytree (`jax.tree_util.register_dataclass`) whose fields
    are its hyper-parameters, numbers or arrays. They are traced, so that one compilation serves all values;
    its methods branch on them with ``jnp.where``, not with ``if``. Everything it remembers travels in
    `Memory`. It sees the pool through `BranchPool` alone and therefore plays on every pool.
    """

    @abc.abstractmethod
    def start(self, pool: Pool) -> tuple[Memory, Pool]:
        """Opens the first branches.

        Args:
            pool: a pool in which nothing is opened.

        Returns:
            What the controller remembers, and the pool after its operations.
        """

    @abc.abstractmethod
    def round(self, memory: Memory, pool: Pool) -> tuple[Memory, Pool, Scalar]:
        """Plays one round.

        Args:
            memory: what the controller remembers.
            pool: the pool.

        Returns:
            The memory and the pool after the round, and a `StopReason`, `RUNNING` to go on.
        """

    @abc.abstractmethod
    def vote(self, memory: Memory, pool: BranchPool) -> Vote:
        """Holds the vote whose winner the controller would answer now; called when an episode ends.

        Args:
            memory: what the controller remembers.
            pool: the pool.
        """

    def sequential_tokens(self, memory: Memory, pool: BranchPool) -> Int32[Array, ""]:  # noqa: ARG002
        """Counts the tokens that have to be generated one after another, a proxy for latency.

        By default the most tokens on one branch, for controllers that read branches in parallel.

        Args:
            memory: what the controller remembers.
            pool: the pool.
        """
        return jnp.max(pool.branch_tokens)


@dataclasses.dataclass(frozen=True)
class Family:
    """Controllers of one kind that differ in a single value, such as β or the number of branches.

    Attributes:
        name: the name in results, as in ``name@0.5``.
        values: the values that a sweep plays, increasing in budget.
        make: makes the controller at a value; raises an `InputError` for a value that has none. All
            controllers of a family are of one class.
        value_name: what the value is called in messages: ``β``, ``γ``, ``branches``.
    """

    name: str
    values: tuple[float, ...]
    make: Callable[[float], Controller]
    value_name: str = "value"


def checked_start(controller: Controller, pool: Pool) -> tuple[Memory, Pool]:
    """Calls `Controller.start`, and checks what it returns.

    Args:
        controller: the controller.
        pool: a pool in which nothing is opened.

    Raises:
        InputError: it did not return a memory and a pool.
    """
    returned = controller.start(pool)
    if not isinstance(returned, tuple) or len(returned) != 2 or not isinstance(returned[1], type(pool)):
        raise InputError(
            f"{type(controller).__name__}.start must return (memory, pool), not {returned!r:.80}"
        )
    return returned


def checked_round(controller: Controller, memory: Memory, pool: Pool) -> tuple[Memory, Pool, Scalar]:
    """Calls `Controller.round`, and checks what it returns.

    Args:
        controller: the controller.
        memory: what the controller remembers.
        pool: the pool.

    Raises:
        InputError: it did not return a memory of the same shapes, a pool, and a `StopReason`.
    """
    name, returned = type(controller).__name__, controller.round(memory, pool)
    if not isinstance(returned, tuple) or len(returned) != 3 or not isinstance(returned[1], type(pool)):
        raise InputError(f"{name}.round must return (memory, pool, stop), not {returned!r:.80}")
    stop = returned[2]
    known = not isinstance(stop, bool | float) and jnp.issubdtype(jnp.result_type(stop), jnp.integer)
    if not known or jnp.ndim(stop) or (isinstance(stop, int) and stop not in set(StopReason)):
        raise InputError(f"{name}.round returned the stop reason {stop!r:.80}; return a StopReason")
    before, after = _shapes(memory), _shapes(returned[0])
    if before != after:
        raise InputError(
            f"{name}.round was given the memory {before} and returned {after}; shapes must stay as start "
            "made them"
        )
    return returned


def _shapes(memory: Memory) -> str:
    return str(jax.tree.map(lambda leaf: list(jnp.shape(leaf)), memory))


def first_of(*rules: tuple[Bool[Array, ""], StopReason]) -> Int32[Array, ""]:
    """Picks the reason of the first rule that holds.

    Args:
        rules: pairs of a condition and the reason to stop for it, in order of precedence.

    Returns:
        The `StopReason`; `RUNNING` where no rule holds.
    """
    stop = jnp.int32(StopReason.RUNNING)
    for holds, reason in reversed(rules):
        stop = jnp.where(holds, jnp.int32(reason), stop)
    return stop


def keep_live(
    prune: Bool[Array, " W"], urgency: Int32[Array, " W"], live: Bool[Array, " W"], keep: Scalar
) -> Bool[Array, " W"]:
    """Spares branches from being pruned, so that one or two live branches are left.

    The least urgent are spared first, of equally urgent ones the later. At most two are, so two minima find
    them and nothing is sorted.

    Args:
        prune: live branches to prune.
        urgency: how urgent it is to prune each, at least 0.
        live: the live branches.
        keep: live branches to leave: 0, 1 or 2.

    Returns:
        The branches to prune all the same.
    """
    width = live.shape[0]
    last = jnp.iinfo(jnp.int32).max
    # Distinct, and larger where pruned earlier.
    turn = jnp.where(prune, urgency * width + (width - 1 - jnp.arange(width)), last)
    spared = jnp.sum(prune) - jnp.maximum(jnp.sum(live) - keep, 0)
    lowest = jnp.min(turn)
    second = jnp.min(jnp.where(turn > lowest, turn, last))
    spare = ((spared >= 1) & (turn == lowest)) | ((spared >= 2) & (turn == second))
    return prune & ~spare


def check_beta(value: float) -> float:
    """Checks that β is in [0, 1].

    Args:
        value: β.

    Raises:
        InputError: it is not.
    """
    if not isinstance(value, numbers.Real) or not 0.0 <= value <= 1.0:
        raise InputError(f"β is {value!r}, but it must be a number between 0 and 1")
    return float(value)


def check_branches(value: float, least: int = 1) -> int:
    """Checks that a number of branches is a whole number.

    Args:
        value: the number.
        least: the least number allowed.

    Raises:
        InputError: it is not whole, or too small.
    """
    if not float(value).is_integer() or value < least:
        raise InputError(f"the number of branches is {value:g}, but it must be a whole number >= {least}")
    return int(value)
