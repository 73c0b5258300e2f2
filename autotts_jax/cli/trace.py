"""``autotts-jax trace``: one episode, decision by decision."""

from __future__ import annotations

from typing import Annotated

import typer

from autotts_jax.cli.console import console, print_written, read_data, working
from autotts_jax.cli.evaluate import select_controllers
from autotts_jax.cli.options import (
    MAX_SEED,
    BetaOption,
    BranchesOption,
    BudgetOption,
    DataOption,
    EncodingOption,
    OutOption,
    ProtocolOption,
)

DEFAULT_TRACED = "cmc@0.5"


def trace(
    controller: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A controller, as in evaluate.", show_default=DEFAULT_TRACED),
    ] = None,
    beta: BetaOption = None,
    question: Annotated[
        int, typer.Option(metavar="Q", help="Position of the question in its cell.", min=0)
    ] = 0,
    seed: Annotated[
        int, typer.Option(metavar="S", help="Seed of the branch order.", min=0, max=MAX_SEED)
    ] = 0,
    data: DataOption = None,
    cell: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="<model>/<benchmark>.", show_default="the first one"),
    ] = None,
    encoding: EncodingOption = "exact",
    protocol: ProtocolOption = "repo100",
    budget: BudgetOption = None,
    max_branches: BranchesOption = 64,
    out: OutOption = None,
) -> None:
    """Show one episode decision by decision.

    With --out: trace.jsonl, trace.png and trace.svg.
    """
    with working() as on_progress:
        from autotts_jax.core import devices
        from autotts_jax.experiments.files import results_folder
        from autotts_jax.experiments.trace import print_trace, trace_episode, write_trace

        devices.configure()
        (selection,) = select_controllers(DEFAULT_TRACED, controller, beta)
        if out is not None:
            with results_folder(out):  # a folder that cannot be written to is found out before the work
                pass
        dataset = read_data(data, encoding, on_progress)
        on_progress("episode", 0, 0)
        episode = trace_episode(
            dataset,
            selection,
            cell=cell,
            question=question,
            seed=seed,
            protocol=protocol,
            budget=budget,
            max_branches=max_branches,
        )
        files = write_trace(out, episode) if out is not None else []
    print_trace(episode, console())
    print_written(files)
