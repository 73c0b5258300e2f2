"""The folder of a live run: the settings that its answers depend on, and rows that stay once written.

======================== ====================================================================================
file                     content
======================== ====================================================================================
``run.json``             the settings that the answers depend on, and each run that worked on them
``answers.jsonl``        a line for each question that was answered, in the order of the questions
``reads.jsonl``          of a batch: a line for each branch that was read, in the order in which they ended
``replay.jsonl``         live and replay side by side, a line for each question that was compared
======================== ====================================================================================
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from autotts_jax import files
from autotts_jax.collect.code_grader import read_tests
from autotts_jax.collect.engine import Engine
from autotts_jax.collect.graders import BY_TESTS
from autotts_jax.collect.loading import load
from autotts_jax.collect.plan import EngineSpec
from autotts_jax.collect.problem import Problem
from autotts_jax.collect.schema import SchemaError, parse_as
from autotts_jax.collect.store import Store
from autotts_jax.collect.trajectories import Sampling
from autotts_jax.commands import hide
from autotts_jax.errors import DataError, InputError
from autotts_jax.experiments.live_rows import Answered, BranchRead, Compared
from autotts_jax.replay.dataset import ProbeDataset

FORMAT, VERSION = "autotts_jax live run", 1
_MOST = 2**53
"""The largest number of a row."""

RUN, ANSWERS, READS, REPLAY = "run.json", "answers.jsonl", "reads.jsonl", "replay.jsonl"

Line = TypeVar("Line")


@dataclasses.dataclass(frozen=True)
class LiveSettings:
    """All that the answers depend on besides the questions.

    Attributes:
        player: name of the player, or of the allocator of a batch.
        max_branches: W, branches that can be opened.
        budget: tokens that a question may be charged, or all questions of a batch; None for no limit.
        sampling: how branches are sampled and probed.
        answers: how answers are found in texts.
        grader: which answers are equal.
        engine: what generates the branches; None if that is not said.
        player_sha256: hash of the file that the player is in, if it is in one.
        answers_sha256: hash of the file that ``answers`` names, if it names one.
        grader_sha256: hash of the file that ``grader`` names, if it names one.
        at_once: of a batch: questions that read a branch at a time.
        questions_sha256: of a batch: hash of its questions, which share the budget.
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
    at_once: int | None = None
    questions_sha256: str | None = None

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


def check_questions(questions: Any, grader: str) -> list[Problem]:
    """Checks the questions of a run.

    Returns:
        The questions.

    Raises:
        InputError: they are no `Problem`s, one is there twice, or its tests cannot be read.
    """
    if not isinstance(questions, Iterable):
        raise InputError(f"questions is {questions!r:.60}, but it must be a list of Problems")
    problems = list(questions)
    if not problems or not all(isinstance(problem, Problem) for problem in problems):
        raise InputError("the questions must be autotts_jax.collect.Problems, at least one")
    if len({problem.text for problem in problems}) < len(problems):
        raise InputError("a question is there twice; keep one of them")
    for problem in problems:
        if grader in BY_TESTS and problem.gold:
            read_tests(problem.gold)
    return problems


@contextlib.contextmanager
def opening(engine: Engine | Callable[[], Engine]) -> Iterator[Callable[[], Engine]]:
    """Opens an engine when it is first needed, and closes what it has opened.

    Yields:
        A function that gives the engine.
    """
    if not callable(engine):
        yield lambda: engine
        return
    with contextlib.ExitStack() as held:
        yield functools.cache(lambda: held.enter_context(contextlib.closing(engine())))


