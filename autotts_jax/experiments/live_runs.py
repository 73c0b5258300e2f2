"""Many questions answered live, row by row in a file, and compared with the replay of a collection."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from autotts_jax import files
from autotts_jax.checks import check_callback, check_int
from autotts_jax.collect.answers import extractor, source_sha256
from autotts_jax.collect.engine import Engine
from autotts_jax.collect.grader import Grader
from autotts_jax.collect.graders import MATH, open_grader
from autotts_jax.collect.plan import EngineSpec
from autotts_jax.collect.problem import Problem
from autotts_jax.collect.side_by_side import side_by_side
from autotts_jax.collect.trajectories import Sampling, fitting_tokens
from autotts_jax.core.rollout import check_budget
from autotts_jax.core.view import StopReason
from autotts_jax.experiments.evaluation import check_width
from autotts_jax.experiments.live_folder import (
    ANSWERS,
    REPLAY,
    LiveSettings,
    RunFolder,
    check_questions,
    opening,
    recorded_questions,
)
from autotts_jax.experiments.live_rows import Answered, Compared, LiveRun
from autotts_jax.live.answering import answer, telling_signals
from autotts_jax.live.compiling import play_simulated
from autotts_jax.policies.player import Player
from autotts_jax.policies.players import as_player
from autotts_jax.policies.sealed.worker_pool import SEALED, Sealing
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.replay.orders import recorded_orders
from autotts_jax.replay.spelling import ERROR


def answer_questions(
    engine: Engine | Callable[[], Engine],
    questions: Sequence[Problem],
    player: Any = "cmc@0.5",
    *,
    out: str | Path,
    collection: str | Path | None = None,
    sampling: Sampling | None = None,
    answers: str = "auto",
    grader: str = MATH,
    max_branches: int = 64,
    budget: int | None = None,
    at_once: int = 1,
    sealing: Sealing = SEALED,
    spec: EngineSpec | None = None,
    made_with: Mapping[str, Any] | None = None,
    on_answer: Callable[[Sequence[Answered], int], None] | None = None,
) -> LiveRun:
    """Answers questions with a language model under a controller, and keeps each answer once it is given.

    The same call goes on where another was interrupted; it may have more questions, after the others.

    Args:
        engine: the model; or a function that opens it, which is called if a question is to be answered or
            ``sampling`` is None, and whose engine is closed afterwards.
        questions: the questions, as `autotts_jax.collect.read_questions` reads them. Those whose reference
            answer is empty are answered and not graded.
        player: a player with a single setting, as `autotts_jax.evaluate` takes it.
        out: the folder; absent, empty, or one of a run with the same settings.
        collection: the folder of a collection with the same engine, sampling and seed. Its replay is compared
            with what was answered live, question by question.
        sampling: how branches are sampled and probed; with None, as `Sampling` has it, but no longer
            than the model's context holds, as `fitting_tokens` says.
        answers: how answers are found in texts, as `autotts_jax.answer` takes it by name.
        grader: which answers are equal, and so which are right, by name as well.
        max_branches: W, branches that can be opened; the environment of a policy has its own.
        budget: tokens that a question may be charged; None for no limit.
        at_once: questions that are answered at once. Of several each takes longer, and all of them less.
        sealing: how code from files and modules is run, as in `autotts_jax.evaluate`.
        spec: what the completions of the engine depend on, as `autotts_jax.collect.engine_spec` returns it.
        made_with: what to record about how the run was started.
        on_answer: called after each question with the answered ones and the number of all.

    Returns:
        The run: ``table()``, ``summary()`` and ``episodes()``.

    Raises:
        EngineError: the engine cannot go on.
        InputError: the folder holds something else or a run with other settings or questions, or another
            process has it; the collection has other settings, too few branches or none of the questions; a
            question does not fit into the model's context; or the player failed.
        DataError: a file is damaged.

    Example:
        >>> import tempfile
        >>> import autotts_jax as at
        >>> from autotts_jax.collect import Problem, Sampling, SimulatedEngine
        >>> questions = [Problem("What is 2 + 2?", "4"), Problem("What is 2 + 3?", "5")]
        >>> run = at.answer_questions(
        ...     SimulatedEngine(), questions, "sc@4", out=tempfile.mkdtemp(),
        ...     sampling=Sampling(interval=20, max_tokens=100), max_branches=4)
        >>> [(row.answer, row.correct, row.tokens) for row in run.answered]
        [('8', False, 334), ('9', False, 342)]
    """
    check_callback("on_answer", on_answer, "the answered questions", "the number of all questions")
    problems, at_once = check_questions(questions, grader), check_int("at_once", at_once, 1)
    budget = check_budget(budget)
    extractor(answers)  # a bad specification is an error before anything is written
    grading = open_grader(grader, min(at_once, os.cpu_count() or 1))
    playing = as_player(player, sealing=sealing)
    playing.check_single()
    width = playing.width or check_int("max_branches", max_branches, 1)
    playing.check(width)
    with opening(engine) as opened:
        sampling = sampling or Sampling(max_tokens=fitting_tokens(opened().max_model_len))
        settings = LiveSettings(
            player=playing.names[0],
            max_branches=width,
            budget=budget,
            sampling=telling_signals(sampling, playing),
            answers=answers,
            grader=grader,
            engine=spec and spec.without_secrets(),
            player_sha256=source_sha256(player) if isinstance(player, str) else None,
            answers_sha256=source_sha256(answers),
            grader_sha256=source_sha256(grader),
        )
        recorded = None
        if collection is not None:
            recorded = recorded_questions(Path(collection), settings, problems)
            check_width(recorded, width, playing)
        with RunFolder.writing(files.destination(out), settings, dict(made_with or {})) as folder:
            asked = _Asked(problems, playing, settings, at_once)
            answered = _answered(asked, folder, opened, grading, on_answer)
            compared = None
            if recorded is not None:
                compared = tuple(_compared(answered, recorded, playing, settings))
                folder.write(REPLAY, compared)
    return LiveRun(playing.names[0], answered, compared)


@dataclasses.dataclass(frozen=True)
class _Asked:
    """What a run asks, and how."""

    problems: list[Problem]
    player: Player
    settings: LiveSettings
    at_once: int


def _answered(
    asked: _Asked,
    folder: RunFolder,
    opened: Callable[[], Engine],
    grading: Grader,
    on_answer: Callable[[Sequence[Answered], int], None] | None,
) -> tuple[Answered, ...]:
    """The answers to all questions, in their order: those that the folder has, and then the others."""
    count = len(asked.problems)
    rows = {row.question: row for row in folder.read(asked.problems)}
    if missing := [question for question in range(count) if question not in rows]:
        folder.begin()
        with contextlib.closing(_answer_all(asked, missing, opened(), grading)) as given:
            for row in given:
                rows[row.question] = row
                folder.write(ANSWERS, [rows[question] for question in sorted(rows)])
                if on_answer is not None:
                    on_answer(list(rows.values()), count)
    return tuple(rows[question] for question in range(count))


def _answer_all(
    asked: _Asked, questions: Sequence[int], engine: Engine, grading: Grader
) -> Generator[Answered, None, None]:
    """Answers questions live; closing the generator drops what is under way."""
    settings = asked.settings
    with grading as grader:
        # Compiles the player, so that no answer waits for it.
        play_simulated(asked.player, settings.sampling, grader, settings.max_branches, settings.budget)
        one = functools.partial(_answer_one, engine, grader, asked)
        yield from side_by_side(one, questions, asked.at_once, "answer")


def _answer_one(
    engine: Engine, grader: Grader, asked: _Asked, question: int, cancel: threading.Event
) -> Answered:
    problem, settings, began = asked.problems[question], asked.settings, time.monotonic()
    found = answer(
        engine,
        problem.text,
        asked.player,
        sampling=settings.sampling,
        answers=settings.answers,
        max_branches=settings.max_branches,
        budget=settings.budget,
        gold=problem.gold or None,
        grader=grader,
        cancel=cancel,
    )
    return Answered(
        question=question,
        text=problem.text,
        gold=problem.gold or None,
        answer=found.answer,
        correct=found.answer == grader.reference(problem.gold) if problem.gold else None,
        tokens=found.tokens,
        sequential_tokens=found.sequential_tokens,
        seconds=time.monotonic() - began,
        branches=len(found.texts),
        rounds=found.rounds,
        stop_reason=found.stop_reason.name.lower(),
        limited=found.limited,
        confidence=found.confidence,
        generated=found.usage.generated,
        forced=found.usage.forced,
        probes=found.usage.probes,
    )


# --- replay ---------------------------------------------------------------------------------------------


def _compared(
    answered: Sequence[Answered], dataset: ProbeDataset, player: Player, settings: LiveSettings
) -> Iterator[Compared]:
    """Replays the questions of a collection, its branches in the order in which they were recorded."""
    orders = recorded_orders(len(dataset), settings.max_branches)
    play = player.play(dataset, orders, budget=settings.budget)
    rows = {question.text: row for row, question in enumerate(dataset.questions)}
    for live in answered:
        if live.text not in rows:
            continue
        at = 0, 0, rows[live.text]
        reason = None if play.stop_reason is None else StopReason(play.stop_reason[at]).name.lower()
        found = None if play.answer[at] == ERROR else play.answer[at]
        yield Compared(
            question=live.question,
            text=live.text,
            live_answer=live.answer,
            answer=found,
            live_correct=live.answer == dataset.questions[rows[live.text]].gold,
            correct=bool(play.correct[at]),
            live_tokens=live.tokens,
            tokens=int(play.tokens[at]),
            live_sequential_tokens=live.sequential_tokens,
            sequential_tokens=int(play.sequential_tokens[at]),
            live_stop_reason=live.stop_reason,
            stop_reason=reason,
            same_answer=live.answer == found,
            same_tokens=live.tokens == int(play.tokens[at]),
            same_stop_reason=None if reason is None else live.stop_reason == reason,
        )
