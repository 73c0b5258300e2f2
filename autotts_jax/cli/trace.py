"""``autotts-jax trace``: one episode, decision by decision."""

from __future__ import annotations

from typing import Annotated

import typer

import autotts_jax as at
from autotts_jax.cli.console import check_folder, console, print_written, working
from autotts_jax.cli.evaluate import named_players
from autotts_jax.cli.options import (
    MAX_SEED,
    BetaOption,
    BranchesOption,
    BudgetOption,
    DataOption,
    EncodingOption,
    OutOption,
    ProtocolOption,
    SealOptions,
)

DEFAULT_TRACED = "cmc@0.5"


def trace(
    *,
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
    max_branches: BranchesOption = None,
    recorded: Annotated[
        bool, typer.Option("--recorded", help="Open the branches in the order in which they were recorded.")
    ] = False,
    seal: SealOptions,
    out: OutOption = None,
) -> None:
    """Show one episode decision by decision.

    With --out: trace.jsonl, trace.png and trace.svg.
    """
    with working() as on_progress:
        from autotts_jax.core import devices

        devices.configure()
        (player,) = named_players(DEFAULT_TRACED, controller, beta)
        check_folder(out)
        on_progress("reading data", 0, 0)
        dataset = at.load(data or "synthetic", encoding)
        on_progress("episode", 0, 0)
        episode = at.trace(
            dataset,
            player,
            cell=cell,
            question=question,
            seed=seed,
            protocol=protocol,
            budget=budget,
            max_branches=max_branches,
            recorded=recorded,
            sealing=seal.sealing(),
        )
        files = episode.save(out) if out is not None else []
    console().print(episode.table())
    print_written(files)
