"""The compact format: ``.npz`` archives of flat arrays, for any number of cells.

======== ===== =====================================================================================
name     dtype content
======== ===== =====================================================================================
answers  int16 ids at every readable depth, by question, branch and depth; ``NONE`` (-1) stands for no answer
lengths  int32 probes of each branch, by question and branch
tokens   int32 tokens of each branch, likewise
gold     int16 id of the reference answer of each question
interval int32 tokens between two probes, of each question
cell     int32 index into the cells, of each question
text     uint8 UTF-8 JSON: format, version, encoding, cells (``"probes": false`` if they have none), and each
               question's text, reference answer and vocabulary
======== ===== =====================================================================================

Besides, any number of signals: float16 arrays ``signal.NAME`` in the order of the answers.
"""

from __future__ import annotations

import dataclasses
import io
import json
import reprlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autotts_jax.errors import DataError, TooLargeError
from autotts_jax.files import write_atomically
from autotts_jax.npz import Npz, check_unpacked
from autotts_jax.parsing import check_size, parse_json
from autotts_jax.replay.dataset import ENCODINGS, Cell, ProbeDataset, Question
from autotts_jax.replay.fields import check_fields, check_type
from autotts_jax.replay.flat import FlatMatrix, branches_per_question, flatten, to_dataset
from autotts_jax.replay.matrix import NONE
from autotts_jax.replay.signals import DTYPE

FORMAT = "autotts_jax probe matrix"
VERSION = 1

_TEXT = "text"
_DTYPES = {
    "answers": np.int16,
    "lengths": np.int32,
    "tokens": np.int32,
    "gold": np.int16,
    "interval": np.int32,
    "cell": np.int32,
    _TEXT: np.uint8,
}
_SIGNAL = "signal."
_TEXT_FIELDS = {"encoding": str, "cells": list, "questions": list}
_CELL_FIELDS = {"model": str, "benchmark": str, "num_branches": int, "source": str, "sha256": str}
_WITH_PROBES = ("probes", True)
_QUESTION_FIELDS = {"index": int, "text": str, "gold": str, "vocabulary": list}
_MAX_INT32 = np.iinfo(np.int32).max


def write_compact(dataset: ProbeDataset, path: str | Path) -> None:
    """Writes a dataset as a compact file, completely or not at all.

    Padding (branches that a cell does not have, depths that no branch reaches) is not kept.

    Args:
        dataset: a dataset of any number of cells, in either encoding.
        path: the file to write.

    Raises:
        TooLargeError: the file would be larger than `read_compact` reads.
        InputError: the file cannot be written.
    """
    told = {
        "format": FORMAT,
        "version": VERSION,
        "encoding": dataset.encoding,
        "cells": [_told(cell) for cell in dataset.cells],
        "questions": [dataclasses.asdict(question) for question in dataset.questions],
    }
    text = json.dumps(told).encode()
    arrays = vars(flatten(dataset)) | {_TEXT: np.frombuffer(text, np.uint8)}
    arrays |= {_SIGNAL + name: values for name, values in arrays.pop("signals").items()}
    try:
        check_size(text)
        check_unpacked(arrays)
    except ValueError as error:
        raise TooLargeError(f"{path}: {error}") from error
    archive = io.BytesIO()
    np.savez_compressed(archive, **arrays)
    write_atomically(path, archive.getvalue())


def _told(cell: Cell) -> dict[str, Any]:
    """What is written of a cell; that it has probes goes without saying."""
    return {name: value for name, value in dataclasses.asdict(cell).items() if (name, value) != _WITH_PROBES}


def read_compact(path: str | Path) -> ProbeDataset:
    """Reads a compact file.

    Args:
        path: a file that `write_compact` wrote.

    Returns:
        The dataset, in the encoding that it was written in.

    Raises:
        DataError: the file cannot be read, is of another version, or is inconsistent.
    """
    arrays = _read_arrays(path)
    encoding, cells, questions = _parse_text(path, arrays.pop(_TEXT).tobytes())
    names = [name for name in arrays if name not in _DTYPES]
    signals = {name.removeprefix(_SIGNAL): arrays.pop(name) for name in names}
    flat = FlatMatrix(**arrays, signals=signals)
    _check_questions(path, flat, cells, questions)
    _check_branches(path, flat, cells, questions)
    return to_dataset(path, flat, cells, questions, encoding)


def _read_arrays(file: str | Path) -> dict[str, np.ndarray]:
    archive = Npz(file, "write it again")
    names = {name for name in archive.forms if not name.startswith(_SIGNAL)}
    if names != _DTYPES.keys():
        raise DataError(
            file,
            f"no compact file: it holds the arrays {reprlib.repr(sorted(archive.forms))}, and a compact file "
            f"{sorted(_DTYPES)}; write it again, or if it is something else, move it out of the "
            "folder or name the files to read",
        )
    dtypes = _DTYPES | dict.fromkeys(sorted(archive.forms.keys() - _DTYPES.keys()), DTYPE)
    for name, dtype in dtypes.items():
        form = archive.forms[name]
        if form.dtype != dtype or len(form.shape) != 1:
            raise DataError(
                file, f"{name} is {form.dtype} of shape {form.shape}; make it flat {np.dtype(dtype)}"
            )
    return {name: archive.read(name) for name in dtypes}


