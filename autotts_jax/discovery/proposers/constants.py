"""Tuning: an evolution strategy over the numbers of a program, whose rules stay as they are."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float

from autotts_jax.discovery.population import Population
from autotts_jax.discovery.programs.rules import (
    DECIMALS,
    HYPERPARAMETERS,
    SLOT_VALUES,
    SLOTS,
    Clause,
    Line,
    Program,
    Range,
    range_of,
)
from autotts_jax.discovery.programs.variation import steps
from autotts_jax.discovery.proposers.protocol import Proposal, Trial
from autotts_jax.errors import InputError
from autotts_jax.extras import needs
from autotts_jax.files import read_bytes

if TYPE_CHECKING:
    from cmaes import CMA

CONSTANTS = "constants"
"""Name of the proposer, with the file of a program after a colon."""

FIRST_STEP = 0.5
"""Standard deviation of the first generation, as a share of the steps of mutations."""

PATIENCE = 6
"""Generations without a better candidate after which tuning begins anew with the search's best program."""

SMALLEST = 4
"""Candidates that a generation needs for the strategy to be defined."""


@dataclasses.dataclass(frozen=True)
class Constants:
    """CMA-ES over the numbers of a program: each of its rounds in a search is a generation.

    What it has learned is kept by the population, and learned again from the archive when a run is resumed.

    Attributes:
        program: the program to begin with; None for the search's best one. In the first round of a search,
            when none is known to be the best, it varies each program that the search begins with.

    Raises:
        InputError: ``cmaes`` is not installed.
    """

    program: Program | None = None

    def __post_init__(self) -> None:
        with needs("discover", f"the proposer {CONSTANTS}"):
            import cmaes  # noqa: F401

    @classmethod
    def read(cls, path: str) -> Constants:
        """Makes a proposer that begins with the program in a file.

        Args:
            path: the file; it holds what `Program.to_json` wrote.

        Raises:
            InputError: the file holds no program.
            DataError: the file cannot be read.
        """
        content = read_bytes(path).decode(errors="replace")
        try:
            return cls(Program.from_json(content))
        except InputError as error:
            raise InputError(f"{CONSTANTS}:{path}: {error}") from error

    @property
    def name(self) -> str:
        """Its name in records, with a hash of the program that it begins with."""
        if self.program is None:
            return CONSTANTS
        same_numbers = Program.from_json(self.program.to_json()).to_json()  # 2 and 2.0 are the same.
        return f"{CONSTANTS}:{hashlib.sha256(same_numbers.encode()).hexdigest()[:8]}"

    def propose(self, population: Population, count: int, rng: np.random.Generator) -> list[Proposal]:
        """Proposes a generation."""
        if self.program is None and not np.isfinite(population.members[0].score):
            begun = [_Tuning.of(member.program, (member.number,), count) for member in population.members]
            return [begun[place % len(begun)].propose(rng) for place in range(count)]
        tuning = self._tuning(population, count)
        return [tuning.propose(rng) for _ in range(count)]

    def learn(self, population: Population, trials: Sequence[Trial]) -> None:
        """Learns from the scores of a generation."""
        if self.program is None and not population.members:
            return  # It was the first round.
        tuning = self._tuning(population, len(trials))
        tuning.learn(trials)
        population.learned[self.name] = tuning

    def _tuning(self, population: Population, count: int) -> _Tuning:
        """The strategy that is under way, or a new one."""
        last: _Tuning | None = population.learned.get(self.name)
        if last is not None and last.stale < PATIENCE:
            return last
        if self.program is None:
            best = population.members[0]
            return _Tuning.of(best.program, (best.number,), count)
        if last is None or last.best is None:
            return _Tuning.of(self.program, (), count)
        return _Tuning.of(last.best.program, (last.best.number,), count)


