"""Discovery in one call, and what a run has come to."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import RenderableType
from rich.text import Text

from autotts_jax.checks import whole
from autotts_jax.core.controller import Family
from autotts_jax.discovery.archive import Record, read_manifest, read_records
from autotts_jax.discovery.file_rounds import WRITTEN
from autotts_jax.discovery.interpreter import BETAS, family
from autotts_jax.discovery.measuring import exported
from autotts_jax.discovery.program_rounds import CANDIDATE
from autotts_jax.discovery.proposers import Proposer, Writer
from autotts_jax.discovery.rules import Program
from autotts_jax.discovery.search import OnRound, Run
from autotts_jax.discovery.source import source_of
from autotts_jax.errors import InputError
from autotts_jax.experiments.tables import Table, add_row, plain_table, thousands
from autotts_jax.policies.players import as_player
from autotts_jax.replay import ProbeDataset, load

SHOWN = 5
"""Candidates that a table of a run shows."""


@dataclasses.dataclass(frozen=True)
class Discovery:
    """What a run has come to.

    Attributes:
        folder: the run's folder.
        incumbent: the controller to beat.
        candidates: the record of every candidate, in order; of `kind` ``candidate`` or ``code``.
        test: the record of the last test; None before the first. See `docs/discovery.md`.
        cpu_seconds: CPU time spent.
    """

    folder: Path
    incumbent: str
    candidates: list[Record]
    test: Record | None
    cpu_seconds: float

    @property
    def promoted(self) -> bool:
        """Whether the last test has found the controller better than the incumbent."""
        return self.test is not None and bool(self.test["promotes"])

    @property
    def number(self) -> int:
        """The number of the candidate that was tested last."""
        if self.test is None:
            raise InputError(
                f"{self.folder} holds no test yet; let the run come to its end, or name a number"
            )
        return int(self.test["number"])

    def program(self, number: int | None = None) -> Program:
        """Returns a candidate's program.

        Args:
            number: the candidate's number; None for the one that was tested last.

        Raises:
            InputError: there is no such candidate, or it is a file.
        """
        record = self._record(number)
        if record["kind"] == WRITTEN:
            raise InputError(f"candidate {record['number']} is a file and no program; take its source")
        return Program.from_tree(record["program"])

    def family(self, name: str = "found", number: int | None = None) -> Family:
        """Returns a candidate as a family of controllers over β, for `autotts_jax.evaluate`.

        Args:
            name: its name in results.
            number: the candidate's number; None for the one that was tested last.

        Raises:
            InputError: there is no such candidate, or it is a file.
        """
        return family(name, self.program(number))

    def source(self, name: str = "Found", number: int | None = None) -> str:
        """Writes a candidate as the source of a controller; see `source_of`.

        Args:
            name: the class's name; of a candidate that is a file, its family's name in results.
            number: the candidate's number; None for the one that was tested last.

        Raises:
            InputError: there is no such candidate, or the name is not one of a class.
        """
        record = self._record(number)
        if record["kind"] != WRITTEN:
            return source_of(self.program(number), name)
        if record["source"] is None:
            raise InputError(f"candidate {record['number']} has no source: {record['feedback']}")
        return exported(record["source"], name)

    def lineage(self, number: int | None = None) -> list[int]:
        """Lists a candidate's ancestors.

        Args:
            number: the candidate's number; None for the one that was tested last.

        Returns:
            Numbers of candidates, the candidate's own first.
        """
        found, left = [], [self.number if number is None else number]
        while left:
            one = left.pop(0)
            if one not in found:
                found.append(one)
                left += self.candidates[one]["parents"]
        return found

    def table(self) -> Table:
        """Makes a table of the best candidates and the test's verdict."""
        last = [record for record in self.candidates if record["fold"] is None]
        rows = sorted((row for row in map(_row, last) if row), key=lambda row: -row.score)

        def parts(_: int) -> Iterator[RenderableType]:
            table = plain_table(
                f"{len(self.candidates):,} candidates, {self.cpu_seconds / 60:.1f} CPU minutes"
            )
            for heading in ("candidate", "proposer", "score", "branches", "width", "parts", "ancestors"):
                table.add_column(heading, justify="left" if heading == "proposer" else "right")
            for row in rows[:SHOWN]:
                add_row(
                    table,
                    str(row.number),
                    row.proposer,
                    f"{row.score:.4f}",
                    f"{row.cost:.1f}",
                    f"{row.width:.1f}",
                    row.parts,
                    str(len(self.lineage(row.number)) - 1),
                )
            yield table
            yield Text(
                "score: mean objective over β on the search's questions, less the price of the parts;\n"
                "branches: cost in branches of mean length; width: branches opened"
            )
            yield Text(self._verdict())

        return Table(parts)

    def _record(self, number: int | None) -> Record:
        number = self.number if number is None else whole("number", number, 0)
        if number >= len(self.candidates):
            raise InputError(f"{self.folder} has candidates 0 to {len(self.candidates) - 1}, but no {number}")
        return self.candidates[number]

    def _verdict(self) -> str:
        if self.test is None:
            return "no test yet"
        verdict = "promoted" if self.promoted else "not promoted"
        lines = [
            f"candidate {self.number}: {verdict}. On questions left out, searches gain "
            f"{100 * self.test['gain']:+.2f} points",
            f"of objective on {self.incumbent}; lower bound {100 * self.test['low']:+.2f} at "
            f"{100 * self.test['level']:.2g} %.",
        ]
        tokens = "  ".join(thousands(tokens) for tokens in self.test["tokens"])
        lines.append(f"ktokens at β = {BETAS[0]:g} … {BETAS[-1]:g}: {tokens}")
        if self.test["falls"]:
            falls = ", ".join(f"{beta:g}" for beta in self.test["falls"])
            lines.append(f"tokens fall after β = {falls}, which rules promotion out")
        return "\n".join(lines)


