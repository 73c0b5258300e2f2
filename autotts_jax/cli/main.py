"""The command line: ``autotts-jax``."""

from __future__ import annotations

import enum
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotts_jax.cli import llm
from autotts_jax.cli.console import console, print_written, working
from autotts_jax.errors import InputError

if TYPE_CHECKING:
    from autotts_jax.experiments.summary import Objective
    from autotts_jax.policies.players import Selection
    from autotts_jax.replay.dataset import ProbeDataset
    from autotts_jax.training.loop import Outcome

DEFAULT_CONTROLLERS = "sc@64,asc@64,esc@64,parallel-probe@64,cmc"
DEFAULT_TRACED = "cmc@0.5"
MAX_SEED = 2**32 - 1
LIVE_METRICS = ("generation", "objective", "accuracy", "tokens", "entropy", "kl", "explained_variance")

app = typer.Typer(
    name="autotts-jax",
    help="Replay controllers of test-time scaling over recorded probe matrices.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help: a framed table leaves too little room in 80 columns
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(
    help="Look into probe-matrix files, convert and check them.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(data_app, name="data")
app.command()(llm.collect)
app.command()(llm.answer)
app.command()(llm.serve)


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
        metavar="PATH",
        help="File, folder of <model>/<benchmark>.json, glob, or synthetic or smollm2, which come with the "
        "package; repeatable.",
        show_default="synthetic",
    ),
]
DataArgument = Annotated[list[str], typer.Argument(metavar="PATH", help="What --data of evaluate takes.")]
FilesArgument = Annotated[list[str], typer.Argument(metavar="PATH", help="Files, folders or globs.")]
ProtocolOption = Annotated[Protocol, typer.Option(help="How branch orders are drawn from a seed.")]
EncodingOption = Annotated[
    Encoding, typer.Option(help="Answers are equal by spelling (exact) or by mathematics (equiv).")
]
BudgetOption = Annotated[
    int | None,
    typer.Option(
        metavar="TOKENS",
        help="Token budget of an episode.",
        show_default="none",
    ),
]
BranchesOption = Annotated[int, typer.Option(metavar="W", help="Branches that an episode can open.", min=1)]
OutOption = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Write results here.", show_default="no files")
]
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
        str | None,
        typer.Option(
            metavar="NAME@VALUE,...",
            help="What to play. The value is β where the controller has one, else its number of branches; a "
            "name alone is its whole family. Names: sc, asc, esc, parallel-probe, cmc.",
            show_default=DEFAULT_CONTROLLERS,
        ),
    ] = None,
    controller: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Play one controller: a name, or a class of your own, compiled or a released program, as "
            "module:Class or path/to/file.py:Class.",
            show_default=False,
        ),
    ] = None,
    beta: Annotated[
        float | None, typer.Option(metavar="β", help="β of --controller.", show_default=False)
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE.py:NAME[@γ]",
            help="Also play a policy for WidthDepth or WidthDepthRounds, and show it γ. It is an object with "
            "env and act or predict, or what makes one; repeatable.",
            show_default="no policy; γ by --gamma",
        ),
    ] = None,
    protocol: ProtocolOption = Protocol.repo100,
    seeds: Annotated[
        int | None,
        typer.Option(metavar="N", help="Play seeds 0 to N - 1.", show_default="100 or 64, by protocol"),
    ] = None,
    encoding: EncodingOption = Encoding.exact,
    gamma: Annotated[
        float, typer.Option(metavar="γ", help="Price of a unit of cost in the objective.")
    ] = 1e-4,
    cost: Annotated[Unit, typer.Option(help="Unit of cost in the objective.")] = Unit.intervals,
    kappa_probe: Annotated[
        float, typer.Option(metavar="κ", help="Intervals that a probe costs in the objective.")
    ] = 0.0,
    budget: BudgetOption = None,
    max_branches: BranchesOption = 64,
    processes: Annotated[
        int | None,
        typer.Option(metavar="N", help="Processes for a released program.", show_default="all cores", min=1),
    ] = None,
    out: OutOption = None,
    cache: CacheOption = True,
) -> None:
    """Replay controllers over probe matrices and print the accuracy-cost table.

    Where two controllers or more are swept, over two values or more, their frontiers are compared as well.

    With --out: episodes.parquet, summary.csv, paired.csv, frontier.png, frontier.svg and manifest.json, and
    frontier.csv with the comparison.
    """
    arguments = {name: _plain(value) for name, value in locals().items()}
    with working() as tell:
        from autotts_jax.core import devices
        from autotts_jax.experiments import frontier, report, summary
        from autotts_jax.experiments.evaluate import evaluate as play

        devices.configure(cache)
        if controllers is not None and controller is not None:
            raise InputError("--controllers and --controller exclude each other; give one of them")
        objective = summary.Objective(gamma, kappa_probe, cost)
        selections = _selections(controllers or DEFAULT_CONTROLLERS, controller, beta)
        selections += _policies(policy or [], objective)
        with report.results_folder(out) as folder:
            dataset = _read(data, encoding, tell)
            devices.pin_devices()
            evaluation = play(
                dataset,
                selections,
                protocol=protocol,
                seeds=seeds,
                max_branches=max_branches,
                budget=budget,
                processes=processes or devices.usable_cores(),
                on_progress=tell,
            )
            tell("summary", 0, 0)
            rows = summary.summarise(evaluation, objective)
            comparisons = frontier.compare(evaluation, rows)
            files = []
            if folder:
                files = report.write_results(folder, evaluation, rows, arguments, comparisons)
    report.print_tables(rows, console())
    report.print_comparisons(comparisons, console())
    print_written(out, files)


