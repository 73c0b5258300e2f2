"""Probe matrices in files: AutoTTS JSON, raw Parallel-Probe JSONL, and a compact format of our own.

Compact files are ``.npz`` archives of flat arrays, without padding:

======== ===== =====================================================================================
name     dtype content
======== ===== =====================================================================================
answers  int16 ids at every readable depth, by question, branch and depth; ``NONE`` (-1) is no answer
lengths  int32 probes of each branch, by question and branch
tokens   int32 tokens of each branch, likewise
gold     int16 id of the reference answer of each question
interval int32 tokens between two probes, of each question
cell     int32 index into the cells, of each question
text     uint8 UTF-8 JSON: format, version, encoding, cells, and the questions' text and vocabulary
======== ===== =====================================================================================
"""

from __future__ import annotations

import dataclasses
import glob
import hashlib
import io
import itertools
import json
import os
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from autotts_jax.errors import DataError, InputError
from autotts_jax.files import write_atomically
from autotts_jax.replay.dataset import ENCODINGS, EQUIV, EXACT, Cell, ProbeDataset, Question, stack
from autotts_jax.replay.encoding import encode_exact, merge_equivalent
from autotts_jax.replay.matrix import NONE, ProbeMatrix

FORMAT = "autotts_jax probe matrix"
VERSION = 1
SUFFIXES = (".json", ".jsonl", ".npz")
"""What is read from a folder."""

COLLECTION, COLLECTED = "collection.json", "matrix.npz"
"""What a collection's folder is known by, and its matrix; nothing else in it is read as data."""

_ARRAYS = {
    "answers": np.int16,
    "lengths": np.int32,
    "tokens": np.int32,
    "gold": np.int16,
    "interval": np.int32,
    "cell": np.int32,
    "text": np.uint8,
}
_TEXT = {"encoding": str, "cells": list, "questions": list}
_CELL = {"model": str, "benchmark": str, "num_branches": int, "source": str, "sha256": str}
_QUESTION = {"index": int, "text": str, "gold": str, "vocabulary": list}

_RECORD = {"question": str, "gold_answer": object, "probe_freq": int, "final_answers_trace": list}
_RELEASED = _RECORD | {"each_branch": list}
_RAW = _RECORD | {"probe_matrix_mxn": list, "branch_tokens": list}

_NAMES = {str: "a string", int: "an integer", list: "a list", dict: "an object"}
_MAX_INT32 = np.iinfo(np.int32).max


def read(paths: str | Path | Sequence[str | Path], encoding: str = EXACT) -> ProbeDataset:
    """Reads files of any format, folders of them and glob patterns, as one dataset.

    Args:
        paths: one or several files, folders (searched with their subfolders for `SUFFIXES`) or patterns. A
            file that is named twice is read once; files are read in the order of their paths.
        encoding: `EXACT` or `EQUIV`. A compact file in `EXACT` is converted, one in `EQUIV` cannot be.

    Raises:
        InputError: a path that stands for no file, an unknown encoding, one cell in two files, or a compact
            file in `EQUIV` where `EXACT` is asked for.
        DataError: a file is wrong.
    """
    _check_encoding(encoding)
    patterns = [paths] if isinstance(paths, str | Path) else paths
    files = sorted({file for pattern in patterns for file in find_files(pattern)})
    return stack([_read_file(file, encoding) for file in files])


def read_json(
    path: str | Path, encoding: str = EXACT, model: str | None = None, benchmark: str | None = None
) -> ProbeDataset:
    """Reads one cell from AutoTTS JSON or from Parallel-Probe JSONL, told apart by content.

    Args:
        path: a JSON list of questions, or one JSON object a line; either kind of question in either.
        encoding: `EXACT` or `EQUIV`.
        model: name of the model; by default the name of the file's folder.
        benchmark: name of the benchmark; by default the file's name without its ending.

    Raises:
        DataError: the file cannot be read or is not a complete, consistent probe matrix.
        InputError: an unknown encoding, or `EQUIV` without math-verify.
    """
    _check_encoding(encoding)
    content = _read_bytes(path)
    # Not resolved: download caches keep links with telling names to files without.
    absolute = Path(os.path.abspath(path))  # noqa: PTH100
    dataset = from_items(
        _parse(path, content),
        source=str(path),
        sha256=hashlib.sha256(content).hexdigest(),
        model=model or absolute.parent.name,
        benchmark=benchmark or absolute.stem,
    )
    return merge_equivalent(dataset) if encoding == EQUIV else dataset


