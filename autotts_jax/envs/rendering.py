"""Views of one episode: branches as rows, depth as columns, a letter or a colour for each answer."""

from __future__ import annotations

import math
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Bool, Int, UInt8

from autotts_jax.extras import needs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

GOLD_ANSWER = "#2a9d55"
WRONG_ANSWER = "#d1495b"
SIGNAL_COLOURS = "viridis"
"""Matplotlib's name of the colours of a signal, from its least value to its largest."""
OTHER_COLOURS = ("#3c6fb4", "#edae49", "#8e5ea2", "#5bc0be", "#b5651d", "#e29ac4")
MINOR_ANSWER = "#b8b8b8"
UNREVEALED_COLOUR = "#f0f0f0"

FINISHED, PRUNED, RUNNING = "o", "x", ">"
FRAME_INCHES = (9, 6)
"""The largest width and height of a frame, so that it fits a page."""
PANELS = 3
"""Pictures side by side in one figure."""
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
        """Sums the episode up in one line.

        Args:
            name: name of the environment.
        """
        return f"{name}, step {self.time}, {self.tokens:,} tokens, answer {_letter(self.answer) or 'none'}"


def draw_text(name: str, view: Frame) -> str:
    """Draws an episode as text, one line per opened branch.

    Args:
        name: name of the environment.
        view: the episode.
    """
    lines = [view.headline(name)]
    for branch, cells in enumerate(view.cells()):
        mark = PRUNED if view.pruned[branch] else FINISHED if view.finished[branch] else RUNNING
        lines.append(f"{branch:3} {''.join(cell or '.' for cell in cells)} {mark}")
    return "\n".join(lines) + "\n"


def draw_array(name: str, view: Frame) -> UInt8[np.ndarray, "height width 3"]:
    """Draws an episode as an image whose size does not depend on what has happened in it.

    Args:
        name: name of the environment.
        view: the episode.

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
        size=view.shown.shape,
    )
    figure.set_size_inches(np.minimum(figure.get_size_inches(), FRAME_INCHES))
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
    size: tuple[int, int] | None = None,
    signals: Mapping[str, Sequence[Sequence[float | None]]] | None = None,
) -> Figure:
    """One episode, coloured by answer, and beside that by the values of each signal.

    Args:
        title: what stands above it.
        shown: answers at the depths of each opened branch, None where not revealed.
        finished: branches read to their end.
        pruned: branches given up.
        answer: the answer given, None for none.
        gold: the right answer; None where it is not to be seen.
        size: branches and depths that there is room for; as many as there are when None.
        signals: values at the same depths by the name of the signal, None where not revealed.

    Raises:
        InputError: Matplotlib is missing.
    """
    with needs("plot", "a picture"):
        from matplotlib.cm import ScalarMappable
        from matplotlib.figure import Figure
        from matplotlib.patches import Patch

    signals = signals or {}
    counts = Counter(text for branch in shown for text in branch if text is not None)
    colour = answer_colours(shown, answer, gold)
    named = [text for text in colour if text in counts]
    rows, depth = size or (max(len(shown), 1), max(map(len, shown), default=1))

    count = 1 + len(signals)
    across, down = min(count, PANELS), math.ceil(count / PANELS)
    inches = across * min(2.5 + 0.16 * depth, 16) + 2, down * max(1.4 + 0.14 * rows, 2.4)
    figure = Figure(figsize=inches, layout="constrained")
    (panel, *others), spare = np.split(figure.subplots(down, across, squeeze=False).ravel(), [count])
    for each in spare:
        each.remove()
    _draw_cells(panel, answer_cells(shown, colour), rows, depth)
    for other, (name, values) in zip(others, signals.items(), strict=True):
        _draw_cells(other, signal_cells(values), rows, depth)
        figure.colorbar(ScalarMappable(_signal_scale(values), SIGNAL_COLOURS), ax=other)
        other.set_title(name, fontsize=10)
    lengths = [len(branch) for branch in shown]
    for each in (panel, *others):
        _mark_ends(each, lengths, finished, pruned)
        each.set_xlim(0.5, depth + 1.8)
        each.set_xlabel("depth, intervals")
        each.set_ylabel("branch, in opening order")
    (figure.suptitle if others else panel.set_title)(title, fontsize=10)
    swatches = [Patch(color=colour[text], label=answer_label(text, answer, gold)) for text in named]
    if len(counts) > len(named):
        swatches.append(Patch(color=MINOR_ANSWER, label=f"{len(counts) - len(named)} other answers"))
    marks = panel.get_legend_handles_labels()[0]
    figure.legend(handles=swatches + marks, loc="outside right upper", fontsize=8, frameon=False)
    return figure


def _draw_cells(panel: Axes, cells: Sequence[Sequence[str]], rows: int, depth: int) -> None:
    """Draws the depths of branches in their colours."""
    from matplotlib.colors import to_rgb

    image = np.ones((rows, depth, 3))
    for row, branch in enumerate(cells):
        for column, colour in enumerate(branch):
            image[row, column] = to_rgb(colour)
    extent = (0.5, depth + 0.5, rows - 0.5, -0.5)
    panel.imshow(image, aspect="auto", extent=extent, interpolation="none")


def _mark_ends(panel: Axes, lengths: Sequence[int], finished: Sequence[bool], pruned: Sequence[bool]) -> None:
    """Marks where each branch ends, and how."""
    from matplotlib.ticker import MaxNLocator

    ends, branches = np.array(lengths) + 0.9, np.arange(len(lengths))
    done, given_up = np.asarray(finished, bool), np.asarray(pruned, bool)
    for mask, marker, label in (
        (done, FINISHED, "finished"),
        (given_up, PRUNED, "pruned"),
        (~done & ~given_up, RUNNING, "running"),
    ):
        if mask.any():
            panel.scatter(
                ends[mask], branches[mask], marker=marker, s=14, c="black", linewidths=0.9, label=label
            )
    panel.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def signal_cells(values: Sequence[Sequence[float | None]]) -> list[list[str]]:
    """Gives colours to the values of a signal.

    Args:
        values: values at the depths of each opened branch, None where not revealed.

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
        [UNREVEALED_COLOUR if value is None else to_hex(colours(scale(value))) for value in branch]
        for branch in values
    ]


