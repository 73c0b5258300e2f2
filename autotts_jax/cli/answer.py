"""``autotts-jax answer``: one question or many, answered by a model under a controller."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import autotts_jax as at
from autotts_jax import policies
from autotts_jax.cli.certify import certified_setting
from autotts_jax.cli.console import console, say, working
from autotts_jax.cli.options import (
    AnswersOption,
    BetaOption,
    EngineOptions,
    GraderOption,
    LimitOptions,
    OutOption,
    QuestionOptions,
    SamplingOptions,
    SealOptions,
    SettingOption,
    path,
)
from autotts_jax.errors import InputError
from autotts_jax.terminal import counted, styled

if TYPE_CHECKING:
    from autotts_jax.core import Decision
    from autotts_jax.experiments import Answered
    from autotts_jax.live import Answer

DEFAULT_CONTROLLER = "cmc@0.5"


def answer(
    question: Annotated[
        str | None, typer.Argument(metavar="[QUESTION]", help="The question.", show_default=False)
    ] = None,
    *,
    questions: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE",
            help="Answer many questions, from what --questions of collect takes, and write to --out.",
            show_default=False,
        ),
    ] = None,
    out: OutOption = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="COLLECTION",
            help="With --questions: compare with the replay of this collection, which has the same engine, "
            "sampling and seed.",
            show_default=False,
            parser=path,
        ),
    ] = None,
    at_once: Annotated[
        int, typer.Option(metavar="N", help="Questions that are answered at once.", min=1)
    ] = 1,
    asked: QuestionOptions,
    engine: EngineOptions,
    controller: Annotated[
        str, typer.Option(metavar="NAME[@VALUE]", help="A controller, as in evaluate.")
    ] = DEFAULT_CONTROLLER,
    beta: BetaOption = None,
    setting: SettingOption = None,
    allocator: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="With --questions: --budget is for all of them, and this allocator shares it out, as in "
            "batch.",
            show_default="none",
        ),
    ] = None,
    sampling: SamplingOptions,
    answers: AnswersOption = "auto",
    grader: GraderOption = "math",
    limits: LimitOptions,
    seal: SealOptions,
    trace: Annotated[bool, typer.Option("--trace", help="Print each decision.")] = False,
    json_out: Annotated[bool, typer.Option("--json", help="Print everything as one JSON object.")] = False,
) -> None:
    """Answer a question with a model under a controller, and print what it took.

    With --questions and --out: many questions, with accuracy, tokens and latency. answers.jsonl has a line
    for each as soon as it is answered, so running the same command again resumes a stopped run. With
    --allocator too, all questions share one budget, and reads.jsonl has a line for each branch.
    """
    spec = controller if beta is None else f"{controller.partition('@')[0]}@{beta!r}"
    if setting is not None:
        if controller != DEFAULT_CONTROLLER or beta is not None or allocator is not None:
            raise InputError("--setting says what answers; leave --controller, --beta and --allocator out")
        spec = certified_setting(setting, engine, sampling, grader, limits)
    if questions is None:
        if question is None:
            raise InputError("give a question, or --questions with --out")
        if out is not None or data is not None or allocator is not None:
            raise InputError("--out, --data and --allocator go with --questions; leave them out, or give it")
        _answer_one(question, engine, spec, sampling, answers, grader, limits, seal, trace, json_out)
        return
    if out is None:
        raise InputError("--questions needs a folder to write to; give --out FOLDER")
    if question is not None or trace:
        raise InputError("a question and --trace do not go with --questions; leave them out")
    if allocator is not None and limits.budget is None:
        raise InputError("--allocator shares out one budget; give --budget TOKENS, for all questions")
    if allocator is not None and spec != DEFAULT_CONTROLLER:
        raise InputError("--allocator says which question reads its next branch; leave --controller out")
    with working(f"what was answered is in {out}; run the same command to resume") as on_progress:
        from autotts_jax.collect.store import made_with
        from autotts_jax.core import devices

        devices.configure()
        on_progress("reading data", 0, 0)
        problems = asked.read(questions, grader, needs_gold=False)
        on_progress(engine.opening, 0, 0)
        settings: dict[str, Any] = {
            "out": out,
            "collection": data,
            "sampling": sampling.sampling(engine, collection=data),
            "answers": answers,
            "grader": grader,
            "max_branches": limits.max_branches,
            "budget": limits.budget,
            "at_once": at_once,
            "spec": engine.spec(),
            "made_with": made_with(engine.engine, ["autotts-jax", *sys.argv[1:]]),
        }
        if allocator is not None:

            def on_read(spent: int, budget: int) -> None:
                on_progress("answering", spent, budget, "tokens of the budget")

            run = at.answer_batch(engine.opener(), problems, allocator, on_read=on_read, **settings)
        else:
            sealing, on_answer = seal.sealing(), _shown(on_progress)
            run = at.answer_questions(
                engine.opener(), problems, spec, sealing=sealing, on_answer=on_answer, **settings
            )
    if json_out:
        say(json.dumps(run.summary(), ensure_ascii=False))
        return
    console().print(run.table())
    reads, replay = "" if allocator is None else ", reads.jsonl", "" if data is None else ", replay.jsonl"
    say(f"wrote answers.jsonl{reads}{replay} to {out}")


def _shown(on_progress: Callable[..., None]) -> Callable[[Sequence[Answered], int], None]:
    """Shows the progress of a run as a bar, with its accuracy and the time left below."""
    began, before = time.monotonic(), -1

    def show(answered: Sequence[Answered], of: int) -> None:
        nonlocal before
        before = len(answered) - 1 if before < 0 else before
        graded = [row.correct for row in answered if row.correct is not None]
        accuracy = f"accuracy {100 * sum(graded) / len(graded):.1f} %  " if graded else ""
        tokens = sum(row.tokens for row in answered) / len(answered)
        left = (of - len(answered)) * (time.monotonic() - began) / (len(answered) - before)
        note = f"{accuracy}{tokens:,.0f} tokens a question  left {left / 60:,.1f} min"
        on_progress("answering", len(answered), of, note)

    return show


def _answer_one(
    question: str,
    engine: EngineOptions,
    spec: str,
    sampling: SamplingOptions,
    answers: str,
    grader: str,
    limits: LimitOptions,
    seal: SealOptions,
    trace: bool,
    json_out: bool,
) -> None:
    """Answers a single question, and prints what it took."""
    with working() as on_progress:
        from autotts_jax.core import devices

        devices.configure()
        player = policies.select(spec, sealing=seal.sealing())
        player.check_single()
        settings = sampling.sampling(engine)

        def on_decision(decision: Decision) -> None:
            on_progress("answering", 0, 0, _line(decision))

        on_progress(engine.opening, 0, 0)
        with contextlib.closing(engine.opener(waited_for=True)()) as opened:
            on_progress("answering", 0, 0)
            found = at.answer(
                opened,
                question,
                player,
                sampling=settings,
                answers=answers,
                grader=grader,
                max_branches=limits.max_branches,
                budget=limits.budget,
                on_decision=on_decision,
            )
    if json_out:
        say(json.dumps(_as_json(found), ensure_ascii=False))
        return
    if trace:
        for decision in found.decisions:
            console().print(styled(_line(decision)))
    say(found.answer if found.answer is not None else "no answer")
    usage = found.usage
    branches = counted(len(found.texts), "branch", "branches")
    say(
        f"{player.names[0]}: {branches}, {found.tokens:,} tokens charged, "
        f"{usage.generated:,} written and {usage.forced:,} more for {usage.probes:,} probes; "
        f"stopped: {found.stop_reason.name.lower().replace('_', ' ')}",
        error=True,
    )


def _line(decision: Decision) -> str:
    """A decision in a line, the most frequent answers first."""
    shown = Counter(found for found in decision.answers if found is not None).most_common(4)
    answers = "  ".join(f"{text} ×{count}" for text, count in shown)
    branches = counted(len(decision.branches), "branch  ", "branches")
    return f"{decision.tokens:>8,}  {decision.action:<8}{branches:>13}  {answers}"


def _as_json(found: Answer) -> dict[str, Any]:
    return dataclasses.asdict(found) | {"stop_reason": found.stop_reason.name.lower()}