def from_items(items: Sequence[Any], *, source: str, sha256: str, model: str, benchmark: str) -> ProbeDataset:
    """One cell from the questions of AutoTTS JSON or Parallel-Probe JSONL, as Python objects; in `EXACT`.

    Args:
        items: the questions, at least one.
        source: where they are from, also for messages.
        sha256: hash of the source.
        model: name of the model.
        benchmark: name of the benchmark.

    Raises:
        DataError: they are not a complete, consistent probe matrix.
    """
    records = [_record(source, q, item) for q, item in enumerate(items)]
    _check_alike(source, records)
    return _encode(source, records, Cell(model, benchmark, len(records[0].tokens), source, sha256))


def write_json(dataset: ProbeDataset, path: str | Path) -> None:
    """Writes a dataset of one cell as AutoTTS JSON, as released. Whole or not at all.

    Raises:
        InputError: several cells, an encoding other than `EXACT`, an answer `NONE`, or a file that cannot be
            written.
    """
    if len(dataset.cells) != 1 or dataset.encoding != EXACT:
        raise InputError(
            f"{path}: AutoTTS JSON holds one cell in encoding {EXACT!r}, and the dataset has "
            f"{len(dataset.cells)} in {dataset.encoding!r}; use save_compact"
        )
    arrays = _flatten(dataset)
    if NONE in arrays["answers"]:
        raise InputError(f"{path}: AutoTTS JSON cannot hold an answer without text; use save_compact")
    matrix = _build(arrays, dataset.cells, dataset.questions)
    items = [_item(matrix, q, question) for q, question in enumerate(dataset.questions)]
    write_atomically(path, json.dumps(items, indent=2, ensure_ascii=False).encode())


def save_compact(dataset: ProbeDataset, path: str | Path) -> None:
    """Writes a dataset of any number of cells in the compact format. Whole or not at all.

    Padding (branches that a cell does not have, depths that no branch reaches) is not kept.

    Raises:
        InputError: the file cannot be written.
    """
    text = {
        "format": FORMAT,
        "version": VERSION,
        "encoding": dataset.encoding,
        "cells": [dataclasses.asdict(cell) for cell in dataset.cells],
        "questions": [dataclasses.asdict(question) for question in dataset.questions],
    }
    arrays: dict[str, Any] = _flatten(dataset)
    arrays["text"] = np.frombuffer(json.dumps(text).encode(), np.uint8)
    archive = io.BytesIO()
    np.savez_compressed(archive, **arrays)
    write_atomically(path, archive.getvalue())


def read_compact(path: str | Path) -> ProbeDataset:
    """Reads what `save_compact` wrote, in the encoding that it was written in.

    Raises:
        DataError: the file cannot be read, is of another version, or is inconsistent.
    """
    arrays = _load_arrays(path)
    encoding, cells, questions = _load_text(path, arrays.pop("text").tobytes())
    _check_questions(path, arrays, cells, questions)
    _check_branches(path, arrays, cells, questions)
    return ProbeDataset(_build(arrays, cells, questions), questions, cells, encoding)


# --- finding files


def _check_encoding(encoding: str) -> None:
    if encoding not in ENCODINGS:
        raise InputError(f"unknown encoding {encoding!r}; choose one of {', '.join(ENCODINGS)}")


def find_files(pattern: str | Path) -> list[Path]:
    """The files that a file name, a folder or a pattern stands for, at least one."""
    files: list[Path] = []
    found = [pattern] if Path(pattern).exists() else glob.glob(str(pattern), recursive=True)  # noqa: PTH207
    for place in map(Path, found):
        if place.is_dir():
            files += [file for file in place.rglob("*") if file.suffix in SUFFIXES and _is_data(file)]
        else:
            files.append(place)
    if not files:
        raise InputError(
            f"nothing found at {str(pattern)!r}; name a file, a folder with {', '.join(SUFFIXES)} files, "
            "or a pattern that fits some"
        )
    return files


def _is_data(file: Path) -> bool:
    """Whether it is a file, and not one that a collection keeps beside its matrix."""
    in_collection = any((folder / COLLECTION).is_file() for folder in (file.parent, file.parent.parent))
    return file.is_file() and (file.name == COLLECTED or not in_collection)


