"""``autotts-jax data``: commands about probe-matrix files."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

import autotts_jax as at
from autotts_jax import collect, experiments, replay
from autotts_jax.cli.console import console, say, working
from autotts_jax.cli.options import EncodingOption, path, utf8
from autotts_jax.errors import InputError
from autotts_jax.replay import ProbeDataset
from autotts_jax.replay.spelling import ERROR
from autotts_jax.terminal import counted, counted_branches, quoted

app = typer.Typer(
    name="data",
    help="Describe, import, convert and check probe matrices.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

RaggedName = Literal["cut", "keep", "refuse"]

LOOKED = 1000
"""Records that a dry run reads."""

WIDTHS = 1, 4, 16
"""Numbers of branches that a sweep over fewer than 64 has, and all of them."""

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


def _field(help_: str) -> Any:
    return typer.Option(parser=utf8, metavar="FIELD", help=help_, show_default="found by structure")


@app.command("import")
def import_(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE",
            help="Files, folders or globs of one cell: JSON, JSONL, Parquet, Arrow, YAML, CSV, gzip or zstd.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            parser=path,
            metavar="PATH",
            help="Compact file (.npz). Without a suffix a folder, for all cells of the AutoTTS or the "
            "Parallel-Probe release: then FILE is a checkout or the id of a Hugging Face dataset.",
            show_default=False,
        ),
    ] = None,
    question: Annotated[str | None, _field("Where the question is, as doc.question.")] = None,
    completions: Annotated[
        str | None, _field("Where the completions or answers are, as 'resps[*][0]' or 'outputs[*].text'.")
    ] = None,
    gold: Annotated[str | None, _field("Where the reference answer is, as target.")] = None,
    tokens: Annotated[
        str | None, _field("Where the tokens of each completion are: their number, or a list of ids.")
    ] = None,
    questions: Annotated[
        str | None,
        typer.Option(
            parser=utf8,
            metavar="FILE",
            help="Questions and reference answers, where FILE lacks them: found by text, id or number.",
            show_default=False,
        ),
    ] = None,
    model_name: Annotated[
        str | None,
        typer.Option(
            "--model", metavar="NAME", help="Name of the model in results.", show_default="field, or folder"
        ),
    ] = None,
    benchmark: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of the questions in results.", show_default="by the file"),
    ] = None,
    answers: Annotated[
        str | None,
        typer.Option(
            parser=utf8,
            metavar="RULE",
            help="How answers are found, as for collect, or given where they are answers already.",
            show_default="auto, or given for short ones",
        ),
    ] = None,
    grader: Annotated[
        str | None,
        typer.Option(
            parser=utf8,
            metavar="RULE",
            help="When answers are equal, as for collect.",
            show_default="math for texts; given answers as they are",
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            parser=utf8,
            metavar="MODEL",
            help="Folder or hub id of a model, to count tokens.",
            show_default="4 characters each",
        ),
    ] = None,
    interval: Annotated[
        int | None,
        typer.Option(metavar="TOKENS", help="Δ, tokens read at a time.", show_default="500 or less", min=1),
    ] = None,
    ragged: Annotated[
        RaggedName,
        typer.Option(help="Questions with more completions than others: cut, keep (a cell each) or refuse."),
    ] = "cut",
    raw_prompts: Annotated[
        bool, typer.Option("--raw-prompts", help="Prompts are questions, even if they look templated.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help=f"Show how the first {LOOKED:,} records are understood; write nothing."
        ),
    ] = False,
) -> None:
    """Make a probe matrix of your own answers or completions, or convert the released ones."""
    if dry_run == (out is not None):
        raise InputError("give either --out, the file to write, or --dry-run")
    if out is not None and not out.suffix:
        _import_release(files, out)
        return
    with working() as on_progress:
        imported = at.import_answers(
            files,
            out,
            question=question,
            completions=completions,
            gold=gold,
            tokens=tokens,
            questions=questions,
            model=model_name,
            benchmark=benchmark,
            answers=answers,
            grader=grader,
            tokenizer=tokenizer,
            interval=interval,
            ragged=ragged,
            raw_prompts=raw_prompts,
            limit=LOOKED if dry_run else None,
            on_progress=on_progress,
        )
    dataset = imported.dataset
    say(f"layout: {imported.layout}")
    if dry_run:
        for n, look in enumerate(imported.looks, 1):
            say(f"question {n}: {quoted(look.question, 160)}", f"  gold: {quoted(look.gold)}")
            say(f"  completions: {look.completions}")
            for answer, count, right in zip(look.answers, look.tokens, look.right, strict=True):
                say(f"    {quoted(answer, 60)}, {count:,} tokens: {'right' if right else 'wrong'}")
    say(f"without an answer ({ERROR}): {imported.errors:.1%}")
    if out is None:
        return
    from autotts_jax.experiments.evaluation import MAX_BRANCHES

    (cell, *_) = dataset.cells
    say(
        f"wrote {out}: {counted(len(dataset), 'question', 'questions')} of "
        f"{counted_branches(cell.num_branches)}"
    )
    least = min(cell.num_branches for cell in dataset.cells)
    if least == 1:
        say("a question has one completion, and controllers choose among several: sample more of each")
        return
    values = [value for value in WIDTHS if value < least] + [least]
    fewer = ",".join(f"{name}@{value}" for name in ("sc", "asc") for value in values)
    names = fewer if least < MAX_BRANCHES else "sc,asc,esc"
    against = f"sc@{min(least, MAX_BRANCHES)}"
    say(
        f"evaluate it: autotts-jax evaluate --data {shlex.quote(str(out))} --controllers {names} "
        f"--baseline {against}"
    )


def _import_release(sources: list[str], out: Path) -> None:
    if len(sources) > 1:
        raise InputError(f"--out {out} is a folder, for a single release; name one, or a file ending in .npz")
    lines: list[str] = []
    with working("the files written so far are complete") as on_progress:
        on_progress("importing", 0, 0)
        files = collect.import_release(sources[0], out, lines.append)
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
