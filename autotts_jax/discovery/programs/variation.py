"""Variation of programs: mutation, crossover by slot, and random programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from autotts_jax.discovery.programs.rules import (
    HYPERPARAMETERS,
    MAX_CLAUSES,
    MAX_CONDITIONS,
    OPS,
    SLOT_FEATURES,
    SLOT_VALUES,
    SLOTS,
    Clause,
    Condition,
    Line,
    Program,
    Range,
    range_of,
)

RELATIVE_STEP = 0.3
"""Standard deviation of a change to a whole number, as a share of it."""

REAL_STEP = 0.04
"""Standard deviation of a change to a real number, as a share of its range."""

NEAR_ZERO = 0.05
"""Range around 0, as a share of the whole, from which real numbers of either sign are drawn."""


def mutate(program: Program, rng: np.random.Generator) -> Program:
    """Changes a program in one place or a few.

    Args:
        program: the program.
        rng: the generator to draw with.

    Returns:
        Another program.
    """
    changed = program
    for _ in range(1 + rng.poisson(1.0)):
        kind = _CHANGES[rng.choice(len(_CHANGES), p=_CHANCES)]
        changed = kind(changed, rng)
    return changed if changed != program else mutate(program, rng)


def cross(one: Program, other: Program, rng: np.random.Generator) -> Program:
    """Makes a program whose slots and hyperparameters are each those of one of two.

    Args:
        one: a program.
        other: another one.
        rng: the generator to draw with.
    """
    slots = {slot: (one, other)[rng.integers(2)].slot(slot) for slot in SLOTS}
    # Width is one decision, and so is how confidence is averaged: these hyperparameters go together.
    opening, voting = (one, other)[rng.integers(2)], (one, other)[rng.integers(2)]
    hyperparameters = {
        name: (opening if name in ("initial", "max_branches", "in_full") else voting).hyperparameters[name]
        for name in HYPERPARAMETERS
    }
    return Program(hyperparameters, **slots)


def random_program(rng: np.random.Generator) -> Program:
    """Draws a program.

    Args:
        rng: the generator to draw with.
    """
    hyperparameters = {name: _draw(within, rng) for name, within in HYPERPARAMETERS.items()}
    slots = {
        slot: tuple(_random_clause(slot, rng) for _ in range(rng.integers(1, MAX_CLAUSES + 1)))
        for slot in SLOTS
    }
    return Program(hyperparameters, **slots)


def constant(program: Program) -> Program:
    """Makes every number of a program the middle of its line, so that β changes nothing.

    Returns:
        What the program is at β = 1/2, at every β.
    """

    def middle(line: Line) -> Line:
        return Line(line.at_0 + line.slope / 2)

    def clause(old: Clause) -> Clause:
        conditions = tuple(of._replace(number=middle(of.number)) for of in old.conditions)
        return Clause(conditions, middle(old.value))

    hyperparameters = {name: middle(line) for name, line in program.hyperparameters.items()}
    return Program(hyperparameters, **{slot: tuple(map(clause, program.slot(slot))) for slot in SLOTS})


def _random_clause(slot: str, rng: np.random.Generator) -> Clause:
    conditions = tuple(_random_condition(slot, rng) for _ in range(rng.integers(1, 4)))
    return Clause(conditions, _value(slot, rng))


def _value(slot: str, rng: np.random.Generator) -> Line:
    """What a new clause says: yes in the slots that answer yes or no."""
    return Line(1) if slot in ("prune", "stop") else _draw(SLOT_VALUES[slot], rng)


def _random_condition(slot: str, rng: np.random.Generator) -> Condition:
    features = SLOT_FEATURES[slot]
    feature = features[rng.integers(len(features))]
    return Condition(feature, OPS[rng.integers(len(OPS))], _draw(range_of(feature), rng))


def _draw(within: Range, rng: np.random.Generator) -> Line:
    """A number of a plausible size: whole ones log-uniform, real ones uniform or close to 0."""
    low, high, whole = within
    if whole and high > 1:
        most = max(low + 1, high / 4)
        first, last = np.exp(rng.uniform(np.log(low + 0.5), np.log(most + 0.5), 2)) - 0.5
    elif low < 0:
        first, last = rng.normal(0, NEAR_ZERO * (high - low), 2)
    else:
        first, last = rng.uniform(low, high, 2)
    slope = last - first if rng.random() < 0.5 else 0.0
    return Line(round(float(first), 3), round(float(slope), 3))


def steps(ends: Float[np.ndarray, " 2"], within: Range) -> Float[np.ndarray, " 2"]:
    """Computes the standard deviation of a change to a number.

    Returns:
        The standard deviations at both ends.
    """
    if within.whole:
        return np.maximum(RELATIVE_STEP * np.abs(ends), 0.5)
    if within.low < 0:
        return np.maximum(RELATIVE_STEP * np.abs(ends), 0.003)
    return np.full(2, REAL_STEP * (within.high - within.low))


def step(line: Line, within: Range, rng: np.random.Generator) -> Line:
    """Moves a line at both ends, at one of them, or makes it flat."""
    ends = np.array([line.at_0, line.at_0 + line.slope])
    scale = steps(ends, within)
    moved = [(1, 1), (1, 0), (0, 1)][rng.integers(3)]
    ends = np.clip(ends + scale * rng.standard_normal(2) * moved, within.low, within.high)
    if rng.random() < 0.1:
        ends[1] = ends[0]
    return Line(round(float(ends[0]), 4), round(float(ends[1] - ends[0]), 4))


# --- the kinds of change --------------------------------------------------------------------------------


def _change_number(program: Program, rng: np.random.Generator) -> Program:
    places = [(slot, row) for slot in SLOTS for row in range(len(program.slot(slot)))]
    if not places:
        return _change_dial(program, rng)
    slot, row = places[rng.integers(len(places))]
    clause = program.slot(slot)[row]
    at = rng.integers(len(clause.conditions) + 1)
    if at == len(clause.conditions):
        changed = clause._replace(value=step(clause.value, SLOT_VALUES[slot], rng))
    else:
        condition = clause.conditions[at]
        number = step(condition.number, range_of(condition.feature), rng)
        changed = with_condition(clause, int(at), condition._replace(number=number))
    return _with_clause(program, slot, row, changed)


def _change_dial(program: Program, rng: np.random.Generator) -> Program:
    name = list(HYPERPARAMETERS)[rng.integers(len(HYPERPARAMETERS))]
    within = HYPERPARAMETERS[name]
    flag = within.whole and within.high == 1
    line = (
        Line(1 - program.hyperparameters[name].at_0)
        if flag
        else step(program.hyperparameters[name], within, rng)
    )
    return dataclasses.replace(program, hyperparameters={**program.hyperparameters, name: line})


def _add_condition(program: Program, rng: np.random.Generator) -> Program:
    slot, row = _any_clause(program, rng)
    clause = program.slot(slot)[row] if row >= 0 else None
    if clause is None or len(clause.conditions) >= MAX_CONDITIONS:
        return program
    conditions = (*clause.conditions, _random_condition(slot, rng))
    return _with_clause(program, slot, row, clause._replace(conditions=conditions))


def _drop_condition(program: Program, rng: np.random.Generator) -> Program:
    slot, row = _any_clause(program, rng)
    if row < 0 or not program.slot(slot)[row].conditions:
        return program
    clause = program.slot(slot)[row]
    out = rng.integers(len(clause.conditions))
    conditions = tuple(c for at, c in enumerate(clause.conditions) if at != out)
    return _with_clause(program, slot, row, clause._replace(conditions=conditions))


def _replace_condition(program: Program, rng: np.random.Generator) -> Program:
    slot, row = _any_clause(program, rng)
    if row < 0 or not program.slot(slot)[row].conditions:
        return program
    clause = program.slot(slot)[row]
    at = int(rng.integers(len(clause.conditions)))
    return _with_clause(program, slot, row, with_condition(clause, at, _random_condition(slot, rng)))


def _add_clause(program: Program, rng: np.random.Generator) -> Program:
    slot = SLOTS[rng.integers(len(SLOTS))]
    clauses = list(program.slot(slot))
    if len(clauses) >= MAX_CLAUSES:
        return program
    clauses.insert(int(rng.integers(len(clauses) + 1)), _random_clause(slot, rng))
    return _with_slot(program, slot, tuple(clauses))


def _drop_clause(program: Program, rng: np.random.Generator) -> Program:
    slot, row = _any_clause(program, rng)
    clauses = tuple(clause for at, clause in enumerate(program.slot(slot)) if at != row)
    return _with_slot(program, slot, clauses)


def _swap_clauses(program: Program, rng: np.random.Generator) -> Program:
    slot, row = _any_clause(program, rng)
    clauses = list(program.slot(slot))
    if row > 0:
        clauses[row - 1], clauses[row] = clauses[row], clauses[row - 1]
    return _with_slot(program, slot, tuple(clauses))


_KINDS: tuple[tuple[Callable[[Program, np.random.Generator], Program], float], ...] = (
    (_change_number, 0.35),
    (_change_dial, 0.2),
    (_add_condition, 0.1),
    (_drop_condition, 0.1),
    (_replace_condition, 0.07),
    (_add_clause, 0.08),
    (_drop_clause, 0.06),
    (_swap_clauses, 0.04),
)
_CHANGES = [kind for kind, _ in _KINDS]
_CHANCES = [chance for _, chance in _KINDS]


def _any_clause(program: Program, rng: np.random.Generator) -> tuple[str, int]:
    """A slot and a clause in it; -1 where the slot has none."""
    slot = SLOTS[rng.integers(len(SLOTS))]
    clauses = program.slot(slot)
    return slot, int(rng.integers(len(clauses))) if clauses else -1


def _with_slot(program: Program, slot: str, clauses: tuple[Clause, ...]) -> Program:
    changed: Any = {slot: clauses}
    return dataclasses.replace(program, **changed)


def _with_clause(program: Program, slot: str, row: int, clause: Clause) -> Program:
    clauses = tuple(clause if at == row else other for at, other in enumerate(program.slot(slot)))
    return _with_slot(program, slot, clauses)


def with_condition(clause: Clause, at: int, condition: Condition) -> Clause:
    """Puts a condition in the place of another one."""
    conditions = tuple(condition if i == at else other for i, other in enumerate(clause.conditions))
    return clause._replace(conditions=conditions)
