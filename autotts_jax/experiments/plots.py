"""Pictures of an evaluation for papers: frontiers, and gains with their intervals; they need Matplotlib."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from autotts_jax.checks import check_choice
from autotts_jax.errors import InputError
from autotts_jax.experiments.summary import ALL_MODELS, Row
from autotts_jax.figures import LINE, LONGEST_LABEL, add_legend, new_figure, width_of, wrapped
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.styles import NEUTRAL, Style, styles
from autotts_jax.terminal import quoted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ACROSS = {"column": 1, "page": 3}
"""Panels side by side in a figure, by its size."""

LONGEST_SETTING = 22
"""Characters of the name of a setting beside a panel."""

PANEL = {"column": 2.1, "page": 1.8}
"""Inches of a panel's height, by the size of its figure."""


def frontier_figure(rows: Sequence[Row], size: str = "page") -> Figure:
    """Draws accuracy against tokens: a panel for each model and benchmark, a line for each controller.

    Vertical lines are 95 % intervals over questions. A dotted step line is the frontier: the best accuracy
    that any setting reaches with so many tokens.

    Raises:
        InputError: Matplotlib is missing, or there is no such size.
    """
    costs: dict[str, list[float]] = {}
    for row in rows:
        costs.setdefault(row.benchmark, []).append(row.tokens / 1000)

    def draw(panel: Axes, here: Sequence[Row], look: dict[str, Style]) -> dict[str, Any]:
        _set_cost_axis(panel, min(costs[here[0].benchmark]), max(costs[here[0].benchmark]))
        return _draw_frontier(panel, here, look)

    height = PANEL[check_choice("size", size, PANEL)]
    return _panels(rows, size, height, draw, "tokens per episode, thousands", "accuracy, %")


def gains_figure(rows: Sequence[Row], size: str = "page") -> Figure:
    """Draws the gain in accuracy of each setting over the first, with its 95 % interval.

    Raises:
        InputError: Matplotlib is missing, there is no such size, or there is one setting alone.
    """
    first = rows[0].baseline
    rest = [row for row in rows if row.name != first]
    if not rest:
        raise InputError(f"{first} is the only setting, so that there are no gains to draw; evaluate another")
    settings = list(dict.fromkeys(row.name for row in rest))
    height = LINE * max(len(settings), 3) + 0.2
    title = f"Δ accuracy over {quoted(first, LONGEST_LABEL)}, points, with 95 % intervals"
    return _panels(rest, size, height, _draw_gains, title, None)


KINDS: dict[str, Callable[[Sequence[Row], str], Figure]] = {
    "frontier": frontier_figure,
    "gains": gains_figure,
}
"""The kinds of pictures of an evaluation."""


def rows_of(rows: Sequence[Row], panels: Sequence[str] | None) -> list[Row]:
    """Chooses the rows that some panels show.

    Returns:
        The rows, in the order of the panels.

    Raises:
        InputError: there is no such cell, or none is named.
    """
    known = dict.fromkeys(row.cell for row in rows)
    if isinstance(panels, str) or (panels is not None and not len(panels)):
        raise InputError(
            f"panels is {panels!r:.60}, but it must be a list of cells, such as {next(iter(known))!r}"
        )
    wanted = known if panels is None else dict.fromkeys(check_choice("panel", name, known) for name in panels)
    return [row for cell in wanted for row in rows if row.cell == cell]


def check_panels(dataset: ProbeDataset, panels: Sequence[str]) -> list[str]:
    """Checks that an evaluation of a dataset will have some cells.

    Returns:
        The names.

    Raises:
        InputError: there is no such cell.
    """
    models: dict[str, list[str]] = {}
    for cell in dataset.cells:
        models.setdefault(cell.benchmark, []).append(cell.model)
    known = [
        f"{model}/{benchmark}"
        for benchmark, names in models.items()
        for model in (*names, *[ALL_MODELS] * (len(names) > 1))
    ]
    return [check_choice("panel", name.strip(), known) for name in panels]


def pareto(rows: Sequence[Row]) -> list[Row]:
    """Finds the rows that no other row beats in accuracy without more tokens.

    Returns:
        These rows, cheapest first.
    """
    best: list[Row] = []
    for row in sorted(rows, key=lambda row: (row.tokens, -row.accuracy)):
        if not best or row.accuracy > best[-1].accuracy:
            best.append(row)
    return best


