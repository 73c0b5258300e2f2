"""Tables as Markdown and as LaTeX."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rich import table as rich_table
from rich.console import RenderableType

from autotts_jax.terminal import printable

LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        **{character: f"\\{character}" for character in "&%$#_{}"},
        "±": r"$\pm$",
        "·": r"$\cdot$",
        "×": r"$\times$",
        "≤": r"$\le$",
        "≥": r"$\ge$",
        "≶": r"$\stackrel{<}{>}$",
        "∞": r"$\infty$",
        "−": r"$-$",
        "–": "--",
        "…": r"\dots{}",
        "α": r"$\alpha$",
        "β": r"$\beta$",
        "γ": r"$\gamma$",
        "Δ": r"$\Delta$",
        "κ": r"$\kappa$",
    }
)
"""What stands for characters that LaTeX does not show as they are."""


_MINUS = re.compile(r"(?<![\w-])-(?=\d)|(?<= )-(?= )")
"""A hyphen that is a minus sign: before a number, or between spaces."""


class _Line(NamedTuple):
    cells: list[str]
    bold: bool
    last: bool  # of a section


def markdown(parts: Iterable[RenderableType]) -> str:
    """Writes tables and their notes as Markdown.

    Args:
        parts: tables of Rich and texts, from top to bottom.
    """
    blocks = []
    for part in parts:
        if isinstance(part, rich_table.Table):
            lines = (
                [_in_bold("**{}**", line.bold, markdown_text(cell)) for cell in line.cells]
                for line in _lines(part)
            )
            blocks.append(_markdown(_title(part), _headings(part), lines))
        else:
            blocks.append(markdown_text(" ".join(str(part).split())))
    return "\n\n".join(blocks) + "\n"


def markdown_table(title: str, headings: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Writes a table as Markdown."""
    return _markdown(title, headings, (map(markdown_text, line) for line in lines))


def _markdown(title: str, headings: Sequence[str], lines: Iterable[Iterable[str]]) -> str:
    rule = ["---", *["---:"] * (len(headings) - 1)]
    rows = [map(markdown_text, headings), rule, *lines]
    above = [f"**{markdown_text(title)}**\n"] if title else []
    return "\n".join([*above, *(f"| {' | '.join(row)} |" for row in rows)])


def markdown_text(text: str) -> str:
    """Escapes text so that Markdown shows it as it is: names may come from others."""
    return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", printable(text))


def latex(parts: Iterable[RenderableType]) -> str:
    """Writes each table as a float with all notes below it; LaTeX needs the package ``booktabs``.

    Args:
        parts: tables of Rich and texts, from top to bottom.
    """
    parts = list(parts)
    tables = [part for part in parts if isinstance(part, rich_table.Table)]
    texts = (part for part in parts if not isinstance(part, rich_table.Table))
    notes = [latex_text(" ".join(str(part).split())) for part in texts]
    if not tables:
        return "\n\n".join(notes) + "\n"
    note = r" \\ ".join(notes)
    return "\n\n".join("\n".join(_float(table, note)) for table in tables) + "\n"


def _float(table: rich_table.Table, note: str) -> Iterator[str]:
    headings, lines = _headings(table), list(_lines(table))
    yield r"\begin{table}"
    yield r"\centering"
    if title := _title(table):
        yield f"\\caption{{{latex_text(title)}}}"
        yield f"\\label{{tab:{re.sub('[^a-z0-9]+', '-', title.lower()).strip('-')}}}"
    yield f"\\begin{{tabular}}{{l{'r' * (len(headings) - 1)}}}"
    yield r"\toprule"
    yield _row(map(latex_text, headings))
    yield r"\midrule"
    for line in lines:
        yield _row(_in_bold(r"\textbf{{{}}}", line.bold, latex_text(cell)) for cell in line.cells)
        if line.last and line is not lines[-1]:
            yield r"\midrule"
    yield r"\bottomrule"
    yield r"\end{tabular}"
    if note:
        yield f"\\par\\smallskip\\parbox{{\\linewidth}}{{\\footnotesize {note}}}"
    yield r"\end{table}"


def _in_bold(form: str, bold: bool, cell: str) -> str:
    return form.format(cell) if bold and cell else cell


def _row(cells: Iterable[str]) -> str:
    # A line that begins with a bracket would be an argument of the command that ends the one before.
    return " & ".join(f"{{}}{cell}" if cell.startswith("[") else cell for cell in cells) + r" \\"


def latex_text(text: str) -> str:
    """Escapes text so that LaTeX shows it as it is."""
    return _MINUS.sub("−", printable(text)).translate(LATEX)


def _title(table: rich_table.Table) -> str:
    return str(table.title or "")


def _headings(table: rich_table.Table) -> list[str]:
    return [str(column.header) for column in table.columns]


def _lines(table: rich_table.Table) -> Iterator[_Line]:
    columns = (column.cells for column in table.columns)
    for row, cells in zip(table.rows, zip(*columns, strict=True), strict=True):
        yield _Line(list(map(str, cells)), row.style == "bold", row.end_section)
