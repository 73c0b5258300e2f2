"""The controller contract: what a controller implements, and checks of what it returns."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import functools
import numbers
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int32

from autotts_jax.checks import check_float, check_label
from autotts_jax.core.arguments import described, is_array, is_too_large, type_of
from autotts_jax.core.view import Action, StopReason, View, check_action
from autotts_jax.core.votes import Vote
from autotts_jax.errors import InputError
from autotts_jax.replay.scale import Scale
from autotts_jax.replay.signals import bad_name
from autotts_jax.typing import Array, Scalar

Memory = Any
"""A pytree of arrays that a controller carries from look to look."""


class Controller(abc.ABC):
    """The paper's policy π(a | s, β): looks at what an episode has revealed, and says what to do next.

    A subclass is a frozen dataclass registered as a pytree (`jax.tree_util.register_dataclass`) whose fields
    are its hyper-parameters, numbers or arrays. They are traced, so that one compilation serves all values;
    its methods branch on them with ``jnp.where``, not with ``if``. Everything it remembers travels in
    `Memory`: a method is a pure function of what it is given.

    Only `act` has to be written.

    Attributes:
        trained_on: the scale of what a learned controller was trained on; None where it was not, or does not
            say.
        signals: names of the signals that it reads by `View.signal`. Views show it no others, and it cannot
            be played on data or a model without them.
    """

    trained_on: Scale | None = None
    signals: tuple[str, ...] = ()

    def init(self, view: View) -> Memory | tuple[Memory, Action]:  # noqa: ARG002
        """Makes what the controller remembers at first; nothing by default.

        Args:
            view: an episode in which nothing is opened.

        Returns:
            The memory, a pytree of arrays or None; or the memory and what to do before the first look, for
            controllers that always begin with the same action.
        """
        return None

    @abc.abstractmethod
    def act(self, memory: Memory, view: View) -> tuple[Memory, Action]:
        """Decides what to do next.

        Args:
            memory: what the controller remembers.
            view: what the episode has revealed.

        Returns:
            What it remembers from now on, of the same structure, shapes and dtypes; and the action.
        """

    def answer(self, memory: Memory, view: View) -> Vote:  # noqa: ARG002
        """Holds the vote whose winner is the answer; called when the episode ends.

        By default the finished branches vote; while there are none, the latest answers of the active ones.

        Args:
            memory: what the controller remembers after it has seen ``view``.
            view: what the episode has revealed.

        Returns:
            The vote; its ``leader`` is an opened branch, or ``NONE``.
        """
        return view.vote_finals().or_else(view.vote(view.active))


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
        if "@" in check_label("a family's name", self.name):
            raise InputError(f"a family's name is {self.name!r:.60}, but it must be a text without @")
        check_label(f"the value_name of {self.name}", self.value_name)
        values = self.values.tolist() if isinstance(self.values, np.ndarray) else self.values
        if not isinstance(values, Sequence) or isinstance(values, str | bytes):
            raise InputError(f"the values of {self.name} are {values!r:.60}; give a tuple of numbers")
        for value in values:
            check_float(f"a value of {self.name}", value)
        # Numbers of NumPy would not be written to a manifest.
        plain = tuple(value.item() if isinstance(value, np.generic) else value for value in values)
        object.__setattr__(self, "values", plain)
        if not callable(self.make):
            raise InputError(
                f"{self.name} makes its controllers by {self.make!r:.60}, which is not callable; give a "
                "function"
            )

    @classmethod
    def over_branches(
        cls,
        name: str,
        kind: Callable[..., Controller],
        values: tuple[float, ...] = (4, 8, 16, 32, 64),
        least: int = 1,
        **fields: Any,
    ) -> Family:
        """Makes a family over the number of branches.

        Args:
            name: the name in results.
            kind: the class of its members, whose first field is the number.
            values: the numbers that a sweep plays.
            least: the least number that a member can have.
            **fields: the other fields, the same for all members.

        Returns:
            The family; it refuses values that are no whole numbers.
        """
        return cls(name, values, functools.partial(_of_branches, kind, least, fields), "branches")

    def member(self, value: float) -> Controller:
        """Makes the controller at a value.

        Args:
            value: the value.

        Returns:
            The controller.

        Raises:
            InputError: there is none at the value, or `make` makes no controller.
        """
        check_float(f"{self.name}'s {self.value_name}", value)
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
        InputError: a limit is not a finite number.
    """
    limits = {"least": least, "most": most, "above": above}
    for name, limit in limits.items():
        if limit is not None:
            check_float(f"{name} of within", limit)
    return dataclasses.field(default=default, metadata={_WITHIN: limits})


def check_fields(controller: Controller) -> None:
    """Checks the hyper-parameters of a controller, and that its signals have names.

    Raises:
        InputError: one is neither a number nor an array, is NaN, is more than int32 holds, or is not
            `within` its limits or a float where that declares an ``int``; or its signals are not a tuple of
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
        check_float(f"{kind}.{field}", plain, **about.metadata[_WITHIN])


def limits_of(controller: Controller) -> dict[str, tuple[float, float]]:
    """Gives the limits of the hyper-parameters that are declared with `within`.

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


def checked_init(controller: Controller, view: View) -> tuple[Memory, Action | None]:
    """Calls `Controller.init`, and checks what it returns.

    Returns:
        The memory, in which numbers have become arrays; and the first action, None where there is none.

    Raises:
        InputError: it returned something else than a memory of arrays and an `Action`.
    """
    method = f"{type(controller).__name__}.init"
    with _inside(method, view):
        returned = controller.init(view)
    if type(returned) is tuple and len(returned) == 2 and isinstance(returned[1], Action):
        memory, action = returned
        check_action(method, action, view.width)
        if not (isinstance(action.stop, int) and action.stop == StopReason.RUNNING):
            raise InputError(f"{method} returned an Action that stops, but only act can; leave its stop out")
        return _checked_memory(method, memory), action
    return _checked_memory(method, returned), None


