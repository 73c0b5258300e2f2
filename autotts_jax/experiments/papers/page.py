"""A page about a paper: tables in a terminal, Markdown and CSV on disk."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from rich.console import RenderableType

from autotts_jax.experiments.files import results_folder, write_csv
from autotts_jax.experiments.markup import markdown_table
from autotts_jax.experiments.report import charts
from autotts_jax.experiments.summary import Row
from autotts_jax.experiments.tables import Table, add_row, numbers_table
from autotts_jax.figures import save_figure
from autotts_jax.files import destination
from autotts_jax.pages import rendering
from autotts_jax.pages.rendering import Cells, CellsRow, Part, render_parts
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.terminal import styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


CELL_HEADINGS = ("cell", "questions", "branches", "SHA-256 begins with")


class Grid(NamedTuple):
    """A table as it is shown.

    Attributes:
        title: what it is of; empty for nothing.
        headings: of the columns; the first holds names, the others numbers.
        lines: the cells of each line, as text.
    """

    title: str
    headings: Sequence[str]
    lines: Sequence[Sequence[str]]


@dataclasses.dataclass(frozen=True, eq=False)
class Section:
    """A part of a page: text, the tables that it shows, and all of its numbers.

    Attributes:
        name: names its CSV file.
        title: its heading.
        text: what the numbers are.
        grids: the tables that it shows.
        data: all of its numbers; None of a section that has none of its own.
        printed: whether a terminal shows it as well as the page.
        figure: the picture of it; None for none.
        rows: results whose frontiers it shows; none of a section without.
    """

    name: str
    title: str
    text: str
    grids: Sequence[Grid]
    data: pa.Table | None = None
    printed: bool = True
    figure: Figure | None = None
    rows: Sequence[Row] = ()


@dataclasses.dataclass(frozen=True, eq=False)
class Page:
    """What a paper's tables and figures are on some data.

    Attributes:
        name: the paper's short name.
        title: its title.
        source: where it is.
        dataset: the questions.
        sections: the parts of the page.
    """

    name: str
    title: str
    source: str
    dataset: ProbeDataset
    sections: tuple[Section, ...]

    def data(self) -> dict[str, pa.Table]:
        """Gives all numbers.

        Returns:
            An Arrow table for each section that has one, by its name.
        """
        return {section.name: section.data for section in self.sections if section.data is not None}

    def table(self) -> Table:
        """Shows the sections that a terminal shows.

        Returns:
            A table that prints in 80 columns and that a notebook shows.
        """

        def parts(_: int) -> Iterator[RenderableType]:
            for section in self.sections:
                if section.printed:
                    yield styled(section.title, style="bold")
                    for grid in section.grids:
                        yield _rich(grid)
                    yield styled(section.text + "\n", style="dim", lines=True)

        return Table(parts)

    def markdown(self) -> str:
        """Writes the whole page, which names the files that `save` writes.

        Returns:
            Markdown.
        """
        lines = [
            f"# {self.title}",
            f"{self.source}. Computed by autotts-jax {metadata.version('autotts-jax')} "
            f"from the cells [below](#data), in the encoding `{self.dataset.encoding}`.",
        ]
        for section in self.sections:
            lines += [f"## {section.title}", section.text]
            lines += [markdown_table(*grid) for grid in section.grids]
            if section.figure is not None:
                lines.append(f"![{section.title}]({self._file(section, 'png')})")
            if section.data is not None:
                lines.append(f"All numbers: [{self._file(section, 'csv')}]({self._file(section, 'csv')})")
        lines += ["## Data", markdown_table("", CELL_HEADINGS, self._cells())]
        return "\n\n".join(lines) + "\n"

    def _cells(self) -> list[tuple[str, ...]]:
        """What the page is computed from, a line each cell."""
        return [
            (
                cell.name,
                str(len(self.dataset.cell_questions(index))),
                str(cell.num_branches),
                cell.sha256[:16],
            )
            for index, cell in enumerate(self.dataset.cells)
        ]

    def html(self) -> str:
        """Writes the whole page as one that needs nothing else, with charts in place of pictures.

        Returns:
            HTML.

        Raises:
            InputError: Altair is missing.
        """
        parts = [
            Part(
                section.title,
                section.text,
                charts.frontiers(section.rows),
                [
                    Cells(grid.title or section.title, grid.headings, [CellsRow(line) for line in grid.lines])
                    for grid in section.grids
                ],
            )
            for section in self.sections
        ]
        data = Cells("Data", CELL_HEADINGS, [CellsRow(line) for line in self._cells()])
        facts = {"source": self.source, "answers": self.dataset.encoding}
        return render_parts(
            "paper", self.title, facts, [*parts, Part("Data", "What the numbers are of.", (), [data])]
        )

    def save(self, folder: str | Path) -> list[Path]:
        """Writes the page as ``NAME.md`` and its numbers as ``NAME-SECTION.csv``.

        Pictures are written too where Matplotlib is installed, and ``NAME.html``, the page in one file with
        charts, where Altair is. The files appear together, when all are
        complete; those that an earlier page of the same paper names are replaced or removed.

        Args:
            folder: where to write them; made if need be.

        Returns:
            The files.

        Raises:
            InputError: the folder cannot be written to.
        """
        place = destination(folder, "folder")
        page, html = f"{self.name}.md", f"{self.name}.html"
        own = [self._file(section, kind) for section in self.sections for kind in ("csv", "png")]
        earlier = functools.partial(self._named, place / page)
        with results_folder(place, (*own, html, page), earlier) as partial:
            for section in self.sections:
                if section.data is not None:
                    write_csv(partial / self._file(section, "csv"), section.data)
                if section.figure is not None:
                    save_figure(section.figure, [partial / self._file(section, "png")])
            if rendering.available():
                (partial / html).write_text(self.html(), encoding="utf-8")
            (partial / page).write_text(self.markdown(), encoding="utf-8")
            written = sorted(file.name for file in partial.iterdir())
        return [place / name for name in written]

    def _named(self, page: Path) -> list[str]:
        """The files that an earlier page names."""
        try:
            text = page.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return []
        return re.findall(rf"\]\(({re.escape(self.name)}-[\w-]+\.(?:csv|png))\)", text)

    def __str__(self) -> str:
        return str(self.table())

    def _repr_html_(self) -> str:
        return self.table().html()

    def _file(self, section: Section, kind: str) -> str:
        return f"{self.name}-{section.name}.{kind}"


def _rich(grid: Grid) -> RenderableType:
    table = numbers_table(grid.title or None, grid.headings[1:], grid.headings[0])
    for line in grid.lines:
        add_row(table, *line)
    return table
