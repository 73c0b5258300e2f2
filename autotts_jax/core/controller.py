"""The controller contract: what a controller implements, and checks of what it returns."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import numbers
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int32

from autotts_jax.checks import label, number
from autotts_jax.core.pool import BranchPool, Pool, StopReason, described, is_array, is_too_large, type_of
from autotts_jax.core.votes import Vote, largest
from autotts_jax.errors import InputError
from autotts_jax.replay.scale import Scale
from autotts_jax.replay.signals import bad_name
from autotts_jax.typing import Array, Scalar

Made = TypeVar("Made", bound="Controller")

Memory = Any
"""A pytree of arrays that a controller carries from round to round."""


class Controller(abc.ABC):
    """Decides, round after round, what to do with a pool of branches.

    A subclass is a frozen dataclass registered as a pytree (`jax.tree_util.register_dataclass`) whose fields
    are its hyper-parameters, numbers or arrays. They are traced, so that one compilation serves all values;
    its methods branch on them with ``jnp.where``, not with ``if``. Everything it remembers travels in
    `Memory`. It sees the pool through `BranchPool` alone and therefore plays on every pool.

    Attributes:
        trained_on: the scale of what a learned controller was trained on; None where it was not, or does not
            say.
        signals: names of the signals that it reads by `BranchPool.signal`. Pools show it no others, and it
            cannot be played on data or a model without them.
    """

    trained_on: Scale | None = None
    signals: tuple[str, ...] = ()

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
            The memory and the pool after the round, and a `StopReason`, `RUNNING` to continue.
        """

    @abc.abstractmethod
    def vote(self, memory: Memory, pool: BranchPool) -> Vote:
        """Holds the vote whose winner the controller would answer now; called when an episode ends.

        Args:
            memory: what the controller remembers.
            pool: the pool.

        Returns:
            The vote, as `BranchPool.vote` holds it; its ``leader`` is an opened branch, or ``NONE``.
        """

    def sequential_tokens(self, memory: Memory, pool: BranchPool) -> Int32[Array, ""]:  # noqa: ARG002
        """Counts the tokens that have to be generated one after another, a proxy for latency.

        By default the most tokens on one branch, for controllers that read branches in parallel.

        Args:
            memory: what the controller remembers.
            pool: the pool.

        Returns:
            The tokens: at least those of the longest branch, at most those of all branches.
        """
        return largest(pool.branch_tokens)


@dataclasses.dataclass(frozen=True)
class Family:
    """Controllers of one kind that differ in a single value, such as β or the number of branches.

    Attributes:
        name: the name in results, as in ``name@0.5``.
        values: the values that a sweep plays, increasing in budget; none for a family without a sweep, whose
            members are named one by one.
        make: makes the controller at a value; raises an `InputError` for a value that has none. All
            controllers of a family are of one class.
        value_name: what the value is called in messages: ``β``, ``γ``, ``branches``.
    """

    name: str
    values: tuple[float, ...]
    make: Callable[[float], Controller]
    value_name: str = "value"

    def __post_init__(self) -> None:
        if "@" in label("a family's name", self.name):
            raise InputError(f"a family's name is {self.name!r:.60}, but it must be a text without @")
        label(f"the value_name of {self.name}", self.value_name)
        values = self.values.tolist() if isinstance(self.values, np.ndarray) else self.values
        if not isinstance(values, Sequence) or isinstance(values, str | bytes):
            raise InputError(f"the values of {self.name} are {values!r:.60}; give a tuple of numbers")
        for value in values:
            number(f"a value of {self.name}", value)
        # Numbers of NumPy would not be written to a manifest.
        plain = tuple(value.item() if isinstance(value, np.generic) else value for value in values)
        object.__setattr__(self, "values", plain)
        if not callable(self.make):
            raise InputError(
                f"{self.name} makes its controllers by {self.make!r:.60}, which is not callable; give a "
                "function"
            )

    def member(self, value: float) -> Controller:
        """Makes the controller at a value.

        Args:
            value: the value.

        Returns:
            The controller.

        Raises:
            InputError: there is none at the value, or `make` makes no controller.
        """
        number(f"{self.name}'s {self.value_name}", value)
        made = self.make(value)
        if not isinstance(made, Controller):
            raise InputError(
                f"{self.name}.make({value:g}) returned {made!r:.60}, but it must return a Controller"
            )
        return made


_WITHIN = "within"


