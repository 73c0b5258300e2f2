"""Many questions answered live, row by row in a file, and compared with the replay of a collection.

======================== ====================================================================================
file                     content
======================== ====================================================================================
``run.json``             the settings that the answers depend on, and each run that worked on them
``answers.jsonl``        a line for each question that was answered, in the order of the questions
``replay.jsonl``         live and replay side by side, a line for each question that was compared
======================== ====================================================================================
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from autotts_jax import files
from autotts_jax.checks import check_callback, check_int
from autotts_jax.collect.answers import extractor, source_sha256
from autotts_jax.collect.code_grader import read_tests
from autotts_jax.collect.engine import Engine
from autotts_jax.collect.grader import Grader
from autotts_jax.collect.graders import BY_TESTS, MATH, open_grader
from autotts_jax.collect.loading import load
from autotts_jax.collect.plan import EngineSpec
from autotts_jax.collect.problem import Problem
from autotts_jax.collect.schema import SchemaError, parse_as
from autotts_jax.collect.side_by_side import side_by_side
from autotts_jax.collect.store import Store
from autotts_jax.collect.trajectories import Sampling, fitting_tokens
from autotts_jax.commands import hide
from autotts_jax.core.rollout import check_budget
from autotts_jax.core.view import StopReason
from autotts_jax.errors import DataError, InputError
from autotts_jax.experiments.evaluation import check_width
from autotts_jax.experiments.live_rows import Answered, Compared, LiveRun
from autotts_jax.live.answering import answer, telling_signals
from autotts_jax.live.compiling import play_simulated
from autotts_jax.policies.player import Player
from autotts_jax.policies.players import as_player
from autotts_jax.policies.sealed.worker_pool import SEALED, Sealing
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.replay.orders import recorded_orders
from autotts_jax.replay.spelling import ERROR

FORMAT, VERSION = "autotts_jax live run", 1
_MOST = 2**53
"""The largest number of a row."""

RUN, ANSWERS, REPLAY = "run.json", "answers.jsonl", "replay.jsonl"


@dataclasses.dataclass(frozen=True)
class LiveSettings:
    """All that the answers depend on besides the questions.

    Attributes:
        player: name of the player.
        max_branches: W, branches that can be opened.
        budget: tokens that a question may be charged; None for no limit.
        sampling: how branches are sampled and probed.
        answers: how answers are found in texts.
        grader: which answers are equal.
        engine: what generates the branches; None if that is not said.
        player_sha256: hash of the file that the player is in, if it is in one.
        answers_sha256: hash of the file that ``answers`` names, if it names one.
        grader_sha256: hash of the file that ``grader`` names, if it names one.
    """

    player: str
    max_branches: int
    budget: int | None
    sampling: Sampling
    answers: str
    grader: str
    engine: EngineSpec | None
    player_sha256: str | None = None
    answers_sha256: str | None = None
    grader_sha256: str | None = None

    def differences(self, other: Any) -> list[str]:
        """Says in which settings another has other values than these.

        Args:
            other: other settings, or a `Plan`; what only one of both has is left out, and what is not said.
        """
        ours, theirs = _flat(self), _flat(other)
        return [
            f"{name} was {theirs[name]!r} and is {ours[name]!r}"
            for name in ours
            if name in theirs and ours[name] != theirs[name]
        ]


@dataclasses.dataclass(frozen=True)
class _Manifest:
    """The content of ``run.json``."""

    format: str
    version: int
    settings: LiveSettings
    runs: list[dict[str, Any]]


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
    if not isinstance(questions, Iterable):
        raise InputError(f"questions is {questions!r:.60}, but it must be a list of Problems")
    problems, at_once = list(questions), check_int("at_once", at_once, 1)
    _check_questions(problems, grader)
    budget = check_budget(budget)
    extractor(answers)  # a bad specification is an error before anything is written
    grading = open_grader(grader, min(at_once, os.cpu_count() or 1))
    playing = as_player(player, sealing=sealing)
    playing.check_single()
    width = playing.width or check_int("max_branches", max_branches, 1)
    playing.check(width)
    with _opening(engine) as opened:
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
        recorded = None if collection is None else _recorded(Path(collection), settings, playing, problems)
        with _Folder.writing(files.destination(out), settings, dict(made_with or {})) as folder:
            asked = _Asked(problems, playing, settings, at_once)
            answered = _answered(asked, folder, opened, grading, on_answer)
            compared = None
            if recorded is not None:
                compared = tuple(_compared(answered, recorded, playing, settings))
                folder.write(REPLAY, compared)
    return LiveRun(playing.names[0], answered, compared)


def _check_questions(problems: Sequence[Problem], grader: str) -> None:
    if not problems or not all(isinstance(problem, Problem) for problem in problems):
        raise InputError("the questions must be autotts_jax.collect.Problems, at least one")
    if len({problem.text for problem in problems}) < len(problems):
        raise InputError("a question is there twice; keep one of them")
    for problem in problems:
        if grader in BY_TESTS and problem.gold:
            read_tests(problem.gold)


@contextlib.contextmanager
def _opening(engine: Engine | Callable[[], Engine]) -> Iterator[Callable[[], Engine]]:
    """A function that gives an engine, and opens it when it is first called; what it opens is closed."""
    if not callable(engine):
        yield lambda: engine
        return
    with contextlib.ExitStack() as held:
        yield functools.cache(lambda: held.enter_context(contextlib.closing(engine())))


@dataclasses.dataclass(frozen=True)
class _Asked:
    """What a run asks, and how."""

    problems: list[Problem]
    player: Player
    settings: LiveSettings
    at_once: int


def _answered(
    asked: _Asked,
    folder: _Folder,
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


# --- the folder -----------------------------------------------------------------------------------------


class _Folder:
    """The folder of a run, which this process has for itself.

    Args:
        folder: the folder.
        settings: what the answers depend on.
        made_with: how this run was started.
    """

    def __init__(self, folder: Path, settings: LiveSettings, made_with: dict[str, Any]):
        self._folder, self._settings, self._made_with = folder, settings, made_with
        self._runs: list[dict[str, Any]] = []

    @classmethod
    @contextlib.contextmanager
    def writing(cls, folder: Path, settings: LiveSettings, made_with: dict[str, Any]) -> Iterator[_Folder]:
        """Locks the folder.

        Raises:
            InputError: it holds something else, or another process has it.
        """
        with files.locked(folder):
            if not (folder / RUN).exists() and {path.name for path in folder.iterdir()} - {files.LOCK}:
                raise InputError(f"{folder} is not empty and holds no live run; give a folder of its own")
            yield cls(folder, settings, made_with)

    def read(self, problems: Sequence[Problem]) -> list[Answered]:
        """Reads what was answered.

        Raises:
            InputError: it was answered with other settings, or other questions were.
            DataError: a file is damaged.
        """
        path = self._folder / RUN
        if not path.exists():
            return []
        try:
            manifest = parse_as(_Manifest, files.read_bytes(path))
        except SchemaError as error:
            raise DataError(path, f"damaged: {error}; restore it, or give another folder") from error
        if (manifest.format, manifest.version) != (FORMAT, VERSION):
            raise DataError(path, f"it is not {FORMAT} version {VERSION}; give another folder")
        answered = self._answered() if (self._folder / ANSWERS).exists() else []
        if not answered:
            return []
        self._runs = manifest.runs
        if differences := self._settings.differences(manifest.settings):
            raise InputError(
                f"{self._folder} holds answers with other settings: {'; '.join(differences)}. Use the same "
                "settings to go on, or another folder"
            )
        for row in answered:
            asked = problems[row.question] if row.question < len(problems) else None
            if asked is None or (asked.text, asked.gold or None) != (row.text, row.gold):
                raise InputError(
                    f"{self._folder} holds an answer to question {row.question}, {row.text!r:.60}, which is "
                    "not that of this run; give the same questions to go on, or another folder"
                )
        return answered

    def begin(self) -> None:
        """Records that this run works on the folder."""
        runs = [*self._runs, *([] if self._made_with in self._runs[-1:] else [self._made_with])]
        content = dataclasses.asdict(_Manifest(FORMAT, VERSION, self._settings, hide(runs)))
        text = json.dumps(content, indent=1, ensure_ascii=False)
        files.write_atomically(self._folder / RUN, text.encode())

    def write(self, name: str, rows: Sequence[Answered] | Sequence[Compared]) -> None:
        """Writes rows to a file, a line each."""
        lines = [json.dumps(dataclasses.asdict(row), ensure_ascii=False) + "\n" for row in rows]
        # A model may generate half of a surrogate pair.
        files.write_atomically(self._folder / name, "".join(lines).encode(errors="replace"))

    def _answered(self) -> list[Answered]:
        path, rows = self._folder / ANSWERS, []
        for number, line in enumerate(files.read_bytes(path).splitlines(), 1):
            try:
                rows.append(parse_as(Answered, line))
            except SchemaError as error:
                raise DataError(path, f"line {number} is damaged: {error}; delete it") from error
            numbers = [x for x in dataclasses.astuple(rows[-1]) if isinstance(x, int | float)]
            if not all(0 <= x <= _MOST for x in numbers):
                raise DataError(path, f"line {number} is damaged: a number is out of range; delete it")
        if len({row.question for row in rows}) < len(rows):
            raise DataError(path, "has a question twice; delete one of its lines")
        return rows


def _flat(settings: Any) -> dict[str, Any]:
    """Settings by name, those of the sampling and the engine among them."""
    flat: dict[str, Any] = {
        field.name: getattr(settings, field.name)
        for field in dataclasses.fields(settings)
        if field.name not in ("sampling", "engine")
    }
    flat |= dataclasses.asdict(settings.sampling)
    if settings.engine is not None:
        flat |= {f"engine.{name}": value for name, value in dataclasses.asdict(settings.engine).items()}
    return flat


# --- replay ---------------------------------------------------------------------------------------------


def _recorded(
    folder: Path, settings: LiveSettings, player: Player, problems: Sequence[Problem]
) -> ProbeDataset:
    """The questions of a collection that are asked here.

    Raises:
        InputError: it has other settings, too few branches, or none of the questions.
    """
    plan = Store(folder).plan
    same = dataclasses.replace(plan.sampling, signals=settings.sampling.signals)
    if differences := settings.differences(dataclasses.replace(plan, sampling=same)):
        raise InputError(
            f"{folder} cannot be compared with, because it was collected with other settings: "
            f"{'; '.join(differences)}"
        )
    dataset = load(folder)
    check_width(dataset, player, settings.max_branches)
    asked = {problem.text for problem in problems}
    rows = [row for row, question in enumerate(dataset.questions) if question.text in asked]
    if not rows:
        raise InputError(f"{folder} has none of these questions; compare with a collection of the same ones")
    return dataset.select(rows)


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
