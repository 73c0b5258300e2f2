"""``autotts-jax bench``: normalised scores on fixed tasks, as a table and as files."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

import autotts_jax as at
from autotts_jax.cli.console import check_folder, console, say, working
from autotts_jax.cli.evaluate import named_players
from autotts_jax.cli.options import CacheOption, OutOption, SealOptions, utf8
from autotts_jax.errors import InputError


def bench(
    *,
    task: Annotated[
        str,
        typer.Option(
            parser=utf8, metavar="NAME", help="laptop, easy, medium, hard, arithmetic, frontier or recorded."
        ),
    ] = "laptop",
    controllers: Annotated[
        str,
        typer.Option(
            metavar="NAME,...",
            help="What to score: as in evaluate; random; or neural, which is shown the task's γ. A family "
            "without a value has it chosen on the questions of train and validation.",
        ),
    ] = "random,sc,asc,cmc,neural",
    agent: Annotated[
        list[str] | None,
        typer.Option(
            "--agent",
            metavar="NAME[/STEPS]=PLAYER",
            help="A learner's policy: neural:FILE or path/to/file.py:NAME; once for each training seed, and "
            "with the environment steps that it was trained for.",
            show_default="none",
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data", metavar="PATH", help="Matrices for the task recorded; repeatable.", show_default=False
        ),
    ] = None,
    part: Annotated[
        Literal["train", "validation", "test"], typer.Option(help="The questions that are scored.")
    ] = "test",
    seeds: Annotated[int, typer.Option(metavar="N", help="Play seeds 0 to N - 1; at least 5.")] = 20,
    baseline: Annotated[
        str,
        typer.Option(
            parser=utf8,
            metavar="NAME",
            help="What gains are measured over: published, sc@1 or an entry, as sc.",
        ),
    ] = "published",
    seal: SealOptions,
    out: OutOption = None,
    cache: CacheOption = True,
) -> None:
    """Score controllers and learners on a task: 0 is SC@1, 1 the best published controller.

    With --out: scores.csv and manifest.json.
    """
    with working() as on_progress:
        from autotts_jax.core import devices

        devices.configure(cache)
        players = [*named_players(controllers, None, None), _agents(agent or ())]
        check_folder(out, evaluation=True)
        devices.pin_devices()
        result = at.bench(
            task,
            players,
            data=data,
            part=part,
            seeds=seeds,
            baseline=baseline,
            sealing=seal.sealing(),
            on_progress=on_progress,
        )
        files = result.save(out) if out is not None else []
    console().print(result.table())
    if files:
        say(f"wrote {', '.join(file.name for file in files)} to {files[0].parent}")
    if result.evaluation.refused:
        raise typer.Exit(2)


def _agents(texts: list[str] | tuple[str, ...]) -> dict[str, dict[int | None, list[Any]]]:
    """Learners by name and steps, with a policy for each training seed."""
    agents: dict[str, dict[int | None, list[Any]]] = {}
    for text in texts:
        left, equals, player = text.partition("=")
        name, slash, steps = left.partition("/")
        if not (equals and name and player) or (slash and not steps.isdecimal()):
            raise InputError(f"--agent {text}: write it as NAME=PLAYER, or NAME/STEPS=PLAYER")
        by_steps = agents.setdefault(name, {})
        by_steps.setdefault(int(steps) if slash else None, []).append(player)
    return agents
