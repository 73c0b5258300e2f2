"""Pictures of the accuracy-cost frontier and of one episode; they need Matplotlib."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from autotts_jax.experiments.summary import Row
from autotts_jax.extras import needs
from autotts_jax.terminal import quoted

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKERS = "osD^vP*X"

LONGEST_NAME = 24
"""Characters of a name in a picture."""

LEGEND_LINES = 4.2
"""Lines of a legend that fit an inch."""


def available() -> bool:
    """Tells whether Matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def frontier_figure(rows: Sequence[Row]) -> Figure:
    """Draws accuracy against tokens: a panel for each benchmark and model, a line for each controller.

    A step line is the frontier: the best accuracy that any setting reaches with so many tokens.

    Args:
        rows: the summary of an evaluation.

    Raises:
        InputError: Matplotlib is missing.
    """
    with needs("plot", "a picture"):
        from matplotlib.figure import Figure
    benchmarks = list(dict.fromkeys(row.benchmark for row in rows))
    models = {b: list(dict.fromkeys(row.model for row in rows if row.benchmark == b)) for b in benchmarks}
    controllers = list(dict.fromkeys(row.controller for row in rows))
    columns = max(map(len, models.values()))
    size = (3.2 * columns + 1.6, 2.9 * len(benchmarks) + 0.7)
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(len(benchmarks), columns, squeeze=False)
    for line, benchmark in enumerate(benchmarks):
        of_benchmark = [row for row in rows if row.benchmark == benchmark]
        costs = [row.tokens / 1000 for row in of_benchmark]
        for panel, model in zip(panels[line], models[benchmark], strict=False):
            _draw_panel(panel, [row for row in of_benchmark if row.model == model], controllers)
            _set_cost_axis(panel, min(costs), max(costs))
            panel.set_title(quoted(f"{model}, {benchmark}", LONGEST_NAME), fontsize=9, parse_math=False)
        panels[line, 0].set_ylabel("accuracy, %")
        for panel in panels[line, len(models[benchmark]) :]:
            panel.set_axis_off()
    for column in panels.T:
        lowest = [panel for panel in column if panel.axison][-1]
        lowest.set_xlabel("tokens per episode, thousands")
    _add_legend(figure, *panels[0, 0].get_legend_handles_labels())
    return figure


def pareto(rows: Sequence[Row]) -> list[Row]:
    """Finds the rows that no other row beats in accuracy without more tokens.

    Args:
        rows: rows of one model and benchmark.

    Returns:
        These rows, cheapest first.
    """
    best: list[Row] = []
    for row in sorted(rows, key=lambda row: (row.tokens, -row.accuracy)):
        if not best or row.accuracy > best[-1].accuracy:
            best.append(row)
    return best


def _add_legend(figure: Figure, handles: Sequence[Artist], names: Sequence[str]) -> None:
    """A legend beside the panels, which says how many of its lines do not fit."""
    from matplotlib.lines import Line2D

    most = int(LEGEND_LINES * figure.get_figheight())
    handles, labels = list(handles), [quoted(name, LONGEST_NAME) for name in names]
    if len(labels) > most:
        handles[most - 1 :] = [Line2D([], [], linestyle="none")]
        labels[most - 1 :] = [f"{len(names) - most + 1} others"]
    legend = figure.legend(handles, labels, loc="outside right upper", frameon=False)
    for text in legend.get_texts():
        text.set_parse_math(False)


def _set_cost_axis(panel: Axes, least: float, most: float) -> None:
    """The same range for all panels of a benchmark; logarithmic where costs differ much."""
    from matplotlib.ticker import LogLocator, NullLocator

    if least > 0 and most > 4 * least:
        panel.set_xscale("log")
        panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.xaxis.set_major_formatter("{x:g}")
        panel.xaxis.set_minor_locator(NullLocator())
        panel.set_xlim(least / 1.3, most * 1.3)
    else:
        panel.set_xlim(0, most * 1.1 or 1)


def _draw_panel(panel: Axes, rows: Sequence[Row], controllers: Sequence[str]) -> None:
    for number, controller in enumerate(controllers):
        points = sorted((row for row in rows if row.controller == controller), key=lambda row: row.tokens)
        error = np.nan_to_num([100 * row.accuracy_se for row in points])
        panel.errorbar(
            [row.tokens / 1000 for row in points],
            [100 * row.accuracy for row in points],
            yerr=error,
            color=f"C{number}",
            marker=MARKERS[number % len(MARKERS)],
            markersize=4,
            linewidth=1,
            elinewidth=0.8,
            label=controller,
        )
    best = pareto(rows)
    panel.step(
        [row.tokens / 1000 for row in best],
        [100 * row.accuracy for row in best],
        where="post",
        color="0.5",
        linestyle=":",
        linewidth=1,
        zorder=0,
        label="frontier",
    )
    panel.grid(alpha=0.25)


def save_figure(figure: Figure, files: Sequence[Path]) -> None:
    """Saves a figure.

    Args:
        figure: the figure.
        files: where to save it; the ending of each gives the format.
    """
    with warnings.catch_warnings():
        # Answers may be in any script; a box then stands for what the font does not have.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        for file in files:
            figure.savefig(file, dpi=150)
            figure.set_layout_engine("none")  # once is enough, and takes as long as drawing
