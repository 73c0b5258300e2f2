"""Views of one episode: branches as rows, depth as columns, a letter or a colour for each answer."""

from __future__ import annotations

import math
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int, UInt8

from autotts_jax import styles
from autotts_jax.extras import needs
from autotts_jax.figures import LINE, add_legend, new_figure, width_of, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

SIGNAL_COLOURS = "viridis"
"""Matplotlib's name of the colours of a signal, from its least value to its largest."""

SIGN_MARKERS = {styles.RIGHT_SIGN: "+", styles.WRONG_SIGN: "_"}
"""Matplotlib's names of the signs of answers."""

FINISHED, PRUNED, RUNNING = "o", "x", ">"
PANELS = {"column": 1, "page": 3}
"""Panels side by side in a figure, by its size."""

FRAME_DOTS = 100
"""Dots of an inch of a frame, …"""

FRAME_LEGEND = 0.6
"""… and inches of its legend, whatever that has to say."""
LETTERS = string.ascii_uppercase + string.ascii_lowercase + string.digits
"""Names of answers in the order in which they were first revealed; further ones are ``*``."""


class Frame(NamedTuple):
    """What an episode under way has shown; per-branch arrays have shape (W,).

    Attributes:
        time: steps taken.
        tokens: tokens charged.
        answer: number of the answer that would be given now, negative for none.
        shown: number of the answer at each depth, negative where none was revealed. Shape (W, K).
        depth: intervals read, 0 where unopened.
        finished: whether the branch was read to its end.
        pruned: whether the branch was pruned.
    """

    time: int
    tokens: int
    answer: int
    shown: Int[np.ndarray, "W K"]
    depth: Int[np.ndarray, " W"]
    finished: Bool[np.ndarray, " W"]
    pruned: Bool[np.ndarray, " W"]

    def cells(self) -> list[list[str | None]]:
        """Names the answers at the depths of each opened branch by letters, None where there is none."""
        opened = zip(self.shown[self.depth > 0].tolist(), self.depth.tolist(), strict=False)
        return [[_letter(number) for number in numbers[:depth]] for numbers, depth in opened]

    def headline(self, name: str) -> str:
        """Sums the episode up in one line."""
        return f"{name}, step {self.time}, {self.tokens:,} tokens, answer {_letter(self.answer) or 'none'}"


def draw_text(name: str, view: Frame) -> str:
    """Draws an episode as text, one line per opened branch."""
    lines = [view.headline(name)]
    for branch, cells in enumerate(view.cells()):
        mark = PRUNED if view.pruned[branch] else FINISHED if view.finished[branch] else RUNNING
        lines.append(f"{branch:3} {''.join(cell or '.' for cell in cells)} {mark}")
    return "\n".join(lines) + "\n"


