"""JSON to dataclasses, checked by pydantic."""

from __future__ import annotations

import functools
from typing import Any, TypeVar, cast

from autotts_jax.extras import needs
from autotts_jax.parsing import parse_json

T = TypeVar("T")


class SchemaError(Exception):
    """A JSON text is not what it should be; the message names the field and says what is wrong with it."""


def parse_as(kind: type[T], content: bytes, *, closed: bool = True) -> T:
    """Parses JSON into a dataclass and checks the type of every field.

    Args:
        kind: a dataclass, its fields of JSON's types, enums, or dataclasses.
        content: the JSON text, UTF-8.
        closed: whether fields that the dataclass does not have are errors; otherwise they are ignored.

    Returns:
        An instance of ``kind``.

    Raises:
        SchemaError: the content is not JSON, or not of this kind.
        InputError: pydantic is not installed.
    """
    with needs("collecting", "collecting"):
        import pydantic
    try:
        parse_json(content)
    except ValueError as error:
        raise SchemaError(f"not JSON: {error}") from error
    try:
        return _adapter(cast(Any, kind)).validate_json(
            content, strict=True, extra="forbid" if closed else "ignore"
        )
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise SchemaError(f"{field}: {first['msg']}" if field else first["msg"]) from error


@functools.cache
def _adapter(kind: Any) -> Any:
    import pydantic

    return pydantic.TypeAdapter(kind)
