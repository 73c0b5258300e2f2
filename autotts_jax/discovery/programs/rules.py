"""The space of programs: typed decision lists over what a controller sees.

A program has five slots (open, read, prune, stop, weigh). In each a few clauses stand one below the other;
the first whose conditions all hold says what to do. Every number in it is a line in β, so that a program is
a family of controllers. Nothing in a program is code: one compiled interpreter plays all of them
(`autotts_jax.discovery.programs.interpreter`).
"""

from __future__ import annotations

import dataclasses
import json
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from autotts_jax.core.controller import check_beta
from autotts_jax.errors import InputError
from autotts_jax.parsing import parse_json

Op = Literal["<", "<=", ">", ">="]
"""How a feature is compared with a number."""

OPS: tuple[Op, ...] = get_args(Op)

COMPARE: dict[Op, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
"""The comparisons, of numbers or of arrays."""

DECIMALS = 4
"""Decimals that a constant has, where it is not a whole number."""


class Range(NamedTuple):
    """The values that a number can have.

    Attributes:
        low: the least.
        high: the largest.
        whole: whether they are whole numbers.
    """

    low: float
    high: float
    whole: bool = True

    def clip(self, value: float) -> float:
        """Rounds a number, half to even, and moves it into the range."""
        rounded = round(value) if self.whole else round(value, DECIMALS)
        bounded = min(max(rounded, self.low), self.high)
        return int(bounded) if self.whole else float(bounded)


POOL_FEATURES: dict[str, Range] = {
    "round": Range(0, 500),
    "opened": Range(0, 64),
    "live": Range(0, 64),
    "finished": Range(0, 64),
    "agreeing": Range(0, 64),
    "voters": Range(0, 64),
    "top1": Range(0, 64),
    "top2": Range(0, 64),
    "distinct": Range(0, 64),
    "stable": Range(0, 500),
    "confidence": Range(0, 1, whole=False),
    "ema": Range(0, 1, whole=False),
    "momentum": Range(-1, 1, whole=False),
}
"""What a clause can ask of the whole pool, and the numbers that it can compare it with.

``agreeing`` counts the live branches whose answer is the leader's; ``voters``, ``top1`` and ``top2`` count
the votes in all, for the leader, and for the runner-up; ``distinct`` counts the answers voted for, and
``stable`` the rounds since the leader's answer last changed. ``confidence`` is that of the vote, ``ema`` its
moving average, and ``momentum`` how much that has risen over the window. From ``voters`` on, the features are
those of the last vote.
"""

BRANCH_FEATURES: dict[str, Range] = {
    "depth": Range(0, 128),
    "streak": Range(0, 128),
    "disagreement": Range(0, 500),
    "support": Range(0, 64),
    "agrees": Range(0, 1),
    "ended": Range(0, 1),
}
"""What a clause can ask of a branch, and the numbers that it can compare it with.

``streak`` counts the rounds since its answer last changed, ``disagreement`` the rounds, from ``warm_up`` on,
since it last agreed with the leader, ``support`` the votes for its answer in the last vote; ``agrees`` and
``ended`` are 0 or 1.
"""

SLOTS = ("open", "read", "prune", "stop", "weigh")
"""The slots of a program."""

SLOT_FEATURES: dict[str, tuple[str, ...]] = {
    "open": tuple(POOL_FEATURES),
    "read": (*POOL_FEATURES, *BRANCH_FEATURES),
    "prune": (*POOL_FEATURES, *BRANCH_FEATURES),
    "stop": tuple(POOL_FEATURES),
    "weigh": tuple(BRANCH_FEATURES),
}
"""What the clauses of each slot can ask."""

SLOT_VALUES: dict[str, Range] = {
    "open": Range(0, 64),
    "read": Range(0, 8),
    "prune": Range(0, 1),
    "stop": Range(0, 1),
    "weigh": Range(0, 1, whole=False),
}
"""What clauses can say: branches to open, intervals to read, whether to prune or stop (0 or 1), votes."""

DEFAULTS = {"open": 0, "read": 1, "prune": 0, "stop": 0, "weigh": 0}
"""What holds where no clause does."""

MAX_CLAUSES = 3
"""The most clauses of a slot."""

MAX_CONDITIONS = 5
"""The most conditions of a clause."""

HYPERPARAMETERS: dict[str, Range] = {
    "initial": Range(1, 64),
    "max_branches": Range(1, 64),
    "warm_up": Range(0, 64),
    "spare": Range(0, 2),
    "alpha": Range(0.02, 1, whole=False),
    "window": Range(1, 8),
    "in_full": Range(0, 1),
    "by_completion": Range(0, 1),
}
"""Numbers that every program has.

``initial`` branches are opened at the start and at most ``max_branches`` in all; disagreement is counted from
round ``warm_up`` on; pruning leaves ``spare`` live branches; ``alpha`` is the weight of a new confidence in
the moving average, and momentum is taken over ``window`` rounds. With ``in_full`` branches are opened by
reading them to their end. Of answers with as many votes the leader is the one voted for first, by completion
of the branch (``by_completion``) or by branch.
"""


class Line(NamedTuple):
    """A number that depends on β: ``at_0 + slope · β``.

    Attributes:
        at_0: the number at β = 0.
        slope: how much it grows to β = 1.
    """

    at_0: float
    slope: float = 0.0

    def at(self, beta: float, within: Range) -> float:
        """Computes the number.

        Args:
            beta: β.
            within: rounds it, and bounds it.
        """
        return within.clip(self.at_0 + self.slope * beta)


class Condition(NamedTuple):
    """``feature op number``.

    Attributes:
        feature: a feature of the pool or of a branch.
        op: how to compare.
        number: what to compare it with.
    """

    feature: str
    op: Op
    number: Line


class Clause(NamedTuple):
    """If all conditions hold, the value.

    Attributes:
        conditions: what has to hold; a clause without conditions always holds.
        value: what the slot then says.
    """

    conditions: tuple[Condition, ...]
    value: Line


@dataclasses.dataclass(frozen=True)
class Program:
    """A family of controllers over β, as data.

    Attributes:
        hyperparameters: the numbers of `HYPERPARAMETERS`.
        open: how many branches to open at the end of a round.
        read: how many intervals to read of a live branch.
        prune: whether to prune a live branch, at the start of a round.
        stop: whether to answer.
        weigh: how much a branch's vote counts; pruned branches do not vote.

    Raises:
        InputError: there is a clause, feature, operation or number that a program cannot have.
    """

    hyperparameters: Mapping[str, Line]
    open: tuple[Clause, ...] = ()
    read: tuple[Clause, ...] = ()
    prune: tuple[Clause, ...] = ()
    stop: tuple[Clause, ...] = ()
    weigh: tuple[Clause, ...] = ()

    def __post_init__(self) -> None:
        if set(self.hyperparameters) != set(HYPERPARAMETERS):
            raise InputError(
                f"a program has the hyperparameters {', '.join(HYPERPARAMETERS)}, "
                f"not {', '.join(self.hyperparameters)}"
            )
        lines = [(name, line) for name, line in self.hyperparameters.items()]
        for slot in SLOTS:
            clauses = self.slot(slot)
            if len(clauses) > MAX_CLAUSES:
                raise InputError(f"{slot} has {len(clauses)} clauses, but at most {MAX_CLAUSES} are allowed")
            for clause in clauses:
                if len(clause.conditions) > MAX_CONDITIONS:
                    raise InputError(
                        f"a clause of {slot} has {len(clause.conditions)} conditions, but at most "
                        f"{MAX_CONDITIONS} are allowed"
                    )
                lines.append((slot, clause.value))
                for feature, op, number in clause.conditions:
                    if feature not in SLOT_FEATURES[slot] or op not in OPS:
                        raise InputError(
                            f"{slot} cannot compare {feature!r} by {op!r}; it can compare "
                            f"{', '.join(SLOT_FEATURES[slot])} by {', '.join(OPS)}"
                        )
                    lines.append((feature, number))
        for name, line in lines:
            try:
                finite = np.isfinite(np.array([*line, line.at_0 + line.slope], float)).all()
            except (TypeError, ValueError, OverflowError):
                finite = False
            if not finite:
                raise InputError(
                    f"{name} has the numbers {tuple(line)!r:.100}, but they and their sum must be finite"
                )

    def slot(self, name: str) -> tuple[Clause, ...]:
        """Returns the clauses of a slot.

        Args:
            name: one of `SLOTS`.
        """
        clauses: tuple[Clause, ...] = getattr(self, name)
        return clauses

    def hyperparameter(self, name: str, beta: float) -> float:
        """Returns a hyperparameter at β.

        Args:
            name: one of `HYPERPARAMETERS`.
            beta: β.
        """
        return self.hyperparameters[name].at(check_beta(beta), HYPERPARAMETERS[name])

    @property
    def length(self) -> int:
        """The description length: clauses, conditions, and numbers that change with β."""
        changing = sum(line.slope != 0 for line in self.hyperparameters.values())
        return changing + sum(parts_of(self.slot(slot)) for slot in SLOTS)

    def to_tree(self) -> dict[str, Any]:
        """Returns the program as a JSON object."""
        slots = {slot: self.slot(slot) for slot in SLOTS if self.slot(slot)}
        return {"hyperparameters": {name: self.hyperparameters[name] for name in HYPERPARAMETERS}, **slots}

    def to_json(self) -> str:
        """Writes the program as one line of JSON, the same for equal programs."""
        return json.dumps(self.to_tree())

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any]) -> Program:
        """Reads what `to_tree` returned.

        Args:
            tree: the JSON object.

        Raises:
            InputError: it is not a program.
        """
        try:
            for key, _ in tree.items():
                if key not in ("hyperparameters", *SLOTS):
                    raise InputError(f"{key!r:.60} is none of hyperparameters, {', '.join(SLOTS)}")
            slots: Any = {
                slot: tuple(map(_clause, of)) for slot, of in tree.items() if slot != "hyperparameters"
            }
            hyperparameters = {
                name: Line(*map(float, line)) for name, line in tree["hyperparameters"].items()
            }
            return cls(hyperparameters, **slots)
        except InputError as error:
            raise InputError(f"this is not a program: {error}") from error
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            raise InputError(f"this is not a program: {error!r:.100}; got {tree!r:.200}") from error

    @classmethod
    def from_json(cls, text: str) -> Program:
        """Reads what `to_json` wrote.

        Args:
            text: the JSON.

        Raises:
            InputError: it is not a program.
        """
        try:
            tree = parse_json(text)
        except ValueError as error:
            raise InputError(f"this is not a program: {error}; got {text:.200}") from error
        return cls.from_tree(tree)


def parts_of(clauses: Sequence[Clause]) -> int:
    """Counts clauses, conditions, and numbers that change with β."""
    lines = [line for of in clauses for line in (of.value, *(each.number for each in of.conditions))]
    return sum(1 + len(of.conditions) for of in clauses) + sum(line.slope != 0 for line in lines)


def range_of(feature: str) -> Range:
    """Returns the numbers that a feature can be compared with."""
    return POOL_FEATURES.get(feature) or BRANCH_FEATURES[feature]


def _clause(tree: Any) -> Clause:
    conditions, value = tree
    return Clause(
        tuple(Condition(feature, op, Line(*map(float, line))) for feature, op, line in conditions),
        Line(*map(float, value)),
    )
