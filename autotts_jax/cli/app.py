"""All commands."""

from __future__ import annotations

from typing import Annotated

import typer

from autotts_jax import __version__
from autotts_jax.cli import data, discover
from autotts_jax.cli.ablate import ablate
from autotts_jax.cli.answer import answer
from autotts_jax.cli.batch import batch
from autotts_jax.cli.bench import bench
from autotts_jax.cli.certify import certify
from autotts_jax.cli.collect import collect
from autotts_jax.cli.console import say
from autotts_jax.cli.distill import distill
from autotts_jax.cli.evaluate import evaluate
from autotts_jax.cli.options import with_options
from autotts_jax.cli.paper import paper
from autotts_jax.cli.serve import serve
from autotts_jax.cli.summaries import SUMMARIES, GroupedGroup, summarise
from autotts_jax.cli.trace import trace
from autotts_jax.cli.train import train

app = typer.Typer(
    name="autotts-jax",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help: a framed table leaves too little room in 80 columns
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        say(f"autotts-jax {__version__}")
        raise typer.Exit


@app.callback()
def start(
    *,
    version: Annotated[  # its callback does it
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Replay controllers of test-time scaling over recorded probe matrices."""


for command in (evaluate, batch, certify, bench, trace, paper, train, collect, answer, serve):
    app.command()(with_options(command))
discover.app.command()(with_options(ablate))
discover.app.command()(with_options(distill))
for group in (discover, data):
    short, example = SUMMARIES[group.app.info.name]
    app.add_typer(group.app, cls=GroupedGroup, short_help=short, epilog=f"\b\nExample:\n  {example}")
for application in (app, discover.app, data.app):
    summarise(application)