def checked_act(controller: Controller, memory: Memory, view: View) -> tuple[Memory, Action]:
    """Calls `Controller.act`, and checks what it returns.

    Returns:
        The memory, in which numbers have become arrays, and the action.

    Raises:
        InputError: it did not return a memory of the same structure, shapes and dtypes, and an `Action`.
    """
    method = f"{type(controller).__name__}.act"
    with _inside(method, view):
        returned = controller.act(memory, view)
    if type(returned) is not tuple or len(returned) != 2:
        given = "an Action alone" if isinstance(returned, Action) else f"{returned!r:.80}"
        raise InputError(f"{method} must return (memory, Action), not {given}")
    after, action = returned
    check_action(method, action, view.width)
    after = _checked_memory(method, after)
    structure: Callable[[Any], Any] = jax.tree.structure
    if structure(after) != structure(memory) or _types(after) != _types(memory):
        raise InputError(
            f"{method} was given the memory {_types(memory)} and returned {_types(after)}; structure, shapes "
            "and dtypes must stay as init made them"
        )
    return after, action


def checked_answer(controller: Controller, memory: Memory, view: View) -> Vote:
    """Calls `Controller.answer`, and checks what it returns.

    Raises:
        InputError: it did not return a `Vote` whose numbers are integers.
    """
    method = f"{type(controller).__name__}.answer"
    with _inside(method, view):
        vote = controller.answer(memory, view)
    if not isinstance(vote, Vote):
        raise InputError(f"{method} must return a Vote, as view.vote does, not {described(vote)}")
    for name in ("leader", "top1", "top2", "voters"):
        if not is_array(getattr(vote, name), np.integer):
            raise InputError(
                f"{method} returned a Vote whose {name} is {described(getattr(vote, name))}; it must be an "
                "integer, shape ()"
            )
    return vote


UNTRACEABLE: tuple[type[Exception], ...] = (
    jax.errors.JAXTypeError,
    jax.errors.NonConcreteBooleanIndexError,
)
"""What JAX raises where Python needs the value of something that is traced."""

_NOT_THE_CONTROLLERS = tuple(str(Path(file).parent) for file in (jax.__file__, np.__file__, __file__))
"""Folders of code that calls a controller or is called by it."""

_OF_SHAPES = re.compile(r"Shapes must be 1D sequences of concrete|ncompatible shapes for broadcasting")
"""What JAX says where an array is made with a traced shape, or does not fit another one."""


@contextlib.contextmanager
def _inside(method: str, view: View) -> Iterator[None]:
    """Names the method in which something went wrong that a controller's author can cure."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{method}: {error}") from error
    except (TypeError, ValueError, IndexError) as error:
        if isinstance(error, jax.errors.TracerArrayConversionError):
            what = "calls NumPy on a value that is traced"
            remedy = "use jax.numpy instead: jnp.where, jnp.maximum and jnp.sum for np.where and so on"
        elif isinstance(error, UNTRACEABLE):
            what = "needs a value in Python that is traced, as a condition or a number"
            remedy = "use jnp.where, jnp.minimum or first_of instead of if, min() and int()"
        elif _OF_SHAPES.search(str(error)):
            what = "makes an array of a traced shape, or of one that does not fit"
            remedy = (
                "give an array with an entry for each branch the shape view.width, which is "
                f"{view.width} and not traced, as jnp.zeros(view.width)"
            )
        else:
            raise
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if not frame.filename.startswith(_NOT_THE_CONTROLLERS)]
        where = f" in {Path(own[-1].filename).name}, line {own[-1].lineno}: {own[-1].line}" if own else ""
        raise InputError(
            f"{method} {what}{where}\nFields, memory and the view are traced; {remedy}."
        ) from error


def _checked_memory(method: str, memory: Memory) -> Memory:
    """Makes arrays of the numbers in a memory, and refuses what is neither."""
    for leaf in jax.tree.leaves(memory, is_leaf=lambda part: isinstance(part, Action | View)):
        if isinstance(leaf, Action):
            raise InputError(f"{method} must return (memory, Action), with None where nothing is remembered")
        if isinstance(leaf, View):
            raise InputError(f"{method} returned a memory that holds a View; keep the arrays that are needed")
        if type_of(leaf) is not None and jnp.issubdtype(jax.typeof(leaf).dtype, jax.dtypes.prng_key):
            raise InputError(
                f"{method} returned a memory that holds a random key, which a rollout cannot hold; keep "
                "jax.random.key_data(key), and use jax.random.wrap_key_data of it"
            )
        if type_of(leaf) is None:
            raise InputError(
                f"{method} returned a memory that holds {leaf!r:.80}; a memory is a pytree of arrays, or None"
            )
    # Of the dtype alone: a type that would give way to others ("weak") is another one to a compilation.
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jax.typeof(leaf).dtype), memory)


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
        if not is_array(rule[0], np.bool_):
            raise InputError(
                f"first_of takes conditions that are True or False, shape (), not {described(rule[0])}; "
                "jnp.any and jnp.all make one of many"
            )
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
    return float(value) + 0.0  # 0 where it is -0


def _of_branches(
    kind: Callable[..., Controller], least: int, fields: dict[str, Any], value: float
) -> Controller:
    """A member of a family over the number of branches; pickles, as a lambda would not."""
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
