"""The contracts of proposers, which say what a search tries next."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from autotts_jax.discovery.population import Population, Written
from autotts_jax.discovery.programs.rules import Program


class Proposal(NamedTuple):
    """A program to try.

    Attributes:
        program: the program.
        parents: numbers of the candidates that it was made from.
    """

    program: Program
    parents: tuple[int, ...] = ()


@runtime_checkable
class Proposer(Protocol):
    """Proposes programs. It keeps nothing between calls, so that a run can be resumed."""

    @property
    def name(self) -> str:
        """Its name in records."""

    def propose(self, population: Population, count: int, rng: np.random.Generator) -> list[Proposal]:
        """Proposes programs.

        Args:
            population: the best candidates so far; never empty.
            count: how many to propose.
            rng: the generator to draw with.
        """


class Draft(NamedTuple):
    """A whole file to try.

    Attributes:
        source: the text of the file; None where there is none.
        failure: why there is none.
        parents: numbers of the candidates that its author was shown.
        transcript: name of the file that holds what was asked and replied; None without one.
        tokens: tokens that were paid for it.
        dollars: what they cost; None where nobody knows.
    """

    source: str | None
    failure: str = ""
    parents: tuple[int, ...] = ()
    transcript: str | None = None
    tokens: int = 0
    dollars: float | None = None


class Trial(NamedTuple):
    """A program that was tried, and how far it came.

    Attributes:
        number: the candidate's number in the run.
        program: the program.
        scores: its score in each rung that it reached; none where a critic kept it from being played.
    """

    number: int
    program: Program
    scores: tuple[float, ...]

    @property
    def rank(self) -> tuple[int, float]:
        """Larger for the better of two: for the one that reached a later rung, or scored higher in it."""
        return len(self.scores), self.scores[-1] if self.scores else -np.inf


@runtime_checkable
class Learner(Proposer, Protocol):
    """Proposes programs, and learns from their scores. What it learns is kept in the population."""

    def learn(self, population: Population, trials: Sequence[Trial]) -> None:
        """Learns from the results of one of its rounds; called again for every round when a run is resumed.

        Args:
            population: the best candidates before that round; none of them in the first round of a search.
                Whatever is learned goes to ``population.learned``.
            trials: the candidates that it proposed, in order.
        """


@runtime_checkable
class Writer(Protocol):
    """Proposes whole files. It keeps what it paid for in the run's folder, so that a run can be resumed."""

    @property
    def name(self) -> str:
        """Its name in records."""

    def spent(self, tokens: float, dollars: float) -> float:
        """Computes the share of its budget that is spent.

        Args:
            tokens: tokens that the run's files so far have cost.
            dollars: dollars that they have cost, as far as that is known.
        """

    def write(
        self,
        tried: Sequence[Written],
        folder: Path,
        round: int,  # noqa: A002
        max_branches: int,
        beta: bool = True,
    ) -> list[Draft]:
        """Writes files.

        Args:
            tried: the files that this search has tried so far, in order.
            folder: the run's folder.
            round: number of the round in the run. A round that did not end is asked for again.
            max_branches: branches that an episode can open.
            beta: whether candidates are families over β; else each is one controller.

        Returns:
            The files; none where its budget is spent.
        """