def draw_array(name: str, view: Frame) -> UInt8[np.ndarray, "height width 3"]:
    """Draws an episode as an image whose size does not depend on what has happened in it.

    Raises:
        InputError: Matplotlib is missing.
    """
    with needs("plot", "a picture"):
        from matplotlib.backends.backend_agg import FigureCanvasAgg

    cells = view.cells()
    opened = len(cells)
    figure = episode_figure(
        view.headline(name),
        cells,
        view.finished[:opened].tolist(),
        view.pruned[:opened].tolist(),
        answer=_letter(view.answer),
        room=view.shown.shape,
    )
    figure.set_dpi(FRAME_DOTS)
    figure.set_figheight(_height(len(view.shown)) + FRAME_LEGEND)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    image = np.array(canvas.buffer_rgba())[..., :3]
    even = [size // 2 * 2 for size in image.shape[:2]]  # as encoders of videos want it
    return image[: even[0], : even[1]].copy()


def _letter(number: int) -> str | None:
    if number < 0:
        return None
    return LETTERS[number] if number < len(LETTERS) else "*"


def episode_figure(
    title: str,
    shown: Sequence[Sequence[str | None]],
    finished: Sequence[bool],
    pruned: Sequence[bool],
    *,
    answer: str | None,
    gold: str | None = None,
    room: tuple[int, int] | None = None,
    signals: Mapping[str, Sequence[Sequence[float | None]]] | None = None,
    size: str = "page",
) -> Figure:
    """One episode, coloured by answer, and beside that by the values of each signal.

    Raises:
        InputError: Matplotlib is missing, or there is no such size.
    """
    width = width_of(size)
    with new_figure(width) as figure:
        from matplotlib.cm import ScalarMappable

        signals = signals or {}
        colour = answer_colours(shown, answer, gold)
        rows, depth = room or (max(len(shown), 1), max(map(len, shown), default=1))
        count = 1 + len(signals)
        across = min(count, PANELS[size])
        down = math.ceil(count / across)
        (panel, *others), spare = np.split(figure.subplots(down, across, squeeze=False).ravel(), [count])
        for each in spare:
            each.remove()
        _draw_cells(panel, answer_cells(shown, colour), rows, depth)
        cell = min(72 * _height(rows) / rows, 55 * width / across / depth)  # points
        entries = _draw_signs(panel, shown, colour, answer, gold, cell)
        for other, (name, values) in zip(others, signals.items(), strict=True):
            _draw_cells(other, signal_cells(values), rows, depth)
            figure.colorbar(ScalarMappable(_signal_scale(values), SIGNAL_COLOURS), ax=other)
            other.set_title(wrapped(name, width / across), parse_math=False)
        lengths = [len(branch) for branch in shown]
        for each in (panel, *others):
            each.grid(visible=False)
            ends = _mark_ends(each, lengths, finished, pruned, cell)
            each.set_xlim(0.5, depth + 1.8)
            each.set_xlabel("depth, intervals")
        for each in (panel, *others)[::across]:
            each.set_ylabel("branch, in opening order")
        heading = wrapped(title, width)
        figure.suptitle(heading, parse_math=False)
        legend = add_legend(figure, entries + ends)
        figure.set_figheight(down * _height(rows) + (heading.count("\n") + 1) * LINE + legend)
    return figure


def _height(rows: int) -> float:
    """Inches of a panel with so many branches, and of what is below it."""
    return min(max(0.11 * rows, 1.0), 4.5) + 0.5


def _draw_signs(
    panel: Axes,
    shown: Sequence[Sequence[str | None]],
    colour: Mapping[str, str],
    answer: str | None,
    gold: str | None,
    cell: float,
) -> list[tuple[Any, str]]:
    """Draws a sign on the right answer and on a wrong one that is given; returns entries of a legend."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    counts = Counter(text for branch in shown for text in branch if text is not None)
    entries: list[tuple[Any, str]] = []
    for text in (text for text in colour if text in counts):
        patch = Patch(color=colour[text])
        sign = answer_sign(text, answer, gold)
        if sign:
            marker = SIGN_MARKERS[sign]
            rows = [row for row, branch in enumerate(shown) for at in branch if at == text]
            depths = [depth for branch in shown for depth, at in enumerate(branch, 1) if at == text]
            dots = (0.6 * min(cell, 8)) ** 2
            panel.scatter(depths, rows, marker=marker, s=dots, c="white", linewidths=0.7)
            on = Line2D([], [], linestyle="none", marker=marker, markersize=4, color="white")
        entries.append(((patch, on) if sign else patch, answer_label(text, answer, gold)))
    if minor := len(counts) - len(entries):
        entries.append((Patch(color=styles.MINOR), f"{minor} other answers"))
    return entries


def _draw_cells(panel: Axes, cells: Sequence[Sequence[str]], rows: int, depth: int) -> None:
    """Draws the depths of branches in their colours."""
    from matplotlib.colors import to_rgb

    image = np.ones((rows, depth, 3))
    for row, branch in enumerate(cells):
        for column, colour in enumerate(branch):
            image[row, column] = to_rgb(colour)
    extent = (0.5, depth + 0.5, rows - 0.5, -0.5)
    panel.imshow(image, aspect="auto", extent=extent, interpolation="none")


def _mark_ends(
    panel: Axes, lengths: Sequence[int], finished: Sequence[bool], pruned: Sequence[bool], cell: float
) -> list[tuple[Any, str]]:
    """Marks where each branch ends, and how; returns entries of a legend."""
    from matplotlib.ticker import MaxNLocator

    ends, branches = np.array(lengths) + 0.9, np.arange(len(lengths))
    done, given_up = np.asarray(finished, bool), np.asarray(pruned, bool)
    entries: list[tuple[Any, str]] = []
    for mask, marker, label in (
        (done, FINISHED, "finished"),
        (given_up, PRUNED, "pruned"),
        (~done & ~given_up, RUNNING, "running"),
    ):
        if mask.any():
            dots = (0.6 * min(max(cell, 3), 6)) ** 2
            marks = panel.scatter(
                ends[mask], branches[mask], marker=marker, s=dots, c="black", linewidths=0.7
            )
            entries.append((marks, label))
    panel.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    panel.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, nbins="auto"))
    return entries


def signal_cells(values: Sequence[Sequence[float | None]]) -> list[list[str]]:
    """Gives colours to the values of a signal.

    Returns:
        The colours at these depths.

    Raises:
        InputError: Matplotlib is missing.
    """
    with needs("plot", "a picture"):
        from matplotlib import colormaps
        from matplotlib.colors import to_hex

    scale, colours = _signal_scale(values), colormaps[SIGNAL_COLOURS]
    return [
        [styles.UNREVEALED if value is None else to_hex(colours(scale(value))) for value in branch]
        for branch in values
    ]


def signal_ends(values: Sequence[Sequence[float | None]]) -> tuple[float, ...]:
    """Finds the least and the largest value of a signal.

    Returns:
        Both; nothing where none is revealed.
    """
    known = [value for branch in values for value in branch if value is not None]
    return (min(known), max(known)) if known else ()


def _signal_scale(values: Sequence[Sequence[float | None]]) -> Normalize:
    from matplotlib.colors import Normalize

    return Normalize(*(signal_ends(values) or (0, 0)))


def short_answer(text: str) -> str:
    """Shortens an answer to one line."""
    text = " ".join(text.split())
    return text if len(text) <= 16 else text[:15] + "…"


def answer_colours(
    shown: Sequence[Sequence[str | None]], answer: str | None, gold: str | None
) -> dict[str, str]:
    """Gives colours to the right answer, to the one that is given and to the most common others.

    Returns:
        Colours by answer; answers without one share `styles.MINOR`.
    """
    counts = Counter(text for branch in shown for text in branch if text is not None)
    colour = {} if gold is None else {gold: styles.RIGHT}
    if gold is not None and answer is not None:
        colour.setdefault(answer, styles.WRONG)
    given_first = [*([] if answer is None else [answer]), *(text for text, _ in counts.most_common())]
    others = [text for text in dict.fromkeys(given_first) if text not in colour]
    return colour | dict(zip(others, styles.OTHERS, strict=False))


def answer_cells(shown: Sequence[Sequence[str | None]], colour: Mapping[str, str]) -> list[list[str]]:
    """Looks up the colours at the depths of branches."""
    return [
        [styles.UNREVEALED if text is None else colour.get(text, styles.MINOR) for text in branch]
        for branch in shown
    ]


def answer_sign(text: str, answer: str | None, gold: str | None) -> str:
    """Gives the sign that stands on an answer, so that colour alone does not tell right from wrong.

    Returns:
        The sign; empty for an answer that is neither right nor given.
    """
    if text == gold:
        return styles.RIGHT_SIGN
    return styles.WRONG_SIGN if text == answer and gold is not None else ""


def answer_label(text: str, answer: str | None, gold: str | None) -> str:
    """Labels an answer in a legend."""
    notes = [note for note, of in (("right", gold), ("given", answer)) if of == text]
    return short_answer(text) + (f" ({', '.join(notes)})" if notes else "")
