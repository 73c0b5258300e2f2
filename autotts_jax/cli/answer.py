"""``autotts-jax answer``: one question, answered by a model under a controller."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

import autotts_jax as at
from autotts_jax import policies
from autotts_jax.cli.console import console, say, working
from autotts_jax.cli.options import (
    AnswersOption,
    BetaOption,
    EngineOptions,
    LimitOptions,
    SamplingOptions,
    SealOptions,
)
from autotts_jax.terminal import styled

if TYPE_CHECKING:
    from autotts_jax.core import Decision
    from autotts_jax.live import Answer

DEFAULT_CONTROLLER = "cmc@0.5"


def answer(
    question: Annotated[str, typer.Argument(metavar="QUESTION", show_default=False)],
    *,
    engine: EngineOptions,
    controller: Annotated[
        str, typer.Option(metavar="NAME[@VALUE]", help="A controller, as in evaluate.")
    ] = DEFAULT_CONTROLLER,
    beta: BetaOption = None,
    sampling: SamplingOptions,
    answers: AnswersOption = "auto",
    limits: LimitOptions,
    seal: SealOptions,
    trace: Annotated[bool, typer.Option("--trace", help="Print each decision.")] = False,
    json_out: Annotated[bool, typer.Option("--json", help="Print everything as one JSON object.")] = False,
) -> None:
    """Answer a question with a model under a controller, and print what it took."""
    with working() as on_progress:
        from autotts_jax.core import devices

        devices.configure()
        spec = controller if beta is None else f"{controller.partition('@')[0]}@{beta!r}"
        player = policies.select(spec, sealing=seal.sealing())
        player.check_single()
        settings = sampling.sampling()

        def on_decision(decision: Decision) -> None:
            on_progress("answering", 0, 0, _line(decision))

        on_progress("loading the model", 0, 0)
        with contextlib.closing(engine.opener(waited_for=True)()) as opened:
            on_progress("answering", 0, 0)
            found = at.answer(
                opened,
                question,
                player,
                sampling=settings,
                answers=answers,
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
    say(
        f"{player.names[0]}: {len(found.texts)} branches, {found.tokens:,} tokens charged, "
        f"{usage.generated:,} written and {usage.forced:,} more for {usage.probes:,} probes; "
        f"stopped: {found.stop_reason.name.lower().replace('_', ' ')}",
        error=True,
    )


def _line(decision: Decision) -> str:
    """A decision in a line, the most frequent answers first."""
    shown = Counter(found for found in decision.answers if found is not None).most_common(4)
    answers = "  ".join(f"{text} ×{count}" for text, count in shown)
    return f"{decision.tokens:>8,}  {decision.action:<8}{len(decision.branches):>4} branches  {answers}"


def _as_json(found: Answer) -> dict[str, Any]:
    return dataclasses.asdict(found) | {"stop_reason": found.stop_reason.name.lower()}
