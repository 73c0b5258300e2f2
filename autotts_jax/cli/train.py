"""``autotts-jax train``: a policy, trained in a run that can be stopped and resumed."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotts_jax.cli.console import read_data, working
from autotts_jax.cli.options import MAX_SEED, CacheOption

if TYPE_CHECKING:
    from autotts_jax.training.loop import Outcome

LIVE_METRICS = ("generation", "objective", "accuracy", "tokens", "entropy", "kl", "explained_variance")


def train(
    config: Annotated[
        Path,
        typer.Option(metavar="FILE", help="What to train, on what and how, in TOML.", show_default=False),
    ],
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            metavar="PATH",
            help="Train on these instead, as in evaluate; repeatable.",
            show_default="what the configuration names",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="The run's folder.", show_default="runs/<name of the configuration>"
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the newest checkpoint in the folder.")
    ] = False,
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="S", help="Seed of the run.", show_default="by configuration", min=0, max=MAX_SEED
        ),
    ] = None,
    fold: Annotated[
        int | None,
        typer.Option(
            metavar="K",
            help="Validate on this part of the questions, and train on the others.",
            show_default="by configuration",
            min=0,
        ),
    ] = None,
    updates: Annotated[
        int | None,
        typer.Option(metavar="N", help="Updates to make.", show_default="by configuration", min=0),
    ] = None,
    coordinator: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Train in several processes, which meet at this address of process 0 and share the run's "
            "folder; auto to have SLURM, Open MPI or another cluster say all three.",
            show_default="one process",
        ),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(metavar="N", help="Processes that train together.", show_default=False, min=1),
    ] = None,
    process: Annotated[
        int | None,
        typer.Option(metavar="K", help="Which one this is, from 0.", show_default=False, min=0),
    ] = None,
    cache: CacheOption = True,
) -> None:
    """Train a policy and keep the best one of the run.

    Ctrl-C or SIGTERM ends the run after the update under way; the same command with --resume goes on.
    """
    folder = out or Path("runs") / config.stem
    command = ["autotts-jax", *sys.argv[1:]]
    with working(f"the newest checkpoint in {folder} is as it was", shown=not process) as on_progress:
        import jax

        from autotts_jax.core import devices, hosts

        # The trainers use JAX when they are imported.
        devices.configure(cache)
        hosts.initialize(coordinator, processes, process)
        with hosts.together():
            from autotts_jax.training.config import read_config
            from autotts_jax.training.config import train as make_run

            settings = read_config(config).changed(data, seed, fold, updates)
            dataset = read_data(settings.data.paths, settings.data.encoding, on_progress)
        total = settings.run.updates
        on_progress("compiling", 0, 0)
        devices.pin_devices()
        outcome = make_run(
            settings,
            dataset,
            folder,
            command=command,
            resume=resume,
            on_progress=lambda update, figures: on_progress("training", update, total, live_metrics(figures)),
        )
    if jax.process_index() == 0:
        _print_outcome(outcome, folder, total, shlex.join(command if resume else [*command, "--resume"]))
    if outcome.stopped_by:
        raise typer.Exit(128 + outcome.stopped_by)


def _print_outcome(outcome: Outcome, folder: Path, total: int, again: str) -> None:
    """Says how a run ended, and what can be done now."""
    done = outcome.progress
    if outcome.stopped_by:
        stopped = f"stopped by {outcome.stopped_by.name} after update {done.update} of {total}"
        print(f"autotts-jax: {stopped}; go on with: {again}", file=sys.stderr)
        return
    print(f"best validation objective: {done.best_objective:.4f}, at update {done.best_update}")
    if done.update < total:
        print(f"stopped early, after update {done.update} of {total}: no better objective since")
    print(f"best policy: {folder / 'best.npz'}")
    print(f"evaluate it: autotts-jax evaluate --controllers {shlex.quote(f'neural:{folder}')}")


def live_metrics(figures: Mapping[str, float]) -> str:
    """The training metrics that are shown while a run goes on."""
    shown = {name: figures[f"train/{name}"] for name in LIVE_METRICS if f"train/{name}" in figures}
    return "  ".join(
        f"{name.replace('_', ' ')} {f'{value:,.0f}' if abs(value) >= 1000 else f'{value:.3g}'}"
        for name, value in shown.items()
    )
