"""``autotts-jax batch``: many questions under one token budget, as a table and as files."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

import autotts_jax as at
from autotts_jax.cli.console import check_folder, console, say, working
from autotts_jax.cli.options import (
    BranchesOption,
    CacheOption,
    DataOption,
    EncodingOption,
    OutOption,
    utf8,
)
from autotts_jax.errors import InputError
from autotts_jax.replay import select_part


def batch(
    *,
    budgets: Annotated[
        str,
        typer.Option(
            parser=utf8, metavar="TOKENS,...", help="Token budgets, each for all questions of a cell."
        ),
    ],
    data: DataOption = None,
    allocators: Annotated[
        str,
        typer.Option(
            parser=utf8,
            metavar="NAME,...",
            help="Who shares the budget out: uniform, asc, sprt, naive, blend-asc, dirichlet, long-first, "
            "shadow-price, learned, FILE.json, oracle. The others are compared with the first one.",
        ),
    ] = "uniform,asc,naive,dirichlet,oracle",
    encoding: EncodingOption = "exact",
    part: Annotated[
        Literal["train", "validation", "test"] | None,
        typer.Option(help="The questions of one part alone, as in bench.", show_default="all"),
    ] = None,
    seeds: Annotated[int, typer.Option(metavar="N", help="Play seeds 0 to N - 1.")] = 100,
    max_branches: BranchesOption = None,
    at_once: Annotated[int, typer.Option(metavar="K", help="Questions that read a branch at a time.")] = 1,
    out: OutOption = None,
    cache: CacheOption = True,
) -> None:
    """Answer all questions of a cell with one token budget, and print the accuracy of who shares it out.

    With --out: report.html, who got how much and why, episodes.parquet, summary.csv and manifest.json.
    """
    with working() as on_progress:
        from autotts_jax.core import devices

        devices.configure(cache)
        tokens = [_tokens(text.strip()) for text in budgets.split(",")]
        check_folder(out, evaluation=True)
        on_progress("reading data", 0, 0)
        dataset = at.load(data or "synthetic", encoding)
        if part is not None:
            dataset = select_part(dataset, part)
        devices.pin_devices()
        on_progress("playing", 0, 0)
        result = at.evaluate_batch(
            dataset,
            [name.strip() for name in allocators.split(",")],
            budgets=tokens,
            seeds=seeds,
            max_branches=max_branches,
            at_once=at_once,
        )
        files = result.save(out) if out is not None else []
    console().print(result.table())
    if files:
        say(f"wrote {', '.join(file.name for file in files)} to {files[0].parent}")


def _tokens(text: str) -> int:
    if not text.isdecimal():
        raise InputError(f"--budgets: {text!r} is not a whole number of tokens; write them as 100000,200000")
    return int(text)
