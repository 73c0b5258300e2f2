"""The results of a discovery run: its candidates, its test, and what it found."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import RenderableType

from autotts_jax.checks import check_int
from autotts_jax.core.controller import Family
from autotts_jax.discovery.archive.archive import END, MANIFEST, RECORDS, Record, read_manifest, read_records
from autotts_jax.discovery.archive.records import WRITTEN, is_name
from autotts_jax.discovery.critics.report import CriticReport, read_report
from autotts_jax.discovery.population import member_of, written_of
from autotts_jax.discovery.programs.interpreter import BETAS, family
from autotts_jax.discovery.programs.rules import Program
from autotts_jax.discovery.programs.source import check_unknown, commented, exported, source_of
from autotts_jax.discovery.results.lineage import lineage, lineage_figure
from autotts_jax.discovery.results.tried import archive_parts
from autotts_jax.errors import DataError, InputError
from autotts_jax.experiments.tables import Table, add_row, plain_table, thousands
from autotts_jax.files import destination, write_atomically
from autotts_jax.pages.notebook import shown
from autotts_jax.pages.rendering import Drawn
from autotts_jax.policies.sealed.worker_pool import printable
from autotts_jax.terminal import styled

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

SHOWN = 5
"""Candidates that a table of a run shows."""

FINALISTS = ", the best of the first few when they were\nplayed in further branch orders"
"""Why a candidate is tested that the table does not rank first."""


@dataclasses.dataclass(frozen=True)
class Discovery:
    """The results of a discovery run.

    Attributes:
        folder: the run's folder.
        incumbent: the controller to beat.
        candidates: the record of every candidate, in order, with the number of its `round`; of `kind`
            ``candidate`` or ``code``.
        test: the record of the last test; None before the first. See `docs/how-to/discovery.md`.
        cpu_seconds: CPU time spent.
        begun: what the run was begun with, as its manifest says.
    """

    folder: Path
    incumbent: str
    candidates: list[Record]
    test: Record | None
    cpu_seconds: float
    begun: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def promoted(self) -> bool:
        """Whether the last test has found the controller better than the incumbent."""
        return self.test is not None and bool(self.test["promotes"])

    @property
    def excel(self) -> float | None:
        """Excel@best: the share by which the found controllers exceed the best that people wrote.

        The objective on questions that searches left out, at settings chosen on the others, over that of the
        best of the incumbent and `autotts_jax.discovery.PUBLISHED`, less 1. None before the first test, and
        where no baseline has an objective above 0.
        """
        best = 0.0 if self.test is None else max(self.test.get("baselines", {}).values(), default=0.0)
        return float(self.test["objective"] / best - 1) if self.test is not None and best > 0 else None

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

        Returns:
            The program, which plays as the family that `family` gives.

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

        Returns:
            The family.

        Raises:
            InputError: there is no such candidate, it is a file, or the name is that of a player of this
                package.
        """
        check_unknown(name)
        return family(name, self.program(number))

    def source(self, name: str = "Found", number: int | None = None) -> str:
        """Writes a candidate as the source of a controller, which begins with where it comes from.

        See `source_of`.

        Args:
            name: the class's name; of a candidate that is a file, its family's name in results.
            number: the candidate's number; None for the one that was tested last.

        Returns:
            The source of a module.

        Raises:
            InputError: there is no such candidate, or the name is not one of a class, or is taken.
        """
        record = self._record(number)
        if record["kind"] != WRITTEN:
            source = source_of(self.program(number), name)
        elif record["source"] is None:
            raise InputError(f"candidate {record['number']} has no source: {printable(record['feedback'])}")
        else:
            source = exported(record["source"], name)
        return f"{self._origin(record)}\n{source}"

    def _origin(self, record: Record) -> str:
        """Comments that say where a candidate comes from and what its test has said."""
        tested = self.test is not None and self.number == record["number"]
        verdict = ("promoted" if self.promoted else "not promoted") if tested else "not tested"
        cells = ", ".join(cell["cell"] for cell in self.begun.get("data", ()))
        return commented(
            f"Candidate {record['number']} of a search by autotts_jax {self.begun.get('version', '?')}, "
            f"proposed by {record['proposer']}; {verdict}.",
            f"Seed {self.begun.get('seed', '?')}, at most {self.begun.get('max_branches', '?')} branches.",
            f"Data: {printable(cells)}.",
        )

    def lineage(self, number: int | None = None) -> list[int]:
        """Lists a candidate's ancestors.

        Args:
            number: the candidate's number; None for the one that was tested last.

        Returns:
            Numbers of candidates, the candidate's own first.

        Raises:
            InputError: there is no such candidate.
        """
        return lineage(self.candidates, int(self._record(number)["number"]))

    def critic(self) -> CriticReport | None:
        """Reports how well the run's critic has predicted which candidates succeed.

        Returns:
            The report; None of a run without a critic.
        """
        return read_report(self.folder)

    def plot_lineage(self, number: int | None = None) -> Figure:
        """Draws a candidate's ancestors by round and score, with a line from each parent to each child.

        Args:
            number: the candidate's number; None for the one that was tested last.

        Returns:
            The figure.

        Raises:
            InputError: there is no such candidate, or Matplotlib is missing.
        """
        return lineage_figure([self.candidates[one] for one in self.lineage(number)], self.incumbent)

    def to_arrow(self) -> pa.Table:
        """Gives the candidates as a table, a row each; `docs/how-to/discovery.md` explains the columns.

        Returns:
            An Arrow table.
        """
        from autotts_jax.discovery.results.columns import candidates_table

        return candidates_table(self.candidates)

    def to_parquet(self, path: str | Path) -> None:
        """Writes the candidates as a Parquet file, a row each; see `docs/how-to/discovery.md`.

        Args:
            path: the file; an existing one is replaced.

        Raises:
            InputError: the file cannot be written, or is one of the run.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.check_no_part(path)
        content = pa.BufferOutputStream()
        pq.write_table(self.to_arrow(), content)
        write_atomically(path, content.getvalue().to_pybytes())

    def check_no_part(self, path: str | Path) -> None:
        """Checks that a file that is to be written is none of those that the run is kept in.

        Args:
            path: the file.

        Raises:
            InputError: it is.
        """
        wanted = destination(path, "the file").resolve()
        if wanted in ((self.folder / name).resolve() for name in (MANIFEST, RECORDS)):
            raise InputError(f"{path} is a part of the run, which would be lost; name another file")

    def table(self) -> Table:
        """Makes a table of the best candidates and the test's verdict.

        Returns:
            A table that prints in 80 columns and that a notebook shows.
        """
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
            yield styled(
                "score: mean objective over β on the search's questions, less the price of\n"
                "the parts; branches: cost in branches of mean length; width: branches opened",
                lines=True,
            )
            first = not rows or rows[0].number == (self.test or {}).get("number")
            yield styled(self._verdict("" if first else FINALISTS), lines=True)
            if critic := self.critic():
                yield styled(str(critic), lines=True)

        return Table(parts)

    def _repr_html_(self) -> str:
        def charts() -> list[Drawn]:
            parts = archive_parts(self.to_arrow().to_pylist(), self.candidates)
            return [chart for part in parts for chart in part.charts]

        return shown(self.table().html(), charts)

    def _record(self, number: int | None) -> Record:
        number = self.number if number is None else check_int("number", number, 0)
        if not self.candidates:
            raise InputError(f"{self.folder} holds no candidate yet; let the run end a round")
        if number >= len(self.candidates):
            raise InputError(f"{self.folder} has candidates 0 to {len(self.candidates) - 1}, but no {number}")
        return self.candidates[number]

    def _verdict(self, why: str) -> str:
        if self.test is None:
            return "no test yet"
        verdict = "promoted" if self.promoted else "not promoted"
        lines = [
            f"candidate {self.number}{why}: {verdict}.",
            f"On questions left out, searches gain {100 * self.test['gain']:+.2f} points of objective on "
            f"{self.incumbent};",
            f"lower bound {100 * self.test['low']:+.2f} at {100 * self.test['level']:.2g} %.",
        ]
        if self.excel is not None:
            best = max(self.test["baselines"], key=self.test["baselines"].get)
            lines.append(f"excel@best: {100 * self.excel:+.1f} % on {best}, the best that people wrote")
        tokens = "  ".join(thousands(tokens) for tokens in self.test["tokens"])
        at_beta = f" at β = {BETAS[0]:g} … {BETAS[-1]:g}:\n" if len(self.test["tokens"]) > 1 else ": "
        lines.append(f"ktokens{at_beta}{tokens}")
        lines.append("on questions left out, setting by setting (–: not reached, or all cost more):")
        for heading, name in (
            (f"tokens for {self.incumbent}'s accuracy, as a share of its own", "matched_tokens"),
            (f"accuracy at {self.incumbent}'s tokens, less its own, in points", "matched_accuracy"),
        ):
            lines.append(f"{heading}:")
            lines.append("  ".join(_matched(value, name) for value in self.test[name]))
        if self.test["falls"]:
            falls = ", ".join(f"{beta:g}" for beta in self.test["falls"])
            lines.append(f"tokens fall after β = {falls}, which rules promotion out")
        return "\n".join(lines)


def _matched(value: float | None, name: str) -> str:
    if value is None:
        return "–"
    return f"{value:.2f}" if name == "matched_tokens" else f"{100 * value:+.1f}"


class _Row(NamedTuple):
    """A candidate in a table."""

    number: int
    proposer: str
    score: float
    cost: float
    width: float
    parts: str


def _row(record: Record) -> _Row | None:
    """A program that reached the end of the last rung, or a file that did not fail; None for others."""
    number, proposer = record["number"], record["proposer"]
    if record["kind"] == WRITTEN:
        written = written_of(record)
        if written.metrics is None:
            return None
        return _Row(number, proposer, written.score, written.cost, written.width, "a file")
    if (member := member_of(record)) is None:
        return None
    return _Row(number, proposer, member.score, member.cost, member.width, str(member.program.length))


def read_run(folder: str | Path) -> Discovery:
    """Reads the results of a discovery run after its last whole round.

    Args:
        folder: the run's folder.

    Returns:
        The candidates and the last test: ``table()``, ``promoted``, ``source()``, ``family()``.

    Raises:
        InputError: the folder holds no run.
        DataError: a file in it is damaged.

    Example:
        >>> import autotts_jax as at
        >>> found = at.read_run("runs/first")
        >>> found.candidates[0]["number"], found.lineage(0)
        (0, [0])
        >>> source, family = found.source("First", number=0), found.family("first", number=0)
    """
    folder = destination(folder, "folder")
    manifest = read_manifest(folder)
    found: list[Record] = []
    of_round: list[Record] = []
    test, cpu_seconds = None, 0.0
    for record in read_records(folder):
        if record["kind"] != END:
            of_round.append(record)
            continue
        for ended in of_round:
            if ended["kind"] == "test":
                test = ended
            else:
                found.append(ended | {"round": record["round"]})
        of_round, cpu_seconds = [], record["cpu_seconds"]
    names = manifest.get("incumbent")
    if not (isinstance(names, list) and names and all(map(is_name, names))):
        raise DataError(
            folder / MANIFEST,
            "does not name the incumbent: it is damaged, or no search's; give the folder of a search",
        )
    name = names[0].rpartition("@")[0]
    return Discovery(folder, name, found, test, cpu_seconds, manifest)
