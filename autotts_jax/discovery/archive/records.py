"""What the records of an archive must hold: a run's folder may come from anybody."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

CANDIDATE = "candidate"
"""Kind of the record of a candidate that is a program."""

WRITTEN = "code"
"""Kind of the record of a candidate that is a file."""

MAX_COUNT = 2**63 - 1
"""The largest number that counts something."""

START = "start"
"""Proposer of the candidates that a search begins with."""

Check = Callable[[Any], bool]
"""Whether a value can stand in a field."""


def is_name(value: Any) -> bool:
    """Whether a value is text that a terminal shows as it is."""
    return isinstance(value, str) and value.isprintable()


def is_count(value: Any) -> bool:
    """Whether a value is a whole number from 0 on, and true or false are none."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT


def is_amount(value: Any) -> bool:
    """Whether a value is a finite number from 0 on."""
    return _is_number(value) and 0 <= value <= sys.float_info.max


def _is_number(value: Any) -> bool:
    fits = isinstance(value, float) or (isinstance(value, int) and abs(value) <= sys.float_info.max)
    return fits and not isinstance(value, bool)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _or_null(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _list_of(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _all_named(value: Any) -> bool:
    return isinstance(value, dict) and all(map(is_name, value)) and all(map(_is_number, value.values()))


def _is_metrics(value: Any) -> bool:
    return isinstance(value, dict) and all(
        _is_number(value.get(name)) for name in ("objective", "cost", "width")
    )


def _is_opinion(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and "score" in value
        and _or_null(_is_number)(value["score"])
        and isinstance(value.get("accepts"), bool)
        and is_count(value.get("tokens", 0))
        and _or_null(is_amount)(value.get("dollars"))
    )


def _is_rung(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(is_count, value))


_TRIED: dict[str, Check] = {
    "number": is_count,
    "proposer": is_name,
    "parents": _list_of(is_count),
    "fold": _or_null(is_count),
}

_FIELDS: dict[str, dict[str, Check]] = {
    CANDIDATE: _TRIED | {"program": _is_object, "scores": _list_of(_is_number)},
    WRITTEN: _TRIED
    | {
        "source": _or_null(lambda value: isinstance(value, str)),
        "metrics": _or_null(_is_metrics),
        "feedback": lambda value: isinstance(value, str),
        "tokens": is_count,
        "dollars": _or_null(_is_number),
    },
    "round": {"round": is_count, "cpu_seconds": is_amount},
    "test": {
        "number": is_count,
        **dict.fromkeys(("gain", "low", "level"), _is_number),
        **dict.fromkeys(("falls", "tokens"), _list_of(_is_number)),
        **dict.fromkeys(("matched_tokens", "matched_accuracy"), _list_of(_or_null(_is_number))),
        "promotes": lambda value: isinstance(value, bool),
    },
}

_OPTIONAL: dict[str, Check] = {
    "cost": _is_number,
    "width": _is_number,
    "critic": _is_opinion,
    "objective": _is_number,
    "baselines": _all_named,
    "gains": _list_of(_is_number),
    "tokens_se": _list_of(_is_number),
}

_BEGUN: dict[str, Check] = {
    "version": is_name,
    "data": _list_of(lambda value: isinstance(value, dict) and isinstance(value.get("cell"), str)),
    "seed": is_count,
    "max_branches": is_count,
    "critic": _or_null(is_name),
    "rungs": _list_of(_is_rung),
}


def problem_of_manifest(manifest: Any) -> str | None:
    """Says what is wrong with what a run was begun with; None where it is right."""
    if not isinstance(manifest, dict):
        return "it is not JSON object"
    for name, check in _BEGUN.items():
        if name in manifest and not check(manifest[name]):
            return f"{name} cannot be {manifest[name]!r:.40}"
    judged = manifest.get("critic") is not None
    return "rungs is missing" if judged and not manifest.get("rungs") else None


def problem_of(record: Mapping[str, Any]) -> str | None:
    """Says what is wrong with a record; None of one that is right."""
    kind = record["kind"]
    if not isinstance(kind, str) or kind not in _FIELDS:
        return f"the kind {kind!r:.40} is none of {', '.join(_FIELDS)}"
    given = {name: check for name, check in _OPTIONAL.items() if name in record}
    for name, check in (_FIELDS[kind] | given).items():
        if name not in record:
            return f"{name} is missing"
        if not check(record[name]):
            return f"{name} cannot be {record[name]!r:.40}"
    if kind == CANDIDATE and "cost" in record and ("width" not in record or not record["scores"]):
        return "a candidate with a cost has a width and scores too"
    if "baselines" in record and "objective" not in record:
        return "a test with baselines has an objective too"
    later = [parent for parent in record.get("parents", ()) if parent >= record["number"]]
    return f"its parent {later[0]} does not come before it" if later else None
