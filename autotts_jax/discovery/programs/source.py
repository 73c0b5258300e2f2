"""Export: programs as the source of a short controller that plays the same episodes, and files as players."""

from __future__ import annotations

import dataclasses
import keyword
import textwrap
from collections.abc import Sequence

from autotts_jax.discovery.programs.rules import (
    COMPARE,
    DECIMALS,
    DEFAULTS,
    HYPERPARAMETERS,
    SLOT_VALUES,
    SLOTS,
    Clause,
    Condition,
    Line,
    Program,
    Range,
    range_of,
)
from autotts_jax.errors import InputError
from autotts_jax.policies.players import CONTROLLERS, NEURAL
from autotts_jax.policies.rule_controller import RuleController

NAME = "candidate"
"""What a candidate's file calls the candidate."""

_FILE = '''"""{doc}"""

import dataclasses

import jax
{numpy}
import autotts_jax as at
from autotts_jax.core import check_beta
from autotts_jax.policies import RuleController, Seen


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class {name}(RuleController):
    """Plays by these rules; numbers that change with β are its fields."""

{fields}
    @classmethod
    def of_beta(cls, beta: float) -> "{name}":
        """Makes the controller at β in [0, 1]."""
        check_beta(beta)
        return cls(
{made}
        )

{methods}


FAMILY = at.Family("{family}", tuple(i / 10 for i in range(11)), {name}.of_beta, "β")
"""The family over β."""
'''

_METHODS = {
    "open": ("jax.Array", "How many branches to open at the end of a round."),
    "read": ("jax.Array", "How many intervals to read of each live branch."),
    "prune": ("jax.Array", "Which live branches to prune."),
    "stop": ("jax.Array", "Whether to answer."),
    "weigh": ("jax.Array", "How much each branch's vote counts."),
}

_FLAGS = ("agrees", "ended")
"""Features that are true or false."""

_TAKEN = ("FAMILY", "RuleController", "Seen")
"""Names that the file of a program uses itself."""

_ROWS = ("first", "second", "third")


def check_unknown(name: str) -> None:
    """Checks that a name is not that of a player of this package, which results could not be told from.

    Raises:
        InputError: it is.
    """
    known = name.lower().replace("_", "-")
    if known in (*CONTROLLERS, NEURAL):
        raise InputError(f"{name!r} is the name of a player of this package ({known}); give another")


def check_class_name(name: str) -> None:
    """Checks the name of a controller's class.

    Raises:
        InputError: it is not one of a class, or taken.
    """
    if (
        not isinstance(name, str)
        or not name.isidentifier()
        or keyword.iskeyword(name)
        or not name[0].isupper()
    ):
        raise InputError(f"{name!r} is not a name of a class; give one like FirstFinishers")
    if name in _TAKEN:
        raise InputError(f"{name} is what the file calls something else; give a name like FirstFinishers")
    check_unknown(name)


def commented(*lines: str) -> str:
    """Writes lines as comments that say where a source comes from, to stand before it."""
    wrapped = (textwrap.fill(line, 100, initial_indent="# ", subsequent_indent="# ") for line in lines)
    return "\n".join(wrapped)


def source_of(
    program: Program, name: str, doc: str = "A controller found by search.", extra: Sequence[str] = ()
) -> str:
    """Writes a program as the source of a controller.

    The file holds the controller's class and, as ``FAMILY``, its family over β; it plays the episodes that
    the program plays.

    Args:
        program: the program.
        name: the class's name, as ``FirstFinishers``; the family's is the same in lower case.
        doc: the first line of the file.
        extra: the text of further methods.

    Raises:
        InputError: the name is not one of a class, or taken.
    """
    check_class_name(name)
    export = _Export(program)
    methods = [export.method(slot) for slot in SLOTS if program.slot(slot) or slot == "weigh"] + list(extra)
    defaults = {field.name: repr(field.default) for field in dataclasses.fields(RuleController)}
    hyperparameters = {
        hyperparameter: _expression(program.hyperparameters[hyperparameter], within)
        for hyperparameter, within in HYPERPARAMETERS.items()
    }
    hyperparameters = {
        hyperparameter: expression
        for hyperparameter, expression in hyperparameters.items()
        if expression != defaults[hyperparameter]
    }
    made = hyperparameters | {field: expression for field, (_, expression) in export.fields.items()}
    numpy = "import jax.numpy as jnp\n" if any("jnp." in method for method in methods) else ""
    return _FILE.format(
        doc=doc,
        numpy=numpy,
        name=name,
        family=name.lower(),
        fields="".join(f"    {field}: {kind}\n" for field, (kind, _) in export.fields.items()),
        made="\n".join(f"            {field}={expression}," for field, expression in made.items()),
        methods="\n\n".join(methods),
    ).replace('fields."""\n\n\n', 'fields."""\n\n')


