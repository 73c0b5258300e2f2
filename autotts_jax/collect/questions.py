"""The questions of a collection: from files, from Hugging Face datasets, or generated."""

from __future__ import annotations

import csv
import io
import itertools
import math
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from autotts_jax.collect.answers import extractor
from autotts_jax.collect.arithmetic import arithmetic
from autotts_jax.collect.problem import Problem
from autotts_jax.errors import DataError, InputError
from autotts_jax.extras import needs
from autotts_jax.files import exists, read_bytes
from autotts_jax.parsing import MAX_JSON
from autotts_jax.replay.equivalence import plain_form
from autotts_jax.replay.json_values import decode, parse_values
from autotts_jax.replay.spelling import ERROR
from autotts_jax.terminal import quoted

TEXT_COLUMNS = ("question", "problem", "prompt", "input")
GOLD_COLUMNS = ("answer", "gold", "gold_answer", "solution", "target", "expected_answer")
"""Names of the columns of questions and of answers, the preferred first, in upper or lower case."""

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
    needs_gold: bool = True,
    whole_gold: bool = False,
) -> list[Problem]:
    r"""Reads questions with distinct texts, in the order of their source.

    Of an answer that ends in ``#### 42``, as in GSM8K, ``42`` is taken; of one with a ``\boxed{}``, as in
    MATH, the content of the last box. Numbers stay as they are written: ``5.0`` stays ``5.0``.

    Args:
        source: a ``.jsonl``, ``.json``, ``.csv`` or ``.parquet`` file; ``org/name`` or ``org/name:config``, a
            Hugging Face dataset; a folder that the `datasets` library reads; or
            ``arithmetic[:COUNT[:SEED]]``, generated questions.
        text_column: the column of the questions; by default the first of `TEXT_COLUMNS` that exists.
        gold_column: the column of the answers; by default the first of `GOLD_COLUMNS` that exists.
        split: the split of a dataset; files have none.
        limit: number of questions to read from the start; by default all.
        needs_gold: whether each question must have an answer; otherwise that of those without is empty.
        whole_gold: whether an answer is taken as it is, as the tests of code are; a list of texts is one of
            several lines.

    Returns:
        The problems, at least one.

    Raises:
        InputError: the kind of source is unknown, the limit is below 1, or a dataset is not available.
        DataError: the source cannot be read, has no such column, no questions, a question twice, or a row
            without a question or an answer.
    """
    if limit is not None and limit < 1:
        raise InputError(f"the limit is {limit}; read at least one question")
    if generated := _GENERATED.fullmatch(source):
        return arithmetic(*(int(number) for number in generated.groups() if number))[:limit]
    rows = list(itertools.islice(_rows(source, split), limit))
    if not rows:
        raise DataError(source, "holds no questions; give it at least one")
    text_column = text_column or _usual_column(rows, TEXT_COLUMNS)
    if text_column is None:
        raise _no_column(source, rows, TEXT_COLUMNS, "text_column")
    # A column that somebody names and no row has is a mistake.
    may_lack = not needs_gold and (gold_column is None or any(gold_column in row for _, row in rows))
    if gold_column is None:
        gold_column = _usual_column(rows, GOLD_COLUMNS) or ""
        if not gold_column and not may_lack:
            raise _no_column(source, rows, GOLD_COLUMNS, "gold_column")
    questions: dict[str, Problem] = {}
    places: dict[str, str] = {}
    for place, row in rows:
        text = _value(source, place, row, text_column)
        if text in places:
            raise DataError(source, f"{place} has the same question as {places[text]}; keep one of them")
        places[text] = place
        if may_lack and _is_missing(row.get(gold_column)):
            gold = ""
        elif whole_gold:
            gold = _value(source, place, _joined(row, gold_column), gold_column)
        else:
            gold = _answer(source, place, _value(source, place, row, gold_column))
        questions[text] = Problem(text, gold)
    return list(questions.values())


# --- sources


def _rows(source: str, split: str) -> Iterable[_Row]:
    path, there = Path(source), exists(source)
    if path.suffix.lower() in _READERS and not path.is_dir():
        return _READERS[path.suffix.lower()](source, read_bytes(path))
    if path.is_dir() or (_HUB_ID.fullmatch(source) and not there):
        return _dataset_rows(source, split)
    raise InputError(
        f"{source!r}: {'its ending is unknown' if there else 'no such file'}; name a file that ends "
        f"in {', '.join(_READERS)}, a Hugging Face dataset as org/name or org/name:config, "
        "or arithmetic:COUNT:SEED"
    )


