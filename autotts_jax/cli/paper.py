"""``autotts-jax paper``: a paper's tables and figures on any data, as a page and as CSV."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

import autotts_jax as at
from autotts_jax.cli.console import check_folder, console, say, working
from autotts_jax.cli.options import CacheOption, DataOption, EncodingOption, path
from autotts_jax.errors import InputError

PaperName = Literal["autotts", "mrt", "ttrl", "parallel-probe"]


def paper(
    *,
    name: Annotated[PaperName, typer.Argument(metavar="NAME", help="autotts, mrt, ttrl or parallel-probe.")],
    data: DataOption = None,
    seeds: Annotated[int, typer.Option(metavar="N", help="Play seeds 0 to N - 1.", min=1)] = 100,
    encoding: EncodingOption = "exact",
    max_branches: Annotated[
        int | None,
        typer.Option(
            metavar="W",
            help="Branches that an episode can open; of ttrl, that vote.",
            show_default="64; of ttrl 128",
            min=1,
        ),
    ] = None,
    run: Annotated[
        list[Path] | None,
        typer.Option(
            parser=path,
            metavar="FOLDER",
            help="Folder of a discovery run, whose rounds autotts shows; repeatable.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(parser=path, metavar="FOLDER", help="Folder for the page and its numbers.")
    ] = Path("runs/papers"),
    cache: CacheOption = True,
) -> None:
    """Compute a paper's tables and figures on any data, with its published figures beside ours.

    Written are NAME.md, a page to read, NAME.html, the same with charts, and NAME-SECTION.csv with all of its
    numbers; a picture needs Matplotlib, the HTML Altair. Several papers can have the same folder.
    """
    with working() as on_progress:
        from autotts_jax.core import devices

        devices.configure(cache)
        if run and name != "autotts":
            raise InputError(f"--run belongs to autotts; {name} shows no discovery runs")
        check_folder(out)
        on_progress("reading data", 0, 0)
        dataset = at.load(data or "synthetic", encoding)
        devices.pin_devices()
        limit: dict[str, Any] = {} if max_branches is None else {"max_branches": max_branches}
        if name == "autotts":
            runs = {str(folder): at.read_run(folder).to_arrow() for folder in run or ()}
            page = at.papers.autotts(dataset, seeds=seeds, runs=runs, on_progress=on_progress, **limit)
        elif name == "mrt":
            page = at.papers.mrt(dataset, seeds=seeds, on_progress=on_progress, **limit)
        elif name == "ttrl":
            page = at.papers.ttrl(dataset, seeds=seeds, **limit)
        else:
            page = at.papers.parallel_probe(dataset, seeds=seeds, on_progress=on_progress, **limit)
        files = page.save(out)
    console().print(page.table())
    say(f"wrote {', '.join(file.name for file in files)} to {out}")
