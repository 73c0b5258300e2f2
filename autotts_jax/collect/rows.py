"""Rows of questions and completions: from files, and from Hugging Face datasets."""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from autotts_jax.collect.answers import extractor
from autotts_jax.collect.records import SUFFIXES, arrow_rows, is_record_file, read_records
from autotts_jax.errors import DataError, InputError
from autotts_jax.extras import needs
from autotts_jax.files import exists
from autotts_jax.parsing import MAX_JSON
from autotts_jax.replay.equivalence import plain_form
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
    if is_record_file(path) and not path.is_dir():
        return _file_rows(path)
    if path.is_dir() or (_HUB_ID.fullmatch(source) and not there):
        return _dataset_rows(source, split)
    raise InputError(
        f"{source!r}: {'its ending is unknown' if there else 'no such file'}; name a file that ends "
        f"in {', '.join(SUFFIXES)} or a Hugging Face dataset as org/name or org/name:config{or_else}"
    )


def _file_rows(file: Path) -> Iterator[Row]:
    """The rows of a file, which are kept together."""
    size = 0
    for record in read_records([file]):
        size += sum(len(value) if isinstance(value, str) else 8 for value in record.value.values())
        if size > MAX_JSON:
            raise DataError(file, f"unpacks to more than {MAX_JSON:,} bytes; split it")
        yield record.place, record.value


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
    return arrow_rows(source, table.with_format("arrow")[:].to_batches(max_chunksize=1000))


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
    elif _SOLUTION.match(written):
        gold = extractor("auto")(written)
    else:
        gold = written.strip()
    if not gold or plain_form(gold, arithmetic=True) == ERROR:
        raise DataError(
            source, f"{place} has no answer in {reprlib.repr(written)}; give it one, or leave the row out"
        )
    return gold
