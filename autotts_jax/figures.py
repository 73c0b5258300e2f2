"""Pictures at the widths of papers, whose text stays text in PDF and SVG; they need Matplotlib."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import math
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autotts_jax.checks import check_choice
from autotts_jax.extras import needs
from autotts_jax.terminal import quoted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTHS = {"column": 3.3, "page": 6.75}
"""Inches of a column and of a page of a paper, by the name of the size."""

FORMATS = ("pdf", "png", "svg")
"""Formats in which pictures are written."""

LINE = 0.145
"""Inches of a line of text."""

CHARACTERS = 18
"""Characters of text in an inch."""

LEGEND_KEY = 0.55
"""Inches of an entry of a legend beside its text."""

LONGEST_LABEL = 32
"""Characters of a label in a legend."""

MOST_LINES = 12
"""Lines of a legend; it says how many entries do not fit."""


def available() -> bool:
    """Tells whether Matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def width_of(size: str) -> float:
    """Looks up the width of a size.

    Returns:
        Inches.

    Raises:
        InputError: there is no such size.
    """
    return WIDTHS[check_choice("size", size, WIDTHS)]


@contextlib.contextmanager
def new_figure(width: float) -> Iterator[Figure]:
    """Gives a figure to a block that fills it and sets its height.

    Raises:
        InputError: Matplotlib is missing.
    """
    with needs("plot", "a picture"):
        import matplotlib

        from autotts_jax.paper_figure import SETTINGS, PaperFigure
    with matplotlib.rc_context(SETTINGS):
        yield PaperFigure(figsize=(width, width), layout="constrained")


def add_legend(figure: Figure, entries: Sequence[tuple[Any, str]]) -> float:
    """Adds a legend below the panels of a figure.

    Returns:
        The inches of height that it takes.
    """
    labels = [quoted(label, LONGEST_LABEL) for _, label in entries]
    columns = _columns(labels, figure.get_figwidth())
    handles = [handle for handle, _ in entries]
    if len(labels) > (most := columns * MOST_LINES):
        from matplotlib.lines import Line2D

        handles[most - 1 :] = [Line2D([], [], linestyle="none")]
        labels[most - 1 :] = [f"{len(entries) - most + 1} others"]
    legend = figure.legend(handles, labels, loc="outside lower center", ncols=columns)
    for text in legend.get_texts():
        text.set_parse_math(False)
    return LINE * (math.ceil(len(labels) / columns) + 1)


def _columns(labels: Sequence[str], width: float) -> int:
    """The most columns of a legend that fit so many inches."""
    lengths = [LEGEND_KEY + len(label) / CHARACTERS for label in labels]

    def needed(columns: int) -> float:
        return sum(column.max() for column in np.array_split(lengths, columns))

    return next((columns for columns in range(len(labels), 1, -1) if needed(columns) <= width), 1)


def wrapped(text: str, width: float) -> str:
    """Breaks text into lines."""
    characters = max(int(CHARACTERS * width), 8)
    return "\n".join(line for part in text.splitlines() for line in textwrap.wrap(part, characters))


def save_figure(figure: Figure, files: Sequence[Path]) -> None:
    """Saves a figure.

    Args:
        figure: the figure.
        files: where to save it; the ending of each gives the format.
    """
    for file in files:
        drawn = io.BytesIO()  # Matplotlib fails in many ways where a disk is full
        figure.savefig(drawn, format=file.suffix.removeprefix("."))
        file.write_bytes(drawn.getvalue())
        figure.set_layout_engine("none")  # once is enough, and takes as long as drawing
