"""The command line: ``autotts-jax``."""

from __future__ import annotations

import contextlib
import enum
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from autotts_jax.errors import InputError

DEFAULT_CONTROLLERS = "sc@64,asc@64,esc@64,parallel-probe@64,cmc"
INTERRUPTED = 130

app = typer.Typer(
    name="autotts-jax",
    help="Replay controllers of test-time scaling over recorded probe matrices.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(help="Look into probe-matrix files, convert and check them.", no_args_is_help=True)
app.add_typer(data_app, name="data")


class Encoding(enum.StrEnum):
    """When two answers are equal."""

    exact = "exact"
    equiv = "equiv"


class Protocol(enum.StrEnum):
    """How branch orders are drawn."""

    repo100 = "repo100"
    paper64 = "paper64"


class Unit(enum.StrEnum):
    """What the cost in the objective is counted in."""

    intervals = "intervals"
    tokens = "tokens"


DataOption = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        help="File, folder of <model>/<benchmark>.json, or glob; repeatable. Left out: the embedded data.",
    ),
]
EncodingOption = Annotated[
    Encoding, typer.Option(help="Answers are equal by spelling (exact) or by mathematics (equiv).")
]
BudgetOption = Annotated[int | None, typer.Option(help="Token budget of an episode.", show_default="none")]
BranchesOption = Annotated[int, typer.Option(help="W: branches that an episode can open.", min=1)]
CacheOption = Annotated[
    bool, typer.Option("--cache/--no-cache", help="Keep compiled programs in a per-user folder.")
]


def main() -> None:
    """Runs the command line; a user's error is one message on stderr and exit status 2."""
    try:
        app()
    except InputError as error:
        print(f"autotts-jax: error: {error}", file=sys.stderr)
        sys.exit(2)


@app.command()
def evaluate(
    data: DataOption = None,
    controllers: Annotated[
        str,
        typer.Option(
            help="Comma-separated name@value: β where the controller has one, else the number of branches; "
            "a name alone is its whole family. Besides sc, asc, esc, parallel-probe and cmc, a class of "
            "your own as module:Class or path/to/file.py:Class."
        ),
    ] = DEFAULT_CONTROLLERS,
    controller: Annotated[
        str | None, typer.Option(help="One controller instead of --controllers; see --beta.")
    ] = None,
    beta: Annotated[float | None, typer.Option(help="β of --controller.")] = None,
    protocol: Annotated[
        Protocol, typer.Option(help="How branch orders are drawn from a seed.")
    ] = Protocol.repo100,
    seeds: Annotated[
        int | None, typer.Option(help="Seeds 0 … n-1.", show_default="100 or 64, by protocol")
    ] = None,
    encoding: EncodingOption = Encoding.exact,
    gamma: Annotated[float, typer.Option(help="γ: price of a unit of cost in the objective.")] = 1e-4,
    cost: Annotated[Unit, typer.Option(help="Unit of cost in the objective.")] = Unit.intervals,
    kappa_probe: Annotated[float, typer.Option(help="κ_probe: intervals charged for a probe.")] = 0.0,
    budget: BudgetOption = None,
    max_branches: BranchesOption = 64,
    processes: Annotated[
        int | None, typer.Option(help="Processes for released programs.", show_default="all cores", min=1)
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for episodes.parquet, summary.csv, the frontier, …")
    ] = None,
    cache: CacheOption = True,
) -> None:
    """Replay controllers over probe matrices and print the accuracy-cost table."""
    arguments = {name: _plain(value) for name, value in locals().items()}
    from autotts_jax.experiments import report, runtime, summary
    from autotts_jax.experiments.evaluate import evaluate as play

    runtime.configure(cache)
    objective = summary.Objective(gamma, kappa_probe, cost)
    selections = _selections(controllers, controller, beta)
    console = Console()
    with contextlib.ExitStack() as stack:
        stack.enter_context(_interruptible())
        folder = stack.enter_context(report.results_folder(out)) if out else None
        on_progress = stack.enter_context(_progress())
        dataset = _read(data, encoding, on_progress)
        evaluation = play(
            dataset,
            selections,
            protocol=protocol,
            seeds=seeds,
            max_branches=max_branches,
            budget=budget,
            processes=processes or runtime.usable_cores(),
            on_progress=on_progress,
        )
        on_progress("summary", 0, 0)
        rows = summary.summarise(evaluation, objective)
        if folder:
            report.write_results(folder, evaluation, rows, arguments)
    report.print_tables(rows, console)
    if out:
        console.print(f"wrote {out}/: {', '.join(sorted(file.name for file in out.iterdir()))}")


