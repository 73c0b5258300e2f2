"""The archive of a run: every candidate that was tried, in a file that only grows.

A run's folder holds ``manifest.json``, what the run was begun with, and ``archive.jsonl``, a JSON object a
line. The lines of a round are written at once and end with one that says so; what a killed run leaves of a
round that did not end is cut off when the run is continued.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from autotts_jax.discovery.archive.records import problem_of, problem_of_manifest
from autotts_jax.errors import DataError, InputError
from autotts_jax.files import exists, make_folder, read_bytes, write_atomically
from autotts_jax.parsing import parse_json
from autotts_jax.terminal import quoted

MANIFEST, RECORDS = "manifest.json", "archive.jsonl"

UNSAID = {"traces": True, "beta": True, "critic": None}
"""What a run was begun with if its manifest does not say so."""

END = "round"
"""Kind of the record that ends a round."""

Record = dict[str, Any]
"""A JSON object; ``kind`` says of what."""


class Archive:
    """The archive of one run.

    Attributes:
        folder: the folder.

    Raises:
        InputError: the folder holds another run, or cannot be written.
        DataError: a file in it is damaged.
    """

    def __init__(self, folder: Path, manifest: Record):
        self.folder = folder
        make_folder(folder)
        path = folder / MANIFEST
        if path.exists():
            _check_same(path, manifest)
        else:
            write_atomically(path, (json.dumps(manifest, indent=2) + "\n").encode())
        self._size = self._cut_off_unended()

    def append(self, records: list[Record], end: Record) -> None:
        """Adds the records of a round; they are on disk when this returns.

        Raises:
            InputError: a record cannot be read again, another process has added to the file, or the file
                cannot be written.
        """
        lines = [_line_of(record) for record in [*records, {"kind": END, **end}]]
        path = self.folder / RECORDS
        try:
            with path.open("ab") as file:
                if file.tell() != self._size:
                    raise InputError(
                        f"{path} was changed by another process; let one process at a time continue a run"
                    )
                content = ("\n".join(lines) + "\n").encode()
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise InputError(
                f"{path}: cannot be written: {error.strerror}; check the disk and call again to go on"
            ) from error
        self._size += len(content)

    def records(self) -> Iterator[Record]:
        """Reads all records in order.

        Yields:
            The records.

        Raises:
            DataError: a line is not a record.
        """
        yield from read_records(self.folder)

    def _cut_off_unended(self) -> int:
        """Cuts off the records of a round that did not end, and returns the size of the rest."""
        path = self.folder / RECORDS
        if not _is_there(path):
            return 0
        content = read_bytes(path)
        kept = end = 0
        for number, line in enumerate(io.BytesIO(content), 1):
            end += len(line)
            if line.endswith(b"\n") and _record_of(path, number, line)["kind"] == END:
                kept = end
        if kept < len(content):
            with path.open("r+b") as file:
                file.truncate(kept)
        return kept


def read_records(folder: Path) -> Iterator[Record]:
    """Reads the records of a run's folder in order, those of a round that has not ended included.

    Yields:
        The records.

    Raises:
        DataError: a line is not a record.
    """
    path = folder / RECORDS
    if not _is_there(path):
        return
    candidates = 0
    for number, line in enumerate(io.BytesIO(read_bytes(path)), 1):
        if not line.endswith(b"\n"):
            return  # being written
        record = _record_of(path, number, line)
        if problem := problem_of(record):
            raise DataError(path, f"line {number}: {problem}; the file is damaged")
        if "proposer" in record:
            if record["number"] != candidates:
                raise DataError(
                    path,
                    f"line {number} has candidate {record['number']}, where {candidates} is next; "
                    "the file is damaged",
                )
            candidates += 1
        elif record.get("number", -1) >= candidates:
            raise DataError(path, f"line {number} tests candidate {record['number']}, which is not there")
        yield record


def _record_of(path: Path, number: int, line: bytes) -> Record:
    try:
        record = parse_json(line)
    except ValueError as error:
        raise DataError(path, f"line {number} is not JSON: {quoted(error)}; the file is damaged") from error
    if not isinstance(record, dict) or "kind" not in record:
        raise DataError(path, f"line {number} is not a record; the file is damaged")
    return record


def _line_of(record: Record) -> str:
    """The record as JSON, which `read_records` reads again."""
    try:
        line = json.dumps(record)
        problem = problem_of(parse_json(line))
    except TypeError as error:
        problem = str(error)
    if problem:
        raise InputError(f"a {record['kind']} of {record.get('proposer', 'a run')!r}: {problem}")
    return line


def _is_there(path: Path) -> bool:
    """Whether there is an archive; a device or a pipe is none, and could be read for ever."""
    if path.exists() and not path.is_file():
        raise DataError(path, "is not a file; begin the run anew in another folder")
    return path.exists()


def read_manifest(folder: Path) -> Record:
    """Reads what a run was begun with.

    Raises:
        InputError: the folder holds no run.
        DataError: the file is damaged.
    """
    path = folder / MANIFEST
    if not exists(folder) or not path.is_file():
        raise InputError(f"{folder} holds no run of discover: there is no {MANIFEST} in it")
    try:
        manifest = parse_json(read_bytes(path))
    except ValueError as error:
        raise DataError(path, f"is not JSON: {quoted(error)}; start again in another folder") from error
    if problem := problem_of_manifest(manifest):
        raise DataError(path, f"is damaged: {problem}; begin the run anew in another folder")
    return manifest


def _check_same(path: Path, manifest: Record) -> None:
    found = read_manifest(path.parent)
    for key, value in parse_json(json.dumps(manifest)).items():
        before = found.get(key, UNSAID.get(key))
        if before != value:
            raise InputError(
                f"{path.parent} holds a run with {key} = {before!r}, not {value!r}; use the same to "
                "go on with it, or another folder"
            )
