"""Many questions answered live under one token budget, branch by branch in a file."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import math
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from autotts_jax import files
from autotts_jax.checks import check_callback, check_int
from autotts_jax.collect.answers import extractor, source_sha256
from autotts_jax.collect.engine import Engine, Finish, writes_whole
from autotts_jax.collect.grader import Grader
from autotts_jax.collect.graders import MATH, open_grader
from autotts_jax.collect.plan import EngineSpec
from autotts_jax.collect.problem import Problem
from autotts_jax.collect.side_by_side import side_by_side
from autotts_jax.collect.trajectories import (
    Sampling,
    Trajectories,
    check_differing,
    fitting_tokens,
    last_depth,
)
from autotts_jax.core.batch import Allocator, look, most_urgent, read_through, spend
from autotts_jax.core.forks import refuse_forks
from autotts_jax.core.rollout import MAX_TOKENS
from autotts_jax.core.view import StopReason
from autotts_jax.core.votes import MOST_BRANCHES, confidence_table
from autotts_jax.errors import InputError
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
from autotts_jax.experiments.live_rows import Answered, BranchRead, Compared, LiveRun
from autotts_jax.policies.allocators import ALLOCATORS, as_allocator
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.replay.matrix import NONE, ProbeMatrix
from autotts_jax.replay.orders import recorded_orders
from autotts_jax.replay.spelling import ERROR


def answer_batch(
    engine: Engine | Callable[[], Engine],
    questions: Sequence[Problem],
    allocator: str | Allocator = "dirichlet",
    *,
    budget: int,
    out: str | Path,
    collection: str | Path | None = None,
    sampling: Sampling | None = None,
    answers: str = "auto",
    grader: str = MATH,
    max_branches: int = 64,
    at_once: int = 1,
    spec: EngineSpec | None = None,
    made_with: Mapping[str, Any] | None = None,
    on_read: Callable[[int, int], None] | None = None,
) -> LiveRun:
    """Answers questions with a language model and one token budget, which an allocator shares out.

    `evaluate_batch` replays the same process. Each branch is saved as soon as it is read, so calling this
    again after an interruption resumes the run without reading any saved branch twice. As the length of a
    branch is not known in advance, ``at_once`` branches are written concurrently while the budget covers them
    at their maximum length, and then one at a time, the last cut off where the budget ends.

    Args:
        engine: the model; or a function that opens it, which is called if a branch is to be read or
            ``sampling`` is None, and whose engine is closed afterwards.
        questions: the questions, as for `answer_questions`.
        allocator: a name of `autotts_jax.policies.ALLOCATORS`, a file of `autotts_jax.policies.save_weights`,
            or an allocator of your own.
        budget: tokens of all branches of all questions.
        out: the folder; absent, empty, or one of a run with the same questions and settings.
        collection: the folder of a collection of these questions with the same engine, sampling and seed,
            whose replay is compared with what was answered live.
        sampling: how branches are sampled, as for `answer_questions`.
        answers: how answers are found in texts, as there.
        grader: which answers are equal, and so which are right, as there.
        max_branches: W, branches that a question can read.
        at_once: k, questions that read a branch at a time.
        spec: what the completions of the engine depend on, as `autotts_jax.collect.engine_spec` returns it.
        made_with: what to record about how the run was started.
        on_read: called after each branch with the tokens spent and the budget.

    Returns:
        The run: ``table()``, ``summary()`` and ``episodes()``.

    Raises:
        EngineError: the engine cannot go on.
        InputError: the folder holds something else or another run, or another process has it; the collection
            has other settings, too few branches, or lacks a question; a question does not fit into the
            model's context; or an argument is wrong.
        DataError: a file is damaged.

    Example:
        >>> import tempfile
        >>> import autotts_jax as at
        >>> from autotts_jax.collect import Problem, Sampling, SimulatedEngine
        >>> questions = [Problem("What is 2 + 2?", "4"), Problem("What is 2 + 3?", "5")]
        >>> run = at.answer_batch(
        ...     SimulatedEngine(), questions, "dirichlet", budget=800, out=tempfile.mkdtemp(),
        ...     sampling=Sampling(interval=20, max_tokens=100))
        >>> [(row.branches, row.tokens) for row in run.answered]
        [(2, 134), (7, 578)]
    """
    refuse_forks()
    check_callback("on_read", on_read, "the tokens spent", "the budget")
    problems = check_questions(questions, grader)
    at_once = min(check_int("at_once", at_once, 1), len(problems))
    width = check_int("max_branches", max_branches, 1, MOST_BRANCHES)
    extractor(answers)  # a bad specification is an error before anything is written
    name, chosen = as_allocator(allocator)
    if chosen.signals:
        raise InputError(f"{name} reads signals, which branches of a live batch do not show; name another")
    grading = open_grader(grader, min(at_once, os.cpu_count() or 1))
    with opening(engine) as opened:
        sampling = sampling or Sampling(max_tokens=fitting_tokens(opened().max_model_len))
        if width > 1:
            check_differing(sampling)
        asked = json.dumps([[problem.text, problem.gold] for problem in problems])
        settings = LiveSettings(
            player=name if chosen is ALLOCATORS.get(name) else repr(chosen),
            max_branches=width,
            budget=check_int("budget", budget, 1, MAX_TOKENS - at_once * sampling.max_tokens),
            sampling=dataclasses.replace(sampling, signals=()),
            answers=answers,
            grader=grader,
            engine=spec and spec.without_secrets(),
            answers_sha256=source_sha256(answers),
            grader_sha256=source_sha256(grader),
            at_once=at_once,
            questions_sha256=hashlib.sha256(asked.encode(errors="replace")).hexdigest(),
        )
        recorded = None if collection is None else _recorded(Path(collection), settings, problems)
        with contextlib.ExitStack() as held:
            folder = held.enter_context(
                RunFolder.writing(files.destination(out), settings, dict(made_with or {}))
            )
            reader = _Reader(problems, settings, folder, opened)
            form = held.enter_context(grading)
            batch = [_Question(problem, settings, form) for problem in problems]
            _play(batch, chosen, settings, reader, on_read)
            answered = tuple(question.answered(place) for place, question in enumerate(batch))
            folder.write(ANSWERS, answered)
            compared = None
            if recorded is not None:
                compared = tuple(_compared(answered, recorded, chosen, settings))
                folder.write(REPLAY, compared)
    return LiveRun(name, answered, compared)


def _play(
    batch: Sequence[_Question],
    allocator: Allocator,
    settings: LiveSettings,
    reader: _Reader,
    on_read: Callable[[int, int], None] | None,
) -> None:
    """Lets the questions read until the budget is spent, or none is urgent: as `spend` does in replay."""
    assert settings.budget is not None
    assert settings.at_once is not None
    for question in batch:
        question.ask(allocator)
    left, longest = settings.budget, settings.sampling.max_tokens
    while True:
        index = jnp.array([question.index for question in batch])
        chosen, wanted = map(np.asarray, most_urgent(index, settings.at_once))
        waiting = chosen[wanted].tolist()
        if not waiting:
            return
        while waiting:
            if not left:
                return
            together = max(left // longest, 1)
            places, waiting = waiting[:together], waiting[together:]
            rows = reader.read([(place, batch[place].reads) for place in places], min(left, longest))
            for place in places:
                batch[place].add(rows[place])
                if not rows[place].whole:
                    return
                left -= rows[place].tokens
                batch[place].ask(allocator)
                if on_read is not None:
                    on_read(settings.budget - left, settings.budget)


class _Question:
    """A question and what is known of it, as the probe matrix of a collection holds it."""

    def __init__(self, problem: Problem, settings: LiveSettings, grader: Grader):
        self._problem, self._settings, self._grader = problem, settings, grader
        self._ids = {ERROR: 0}  # of canonical forms
        self._rows: list[BranchRead] = []
        width, depths = settings.max_branches, settings.sampling.max_depth
        self._matrix = ProbeMatrix(
            answers=np.full((1, width, depths), NONE, np.int16),
            lengths=np.full((1, width), depths - 1, np.int32),
            tokens=np.full((1, width), settings.sampling.max_tokens, np.int32),
            gold=np.full(1, NONE, np.int16),
            interval=np.full(1, settings.sampling.interval, np.int32),
            cell=np.zeros(1, np.int32),
            vocabulary=width + 1,
        )
        self.reads = 0
        self.index, self._answer = -math.inf, NONE

    def ask(self, allocator: Allocator) -> None:
        """Asks how urgent the next branch is."""
        self.index, self._answer = look(allocator, self._matrix, self.reads)

    def add(self, row: BranchRead) -> None:
        """Adds a branch; one that was not read to its end is not part of what is known."""
        self._rows.append(row)
        if not row.whole:
            return
        (form,) = self._grader.forms([row.answer], self._problem.gold or None)
        last = last_depth(row.tokens, self._settings.sampling.interval)
        self._matrix.answers[0, row.branch, last - 1] = self._ids.setdefault(form, len(self._ids))
        self._matrix.lengths[0, row.branch] = last - 1
        self._matrix.tokens[0, row.branch] = row.tokens
        self.reads += 1

    def answered(self, place: int) -> Answered:
        """What it came to."""
        given = [*self._ids][self._answer] if self._answer != NONE else ERROR
        gold = self._problem.gold or None
        keys = np.asarray(self._matrix.finals())[0, : self.reads]
        votes = Counter(keys.tolist())
        ours = votes.pop(self._answer, 0)
        others = max(votes.values(), default=0)
        answer = None if given == ERROR else given
        tokens = int(np.asarray(self._matrix.tokens)[0, : self.reads].sum())
        return Answered(
            question=place,
            text=self._problem.text,
            gold=gold,
            answer=answer,
            correct=None if gold is None else answer == self._grader.reference(gold),
            tokens=tokens,
            sequential_tokens=tokens,
            seconds=math.fsum(row.seconds for row in self._rows),
            branches=self.reads,
            rounds=self.reads,
            stop_reason=_stop_reason(self.reads, self._settings.max_branches, self.index),
            limited=self.index > -math.inf,
            confidence=0.0
            if answer is None
            else float(confidence_table(self._settings.max_branches)[ours, others]),
            generated=sum(row.tokens for row in self._rows),
            forced=sum(row.forced for row in self._rows),
            probes=sum(row.probes for row in self._rows),
        )


def _stop_reason(reads: int, width: int, index: float) -> str:
    """Why a question has read no more: it could not, it was left, or the budget ended."""
    if reads == width:
        return StopReason.EXHAUSTED.name.lower()
    return (StopReason.DECIDED if index == -math.inf else StopReason.BUDGET).name.lower()


class _Reader:
    """Reads branches: from the folder where it has them, else by the engine, and keeps them there."""

    def __init__(
        self,
        problems: Sequence[Problem],
        settings: LiveSettings,
        folder: RunFolder,
        opened: Callable[[], Engine],
    ):
        self._problems, self._settings, self._folder, self._opened = problems, settings, folder, opened
        self._known = {(row.question, row.branch): row for row in folder.reads()}
        self._begun = False

    def read(self, branches: Sequence[tuple[int, int]], limit: int) -> dict[int, BranchRead]:
        """Reads a branch of each of some questions, side by side.

        Returns:
            The branches by question.
        """
        missing = [branch for branch in branches if branch not in self._known]
        if missing:
            if not self._begun:
                self._folder.begin()
                self._begun = True
            one = functools.partial(self._write, self._opened(), limit)
            with contextlib.closing(side_by_side(one, missing, len(missing), "answer")) as rows:
                for row in rows:
                    self._folder.append(row)
                    self._known[row.question, row.branch] = row
        return {place: self._known[place, branch] for place, branch in branches}

    def _write(
        self, engine: Engine, limit: int, branch: tuple[int, int], cancel: threading.Event
    ) -> BranchRead:
        """Has the engine write a branch."""
        (place, number), began, settings = branch, time.monotonic(), self._settings
        text = self._problems[place].text
        find = extractor(settings.answers, text)
        if writes_whole(engine):
            raise InputError(
                "answers under one budget need an engine that continues branches: vllm or server"
            )
        trajectories = Trajectories(engine, text, settings.sampling, find, cancel)
        written = trajectories[number]
        written.limit = limit
        trajectories.read({number: settings.sampling.max_depth}, probe=False)
        final = written.final
        assert final is not None
        return BranchRead(
            question=place,
            branch=number,
            tokens=len(written.tokens),
            whole=written.ended is Finish.stop or limit == settings.sampling.max_tokens,
            answer=final.answer,
            forced=trajectories.usage.forced,
            probes=trajectories.usage.probes,
            seconds=time.monotonic() - began,
        )


# --- replay ---------------------------------------------------------------------------------------------


def _recorded(folder: Path, settings: LiveSettings, problems: Sequence[Problem]) -> ProbeDataset:
    """The questions of a collection in the order in which they are asked here.

    Raises:
        InputError: it has other settings, too few branches, or lacks a question.
    """
    dataset = recorded_questions(folder, settings, problems)
    rows = {question.text: row for row, question in enumerate(dataset.questions)}
    if missing := [problem.text for problem in problems if problem.text not in rows]:
        raise InputError(
            f"{folder} lacks the question {missing[0]!r:.60}; the questions of a batch share its budget, so "
            "compare with a collection of all of them"
        )
    check_width(dataset, settings.max_branches)
    return dataset.select([rows[problem.text] for problem in problems])


def _compared(
    answered: Sequence[Answered], dataset: ProbeDataset, allocator: Allocator, settings: LiveSettings
) -> Iterator[Compared]:
    """Replays the batch, the branches of each question in the order in which they were recorded."""
    width = settings.max_branches
    readings = read_through(allocator, dataset.matrix, recorded_orders(len(dataset), width))
    spent = spend(readings, np.array([settings.budget]), settings.at_once or 1)[0, 0]
    for live, question, reads, index, answer, cost in zip(
        answered,
        dataset.questions,
        spent.tolist(),
        readings.urgency[0],
        readings.answer[0],
        readings.cost[0],
        strict=True,
    ):
        found = question.answer(answer[reads])
        found, tokens = None if found == ERROR else found, int(cost[:reads].sum())
        reason = _stop_reason(reads, width, -math.inf if reads == width else index[reads])
        yield Compared(
            question=live.question,
            text=live.text,
            live_answer=live.answer,
            answer=found,
            live_correct=live.answer == question.gold,
            correct=found == question.gold,
            live_tokens=live.tokens,
            tokens=tokens,
            live_sequential_tokens=live.sequential_tokens,
            sequential_tokens=tokens,
            live_stop_reason=live.stop_reason,
            stop_reason=reason,
            same_answer=live.answer == found,
            same_tokens=live.tokens == tokens,
            same_stop_reason=live.stop_reason == reason,
        )