@app.command()
def trace(
    controller: Annotated[str, typer.Option(help="A controller, as evaluate takes it.")] = "cmc",
    beta: Annotated[float | None, typer.Option(help="β of the controller.")] = None,
    question: Annotated[int, typer.Option(help="Position of the question in its cell.", min=0)] = 0,
    seed: Annotated[int, typer.Option(help="Seed of the branch order.", min=0)] = 0,
    data: DataOption = None,
    cell: Annotated[
        str | None, typer.Option(help="<model>/<benchmark>.", show_default="the first one")
    ] = None,
    encoding: EncodingOption = Encoding.exact,
    protocol: Annotated[
        Protocol, typer.Option(help="How the branch order is drawn from the seed.")
    ] = Protocol.repo100,
    budget: BudgetOption = None,
    max_branches: BranchesOption = 64,
    out: Annotated[Path | None, typer.Option(help="Folder for trace.jsonl and trace.png/.svg.")] = None,
) -> None:
    """Show one episode decision by decision."""
    from autotts_jax.experiments import report
    from autotts_jax.experiments.trace import print_trace, trace_episode, write_trace

    (selection,) = _selections("", controller, beta)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_interruptible())
        folder = stack.enter_context(report.results_folder(out)) if out else None
        on_progress = stack.enter_context(_progress())
        dataset = _read(data, encoding, on_progress)
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
        if folder:
            write_trace(folder, episode)
    print_trace(episode, Console())


@data_app.command()
def info(data: Annotated[list[str], typer.Argument(help="Files, folders or globs.")]) -> None:
    """Print what is in probe-matrix files."""
    from autotts_jax.experiments.report import statistics_table

    with _interruptible(), _progress() as on_progress:
        table = statistics_table(_read(data, Encoding.exact, on_progress))
    Console().print(table)


@data_app.command()
def convert(
    data: Annotated[list[str], typer.Argument(help="Files, folders or globs.")],
    out: Annotated[
        Path, typer.Option(help="A compact file (.npz), or AutoTTS JSON of a single cell (.json).")
    ],
    encoding: EncodingOption = Encoding.exact,
) -> None:
    """Put probe matrices into one compact file, or one cell into AutoTTS JSON."""
    from autotts_jax.replay import formats

    writers = {".npz": formats.save_compact, ".json": formats.write_json}
    if out.suffix not in writers:
        raise InputError(f"--out {out}: the ending must be .npz (compact) or .json (AutoTTS)")
    with _interruptible(), _progress() as on_progress:
        dataset = _read(data, encoding, on_progress)
        writers[out.suffix](dataset, out)
    print(f"wrote {out}: {len(dataset.cells)} cells, {len(dataset)} questions")


@data_app.command()
def validate(
    data: Annotated[list[str], typer.Argument(help="Files, folders or globs.")],
) -> None:
    """Check every file; print what is wrong with each bad one and exit with status 2 if there is one."""
    from autotts_jax.replay import formats

    bad = 0
    with _interruptible():
        for file in formats.find_files(data):
            try:
                dataset = formats.read([str(file)])
            except InputError as error:
                bad += 1
                print(f"bad   {error}")
            else:
                print(f"good  {file}: {len(dataset)} questions")
    if bad:
        raise InputError(f"{bad} bad file{'s' if bad > 1 else ''}; see above")


def _read(data: Sequence[str] | None, encoding: Encoding, on_progress):
    from autotts_jax.replay import formats, synthetic

    on_progress("reading data", 0, 0)
    if data:
        return formats.read(data, encoding)
    if encoding is not Encoding.exact:
        raise InputError("the embedded data has only the exact encoding; give --data for equiv")
    return synthetic.synthetic()


def _selections(controllers: str, controller: str | None, beta: float | None):
    from autotts_jax.policies.registry import select

    if controller is not None:
        controllers = controller if beta is None else f"{controller}@{beta!r}"
    elif beta is not None:
        raise InputError("--beta belongs to --controller; in --controllers write name@β")
    specs = [spec.strip() for spec in controllers.split(",") if spec.strip()]
    if not specs:
        raise InputError("--controllers names none; give at least one, as cmc@0.5")
    return [select(spec) for spec in specs]


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C ends the command with one line."""
    try:
        yield
    except KeyboardInterrupt:
        print("autotts-jax: interrupted; nothing was written", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None


@contextlib.contextmanager
def _progress() -> Iterator[Any]:
    """A progress bar on stderr, gone when done; yields what is to be told of progress."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)
        current = None

        def on_progress(what: str, done: int, total: int) -> None:
            nonlocal current
            if what != current:
                bar.reset(task, description=what)
                current = what
            bar.update(task, completed=done, total=total or None)

        yield on_progress


def _plain(value: Any) -> Any:
    """An argument as JSON can hold it."""
    return str(value) if isinstance(value, (Path, enum.Enum)) else value