def _dataset_rows(source: str, split: str) -> Iterator[_Row]:
    with needs("collecting", f"{source!r} is not a file; a Hugging Face dataset"):
        from datasets import load_dataset
    name, _, config = (source, "", "") if Path(source).is_dir() else source.partition(":")
    try:
        table = load_dataset(name, config or None, split=split)
    # The library, the network and the dataset's files may raise anything.
    except Exception as error:
        raise InputError(
            f"{source!r}: no such file, and the split {split!r} of a dataset of this name cannot be read: "
            f"{quoted(error)}; check the name, the split and the connection"
        ) from error
    # From the Arrow table, because the dataset's own rows decode images and sounds.
    return _arrow_rows(source, table.with_format("arrow")[:].to_batches(max_chunksize=1000))


def _json_rows(source: str, content: bytes) -> Iterator[_Row]:
    for place, item in parse_values(source, content, parse_number=str):  # numbers stay as they are written
        if type(item) is not dict:
            raise DataError(source, f"{place} is {reprlib.repr(item)}; make it an object with named values")
        yield place, item


def _csv_rows(source: str, content: bytes) -> Iterator[_Row]:
    reader = csv.DictReader(io.StringIO(decode(source, content), newline=""), strict=True)
    try:
        _check_columns(source, reader.fieldnames or ())
        for row in reader:
            place = f"line {reader.line_num}"
            if None in row or None in row.values():
                raise DataError(
                    source,
                    f"{place} has not as many values as the header has columns; "
                    "put values with commas or line breaks in double quotes",
                )
            yield place, row
    except csv.Error as error:
        raise DataError(
            source, f"line {reader.reader.line_num} is not CSV: {quoted(error)}; fix it"
        ) from error


def _parquet_rows(source: str, content: bytes) -> Iterator[_Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    size = 0
    try:
        file = pq.ParquetFile(pa.BufferReader(content))
        _check_columns(source, file.schema_arrow.names)
        # What the file holds once may stand in millions of rows, so few are unpacked at a time.
        for place, row in _arrow_rows(source, file.iter_batches(batch_size=16)):
            size += sum(len(value) if isinstance(value, str) else 8 for value in row.values())
            if size > MAX_JSON:
                raise DataError(source, f"unpacks to more than {MAX_JSON:,} bytes; split it")
            yield place, row
    except (pa.ArrowException, OSError) as error:
        raise DataError(source, f"not a complete Parquet file: {quoted(error)}; get it again") from error


def _check_columns(source: str, names: Sequence[str]) -> None:
    """Checks that no column would hide another one."""
    if repeated := [name for name in names if names.count(name) > 1]:
        raise DataError(source, f"has the column {repeated[0]!r:.60} twice; rename one")


def _arrow_rows(source: str, batches: Iterable[Any]) -> Iterator[_Row]:
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


def _usual_column(rows: list[_Row], usual: tuple[str, ...]) -> str | None:
    """The column of the first row that has one of the usual names."""
    by_name = {name.lower(): name for name in rows[0][1]}
    return next((by_name[name] for name in usual if name in by_name), None)


def _no_column(source: str, rows: list[_Row], usual: tuple[str, ...], argument: str) -> DataError:
    present = ", ".join(rows[0][1])
    return DataError(
        source, f"has the columns {present}, and none of {', '.join(usual)}; name one as {argument}"
    )


def _value(source: str, place: str, row: Mapping[str, Any], column: str) -> str:
    """A value as text that is not blank."""
    if column not in row:
        raise DataError(source, f"{place} has no {column}; it has {', '.join(row)}")
    value = row[column]
    if _is_missing(value):
        raise DataError(source, f"{place} has an empty {column}; fill it, or leave the row out")
    if type(value) in (bool, bytes, dict, list):
        raise DataError(source, f"{place} has the {column} {reprlib.repr(value)}; make it text or a number")
    text = str(value)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            source, f"{place} has half of a surrogate pair (\\ud800 to \\udfff) in its {column}; remove it"
        ) from error
    return text


def _joined(row: Mapping[str, Any], column: str) -> Mapping[str, Any]:
    """A row in which a list of texts is one text."""
    value = row.get(column)
    if type(value) is list and value and all(type(line) is str for line in value):
        return {**row, column: "\n".join(value)}
    return row


def _is_missing(value: Any) -> bool:
    return value is None or (type(value) is float and math.isnan(value)) or not str(value).strip()


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
    if not gold or plain_form(gold, arithmetic=True) == ERROR:
        raise DataError(
            source, f"{place} has no answer in {reprlib.repr(written)}; give it one, or leave the row out"
        )
    return gold
