"""``autotts-jax discover``: a search for controllers, and what searches have found."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import autotts_jax as at
from autotts_jax.cli.console import console, working
from autotts_jax.cli.options import MAX_SEED, BranchesOption, CacheOption, DataOption, EncodingOption
from autotts_jax.errors import InputError
from autotts_jax.files import write_atomically

if TYPE_CHECKING:
    from autotts_jax.discovery import Member, Written

app = typer.Typer(
    help="Search for a controller that is better than CMC, or show what a search has found.",
    invoke_without_command=True,
    rich_markup_mode=None,
)

RunArgument = Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of a run.")]


@app.callback()
def discover(
    context: typer.Context,
    data: DataOption = None,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="The run's folder.")] = Path("runs/discover"),
    proposers: Annotated[
        str, typer.Option(metavar="NAME,...", help="Who proposes, in turns: rules, random, openai:MODEL.")
    ] = "rules",
    incumbent: Annotated[str, typer.Option(metavar="NAME", help="The family to beat.")] = "cmc",
    candidates: Annotated[
        int | None,
        typer.Option(metavar="N", help="Candidates to try in all.", show_default="no limit", min=1),
    ] = None,
    cpu_minutes: Annotated[
        float | None,
        typer.Option(
            metavar="MINUTES",
            help="CPU time to spend in all, over all cores.",
            show_default="10, or no limit with --candidates",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="S", help="Seed of the run.", min=0, max=MAX_SEED)] = 0,
    max_branches: BranchesOption = 64,
    encoding: EncodingOption = "exact",
    cache: CacheOption = True,
) -> None:
    """Search for a controller that is better than CMC, by default without a language model.

    Ctrl-C ends the run after the last whole round; the same command goes on with it.
    """
    if context.invoked_subcommand is not None:
        return
    with working(f"whole rounds are kept in {out}; the same command goes on") as on_progress:
        from autotts_jax.core import devices

        devices.configure(cache)
        on_progress("reading data", 0, 0)
        dataset = at.load(data or "synthetic", encoding)
        devices.pin_devices()
        on_progress("compiling", 0, 0)
        if cpu_minutes is None and candidates is None:
            cpu_minutes = 10.0
        found = at.discover(
            dataset,
            out=out,
            proposers=[name.strip() for name in proposers.split(",") if name.strip()],
            incumbent=incumbent,
            candidates=candidates,
            cpu_minutes=cpu_minutes,
            seed=seed,
            max_branches=max_branches,
            on_round=lambda progress: on_progress(
                "searching",
                int(100 * progress.spent),
                100,
                f"round {progress.round}: {progress.candidates:,} candidates; "
                + ("all questions" if progress.fold is None else f"without fold {progress.fold}")
                + _best(progress.best),
            ),
        )
    console().print(found.table())


def _best(best: Member | Written | None) -> str:
    """Says who is best so far."""
    if best is None:
        return ": all have failed"
    from autotts_jax.discovery import Member

    parts = f"{best.program.length} parts" if isinstance(best, Member) else "a file"
    return f": best {best.score:.4f} with {parts}"


@app.command()
def show(folder: RunArgument) -> None:
    """Print what a run has found so far."""
    console().print(at.read_run(folder).table())


@app.command()
def export(
    folder: RunArgument,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write it here.", show_default="print it")
    ] = None,
    name: Annotated[str, typer.Option(metavar="NAME", help="Name of the class.")] = "Found",
    number: Annotated[
        int | None,
        typer.Option(metavar="N", help="A candidate.", show_default="the one that was tested last", min=0),
    ] = None,
) -> None:
    """Write a candidate as the source of a controller."""
    source = at.read_run(folder).source(name, number)
    if out is None:
        print(source, end="")
        return
    if out.exists():
        raise InputError(f"{out} exists; name another file")
    write_atomically(out, source.encode())
    print(f"wrote {out}: play it with --controller {out}:FAMILY")