def _parse_text(file: object, content: bytes) -> tuple[str, tuple[Cell, ...], tuple[Question, ...]]:
    """The encoding, the cells and the questions, each field of its type."""
    try:
        text = parse_json(content)
    except ValueError as error:
        raise DataError(file, f"its text is not JSON ({error}); write it again") from error
    check_fields(file, "the text", text, {"format": str, "version": int})
    if (text["format"], text["version"]) != (FORMAT, VERSION):
        raise DataError(
            file,
            f"it is {text['format']!r:.60} version {text['version']!s:.60}, and this autotts_jax reads "
            f"{FORMAT!r} version {VERSION}; write it again with this autotts_jax, or update autotts_jax",
        )
    check_fields(file, "the text", text, _TEXT_FIELDS)
    if text["encoding"] not in ENCODINGS:
        raise DataError(file, f"unknown encoding {text['encoding']!r:.60}; write it again")
    for cell in text["cells"]:
        check_fields(file, "the cell", cell, _CELL_FIELDS)
        check_type(file, "probes of the cell", cell.setdefault(*_WITH_PROBES), bool)
    for q, question in enumerate(text["questions"]):
        check_fields(file, "the question", question, _QUESTION_FIELDS, q)
        if set(map(type, question["vocabulary"])) - {str}:
            raise DataError(file, "an answer in its vocabulary is not a string; make them strings", q)
    cells = tuple(Cell(**{name: cell[name] for name in (*_CELL_FIELDS, "probes")}) for cell in text["cells"])
    questions = tuple(
        Question(question["index"], question["text"], question["gold"], tuple(question["vocabulary"]))
        for question in text["questions"]
    )
    return text["encoding"], cells, questions


def _check_questions(
    file: object, flat: FlatMatrix, cells: Sequence[Cell], questions: Sequence[Question]
) -> None:
    if not cells or not questions:
        raise DataError(file, f"{len(cells)} cells and {len(questions)} questions; give at least one of each")
    if not all(1 <= cell.num_branches <= _MAX_INT32 for cell in cells):
        raise DataError(file, f"the num_branches of a cell is not between 1 and {_MAX_INT32}; correct it")
    if len({cell.name for cell in cells}) < len(cells):
        raise DataError(file, "a cell occurs twice; give each (model, benchmark) once")
    for name, values in {"gold": flat.gold, "interval": flat.interval, "cell": flat.cell}.items():
        if len(values) != len(questions):
            raise DataError(
                file, f"{name} has {len(values)} entries for {len(questions)} questions; give one for each"
            )
    sizes = np.array([len(question.vocabulary) for question in questions])
    distinct = np.array([len(set(question.vocabulary)) for question in questions])
    gold, interval, cell = flat.gold, flat.interval, flat.cell
    _check_each(file, "an answer occurs twice in its vocabulary; keep one", sizes == distinct)
    _check_each(file, "its gold is not an id of its vocabulary; correct it", (gold >= 0) & (gold < sizes))
    _check_each(file, "its interval is below 1; give the tokens between probes", interval >= 1)
    _check_each(file, f"its cell is none of the {len(cells)}; correct it", (cell >= 0) & (cell < len(cells)))
    of_cell = np.zeros(len(cells), np.int32)
    of_cell[cell] = interval
    _check_each(file, "its interval is not its cell's; use one for all", interval == of_cell[cell])


def _check_branches(
    file: object, flat: FlatMatrix, cells: Sequence[Cell], questions: Sequence[Question]
) -> None:
    branches = branches_per_question(cells, flat.cell)
    for name, values in {"lengths": flat.lengths, "tokens": flat.tokens}.items():
        if len(values) != branches.sum():
            raise DataError(
                file, f"{name} has {len(values)} entries for {branches.sum()} branches; give one for each"
            )
    _check_each(file, "no probes; leave the branch out", flat.lengths >= 1, branches)
    _check_each(file, "fewer tokens than 1; correct them", flat.tokens >= 1, branches)
    depths = flat.lengths.astype(np.int64) + 1
    for name, values in {"answers": flat.answers, **flat.signals}.items():
        if len(values) != depths.sum():
            raise DataError(
                file,
                f"{name} has {len(values)} entries, and the lengths add up to {depths.sum()}; write it again",
            )
    sizes = np.repeat([len(question.vocabulary) for question in questions], branches)
    known = (flat.answers >= NONE) & (flat.answers < np.repeat(sizes, depths))
    starts = np.cumsum(depths) - depths
    _check_each(
        file,
        "an answer is not an id of the vocabulary; correct it",
        np.logical_and.reduceat(known, starts),
        branches,
    )


def _check_each(file: object, problem: str, good: np.ndarray, branches: np.ndarray | None = None) -> None:
    """Names the first question that is not good, or with ``branches`` of each question the first branch."""
    if good.all():
        return
    first = int(np.argmin(good))
    if branches is None:
        raise DataError(file, problem, first)
    ends = np.cumsum(branches)
    question = int(np.searchsorted(ends, first, side="right"))
    raise DataError(file, problem, question, int(first - (ends[question] - branches[question])))
