"""Checks of values read from JSON, by exact type: a bool is not an integer.

They are written by hand because a plain installation has to read data, and pydantic is not part of it.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping
from typing import Any

from autotts_jax.errors import DataError

_NAMES = {str: "a string", int: "an integer", bool: "true or false", list: "a list", dict: "an object"}


def check_type(
    file: object, name: str, value: Any, kind: type, question: int | None = None, branch: int | None = None
) -> None:
    """Checks the type of one value.

    Raises:
        DataError: the value has another type.
    """
    if type(value) is not kind:
        raise DataError(file, f"{name} is {reprlib.repr(value)}; make it {_NAMES[kind]}", question, branch)


def check_types(file: object, name: str, values: Iterable[Any], kind: type, question: int) -> None:
    """Checks the type of one value for each branch of a question.

    Raises:
        DataError: a value has another type.
    """
    if set(map(type, values)) - {kind}:
        for branch, value in enumerate(values):
            check_type(file, name, value, kind, question, branch)


def check_fields(
    file: object, name: str, item: Any, kinds: Mapping[str, type], question: int | None = None
) -> None:
    """Checks that a value is an object with some fields.

    Raises:
        DataError: the value is not an object, lacks a field, or has a field of another type.
    """
    check_type(file, name, item, dict, question)
    missing = [field for field in kinds if field not in item]
    if missing:
        raise DataError(file, f"{name} has no {', '.join(missing)}; add what is missing", question)
    for field, kind in kinds.items():
        if kind is not object:
            check_type(file, field, item[field], kind, question)
