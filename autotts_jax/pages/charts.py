"""Charts that several kinds of pages have, as specifications of Vega-Lite that name their data ``rows``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from autotts_jax.extras import needs
from autotts_jax.styles import COLOURS, styles

ZOOM = "wheel![event.shiftKey || event.ctrlKey || event.metaKey]"
"""A wheel alone scrolls the page."""


def curves_chart(
    axis: str,
    lines: Sequence[str] = (),
    stepped: bool = False,
    references: Mapping[str, float] = MappingProxyType({}),
) -> dict[str, Any]:
    """Draws numbers over the course of a run.

    Returns:
        The specification. Its rows have whole numbers ``at``, numbers ``value``, and the name of their
        ``line`` where there are several.

    Raises:
        InputError: Altair is missing.
    """
    with needs("plot", "a chart"):
        import altair as alt

    legend = alt.Legend(orient="bottom", columns=3, title=None)
    colours = alt.Scale(domain=list(lines), range=list(COLOURS))
    colour = alt.Color("line:N", scale=colours, legend=legend) if lines else alt.value(COLOURS[1])
    tips = [
        *([alt.Tooltip("line:N", title="of")] if lines else []),
        alt.Tooltip("at:Q", title=axis, format=","),
        alt.Tooltip("value:Q", format=",.4~g"),
    ]
    base = alt.Chart(alt.NamedData("rows")).encode(
        x=alt.X(
            "at:Q", title=axis, axis=alt.Axis(tickCount=5, tickMinStep=1, labelOverlap=True, format="~s")
        ),
        y=alt.Y("value:Q", title=None, scale=alt.Scale(zero=False, padding=8), axis=alt.Axis(tickCount=5)),
        color=colour,
    )
    line = base.mark_line(strokeWidth=1.5, clip=True, interpolate="step-after" if stepped else "linear")
    marks = base.mark_point(filled=True, size=18, opacity=1, clip=True).encode(tooltip=tips)
    zoom = alt.selection_interval(bind="scales", zoom=ZOOM)
    chart = line + marks.add_params(zoom)
    if references:
        chart = reference_lines(references) + chart
    return chart.properties(width="container", height=180).to_dict()


def reference_lines(references: Mapping[str, float]) -> Any:
    """Draws horizontal lines with the names of controllers, each in the controller's style.

    Returns:
        The chart of Altair.

    Raises:
        InputError: Altair is missing.
    """
    with needs("plot", "a chart"):
        import altair as alt

    layers = []
    for name, style in styles(references).items():
        base = alt.Chart(alt.InlineData(values=[{"name": name, "value": references[name]}])).encode(
            y="value:Q"
        )
        tips = [alt.Tooltip("name:N", title="controller"), alt.Tooltip("value:Q", format=",.4~g")]
        dash = [2 * length for length in style.dash]
        rule = base.mark_rule(color=style.colour, strokeDash=dash, strokeWidth=1.5)
        text = base.mark_text(color=style.colour, fontSize=12, align="left", baseline="bottom", dx=4, dy=-2)
        layers += [rule.encode(tooltip=tips), text.encode(x=alt.value(0), text="name:N")]
    return alt.layer(*layers)


def cost_scale(least: float, most: float) -> Any:
    """Gives the scale of an axis of costs: logarithmic where they differ much.

    Returns:
        The scale of Altair.

    Raises:
        InputError: Altair is missing.
    """
    with needs("plot", "a chart"):
        import altair as alt

    if least > 0 and most > 4 * least:
        return alt.Scale(type="log", domain=[least / 1.2, most * 1.2], nice=False)
    return alt.Scale(domain=[0, 1.1 * most or 1], nice=False)
