"""``autotts-jax evaluate``: accuracy and cost of controllers, as a table and as files."""

from __future__ import annotations

import time
from typing import Annotated

import typer

import autotts_jax as at
from autotts_jax.cli.console import check_folder, console, print_written, say, working
from autotts_jax.cli.options import (
    BetaOption,
    BranchesOption,
    BudgetOption,
    CacheOption,
    CostOptions,
    DataOption,
    EncodingOption,
    OutOption,
    ProtocolOption,
    SealOptions,
)
from autotts_jax.errors import InputError
from autotts_jax.figures import width_of


def evaluate(
    *,
    data: DataOption = None,
    controllers: Annotated[
        str | None,
        typer.Option(
            metavar="NAME@VALUE,...",
            help="What to play. The value is β where the controller has one, else its number of branches; a "
            "name alone is its whole family. Names: sc, asc, esc, parallel-probe, cmc, distilled, short-m, "
            "first-finish, sprt, asc-dirichlet, asc-entropy, asc-majority, best-of-infinity, "
            "certified-majority, doubling-sc, cisc, deepconf-offline, deepconf, dynasor, deer, eat, "
            "weighted-majority, best-of-n, single, es-cot, neural.",
            show_default="sc@W,asc@W,esc@W,parallel-probe@W,cmc",
        ),
    ] = None,
    controller: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Play one controller: a name, or a class of your own, compiled or a released program, as "
            "module:Class or path/to/file.py:Class.",
            show_default=False,
        ),
    ] = None,
    beta: BetaOption = None,
    protocol: ProtocolOption = "repo100",
    seeds: Annotated[
        int | None,
        typer.Option(metavar="N", help="Play seeds 0 to N - 1.", show_default="100 or 64, by protocol"),
    ] = None,
    encoding: EncodingOption = "exact",
    gamma: Annotated[
        float, typer.Option(metavar="γ", help="Price of a unit of cost in the objective.")
    ] = 1e-4,
    cost: CostOptions,
    kappa_probe: Annotated[
        float, typer.Option(metavar="κ", help="Intervals that a probe costs in the objective.")
    ] = 0.0,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="NAME@VALUE",
            help="The setting that gains and ratios are against.",
            show_default="the first",
        ),
    ] = None,
    probe_tokens: Annotated[
        int,
        typer.Option(
            metavar="N", help="Tokens that a probe adds to those of an episode in tables and files.", min=0
        ),
    ] = 0,
    budget: BudgetOption = None,
    max_branches: BranchesOption = None,
    processes: Annotated[
        int | None,
        typer.Option(metavar="N", help="Processes for a released program.", show_default="all cores", min=1),
    ] = None,
    seal: SealOptions,
    out: OutOption = None,
    figure_size: Annotated[
        str,
        typer.Option(metavar="SIZE", help="Width of the pictures: column, 3.3 inches, or page, 6.75 inches."),
    ] = "page",
    panels: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL/BENCHMARK,...", help="Cells in the pictures, a panel each.", show_default="all"
        ),
    ] = None,
    cache: CacheOption = True,
) -> None:
    """Replay controllers over probe matrices and print the accuracy-cost table.

    Where two controllers or more are swept, over two values or more, their frontiers are compared as well.

    A player from a file or a module that fails or breaks a limit has no results: a warning says why, and the
    exit status is 2.

    With --out: report.html, a page with all of it, episodes.parquet, summary.csv, paired.csv, table.md,
    table.tex and manifest.json; the pictures frontier and gains as .pdf, .png and .svg; and frontier.csv with
    the comparison. The page needs Altair, the pictures Matplotlib.
    """
    with working() as on_progress:
        from autotts_jax.core import devices
        from autotts_jax.experiments.evaluation import MAX_BRANCHES, default_controllers
        from autotts_jax.experiments.plots import check_panels

        devices.configure(cache)
        if controllers is not None and controller is not None:
            raise InputError("--controllers and --controller exclude each other; give one of them")
        objective = at.Objective(gamma, kappa_probe, cost.model())
        players = named_players(controllers, controller, beta)
        if out is None and (figure_size != "page" or panels is not None):
            raise InputError("--figure-size and --panels are of the pictures in --out; give a folder as well")
        width_of(figure_size)
        check_folder(out, evaluation=True)
        on_progress("reading data", 0, 0)
        dataset = at.load(data or "synthetic", encoding)
        chosen = None if panels is None else check_panels(dataset, panels.split(","))
        devices.pin_devices()
        on_progress("compiling", 0, 0)
        began = time.perf_counter()
        evaluation = at.evaluate(
            dataset,
            players or default_controllers(dataset, max_branches),
            protocol=protocol,
            seeds=seeds,
            max_branches=max_branches,
            budget=budget,
            objective=objective,
            baseline=baseline,
            probe_tokens=probe_tokens,
            processes=processes or devices.usable_cores(),
            sealing=seal.sealing(),
            on_progress=on_progress,
        )
        seconds = time.perf_counter() - began
        on_progress("summary", 0, 0)
        frontier = evaluation.frontier()
        files = evaluation.save(out, size=figure_size, panels=chosen) if out is not None else []
    console().print(evaluation.table())
    if frontier.comparisons:
        console().print(frontier.table())
    print_written(files, report=True)
    if max_branches is None and evaluation.max_branches < MAX_BRANCHES:
        say(f"an episode opens at most {evaluation.max_branches} branches, all that a question has")
    episodes = sum(play.correct.size for play in evaluation.plays)
    say(f"{episodes:,} episodes in {seconds:.1f} s, compilation included")
    if evaluation.refused:
        raise typer.Exit(2)


def named_players(controllers: str | None, controller: str | None, beta: float | None) -> list[str]:
    """Reads which players ``--controllers``, or ``--controller`` with its ``--beta``, name.

    Raises:
        InputError: they name none.
    """
    if controller is not None and beta is not None and "@" in controller:
        raise InputError(
            f"--controller {controller} has a value, and --beta is another; leave one of them out"
        )
    if controller is not None:
        return [controller if beta is None else f"{controller}@{beta!r}"]
    if beta is not None:
        raise InputError("--beta belongs to --controller; in --controllers write name@β")
    specs = [] if controllers is None else [spec.strip() for spec in controllers.split(",")]
    if "" in specs:
        raise InputError(f"--controllers {controllers!r} has an empty name; write it as sc@8,cmc@0.5")
    return specs