def within(
    least: float | None = None,
    most: float | None = None,
    *,
    above: float | None = None,
    default: Any = dataclasses.MISSING,
) -> Any:
    """Declares a hyper-parameter of a controller, a field of a dataclass, with the numbers that it can be.

    A number outside is refused before anything is played, and so is a float where the field is an ``int``.

    Args:
        least: the least; None for no such limit.
        most: the largest; None for no such limit.
        above: a number that it is above; None for no such limit.
        default: its default; without one it has to be given.

    Returns:
        The field.

    Raises:
        InputError: a limit is no finite number.
    """
    limits = {"least": least, "most": most, "above": above}
    for name, limit in limits.items():
        if limit is not None:
            number(f"{name} of within", limit)
    return dataclasses.field(default=default, metadata={_WITHIN: limits})


def check_fields(controller: Controller) -> None:
    """Checks the hyper-parameters of a controller, and that its signals have names.

    Args:
        controller: the controller.

    Raises:
        InputError: one is neither a number nor an array, is NaN, is more than int32 holds, or is not
            `within` its limits or a float where that declares an ``int``; or its signals are no tuple of
            names.
    """
    kind, signals = type(controller).__name__, controller.signals
    if not isinstance(signals, tuple):
        raise InputError(f"{kind}.signals is {signals!r:.80}; make it a tuple of names, as ('conf_low',)")
    if problem := bad_name(signals):
        raise InputError(f"{kind}.signals: {problem}")
    for path, leaf in jax.tree_util.tree_leaves_with_path(controller):
        name = f"{kind}{jax.tree_util.keystr(path)}"
        if _is_concrete(leaf) and leaf != leaf:
            raise InputError(f"{name} is {leaf}; give a number")
        if type_of(leaf) is not None:
            continue
        if is_too_large(leaf):
            raise InputError(f"{name} is {leaf!s:.60}, which is more than int32 holds")
        raise InputError(
            f"{name} is {leaf!r:.80}, but fields are traced and must be numbers or arrays; mark one that "
            "never varies as static, with dataclasses.field(metadata={'static': True})"
        )
    for field, about in _limited_fields(controller).items():
        value = getattr(controller, field)
        if not _is_concrete(value):
            continue
        plain = np.asarray(value).item()
        if about.type in (int, "int") and isinstance(plain, float):
            raise InputError(f"{kind}.{field} is {plain}, but it must be an integer")
        number(f"{kind}.{field}", plain, **about.metadata[_WITHIN])


def limits_of(controller: Controller) -> dict[str, tuple[float, float]]:
    """Gives the limits of the hyper-parameters that are declared with `within`.

    Args:
        controller: the controller.

    Returns:
        The least and the largest number of each field, infinite where there is none.
    """
    limits = {}
    for field, about in _limited_fields(controller).items():
        least, most = about.metadata[_WITHIN]["least"], about.metadata[_WITHIN]["most"]
        limits[field] = (-np.inf if least is None else least, np.inf if most is None else most)
    return limits


def _limited_fields(controller: Controller) -> dict[str, dataclasses.Field[Any]]:
    declared: dict[str, dataclasses.Field[Any]] = getattr(controller, "__dataclass_fields__", {})
    return {field: about for field, about in declared.items() if _WITHIN in about.metadata}


def _is_concrete(value: Any) -> bool:
    """Tells whether a value is a single one, and not traced."""
    return np.ndim(value) == 0 and not isinstance(value, jax.core.Tracer)


def checked_start(controller: Controller, pool: Pool) -> tuple[Memory, Pool]:
    """Calls `Controller.start`, and checks what it returns.

    Args:
        controller: the controller.
        pool: a pool in which nothing is opened.

    Returns:
        The memory, in which numbers have become arrays, and the pool.

    Raises:
        InputError: it did not return a memory of arrays and a pool.
    """
    method = f"{type(controller).__name__}.start"
    with _inside(method):
        returned = controller.start(pool)
    if not isinstance(returned, tuple) or len(returned) != 2 or not isinstance(returned[1], type(pool)):
        raise InputError(f"{method} must return (memory, pool), not {returned!r:.80}")
    return _checked_memory(method, returned[0]), returned[1]


def checked_round(controller: Controller, memory: Memory, pool: Pool) -> tuple[Memory, Pool, Scalar]:
    """Calls `Controller.round`, and checks what it returns.

    Args:
        controller: the controller.
        memory: what the controller remembers.
        pool: the pool.

    Returns:
        The memory, in which numbers have become arrays, the pool, and the reason to stop.

    Raises:
        InputError: it did not return a memory of the same structure, shapes and dtypes, a pool, and a
            `StopReason`.
    """
    method = f"{type(controller).__name__}.round"
    with _inside(method):
        returned = controller.round(memory, pool)
    if not isinstance(returned, tuple) or len(returned) != 3 or not isinstance(returned[1], type(pool)):
        raise InputError(f"{method} must return (memory, pool, stop), not {returned!r:.80}")
    after, pool, stop = returned
    if not is_array(stop, np.integer) or (isinstance(stop, int) and stop not in set(StopReason)):
        raise InputError(f"{method} returned the stop reason {described(stop)}; return a StopReason")
    after = _checked_memory(method, after)
    structure: Callable[[Any], Any] = jax.tree.structure
    if structure(after) != structure(memory) or _types(after) != _types(memory):
        raise InputError(
            f"{method} was given the memory {_types(memory)} and returned {_types(after)}; structure, shapes "
            "and dtypes must stay as start made them"
        )
    return after, pool, stop