@app.command()
def trace(
    controller: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A controller, as in evaluate.", show_default=DEFAULT_TRACED),
    ] = None,
    beta: Annotated[
        float | None, typer.Option(metavar="β", help="β of --controller.", show_default=False)
    ] = None,
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
    encoding: EncodingOption = Encoding.exact,
    protocol: ProtocolOption = Protocol.repo100,
    budget: BudgetOption = None,
    max_branches: BranchesOption = 64,
    out: OutOption = None,
) -> None:
    """Show one episode decision by decision.

    With --out: trace.jsonl, trace.png and trace.svg.
    """
    with working() as tell:
        from autotts_jax.core import devices
        from autotts_jax.experiments import report
        from autotts_jax.experiments.trace import print_trace, trace_episode, write_trace

        devices.configure()
        (selection,) = _selections(DEFAULT_TRACED, controller, beta)
        with report.results_folder(out) as folder:
            dataset = _read(data, encoding, tell)
            tell("episode", 0, 0)
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
            files = write_trace(folder, episode) if folder else []
    print_trace(episode, console())
    print_written(out, files)


@app.command()
def train(
    config: Annotated[
        Path,
        typer.Option(metavar="FILE", help="What to train, on what and how, in TOML.", show_default=False),
    ],
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            metavar="PATH",
            help="Train on these instead, as in evaluate; repeatable.",
            show_default="what the configuration names",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="The run's folder.", show_default="runs/<name of the configuration>"
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the newest checkpoint in the folder.")
    ] = False,
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="S", help="Seed of the run.", show_default="by configuration", min=0, max=MAX_SEED
        ),
    ] = None,
    fold: Annotated[
        int | None,
        typer.Option(
            metavar="K",
            help="Validate on this part of the questions, and train on the others.",
            show_default="by configuration",
            min=0,
        ),
    ] = None,
    updates: Annotated[
        int | None,
        typer.Option(metavar="N", help="Updates to make.", show_default="by configuration", min=0),
    ] = None,
    coordinator: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Train in several processes, which meet at this address of process 0 and share the run's "
            "folder; auto to have SLURM, Open MPI or another cluster say all three.",
            show_default="one process",
        ),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(metavar="N", help="Processes that train together.", show_default=False, min=1),
    ] = None,
    process: Annotated[
        int | None,
        typer.Option(metavar="K", help="Which one this is, from 0.", show_default=False, min=0),
    ] = None,
    cache: CacheOption = True,
) -> None:
    """Train a policy and keep the best one of the run.

    Ctrl-C or SIGTERM ends the run after the update under way; the same command with --resume goes on.
    """
    folder = out or Path("runs") / config.stem
    command = ["autotts-jax", *sys.argv[1:]]
    with working(f"the newest checkpoint in {folder} is as it was", shown=not process) as tell:
        import jax

        from autotts_jax.core import devices, hosts

        # The trainers use JAX when they are imported.
        devices.configure(cache)
        hosts.initialize(coordinator, processes, process)
        with hosts.together():
            from autotts_jax.training.config import read_config
            from autotts_jax.training.config import train as make_run

            settings = read_config(config).changed(data, seed, fold, updates)
            dataset = _read(settings.data.paths, Encoding(settings.data.encoding), tell)
        total = settings.run.updates
        tell("compiling", 0, 0)
        devices.pin_devices()
        outcome = make_run(
            settings,
            dataset,
            folder,
            command=command,
            resume=resume,
            on_progress=lambda update, figures: tell("training", update, total, _live(figures)),
        )
    if jax.process_index() == 0:
        _print_outcome(outcome, folder, total, shlex.join(command if resume else [*command, "--resume"]))
    if outcome.stopped_by:
        raise typer.Exit(128 + outcome.stopped_by)


def _print_outcome(outcome: Outcome, folder: Path, total: int, again: str) -> None:
    """Says how a run ended, and what can be done now."""
    done = outcome.progress
    if outcome.stopped_by:
        stopped = f"stopped by {outcome.stopped_by.name} after update {done.update} of {total}"
        print(f"autotts-jax: {stopped}; go on with: {again}", file=sys.stderr)
        return
    print(f"best validation objective: {done.best_objective:.4f}, at update {done.best_update}")
    if done.update < total:
        print(f"stopped early, after update {done.update} of {total}: no better objective since")
    print(f"best policy: {folder / 'best.npz'}")
    print(f"evaluate it: autotts-jax evaluate --controllers {shlex.quote(f'neural:{folder}')}")


