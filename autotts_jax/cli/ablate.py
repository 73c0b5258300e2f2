"""``autotts-jax discover ablate``: searches without one of their parts, beside those with all."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import autotts_jax as at
from autotts_jax.cli.console import console, working
from autotts_jax.cli.discover import WriterOptions
from autotts_jax.cli.options import BranchesOption, CacheOption, DataOption, EncodingOption, path


def ablate(
    *,
    data: DataOption = None,
    out: Annotated[Path, typer.Option(parser=path, metavar="FOLDER", help="Folder of the runs.")] = Path(
        "runs/ablation"
    ),
    seeds: Annotated[int, typer.Option(metavar="N", help="Runs of each arm.", min=1)] = 3,
    proposers: Annotated[
        str, typer.Option(metavar="NAME,...", help="Who proposes, as discover takes it.")
    ] = "rules",
    writer: WriterOptions,
    incumbent: Annotated[str, typer.Option(metavar="NAME", help="The family to beat.")] = "cmc",
    candidates: Annotated[
        int | None,
        typer.Option(metavar="N", help="Candidates that each run tries.", show_default="no limit", min=1),
    ] = None,
    cpu_minutes: Annotated[
        float | None,
        typer.Option(
            metavar="MINUTES",
            help="CPU time of each run's rounds, over all cores; start and test come on top.",
            show_default="10, or no limit with --candidates",
        ),
    ] = None,
    max_branches: BranchesOption = None,
    critic: Annotated[
        str, typer.Option(metavar="NAME", help="Critic of the arm that has one: nearest, openai:MODEL.")
    ] = "nearest",
    encoding: EncodingOption = "exact",
    cache: CacheOption = True,
) -> None:
    """Compare searches without β, with a critic and without traces to the default, over several seeds.

    Limits in tokens and dollars hold for each run. The same command continues after Ctrl-C.
    """
    named = writer.proposers(proposers, critic)
    with working(f"whole rounds are kept in {out}; the same command continues") as on_progress:
        from autotts_jax import discovery
        from autotts_jax.core import devices

        devices.configure(cache)
        on_progress("reading data", 0, 0)
        dataset = at.load(data or "synthetic", encoding)
        devices.pin_devices()
        on_progress("compiling", 0, 0)
        found = discovery.ablate(
            dataset,
            out=out,
            seeds=seeds,
            proposers=named,
            incumbent=incumbent,
            candidates=candidates,
            cpu_minutes=cpu_minutes,
            max_branches=max_branches,
            critic=critic,
            on_run=lambda arm, seed, progress: on_progress(
                f"{arm}, seed {seed}", int(100 * progress.spent), 100
            ),
        )
    console().print(found.table())
