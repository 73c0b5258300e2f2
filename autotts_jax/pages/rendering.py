"""A page as one HTML file: text, tables, data, style, scripts and the library that draws charts."""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import importlib.util
import json
import math
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from autotts_jax.errors import InputError
from autotts_jax.extras import needs
from autotts_jax.files import make_folder, write_atomically
from autotts_jax.terminal import printable


def available() -> bool:
    """Tells whether what pages need is installed."""
    return all(importlib.util.find_spec(name) is not None for name in ("altair", "jinja2", "vl_convert"))


class Cells(NamedTuple):
    """A table of a page.

    Attributes:
        caption: what it is of.
        headings: of the columns; the first holds names, the others numbers.
        rows: the rows.
    """

    caption: str
    headings: Sequence[str]
    rows: Sequence[CellsRow]


class CellsRow(NamedTuple):
    """A row of a table of a page.

    Attributes:
        cells: its texts, the name first.
        of: what the row belongs to, by which a reader picks rows; empty for nothing.
    """

    cells: Sequence[str]
    of: str = ""


class Drawn(NamedTuple):
    """A chart of a page.

    Attributes:
        caption: what it is of.
        spec: its specification of Vega-Lite, which names its data ``rows``.
        rows: the data.
        legend: colours by what they stand for, where a notebook shows the chart; empty where the chart has
            its own.
    """

    caption: str
    spec: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]
    legend: Mapping[str, str] = {}


class Listing(NamedTuple):
    """Text of a page that is shown letter for letter.

    Attributes:
        caption: what it is.
        text: the text.
    """

    caption: str
    text: str


class Part(NamedTuple):
    """A part of a page that is told from top to bottom.

    Attributes:
        title: its heading.
        text: what it is about.
        charts: its charts.
        tables: its tables.
        listings: its listings.
    """

    title: str
    text: str
    charts: Sequence[Drawn] = ()
    tables: Sequence[Cells] = ()
    listings: Sequence[Listing] = ()


def render_parts(kind: str, title: str, facts: Mapping[str, str], parts: Sequence[Part]) -> str:
    """Makes a page of parts one below the other.

    Returns:
        The HTML.

    Raises:
        InputError: Altair, or what it needs to draw without a network, is missing.
    """
    numbered: list[dict[str, Any]] = []
    drawn: list[dict[str, Any]] = []
    for part in parts:
        numbered.append({"part": part, "first": len(drawn)})
        drawn += [{"spec": chart.spec, "rows": chart.rows} for chart in part.charts]
    return render("parts-page", title, {"drawn": drawn}, kind=kind, facts=facts, parts=numbered)


def render(template: str, title: str, data: Mapping[str, Any], **content: Any) -> str:
    """Makes a page.

    Its policy lets it run its own scripts alone, and open no connection.

    Args:
        template: the name of the template, without its ending.
        title: the title of the page.
        data: what its scripts read: a JSON value, in which NaN and infinities become null.
        **content: what the template shows.

    Returns:
        The HTML.

    Raises:
        InputError: Altair, or what it needs to draw without a network, is missing.
    """
    with needs("plot", "a report"):
        import jinja2
        from markupsafe import Markup

    files = jinja2.PackageLoader("autotts_jax.pages", "templates")
    environment = jinja2.Environment(
        loader=files, autoescape=True, finalize=_finalized, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    sources = {name: files.get_source(environment, name)[0] for name in ("style.css", "script.js")}
    scripts = (chart_library(), sources["script.js"])
    policy = (
        f"default-src 'none'; script-src {' '.join(map(_hash, scripts))}; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return environment.get_template(f"{template}.html").render(
        title=title,
        policy=policy,
        style=Markup(sources["style.css"]),
        data=Markup(_embedded(data)),
        scripts=[Markup(script) for script in scripts],
        **content,
    )


@functools.cache
def chart_library() -> str:
    """Gives the script of Vega, Vega-Lite and Vega-Embed. It takes a second to make, and is kept."""
    with needs("plot", "a report"):
        import vl_convert

    folder = kept_folder()
    file = None if folder is None else folder / f"vega-{metadata.version('vl-convert-python')}.js"
    if file is not None and file.is_file():
        return file.read_bytes().decode()
    script: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    if file is not None:
        with contextlib.suppress(InputError):  # a folder that cannot be written to; the script is made again
            make_folder(file.parent)
            write_atomically(file, script.encode())
    return script


def kept_folder() -> Path | None:
    """Where JAX keeps what it has compiled; None where it keeps nothing."""
    import jax  # here, as pages alone do not need it

    values = jax.config.values
    folder = values["jax_compilation_cache_dir"]
    return Path(folder) if folder and values["jax_enable_compilation_cache"] else None


def _finalized(value: Any) -> Any:
    """What a template shows; text that is safe HTML stays what it is."""
    return _shown(value) if type(value) is str else value


def chart_json(data: Any) -> str:
    """Writes what charts show as JSON, without what would reorder its texts.

    Args:
        data: a JSON value, in which NaN and infinities become null.
    """
    return json.dumps(_shown(data), ensure_ascii=False, allow_nan=False)


def _embedded(data: Any) -> str:
    """JSON as it can stand in an element of a page: nothing in it ends the element."""
    return chart_json(data).replace("<", "\\u003c")


def _shown(value: Any) -> Any:
    """A value as pages show it: texts without what would reorder them, and no number that is not finite."""
    if isinstance(value, int):  # first, as nearly all of a page's values are
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if type(value) is str:
        return printable(value, lines=True)
    if isinstance(value, list | tuple):
        return [_shown(inner) for inner in value]
    if isinstance(value, Mapping):
        return {_shown(key): _shown(inner) for key, inner in value.items()}
    return value


def _hash(script: str) -> str:
    """What a policy allows a script by."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
