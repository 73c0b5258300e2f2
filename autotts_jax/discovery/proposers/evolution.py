"""Evolution in the space of programs, and its control."""

from __future__ import annotations

import dataclasses

import numpy as np

from autotts_jax.discovery.population import Population
from autotts_jax.discovery.programs.variation import cross, mutate, random_program
from autotts_jax.discovery.proposers.protocol import Proposal

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
