"""``autotts-jax discover distill``: a learned policy as a page of code."""

from __future__ import annotations

from typing import Annotated

import typer

import autotts_jax as at
from autotts_jax.cli.console import working
from autotts_jax.cli.discover import ClassOption, SourceOption, check_source_file, say_source
from autotts_jax.cli.options import (
    MAX_SEED,
    BranchesOption,
    CacheOption,
    DataOption,
    EncodingOption,
    utf8,
)
from autotts_jax.files import write_atomically


def distill(
    *,
    policy: Annotated[
        str,
        typer.Argument(
            parser=utf8,
            metavar="POLICY",
            help="A file, a run's folder, or neural, which comes with the package.",
        ),
    ],
    data: DataOption = None,
    out: SourceOption = None,
    name: ClassOption = "Rules",
    gamma: Annotated[
        tuple[float, float] | None,
        typer.Option(
            metavar="LOW HIGH",
            help="γ at β = 1 and at β = 0.",
            show_default="what the policy was trained for",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of orders and of the search.", min=0, max=MAX_SEED)] = 0,
    max_branches: BranchesOption = None,
    encoding: EncodingOption = "exact",
    cache: CacheOption = True,
) -> None:
    """Write a program that decides as a learned policy does, as the source of a controller."""
    with working() as on_progress:
        if out is not None:
            check_source_file(out)
        from autotts_jax.core import devices
        from autotts_jax.discovery.distillation import distill as distilling
        from autotts_jax.discovery.programs.source import check_class_name

        check_class_name(name)
        devices.configure(cache)
        on_progress("reading data", 0, 0)
        dataset = at.load(data or "synthetic", encoding)
        devices.pin_devices()
        on_progress("distilling", 0, distilling.ITERATIONS)
        source = distilling.distill(
            policy,
            dataset,
            gamma=gamma,
            seed=seed,
            max_branches=max_branches,
            on_iteration=lambda done: on_progress("distilling", done, distilling.ITERATIONS),
        ).source(name)
        if out is not None:
            write_atomically(out, source.encode())
    say_source(source, out)