@dataclasses.dataclass
class _Tuning:
    """An evolution strategy over the numbers of a program.

    A point has a coordinate for each number, and two for one that changes with β, at β = 0 and at β = 1: how
    many steps it is from the program's.

    Attributes:
        program: the program.
        parents: its number in the run, where it has one.
        strategy: the strategy.
        best: the best candidate of all generations.
        stale: generations since there was a better one.
    """

    program: Program
    parents: tuple[int, ...]
    strategy: CMA
    best: Trial | None = None
    stale: int = 0

    @classmethod
    def of(cls, program: Program, parents: tuple[int, ...], count: int) -> _Tuning:
        """Begins one."""
        from cmaes import CMA

        size = max(count, SMALLEST)
        return cls(program, parents, CMA(np.zeros(_free(program).sum()), FIRST_STEP, population_size=size))

    def propose(self, rng: np.random.Generator) -> Proposal:
        """Draws a candidate."""
        # So that what is drawn depends on the run's seed and on what was learned alone.
        self.strategy.reseed_rng(int(rng.integers(2**32)))
        ends, free = _ends(self.program), _free(self.program)
        away = np.zeros_like(ends)
        away[free] = self.strategy.ask()
        away[:, 1] = np.where(free[:, 1], away[:, 1], away[:, 0])
        bounds = np.array([within[:2] for _, within in _numbers(self.program)])
        low, high = np.minimum(bounds[:, :1], ends), np.maximum(bounds[:, 1:], ends)
        moved = np.clip(ends + away * _scale(self.program), low, high)
        return Proposal(_with(self.program, moved), self.parents)

    def learn(self, trials: Sequence[Trial]) -> None:
        """Learns from the scores of a generation."""
        ranked = sorted(trials, key=lambda trial: trial.rank, reverse=True)
        self.stale += 1
        if self.best is None or ranked[0].rank > self.best.rank:
            self.best, self.stale = ranked[0], 0
        # The strategy wants as many candidates as in its first generation.
        chosen = np.linspace(0, len(ranked) - 1, self.strategy.population_size).round().astype(int)
        free, scale, ends = _free(self.program), _scale(self.program), _ends(self.program)
        points = [((_ends(ranked[place].program) - ends) / scale)[free] for place in chosen]
        self.strategy.tell([(point, float(place)) for place, point in enumerate(points)])


# --- the numbers of a program ---------------------------------------------------------------------------


def _numbers(program: Program) -> Iterator[tuple[Line, Range]]:
    """The numbers that say how much, and not whether."""
    every = [(program.hyperparameters[name], within) for name, within in HYPERPARAMETERS.items()]
    for slot in SLOTS:
        for conditions, value in program.slot(slot):
            every += [(number, range_of(feature)) for feature, _, number in conditions]
            every.append((value, SLOT_VALUES[slot]))
    return ((line, within) for line, within in every if not _is_flag(within))


def _with(program: Program, ends: Float[np.ndarray, "N 2"]) -> Program:
    """The program with other numbers, in the order of `_numbers`."""
    left = iter(ends.tolist())

    def changed(line: Line, within: Range) -> Line:
        if _is_flag(within):
            return line
        first, last = next(left)
        return Line(round(first, DECIMALS), round(last - first, DECIMALS))

    hyperparameters = {
        name: changed(program.hyperparameters[name], within) for name, within in HYPERPARAMETERS.items()
    }
    slots: dict[str, Any] = {
        slot: tuple(
            Clause(
                tuple(one._replace(number=changed(one.number, range_of(one.feature))) for one in conditions),
                changed(value, SLOT_VALUES[slot]),
            )
            for conditions, value in program.slot(slot)
        )
        for slot in SLOTS
    }
    return Program(hyperparameters, **slots)


def _is_flag(within: Range) -> bool:
    return within.whole and within.high == 1


def _ends(program: Program) -> Float[np.ndarray, "N 2"]:
    """The numbers at β = 0 and at β = 1."""
    return np.array([(line.at_0, line.at_0 + line.slope) for line, _ in _numbers(program)])


def _free(program: Program) -> Bool[np.ndarray, "N 2"]:
    """The ends that are coordinates: the first, and the last where the number changes with β."""
    return np.array([(True, line.slope != 0) for line, _ in _numbers(program)])


def _scale(program: Program) -> Float[np.ndarray, "N 2"]:
    """The step of each end."""
    numbers = zip(_ends(program), _numbers(program), strict=True)
    return np.array([steps(ends, within) for ends, (_, within) in numbers])
