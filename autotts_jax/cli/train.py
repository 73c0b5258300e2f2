"""``autotts-jax train``: a policy, trained in a run that can be stopped and resumed."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotts_jax.cli.console import say, working
from autotts_jax.cli.ending import tell
from autotts_jax.cli.options import MAX_SEED, CacheOption, LoggersOption, named_loggers, path
from autotts_jax.replay.dataset import EXACT

if TYPE_CHECKING:
    from autotts_jax.training import DataSettings, TrainingRun

LIVE_METRICS = ("generation", "objective", "accuracy", "tokens", "entropy", "kl", "explained_variance")


def train(
    config: Annotated[
        Path,
        typer.Option(
            parser=path, metavar="FILE", help="What to train, on what and how, in TOML.", show_default=False
        ),
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
            parser=path,
            metavar="FOLDER",
            help="The run's folder.",
            show_default="runs/<name of the configuration>",
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the newest checkpoint in the folder.")
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
            "folder; auto to take all three from SLURM, Open MPI or another cluster.",
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
    loggers: LoggersOption = "tensorboard",
    cache: CacheOption = True,
) -> None:
    """Train a policy and keep the best one of the run.

    Ctrl-C or SIGTERM ends the run after the update under way; the same command with --resume continues it.
    """
    folder = out or Path("runs") / config.stem
    with working(f"the newest checkpoint in {folder} is as it was", shown=not process) as on_progress:
        import jax

        from autotts_jax.core import devices, hosts

        # The trainers use JAX when they are imported.
        devices.configure(cache)
        hosts.initialize(coordinator, processes, process)
        from autotts_jax import training

        with hosts.together():
            settings = training.read_config(config).changed(data, seed, fold, updates)
        total = settings.run.updates
        on_progress("compiling", 0, 0)
        devices.pin_devices()
        run = training.train(
            settings,
            out=folder,
            resume=resume,
            loggers=named_loggers(loggers),
            on_update=lambda update, metrics: on_progress("training", update, total, live_metrics(metrics)),
        )
    if jax.process_index() == 0:
        print_run(run, total, resume, settings.data)
    if run.stopped_by:
        raise typer.Exit(128 + run.stopped_by)


def print_run(run: TrainingRun, total: int, resumed: bool, data: DataSettings) -> None:
    """Prints how a run ended, and the command that evaluates or continues it."""
    state = run.state
    if run.stopped_by:
        again = shlex.join(["autotts-jax", *sys.argv[1:], *["--resume"] * (not resumed)])
        stopped = f"stopped by {run.stopped_by.name} after update {state.update} of {total}"
        tell(f"{stopped}; continue with: {again}")
        return
    say(f"best validation objective: {state.best_objective:.4f}, at update {state.best_update}")
    if state.update < total:
        say(f"stopped early, after update {state.update} of {total}: no better objective since")
    say(f"best policy: {run.folder / 'best.npz'}")
    command = ["autotts-jax", "evaluate", "--controllers", f"neural:{run.folder}"]
    for place in data.paths or ():
        command += ["--data", place]
    if data.encoding != EXACT:
        command += ["--encoding", data.encoding]
    say(f"evaluate it: {shlex.join(command)}")


def live_metrics(metrics: Mapping[str, float]) -> str:
    """Formats the training metrics that are shown while a run goes on."""
    shown = {name: metrics[f"train/{name}"] for name in LIVE_METRICS if f"train/{name}" in metrics}
    return "  ".join(
        f"{name.replace('_', ' ')} {f'{value:,.0f}' if abs(value) >= 1000 else f'{value:.3g}'}"
        for name, value in shown.items()
    )
