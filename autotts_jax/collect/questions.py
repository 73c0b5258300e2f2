"""The questions of a collection: from files, from Hugging Face datasets, or made up."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from autotts_jax.collect.answers import extractor
from autotts_jax.collect.problem import Problem
from autotts_jax.errors import DataError, InputError

TEXT_COLUMNS = ("question", "problem", "prompt", "input")
GOLD_COLUMNS = ("answer", "gold", "gold_answer", "solution", "target", "expected_answer")
"""Where questions and answers are looked for, in this order, in upper or lower case."""

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(:[\w.-]+)?")
_GENERATED = re.compile(r"arithmetic(?::(\d+))?(?::(\d+))?")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")

_Row = tuple[str, Mapping[str, Any]]
"""Where a row stands ("line 3"), and its values by column."""


def read_questions(
    source: str,
    *,
    text_column: str | None = None,
    gold_column: str | None = None,
    split: str = "test",
    limit: int | None = None,
) -> list[Problem]:
    r"""Reads questions with distinct texts, in the order of their source.

    An answer that ends in ``#### 42``, as in GSM8K, gives ``42``; one with a ``\boxed{}``, as in MATH, gives
    the content of the last box. Numbers are taken as they are written: ``5.0`` stays ``5.0``.

    Args:
        source: a ``.jsonl``, ``.json``, ``.csv`` or ``.parquet`` file; ``org/name`` or ``org/name:config``, a
            dataset of the Hugging Face hub; a folder that the `datasets` library reads; or
            ``arithmetic[:COUNT[:SEED]]``, questions that are made up.
        text_column: the column of the questions; by default the first of `TEXT_COLUMNS` that there is.
        gold_column: the column of the answers; by default the first of `GOLD_COLUMNS` that there is.
        split: the split of a dataset; files have none.
        limit: read only so many questions, from the start.

    Raises:
        InputError: an unknown kind of source, a limit below 1, or a dataset that cannot be had.
        DataError: the source cannot be read, has no such column, no questions, a question twice, or a row
            without a question or an answer.
    """
    if limit is not None and limit < 1:
        raise InputError(f"the limit is {limit}; read at least one question")
    if generated := _GENERATED.fullmatch(source):
        # Here, because generators are built upon this module.
        from autotts_jax.collect.arithmetic import arithmetic

        return arithmetic(*(int(number) for number in generated.groups() if number))[:limit]
    rows = list(itertools.islice(_rows(source, split), limit))
    if not rows:
        raise DataError(source, "holds no questions; give it at least one")
    text_column = text_column or _find_column(source, rows, TEXT_COLUMNS, "text_column")
    gold_column = gold_column or _find_column(source, rows, GOLD_COLUMNS, "gold_column")
    questions: dict[str, Problem] = {}
    places: dict[str, str] = {}
    for place, row in rows:
        text = _value(source, place, row, text_column)
        if text in places:
            raise DataError(source, f"{place} has the same question as {places[text]}; keep one of them")
        places[text] = place
        gold = _answer(source, place, _value(source, place, row, gold_column))
        questions[text] = Problem(text, gold)
    return list(questions.values())


# --- sources


def _rows(source: str, split: str) -> Iterable[_Row]:
    path = Path(source)
    if path.suffix.lower() in _READERS and not path.is_dir():
        return _READERS[path.suffix.lower()](source, _read_bytes(path))
    if path.is_dir() or (_HUB_ID.fullmatch(source) and not path.exists()):
        return _dataset_rows(source, split)
    raise InputError(
        f"{source!r}: {'its ending is unknown' if path.exists() else 'no such file'}; name a file that ends "
        f"in {', '.join(_READERS)}, a Hugging Face dataset as org/name or org/name:config, "
        "or arithmetic:COUNT:SEED"
    )


def _dataset_rows(source: str, split: str) -> Iterator[_Row]:
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise InputError(
            f"{source!r} needs the library datasets, which is not installed; "
            "run pip install 'autotts-jax[collect]', or name a file of questions"
        ) from error
    name, _, config = (source, "", "") if Path(source).is_dir() else source.partition(":")
    try:
        table = load_dataset(name, config or None, split=split)
    # Whatever the library, the network or the dataset's files may raise.
    except Exception as error:
        raise InputError(
            f"{source!r}: no such file, and the split {split!r} of a dataset of this name cannot be read: "
            f"{error}; check the name, the split and the connection"
        ) from error
    # Of the arrow table, because the rows of the dataset itself decode images and sounds.
    return _arrow_rows(source, table.with_format("arrow")[:])


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(path, f"cannot be read: {error.strerror}; name a file that you may read") from error


def _decode(source: str, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(source, f"line {line} is not UTF-8; save the file as UTF-8 text") from error


def _json_rows(source: str, content: bytes) -> Iterator[_Row]:
    """The objects of a JSON list or of JSON lines, told apart by content."""
    text = _decode(source, content)
    items: Iterable[tuple[str, Any]]
    if text.lstrip().startswith("["):
        items = ((f"row {n}", item) for n, item in enumerate(_loads(source, text, 1), 1))
    else:
        # Not splitlines, which would also split at a line separator inside a string.
        lines = ((n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip())
        items = ((f"line {n}", _loads(source, line, n)) for n, line in lines)
    for place, item in items:
        if type(item) is not dict:
            raise DataError(source, f"{place} is {reprlib.repr(item)}; make it an object with named values")
        yield place, item


def _loads(source: str, text: str, first_line: int) -> Any:
    try:
        # Numbers stay as they are written.
        return json.loads(text, parse_int=str, parse_float=str)
    except json.JSONDecodeError as error:
        raise DataError(
            source,
            f"line {first_line + error.lineno - 1}, column {error.colno} is not JSON: {error.msg}; mend it, "
            "or get the whole file again (one object a line, or a list of objects)",
        ) from error
    except RecursionError as error:
        raise DataError(source, f"line {first_line} is not readable as JSON: {error}; mend it") from error


def _csv_rows(source: str, content: bytes) -> Iterator[_Row]:
    reader = csv.DictReader(io.StringIO(_decode(source, content), newline=""), strict=True)
    try:
        for row in reader:
            place = f"line {reader.line_num}"
            if None in row or None in row.values():
                raise DataError(
                    source,
                    f"{place} has not as many values as the header names columns; "
                    "put values with commas or line breaks in double quotes",
                )
            yield place, row
    except csv.Error as error:
        raise DataError(source, f"line {reader.reader.line_num} is not CSV: {error}; mend it") from error


def _parquet_rows(source: str, content: bytes) -> Iterator[_Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(pa.BufferReader(content))
    except (pa.ArrowException, OSError) as error:
        raise DataError(source, f"not a complete Parquet file: {error}; get it again") from error
    return _arrow_rows(source, table)


def _arrow_rows(source: str, table: Any) -> Iterator[_Row]:
    batches = table.to_batches(max_chunksize=1000)
    try:
        for n, row in enumerate(itertools.chain.from_iterable(batch.to_pylist() for batch in batches), 1):
            yield f"row {n}", row
    except UnicodeDecodeError as error:
        raise DataError(source, "holds text that is not UTF-8; write it again") from error


_READERS: dict[str, Callable[[str, bytes], Iterable[_Row]]] = {
    ".jsonl": _json_rows,
    ".json": _json_rows,
    ".csv": _csv_rows,
    ".parquet": _parquet_rows,
}


# --- rows


def _find_column(source: str, rows: list[_Row], usual: tuple[str, ...], argument: str) -> str:
    """The column of the first row that has one of the usual names, the first of them first."""
    there = list(rows[0][1])
    by_name = {name.lower(): name for name in there}
    found = next((by_name[name] for name in usual if name in by_name), None)
    if found is None:
        raise DataError(
            source,
            f"has the columns {', '.join(there)}, and none of {', '.join(usual)}; name one as {argument}",
        )
    return found


def _value(source: str, place: str, row: Mapping[str, Any], column: str) -> str:
    """A value as text that is not blank."""
    if column not in row:
        raise DataError(source, f"{place} has no {column}; it has {', '.join(row)}")
    value = row[column]
    missing = value is None or (type(value) is float and math.isnan(value))
    if missing or not str(value).strip():
        raise DataError(source, f"{place} has an empty {column}; fill it, or leave the row out")
    if type(value) in (bool, bytes, dict, list):
        raise DataError(source, f"{place} has the {column} {reprlib.repr(value)}; make it text or a number")
    text = str(value)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            source, f"{place} has half of a surrogate pair (\\ud800 to \\udfff) in its {column}; mend it"
        ) from error
    return text


def _answer(source: str, place: str, written: str) -> str:
    """The answer in what may be a whole solution."""
    _, mark, after = written.rpartition("####")
    gold: str | None
    if mark:
        gold = _THOUSANDS.sub("", after).strip()
    elif "\\boxed" in written:
        gold = extractor("boxed")(written)
    else:
        gold = written.strip()
    if not gold:
        raise DataError(
            source, f"{place} has no answer in {reprlib.repr(written)}; give it one, or leave the row out"
        )
    return gold
