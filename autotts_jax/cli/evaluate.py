"""``autotts-jax evaluate``: accuracy and cost of controllers, as a table and as files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from autotts_jax.cli.console import console, print_written, read_data, working
from autotts_jax.cli.options import (
    BetaOption,
    BranchesOption,
    BudgetOption,
    CacheOption,
    DataOption,
    EncodingOption,
    OutOption,
    ProtocolOption,
)
from autotts_jax.errors import InputError

if TYPE_CHECKING:
    from autotts_jax.experiments.summary import Objective
    from autotts_jax.policies.players import Selection

DEFAULT_CONTROLLERS = "sc@64,asc@64,esc@64,parallel-probe@64,cmc"


def evaluate(
    data: DataOption = None,
    controllers: Annotated[
        str | None,
        typer.Option(
            metavar="NAME@VALUE,...",
            help="What to play. The value is β where the controller has one, else its number of branches; a "
            "name alone is its whole family. Names: sc, asc, esc, parallel-probe, cmc.",
            show_default=DEFAULT_CONTROLLERS,
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
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE.py:NAME[@γ]",
            help="Also play a policy for WidthDepth or WidthDepthRounds, and show it γ. It is an object with "
            "env and act or predict, or what makes one; repeatable.",
            show_default="no policy; γ by --gamma",
        ),
    ] = None,
    protocol: ProtocolOption = "repo100",
    seeds: Annotated[
        int | None,
        typer.Option(metavar="N", help="Play seeds 0 to N - 1.", show_default="100 or 64, by protocol"),
    ] = None,
    encoding: EncodingOption = "exact",
    gamma: Annotated[
        float, typer.Option(metavar="γ", help="Price of a unit of cost in the objective.")
    ] = 1e-4,
    cost: Annotated[
        Literal["intervals", "tokens"], typer.Option(help="Unit of cost in the objective.")
    ] = "intervals",
    kappa_probe: Annotated[
        float, typer.Option(metavar="κ", help="Intervals that a probe costs in the objective.")
    ] = 0.0,
    budget: BudgetOption = None,
    max_branches: BranchesOption = 64,
    processes: Annotated[
        int | None,
        typer.Option(metavar="N", help="Processes for a released program.", show_default="all cores", min=1),
    ] = None,
    out: OutOption = None,
    cache: CacheOption = True,
) -> None:
    """Replay controllers over probe matrices and print the accuracy-cost table.

    Where two controllers or more are swept, over two values or more, their frontiers are compared as well.

    With --out: episodes.parquet, summary.csv, paired.csv, frontier.png, frontier.svg and manifest.json, and
    frontier.csv with the comparison. The pictures need Matplotlib.
    """
    with working() as on_progress:
        from autotts_jax.core import devices

        devices.configure(cache)
        from autotts_jax.experiments.evaluation import evaluate as run
        from autotts_jax.experiments.files import results_folder
        from autotts_jax.experiments.summary import Objective

        if controllers is not None and controller is not None:
            raise InputError("--controllers and --controller exclude each other; give one of them")
        objective = Objective(gamma, kappa_probe, cost)
        players = select_controllers(controllers or DEFAULT_CONTROLLERS, controller, beta)
        players += _select_policies(policy or [], objective)
        if out is not None:
            with results_folder(out):  # a folder that cannot be written to is found out before the work
                pass
        dataset = read_data(data, encoding, on_progress)
        devices.pin_devices()
        evaluation = run(
            dataset,
            players,
            protocol=protocol,
            seeds=seeds,
            max_branches=max_branches,
            budget=budget,
            objective=objective,
            processes=processes or devices.usable_cores(),
            on_progress=on_progress,
        )
        on_progress("summary", 0, 0)
        frontier = evaluation.frontier()
        files = evaluation.save(out) if out is not None else []
    console().print(evaluation.table())
    console().print(frontier.table())
    print_written(files)


def select_controllers(controllers: str, controller: str | None, beta: float | None) -> list[Selection]:
    """What ``--controllers``, or ``--controller`` with its ``--beta``, name."""
    from autotts_jax.policies.players import select

    if controller is not None:
        return [select(controller if beta is None else f"{controller}@{beta!r}")]
    if beta is not None:
        raise InputError("--beta belongs to --controller; in --controllers write name@β")
    specs = [spec.strip() for spec in controllers.split(",") if spec.strip()]
    if not specs:
        raise InputError("--controllers names none; give at least one, as cmc@0.5")
    return [select(spec) for spec in specs]


def _select_policies(specs: Sequence[str], objective: Objective) -> list[Selection]:
    from autotts_jax.policies.players import select_policy

    for spec in specs:
        if objective.unit == "tokens" and "@" not in spec:
            raise InputError(
                f"--policy {spec}: a policy is shown the γ of an interval, but with --cost tokens --gamma is "
                f"that of a token; give the policy its own, as {spec}@1e-4"
            )
    return [select_policy(spec, objective.gamma) for spec in specs]
