"""Rounds of candidates that are whole files; each file is played sealed, one after another."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence

import numpy as np

from autotts_jax.discovery.archive.archive import Record
from autotts_jax.discovery.archive.records import START, WRITTEN
from autotts_jax.discovery.critics.critic import Gate
from autotts_jax.discovery.judging.judge import ONE_BETA, SEARCH_BETAS, Judge, Outcome
from autotts_jax.discovery.judging.measuring import LIMITS, Course, measure, outcome_of, play_sealed
from autotts_jax.discovery.judging.tuning import TRIES
from autotts_jax.discovery.population import Search, Written
from autotts_jax.discovery.programs.interpreter import BETAS
from autotts_jax.discovery.proposers.protocol import Draft
from autotts_jax.errors import InputError
from autotts_jax.policies.player import ControllerPlayer
from autotts_jax.sandbox.process import Sandbox

FINALISTS = 2
"""Files of a search that are compared once more at its end."""

FINAL_TIMES = 5
"""How many times as long files may take in the comparison at the end and in the test, which play more."""


@dataclasses.dataclass(frozen=True)
class FileRounds:
    """Measures files round by round, and compares the best at the end of a search.

    Attributes:
        judge: the questions and branch orders.
        incumbent: the controller to beat.
        num_orders: branch orders that a file plays, which are those of the last rung of programs.
        beta: whether candidates are families over β.
        traces: whether feedback shows episodes.
        gate: has a critic judge files before they are measured; None for no critic.
        sandbox: limits of the processes that files play in.
    """

    judge: Judge
    incumbent: ControllerPlayer
    num_orders: int
    beta: bool = True
    traces: bool = True
    gate: Gate | None = None
    sandbox: Sandbox = LIMITS
    _courses: dict[int | None, Course] = dataclasses.field(default_factory=dict)

    def play(
        self,
        search: Search,
        first: Sequence[Draft],
        drafts: Sequence[Draft],
        writer: str,
        round_number: int,
        number: int,
    ) -> list[Record]:
        """Measures files.

        Returns:
            The records of the candidates.
        """
        if search.fold not in self._courses:
            self._courses[search.fold] = Course.of(
                self.judge,
                self.incumbent,
                search.questions,
                range(self.num_orders),
                SEARCH_BETAS,
                self.sandbox,
                settings=self._betas(SEARCH_BETAS),
                traces=self.traces,
                tries=TRIES,
            )
        records: list[Record] = [
            {
                "kind": WRITTEN,
                "number": number + place,
                "proposer": START if place < len(first) else writer,
                "parents": list(draft.parents),
                "fold": search.fold,
                "source": draft.source,
                "metrics": None,
                "untuned": None,
                "feedback": draft.failure,
                "level": None,
                "transcript": draft.transcript,
                "tokens": draft.tokens,
                "dollars": draft.dollars,
            }
            for place, draft in enumerate([*first, *drafts])
        ]
        if self.gate:
            self.gate.judge(records, round_number)
        for record in records:
            if "gated" in record:
                record["feedback"] = f"the critic gives it {record['critic']['score']:g} and it was not run"
            elif record["source"] is not None:
                measured = measure(record["source"], self._courses[search.fold])
                record |= dataclasses.asdict(measured) | {"source": measured.source or record["source"]}
        return records

    def first(self, search: Search, others: Sequence[Search]) -> list[Draft]:
        """Gives what a search begins with: the best file of each other search.

        Returns:
            Files; none where the search leaves out a fold, or has files.
        """
        if search.fold is not None or search.written:
            return []
        best = [written for other in others for written in other.best_written()[:1]]
        return [Draft(written.source, parents=(written.number,), dollars=0.0) for written in best]

    def finalists(self, search: Search) -> list[tuple[float, Written]]:
        """Compares a search's best files in further orders; a file that fails now is passed over.

        Returns:
            Scores and files.
        """
        found = []
        data, orders = self.judge.part(search.questions, self.judge.search, self.judge.final_orders)
        for written in search.best_written()[:FINALISTS]:
            with contextlib.suppress(InputError):
                betas = self._betas(SEARCH_BETAS)
                play = play_sealed(str(written.source), data, orders, betas, self._final)
                score = outcome_of(play, self.judge.unit).objective(SEARCH_BETAS)[0]
                found.append((float(score), written))
        return found

    def test(self, written: Written) -> Outcome:
        """Plays the test with a file.

        Raises:
            InputError: it fails.
        """
        everything = np.arange(len(self.judge.data))
        data, orders = self.judge.part(everything, self.judge.test, range(self.judge.test.num_rows))
        play = play_sealed(str(written.source), data, orders, self._betas(BETAS), self._final)
        return outcome_of(play, self.judge.unit)

    @property
    def _final(self) -> Sandbox:
        """Limits in the comparison at the end and in the test."""
        cpu, wall = self.sandbox.cpu_seconds, self.sandbox.wall_seconds
        return dataclasses.replace(
            self.sandbox,
            cpu_seconds=None if cpu is None else FINAL_TIMES * cpu,
            wall_seconds=None if wall is None else FINAL_TIMES * wall,
        )

    def _betas(self, betas: Sequence[float]) -> Sequence[float]:
        """The values of β that files are played at."""
        return betas if self.beta else ONE_BETA
