"""The report of a run: its archive, the test, the controller that was found and the manifest on a page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autotts_jax.discovery.programs.interpreter import BETAS
from autotts_jax.discovery.results.lineage import published_name
from autotts_jax.experiments.tables import thousands
from autotts_jax.extras import needs
from autotts_jax.pages.charts import ZOOM, cost_scale, curves_chart
from autotts_jax.pages.rendering import Cells, CellsRow, Drawn, Listing, Part, render_parts
from autotts_jax.styles import COLOURS, NEUTRAL, RAMP, styles

if TYPE_CHECKING:
    from autotts_jax.discovery.results.found import Discovery

REPORT = "report.html"
"""The report's file in a run's folder."""

LISTED = 20
"""Candidates that a report lists."""

NO_FIGURE = "–"

REFERENCES = ("sc", "cmc")
"""Published controllers that the chart of a search shows as lines."""


def discovery_report(found: Discovery) -> str:
    """Makes the report of a run.

    Args:
        found: the results of the run.

    Returns:
        The HTML of a page that needs nothing else.

    Raises:
        InputError: Altair is missing.
    """
    begun = found.begun
    facts = {
        "to beat": found.incumbent,
        "verdict": "no test yet" if found.test is None else _verdict(found),
        "candidates": f"{len(found.candidates):,}",
        "CPU time": f"{found.cpu_seconds / 60:,.1f} minutes",
        "proposers": ", ".join(map(str, begun.get("proposers", ()))),
        "seed": str(begun.get("seed", NO_FIGURE)),
        "most branches": str(begun.get("max_branches", NO_FIGURE)),
        "cells": ", ".join(cell["cell"] for cell in begun.get("data", ())),
    }
    manifest = Part(
        "Manifest",
        "What the run was begun with.",
        listings=[Listing("Manifest as JSON", json.dumps(begun, indent=2, ensure_ascii=False))],
    )
    tested = [] if found.test is None else [_test(found, found.test), _source(found)]
    title = f"Search for a controller better than {found.incumbent}"
    return render_parts("discovery", title, facts, [*archive_parts(found), *tested, manifest])


def archive_parts(found: Discovery) -> list[Part]:
    """Shows what the searches have tried: how scores and frontiers grew, and the best candidates.

    Args:
        found: the results of a run.

    Returns:
        The parts of a page; none where all candidates have failed.

    Raises:
        InputError: Altair is missing.
    """
    rows = [row for row in found.to_arrow().to_pylist() if row["score"] is not None]
    if not rows:
        return []
    searches = sorted({row["fold"] for row in rows}, key=lambda fold: (fold is not None, fold))
    names = {fold: _search_name(fold) for fold in searches}
    points = [
        {
            "search": names[row["fold"]],
            "round": row["round"],
            "candidate": row["number"],
            "proposer": row["proposer"],
            "objective": row["objective"],
            "cost": row["cost"],
            "width": row["width"],
        }
        for row in rows
    ]
    last = sorted((row for row in rows if row["fold"] == searches[0]), key=lambda row: -row["score"])
    archive = _frontier_chart(points, list(names.values()), _references(found, rows, names))
    progress = curves_chart("round", list(names.values()), stepped=True)
    return [
        Part(
            "Frontier",
            "The objective, a mean over β on the questions of a search, against the cost in branches of mean "
            "length: a mark for each candidate that has reached the end of its round. The step line is the "
            "best objective at each cost; dashed lines are published controllers. The slider goes back to "
            "earlier rounds.",
            [Drawn("Archive", archive, points)],
        ),
        Part(
            "Progress",
            "The best score so far, by round. A score is the objective less the price of a program’s parts; "
            "those of searches that leave out different questions cannot be compared.",
            [
                Drawn("Best score", progress, _best(rows, names)),
            ],
        ),
        Part(
            "Candidates",
            f"The best of the search of {names[searches[0]]}.",
            tables=[_candidates(found, last[:LISTED])],
        ),
    ]


def _search_name(fold: int | None) -> str:
    return "all questions" if fold is None else f"all but fold {fold}"


def _best(rows: Sequence[Mapping[str, Any]], names: Mapping[int | None, str]) -> list[dict[str, Any]]:
    """The best score of each search after each of its rounds."""
    best: dict[tuple[int | None, int], float] = {}
    reached: dict[int | None, float] = {}
    for row in sorted(rows, key=lambda row: int(row["round"])):
        fold = row["fold"]
        reached[fold] = max(row["score"], reached.get(fold, row["score"]))
        best[fold, row["round"]] = reached[fold]
    return [
        {"at": round_number, "value": score, "line": names[fold]}
        for (fold, round_number), score in best.items()
    ]


def _references(
    found: Discovery, rows: Sequence[Mapping[str, Any]], names: Mapping[int | None, str]
) -> list[dict[str, Any]]:
    """The objectives of self-consistency and of CMC on the questions of each search."""
    named = {row["number"]: published_name(found.candidates[row["number"]]) for row in rows}
    return [
        {"search": names[row["fold"]], "name": name, "objective": row["objective"]}
        for row in rows
        if (name := named[row["number"]]) in REFERENCES
    ]


def _frontier_chart(
    points: Sequence[Mapping[str, Any]], searches: Sequence[str], references: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Draws objective against cost, of a search up to a round, with the best at each cost."""
    with needs("plot", "a chart"):
        import altair as alt

    rounds = [point["round"] for point in points]
    costs = [point["cost"] for point in points]
    search = alt.param(
        name="search", value=searches[0], bind=alt.binding_select(options=searches, name="Search ")
    )
    until = alt.param(
        name="until",
        value=max(rounds),
        bind=alt.binding_range(min=min(rounds), max=max(rounds), step=1, name="Rounds up to "),
    )
    objectives = [point["objective"] for point in points]
    spare = 0.05 * (max(objectives) - min(objectives)) or 0.01
    # As no round may be left, the data does not say how far the colours reach.
    colours = alt.Scale(range=list(RAMP), interpolate="lab", domain=[min(rounds), max(rounds)])
    limits = alt.Scale(domain=[min(objectives) - spare, max(objectives) + spare], nice=False)
    base = (
        alt.Chart(alt.NamedData("rows"))
        .transform_filter("datum.search === search && datum.round <= until")
        .encode(
            x=alt.X(
                "cost:Q",
                title="cost, branches",
                scale=cost_scale(min(costs), max(costs)),
                axis=alt.Axis(format="~g", tickCount=5, labelOverlap=True),
            )
        )
    )
    best = (
        base.transform_window(
            best="max(objective)",
            sort=[alt.SortField("cost"), alt.SortField("objective", "descending")],
            frame=[None, 0],
        )
        .mark_line(interpolate="step-after", strokeWidth=1.5, color=NEUTRAL, clip=True)
        .encode(y=alt.Y("best:Q", scale=limits), order=alt.Order("cost:Q"))
    )
    tips = [
        alt.Tooltip("candidate:Q"),
        alt.Tooltip("proposer:N"),
        alt.Tooltip("round:Q"),
        alt.Tooltip("objective:Q", format=".4f"),
        alt.Tooltip("cost:Q", title="cost, branches", format=".1f"),
        alt.Tooltip("width:Q", title="branches opened", format=".1f"),
    ]
    marks = base.mark_point(filled=True, size=40, opacity=0.85, clip=True).encode(
        y=alt.Y("objective:Q", title="objective", scale=limits, axis=alt.Axis(tickCount=6)),
        color=alt.Color("round:Q", scale=colours, legend=alt.Legend(orient="bottom", title="round")),
        tooltip=tips,
    )
    zoom = alt.selection_interval(bind="scales", zoom=ZOOM)
    of_search = alt.Chart(alt.InlineData(values=list(references))).transform_filter("datum.search === search")
    known = []
    for name, style in styles(REFERENCES).items():
        line = of_search.transform_filter(alt.datum.name == name).encode(y=alt.Y("objective:Q", scale=limits))
        known.append(line.mark_rule(color=style.colour, strokeDash=[4, 3], strokeWidth=1.5))
        label = line.mark_text(color=style.colour, fontSize=12, align="left", baseline="bottom", dx=4, dy=-2)
        known.append(label.encode(x=alt.value(0), text="name:N"))
    chart = alt.layer(*known, best, marks.add_params(zoom)).add_params(search, until)
    return chart.properties(width="container", height=320).to_dict()


