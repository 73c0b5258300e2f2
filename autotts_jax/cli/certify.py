"""``autotts-jax certify``: the cheapest setting with a guarantee, as a table and a certificate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

import autotts_jax as at
from autotts_jax.cli.console import console, say, working
from autotts_jax.cli.evaluate import named_players
from autotts_jax.cli.options import (
    BranchesOption,
    CacheOption,
    EncodingOption,
    EngineOptions,
    LimitOptions,
    SamplingOptions,
    SealOptions,
    path,
    utf8,
)
from autotts_jax.errors import InputError

LossName = Literal["disagreement", "accuracy"]


def certify(
    *,
    data: Annotated[
        list[str],
        typer.Option(
            "--data",
            metavar="PATH",
            help="The calibration questions of one model, as --data of evaluate; repeatable.",
            show_default=False,
        ),
    ],
    epsilon: Annotated[float, typer.Option(metavar="ε", help="The largest loss, as 0.05 for 5 %.")],
    controllers: Annotated[
        str,
        typer.Option(
            parser=utf8,
            metavar="NAME@VALUE,...",
            help="The settings in order of cost, the cheapest first; a name alone is its whole family.",
        ),
    ] = "asc",
    delta: Annotated[
        float, typer.Option(metavar="δ", help="The largest probability that the loss is above ε.")
    ] = 0.05,
    loss: Annotated[
        LossName,
        typer.Option(
            help="What is lost against the majority of all branches: its answer (disagreement, which needs "
            "no reference answers), or accuracy."
        ),
    ] = "disagreement",
    encoding: EncodingOption = "exact",
    seeds: Annotated[int, typer.Option(metavar="N", help="Play seeds 0 to N - 1.", min=1)] = 100,
    max_branches: BranchesOption = None,
    seal: SealOptions,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the certificate here.", show_default="no file", parser=path),
    ] = None,
    cache: CacheOption = True,
) -> None:
    """Find the cheapest setting whose answers rarely differ from those of all branches, with a guarantee.

    With --out: a certificate for `serve --setting` and `answer --setting`. What is to be played live is
    certified with --encoding equiv.
    """
    with working() as on_progress:
        from autotts_jax.core import devices

        devices.configure(cache)
        on_progress("reading data", 0, 0)
        dataset = at.load(data, encoding)
        devices.pin_devices()
        result = at.certify(
            dataset,
            named_players(controllers, None, None),
            epsilon=epsilon,
            delta=delta,
            loss=loss,
            seeds=seeds,
            max_branches=max_branches,
            sealing=seal.sealing(),
            on_progress=on_progress,
        )
        if out is not None and result.setting is not None:
            result.save(out)
    console().print(result.table())
    if out is not None and result.setting is None:
        raise InputError(
            f"nothing is certified, so {out} is not written; allow a larger ε, or give more data"
        )
    if out is not None:
        say(f"wrote {out}")


def certified_setting(
    file: Path, engine: EngineOptions, sampling: SamplingOptions, grader: str, limits: LimitOptions
) -> str:
    """Reads which setting a certificate is of, and checks that it is to be played as it was certified.

    Raises:
        InputError: something differs.
        DataError: the file is no certificate.
    """
    certificate = at.experiments.read_certificate(file)
    certificate.check_live(
        model=engine.model_name,
        interval=sampling.interval,
        grader=grader,
        max_branches=limits.max_branches,
        budget=limits.budget,
    )
    return certificate.setting
