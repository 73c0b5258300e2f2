"""The values in a file of JSON: the entries of a list, or one value a line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from autotts_jax.errors import DataError
from autotts_jax.parsing import check_size, parse_json


def decode(file: object, content: bytes) -> str:
    """Decodes UTF-8, with or without a byte order mark.

    Args:
        file: where the content comes from, for messages.
        content: the bytes.

    Returns:
        The text.

    Raises:
        DataError: the content is not UTF-8.
    """
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(file, f"line {line} is not UTF-8; save the file as UTF-8 text") from error


def parse_values(file: object, content: bytes) -> Iterator[tuple[str, Any]]:
    """Parses the entries of a JSON list, or one JSON value a line; the content tells which it is.

    Args:
        file: where the content comes from, for messages.
        content: the file's bytes.

    Yields:
        Where a value stands ("row 3" of a list, or "line 3"), and the value. Lines are parsed one by one.

    Raises:
        DataError: the content is not UTF-8 or takes too much memory, or a value is not JSON.
    """
    try:
        check_size(content)
    except ValueError as error:
        raise DataError(file, str(error)) from error
    text = decode(file, content)
    if text.lstrip().startswith("["):
        for n, value in enumerate(_parse(file, text, 1), 1):
            yield f"row {n}", value
        return
    # Not splitlines, which would also split at a line separator inside a string.
    for n, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield f"line {n}", _parse(file, line, n)


def _parse(file: object, text: str, first_line: int) -> Any:
    try:
        return parse_json(text)
    except json.JSONDecodeError as error:
        line = first_line + error.lineno - 1
        raise DataError(
            file,
            f"line {line}, column {error.colno} is not JSON: {error.msg}; fix it, or get the whole file "
            "again (one object a line, or a list of objects)",
        ) from error
    except ValueError as error:
        raise DataError(file, f"line {first_line} is not readable as JSON: {error}; fix it") from error
