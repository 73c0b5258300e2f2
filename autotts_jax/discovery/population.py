"""The candidates that a search continues from."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from autotts_jax.discovery.archive.archive import Record
from autotts_jax.discovery.programs.rules import Program

SIZE = 48
"""The best candidates that are kept; those that are the best of their kind are kept besides."""

ELITE, EXPLORE = 0.2, 0.2
"""How often a parent is one of the best few, or any of those that are the best of their kind."""

RANK_SCALE = 10.0
"""Else a parent is drawn by rank, with exponentially falling probability of this scale."""


@dataclasses.dataclass(frozen=True)
class Member:
    """A program that has reached the end of the last rung.

    Attributes:
        number: the candidate's number in the run.
        program: what it plays.
        score: its objective on the search's questions, less the price of its length; -inf while it has not
            played.
        cost: its mean tokens, in branches of mean length.
        width: its mean number of branches.
    """

    number: int
    program: Program
    score: float
    cost: float
    width: float

    @property
    def kind(self) -> tuple[int, int]:
        """Its cell in the grid of tokens and width, each in powers of two."""
        return round(float(np.log2(max(self.cost, 0.1)))), round(float(np.log2(max(self.width, 1))))


@dataclasses.dataclass
class Population:
    """The best candidates so far, and the best of each kind.

    Attributes:
        members: the best first.
        learned: what proposers have learned of their own rounds, by name.
    """

    members: list[Member] = dataclasses.field(default_factory=list)
    learned: dict[str, Any] = dataclasses.field(default_factory=dict)

    def add(self, members: list[Member]) -> None:
        """Adds candidates, and forgets those that are neither among the best nor the best of their kind.

        Args:
            members: the candidates.
        """
        distinct = {member.program.to_json(): member for member in reversed([*self.members, *members])}
        ranked = sorted(distinct.values(), key=lambda member: (-member.score, member.number))
        best_of_kind = {member.kind: member for member in reversed(ranked)}
        kept = {member.number for member in [*ranked[:SIZE], *best_of_kind.values()]}
        self.members = [member for member in ranked if member.number in kept]

    def parent(self, rng: np.random.Generator) -> Member:
        """Draws a parent.

        Args:
            rng: the generator to draw with.
        """
        how = rng.random()
        if how < ELITE:
            return self.members[int(rng.integers(min(4, len(self.members))))]
        if how < ELITE + EXPLORE:
            best_of_kind = {member.kind: member for member in reversed(self.members)}
            return list(best_of_kind.values())[int(rng.integers(len(best_of_kind)))]
        return self.members[min(int(rng.exponential(RANK_SCALE)), len(self.members) - 1)]


@dataclasses.dataclass(frozen=True)
class Written:
    """A candidate that is a whole file, and how it was measured.

    Attributes:
        number: the candidate's number in the run.
        source: the text of the file; None where there was none.
        metrics: see `autotts_jax.discovery.Measurement`; None of a candidate that failed.
        feedback: what the author of the next file is told about it.
    """

    number: int
    source: str | None
    metrics: dict[str, Any] | None
    feedback: str

    @property
    def score(self) -> float:
        """Its objective; -inf of a candidate that failed."""
        return -np.inf if self.metrics is None else float(self.metrics["objective"])

    @property
    def cost(self) -> float:
        """Its mean tokens, in branches of mean length; inf of a candidate that failed."""
        return np.inf if self.metrics is None else float(self.metrics["cost"])

    @property
    def width(self) -> float:
        """Its mean number of branches; 0 of a candidate that failed."""
        return 0.0 if self.metrics is None else float(self.metrics["width"])


def member_of(record: Record) -> Member | None:
    """Makes a member of a record.

    Returns:
        The member; None where the candidate left its round before the end of the last rung.
    """
    if "cost" not in record:
        return None
    program = Program.from_tree(record["program"])
    return Member(record["number"], program, record["scores"][-1], record["cost"], record["width"])


def written_of(record: Record) -> Written:
    """Makes a candidate of the record of a file."""
    return Written(record["number"], record["source"], record["metrics"], record["feedback"])


@dataclasses.dataclass
class Search:
    """A search: the questions that it uses, and the best candidates so far.

    Attributes:
        fold: the fold that it leaves out; None for none.
        used: the questions that it uses. Shape (Q,).
        population: the best candidates so far that are programs.
        written: the candidates so far that are files, in order.
        rounds: rounds that it has played.
    """

    fold: int | None
    used: Bool[np.ndarray, " Q"]
    population: Population = dataclasses.field(default_factory=Population)
    written: list[Written] = dataclasses.field(default_factory=list)
    rounds: int = 0

    @property
    def questions(self) -> Int[np.ndarray, " used"]:
        """The questions that it uses, by position."""
        return np.flatnonzero(self.used)

    def best_written(self) -> list[Written]:
        """The files that did not fail, the best first."""
        measured = [written for written in self.written if written.metrics is not None]
        return sorted(measured, key=lambda written: (-written.score, written.number))

    def best(self) -> Member | Written | None:
        """The best candidate so far; None where there is none."""
        found: list[Member | Written] = [*self.population.members[:1], *self.best_written()[:1]]
        return max(found, key=lambda candidate: candidate.score, default=None)