def _read_file(file: Path, encoding: str) -> ProbeDataset:
    if file.suffix != ".npz":
        return read_json(file, encoding)
    dataset = read_compact(file)
    if dataset.encoding == encoding:
        return dataset
    if encoding == EXACT:
        raise InputError(
            f"{file}: its answers are merged ({EQUIV!r}), which cannot be undone; ask for {EQUIV!r}, or read "
            "the file that it was made from"
        )
    return merge_equivalent(dataset)


def _read_bytes(path: str | Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise DataError(path, f"cannot be read: {error.strerror}; name a file that you may read") from error


# --- type checks


def _expect(
    file: object, what: str, value: Any, kind: type, question: int | None = None, branch: int | None = None
) -> None:
    """Checks the exact type of a JSON value: a bool is no integer."""
    if type(value) is not kind:
        raise DataError(file, f"{what} is {reprlib.repr(value)}; make it {_NAMES[kind]}", question, branch)


def _expect_each(file: object, what: str, values: Iterable[Any], kind: type, question: int) -> None:
    """Checks the type of one value of every branch."""
    if set(map(type, values)) - {kind}:
        for branch, value in enumerate(values):
            _expect(file, what, value, kind, question, branch)


def _expect_fields(
    file: object, what: str, item: Any, kinds: Mapping[str, type], question: int | None = None
) -> None:
    """Checks that an object has these fields, each of its type (``object``: of any)."""
    _expect(file, what, item, dict, question)
    missing = [name for name in kinds if name not in item]
    if missing:
        raise DataError(file, f"{what} has no {', '.join(missing)}; add what is missing", question)
    for name, kind in kinds.items():
        if kind is not object:
            _expect(file, name, item[name], kind, question)


# --- JSON, JSONL


@dataclasses.dataclass(frozen=True)
class _Record:
    """One question as it stands in a file; entry b of each sequence belongs to branch b."""

    text: str
    gold: str
    interval: int
    probes: Sequence[list[str]]
    tokens: Sequence[int]
    finals: Sequence[str]


def _parse(file: object, content: bytes) -> list[Any]:
    """The questions of a JSON list or of JSON lines, unchecked but at least one."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(file, f"byte {error.start} is not UTF-8; save the file as UTF-8 text") from error
    if text.lstrip().startswith("{"):
        # Not splitlines, which would also split at a line separator inside a string.
        return [_loads(file, line, n) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
    items = _loads(file, text, 1)
    if type(items) is not list or not items:
        raise DataError(file, f"holds {reprlib.repr(items)}; make it a list of at least one question")
    return items


def _loads(file: object, text: str, first_line: int) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line = first_line + error.lineno - 1
        raise DataError(
            file,
            f"not JSON at line {line}, column {error.colno}: {error.msg}; get the whole file again "
            "(a list of questions, or one question a line)",
        ) from error
    except (ValueError, RecursionError) as error:
        raise DataError(file, f"not readable as JSON: {error}; get the file again") from error


def _record(file: object, q: int, item: Any) -> _Record:
    raw = type(item) is dict and "probe_matrix_mxn" in item
    _expect_fields(file, "the question", item, _RAW if raw else _RELEASED, q)
    probes, tokens, finals = (_raw_branches if raw else _released_branches)(file, q, item)
    _check_record(file, q, probes, tokens, finals)
    if not 1 <= item["probe_freq"] <= _MAX_INT32:
        raise DataError(file, f"probe_freq is {item['probe_freq']}; give the tokens between two probes", q)
    return _Record(item["question"], _gold(file, q, item), item["probe_freq"], probes, tokens, finals)


def _gold(file: object, q: int, item: dict[str, Any]) -> str:
    gold = item["gold_answer"]
    if type(gold) is not str or not gold.strip():
        raise DataError(
            file,
            f"unknown gold: gold_answer is {reprlib.repr(gold)}; give the reference answer as a string, "
            "or leave the question out",
            q,
        )
    return gold


def _released_branches(file: object, q: int, item: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Probes, tokens and finals from the triples of ``each_branch``."""
    triples, trace = item["each_branch"], item["final_answers_trace"]
    _expect_each(file, "the branch", triples, list, q)
    for branch, triple in enumerate(triples):
        if len(triple) != 3:
            raise DataError(
                file, f"{len(triple)} entries; a branch is [probe answers, tokens, final answer]", q, branch
            )
    _check_count(file, q, "final_answers_trace", trace, len(triples), "each_branch")
    probes, tokens, finals = zip(*triples, strict=True) if triples else ((), (), ())
    if list(finals) != trace:
        branch = next(b for b, final in enumerate(finals) if final != trace[b])
        raise DataError(
            file,
            f"the final answer is {reprlib.repr(finals[branch])} in each_branch and "
            f"{reprlib.repr(trace[branch])} in final_answers_trace; make them agree",
            q,
            branch,
        )
    return probes, tokens, finals


def _raw_branches(file: object, q: int, item: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Probes, tokens and finals from a matrix whose rows end in nulls."""
    rows = item["probe_matrix_mxn"]
    _expect_each(file, "the row of probe_matrix_mxn", rows, list, q)
    for name in ("branch_tokens", "final_answers_trace"):
        _check_count(file, q, name, item[name], len(rows), "probe_matrix_mxn")
    probes = []
    for row in rows:
        length = len(row)
        while length and row[length - 1] is None:
            length -= 1
        probes.append(row[:length])
    return probes, item["branch_tokens"], item["final_answers_trace"]


def _check_count(file: object, q: int, name: str, values: list[Any], branches: int, of: str) -> None:
    if len(values) != branches:
        raise DataError(
            file,
            f"{name} has {len(values)} entries and {of} {branches}; give one of each for every branch",
            q,
        )


def _check_record(file: object, q: int, probes: Any, tokens: Any, finals: Any) -> None:
    if not probes:
        raise DataError(file, "no branches; record some, or leave the question out", q)
    _expect_each(file, "the list of probes", probes, list, q)
    _expect_each(file, "the number of tokens", tokens, int, q)
    _expect_each(file, "the final answer", finals, str, q)
    if not all(probes):
        raise DataError(file, "no probes; leave the branch out", q, list(map(bool, probes)).index(False))
    if set(map(type, itertools.chain.from_iterable(probes))) != {str}:
        for branch, row in enumerate(probes):
            for k, answer in enumerate(row):
                _expect(file, f"probe {k}", answer, str, q, branch)
    if min(tokens) < 1 or max(tokens) > _MAX_INT32:
        branch = next(b for b, count in enumerate(tokens) if not 1 <= count <= _MAX_INT32)
        raise DataError(file, f"{tokens[branch]} tokens; give a number from 1 to {_MAX_INT32}", q, branch)


def _check_alike(file: object, records: Sequence[_Record]) -> None:
    """Checks what all questions of a cell must share, and that each comes once."""
    first = records[0]
    seen: dict[str, int] = {}
    for q, record in enumerate(records):
        if len(record.tokens) != len(first.tokens):
            raise DataError(
                file,
                f"{len(record.tokens)} branches, and {len(first.tokens)} in question 0; give each as many",
                q,
            )
        if record.interval != first.interval:
            raise DataError(
                file,
                f"probe_freq is {record.interval}, and {first.interval} in question 0; split the file",
                q,
            )
        if record.text in seen:
            raise DataError(file, f"the same text as question {seen[record.text]}; keep one of them", q)
        seen[record.text] = q


def _encode(file: object, records: Sequence[_Record], cell: Cell) -> ProbeDataset:
    """Checked questions of one cell as a dataset in `EXACT`."""
    encoded = []
    for q, record in enumerate(records):
        answers = [
            answer
            for row, final in zip(record.probes, record.finals, strict=True)
            for answer in (*row, final)
        ]
        encoded.append(encode_exact(answers, record.gold, file, q))
        try:
            "".join((record.text, *encoded[-1].vocabulary)).encode()
        except UnicodeEncodeError as error:
            raise DataError(
                file, "holds half of a surrogate pair (\\ud800 to \\udfff); mend it", q
            ) from error
    questions = tuple(
        Question(q, record.text, record.gold, codes.vocabulary)
        for q, (record, codes) in enumerate(zip(records, encoded, strict=True))
    )
    arrays = {
        "answers": np.concatenate([codes.ids for codes in encoded]),
        "lengths": np.array([len(row) for record in records for row in record.probes], np.int32),
        "tokens": np.array([record.tokens for record in records], np.int32).reshape(-1),
        "gold": np.array([codes.gold for codes in encoded], np.int16),
        "interval": np.array([record.interval for record in records], np.int32),
        "cell": np.zeros(len(records), np.int32),
    }
    return ProbeDataset(_build(arrays, (cell,), questions), questions, (cell,), EXACT)


def _item(matrix: ProbeMatrix, q: int, question: Question) -> dict[str, Any]:
    """A question as AutoTTS JSON has it, from a matrix without padded branches."""
    rows = zip(matrix.answers[q].tolist(), matrix.lengths[q].tolist(), matrix.tokens[q].tolist(), strict=True)
    triples = []
    for ids, length, tokens in rows:
        *probes, final = [question.vocabulary[i] for i in ids[: length + 1]]
        triples.append([probes, tokens, final])
    return {
        "question": question.text,
        "final_answers_trace": [final for _, _, final in triples],
        "each_branch": triples,
        "gold_answer": question.gold,
        "probe_freq": int(matrix.interval[q]),
    }


# --- arrays


def _recorded(cells: Sequence[Cell], cell: np.ndarray) -> np.ndarray:
    """Which branches are recorded, the others being padding. Shape (Q, N)."""
    branches = _num_branches(cells, cell)
    return np.arange(branches.max()) < branches[:, None]


def _num_branches(cells: Sequence[Cell], cell: np.ndarray) -> np.ndarray:
    """Recorded branches of each question. Shape (Q,)."""
    return np.array([cell.num_branches for cell in cells])[cell]


def _readable(recorded: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Which depths can be read. Shape (Q, N, K), K one more than the largest length."""
    return recorded[..., None] & (np.arange(lengths.max() + 1) <= lengths[..., None])


def _build(arrays: Mapping[str, Any], cells: Sequence[Cell], questions: Sequence[Question]) -> ProbeMatrix:
    """Pads flat arrays to a matrix."""
    recorded = _recorded(cells, arrays["cell"])
    lengths = _pad(arrays["lengths"], recorded, 0)
    return ProbeMatrix(
        answers=_pad(arrays["answers"], _readable(recorded, lengths), NONE),
        lengths=lengths,
        tokens=_pad(arrays["tokens"], recorded, 0),
        gold=arrays["gold"],
        interval=arrays["interval"],
        cell=arrays["cell"],
        vocabulary=max(len(question.vocabulary) for question in questions),
    )


def _pad(values: np.ndarray, where: np.ndarray, padding: int) -> Any:
    padded = np.full(where.shape, padding, values.dtype)
    padded[where] = values
    return padded


def _on_host(matrix: ProbeMatrix) -> Any:
    return jax.tree.map(np.asarray, matrix)


def _flatten(dataset: ProbeDataset) -> dict[str, np.ndarray]:
    """The inverse of `_build`."""
    matrix = _on_host(dataset.matrix)
    recorded = _recorded(dataset.cells, matrix.cell)
    branches = recorded.shape[1]
    lengths = matrix.lengths[:, :branches]
    readable = _readable(recorded, lengths)
    return {
        "answers": matrix.answers[:, :branches, : readable.shape[2]][readable],
        "lengths": lengths[recorded],
        "tokens": matrix.tokens[:, :branches][recorded],
        "gold": matrix.gold,
        "interval": matrix.interval,
        "cell": matrix.cell,
    }


# --- compact format


def _load_arrays(file: str | Path) -> dict[str, np.ndarray]:
    content = _read_bytes(file)
    try:
        # numpy and zipfile raise a dozen kinds of errors on damaged files.
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            arrays = dict(archive)
    except Exception as error:
        raise DataError(
            file, f"not a complete .npz archive ({error}); write it again with save_compact"
        ) from error
    if arrays.keys() != _ARRAYS.keys():
        raise DataError(
            file,
            f"holds the arrays {sorted(arrays)}, and a compact file {sorted(_ARRAYS)}; "
            "write it with save_compact",
        )
    for name, kind in _ARRAYS.items():
        array = np.asarray(arrays[name])
        if array.dtype != kind or array.ndim != 1:
            nan = " with NaN" if array.dtype.kind == "f" and np.isnan(array).any() else ""
            raise DataError(
                file,
                f"{name} is {array.dtype}{nan} of shape {array.shape}; make it flat {np.dtype(kind)}",
            )
    return arrays


def _load_text(file: object, content: bytes) -> tuple[str, tuple[Cell, ...], tuple[Question, ...]]:
    """The encoding, the cells and the questions, each field of its type."""
    try:
        text = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DataError(file, f"its text is not JSON ({error}); write it again with save_compact") from error
    _expect_fields(file, "the text", text, {"format": str, "version": int})
    if (text["format"], text["version"]) != (FORMAT, VERSION):
        raise DataError(
            file,
            f"it is {text['format']!r} version {text['version']}, and this autotts_jax reads {FORMAT!r} "
            f"version {VERSION}; write it again with this autotts_jax, or update autotts_jax",
        )
    _expect_fields(file, "the text", text, _TEXT)
    if text["encoding"] not in ENCODINGS:
        raise DataError(file, f"unknown encoding {text['encoding']!r}; write it again with save_compact")
    for cell in text["cells"]:
        _expect_fields(file, "the cell", cell, _CELL)
    for q, question in enumerate(text["questions"]):
        _expect_fields(file, "the question", question, _QUESTION, q)
        if set(map(type, question["vocabulary"])) - {str}:
            raise DataError(file, "an answer in its vocabulary is not a string; make them strings", q)
    cells = tuple(Cell(**{name: cell[name] for name in _CELL}) for cell in text["cells"])
    questions = tuple(
        Question(question["index"], question["text"], question["gold"], tuple(question["vocabulary"]))
        for question in text["questions"]
    )
    return text["encoding"], cells, questions


def _check_questions(
    file: object, arrays: Mapping[str, np.ndarray], cells: Sequence[Cell], questions: Sequence[Question]
) -> None:
    if not cells or not questions:
        raise DataError(file, f"{len(cells)} cells and {len(questions)} questions; it needs one of each")
    if not all(1 <= cell.num_branches <= _MAX_INT32 for cell in cells):
        raise DataError(file, "the num_branches of a cell is no number of branches; correct it")
    if len({cell.name for cell in cells}) < len(cells):
        raise DataError(file, "a cell comes twice; give each (model, benchmark) once")
    for name in ("gold", "interval", "cell"):
        if len(arrays[name]) != len(questions):
            raise DataError(
                file,
                f"{name} has {len(arrays[name])} entries for {len(questions)} questions; give one for each",
            )
    sizes = np.array([len(question.vocabulary) for question in questions])
    distinct = np.array([len(set(question.vocabulary)) for question in questions])
    gold, interval, cell = arrays["gold"], arrays["interval"], arrays["cell"]
    _check_each(file, "an answer is twice in its vocabulary; keep one", sizes == distinct)
    _check_each(file, "its gold is no id of its vocabulary; correct it", (gold >= 0) & (gold < sizes))
    _check_each(file, "its interval is below 1; give the tokens between probes", interval >= 1)
    _check_each(file, f"its cell is none of the {len(cells)}; correct it", (cell >= 0) & (cell < len(cells)))
    of_cell = np.zeros(len(cells), np.int32)
    of_cell[cell] = interval
    _check_each(file, "its interval is not that of its cell; use one for all", interval == of_cell[cell])


def _check_branches(
    file: object, arrays: Mapping[str, np.ndarray], cells: Sequence[Cell], questions: Sequence[Question]
) -> None:
    branches = _num_branches(cells, arrays["cell"])
    for name in ("lengths", "tokens"):
        if len(arrays[name]) != branches.sum():
            raise DataError(
                file,
                f"{name} has {len(arrays[name])} entries for {branches.sum()} branches; give one for each",
            )
    _check_each(file, "no probes; leave the branch out", arrays["lengths"] >= 1, branches)
    _check_each(file, "fewer tokens than 1; correct them", arrays["tokens"] >= 1, branches)
    depths = arrays["lengths"].astype(np.int64) + 1
    if len(arrays["answers"]) != depths.sum():
        raise DataError(
            file,
            f"answers has {len(arrays['answers'])} entries, and the lengths say {depths.sum()}; "
            "write it again with save_compact",
        )
    sizes = np.repeat([len(question.vocabulary) for question in questions], branches)
    known = (arrays["answers"] >= NONE) & (arrays["answers"] < np.repeat(sizes, depths))
    starts = np.cumsum(depths) - depths
    _check_each(
        file,
        "an answer is no id of the vocabulary; correct it",
        np.logical_and.reduceat(known, starts),
        branches,
    )


def _check_each(file: object, what: str, good: np.ndarray, branches: np.ndarray | None = None) -> None:
    """Names the first question that is not good, or with ``branches`` of each question the first branch."""
    if good.all():
        return
    first = int(np.argmin(good))
    if branches is None:
        raise DataError(file, what, first)
    ends = np.cumsum(branches)
    question = int(np.searchsorted(ends, first, side="right"))
    raise DataError(file, what, question, int(first - (ends[question] - branches[question])))
