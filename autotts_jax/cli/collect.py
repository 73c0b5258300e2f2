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
    utf8,
)
from autotts_jax.errors import InputError
from autotts_jax.terminal import counted

if TYPE_CHECKING:
    from autotts_jax.collect.collector import CollectionProgress
    from autotts_jax.collect.store import Store

BRANCHES = 128
"""Branches that are sampled for a question where nothing else is said."""


def collect(
    *,
    questions: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE",
            help="JSONL, YAML, CSV or Parquet file, Hugging Face dataset id, or arithmetic[:COUNT[:SEED]].",
            show_default=False,
        ),
    ] = None,
    from_texts: Annotated[
        str | None,
        typer.Option(
            parser=utf8,
            metavar="FILE",
            help="Instead of --questions: probe completions that exist already, JSONL or Parquet with a "
            "question, a completion (text or token ids) and the answer in each row, or another layout that "
            "data import recognises; nothing is sampled.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(parser=path, metavar="FOLDER", help="The collection's folder.", show_default=False)
    ],
    engine: EngineOptions,
    branches: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Branches of each question.",
            show_default=f"{BRANCHES}; with --from-texts as many as each question has",
            min=1,
        ),
    ] = None,
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
    completion_column: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="With --from-texts: column of the completions.", show_default="found by name"
        ),
    ] = None,
    model_name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of the model in results.", show_default="end of --model"),
    ] = None,
    benchmark: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of the questions in results.", show_default="by the source"),
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
    """Sample and probe trajectories of a model, or probe completions that exist: a new probe matrix.

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
        from autotts_jax.collect.signals import FORCED
        from autotts_jax.collect.store import MATRIX, Store, made_with
        from autotts_jax.replay.reading import COLLECTED
        from autotts_jax.replay.signals import SIGNALS

        extractor(answers)  # a bad specification is an error before anything is collected
        open_grader(grader).close()
        completions = None
        if questions is not None and from_texts is None:
            if completion_column is not None:
                raise InputError("--completion-column belongs to --from-texts; leave it out")
            source, problems = questions, asked.read(questions, grader)
            branches = BRANCHES if branches is None else branches
        elif from_texts is not None and questions is None:
            if probes_per_prefix == 1:  # several would be sampled
                sampling.check_unsampled()
            completions = asked.read_completions(from_texts, grader, completion_column)
            source, problems = from_texts, list(completions.questions)
            branches = completions.num_branches(branches)
        else:
            raise InputError("give either --questions or --from-texts")
        kept = FORCED if completions else SIGNALS
        plan = Plan(
            model=model_name or engine.model_name,
            benchmark=benchmark or Path(source.partition(":")[0]).stem,
            questions=tuple(problems),
            num_branches=branches,
            chunk=chunk,
            sampling=sampling.sampling(engine, probes_per_prefix, kept if signals else (), out),
            answers=answers,
            grader=grader,
            keep_text=keep_text,
            engine=engine.spec(),
            completions_sha256=completions.sha256 if completions else None,
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
                yield from LocalWorkers(opened, in_flight, completions)(plan, units)

        dataset = run(
            plan,
            out,
            local
            if ray is None
            else RayWorkers(opener, ray, in_flight, num_gpus=ray_gpus, completions=completions),
            on_unit=_shown(on_progress),
            made_with=made_with(engine.engine, ["autotts-jax", *sys.argv[1:]]),
        )
        table = experiments.questions_table(dataset)
    console().print(table)
    if completions is not None:
        _say_of_completions(Store(out))
    written = ", ".join(name for name in (COLLECTED, MATRIX) if (out / name).exists())
    say(
        f"wrote {written} to {out}: {counted(len(dataset), 'question', 'questions')} of "
        f"{counted(branches, 'branch', 'branches')}"
    )
    # Episodes open 64 branches where nothing else is said, and so do the widest controllers.
    fewer = f" --controllers sc@{branches},cmc@0.5 --max-branches {branches}" if branches < 64 else ""
    say(f"evaluate it: autotts-jax evaluate --data {shlex.quote(str(out))}{fewer}")


def _say_of_completions(store: Store) -> None:
    """Says what is not in the matrix of completions that existed already."""
    from autotts_jax.collect.engine import Finish
    from autotts_jax.collect.signals import FORCED
    from autotts_jax.replay.signals import SIGNALS

    branches = [branch for unit in store.done() for branch in unit.branches]
    sampling = store.plan.sampling
    if cut := sum(branch.finish is Finish.length for branch in branches):
        said = f"{cut:,} of {len(branches):,} completions have not ended after {sampling.max_tokens:,} tokens"
        say(
            f"{said}: what is beyond was left out, and the answer forced there; --max-tokens sets that number"
        )
    if sampling.signals:
        untold = [name for name in SIGNALS if name not in FORCED]
        say(f"without {', '.join(untold)}: they are of sampled tokens, and nothing was sampled")


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
