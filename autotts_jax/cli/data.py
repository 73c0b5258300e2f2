"""``autotts-jax data``: commands about probe-matrix files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotts_jax.cli.console import console, read_data, working
from autotts_jax.cli.options import DataArgument, EncodingOption
from autotts_jax.errors import InputError

app = typer.Typer(
    help="Describe, import, convert and check probe matrices.", no_args_is_help=True, rich_markup_mode=None
)

FilesArgument = Annotated[list[str], typer.Argument(metavar="PATH", help="Files, folders or globs.")]


@app.command()
def info(data: DataArgument, encoding: EncodingOption = "exact") -> None:
    """Print statistics of probe matrices and the progress of collections."""
    with working() as on_progress:
        from autotts_jax.collect.store import Store, is_collection
        from autotts_jax.experiments.tables import collection_table, statistics_table

        stores = [Store(Path(place)) for place in data if is_collection(Path(place))]
        tables = [collection_table(store) for store in stores]
        # Of an unfinished collection, the questions that are complete.
        growing = {store.folder: store for store in stores if store.missing()}
        for store in growing.values():
            if dataset := store.dataset():
                tables.append(statistics_table(dataset))
        if rest := [place for place in data if Path(place) not in growing]:
            tables.append(statistics_table(read_data(rest, encoding, on_progress)))
    for table in tables:
        console().print(table)


@app.command("import")
def import_(
    source: Annotated[
        str,
        typer.Argument(metavar="SOURCE", help="Folder of a checkout, or id of a Hugging Face dataset."),
    ],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for the files.", show_default=False)],
) -> None:
    """Convert the AutoTTS or Parallel-Probe release to one compact file for each cell."""
    lines: list[str] = []
    with working("the files written so far are complete") as on_progress:
        from autotts_jax.collect.releases import import_release

        on_progress("importing", 0, 0)
        files = import_release(source, out, lines.append)
    print(*lines, f"wrote {len(files)} files to {out}", sep="\n")


@app.command()
def convert(
    data: DataArgument,
    out: Annotated[
        Path,
        typer.Option(metavar="FILE", help="Compact file (.npz), or AutoTTS JSON of a single cell (.json)."),
    ],
    encoding: EncodingOption = "exact",
) -> None:
    """Convert probe matrices to one compact file, or one cell to AutoTTS JSON."""
    with working() as on_progress:
        from autotts_jax.replay.autotts_json import write_json
        from autotts_jax.replay.compact import write_compact

        writers = {".npz": write_compact, ".json": write_json}
        if out.suffix not in writers:
            raise InputError(f"--out {out}: the suffix must be .npz (compact) or .json (AutoTTS)")
        dataset = read_data(data, encoding, on_progress)
        on_progress("writing", 0, 0)
        writers[out.suffix](dataset, out)
    print(f"wrote {out}: {len(dataset.cells)} cells, {len(dataset)} questions")


@app.command()
def validate(data: FilesArgument) -> None:
    """Check files and print what is wrong with each; exit with status 2 if any is bad."""
    lines = []
    bad = 0
    with working() as on_progress:
        from autotts_jax.replay.reading import find_files, read_file

        files = sorted({file for pattern in data for file in find_files(pattern)})
        for done, file in enumerate(files):
            on_progress("checking", done, len(files))
            try:
                lines.append(f"good  {file}: {len(read_file(file))} questions")
            except InputError as error:
                lines.append(f"bad   {error}")
                bad += 1
    print(*lines, sep="\n")
    if bad:
        raise InputError(f"bad files: {bad} of {len(files)}; the reasons are printed above")
