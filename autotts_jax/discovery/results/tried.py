"""What the searches of a run have tried, as the parts of a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autotts_jax.discovery.archive.archive import Record
from autotts_jax.discovery.results.lineage import lineage, published_name
from autotts_jax.extras import needs
from autotts_jax.pages.charts import ZOOM, cost_scale, curves_chart
from autotts_jax.pages.rendering import Cells, CellsRow, Drawn, Part
from autotts_jax.styles import NEUTRAL, RAMP, styles

LISTED = 20
"""Candidates that a report lists."""

REFERENCES = ("sc", "cmc")
"""Published controllers that the chart of a search shows as lines."""


def archive_parts(table: Sequence[Mapping[str, Any]], candidates: Sequence[Record]) -> list[Part]:
    """Shows how scores and frontiers grew, and the best candidates; nothing where all have failed."""
    rows = [row for row in table if row["score"] is not None]
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
    archive = _frontier_chart(points, list(names.values()), _references(candidates, rows, names))
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
            tables=[_candidates(candidates, last[:LISTED])],
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
    candidates: Sequence[Record], rows: Sequence[Mapping[str, Any]], names: Mapping[int | None, str]
) -> list[dict[str, Any]]:
    """The objectives of self-consistency and of CMC on the questions of each search."""
    named = {row["number"]: published_name(candidates[row["number"]]) for row in rows}
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


def _candidates(candidates: Sequence[Record], rows: Sequence[Mapping[str, Any]]) -> Cells:
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
                str(len(lineage(candidates, row["number"])) - 1),
            ]
        )
        for row in rows
    ]
    return Cells("Best candidates", headings, lines)