def checked_vote(controller: Controller, memory: Memory, pool: BranchPool) -> Vote:
    """Calls `Controller.vote`, and checks what it returns.

    Args:
        controller: the controller.
        memory: what the controller remembers.
        pool: the pool.

    Raises:
        InputError: it did not return a `Vote` whose numbers are integers.
    """
    method = f"{type(controller).__name__}.vote"
    with _inside(method):
        vote = controller.vote(memory, pool)
    if not isinstance(vote, Vote):
        raise InputError(f"{method} must return a Vote, as pool.vote does, not {described(vote)}")
    for name in ("leader", "top1", "top2", "voters"):
        if not is_array(getattr(vote, name), np.integer):
            raise InputError(
                f"{method} returned a Vote whose {name} is {described(getattr(vote, name))}; it must be an "
                "integer, shape ()"
            )
    return vote


def checked_sequential_tokens(controller: Controller, memory: Memory, pool: BranchPool) -> Scalar:
    """Calls `Controller.sequential_tokens`, and checks what it returns.

    Args:
        controller: the controller.
        memory: what the controller remembers.
        pool: the pool.

    Raises:
        InputError: it did not return an integer.
    """
    method = f"{type(controller).__name__}.sequential_tokens"
    with _inside(method):
        tokens = controller.sequential_tokens(memory, pool)
    if not is_array(tokens, np.integer):
        raise InputError(f"{method} must return an integer, shape (), not {described(tokens)}")
    return tokens


@contextlib.contextmanager
def _inside(method: str) -> Iterator[None]:
    """Names the method in which a pool was asked for something impossible."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{method}: {error}") from error


def _checked_memory(method: str, memory: Memory) -> Memory:
    """Makes arrays of the numbers in a memory, and refuses what is neither."""
    for leaf in jax.tree.leaves(memory):
        if type_of(leaf) is None:
            raise InputError(
                f"{method} returned a memory that holds {leaf!r:.80}; a memory is a pytree of arrays, or None"
            )
    return jax.tree.map(
        lambda leaf: (
            leaf if isinstance(leaf, jax.Array | np.ndarray) else jnp.asarray(leaf, jax.typeof(leaf).dtype)
        ),
        memory,
    )


def _types(memory: Memory) -> str:
    """Dtype and shape of each array in a memory."""
    return str(jax.tree.map(lambda leaf: jax.typeof(leaf).str_short(), memory)).replace("'", "")


def first_of(*rules: tuple[Bool[Array, ""], StopReason]) -> Int32[Array, ""]:
    """Picks the reason of the first rule that holds.

    Args:
        rules: pairs of a condition and the reason to stop for it, in order of precedence.

    Returns:
        The `StopReason`; `RUNNING` where no rule holds.

    Raises:
        InputError: a rule is no such pair.
    """
    for rule in rules:
        if not isinstance(rule, tuple) or len(rule) != 2 or not is_array(rule[1], np.integer):
            raise InputError(f"first_of takes pairs (condition, StopReason), not {rule!r:.80}")
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
        The branches that are still to be pruned.
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


def of_branches(kind: Callable[..., Made], value: float, least: int = 1, **fields: Any) -> Made:
    """Makes the member of a family over the number of branches, which pickles as a lambda would not.

    Args:
        kind: the class, whose first field is the number.
        value: the number.
        least: the least number allowed.
        **fields: further fields of the controller.

    Raises:
        InputError: see `check_branches`.
    """
    return kind(check_branches(value, least), **fields)


def check_branches(value: float, least: int = 1) -> int:
    """Checks that a number of branches is a whole number.

    Args:
        value: the number.
        least: the least number allowed.

    Raises:
        InputError: it is not whole, too small, or more than int32 holds.
    """
    if not float(value).is_integer() or value < least:
        raise InputError(f"the number of branches is {value:g}, but it must be a whole number >= {least}")
    if value > np.iinfo(np.int32).max:
        raise InputError(f"the number of branches is {value:g}, more than can be counted; give fewer")
    return int(value)
