"""Rows of questions and completions: from files, and from Hugging Face datasets."""

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
from autotts_jax.errors import DataError, InputError
from autotts_jax.extras import needs
from autotts_jax.files import exists, read_bytes
from autotts_jax.parsing import MAX_JSON, MAX_VALUES
from autotts_jax.replay.equivalence import plain_form
from autotts_jax.replay.json_values import decode, parse_values
from autotts_jax.replay.spelling import ERROR
from autotts_jax.terminal import quoted

_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")
_SOLUTION = re.compile(r".{20}.*\banswer(?: is\b|:)", re.DOTALL | re.IGNORECASE)
"""A reference answer that is a worked solution, and states its answer at the end."""
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(:[\w.-]+)?")

Row = tuple[str, Mapping[str, Any]]
"""Where a row stands ("line 3"), and its values by column."""


def read_rows(source: str, split: str, or_else: str = "") -> Iterable[Row]:
    """Reads the rows of a source.

    Args:
        source: a file, the id of a Hugging Face dataset, or a folder that the `datasets` library reads.
        split: the split of a dataset.
        or_else: what else could be named instead, for the message.

    Returns:
        The rows; they may be read one by one.

    Raises:
        InputError: the kind of source is unknown, or a dataset is not available.
        DataError: the source cannot be read.
    """
    path, there = Path(source), exists(source)
    if path.suffix.lower() in _READERS and not path.is_dir():
        return _READERS[path.suffix.lower()](source, read_bytes(path))
    if path.is_dir() or (_HUB_ID.fullmatch(source) and not there):
        return _dataset_rows(source, split)
    raise InputError(
        f"{source!r}: {'its ending is unknown' if there else 'no such file'}; name a file that ends "
        f"in {', '.join(_READERS)} or a Hugging Face dataset as org/name or org/name:config{or_else}"
    )


def _dataset_rows(source: str, split: str) -> Iterator[Row]:
    with needs("collecting", f"{source!r} is not a file; a Hugging Face dataset"):
        from datasets import load_dataset
    is_folder = Path(source).is_dir()
    name, _, config = (source, "", "") if is_folder else source.partition(":")
    try:
        table = load_dataset(name, config or None, split=split)
    # The library, the network and the dataset's files may raise anything.
    except Exception as error:
        if is_folder:
            raise InputError(
                f"{source!r}: the split {split!r} of this folder cannot be read: {quoted(error)}; name "
                "another split, or one of its files"
            ) from error
        raise InputError(
            f"{source!r}: no such file, and the split {split!r} of a dataset of this name cannot be read: "
            f"{quoted(error)}; check the name, the split and the connection"
        ) from error
    # From the Arrow table, because the dataset's own rows decode images and sounds.
    return _arrow_rows(source, table.with_format("arrow")[:].to_batches(max_chunksize=1000))


def _json_rows(source: str, content: bytes) -> Iterator[Row]:
    for place, item in parse_values(source, content, parse_number=str):  # numbers stay as they are written
        if type(item) is not dict:
            raise DataError(source, f"{place} is {reprlib.repr(item)}; make it an object with named values")
        yield place, item