class RunFolder:
    """The folder of a run, which this process has for itself."""

    def __init__(self, folder: Path, settings: LiveSettings, made_with: dict[str, Any]):
        self._folder, self._settings, self._made_with = folder, settings, made_with
        self._runs: list[dict[str, Any]] = []

    @classmethod
    @contextlib.contextmanager
    def writing(cls, folder: Path, settings: LiveSettings, made_with: dict[str, Any]) -> Iterator[RunFolder]:
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
        answered = self._resumed(ANSWERS, Answered, lambda row: row.question)
        for row in answered:
            asked = problems[row.question] if row.question < len(problems) else None
            if asked is None or (asked.text, asked.gold or None) != (row.text, row.gold):
                raise InputError(
                    f"{self._folder} holds an answer to question {row.question}, {row.text!r:.60}, which is "
                    "not that of this run; give the same questions to go on, or another folder"
                )
        return answered

    def reads(self) -> list[BranchRead]:
        """Reads which branches of a batch were read. A line that was cut short is removed.

        Raises:
            InputError: they were read with other settings or for other questions.
            DataError: a file is damaged.
        """
        path = self._folder / READS
        if path.exists():
            content = files.read_bytes(path)
            whole = content[: content.rfind(b"\n") + 1]
            if whole != content:
                files.write_atomically(path, whole)
        rows = self._resumed(READS, BranchRead, lambda row: (row.question, row.branch))
        most = self._settings.sampling.max_tokens
        for number, row in enumerate(rows, 1):
            if row.tokens > most:
                raise DataError(path, f"line {number} is damaged: more than {most} tokens; delete it")
        return rows

    def _resumed(self, name: str, kind: type[Line], key: Callable[[Line], Any]) -> list[Line]:
        """The rows of a file, if there are any, made with the settings of this run."""
        path = self._folder / RUN
        if not path.exists():
            return []
        try:
            manifest = parse_as(_Manifest, files.read_bytes(path))
        except SchemaError as error:
            raise DataError(path, f"damaged: {error}; restore it, or give another folder") from error
        if (manifest.format, manifest.version) != (FORMAT, VERSION):
            raise DataError(path, f"it is not {FORMAT} version {VERSION}; give another folder")
        if not any((self._folder / lines).exists() for lines in (ANSWERS, READS)):
            return []
        rows = self._lines(self._folder / name, kind, key)
        self._runs = manifest.runs
        if differences := self._settings.differences(manifest.settings):
            raise InputError(
                f"{self._folder} holds answers with other settings: {'; '.join(differences)}. Use the same "
                "settings to go on, or another folder"
            )
        return rows

    def begin(self) -> None:
        """Records that this run works on the folder."""
        runs = [*self._runs, *([] if self._made_with in self._runs[-1:] else [self._made_with])]
        content = dataclasses.asdict(_Manifest(FORMAT, VERSION, self._settings, hide(runs)))
        text = json.dumps(content, indent=1, ensure_ascii=False)
        files.write_atomically(self._folder / RUN, text.encode())

    def write(self, name: str, rows: Sequence[Answered] | Sequence[Compared]) -> None:
        """Writes rows to a file, a line each."""
        files.write_atomically(self._folder / name, b"".join(map(_line, rows)))

    def append(self, row: BranchRead) -> None:
        """Writes a row to the end of the branches that were read, through to the disk."""
        path = self._folder / READS
        try:
            with path.open("ab") as file:
                file.write(_line(row))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror}; check the disk") from error

    def _lines(self, path: Path, kind: type[Line], key: Callable[[Line], Any]) -> list[Line]:
        rows: list[Line] = []
        for number, line in enumerate(files.read_bytes(path).splitlines() if path.exists() else [], 1):
            try:
                rows.append(parse_as(kind, line))
            except SchemaError as error:
                raise DataError(path, f"line {number} is damaged: {error}; delete it") from error
            numbers = [x for x in dataclasses.astuple(cast(Any, rows[-1])) if isinstance(x, int | float)]
            if not all(0 <= x <= _MOST for x in numbers):
                raise DataError(path, f"line {number} is damaged: a number is out of range; delete it")
        if len(set(map(key, rows))) < len(rows):
            raise DataError(path, "has a question twice; delete one of its lines")
        return rows


def _line(row: Any) -> bytes:
    # A model may generate half of a surrogate pair.
    return (json.dumps(dataclasses.asdict(row), ensure_ascii=False) + "\n").encode(errors="replace")


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


def recorded_questions(folder: Path, settings: LiveSettings, problems: Sequence[Problem]) -> ProbeDataset:
    """Loads the questions of a collection that are asked live.

    Returns:
        Those of them that it has, in its order.

    Raises:
        InputError: it has other settings, or none of the questions.
    """
    plan = Store(folder).plan
    same = dataclasses.replace(plan.sampling, signals=settings.sampling.signals)
    if differences := settings.differences(dataclasses.replace(plan, sampling=same)):
        raise InputError(
            f"{folder} cannot be compared with, because it was collected with other settings: "
            f"{'; '.join(differences)}"
        )
    dataset = load(folder)
    asked = {problem.text for problem in problems}
    rows = [row for row, question in enumerate(dataset.questions) if question.text in asked]
    if not rows:
        raise InputError(f"{folder} has none of these questions; compare with a collection of the same ones")
    return dataset.select(rows)
