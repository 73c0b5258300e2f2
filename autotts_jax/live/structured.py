"""Replies in JSON of a schema that a client gives: a controller votes on one field."""

from __future__ import annotations

import contextlib
import dataclasses
import fractions
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from autotts_jax.errors import InputError
from autotts_jax.terminal import quoted

try:
    import jsonschema
except ImportError as error:
    raise InputError("serving needs jsonschema: pip install 'autotts-jax[serve]'") from error

FIELD = "answer"
"""The field that holds the answer, where a schema has several and the client does not name one."""

MOST_VALUES = 2_000
"""Values that a schema may consist of, because other clients wait while it is checked."""

_MOST_STEPS = 10_000
"""Keywords that may be compared with a reply: references can make a few of them many."""


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

        Returns:
            The JSON; None where the answer is none that the schema allows.
        """
        if answer is None:
            return None
        validator = _validator(self.schema)
        for value in _readings(answer):
            reply = {**dict.fromkeys(self.others, text), self.field: value}
            ordered = {name: reply[name] for name in self.schema["properties"] if name in reply}
            with contextlib.suppress(InputError):
                if _is_valid(validator, ordered):
                    return json.dumps(ordered, ensure_ascii=False)
        return None


def read_form(response_format: Mapping[str, Any], field: str | None) -> JsonForm:
    """Reads what a client says of the form of its reply.

    Returns:
        The form.

    Raises:
        InputError: no answer of a controller can have this form.
    """
    given = response_format.get("json_schema")
    schema = given.get("schema") if isinstance(given, Mapping) else None
    if response_format.get("type") != "json_schema" or not isinstance(schema, Mapping):
        raise InputError("with a controller, the type is to be json_schema, and there is to be a schema")
    values = list(itertools.islice(_values(schema), MOST_VALUES + 1))
    if len(values) > MOST_VALUES:
        raise InputError(f"the schema has more than {MOST_VALUES:,} values; make it smaller")
    objects = [value for value in values if isinstance(value, Mapping)]
    if any(isinstance(found.get("pattern"), str) or "patternProperties" in found for found in objects):
        # Some take years to compare with a few letters, and nobody else is served meanwhile.
        raise InputError("the schema has patterns, which are not supported; leave them out")
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise InputError(f"the schema is none: {quoted(error.message)}") from None
    places = [found.get(name) for found in objects for name in ("$ref", "$dynamicRef")]
    if any(isinstance(place, str) and not place.startswith("#") for place in places):
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
    validator = _validator(schema)
    for name in others:
        if not _is_valid(validator.evolve(schema=properties.get(name, {})), "some text"):
            raise InputError(
                f"with a controller, the property {name!r:.60} has to take text: the vote is on {field!r:.60}"
            )
    _is_valid(validator, dict.fromkeys((*others, field), "some text"))  # raises if it takes too long
    return JsonForm(schema, field, others)


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


def _validator(schema: Mapping[str, Any]) -> Any:
    """A validator that gives up after so many steps, in all that it is asked."""
    steps = itertools.count(1)

    def limited(check: Callable[..., Any]) -> Callable[..., Any]:
        def step(*given: Any) -> Any:
            if next(steps) > _MOST_STEPS:
                raise InputError(f"the schema takes more than {_MOST_STEPS:,} steps to check; simplify it")
            return check(*given)

        return step

    draft = jsonschema.Draft202012Validator
    checks = {keyword: limited(check) for keyword, check in draft.VALIDATORS.items()}
    return jsonschema.validators.extend(draft, checks)(schema)


def _is_valid(validator: Any, value: Any) -> bool:
    try:
        return bool(validator.is_valid(value))
    except InputError:
        raise
    except Exception as error:  # a part that it refers to is missing, or itself, or a number is too large
        raise InputError(f"the schema cannot be followed: {quoted(error)}") from None


def _values(value: Any) -> Iterator[Any]:
    """The values that a schema consists of, itself among them."""
    yield value
    if isinstance(value, Mapping | list):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _values(part)
