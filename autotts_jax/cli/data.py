"""``autotts-jax data``: commands about probe-matrix files."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

import autotts_jax as at
from autotts_jax import collect, experiments, replay
from autotts_jax.cli.console import console, say, working
from autotts_jax.cli.options import EncodingOption, path
from autotts_jax.errors import InputError
from autotts_jax.replay import ProbeDataset

app = typer.Typer(
    help="Describe, import, convert and check probe matrices.", no_args_is_help=True, rich_markup_mode=None
)

DataArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PATH",
        help="File, folder, glob, hf://ORG/NAME, or name of built-in data.",
        show_default=False,
    ),
]
FilesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="PATH", help="Files, folders, globs or hf://ORG/NAME.", show_default=False),
]
SameOption = Annotated[
    list[str] | None, typer.Option("--data", metavar="PATH", help="PATH, given as for evaluate.")
]


def _named(paths: list[str] | None, data: list[str] | None, example: str = "smollm2 or a file") -> list[str]:
    """Takes the paths that were given with and without ``--data``, which other commands ask for."""
    if named := [*(paths or ()), *(data or ())]:
        return named
    raise InputError(f"no PATH is given; name the data, as {example}")


@app.command()
def info(paths: DataArgument = None, data: SameOption = None, encoding: EncodingOption = "exact") -> None:
    """Print statistics of probe matrices and the progress of collections."""
    data = _named(paths, data)
    with working() as on_progress:
        stores = [collect.Store(place) for place in data if collect.is_collection(place)]
        tables = [experiments.collection_table(store) for store in stores]
        # Of an unfinished collection, the questions that are complete.
        growing = {store.folder: store for store in stores if store.missing()}
        for store in growing.values():
            if dataset := store.dataset():
                tables += [experiments.statistics_table(dataset), experiments.questions_table(dataset)]
        for store in stores:
            if store.folder not in growing:
                tables.append(experiments.questions_table(at.load(store.folder, encoding)))
        if rest := [place for place in data if Path(place) not in growing]:
            on_progress("reading data", 0, 0)
            tables.append(experiments.statistics_table(at.load(rest, encoding)))
    for table in tables:
        console().print(table)


@app.command("import")
def import_(
    source: Annotated[
        str,
        typer.Argument(metavar="SOURCE", help="Folder of a checkout, or id of a Hugging Face dataset."),
    ],
    out: Annotated[
        Path, typer.Option(parser=path, metavar="FOLDER", help="Folder for the files.", show_default=False)
    ],
) -> None:
    """Convert the AutoTTS or Parallel-Probe release to one compact file for each cell."""
    lines: list[str] = []
    with working("the files written so far are complete") as on_progress:
        on_progress("importing", 0, 0)
        files = collect.import_release(source, out, lines.append)
    say(*lines, f"wrote {len(files)} files to {out}")


@app.command()
def convert(
    out: Annotated[
        Path,
        typer.Option(
            parser=path,
            metavar="PATH",
            help="Compact file (.npz), AutoTTS JSON of a single cell (.json), or without a suffix a new "
            "folder of Parquet for the Hugging Face Hub.",
        ),
    ],
    paths: DataArgument = None,
    data: SameOption = None,
    encoding: EncodingOption = "exact",
    licence: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="Licence that the card of a folder names, as apache-2.0.", show_default="none"
        ),
    ] = None,
) -> None:
    """Convert probe matrices to one compact file or a folder of Parquet, or one cell to AutoTTS JSON."""
    data = _named(paths, data)
    with working() as on_progress:
        writers: dict[str, Callable[[ProbeDataset, Path], None]] = {
            ".npz": replay.write_compact,
            ".json": replay.write_json,
            "": functools.partial(replay.write_parquet, licence=licence),
        }
        if out.suffix not in writers:
            raise InputError(
                f"--out {out}: the suffix must be .npz (compact) or .json (AutoTTS), or absent for a folder "
                "of Parquet"
            )
        if licence is not None and out.suffix:
            raise InputError("--licence belongs to a folder of Parquet, whose card names it; leave it out")
        on_progress("reading data", 0, 0)
        dataset = at.load(data, encoding)
        on_progress("writing", 0, 0)
        writers[out.suffix](dataset, out)
    say(f"wrote {out}: {len(dataset.cells)} cells, {len(dataset)} questions")


@app.command()
def validate(paths: FilesArgument = None, data: SameOption = None) -> None:
    """Check files and print what is wrong with each; exit with status 2 if any is bad."""
    data = _named(paths, data, "a file or a folder")
    lines = []
    bad = 0
    with working() as on_progress:
        files = sorted({file for pattern in data for file in replay.find_files(pattern)})
        for done, file in enumerate(files):
            on_progress("checking", done, len(files))
            try:
                lines.append(f"good  {file}: {len(replay.read_file(file))} questions")
            except InputError as error:
                lines.append(f"bad   {error}")
                bad += 1
    say(*lines)
    if bad:
        raise InputError(f"bad files: {bad} of {len(files)}; the reasons are printed above")


@app.command("check-grading")
def check_grading(paths: DataArgument = None, data: SameOption = None) -> None:
    """Grade answers with math-verify as well, and list those on which the graders disagree."""
    data = _named(paths, data)
    with working() as on_progress:
        on_progress("reading data", 0, 0)
        dataset = at.load(data)
        found = collect.check_grading(dataset, lambda done, total: on_progress("grading", done, total))
    for one in found.disagreements:
        here, there = ("right", "wrong") if one.right else ("wrong", "right")
        form = "cannot be read" if one.form is None else f"has the form {one.form}"
        say(
            f"{one.file}, question {one.question}, gold {one.gold}: {one.answer} {form} and is {here}; "
            f"math-verify: {there}"
        )
    undecided = f"; math-verify took too long at {found.undecided:,}" if found.undecided else ""
    say(f"answers: {found.answers:,}; disagreements: {len(found.disagreements):,}{undecided}")