def _panels(
    rows: Sequence[Row],
    size: str,
    height: float,
    draw: Callable[[Axes, Sequence[Row], dict[str, Style]], dict[str, Any]],
    x_title: str,
    y_title: str | None,
) -> Figure:
    """A panel for each cell of the rows, as many side by side as there is room for, and a legend below."""
    width = width_of(size)
    cells = list(dict.fromkeys(row.cell for row in rows))
    across = min(len(cells), ACROSS[size])
    down = math.ceil(len(cells) / across)
    room = (width - (0.4 if y_title else 1.4)) / across - 0.3
    look = styles(row.controller for row in rows)
    entries: dict[str, Any] = {}
    with new_figure(width) as figure:
        panels, spare = np.split(
            figure.subplots(down, across, squeeze=False, sharey=False if y_title else "row").ravel(),
            [len(cells)],
        )
        for panel in spare:
            panel.remove()
        headings = []
        for place, (panel, cell) in enumerate(zip(panels, cells, strict=True)):
            entries |= draw(panel, [row for row in rows if row.cell == cell], look)
            headings.append(wrapped(cell, room))
            panel.set_title(headings[-1], parse_math=False)
            if place % across == 0 and y_title is not None:
                panel.set_ylabel(y_title)
            if place + across >= len(cells):
                panel.set_xlabel(wrapped(x_title, room), parse_math=False)
        legend = add_legend(figure, [(handle, name) for name, handle in entries.items()])
        lines = max(heading.count("\n") + 1 for heading in headings)
        figure.set_figheight(down * (height + LINE * (lines + 1)) + 2 * LINE + legend)
    return figure


def _set_cost_axis(panel: Axes, least: float, most: float) -> None:
    """The same range for all panels of a benchmark; logarithmic where costs differ much."""
    from matplotlib.ticker import LogLocator, NullLocator

    if least > 0 and most > 4 * least:
        panel.set_xscale("log")
        subs = (1, 2, 5) if most < 100 * least else (1,)
        panel.xaxis.set_major_locator(LogLocator(subs=subs))
        panel.xaxis.set_major_formatter("{x:g}")
        panel.xaxis.set_minor_locator(NullLocator())
        panel.set_xlim(least / 1.3, most * 1.3)
    else:
        panel.set_xlim(0, most * 1.1 or 1)


def _draw_frontier(panel: Axes, rows: Sequence[Row], look: dict[str, Style]) -> dict[str, Any]:
    """Draws a cell; returns what stands for each controller in a legend."""
    from matplotlib.lines import Line2D

    entries: dict[str, Any] = {}
    for controller in dict.fromkeys(row.controller for row in rows):
        style = look[controller]
        points = sorted((row for row in rows if row.controller == controller), key=lambda row: row.tokens)
        x, y = [row.tokens / 1000 for row in points], [100 * row.accuracy for row in points]
        low, high = ([100 * getattr(row, end) for row in points] for end in ("accuracy_low", "accuracy_high"))
        panel.vlines(x, low, high, color=style.colour, linewidth=0.6, alpha=0.35)
        (entries[controller],) = panel.plot(
            x,
            y,
            color=style.colour,
            marker=style.mark.marker,
            linestyle=(0, style.dash) if style.dash else "-",
        )
    best = pareto(rows)
    (entries["frontier"],) = panel.step(
        [row.tokens / 1000 for row in best],
        [100 * row.accuracy for row in best],
        where="post",
        color=NEUTRAL,
        linestyle=":",
        zorder=0,
    )
    bar = Line2D([], [], color=NEUTRAL, linestyle="none", marker="|", markersize=8, markeredgewidth=0.6)
    return entries | {"95 % interval over questions": bar}


def _draw_gains(panel: Axes, rows: Sequence[Row], look: dict[str, Style]) -> dict[str, Any]:
    """Draws a cell; returns what stands for each controller in a legend."""
    entries: dict[str, Any] = {}
    for place, row in enumerate(rows):
        style = look[row.controller]
        low, high = (100 * min(max(end, -1), 1) for end in (row.gain_low, row.gain_high))
        panel.plot([low, high], [place, place], color=style.colour)
        (entries[row.controller],) = panel.plot(
            [100 * row.gain], [place], color=style.colour, marker=style.mark.marker, linestyle="none"
        )
    panel.axvline(0, color=NEUTRAL, linestyle=":", zorder=0)
    panel.set_yticks(range(len(rows)), [quoted(row.name, LONGEST_SETTING) for row in rows])
    for label in panel.get_yticklabels():
        label.set_parse_math(False)
    panel.set_ylim(len(rows) - 0.4, -0.6)
    return entries