def _live(figures: Mapping[str, float]) -> str:
    """The training metrics that are shown while a run goes on."""
    shown = {name: figures[f"train/{name}"] for name in LIVE_METRICS if f"train/{name}" in figures}
    return "  ".join(
        f"{name.replace('_', ' ')} {f'{value:,.0f}' if abs(value) >= 1000 else f'{value:.3g}'}"
        for name, value in shown.items()
    )


@data_app.command()
def info(data: DataArgument, encoding: EncodingOption = Encoding.exact) -> None:
    """Print what is in probe-matrix files, and how far collections are."""
    with working() as tell:
        from autotts_jax.collect.store import Store, is_collection
        from autotts_jax.experiments.report import collection_table, statistics_tables

        stores = [Store(Path(place)) for place in data if is_collection(Path(place))]
        tables = [collection_table(store) for store in stores]
        # Of a collection that is under way, the questions that are finished.
        growing = {store.folder: store for store in stores if store.missing()}
        for store in growing.values():
            if dataset := store.dataset():
                tables += statistics_tables(dataset)
        if rest := [place for place in data if Path(place) not in growing]:
            tables += statistics_tables(_read(rest, encoding, tell))
    for table in tables:
        console().print(table)


@data_app.command("import")
def import_(
    source: Annotated[
        str,
        typer.Argument(metavar="SOURCE", help="A checkout's folder, or a data set's id on the Hub."),
    ],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Write the files here.", show_default=False)],
) -> None:
    """Make a compact file of every cell in a checkout of the AutoTTS or Parallel-Probe release."""
    lines: list[str] = []
    with working("files that are there are whole") as tell:
        from autotts_jax.collect.releases import import_release

        tell("importing", 0, 0)
        files = import_release(source, out, lines.append)
    print(*lines, f"wrote {len(files)} files to {out}", sep="\n")


@data_app.command()
def convert(
    data: DataArgument,
    out: Annotated[
        Path,
        typer.Option(metavar="FILE", help="A compact file (.npz), or AutoTTS JSON of a single cell (.json)."),
    ],
    encoding: EncodingOption = Encoding.exact,
) -> None:
    """Convert to one compact file, or one cell to AutoTTS JSON."""
    with working() as tell:
        from autotts_jax.replay import formats

        writers = {".npz": formats.save_compact, ".json": formats.write_json}
        if out.suffix not in writers:
            raise InputError(f"--out {out}: the ending must be .npz (compact) or .json (AutoTTS)")
        dataset = _read(data, encoding, tell)
        tell("writing", 0, 0)
        writers[out.suffix](dataset, out)
    print(f"wrote {out}: {len(dataset.cells)} cells, {len(dataset)} questions")


@data_app.command()
def validate(data: FilesArgument) -> None:
    """Say of every file what is wrong with it; status 2 if any is."""
    lines = []
    bad = 0
    with working() as tell:
        from autotts_jax.replay import formats

        files = sorted({file for pattern in data for file in formats.find_files(pattern)})
        for done, file in enumerate(files):
            tell("checking", done, len(files))
            read = formats.read_compact if file.suffix == ".npz" else formats.read_json
            try:
                lines.append(f"good  {file}: {len(read(file))} questions")
            except InputError as error:
                lines.append(f"bad   {error}")
                bad += 1
    print(*lines, sep="\n")
    if bad:
        raise InputError(f"bad files: {bad} of {len(files)}; what is wrong is printed above")


def _read(
    data: Sequence[str] | None, encoding: Encoding, tell: Callable[[str, int, int], None]
) -> ProbeDataset:
    from autotts_jax.replay import embedded

    tell("reading data", 0, 0)
    return embedded.load(data or "synthetic", encoding)


def _selections(controllers: str, controller: str | None, beta: float | None) -> list[Selection]:
    from autotts_jax.policies.players import select

    if controller is not None:
        return [select(controller if beta is None else f"{controller}@{beta!r}")]
    if beta is not None:
        raise InputError("--beta belongs to --controller; in --controllers write name@β")
    specs = [spec.strip() for spec in controllers.split(",") if spec.strip()]
    if not specs:
        raise InputError("--controllers names none; give at least one, as cmc@0.5")
    return [select(spec) for spec in specs]


def _policies(specs: Sequence[str], objective: Objective) -> list[Selection]:
    from autotts_jax.policies.players import select_policy

    for spec in specs:
        if objective.unit == Unit.tokens and "@" not in spec:
            raise InputError(
                f"--policy {spec}: a policy is shown the price of an interval, but with --cost tokens "
                f"--gamma is that of a token; say what to show it, as {spec}@1e-4"
            )
    return [select_policy(spec, objective.gamma) for spec in specs]


def _plain(value: Any) -> Any:
    """An argument as JSON can hold it."""
    return str(value) if isinstance(value, Path | enum.Enum) else value
