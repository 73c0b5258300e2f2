"""What a notebook shows of results: a table, and charts as pictures, which need no script."""

from __future__ import annotations

import base64
import html
from collections.abc import Callable, Sequence

from autotts_jax.extras import needs
from autotts_jax.pages.rendering import Drawn, available, chart_json
from autotts_jax.terminal import printable

WIDTH = 480
"""Width of a chart, in pixels."""

FIGURE = (
    '<figure style="display:inline-block;margin:0 1em 1em 0;max-width:100%;vertical-align:top">'
    "<figcaption>{caption}</figcaption>{legend}"
    '<img style="max-width:100%;background:white" alt="{caption}" src="data:image/svg+xml;base64,{picture}">'
    "</figure>"
)


def shown(table: str, draw: Callable[[], Sequence[Drawn]]) -> str:
    """Makes what a notebook shows.

    Args:
        table: the HTML of a table.
        draw: draws the charts below it; called where Altair and what it needs are installed.

    Returns:
        HTML: the table, and the charts as pictures; without the extra ``plot`` the table alone.
    """
    if not available():
        return table
    return table + "".join(
        FIGURE.format(
            caption=html.escape(printable(drawn.caption)), legend=_legend(drawn), picture=_picture(drawn)
        )
        for drawn in draw()
    )


def _legend(drawn: Drawn) -> str:
    entries = "".join(
        f'<span style="color:{colour}">■</span> {html.escape(text)} ' for text, colour in drawn.legend.items()
    )
    return f"<div>{entries}</div>" if entries else ""


def _picture(drawn: Drawn) -> str:
    """A chart as SVG, in base 64."""
    with needs("plot", "a chart"):
        import vl_convert

    datasets = {**drawn.spec.get("datasets", {}), "rows": drawn.rows}
    spec = {**drawn.spec, "width": WIDTH, "datasets": datasets}
    return base64.b64encode(vl_convert.vegalite_to_svg(chart_json(spec)).encode()).decode()
