"""What answers given live came to: rows, means over them, and how replay differs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import RenderableType

from autotts_jax.experiments.tables import TOO_FEW, Table, add_row, brackets, plain_table, thousands
from autotts_jax.intervals import Questions
from autotts_jax.terminal import styled

SAME = {"answer": "answers", "tokens": "token counts", "stop_reason": "stop reasons"}
"""What live and replay may have in common."""

_COLUMNS = {
    "int": pa.int64(),
    "float": pa.float64(),
    "str": pa.string(),
    "str | None": pa.string(),
    "bool": pa.bool_(),
    "bool | None": pa.bool_(),
}


@dataclasses.dataclass(frozen=True)
class Answered:
    """A question that was answered live.

    Attributes:
        question: its position among the questions.
        text: the question.
        gold: the reference answer; None if there is none.
        answer: the answer given; None for no answer.
        correct: whether the answer is right; None without a reference answer.
        tokens: tokens charged, as in replay.
        sequential_tokens: tokens that had to be generated one after another.
        seconds: wall-clock time from the question to the answer.
        branches: branches opened.
        rounds: rounds of the controller.
        stop_reason: name of the `StopReason`, in lower case.
        limited: whether the budget kept an operation from being carried out, or cut a branch short.
        confidence: confidence in the answer.
        generated: tokens that the engine wrote of branches.
        forced: tokens that it wrote of forced answers.
        probes: number of forced answers.
    """

    question: int
    text: str
    gold: str | None
    answer: str | None
    correct: bool | None
    tokens: int
    sequential_tokens: int
    seconds: float
    branches: int
    rounds: int
    stop_reason: str
    limited: bool
    confidence: float
    generated: int
    forced: int
    probes: int


@dataclasses.dataclass(frozen=True)
class BranchRead:
    """A branch that a question of a batch has read live.

    Attributes:
        question: position of the question.
        branch: number of the branch, from 0.
        tokens: its tokens.
        whole: whether it was read to its end; otherwise the budget ended first, and the branch has no vote.
        answer: its answer as it was found, ``ERR`` for none.
        forced: tokens of forced answers.
        probes: number of forced answers.
        seconds: wall-clock time that it took.
    """

    question: int
    branch: int
    tokens: int
    whole: bool
    answer: str
    forced: int
    probes: int
    seconds: float


@dataclasses.dataclass(frozen=True)
class Compared:
    """A question answered live and in the replay of a collection.

    Attributes:
        question: its position among the questions.
        text: the question.
        live_answer: the answer given live.
        answer: the answer given in replay.
        live_correct: whether the live answer is right, by the collection's reference answer.
        correct: whether the replayed one is.
        live_tokens: tokens charged live.
        tokens: tokens charged in replay.
        live_sequential_tokens: sequential tokens live.
        sequential_tokens: sequential tokens in replay.
        live_stop_reason: why the live episode ended.
        stop_reason: why the replayed one did; None for a program.
        same_answer: whether both answers are the same.
        same_tokens: whether both were charged the same tokens.
        same_stop_reason: whether both ended for the same reason; None for a program.
    """

    question: int
    text: str
    live_answer: str | None
    answer: str | None
    live_correct: bool
    correct: bool
    live_tokens: int
    tokens: int
    live_sequential_tokens: int
    sequential_tokens: int
    live_stop_reason: str
    stop_reason: str | None
    same_answer: bool
    same_tokens: bool
    same_stop_reason: bool | None


@dataclasses.dataclass(frozen=True)
class LiveRun:
    """Questions that were answered live, and what their replay came to.

    Attributes:
        name: the player.
        answered: the answered questions, in their order.
        compared: those of them that a collection has, live and replayed; None where nothing was compared.
    """

    name: str
    answered: tuple[Answered, ...]
    compared: tuple[Compared, ...] | None = None

    def summary(self) -> dict[str, Any]:
        """Gives the means over questions, and of a comparison the counts of what is equal.

        Returns:
            Numbers by name, as JSON holds them. ``accuracy`` is that of the questions with a reference
            answer, None without any; ``replay`` is None where nothing was compared, and its ``gain`` is live
            minus replay, with its 95 % interval over questions, None where these are too few.
        """
        rows = self.answered
        graded = [row.correct for row in rows if row.correct is not None]
        seconds = [row.seconds for row in rows]
        return {
            "controller": self.name,
            "questions": len(rows),
            "graded": len(graded),
            "accuracy": _mean(graded) if graded else None,
            "tokens": _mean([row.tokens for row in rows]),
            "sequential_tokens": _mean([row.sequential_tokens for row in rows]),
            "generated": sum(row.generated for row in rows),
            "forced": sum(row.forced for row in rows),
            "seconds": _mean(seconds),
            "seconds_median": float(np.median(seconds)),
            "seconds_95": float(np.quantile(seconds, 0.95)),
            "replay": None if self.compared is None else _comparison(self.compared),
        }

    def episodes(self) -> pa.Table:
        """Gives the answered questions, one row each.

        Returns:
            An Arrow table with the attributes of `Answered` as columns.
        """
        columns = [(field.name, _COLUMNS[str(field.type)]) for field in dataclasses.fields(Answered)]
        return pa.Table.from_pylist([dataclasses.asdict(row) for row in self.answered], pa.schema(columns))

    def table(self) -> Table:
        """Shows accuracy, tokens and latency, and how replay differs.

        Returns:
            A table that prints in 80 columns and that a notebook shows.
        """
        return Table(self._parts)

    def __repr__(self) -> str:
        return f"LiveRun of {self.name}: {len(self.answered)} questions"

    def _repr_html_(self) -> str:
        return self.table().html()

    def _parts(self, _: int) -> Iterator[RenderableType]:
        found = self.summary()
        table = plain_table(f"{self.name}, {found['questions']} questions")
        for heading in ("", "accuracy, %", "ktokens", "seq. kt", "seconds"):
            table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
        accuracy = "" if found["accuracy"] is None else f"{100 * found['accuracy']:.1f}"
        tokens = thousands(found["tokens"]), thousands(found["sequential_tokens"])
        add_row(table, "live", accuracy, *tokens, f"{found['seconds']:.2f}")
        if replay := found["replay"]:
            some = replay["questions"] < found["questions"]
            for name in ("live", "replay") if some else ("replay",):
                mean = replay[name]
                tokens = thousands(mean["tokens"]), thousands(mean["sequential_tokens"])
                of = f", {replay['questions']} questions" if some else ""
                add_row(table, name + of, f"{100 * mean['accuracy']:.1f}", *tokens, "")
        yield table
        yield styled(
            f"seconds: mean a question; median {found['seconds_median']:.2f}, 95th percentile "
            f"{found['seconds_95']:.2f}",
            style="dim",
        )
        if found["graded"] < found["questions"]:
            yield styled(f"{found['graded']} questions have a reference answer", style="dim")
        if replay:
            yield from _compared_lines(replay)


def _compared_lines(replay: dict[str, Any]) -> Iterator[RenderableType]:
    """How replay differs, in words."""
    same = ", ".join(f"{replay[f'same_{what}']} {name}" for what, name in SAME.items())
    yield styled(f"equal in replay, of {replay['questions']} questions: {same}")
    if replay["differing"]:
        yield styled(
            f"{replay['differing']} of {replay['questions']} differ: the engine did not repeat its "
            "completions, as where they depend on what runs beside them; docs/how-to/collect.md has remedies",
            style="dim",
        )
    for what, scale, unit in (("accuracy", 100, " points"), ("tokens", 1, "")):
        ends = (replay[f"{what}_low"], replay[f"{what}_high"])
        low, high = (math.nan if end is None else scale * end for end in ends)
        shown = brackets(low, high, lambda end: f"{end:+,.1f}")
        yield styled(f"live - replay, {what}: {scale * replay[f'{what}_gain']:+,.1f}{unit} {shown}")
    yield styled("in brackets: 95 % interval over questions", style="dim")
    if replay["accuracy_low"] is None:
        yield styled(TOO_FEW, style="dim")


def _comparison(rows: Sequence[Compared]) -> dict[str, Any]:
    """Means of live and replay, their paired differences, and how often they are equal."""
    found: dict[str, Any] = {"questions": len(rows)}
    for side, before in (("live", "live_"), ("replay", "")):
        found[side] = {
            name: _mean([getattr(row, before + column) for row in rows])
            for name, column in {
                "accuracy": "correct",
                "tokens": "tokens",
                "sequential_tokens": "sequential_tokens",
            }.items()
        }
    questions = Questions(np.full(len(rows), 1 / len(rows)), [row.text for row in rows])
    for what, column in (("accuracy", "correct"), ("tokens", "tokens")):
        difference = np.array(
            [float(getattr(row, f"live_{column}")) - float(getattr(row, column)) for row in rows]
        )
        gain = questions.gain(difference) if what == "accuracy" else questions.mean(difference, None)
        low, high = (None if math.isnan(end) else end for end in gain.interval)
        found |= {f"{what}_gain": gain.value, f"{what}_low": low, f"{what}_high": high}
    found["differing"] = sum(not all(getattr(row, f"same_{what}") for what in SAME) for row in rows)
    for what in SAME:
        found[f"same_{what}"] = sum(bool(getattr(row, f"same_{what}")) for row in rows)
    return found


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))
