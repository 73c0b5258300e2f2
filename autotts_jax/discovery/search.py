"""The loop: propose, measure, record, and test what was found on questions that the search has not used.

The questions are dealt to a few folds. One search leaves out each fold, and one, which begins with what they
have found, uses all questions: its best candidate is what a run comes to. Whether a search like this finds
anything is tested on the questions that were left out, each with the best candidate of the search that left
it out.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

import autotts_jax
from autotts_jax.checks import whole
from autotts_jax.discovery.archive import END, Archive, Record
from autotts_jax.discovery.interpreter import BETAS, decision_list
from autotts_jax.discovery.judging import SEARCH_ORDERS, TEST_ORDERS, Judge, Outcome
from autotts_jax.discovery.measuring import LIMITS, Course, measure, outcome_of, play_sealed
from autotts_jax.discovery.population import Member, Population
from autotts_jax.discovery.promotion import gains, judge
from autotts_jax.discovery.proposers import Draft, Proposal, Proposer, Writer, Written, as_proposer
from autotts_jax.discovery.rules import Program, cmc, parallel_probe, self_consistency
from autotts_jax.errors import InputError
from autotts_jax.experiments.evaluation import check_width
from autotts_jax.policies.player import ControllerPlayer, Player
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.replay.orders import BranchOrders

SEARCH_BETAS = (0.0, 0.5, 1.0)
"""The values of β that a search plays."""

HEATS = ((256, 1), (48, 3), (12, 12))
"""Candidates that a round's heats play, the best of the heat before, and the branch orders that they play."""

FINAL_ORDERS = range(12, 44)
"""The orders in which a search's finalists are compared. The last heat of every round plays those before."""

FRESH_ORDERS = range(44, SEARCH_ORDERS)
"""The orders that the other heats draw from."""

LENGTH_PRICE = 5e-4
"""What a part of a program costs in accuracy: of equally good programs the shorter one."""

FOLDS = 3
"""Folds that the questions are dealt to."""

FOLD_SHARE = 0.7
"""Share of the budget after which the search that uses all questions begins."""

FINALISTS = 8
"""Candidates of a search that are compared once more at its end, in as many orders as they are."""

FINAL_FILES = 2
"""Files of a search that are compared once more at its end."""

FINAL_LIMITS = dataclasses.replace(LIMITS, cpu_seconds=1200, wall_seconds=1200.0)
"""Limits of files in the comparison at the end and in the test, which play more."""

CANDIDATE, WRITTEN = "candidate", "code"
"""Kinds of records: of a candidate that is a program, and of one that is a file."""

START = "start"
"""Proposer of the candidates that a search begins with, in records."""

