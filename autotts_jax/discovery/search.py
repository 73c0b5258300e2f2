"""The loop: propose, measure, record, and test what was found on questions that the search has not used.

The questions are dealt to a few folds. One search leaves out each fold, and one, which begins with what they
have found, uses all questions: its best candidate is the result of the run. Whether a search like this finds
anything is tested on the questions that were left out, each with the best candidate of the search that left
it out.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import inspect
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import autotts_jax
from autotts_jax.checks import check_int
from autotts_jax.core.controller import Controller
from autotts_jax.discovery.archive.archive import END, RECORDS, Archive, Record
from autotts_jax.discovery.archive.records import CANDIDATE, WRITTEN
from autotts_jax.discovery.critics.critic import Critic, Gate, paid_of
from autotts_jax.discovery.critics.named import as_critic
from autotts_jax.discovery.judging.judge import ONE_BETA, TEST_ORDERS, Judge, Outcome
from autotts_jax.discovery.judging.measuring import LIMITS
from autotts_jax.discovery.judging.promotion import LeftOut, judge, mean_objective
from autotts_jax.discovery.population import Member, Search, Written, member_of, written_of
from autotts_jax.discovery.programs.interpreter import BETAS
from autotts_jax.discovery.proposers.named import as_proposer
from autotts_jax.discovery.proposers.protocol import Learner, Proposer, Writer
from autotts_jax.discovery.rounds.files import FileRounds
from autotts_jax.discovery.rounds.programs import (
    RUNGS,
    ProgramRounds,
    trial_of,
)
from autotts_jax.errors import DataError, InputError
from autotts_jax.experiments.evaluation import check_width
from autotts_jax.policies.player import ControllerPlayer, Player
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.sandbox.process import Sandbox

FOLDS = 3
"""Folds that the questions are dealt to."""

FOLD_SHARE = 0.75
"""Share of the budget after which the search that uses all questions begins."""

OnRound = Callable[["SearchProgress"], None]
"""Called after every round."""

OnTest = Callable[[int, int], None]
"""Called with how many parts of the test have ended, and how many it has."""


@dataclasses.dataclass(frozen=True)
class SearchProgress:
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


class DiscoveryRun:
    """A run of the loop: begins one, or continues the one in a folder.

    Args:
        data: the questions.
        folder: the run's folder.
        proposers: propose candidates, in turns.
        incumbent: whom to beat; a family over β.
        seed: the seed that everything is drawn with.
        max_branches: branches that an episode can open.
        rungs: candidates and orders of each rung of a round.
        test_orders: branch orders of each question that a test plays.
        traces: whether proposers that write files are shown episodes.
        beta: whether candidates are families over β; else each is one controller.
        critic: judges candidates before they are executed; None for no critic.
        sandbox: limits of the processes that files play in.

    Attributes:
        archive: the archive.
        rounds: rounds that have ended.
        candidates: candidates that were tried.
        tests: tests so far.
        untested: whether there is no test since the last round.
        cpu_seconds: CPU time spent.

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
        rungs: Sequence[tuple[int, int]] = RUNGS,
        test_orders: int = TEST_ORDERS,
        traces: bool = True,
        beta: bool = True,
        critic: str | Critic | None = None,
        sandbox: Sandbox = LIMITS,
    ):
        if not isinstance(incumbent, ControllerPlayer):
            raise InputError(f"{incumbent.name} cannot be the incumbent; give a compiled controller, as cmc")
        self._proposers = [as_proposer(proposer) for proposer in proposers]
        if not self._proposers:
            raise InputError("there is no proposer; give at least one, as rules")
        self._incumbent, seed = incumbent, check_int("seed", seed, 0)
        check_width(data, max_branches, incumbent)
        incumbent.check(max_branches)
        self._judge = Judge.of(data, max_branches, seed, test_orders)
        self._betas = BETAS if beta else ONE_BETA
        critic = as_critic(critic, self._proposers)
        self._gate = None if critic is None else Gate(critic, folder, seed)
        self._programs = ProgramRounds(self._judge, tuple(rungs), seed, beta, self._gate)
        self._files = FileRounds(self._judge, incumbent, rungs[-1][1], beta, traces, self._gate, sandbox)
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
            "questions": _questions(data),
            "encoding": data.encoding,
            "proposers": [proposer.name for proposer in self._proposers],
            "incumbent": list(incumbent.names),
            "incumbent_sha256": _sha256(incumbent.controllers),
            "seed": seed,
            "max_branches": max_branches,
            "rungs": [list(rung) for rung in rungs],
            "test_orders": test_orders,
            "traces": traces,
            "beta": beta,
            "critic": critic and critic.name,
        }
        self.archive = Archive(folder, manifest)
        self.rounds = self.candidates = self.tests = 0
        self.cpu_seconds = 0.0
        self.untested = True
        self._paid = np.zeros(2)
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
                    SearchProgress(
                        self.rounds, self.candidates, self.cpu_seconds, search.fold, best, min(spent, 1)
                    )
                )
        return self.rounds - first

    def test(self, on_test: OnTest | None = None) -> None:
        """Tests what the searches have found, and records the verdict.

        Args:
            on_test: called after every part of the test.

        Raises:
            InputError: a search has not played yet.
        """
        for search in self._searches:
            if not search.rounds:
                raise InputError(
                    f"the budget was spent (rounds: {self.rounds}, CPU minutes: {self.cpu_seconds / 60:.2g}) "
                    f"before each of the {len(self._searches)} searches had played a round; call again with "
                    "a larger one to go on"
                )
        parts: list[Callable[[], Any]] = [
            functools.partial(self._judge.play_test, self._incumbent.controllers),
            *(functools.partial(self._tested, search) for search in self._searches),
            self._programs.published,
        ]
        played = []
        for part in parts:
            played.append(part())
            if on_test:
                on_test(len(played), len(parts))
        incumbent, *of_folds, (best, final), published = played
        left_out = [
            LeftOut(outcome, search.used, self._judge.group)
            for search, (_, outcome) in zip(self._searches, of_folds, strict=False)
        ]
        verdict = judge(left_out, incumbent, final, self._betas, self._judge.unit, self.tests + 1)
        baselines = published | {self._incumbent.name: incumbent}
        record = {
            "kind": "test",
            "number": best.number,
            **verdict.to_json(),
            "objective": mean_objective([of.outcome for of in left_out], left_out),
            "baselines": {
                name: mean_objective([outcome] * FOLDS, left_out) for name, outcome in baselines.items()
            },
        }
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
            shares.append(min(writer.spent(*self._paid) for writer in writers))
        return max(shares)

    def _next_round(self, search: Search) -> list[Record]:
        """Plays a round with the proposer whose turn it is in the search, or with the next that has any."""
        others = self._searches[:-1]
        turn = search.rounds % len(self._proposers)
        for proposer in [*self._proposers[turn:], *self._proposers[:turn]]:
            if not isinstance(proposer, Writer):
                first = self._programs.first(search, others)
                return self._programs.play(search, first, proposer, self.rounds, self.candidates)
            width = self._judge.search.width
            drafts = proposer.write(
                search.written, self.archive.folder, self.rounds, width, len(self._betas) > 1
            )
            if drafts:
                best = self._files.first(search, others)
                return self._files.play(search, best, drafts, proposer.name, self.rounds, self.candidates)
        return []

    def _tested(self, search: Search) -> tuple[Member | Written, Outcome]:
        """A search's best candidate, and its outcome in the test; a file that fails now is passed over."""
        finalists: list[tuple[float, Member | Written]] = [
            *self._programs.finalists(search),
            *self._files.finalists(search),
        ]
        for _, candidate in sorted(finalists, key=lambda scored: -scored[0]):
            if isinstance(candidate, Member):
                return candidate, self._programs.test(candidate.program)
            with contextlib.suppress(InputError):
                return candidate, self._files.test(candidate)
        raise InputError("no finalist of a search plays the test; call again with a larger budget to go on")

    def _take(self, records: Sequence[Record]) -> None:
        """Takes the records of a round, played now or in a call before."""
        of_round: dict[int | None, list[Member]] = {}
        for record in records:
            if record["kind"] == END:
                self.cpu_seconds = record["cpu_seconds"]
            elif record["kind"] == "test":
                self.tests += 1
                self.untested = False
            elif record["kind"] == WRITTEN:
                self.candidates += 1
                self._search_of(record["fold"]).written.append(written_of(record))
                self._paid += record["tokens"], record["dollars"] or 0.0
            else:
                self.candidates += 1
                if member := member_of(record):
                    of_round.setdefault(record["fold"], []).append(member)
        candidates = [record for record in records if record["kind"] in (CANDIDATE, WRITTEN)]
        if self._gate:
            self._gate.take(candidates)
            self._paid += sum((np.array(paid_of(record)) for record in candidates), np.zeros(2))
        folds = {record["fold"] for record in candidates}
        for fold in folds:
            search = self._search_of(fold)
            self._learn(search, records)
            search.population.add(of_round.get(fold, []))
            search.rounds += 1
            self.rounds += 1
            self.untested = True

    def _learn(self, search: Search, records: Sequence[Record]) -> None:
        """Tells proposers that learn how far the programs of a round came."""
        for learner in (proposer for proposer in self._proposers if isinstance(proposer, Learner)):
            trials = [trial_of(record) for record in records if record.get("proposer") == learner.name]
            if trials:
                learner.learn(search.population, trials)

    def _search_of(self, fold: int | None) -> Search:
        if fold is not None and fold >= len(self._searches) - 1:
            path = self.archive.folder / RECORDS
            raise DataError(path, f"a candidate is of fold {fold}, which is not there; the file is damaged")
        return self._searches[-1 if fold is None else fold]


def _questions(data: ProbeDataset) -> Record:
    """How many questions there are, and a hash of which and in what order."""
    which = [
        (data.cells[cell].name, question.index)
        for cell, question in zip(np.asarray(data.matrix.cell), data.questions, strict=True)
    ]
    return {"count": len(which), "sha256": hashlib.sha256(json.dumps(which).encode()).hexdigest()}


def _sha256(controllers: Sequence[Controller]) -> str:
    """A hash of what controllers are, whatever they are called: their numbers, and their class's code."""
    held = hashlib.sha256()
    for controller in controllers:
        with contextlib.suppress(OSError, TypeError):  # Code that was typed in has no source.
            held.update(inspect.getsource(type(controller)).encode())
        for path, leaf in jax.tree_util.tree_leaves_with_path(controller):
            value = np.asarray(leaf)
            held.update(f"{jax.tree_util.keystr(path)} {value.dtype} {value.shape}".encode())
            held.update(value.tobytes())
    return held.hexdigest()


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