def signal_ends(values: Sequence[Sequence[float | None]]) -> tuple[float, ...]:
    """Finds the least and the largest value of a signal.

    Args:
        values: values at the depths of each opened branch, None where not revealed.

    Returns:
        Both; nothing where none is revealed.
    """
    known = [value for branch in values for value in branch if value is not None]
    return (min(known), max(known)) if known else ()


def _signal_scale(values: Sequence[Sequence[float | None]]) -> Normalize:
    from matplotlib.colors import Normalize

    return Normalize(*(signal_ends(values) or (0, 0)))


def short_answer(text: str) -> str:
    """Shortens an answer to one line, without dollar signs, which would start a formula.

    Args:
        text: the answer.
    """
    text = " ".join(text.split())
    return (text if len(text) <= 16 else text[:15] + "…").replace("$", r"\$")


def answer_colours(
    shown: Sequence[Sequence[str | None]], answer: str | None, gold: str | None
) -> dict[str, str]:
    """Gives colours to the right answer, to the one that is given and to the most common others.

    Args:
        shown: answers at the depths of each opened branch, None where not revealed.
        answer: the answer given, None for none.
        gold: the right answer; None where it is not to be seen.

    Returns:
        Colours by answer; answers without one share `MINOR_ANSWER`.
    """
    counts = Counter(text for branch in shown for text in branch if text is not None)
    colour = {} if gold is None else {gold: GOLD_ANSWER}
    if answer is not None:
        colour.setdefault(answer, WRONG_ANSWER)
    others = [text for text, _ in counts.most_common() if text not in colour]
    return colour | dict(zip(others, OTHER_COLOURS, strict=False))


def answer_cells(shown: Sequence[Sequence[str | None]], colour: Mapping[str, str]) -> list[list[str]]:
    """Looks up the colours at the depths of branches.

    Args:
        shown: answers at the depths of each opened branch, None where not revealed.
        colour: colours by answer, as `answer_colours` gives them.
    """
    return [
        [UNREVEALED_COLOUR if text is None else colour.get(text, MINOR_ANSWER) for text in branch]
        for branch in shown
    ]


def answer_label(text: str, answer: str | None, gold: str | None) -> str:
    """Labels an answer in a legend.

    Args:
        text: the answer.
        answer: the answer given, None for none.
        gold: the right answer; None where it is not to be seen.
    """
    notes = [note for note, of in (("right", gold), ("given", answer)) if of == text]
    return short_answer(text) + (f" ({', '.join(notes)})" if notes else "")
