"""Charts of a report, as specifications of Vega-Lite that name their data ``rows``.

They are validated by tests, not as they are written: that would take longer than making them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from autotts_jax.core.costs import UNITS, CostName
from autotts_jax.experiments.batch_rows import BatchRow
from autotts_jax.experiments.summary import Row
from autotts_jax.experiments.tables import percent, points
from autotts_jax.extras import needs
from autotts_jax.pages.charts import ZOOM, cost_scale
from autotts_jax.pages.rendering import Drawn
from autotts_jax.styles import (
    MINOR,
    NEUTRAL,
    OTHERS,
    RIGHT,
    RIGHT_SIGN,
    WRONG,
    WRONG_SIGN,
    Style,
    styles,
)

WHOLE: dict[str, Any] = {"tickMinStep": 1, "format": ",d", "labelExpr": "datum.value % 1 ? '' : datum.label"}
"""An axis of whole numbers: in a short range Vega has ticks between them all the same."""

SIGNS = {RIGHT: RIGHT_SIGN, WRONG: WRONG_SIGN}
"""What stands on answers of a colour."""

ANSWERS = {
    "right": RIGHT,
    "wrong": WRONG,
    "others": OTHERS,
    "minor": MINOR,
    "unrevealed": f"{NEUTRAL}44",
    "signs": SIGNS,
}
"""How answers are drawn, as pages read it."""

GUTTER = 24
"""Pixels of the labels of an axis, so that charts side by side have the same width."""

CROSS = "M-1,-1L1,1M1,-1L-1,1"
"""The mark of a branch that was pruned."""


class Axis(NamedTuple):
    """A cost that charts can have on their axis.

    Attributes:
        field: the attribute of a `Row` that it is.
        title: what it is called.
        format: how numbers of it are written, in d3's notation.
    """

    field: str
    title: str
    format: str


def axes(cost: CostName) -> list[Axis]:
    """Gives the costs of an evaluation, the one that it is about first."""
    tokens = [
        Axis("tokens", "tokens per episode", "~s"),
        Axis("sequential_tokens", "sequential tokens per episode", "~s"),
    ]
    if cost == "tokens":
        return tokens
    own = Axis("cost", f"{cost} an episode, {UNITS[cost]}", "~g" if cost in ("latency", "usd") else "~s")
    return [*tokens, own] if cost == "intervals" else [own, *tokens]


def chart_row(row: Row) -> dict[str, Any]:
    """Gives what charts show of a setting.

    Returns:
        Costs, percentages and texts by name.
    """
    return {
        "setting": row.name,
        "controller": row.controller,
        "cell": row.cell,
        "benchmark": row.benchmark,
        "accuracy": 100 * row.accuracy,
        "accuracy_text": percent(row.accuracy, row.accuracy_low, row.accuracy_high),
        "low": _known(row.accuracy_low, row.accuracy),
        "high": _known(row.accuracy_high, row.accuracy),
        "tokens": row.tokens,
        "sequential_tokens": row.sequential_tokens,
        "cost": row.cost,
        "gain_text": points(row.gain, row.gain_low, row.gain_high),
        "gain": 100 * row.gain,
        "gain_low": _known(row.gain_low, row.gain),
        "gain_high": _known(row.gain_high, row.gain),
    }


def _known(end: float, mean: float) -> float:
    """The end of an interval in percent; the mean itself where so few questions claim nothing."""
    return 100 * (mean if math.isnan(end) else end)


def frontiers(rows: Sequence[Row]) -> list[Drawn]:
    """Draws accuracy against tokens for each benchmark, of the mean of its models where there are several.

    Returns:
        The charts; none without rows.

    Raises:
        InputError: Altair is missing.
    """
    look = styles(row.controller for row in rows)
    last = {row.benchmark: row.model for row in rows}
    drawn = []
    for benchmark, model in last.items():
        here = [row for row in rows if (row.model, row.benchmark) == (model, benchmark)]
        spec = frontier_chart(here, axes("tokens")[0], look, legend=True)
        drawn.append(Drawn(f"{benchmark}, {model}", spec, [chart_row(row) for row in here]))
    return drawn


def frontier_chart(
    rows: Sequence[Row] | Sequence[BatchRow], axis: Axis, look: Mapping[str, Style], legend: bool = False
) -> dict[str, Any]:
    """Draws accuracy against cost, a line for each controller, with what is the best at each cost.

    Returns:
        The specification. Its rows have the name of the controller, percentages ``accuracy``, ``low`` and
        ``high``, the costs, and the texts ``setting`` and ``accuracy_text``.

    Raises:
        InputError: Altair is missing.
    """
    with needs("plot", "a chart"):
        import altair as alt

    costs = [getattr(row, axis.field) for row in rows]
    x = alt.X(
        axis.field,
        type="quantitative",
        title=axis.title,
        scale=cost_scale(min(costs), max(costs)),
        axis=alt.Axis(format=axis.format, tickCount=5, labelOverlap=True),
    )
    y = alt.Y("accuracy:Q", title="accuracy, %", scale=alt.Scale(zero=False, padding=12))
    told = alt.Legend(orient="bottom", columns=3, title=None) if legend else None
    colour = alt.Color("controller:N", legend=told, scale=_scale(look, "colour"))
    shape = alt.Shape("controller:N", legend=told, scale=_scale(look, "shape"))
    dash = alt.StrokeDash("controller:N", legend=told, scale=_scale(look, "dash"))
    tips = [
        alt.Tooltip("setting:N"),
        alt.Tooltip("accuracy_text:N", title="accuracy, % [95 %]"),
        *(alt.Tooltip(field, type="quantitative", format=",.4~g") for field in _cost_fields(axis, rows[0])),
    ]
    base = alt.Chart(alt.NamedData("rows")).encode(x=x)
    best = (
        base.transform_window(
            best="max(accuracy)",
            sort=[alt.SortField(axis.field), alt.SortField("accuracy", "descending")],
            frame=[None, 0],
        )
        .mark_line(interpolate="step-after", strokeDash=[2, 3], strokeWidth=1.5, color=NEUTRAL, clip=True)
        .encode(y="best:Q", order=alt.Order(axis.field, type="quantitative"))
    )
    of_controllers = base.encode(color=colour)
    lines = of_controllers.mark_line(strokeWidth=1.5, clip=True).encode(
        y=y, order=alt.Order(axis.field, type="quantitative"), strokeDash=dash
    )
    errors = of_controllers.mark_rule(clip=True, opacity=0.35).encode(y="low:Q", y2="high:Q")
    points = of_controllers.mark_point(filled=True, size=110, opacity=1, clip=True).encode(
        y=y, shape=shape, tooltip=tips
    )
    zoom = alt.selection_interval(bind="scales", zoom=ZOOM)
    chart = best + lines + errors + points.add_params(zoom)
    return chart.properties(width="container", height=300).to_dict(validate=False)


def gains_chart(look: Mapping[str, Style]) -> dict[str, Any]:
    """Draws gains in accuracy with their intervals, a line for each setting.

    Returns:
        The specification, without a height. Its rows have the controller, percentage points ``gain``,
        ``gain_low`` and ``gain_high``, and the texts ``setting`` and ``gain_text``.

    Raises:
        InputError: Altair is missing.
    """
    with needs("plot", "a chart"):
        import altair as alt

    colour = alt.Color("controller:N", legend=None, scale=_scale(look, "colour"))
    shape = alt.Shape("controller:N", legend=None, scale=_scale(look, "shape"))
    axis = alt.Axis(format="+~f", tickCount=5, labelOverlap=True)
    x = alt.X("gain:Q", title="Δ accuracy, points", axis=axis)
    tips = [alt.Tooltip("setting:N"), alt.Tooltip("gain_text:N", title="Δ accuracy, 95 %")]
    y = alt.Y("setting:N", title=None, sort=None, axis=alt.Axis(labelLimit=160))
    base = alt.Chart(alt.NamedData("rows")).encode(y=y, color=colour)
    zero = alt.Chart(alt.NamedData("rows")).mark_rule(color=NEUTRAL, strokeDash=[2, 3]).encode(x=alt.datum(0))
    intervals = base.mark_rule(strokeWidth=2, clip=True).encode(
        x="gain_low:Q", x2="gain_high:Q", tooltip=tips
    )
    points = base.mark_point(filled=True, size=90, opacity=1, clip=True).encode(
        x=x, shape=shape, tooltip=tips
    )
    return (zero + intervals + points).properties(width="container").to_dict(validate=False)


def episode_chart() -> dict[str, Any]:
    """Draws an episode: branches as rows, depth as columns, coloured by answer.

    Returns:
        The specification, without a height. Its ``rows`` are depths of branches, with the ends ``x``, ``x2``,
        ``y``, ``y2``, a ``colour``, the ``sign`` of the answer and texts; its ``marks`` are ends of branches
        with ``x``, ``y`` and a ``shape``. Its parameters ``depths`` and ``branches`` say how many fit.

    Raises:
        InputError: Altair is missing.
    """
    with needs("plot", "a chart"):
        import altair as alt

    depths, branches = alt.param("depths", value=1), alt.param("branches", value=1)
    x = alt.X(
        "x:Q",
        title="depth, intervals",
        scale=alt.Scale(domain=[0, alt.expr("depths + 1")], nice=False),
        axis=alt.Axis(grid=False, **WHOLE),
    )
    y = alt.Y(
        "y:Q",
        title="branch, in opening order",
        scale=alt.Scale(domain=[0, alt.expr("branches")], nice=False, reverse=True),
        axis=alt.Axis(grid=False, minExtent=GUTTER, **WHOLE),
    )
    tips = [alt.Tooltip(f"{name}:N") for name in ("branch", "depth", "answer", "round")]
    middle = {"x": x, "y": y, "text": "sign:N", "tooltip": tips}
    signs = (
        alt.Chart(alt.NamedData("rows"))
        .transform_filter("datum.sign")
        .transform_calculate(middle_x="(datum.x + datum.x2) / 2", middle_y="(datum.y + datum.y2) / 2")
        .mark_text(color="white", fontSize=9, fontWeight="bold", baseline="middle")
        .encode(**middle | {"x": alt.X("middle_x:Q"), "y": alt.Y("middle_y:Q")})
    )
    cells = (
        alt.Chart(alt.NamedData("rows"))
        .mark_rect()
        .encode(x=x, x2="x2:Q", y=y, y2="y2:Q", color=alt.Color("colour:N", scale=None), tooltip=tips)
    )
    marks = (
        alt.Chart(alt.NamedData("marks"))
        .mark_point(size=20, strokeWidth=1.25, color=NEUTRAL, opacity=1)
        .encode(x="x:Q", y="y:Q", shape=alt.Shape("shape:N", scale=None))
    )
    return (
        (cells + signs + marks)
        .add_params(depths, branches)
        .properties(width="container")
        .to_dict(validate=False)
    )


def drawn_episode(
    title: str,
    colours: Sequence[Sequence[str]],
    finished: Sequence[bool],
    pruned: Sequence[bool],
    legend: Mapping[str, str],
) -> Drawn:
    """Draws the end of an episode.

    Raises:
        InputError: Altair is missing.
    """
    spec = episode_chart()
    room = {"depths": max(map(len, colours), default=1), "branches": max(len(colours), 1)}
    spec["params"] = [param | {"value": room.get(param["name"])} for param in spec["params"]]
    spec["height"] = max(150, min(420, 12 * len(colours)))
    rows = [
        {
            "x": depth + 0.5,
            "x2": depth + 1.5,
            "y": number,
            "y2": number + 1,
            "colour": colour,
            "sign": SIGNS.get(colour, ""),
        }
        for number, branch in enumerate(colours)
        for depth, colour in enumerate(branch)
    ]
    ends = zip(colours, finished, pruned, strict=True)
    marks = [
        {"x": len(branch) + 0.9, "y": number + 0.5, "shape": CROSS if gone else "circle"}
        for number, (branch, done, gone) in enumerate(ends)
        if done or gone
    ]
    return Drawn(title, spec | {"datasets": {"marks": marks}}, rows, legend)


def votes_chart() -> dict[str, Any]:
    """Draws how many branches say what, round by round.

    Returns:
        The specification. Its ``rows`` have a ``round``, an ``answer``, its ``votes`` and its ``colour``; its
        ``now`` is a row with the ``round`` that is shown. Its parameters ``rounds`` and ``most``
        are how many rounds and votes there is room for.

    Raises:
        InputError: Altair is missing.
    """
    with needs("plot", "a chart"):
        import altair as alt

    rounds, most = alt.param("rounds", value=1), alt.param("most", value=1)
    x = alt.X(
        "round:Q",
        title="round",
        scale=alt.Scale(domain=[0, alt.expr("rounds")], nice=False),
        axis=alt.Axis(grid=False, **WHOLE),
    )
    scale = alt.Scale(domain=[0, alt.expr("most")], nice=False)
    y = alt.Y("votes:Q", title="votes", scale=scale, axis=alt.Axis(tickCount=4, minExtent=GUTTER, **WHOLE))
    lines = (
        alt.Chart(alt.NamedData("rows"))
        .mark_line(interpolate="step-after", strokeWidth=1.5)
        .encode(x=x, y=y, color=alt.Color("colour:N", scale=None), detail="answer:N")
    )
    now = alt.Chart(alt.NamedData("now")).mark_rule(color=NEUTRAL, strokeDash=[2, 3]).encode(x="round:Q")
    return (
        (lines + now)
        .add_params(rounds, most)
        .properties(width="container", height=110)
        .to_dict(validate=False)
    )


def page_styles(look: Mapping[str, Style]) -> dict[str, dict[str, Any]]:
    """Gives the styles of controllers as pages read them.

    Returns:
        By controller its ``colour``; its ``shape``, an SVG path between -1 and 1; and its ``dash`` in pixels.
    """
    return {
        name: {"colour": one.colour, "shape": one.mark.path, "dash": [2 * length for length in one.dash]}
        for name, one in look.items()
    }


def _scale(look: Mapping[str, Style], part: str) -> Any:
    import altair as alt

    return alt.Scale(domain=list(look), range=[one[part] for one in page_styles(look).values()])


def _cost_fields(axis: Axis, row: Row | BatchRow) -> list[str]:
    """The costs that a tooltip has: those of a row."""
    return [
        field for field in dict.fromkeys((axis.field, "tokens", "sequential_tokens")) if hasattr(row, field)
    ]