OnRound = Callable[["Progress"], None]
"""Called after every round."""


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far a run has come.

    Attributes:
        round: rounds that have ended.
        candidates: candidates that were tried.
        cpu_seconds: CPU time spent.
        fold: the fold that the last round's search leaves out; None where it uses all questions.
        best: the best candidate of that search; None where all have failed.
        spent: share of the budget that is spent.
    """

    round: int
    candidates: int
    cpu_seconds: float
    fold: int | None
    best: Member | Written | None
    spent: float


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


class Run:
    """A run of the loop, begun or gone on with.

    Args:
        data: the questions.
        folder: the run's folder.
        proposers: who proposes, in turns.
        incumbent: whom to beat; a family over β.
        seed: the seed that everything is drawn with.
        max_branches: branches that an episode can open.
        heats: candidates and orders of each heat of a round.

    Raises:
        InputError: the folder holds another run, or the arguments do not fit together.
        DataError: the archive is damaged.
    """

    def __init__(
        self,
        data: ProbeDataset,
        folder: Path,
        proposers: Sequence[str | Proposer | Writer],
        incumbent: Player,
        seed: int,
        max_branches: int,
        heats: Sequence[tuple[int, int]] = HEATS,
    ):
        if not isinstance(incumbent, ControllerPlayer):
            raise InputError(f"{incumbent.name} cannot be the incumbent; give a compiled controller, as cmc")
        self._proposers = [as_proposer(proposer) for proposer in proposers]
        if not self._proposers:
            raise InputError("there is no proposer; give at least one, as rules")
        self._heats = tuple(heats)
        self._incumbent, self._seed = incumbent, whole("seed", seed, 0)
        check_width(data, incumbent, max_branches)
        incumbent.check(max_branches)
        self._judge = Judge.of(data, max_branches, seed)
        groups = self._judge.group.max() + 1
        if groups < 2 * FOLDS:
            raise InputError(
                f"the data has {groups} different questions, but a search needs at least {2 * FOLDS}: one of "
                f"each {FOLDS} is left out to test what it finds"
            )
        dealt = np.random.default_rng([seed, 0]).permutation(groups) % FOLDS
        fold = dealt[self._judge.group]
        self._searches = [Search(k, fold != k) for k in range(FOLDS)]
        self._searches.append(Search(None, np.ones(len(data), bool)))
        manifest = {
            "version": autotts_jax.__version__,
            "data": [{"cell": cell.name, "sha256": cell.sha256} for cell in data.cells],
            "proposers": [proposer.name for proposer in self._proposers],
            "incumbent": list(incumbent.names),
            "seed": seed,
            "max_branches": max_branches,
            "heats": [list(heat) for heat in heats],
        }
        self.archive = Archive(folder, manifest)
        self.rounds = self.candidates = self.tests = 0
        self.cpu_seconds = 0.0
        self._courses: dict[int | None, Course] = {}
        self._paid = defaultdict[str, np.ndarray](lambda: np.zeros(2))
        for records in _rounds(self.archive.records()):
            self._take(records)

    def search(
        self, candidates: int | None, cpu_seconds: float | None, on_round: OnRound | None = None
    ) -> int:
        """Plays rounds until a budget is spent.

        Args:
            candidates: candidates to try, those of rounds before included; None for no limit.
            cpu_seconds: CPU time to spend, that of rounds before included; None for no limit.
            on_round: called after every round.

        Returns:
            Rounds that were played.
        """
        first = self.rounds
        before, began = self.cpu_seconds, _cpu_seconds()
        while (spent := self._spent(candidates, cpu_seconds)) < 1:
            search = self._next(spent)
            records = self._next_round(search)
            if not records:
                break  # No proposer can pay for more.
            end = {"round": self.rounds, "cpu_seconds": round(before + _cpu_seconds() - began, 3)}
            self.archive.append(records, end)
            self._take([*records, {"kind": END, **end}])
            if on_round:
                best = search.best()
                spent = self._spent(candidates, cpu_seconds)
                on_round(
                    Progress(self.rounds, self.candidates, self.cpu_seconds, search.fold, best, min(spent, 1))
                )
        return self.rounds - first

    def test(self) -> None:
        """Tests what the searches have found, and records the verdict.

        Raises:
            InputError: a search has not played yet.
        """
        for search in self._searches:
            if not search.rounds:
                raise InputError(
                    f"the budget was spent before each of the {len(self._searches)} searches had played a "
                    f"round of {self._heats[0][0]} candidates; call again with a larger one to go on"
                )
        incumbent = self._test_play(self._incumbent.controllers)
        found, groups = [], []
        for search in self._searches[:-1]:
            _, outcome = self._tested(search)
            found.append(gains(outcome, incumbent, search.used))
            groups.append(self._judge.group[~search.used])
        best, final = self._tested(self._searches[-1])
        verdict = judge(
            np.concatenate(found), np.concatenate(groups), final, BETAS, self._judge.unit, self.tests + 1
        )
        record = {"kind": "test", "number": best.number, **verdict.to_json()}
        end = {"round": self.rounds, "cpu_seconds": self.cpu_seconds}
        self.archive.append([record], end)
        self._take([record, {"kind": END, **end}])

    def _next(self, spent: float) -> Search:
        """The search that plays the next round."""
        *of_folds, of_all = self._searches
        search = min(of_folds, key=lambda search: search.rounds)
        return of_all if spent >= FOLD_SHARE and search.rounds else search

    def _spent(self, candidates: int | None, cpu_seconds: float | None) -> float:
        shares = [0.0]
        if candidates is not None:
            shares.append(self.candidates / candidates)
        if cpu_seconds is not None:
            shares.append(self.cpu_seconds / cpu_seconds)
        writers = [proposer for proposer in self._proposers if isinstance(proposer, Writer)]
        if len(writers) == len(self._proposers):
            shares.append(min(writer.spent(*self._paid[writer.name]) for writer in writers))
        return max(shares)

    def _next_round(self, search: Search) -> list[Record]:
        """Plays a round with the proposer whose turn it is in the search, or with the next that has any."""
        turn = search.rounds % len(self._proposers)
        for proposer in [*self._proposers[turn:], *self._proposers[:turn]]:
            if not isinstance(proposer, Writer):
                return self._play_round(search, proposer)
            width = self._judge.search.width
            drafts = proposer.write(search.written, self.archive.folder, self.rounds, width)
            if drafts:
                return self._measure_round(search, proposer, drafts)
        return []

    def _measure_round(self, search: Search, writer: Writer, drafts: Sequence[Draft]) -> list[Record]:
        """Measures files one by one, on what the last heat of every round plays."""
        if search.fold not in self._courses:
            rows = range(self._heats[-1][1])
            self._courses[search.fold] = Course.of(
                self._judge, self._incumbent, search.questions, rows, SEARCH_BETAS
            )
        first = self._first_drafts(search)
        records: list[Record] = []
        for place, draft in enumerate([*first, *drafts]):
            measured = None
            if draft.source is not None:
                measured = measure(draft.source, self._courses[search.fold])
            records.append(
                {
                    "kind": WRITTEN,
                    "number": self.candidates + place,
                    "proposer": START if place < len(first) else writer.name,
                    "parents": list(draft.parents),
                    "fold": search.fold,
                    "source": draft.source,
                    "metrics": measured and measured.metrics,
                    "feedback": measured.feedback if measured else draft.failure,
                    "level": measured and measured.level,
                    "transcript": draft.transcript,
                    "tokens": draft.tokens,
                    "dollars": draft.dollars,
                }
            )
        return records

    def _first_drafts(self, search: Search) -> list[Draft]:
        """The files that the last search begins with: the best that each search before it has found."""
        if search.fold is not None or search.written:
            return []
        best = [written for other in self._searches[:-1] for written in other.best_written()[:1]]
        return [Draft(written.source, parents=(written.number,), dollars=0.0) for written in best]

    def _play_round(self, search: Search, proposer: Proposer) -> list[Record]:
        """Proposes candidates and plays heats, each with the best of the one before."""
        rng = np.random.default_rng([self._seed, 1, self.rounds])
        proposals = self._first(search)
        name = [proposer.name] * self._heats[0][0]
        name[: len(proposals)] = [START] * len(proposals)
        rest = self._heats[0][0] - len(proposals)
        population = search.population
        if not population.members:
            population = Population()
            population.add([Member(0, proposal.program, 0.0, 1.0, 1.0) for proposal in proposals])
        proposals = [*proposals, *proposer.propose(population, rest, rng)]
        records: list[Record] = [
            {
                "kind": CANDIDATE,
                "number": self.candidates + place,
                "proposer": name[place],
                "parents": list(proposal.parents),
                "fold": search.fold,
                "program": proposal.program.to_tree(),
                "scores": [],
            }
            for place, proposal in enumerate(proposals)
        ]
        left = list(range(len(proposals)))
        for heat, (size, orders) in enumerate(self._heats):
            left = left[:size]
            last = heat == len(self._heats) - 1
            rows = range(orders) if last else rng.choice(FRESH_ORDERS, orders, replace=False).tolist()
            programs = [proposals[place].program for place in left]
            outcome = self._play_heat(programs, search.questions, rows)
            scores = outcome.objective(SEARCH_BETAS) - LENGTH_PRICE * np.array([p.length for p in programs])
            for at, place in enumerate(left):
                records[place]["scores"].append(round(float(scores[at]), 6))
                if last:
                    records[place]["cost"] = round(float(outcome.cost[at].mean()), 4)
                    records[place]["width"] = round(float(outcome.width[at].mean()), 4)
            left = [left[at] for at in np.argsort(-scores, kind="stable")]
        return records

    def _first(self, search: Search) -> list[Proposal]:
        """What a search begins with: published controllers, or what the searches before it have found."""
        if search.population.members:
            return []
        share = self._heats[-1][0] // FOLDS if search.fold is None else 0
        found = [
            Proposal(member.program, (member.number,))
            for other in self._searches[:-1]
            for member in other.population.members[:share]
        ]
        return found or [Proposal(program) for program in (cmc(), parallel_probe(), self_consistency())]

    def _play_heat(
        self, programs: Sequence[Program], questions: Int[np.ndarray, " used"], rows: Sequence[int]
    ) -> Outcome:
        """Plays a heat. Heats have as many controllers and episodes, and so one compilation."""
        candidates = [_controllers(program, SEARCH_BETAS) for program in programs]
        filling = [candidates[0][0]] * (len(SEARCH_BETAS) * (self._heats[0][0] - len(programs)))
        return self._judge.play(candidates, questions, self._judge.search, rows, filling)

    def _finalists(self, search: Search) -> list[Member | Written]:
        """A search's finalists, the best in further orders first."""
        found: list[tuple[float, Member | Written]] = []
        members = search.population.members[:FINALISTS]
        if members:
            outcome = self._play_heat([member.program for member in members], search.questions, FINAL_ORDERS)
            length = np.array([member.program.length for member in members])
            scores = outcome.objective(SEARCH_BETAS) - LENGTH_PRICE * length
            found += zip(map(float, scores), members, strict=True)
        search_orders = self._judge.part(search.questions, self._judge.search, FINAL_ORDERS)
        for written in search.best_written()[:FINAL_FILES]:
            with contextlib.suppress(InputError):  # It fails now, and is passed over.
                outcome = self._play_file(written, *search_orders, SEARCH_BETAS)
                found.append((float(outcome.objective(SEARCH_BETAS)[0]), written))
        return [candidate for _, candidate in sorted(found, key=lambda scored: -scored[0])]

    def _tested(self, search: Search) -> tuple[Member | Written, Outcome]:
        """A search's best candidate, and what it comes to; a file that fails now is passed over."""
        everything = np.arange(len(self._judge.data))
        test_orders = self._judge.part(everything, self._judge.test, range(TEST_ORDERS))
        for candidate in self._finalists(search):
            if isinstance(candidate, Member):
                return candidate, self._test_play(_controllers(candidate.program, BETAS))
            with contextlib.suppress(InputError):
                return candidate, self._play_file(candidate, *test_orders, BETAS)
        raise InputError("no finalist of a search plays the test; call again with a larger budget to go on")

    def _test_play(self, controllers: Sequence[Any]) -> Outcome:
        everything = np.arange(len(self._judge.data))
        return self._judge.play([controllers], everything, self._judge.test, range(TEST_ORDERS))

    def _play_file(
        self, written: Written, data: ProbeDataset, orders: BranchOrders, betas: Sequence[float]
    ) -> Outcome:
        return outcome_of(
            play_sealed(str(written.source), data, orders, betas, FINAL_LIMITS), self._judge.unit
        )

    def _take(self, records: Sequence[Record]) -> None:
        """Takes the records of a round, played now or in a call before."""
        of_round: dict[int | None, list[Member]] = {}
        for record in records:
            if record["kind"] == END:
                self.cpu_seconds = record["cpu_seconds"]
            elif record["kind"] == "test":
                self.tests += 1
            elif record["kind"] == WRITTEN:
                self.candidates += 1
                self._search_of(record["fold"]).written.append(written_of(record))
                self._paid[record["proposer"]] += record["tokens"], record["dollars"] or 0.0
            else:
                self.candidates += 1
                if "cost" in record:
                    of_round.setdefault(record["fold"], []).append(member_of(record))
        folds = {record["fold"] for record in records if record["kind"] in (CANDIDATE, WRITTEN)}
        for fold in folds:
            search = self._search_of(fold)
            search.population.add(of_round.get(fold, []))
            search.rounds += 1
            self.rounds += 1

    def _search_of(self, fold: int | None) -> Search:
        return self._searches[-1 if fold is None else fold]


def member_of(record: Record) -> Member:
    """Makes a member of the record of a candidate that has come through all heats.

    Args:
        record: the record.
    """
    program = Program.from_tree(record["program"])
    return Member(record["number"], program, record["scores"][-1], record["cost"], record["width"])


def written_of(record: Record) -> Written:
    """Makes a candidate of the record of a file.

    Args:
        record: the record.
    """
    return Written(record["number"], record["source"], record["metrics"], record["feedback"])


def _controllers(program: Program, betas: Sequence[float]) -> list[Any]:
    return [decision_list(program, beta) for beta in betas]


def _rounds(records: Iterator[Record]) -> Iterator[list[Record]]:
    """The records of one round after another."""
    of_round: list[Record] = []
    for record in records:
        of_round.append(record)
        if record["kind"] == END:
            yield of_round
            of_round = []


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