_EXPORT = """


if hasattr({candidate}, "solve"):
    FAMILY = {candidate}
else:
    import autotts_jax as at

    FAMILY = at.Family({name!r}, tuple(i / 10 for i in range(11)), {candidate}, "β")
"""
"""What is added to a file that is exported."""


def exported(source: str, name: str) -> str:
    """Adds to a candidate's file what makes it a file that `autotts_jax.evaluate` plays.

    Returns:
        The text of a file with a ``FAMILY``.

    Raises:
        InputError: the name is that of a player of this package.
    """
    check_unknown(name)
    return source.rstrip() + _EXPORT.format(candidate=NAME, name=name)


@dataclasses.dataclass
class _Export:
    """The rules of a program as methods, and the fields that they read.

    Attributes:
        program: the program.
        fields: for each number that changes with β the field's type, and its value as an expression of β.
    """

    program: Program
    fields: dict[str, tuple[str, str]] = dataclasses.field(default_factory=dict)

    def method(self, slot: str) -> str:
        """Writes the method of a slot."""
        lines, names, values = [], [], []
        default = repr(DEFAULTS[slot])
        for row, clause in enumerate(self.program.slot(slot)):
            conditions = self._conditions(f"{slot}_{_ROWS[row]}", clause)
            value = self._number(f"{slot}_{_ROWS[row]}", clause.value, SLOT_VALUES[slot])
            if "False" in conditions:
                continue
            if not conditions:
                default = value
                break
            names.append(_ROWS[row])
            values.append(value)
            lines += _all_of(f"{_ROWS[row]} =", conditions)
        plain = slot in ("prune", "stop") and set(values) == {"1"} and default == "0"
        if plain and len(names) == 1:
            lines[0] = lines[0].removeprefix(f"{names[0]} = ")
            said = "\n".join(lines)
            lines = []
        elif plain:
            said = " | ".join(names)
        elif len(names) == 1:
            if len(lines) == 1:
                names = [lines.pop().removeprefix(f"{names[0]} = ")]
            said = f"jnp.where({names[0]}, {values[0]}, {default})"
            said = f"{said} > 0" if slot in ("prune", "stop") else said
        elif names:
            said = f"jnp.select([{', '.join(names)}], [{', '.join(values)}], {default})"
            said = f"{said} > 0" if slot in ("prune", "stop") else said
        elif slot in ("prune", "stop"):
            said = f"jnp.bool_({default} > 0)"
        else:
            said = f"jnp.asarray({default})"
        kind, doc = _METHODS[slot]
        body = "\n".join([*lines, f"return {said}"])
        return f'    def {slot}(self, seen: Seen) -> {kind}:\n        """{doc}"""\n' + "\n".join(
            f"        {line}" for line in body.split("\n")
        )

    def _conditions(self, place: str, clause: Clause) -> list[str]:
        """The conditions of a clause that do not always hold."""
        texts = [self._condition(place, condition) for condition in clause.conditions]
        return list(dict.fromkeys(text for text in texts if text != "True"))

    def _condition(self, place: str, condition: Condition) -> str:
        feature, op, line = condition
        within = range_of(feature)
        if feature in _FLAGS and not line.slope:
            number = line.at(0.0, within)
            holds = [COMPARE[op](value, number) for value in (0, 1)]
            if holds[0] == holds[1]:
                return str(holds[0])
            return f"seen.{feature}" if holds[1] else f"~seen.{feature}"
        return f"(seen.{feature} {op} {self._number(f'{place}_{feature}', line, within)})"

    def _number(self, field: str, line: Line, within: Range) -> str:
        """A number in place, or as a field where it changes with β."""
        if line.at(0.0, within) == line.at(1.0, within):
            return repr(line.at(0.0, within))
        expression = _expression(line, within)
        while field in self.fields and self.fields[field][1] != expression:
            field += "_too"
        self.fields[field] = ("int" if within.whole else "float", expression)
        return f"self.{field}"


def _all_of(begin: str, conditions: list[str]) -> list[str]:
    if len(conditions) == 1:
        return [f"{begin} {conditions[0].removeprefix('(').removesuffix(')')}"]
    first, *others = conditions
    return [f"{begin} (", f"    {first}", *(f"    & {condition}" for condition in others), ")"]


def _expression(line: Line, within: Range) -> str:
    """A line as an expression of β: rounded, and bounded where its ends are out of the range."""
    ends = [line.at(0.0, within), line.at(1.0, within)]
    if ends[0] == ends[1]:
        return repr(ends[0])
    text = f"{line.at_0!r} {'+' if line.slope >= 0 else '-'} {abs(line.slope)!r} * beta"
    text = f"round({text})" if within.whole else f"round({text}, {DECIMALS})"
    low = min(line.at_0, line.at_0 + line.slope)
    high = max(line.at_0, line.at_0 + line.slope)
    if low < within.low:
        text = f"max({text}, {within.low!r})"
    if high > within.high:
        text = f"min({text}, {within.high!r})"
    return text
