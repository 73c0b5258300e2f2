"""``autotts-jax collect``: a new probe matrix from a language model."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotts_jax import experiments
from autotts_jax.cli.console import console, say, working
from autotts_jax.cli.options import (
    AnswersOption,
    EngineOptions,
    GraderOption,
    QuestionOptions,
    SamplingOptions,
    path,
)
from autotts_jax.errors import InputError

if TYPE_CHECKING:
    from autotts_jax.collect.collector import CollectionProgress


def collect(
    *,
    questions: Annotated[
        str,
        typer.Option(
            metavar="SOURCE",
            help="JSONL, CSV or Parquet file, Hugging Face dataset id, or arithmetic[:COUNT[:SEED]].",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path, typer.Option(parser=path, metavar="FOLDER", help="The collection's folder.", show_default=False)
    ],
    engine: EngineOptions,
    branches: Annotated[int, typer.Option(metavar="N", help="Branches of each question.", min=1)] = 128,
    sampling: SamplingOptions,
    probes_per_prefix: Annotated[
        int, typer.Option(metavar="P", help="Forced answers of each prefix; several are sampled.", min=1)
    ] = 1,
    answers: AnswersOption = "auto",
    grader: GraderOption = "math",
    signals: Annotated[
        bool, typer.Option("--signals", help="Keep signals: how sure the model was, by its probabilities.")
    ] = False,
    keep_text: Annotated[bool, typer.Option("--keep-text", help="Keep the text of the branches.")] = False,
    asked: QuestionOptions,
    model_name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of the model in results.", show_default="end of --model"),
    ] = None,
    benchmark: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of the questions in results.", show_default="by --questions"),
    ] = None,
    chunk: Annotated[
        int, typer.Option(metavar="N", help="Branches that are written and kept together.", min=1)
    ] = 16,
    in_flight: Annotated[
        int, typer.Option(metavar="N", help="Branches that the engine writes at once.", min=1)
    ] = 256,
    ray: Annotated[
        int | None,
        typer.Option(metavar="N", help="Use N engines on a Ray cluster.", show_default="no", min=1),
    ] = None,
    ray_gpus: Annotated[float, typer.Option(metavar="G", help="GPUs of each of these engines.", min=0)] = 1,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Estimate tokens, time and disk space, and do nothing else.")
    ] = False,
    tokens_per_second: Annotated[
        float | None,
        typer.Option(
            metavar="R", help="With --dry-run: tokens that the engine writes.", show_default=False, min=1e-3
        ),
    ] = None,
) -> None:
    """Sample and probe trajectories of a model: a new probe matrix.

    Finished units are kept, so running the same command again resumes a stopped collection. At the end the
    folder has matrix.npz and, unless that would be too large, matrix.json, and evaluate takes it as --data.
    """
    with working(f"what was collected is in {out}; run the same command to resume") as on_progress:
        from autotts_jax.collect.answers import extractor
        from autotts_jax.collect.collector import LocalWorkers
        from autotts_jax.collect.collector import collect as run
        from autotts_jax.collect.estimate import estimate
        from autotts_jax.collect.graders import open_grader
        from autotts_jax.collect.plan import Collected, Plan, Unit
        from autotts_jax.collect.ray_workers import RayWorkers
        from autotts_jax.collect.store import MATRIX, made_with
        from autotts_jax.replay.reading import COLLECTED

        extractor(answers)  # a bad specification is an error before anything is collected
        open_grader(grader).close()
        problems = asked.read(questions, grader)
        plan = Plan(
            model=model_name or engine.model_name,
            benchmark=benchmark or Path(questions.partition(":")[0]).stem,
            questions=tuple(problems),
            num_branches=branches,
            chunk=chunk,
            sampling=sampling.sampling(engine, probes_per_prefix, signals, out),
            answers=answers,
            grader=grader,
            keep_text=keep_text,
            engine=engine.spec(),
        )
        if dry_run or tokens_per_second is not None:
            if not dry_run:
                raise InputError("--tokens-per-second belongs to --dry-run; leave it out, or give both")
            table = experiments.estimate_table(estimate(plan, out), tokens_per_second)
            console().print(table)
            return
        opener = engine.opener()

        def local(plan: Plan, units: Iterable[Unit]) -> Generator[Collected, None, None]:
            on_progress("loading the model", 0, 0)
            with contextlib.closing(opener()) as opened:
                yield from LocalWorkers(opened, in_flight)(plan, units)

        dataset = run(
            plan,
            out,
            local if ray is None else RayWorkers(opener, ray, in_flight, num_gpus=ray_gpus),
            on_unit=_shown(on_progress),
            made_with=made_with(engine.engine, ["autotts-jax", *sys.argv[1:]]),
        )
        table = experiments.questions_table(dataset)
    console().print(table)
    written = ", ".join(name for name in (COLLECTED, MATRIX) if (out / name).exists())
    say(f"wrote {written} to {out}: {len(dataset)} questions of {branches} branches")
    # Episodes open 64 branches where nothing else is said, and so do the widest controllers.
    fewer = f" --controllers sc@{branches},cmc@0.5 --max-branches {branches}" if branches < 64 else ""
    say(f"evaluate it: autotts-jax evaluate --data {shlex.quote(str(out))}{fewer}")


def _shown(on_progress: Callable[..., None]) -> Callable[[CollectionProgress], None]:
    """Shows the progress of a collection as a bar, with its rates below."""

    def show(progress: CollectionProgress) -> None:
        usage, seconds = progress.usage, max(progress.seconds, 1e-9)
        note = (
            f"{usage.generated:,} tokens ({usage.generated / seconds:,.0f}/s)  {usage.probes:,} probes "
            f"({usage.probes / seconds:,.0f}/s)  cache {usage.cached / max(usage.prompted, 1):.0%}  "
            f"left {progress.seconds_left / 60:,.1f} min  in all about {progress.tokens_in_all:,} tokens"
        )
        if progress.branches < progress.of:
            on_progress("collecting", progress.branches, progress.of, note)
        else:
            on_progress("grading", 0, 0)

    return show