def _candidates(found: Discovery, rows: Sequence[Mapping[str, Any]]) -> Cells:
    headings = (
        "candidate",
        "proposer",
        "round",
        "score",
        "objective",
        "branches",
        "width",
        "parts",
        "ancestors",
    )
    lines = [
        CellsRow(
            [
                str(row["number"]),
                row["proposer"],
                str(row["round"]),
                f"{row['score']:.4f}",
                f"{row['objective']:.4f}",
                f"{row['cost']:.1f}",
                f"{row['width']:.1f}",
                "a file" if row["parts"] is None else str(row["parts"]),
                str(len(found.lineage(row["number"])) - 1),
            ]
        )
        for row in rows
    ]
    return Cells("Best candidates", headings, lines)


def _verdict(found: Discovery) -> str:
    return f"candidate {found.number} {'promoted' if found.promoted else 'not promoted'}"


def _test(found: Discovery, test: Mapping[str, Any]) -> Part:
    """The verdict, and the paired differences from the incumbent behind it."""
    text = (
        f"On questions that searches left out they gain {test['gain']:+.4f} of objective on "
        f"{found.incumbent}, each question under the same branch orders; the lower bound is "
        f"{test['low']:+.4f} at {100 * test['level']:.2g} %. {_verdict(found).capitalize()}."
    )
    if test["falls"]:
        falls = ", ".join(f"{beta:g}" for beta in test["falls"])
        text += f" Tokens fall after β = {falls}, which rules promotion out."
    if found.excel is not None:
        text += f" Excel@best: {100 * found.excel:+.1f} %."
    gains = sorted(test.get("gains", ()))
    rows = [{"rank": rank, "gain": gain} for rank, gain in enumerate(gains, 1)]
    tables = [_matched(found, test)]
    if "baselines" in test:
        known = sorted(test["baselines"].items(), key=lambda named: -named[1])
        named = [("found", test["objective"]), *known]
        lines = [CellsRow([name, f"{objective:.4f}"]) for name, objective in named]
        tables.append(Cells("Objective on questions left out", ["controller", "objective"], lines))
    tables.append(_tokens(test))
    drawn = [Drawn(f"Gain over {found.incumbent} on each question", _gains_chart(), rows)] if rows else []
    return Part("Test", text, drawn, tables)


