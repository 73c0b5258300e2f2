"""Replies in JSON of a schema that a client gives: a controller votes on one field."""

from __future__ import annotations

import dataclasses
import fractions
import json
from collections.abc import Mapping
from typing import Any

from autotts_jax.errors import InputError
from autotts_jax.terminal import quoted

try:
    import jsonschema
except ImportError as error:
    raise InputError("serving needs jsonschema: pip install 'autotts-jax[serve]'") from error

FIELD = "answer"
"""The field that holds the answer, where a schema has several and the client does not name one."""


@dataclasses.dataclass(frozen=True)
class JsonForm:
    """JSON that a reply consists of.

    Attributes:
        schema: what it is valid against.
        field: the field with the answer.
        others: the other fields that the schema requires; the text of the branch stands in each.
    """

    schema: Mapping[str, Any]
    field: str
    others: tuple[str, ...]

    def write(self, answer: str | None, text: str) -> str | None:
        """Writes the reply.

        Args:
            answer: the answer, None where none was found.
            text: the text of a branch that gives it.

        Returns:
            The JSON; None where the answer is none that the schema allows.
        """
        if answer is None:
            return None
        for value in _readings(answer):
            reply = {**dict.fromkeys(self.others, text), self.field: value}
            ordered = {name: reply[name] for name in self.schema["properties"] if name in reply}
            if jsonschema.Draft202012Validator(self.schema).is_valid(ordered):
                return json.dumps(ordered, ensure_ascii=False)
        return None


def read_form(response_format: Mapping[str, Any], field: str | None) -> JsonForm:
    """Reads what a client says of the form of its reply.

    Args:
        response_format: as in OpenAI's API, of the type ``json_schema``.
        field: the field with the answer; None for the only one, or else for `FIELD`.

    Returns:
        The form.

    Raises:
        InputError: no answer of a controller can have this form.
    """
    given = response_format.get("json_schema")
    schema = given.get("schema") if isinstance(given, Mapping) else None
    if response_format.get("type") != "json_schema" or not isinstance(schema, Mapping):
        raise InputError("with a controller, the type is to be json_schema, and there is to be a schema")
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise InputError(f"the schema is none: {quoted(error.message)}") from None
    if _refers(schema):
        raise InputError("the schema refers to another document; put all of it into one")
    properties = schema.get("properties")
    if schema.get("type") != "object" or not isinstance(properties, Mapping) or not properties:
        raise InputError("with a controller, the schema is to be an object with properties")
    field = field or (next(iter(properties)) if len(properties) == 1 else FIELD)
    if field not in properties:
        raise InputError(
            f"the schema has no property {field!r:.60} for the answer that is voted on; name one as "
            "autotts.field"
        )
    others = tuple(name for name in schema.get("required", ()) if name != field)
    form = JsonForm(schema, field, others)
    for name in others:
        if not _takes_text(schema, properties.get(name, {})):
            raise InputError(
                f"with a controller, the property {name!r:.60} has to take text: the vote is on {field!r:.60}"
            )
    return form


def _readings(answer: str) -> list[Any]:
    """What an answer may mean in JSON: a number, a truth value, or a text."""
    readings: list[Any] = []
    try:
        number = fractions.Fraction(answer.replace(",", "") if answer.count(",") else answer)
    except (ValueError, ZeroDivisionError):
        pass
    else:
        if number.denominator == 1 and abs(number) < 2**63:
            readings.append(int(number))
        elif abs(number) < 10**300:
            readings.append(float(number))
    if answer.lower() in ("true", "false", "yes", "no"):
        readings.append(answer.lower() in ("true", "yes"))
    return [*readings, answer]


def _takes_text(schema: Mapping[str, Any], of: Any) -> bool:
    validator = jsonschema.Draft202012Validator(schema)
    return not isinstance(of, Mapping) or validator.evolve(schema=of).is_valid("some text")


def _refers(value: Any) -> bool:
    """Whether a schema refers to something outside of itself, which nobody is to fetch."""
    if isinstance(value, Mapping):
        outside = [place for name in ("$ref", "$dynamicRef") if isinstance(place := value.get(name), str)]
        return any(not place.startswith("#") for place in outside) or any(map(_refers, value.values()))
    return isinstance(value, list) and any(map(_refers, value))
