"""Rounds of programs: rungs in which ever fewer candidates play ever more episodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

from autotts_jax.discovery.archive.archive import Record
from autotts_jax.discovery.archive.records import CANDIDATE, START
from autotts_jax.discovery.critics.critic import Gate
from autotts_jax.discovery.judging.judge import ONE_BETA, SEARCH_BETAS, SEARCH_ORDERS, Judge, Outcome
from autotts_jax.discovery.population import Member, Population, Search
from autotts_jax.discovery.programs.interpreter import BETAS, decision_list
from autotts_jax.discovery.programs.published import PUBLISHED
from autotts_jax.discovery.programs.rules import Program
from autotts_jax.discovery.programs.variation import constant
from autotts_jax.discovery.proposers.protocol import Proposal, Proposer, Trial
from autotts_jax.errors import InputError

RUNGS = ((128, 1), (32, 4), (12, 12))
"""Candidates that a round's rungs play, the best of the rung before, and the branch orders that they play."""

FRESH_ORDERS = range(Judge.final_orders.stop, SEARCH_ORDERS)
"""The orders that the other rungs draw from."""

LENGTH_PRICE = 2e-4
"""What a part of a program costs in accuracy: of equally good programs the shorter one."""

FINALISTS = 8
"""Programs of a search that are compared once more at its end, in as many orders as they are."""


@dataclasses.dataclass(frozen=True)
class ProgramRounds:
    """How programs are proposed, played, and compared at the end.

    Attributes:
        judge: has the questions.
        rungs: candidates and orders of each rung.
        seed: the seed that everything is drawn with.
        beta: whether candidates are families over β; else all of their numbers are constant.
        gate: judges candidates before they are played; None for nobody.
    """

    judge: Judge
    rungs: tuple[tuple[int, int], ...]
    seed: int
    beta: bool = True
    gate: Gate | None = None

    def play(
        self, search: Search, first: Sequence[Proposal], proposer: Proposer, round_number: int, number: int
    ) -> list[Record]:
        """Proposes candidates and plays rungs, each with the best of the one before.

        Returns:
            The records of the candidates.

        Raises:
            InputError: what is proposed are not programs, or more than were asked for.
        """
        rng = np.random.default_rng([self.seed, 1, round_number])
        population = search.population
        if not population.members:
            numbered = list(enumerate((proposal.program for proposal in first), number))
            distinct = {one.to_json(): Member(at, one, -np.inf, 1.0, 1.0) for at, one in reversed(numbered)}
            population = Population(list(distinct.values()))
        rest = self.rungs[0][0] - len(first)
        given = proposer.propose(population, rest, rng)
        proposed = list(given) if isinstance(given, Iterable) else []
        if not 0 < len(proposed) <= rest or not all(map(_is_proposal, proposed)):
            raise InputError(
                f"{proposer.name} was asked for {rest} proposals, but gave {given!r:.100}; give as many, or "
                "fewer but not none, each a Proposal of a Program"
            )
        proposals = [*first, *map(self._admitted, proposed)]
        records: list[Record] = [
            {
                "kind": CANDIDATE,
                "number": number + place,
                "proposer": START if place < len(first) else proposer.name,
                "parents": list(proposal.parents),
                "fold": search.fold,
                "program": proposal.program.to_tree(),
                "scores": [],
            }
            for place, proposal in enumerate(proposals)
        ]
        if self.gate:
            self.gate.judge(records, round_number)
        left = [place for place, record in enumerate(records) if "gated" not in record]
        for rung, (size, orders) in enumerate(self.rungs):
            left = left[:size]
            if not left:
                break  # A critic has rejected all.
            last = rung == len(self.rungs) - 1
            rows = range(orders) if last else rng.choice(FRESH_ORDERS, orders, replace=False).tolist()
            outcome, scores = self._play_heat([proposals[at].program for at in left], search.questions, rows)
            for at, place in enumerate(left):
                records[place]["scores"].append(round(float(scores[at]), 6))
                if last:
                    records[place]["cost"] = round(float(outcome.cost[at].mean()), 4)
                    records[place]["width"] = round(float(outcome.width[at].mean()), 4)
            left = [left[at] for at in np.argsort(-scores, kind="stable")]
        return records

    def first(self, search: Search, others: Sequence[Search]) -> list[Proposal]:
        """Gives what a search begins with: published controllers, or what other searches have found.

        Returns:
            Programs; none once the search has members.
        """
        if search.population.members:
            return []
        share = self.rungs[-1][0] // len(others) if search.fold is None else 0
        found = [
            Proposal(member.program, (member.number,))
            for other in others
            for member in other.population.members[:share]
        ]
        return found or [self._admitted(Proposal(program)) for program in PUBLISHED.values()]

    def finalists(self, search: Search) -> list[tuple[float, Member]]:
        """Compares a search's best programs in further orders.

        Returns:
            Scores and programs.
        """
        members = search.population.members[:FINALISTS]
        if not members:
            return []
        programs = [member.program for member in members]
        _, scores = self._play_heat(programs, search.questions, self.judge.final_orders)
        return list(zip(map(float, scores), members, strict=True))

    def test(self, program: Program) -> Outcome:
        """Plays the test."""
        return self.judge.play_test(_controllers(program, BETAS if self.beta else ONE_BETA))

    def published(self) -> dict[str, Outcome]:
        """Plays the test with `PUBLISHED`, families over β in any case."""
        return {
            name: self.judge.play_test(_controllers(program, BETAS)) for name, program in PUBLISHED.items()
        }

    def _admitted(self, proposal: Proposal) -> Proposal:
        """A proposal as it is tried."""
        return proposal if self.beta else proposal._replace(program=constant(proposal.program))

    def _play_heat(
        self, programs: Sequence[Program], questions: Int[np.ndarray, " used"], rows: Sequence[int]
    ) -> tuple[Outcome, np.ndarray]:
        """Plays and scores a rung. Rungs have as many controllers and episodes, and so one compilation."""
        betas = SEARCH_BETAS if self.beta else ONE_BETA
        candidates = [_controllers(program, betas) for program in programs]
        filling = [candidates[0][0]] * (len(betas) * (self.rungs[0][0] - len(programs)))
        outcome = self.judge.play(candidates, questions, self.judge.search, rows, filling)
        length = np.array([program.length for program in programs])
        return outcome, outcome.objective(SEARCH_BETAS) - LENGTH_PRICE * length


def trial_of(record: Record) -> Trial:
    """Makes of a record what its proposer learns from."""
    return Trial(record["number"], Program.from_tree(record["program"]), tuple(record["scores"]))


def _is_proposal(proposed: Any) -> bool:
    return isinstance(proposed, Proposal) and isinstance(proposed.program, Program)


def _controllers(program: Program, betas: Sequence[float]) -> list[Any]:
    return [decision_list(program, beta) for beta in betas]
