"""The command line: ``autotts-jax``."""

from __future__ import annotations

import sys
import warnings
from typing import TextIO

import typer

from autotts_jax.cli import data, discover
from autotts_jax.cli.ablate import ablate
from autotts_jax.cli.answer import answer
from autotts_jax.cli.collect import collect
from autotts_jax.cli.console import say
from autotts_jax.cli.evaluate import evaluate
from autotts_jax.cli.options import with_options
from autotts_jax.cli.serve import serve
from autotts_jax.cli.trace import trace
from autotts_jax.cli.train import train
from autotts_jax.errors import InputError, InputWarning

app = typer.Typer(
    name="autotts-jax",
    help="Replay controllers of test-time scaling over recorded probe matrices.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help: a framed table leaves too little room in 80 columns
    pretty_exceptions_enable=False,
)
for command in (evaluate, trace, train, collect, answer, serve):
    app.command()(with_options(command))
discover.app.command()(with_options(ablate))
app.add_typer(discover.app, name="discover")
app.add_typer(data.app, name="data")


def main() -> None:
    """Runs the command line; a user's error is one message on stderr and exit status 2."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", InputWarning)
        warnings.showwarning = _show_warning
        try:
            app()
        except InputError as error:
            say(f"autotts-jax: error: {error}", error=True)
            sys.exit(2)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,  # noqa: ARG001  # the standard library's signature
    line: str | None = None,
) -> None:
    """Prints an `InputWarning` as one line, and any other warning as Python does."""
    if issubclass(category, InputWarning):
        say(f"autotts-jax: warning: {message}", error=True)
    else:
        say(warnings.formatwarning(message, category, filename, lineno, line).rstrip(), error=True)
