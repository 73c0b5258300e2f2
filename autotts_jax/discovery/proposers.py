"""Proposers: who says what to try next."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple, Protocol

import numpy as np

from autotts_jax.discovery.population import Population
from autotts_jax.discovery.rules import Program
from autotts_jax.discovery.variation import cross, mutate, random_program
from autotts_jax.errors import InputError


class Proposal(NamedTuple):
    """A program to try.

    Attributes:
        program: the program.
        parents: numbers of the candidates that it was made from.
    """

    program: Program
    parents: tuple[int, ...] = ()


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


CROSSED, FRESH = 0.35, 0.03
"""Shares of children that have two parents, and of programs that have none."""


@dataclasses.dataclass(frozen=True)
class Rules:
    """Evolution: programs are children of the best so far."""

    name: str = "rules"

    def propose(self, population: Population, count: int, rng: np.random.Generator) -> list[Proposal]:
        """Proposes mutants of members, of crosses of two members, and a few random programs."""
        return [self._child(population, rng) for _ in range(count)]

    def _child(self, population: Population, rng: np.random.Generator) -> Proposal:
        how = rng.random()
        if how < FRESH:
            return Proposal(random_program(rng))
        one = population.parent(rng)
        if how < FRESH + CROSSED:
            other = population.parent(rng)
            crossed = cross(one.program, other.program, rng)
            return Proposal(mutate(crossed, rng), (one.number, other.number))
        return Proposal(mutate(one.program, rng), (one.number,))


@dataclasses.dataclass(frozen=True)
class Random:
    """The control: programs drawn at random, whatever has been found."""

    name: str = "random"

    def propose(
        self,
        population: Population,  # noqa: ARG002
        count: int,
        rng: np.random.Generator,
    ) -> list[Proposal]:
        """Proposes random programs."""
        return [Proposal(random_program(rng)) for _ in range(count)]


PROPOSERS: dict[str, Proposer] = {proposer.name: proposer for proposer in (Rules(), Random())}
"""Proposers by name."""


def as_proposer(proposer: str | Proposer) -> Proposer:
    """Finds a proposer.

    Args:
        proposer: a name of `PROPOSERS`, or a proposer.

    Raises:
        InputError: there is no such proposer.
    """
    if not isinstance(proposer, str):
        return proposer
    if proposer not in PROPOSERS:
        raise InputError(f"unknown proposer {proposer!r}; known are {', '.join(PROPOSERS)}")
    return PROPOSERS[proposer]
