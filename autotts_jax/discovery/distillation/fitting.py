"""Rules fitted to examples: evolution of the clauses of one slot.

What a slot should say is known for every example, so a set of clauses is judged without playing an episode.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Bool, Float

from autotts_jax.discovery.programs.rules import (
    COMPARE,
    DECIMALS,
    DEFAULTS,
    MAX_CLAUSES,
    MAX_CONDITIONS,
    OPS,
    SLOT_VALUES,
    Clause,
    Condition,
    Line,
    Range,
    parts_of,
    range_of,
)
from autotts_jax.discovery.programs.variation import step, with_condition

CHILDREN, SURVIVORS = 96, 16
"""Sets of clauses that a generation tries, and that are kept."""

PART_PRICE = 0.003
"""What a part of a rule has to save: this share of the error without rules."""

INDIFFERENT = 1e-3
"""What an example counts in which one decision is as good as another."""

REMEMBERED = 2_000
"""Conditions of which it is remembered where they hold."""


@dataclasses.dataclass(frozen=True, eq=False)
class Examples:
    """What a slot should say.

    Attributes:
        slot: the slot.
        features: values of each feature that it can ask. Shapes (N,).
        beta: β. Shape (N,).
        value: what it should say. Shape (N,).
        weight: how much it matters. Shape (N,).
    """

    slot: str
    features: dict[str, Float[np.ndarray, " N"]]
    beta: Float[np.ndarray, " N"]
    value: Float[np.ndarray, " N"]
    weight: Float[np.ndarray, " N"]

    def said(self, clauses: Sequence[Clause]) -> Float[np.ndarray, " N"]:
        """Computes what clauses say."""
        said = np.full(len(self.beta), DEFAULTS[self.slot], np.float32)
        for clause in reversed(clauses):
            holds = functools.reduce(np.logical_and, map(self._holds, clause.conditions), self._everywhere)
            said = np.where(holds, self._number(clause.value, SLOT_VALUES[self.slot]), said)
        return said

    @functools.cached_property
    def _everywhere(self) -> Bool[np.ndarray, " N"]:
        return np.ones(len(self.beta), bool)

    @functools.cached_property
    def _holds(self) -> Callable[[Condition], Bool[np.ndarray, " N"]]:
        """Says where a condition holds; most conditions of a generation are those of the one before."""

        def holds(of: Condition) -> Bool[np.ndarray, " N"]:
            return COMPARE[of.op](self.features[of.feature], self._number(of.number, range_of(of.feature)))

        return functools.lru_cache(REMEMBERED)(holds)

    def _number(self, line: Line, within: Range) -> Float[np.ndarray, " N"]:
        """A number at each β, as `Line.at` rounds and bounds it."""
        number = line.at_0 + line.slope * self.beta
        return np.clip(np.round(number, 0 if within.whole else DECIMALS), within.low, within.high)

    def error(self, clauses: Sequence[Clause]) -> float:
        """Computes how far clauses are from what they should say.

        That is the weighted share of examples in which they say something else; in the slot ``open`` the
        weighted mean square of the difference in log(1 + branches).
        """
        said = self.said(clauses)
        off = said != self.value
        if self.slot == "open":  # one branch more matters less, the more there are
            off = np.square(np.log1p(said) - np.log1p(self.value))
        return float(np.average(off, weights=self.weight + INDIFFERENT))


def fit(
    examples: Examples, begin: Sequence[tuple[Clause, ...]], generations: int, rng: np.random.Generator
) -> list[tuple[Clause, ...]]:
    """Searches for short clauses that say what examples say.

    Returns:
        The best sets of clauses, the best first; one empty set if there are no examples.
    """
    if not len(examples.value):
        return [()]
    scale = max(examples.error(()), 1e-9)

    def loss(clauses: tuple[Clause, ...]) -> float:
        return examples.error(clauses) / scale + PART_PRICE * parts_of(clauses)

    best = sorted(((loss(clauses), clauses) for clauses in begin), key=lambda pair: pair[0])
    for _ in range(generations):
        parents = np.minimum(rng.exponential(SURVIVORS / 4, CHILDREN).astype(int), len(best) - 1)
        children = dict.fromkeys(_changed(best[parent][1], examples, rng) for parent in parents)
        known = {clauses for _, clauses in best}
        tried = [(loss(clauses), clauses) for clauses in children if clauses not in known]
        best = sorted([*best, *tried], key=lambda pair: pair[0])[:SURVIVORS]
    return [clauses for _, clauses in best]


def _changed(clauses: tuple[Clause, ...], examples: Examples, rng: np.random.Generator) -> tuple[Clause, ...]:
    """Changes clauses in one place or a few."""
    for _ in range(1 + rng.poisson(1.0)):
        change = _CHANGES[rng.choice(len(_CHANGES), p=_CHANCES)] if clauses else _add_clause
        clauses = change(clauses, examples, rng)
    return clauses


def _draw(values: Float[np.ndarray, " N"], rng: np.random.Generator) -> Line:
    """A number that is the value of a feature in some example, or goes from one's to another's with β."""
    first, last = values[rng.integers(len(values), size=2)]
    slope = last - first if rng.random() < 0.5 else 0.0
    return Line(round(float(first), 4), round(float(slope), 4))


def _condition(examples: Examples, rng: np.random.Generator) -> Condition:
    names = list(examples.features)
    feature = names[rng.integers(len(names))]
    return Condition(feature, OPS[rng.integers(len(OPS))], _draw(examples.features[feature], rng))


def _add_clause(
    clauses: tuple[Clause, ...], examples: Examples, rng: np.random.Generator
) -> tuple[Clause, ...]:
    if len(clauses) >= MAX_CLAUSES:
        return clauses
    conditions = tuple(_condition(examples, rng) for _ in range(rng.integers(1, 3)))
    place = int(rng.integers(len(clauses) + 1))
    added = Clause(conditions, _draw(examples.value, rng))
    return (*clauses[:place], added, *clauses[place:])


def _drop_clause(
    clauses: tuple[Clause, ...], examples: Examples, rng: np.random.Generator
) -> tuple[Clause, ...]:
    del examples
    out = int(rng.integers(len(clauses)))
    return (*clauses[:out], *clauses[out + 1 :])


def _swap_clauses(
    clauses: tuple[Clause, ...], examples: Examples, rng: np.random.Generator
) -> tuple[Clause, ...]:
    del examples
    one, other = rng.integers(len(clauses), size=2)
    swapped = list(clauses)
    swapped[one], swapped[other] = swapped[other], swapped[one]
    return tuple(swapped)


def _add_condition(clause: Clause, examples: Examples, rng: np.random.Generator) -> Clause:
    if len(clause.conditions) >= MAX_CONDITIONS:
        return clause
    return clause._replace(conditions=(*clause.conditions, _condition(examples, rng)))


def _drop_condition(clause: Clause, examples: Examples, rng: np.random.Generator) -> Clause:
    del examples
    if not clause.conditions:
        return clause
    out = int(rng.integers(len(clause.conditions)))
    return clause._replace(conditions=(*clause.conditions[:out], *clause.conditions[out + 1 :]))


def _change_number(clause: Clause, examples: Examples, rng: np.random.Generator) -> Clause:
    at = int(rng.integers(len(clause.conditions) + 1))
    if at == len(clause.conditions):
        within = SLOT_VALUES[examples.slot]
        flag = within.whole and within.high == 1
        return clause if flag else clause._replace(value=step(clause.value, within, rng))
    old = clause.conditions[at]
    return with_condition(clause, at, old._replace(number=step(old.number, range_of(old.feature), rng)))


def _replace_condition(clause: Clause, examples: Examples, rng: np.random.Generator) -> Clause:
    return _add_condition(_drop_condition(clause, examples, rng), examples, rng)


_Change = Callable[[tuple[Clause, ...], Examples, np.random.Generator], tuple[Clause, ...]]


def _in_one(change: Callable[[Clause, Examples, np.random.Generator], Clause]) -> _Change:
    """Changes one of the clauses."""

    def changed(
        clauses: tuple[Clause, ...], examples: Examples, rng: np.random.Generator
    ) -> tuple[Clause, ...]:
        at = int(rng.integers(len(clauses)))
        return (*clauses[:at], change(clauses[at], examples, rng), *clauses[at + 1 :])

    return changed


_KINDS: tuple[tuple[_Change, float], ...] = (
    (_in_one(_change_number), 0.52),
    (_in_one(_add_condition), 0.12),
    (_in_one(_drop_condition), 0.08),
    (_in_one(_replace_condition), 0.08),
    (_add_clause, 0.1),
    (_drop_clause, 0.06),
    (_swap_clauses, 0.04),
)
_CHANGES = [kind for kind, _ in _KINDS]
_CHANCES = [chance for _, chance in _KINDS]
