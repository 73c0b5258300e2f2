"""``autotts-jax discover``: a search for controllers, and what searches have found."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import autotts_jax as at
from autotts_jax.cli.console import console, say, working
from autotts_jax.cli.options import (
    MAX_SEED,
    BranchesOption,
    CacheOption,
    DataOption,
    EncodingOption,
    LoggersOption,
    SandboxOptions,
    named_loggers,
    path,
    with_options,
)
from autotts_jax.errors import InputError
from autotts_jax.files import write_atomically

if TYPE_CHECKING:
    from autotts_jax.discovery import Member, OpenAIProposer, SearchProgress, Written

app = typer.Typer(
    name="discover",
    help="Search for a controller that is better than CMC, or show what a search has found.",
    invoke_without_command=True,
    rich_markup_mode=None,
)


TESTING = "testing what was found on the questions left out"
"""What is shown while the test is played."""


@dataclasses.dataclass(frozen=True)
class WriterOptions:
    """The options that say how a language model writes candidates, and what may be paid for it."""

    base_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Address of the server of openai:MODEL, with /v1.",
            show_default="OPENAI_BASE_URL, or OpenAI's own",
        ),
    ] = None
    files: Annotated[
        int | None, typer.Option(metavar="N", help="Files that a round asks a model for.", show_default="4")
    ] = None
    reply_tokens: Annotated[
        int | None, typer.Option(metavar="TOKENS", help="Most tokens of a reply.", show_default="8192")
    ] = None
    price: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL=IN,OUT",
            help="Dollars for a million tokens of prompts and of replies; repeatable.",
            show_default="unpriced",
        ),
    ] = None
    max_tokens: Annotated[
        int | None,
        typer.Option(metavar="TOKENS", help="Tokens that the run may pay for.", show_default="1000000"),
    ] = None
    max_dollars: Annotated[
        float | None,
        typer.Option(metavar="DOLLARS", help="Dollars that the run may pay.", show_default="no limit"),
    ] = None

    def proposers(self, text: str, critic: str | None = None) -> list[str | OpenAIProposer]:
        """The proposers, those that ask a model with these settings.

        Raises:
            InputError: an option is malformed, or is about a model that is not a proposer.
        """
        names = [name.strip() for name in text.split(",") if name.strip()]
        models = [name.removeprefix("openai:") for name in names if name.startswith("openai:")]
        given = [field.name for field in dataclasses.fields(self) if getattr(self, field.name) is not None]
        if given and not models:
            options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            raise InputError(f"{options}: no model is asked; name one in --proposers, as openai:MODEL")
        if critic and critic.startswith("openai:"):
            models.append(critic.removeprefix("openai:"))
        prices = dict(map(_price, self.price or ()))
        if strangers := [model for model in prices if model not in models]:
            raise InputError(
                f"--price {strangers[0]}=…: no proposer is openai:{strangers[0]}; the models are "
                f"{', '.join(models)}"
            )
        if self.max_dollars is not None and (unpriced := [model for model in models if model not in prices]):
            raise InputError(
                f"--max-dollars cannot hold, because {unpriced[0]} has no price; give --price "
                f"{unpriced[0]}=IN,OUT in dollars for a million tokens, or limit --max-tokens"
            )
        settings: dict[str, Any] = {
            "base_url": self.base_url,
            "count": self.files,
            "reply_tokens": self.reply_tokens,
            "prices": prices,
            "max_tokens": self.max_tokens,
            "max_dollars": self.max_dollars,
        }
        settings = {name: value for name, value in settings.items() if value is not None}

        def named(name: str) -> str | OpenAIProposer:
            if not name.startswith("openai:"):
                return name
            from autotts_jax.discovery import OpenAIProposer

            return OpenAIProposer(name.removeprefix("openai:"), **settings)

        return [named(name) for name in names]


RunArgument = Annotated[Path, typer.Argument(parser=path, metavar="FOLDER", help="Folder of a run.")]
SourceOption = Annotated[
    Path | None, typer.Option(parser=path, metavar="FILE", help="Write it here.", show_default="print it")
]
ClassOption = Annotated[str, typer.Option(metavar="NAME", help="Name of the class.")]


@app.callback()
@with_options
def discover(
    *,
    context: typer.Context,
    data: DataOption = None,
    out: Annotated[Path, typer.Option(parser=path, metavar="FOLDER", help="The run's folder.")] = Path(
        "runs/discover"
    ),
    proposers: Annotated[
        str,
        typer.Option(
            metavar="NAME,...",
            help="Who proposes, in turns: rules, constants, constants:FILE, random, openai:MODEL, claude.",
        ),
    ] = "rules",
    writer: WriterOptions,
    incumbent: Annotated[str, typer.Option(metavar="NAME", help="The family to beat.")] = "cmc",
    candidates: Annotated[
        int | None,
        typer.Option(metavar="N", help="Candidates to try in all.", show_default="no limit", min=1),
    ] = None,
    cpu_minutes: Annotated[
        float | None,
        typer.Option(
            metavar="MINUTES",
            help="CPU time of the rounds, over all cores; start and test, a minute or more, come on top.",
            show_default="10, or no limit with --candidates",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="S", help="Seed of the run.", min=0, max=MAX_SEED)] = 0,
    max_branches: BranchesOption = None,
    traces: Annotated[
        bool, typer.Option("--traces/--no-traces", help="Show those who write files episodes of them.")
    ] = True,
    beta: Annotated[
        bool,
        typer.Option("--beta/--no-beta", help="Candidates are families over β, or one controller each."),
    ] = True,
    critic: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Who judges candidates before they are executed: nearest, openai:MODEL.",
            show_default="nobody",
        ),
    ] = None,
    limits: SandboxOptions,
    encoding: EncodingOption = "exact",
    loggers: LoggersOption = "",
    cache: CacheOption = True,
) -> None:
    """Search for a controller that is better than CMC, by default without a language model.

    Ctrl-C ends the run after the last whole round; the same command continues it.
    """
    if context.invoked_subcommand is not None:
        return
    named = writer.proposers(proposers, critic)
    with working(f"whole rounds are kept in {out}; the same command continues") as on_progress:
        from autotts_jax.core import devices
        from autotts_jax.discovery.judging.measuring import LIMITS

        devices.configure(cache)
        sandbox = limits.limits(LIMITS)
        on_progress("reading data", 0, 0)
        dataset = at.load(data or "synthetic", encoding)
        devices.pin_devices()
        on_progress("compiling", 0, 0)
        found = at.discover(
            dataset,
            out=out,
            proposers=named,
            incumbent=incumbent,
            candidates=candidates,
            cpu_minutes=cpu_minutes,
            seed=seed,
            max_branches=max_branches,
            traces=traces,
            beta=beta,
            critic=critic,
            sandbox=sandbox,
            loggers=named_loggers(loggers),
            on_round=lambda progress: on_progress(*_shown(progress)),
            on_test=lambda done, parts: on_progress(TESTING, done, parts),
        )
    console().print(found.table())


def _shown(progress: SearchProgress) -> tuple[str, int, int, str]:
    """What the bar shows after a round; the last one is followed by the test."""
    note = (
        f"round {progress.round}: {progress.candidates:,} candidates; "
        + ("all questions" if progress.fold is None else f"without fold {progress.fold}")
        + _best(progress.best)
    )
    if progress.spent < 1:
        return "searching", int(100 * progress.spent), 100, note
    return TESTING, 0, 0, note


def _best(best: Member | Written | None) -> str:
    """Says who is best so far."""
    if best is None:
        return ": all have failed"
    from autotts_jax.discovery import Member

    parts = f"{best.program.length} parts" if isinstance(best, Member) else "a file"
    return f": best {best.score:.4f} with {parts}"


def _price(text: str) -> tuple[str, tuple[float, float]]:
    """The model and its price that ``MODEL=IN,OUT`` says."""
    model, equals, prices = text.rpartition("=")
    try:
        prompt, reply = map(float, prices.split(","))
    except ValueError:
        equals = ""
    if not (model and equals):
        raise InputError(
            f"--price {text}: write it as MODEL=IN,OUT, dollars for a million tokens of prompts and of "
            "replies, as --price gpt-5-mini=0.25,2"
        )
    return model, (prompt, reply)


@app.command()
def show(
    folder: RunArgument,
    parquet: Annotated[
        Path | None,
        typer.Option(
            parser=path, metavar="FILE", help="Write all candidates here as Parquet.", show_default="no file"
        ),
    ] = None,
    lineage: Annotated[
        Path | None,
        typer.Option(
            parser=path,
            metavar="FILE",
            help="Draw a candidate's ancestors here; the suffix gives the format, as .png.",
            show_default="no file",
        ),
    ] = None,
    number: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="The candidate to draw.", show_default="the one that was tested last", min=0
        ),
    ] = None,
) -> None:
    """Print what a run has found so far."""
    with working("what was written is complete", shown=False):
        found = at.read_run(folder)
        if number is not None and lineage is None:
            raise InputError("--number is the candidate that --lineage draws; give a file to draw it in")
        if lineage is not None:
            found.check_no_part(lineage)
            content = io.BytesIO()
            figure = found.plot_lineage(number)
            kinds = figure.canvas.get_supported_filetypes()
            kind = lineage.suffix.removeprefix(".").lower()
            if kind not in kinds:
                raise InputError(f"--lineage {lineage}: the suffix must be one of {', '.join(sorted(kinds))}")
            figure.savefig(content, format=kind)
            write_atomically(lineage, content.getvalue())
        if parquet is not None:
            found.to_parquet(parquet)
    console().print(found.table())
    for file in (lineage, parquet):
        if file is not None:
            say(f"wrote {file}")


@app.command()
def export(
    folder: RunArgument,
    out: SourceOption = None,
    name: ClassOption = "Found",
    number: Annotated[
        int | None,
        typer.Option(metavar="N", help="A candidate.", show_default="the one that was tested last", min=0),
    ] = None,
) -> None:
    """Write a candidate as the source of a controller."""
    with working(shown=False):
        source = at.read_run(folder).source(name, number)
        if out is not None:
            check_source_file(out)
            write_atomically(out, source.encode())
    say_source(source, out)


def check_source_file(out: Path) -> None:
    """Checks that a controller's source can be written to a file.

    Raises:
        InputError: it exists, or has a name that it cannot be played by.
    """
    if out.suffix != ".py":
        raise InputError(f"--out {out}: name a file that ends in .py, so that it can be played")
    if out.exists():
        raise InputError(f"{out} exists; name another file")
    if not out.parent.is_dir():
        raise InputError(f"--out {out}: there is no folder {out.parent}; make it first")


def say_source(source: str, out: Path | None) -> None:
    """Prints a controller's source, or says where it was written to."""
    if out is None:
        say(*source.splitlines())
    else:
        say(f"wrote {out}: play it with evaluate --controllers {out}:FAMILY")