class _Row(NamedTuple):
    """A candidate in a table."""

    number: int
    proposer: str
    score: float
    cost: float
    width: float
    parts: str


def _row(record: Record) -> _Row | None:
    """A candidate that has come through all heats, or a file that did not fail; None for others."""
    number, proposer = record["number"], record["proposer"]
    if record["kind"] == WRITTEN:
        metrics = record["metrics"]
        if metrics is None:
            return None
        return _Row(number, proposer, metrics["objective"], metrics["cost"], metrics["width"], "a file")
    if "cost" not in record:
        return None
    parts = str(Program.from_tree(record["program"]).length)
    return _Row(number, proposer, record["scores"][-1], record["cost"], record["width"], parts)


def discover(
    data: ProbeDataset | str | Path | Sequence[str | Path] = "synthetic",
    *,
    out: str | Path = "runs/discover",
    proposers: Sequence[str | Proposer | Writer] = ("rules",),
    incumbent: Any = "cmc",
    candidates: int | None = None,
    cpu_minutes: float | None = 10.0,
    seed: int = 0,
    max_branches: int = 64,
    on_round: OnRound | None = None,
) -> Discovery:
    """Searches for a controller that is better than the incumbent, by default without a language model.

    The run is kept in a folder. The same call goes on with it, after an interruption or with a larger budget.

    Args:
        data: the questions: a dataset, or names, files, folders and globs, as `autotts_jax.load` takes them.
        out: the run's folder.
        proposers: who proposes candidates, in turns: ``rules``, ``random``, ``openai:MODEL``, or proposers
            of your own.
        incumbent: the family to beat; whatever `autotts_jax.evaluate` takes as a player.
        candidates: candidates to try in all; None for no limit.
        cpu_minutes: CPU time to spend in all, over all cores; None for no limit.
        seed: the seed that everything is drawn with.
        max_branches: branches that an episode can open.
        on_round: called after every round.

    Returns:
        What the run has come to: ``table()``, ``promoted``, ``source()``, ``family()``.

    Raises:
        InputError: the folder holds another run, there is no budget, or the data has too few questions.
    """
    if candidates is None and cpu_minutes is None:
        raise InputError("there is no budget; give candidates, cpu_minutes or both")
    if candidates is not None:
        candidates = whole("candidates", candidates, 1)
    if cpu_minutes is not None and not 0 < cpu_minutes < float("inf"):
        raise InputError(f"cpu_minutes is {cpu_minutes}, but it must be a finite number above 0")
    data = data if isinstance(data, ProbeDataset) else load(data)
    folder = Path(out)
    run = Run(data, folder, proposers, as_player(incumbent), seed, whole("max_branches", max_branches, 1))
    if run.search(candidates, None if cpu_minutes is None else 60 * cpu_minutes, on_round) or not run.tests:
        run.test()
    return read_run(folder)


def read_run(folder: str | Path) -> Discovery:
    """Reads what a run has come to so far.

    Args:
        folder: the run's folder.

    Raises:
        InputError: the folder holds no run.
        DataError: a file in it is damaged.
    """
    folder = Path(folder)
    manifest = read_manifest(folder)
    found: list[Record] = []
    test, cpu_seconds = None, 0.0
    for record in read_records(folder):
        if record["kind"] in (CANDIDATE, WRITTEN):
            found.append(record)
        elif record["kind"] == "test":
            test = record
        else:
            cpu_seconds = record["cpu_seconds"]
    name = manifest["incumbent"][0].rpartition("@")[0]
    return Discovery(folder, name, found, test, cpu_seconds)
