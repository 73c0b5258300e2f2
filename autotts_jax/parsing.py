"""JSON and TOML that others may have written; nothing in this package parses either in another way."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from typing import Any

MAX_DEPTH = 64
"""How deep lists and objects may be nested. All formats of this package are flatter."""

MAX_JSON = 2**28
"""Bytes of JSON at most. Text may take four times as much in memory, and so may the strings in it."""

MAX_VALUES = 2**24
"""Values at most, which take up to 130 bytes each besides their text: 2 GiB together."""


def parse_json(content: bytes | str, parse_number: Callable[[str], Any] | None = None) -> Any:
    """Parses one JSON value.

    Returns:
        The value.

    Raises:
        ValueError: the content is not UTF-8 or not JSON (a `json.JSONDecodeError`), an object has a name
            twice, or it is nested too deep, too long or of too many values.
    """
    check_size(content)
    text = content if isinstance(content, str) else content.decode("utf-8-sig")
    try:
        value = json.loads(
            text, parse_int=parse_number, parse_float=parse_number, object_pairs_hook=_without_repeats
        )
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error
    _check_depth(value)
    return value


def parse_next(text: str, start: int, parse_number: Callable[[str], Any]) -> tuple[Any, int]:
    """Parses the JSON value that begins at a place in a text.

    Returns:
        The value, and where the text goes on behind it.

    Raises:
        ValueError: as `parse_json`.
    """
    decoder = json.JSONDecoder(
        parse_int=parse_number, parse_float=parse_number, object_pairs_hook=_without_repeats
    )
    try:
        value, end = decoder.raw_decode(text, start)
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error
    _check_depth(value)
    return value, end


def check_size(content: bytes | str) -> None:
    """Checks that JSON does not take too much memory when it is parsed.

    Raises:
        ValueError: it is too long, or may have too many values.
    """
    if len(content) > MAX_JSON:
        raise ValueError(f"it has {len(content):,} bytes, more than {MAX_JSON:,}; split it")
    # A value other than the first stands after one of these; those in strings count as well.
    count: Callable[[Any], int] = content.count
    values = sum(count(mark if isinstance(content, str) else mark.encode()) for mark in ",:[{")
    if values > MAX_VALUES:
        raise ValueError(f"it has up to {values:,} values, more than {MAX_VALUES:,}; split it")


def parse_toml(content: bytes) -> dict[str, Any]:
    """Parses TOML.

    Returns:
        Its tables.

    Raises:
        ValueError: the content is not UTF-8 or not TOML, or is nested too deep.
    """
    text = content.decode()
    # The time that a key takes grows with the square of its parts.
    if _DEEP_KEY.search(text):
        raise ValueError(_TOO_DEEP)
    try:
        tables = tomllib.loads(text)
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error
    _check_depth(tables)
    return tables


_TOO_DEEP = f"it is nested more than {MAX_DEPTH} deep"

_PART = r"""(?:[\w-]+|'[^'\n]{0,200}'|"(?:[^"\\\n]|\\.){0,200}")"""
_DEEP_KEY = re.compile(rf"(?<![\w\\-])(?:{_PART}[ \t]*\.[ \t]*){{{MAX_DEPTH}}}", re.ASCII)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for name, part in pairs:
        if name in value:
            raise ValueError(f"an object has {name!r:.60} twice")
        value[name] = part
    return value


def _check_depth(value: Any) -> None:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_DEPTH):
        inner = (outer.values() if isinstance(outer, dict) else outer for outer in level)
        level = [part for parts in inner for part in parts if isinstance(part, dict | list)]
        if not level:
            return
    raise ValueError(_TOO_DEEP)
