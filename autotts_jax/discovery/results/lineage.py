"""Where a candidate comes from."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from autotts_jax.discovery.archive.archive import Record
from autotts_jax.discovery.archive.records import START, WRITTEN
from autotts_jax.discovery.population import written_of
from autotts_jax.discovery.programs.published import PUBLISHED
from autotts_jax.discovery.programs.rules import Program
from autotts_jax.discovery.programs.variation import constant
from autotts_jax.figures import WIDTHS, new_figure
from autotts_jax.styles import COLOURS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NUMBERED = 16
"""Candidates that a picture can have and still show the number of each."""

IN_ROUND = 0.35
"""How far right of a parent of the same round a candidate is drawn, in rounds."""

STEP = 0.15
"""How far below the others each candidate without a score is drawn, as a share of the range of scores."""


def lineage(candidates: Sequence[Record], number: int) -> list[int]:
    """Numbers of a candidate and of its ancestors, its own first."""
    left, found = deque([number]), dict[int, None]()
    while left:
        one = left.popleft()
        if one not in found:
            found[one] = None
            left.extend(candidates[one]["parents"])
    return list(found)


def lineage_figure(records: Sequence[Record], incumbent: str) -> Figure:
    """Draws a candidate and its ancestors by round and score, with an arrow from every parent.

    There is a panel for each search, because searches use different questions. A candidate that left its
    round before the last rung has played other branch orders: it is hollow, and is drawn below the others.

    Raises:
        InputError: Matplotlib is missing.
    """
    with new_figure(WIDTHS["page"]) as figure:
        _draw(figure, records, incumbent)
    return figure


def _draw(figure: Figure, records: Sequence[Record], incumbent: str) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import ConnectionPatch
    from matplotlib.ticker import MaxNLocator

    folds = sorted({record["fold"] for record in records}, key=lambda fold: (fold is None, fold))
    figure.set_figheight(0.9 + 1.8 * len(folds))
    axes = figure.subplots(len(folds), sharex=True, squeeze=False)[:, 0]
    panels = dict(zip(folds, axes, strict=True))
    places = _places(records)
    proposers = sorted({record["proposer"] for record in records})
    colours = {name: COLOURS[place % len(COLOURS)] for place, name in enumerate(proposers)}
    of_number = {record["number"]: record for record in records}
    for record in records:
        panel, place, colour = panels[record["fold"]], places[record["number"]], colours[record["proposer"]]
        inside = colour if _compared(record) else "white"
        panel.plot(*place, "o", color=colour, markerfacecolor=inside, markersize=4)
        text, below = published_name(record), record["proposer"] == START
        to_the_left = below and text is None
        if text is None and (record is records[0] or len(records) <= NUMBERED):
            text = str(record["number"])
        if text is not None:
            text = f"{text} (incumbent)" if text == incumbent else text
            panel.annotate(
                text,
                place,
                (-4 if to_the_left else 4, -3 if below else 3),
                textcoords="offset points",
                ha="right" if to_the_left else "left",
                va="top" if below else "bottom",
                fontweight="bold" if record is records[0] else "normal",
            )
        for parent in dict.fromkeys(record["parents"]):
            of_parent = panels[of_number[parent]["fold"]]
            arrow = ConnectionPatch(
                places[parent],
                place,
                "data",
                "data",
                axesA=of_parent,
                axesB=panel,
                arrowstyle="->",
                linestyle="-" if of_parent is panel else ":",
                color="0.5",
                linewidth=0.7,
                shrinkA=3,
                shrinkB=3,
            )
            arrow.set_in_layout(False)
            figure.add_artist(arrow)
    for fold, panel in panels.items():
        search = "uses all questions" if fold is None else f"leaves out fold {fold}"
        panel.set_title(f"search that {search}", loc="left")
        panel.margins(0.1, 0.2)
        panel.set_ylabel("score")
    axes[-1].set_xlabel("round")
    axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.suptitle(f"candidate {records[0]['number']} and its ancestors")
    kinds = [(name, colour, colour) for name, colour in colours.items()]
    if not all(map(_compared, records)):
        kinds.append(("left its round early", "0.4", "white"))
    handles = [
        Line2D([], [], marker="o", linestyle="", color=colour, markerfacecolor=inside, label=name)
        for name, colour, inside in kinds
    ]
    figure.legend(handles=handles, loc="outside right upper")


def _places(records: Sequence[Record]) -> dict[int, tuple[float, float]]:
    """Rounds and scores by number; candidates whose scores cannot be compared are below all others."""
    scores: dict[int, float] = {}
    of_fold: dict[int | None, list[float]] = defaultdict(list)
    for record in records:
        if _compared(record):
            written = record["kind"] == WRITTEN
            scores[record["number"]] = written_of(record).score if written else record["scores"][-1]
            of_fold[record["fold"]].append(scores[record["number"]])
    places: dict[int, tuple[float, float]] = {}
    below: dict[tuple[int | None, int], int] = defaultdict(int)
    for record in sorted(records, key=lambda record: int(record["number"])):
        number, fold, x = record["number"], record["fold"], float(record["round"])
        if of_round := [places[parent][0] for parent in record["parents"] if places[parent][0] >= x]:
            x = max(of_round) + IN_ROUND
        if number not in scores:
            known = of_fold[fold] or [0.0]
            below[fold, record["round"]] += 1
            step = STEP * (max(known) - min(known) or 1e-3)
            scores[number] = min(known) - step * below[fold, record["round"]]
        places[number] = x, scores[number]
    return places


def _compared(record: Record) -> bool:
    """Whether a candidate has a score that can be compared with others of its search."""
    return record["metrics"] is not None if record["kind"] == WRITTEN else "cost" in record


def published_name(record: Record) -> str | None:
    """Names a program that people wrote.

    Returns:
        The name; None of any other candidate.
    """
    if record["kind"] == WRITTEN or record["parents"]:
        return None
    program = Program.from_tree(record["program"])
    return next((name for name, one in PUBLISHED.items() if program in (one, constant(one))), None)