def whole_rows(source: str | Path, reader: csv.DictReader[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Reads the rows of a CSV file.

    Args:
        source: the file, for the message.
        reader: reads the file.

    Raises:
        DataError: a row has more or fewer values than the header.
    """
    for row in reader:
        place = f"line {reader.line_num}"
        if None in row or None in row.values():
            raise DataError(
                source,
                f"{place} has not as many values as the header has columns; "
                "put values with commas or line breaks in double quotes",
            )
        yield place, row


def _csv_rows(source: str, content: bytes) -> Iterator[Row]:
    reader = csv.DictReader(io.StringIO(decode(source, content), newline=""), strict=True)
    try:
        _check_columns(source, reader.fieldnames or ())
        yield from whole_rows(source, reader)
    except csv.Error as error:
        raise DataError(
            source, f"line {reader.reader.line_num} is not CSV: {quoted(error)}; fix it"
        ) from error


def _parquet_rows(source: str, content: bytes) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    size = 0
    try:
        file = pq.ParquetFile(pa.BufferReader(content))
        _check_columns(source, file.schema_arrow.names)
        # A list may hold one value millions of times, and is unpacked whole.
        groups = [file.metadata.row_group(g) for g in range(file.num_row_groups)]
        values = sum(group.column(c).num_values for group in groups for c in range(group.num_columns))
        if values > MAX_VALUES:
            raise DataError(source, f"has {values:,} values, more than {MAX_VALUES:,}; split it")
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


def _arrow_rows(source: str, batches: Iterable[Any]) -> Iterator[Row]:
    try:
        for n, row in enumerate(itertools.chain.from_iterable(batch.to_pylist() for batch in batches), 1):
            yield f"row {n}", row
    except UnicodeDecodeError as error:
        raise DataError(source, "holds text that is not UTF-8; write it again") from error


_READERS: dict[str, Callable[[str, bytes], Iterable[Row]]] = {
    ".jsonl": _json_rows,
    ".json": _json_rows,
    ".csv": _csv_rows,
    ".parquet": _parquet_rows,
}


READ = tuple(_READERS)
"""The endings of files that are read."""

# --- columns


def usual_column(row: Mapping[str, Any], usual: Sequence[str]) -> str | None:
    """Finds the column that has one of the usual names, in upper or lower case.

    Args:
        row: the first row.
        usual: the names, the preferred first.

    Returns:
        The column; None if there is none.
    """
    by_name = {name.lower(): name for name in row}
    return next((by_name[name] for name in usual if name in by_name), None)


def find_column(source: str, row: Mapping[str, Any], usual: Sequence[str], argument: str) -> str:
    """Finds the column that has one of the usual names, which has to exist.

    Args:
        source: where the row comes from, for the message.
        row: the first row.
        usual: the names, the preferred first.
        argument: the argument that names the column instead.

    Returns:
        The column.

    Raises:
        DataError: there is none.
    """
    if column := usual_column(row, usual):
        return column
    raise DataError(
        source,
        f"has the columns {', '.join(row)}, and none of {', '.join(usual)}; name one as {argument} "
        f"(--{argument.replace('_', '-')})",
    )


def text_value(source: str, place: str, row: Mapping[str, Any], column: str) -> str:
    """Reads a value as text that is not blank.

    Args:
        source: where the row comes from, for messages.
        place: where the row stands in it.
        row: the row.
        column: the column of the value.

    Returns:
        The text.

    Raises:
        DataError: there is none.
    """
    if column not in row:
        raise DataError(source, f"{place} has no {column}; it has {', '.join(row)}")
    value = row[column]
    if is_missing(value):
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


def is_missing(value: Any) -> bool:
    """Tells whether a value is none, or blank.

    Args:
        value: the value.

    Returns:
        Whether it is.
    """
    return value is None or (type(value) is float and math.isnan(value)) or not str(value).strip()


def gold_value(source: str, place: str, row: Mapping[str, Any], column: str, whole: bool) -> str:
    """Reads a reference answer.

    Args:
        source: where the row comes from, for messages.
        place: where the row stands in it.
        row: the row.
        column: the column of the answer.
        whole: whether it is taken as it is, as the tests of code are, and not out of a solution.

    Returns:
        The answer.

    Raises:
        DataError: there is none.
    """
    if whole:
        return text_value(source, place, _joined(row, column), column)
    return _answer(source, place, text_value(source, place, row, column))


def _joined(row: Mapping[str, Any], column: str) -> Mapping[str, Any]:
    """A row in which a list of texts is one text."""
    value = row.get(column)
    if type(value) is list and value and all(type(line) is str for line in value):
        return {**row, column: "\n".join(value)}
    return row


def _answer(source: str, place: str, written: str) -> str:
    """The answer in what may be a whole solution."""
    _, mark, after = written.rpartition("####")
    gold: str | None
    if mark:
        gold = _THOUSANDS.sub("", after).strip()
    elif "\\boxed" in written:
        gold = extractor("boxed")(written)
    elif _SOLUTION.search(written):
        gold = extractor("auto")(written)
    else:
        gold = written.strip()
    if not gold or plain_form(gold, arithmetic=True) == ERROR:
        raise DataError(
            source, f"{place} has no answer in {reprlib.repr(written)}; give it one, or leave the row out"
        )
    return gold