def _gains_chart() -> dict[str, Any]:
    """Draws the gain on each question, the least first."""
    with needs("plot", "a chart"):
        import altair as alt

    x = alt.X("rank:O", title="questions, by gain", axis=alt.Axis(labels=False, ticks=False))
    tips = [alt.Tooltip("gain:Q", title="Δ objective", format="+.4f")]
    bars = alt.Chart(alt.NamedData("rows")).mark_bar(color=COLOURS[1])
    bars = bars.encode(x=x, y=alt.Y("gain:Q", title="Δ objective"), tooltip=tips)
    return bars.properties(width="container", height=180).to_dict()


def _matched(found: Discovery, test: Mapping[str, Any]) -> Cells:
    """What is found against each setting of the incumbent, at its accuracy and at its tokens."""
    settings = zip(found.begun["incumbent"], test["matched_tokens"], test["matched_accuracy"], strict=False)
    lines = [
        CellsRow(
            [
                name,
                NO_FIGURE if share is None else f"{share:.2f}",
                NO_FIGURE if more is None else f"{100 * more:+.1f}",
            ]
        )
        for name, share, more in settings
    ]
    headings = ("against", "tokens ratio at its accuracy", "Δ accuracy at its tokens, points")
    return Cells("Setting by setting, on questions left out", headings, lines)


def _tokens(test: Mapping[str, Any]) -> Cells:
    """Tokens of the candidate that was tested, by β."""
    betas = [f"β = {beta:g}" for beta in BETAS] if len(test["tokens"]) > 1 else ["every β"]
    errors = test.get("tokens_se", [None] * len(test["tokens"]))
    lines = [
        CellsRow([beta, thousands(tokens), NO_FIGURE if error is None else thousands(error)])
        for beta, tokens, error in zip(betas, test["tokens"], errors, strict=False)
    ]
    return Cells(f"Tokens of candidate {test['number']}", ["setting", "ktokens", "±"], lines)


def _source(found: Discovery) -> Part:
    promoted = "was promoted" if found.promoted else "was tested last, and not promoted"
    return Part(
        "Controller",
        f"Candidate {found.number} {promoted}. discover export writes this file; evaluate and trace play it.",
        listings=[Listing(f"Source of candidate {found.number}", found.source())],
    )
