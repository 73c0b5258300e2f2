"""The command line and options as they are written down: without secrets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from autotts_jax.keys import all_hidden, keys_in_use
from autotts_jax.parsing import parse_json

HIDDEN = "[hidden]"
"""What stands in the place of a secret."""

_SECRET = re.compile(r"key$|secret|passw|credential|auth(?!or(?!i))", re.IGNORECASE)
_PERHAPS = re.compile(r"key|token(?!i[sz])", re.IGNORECASE)
_NUMBERS = re.compile(r"(?!.*\d{10})[-+.,\d\s\[\]]*|true|false|null")
_OPTION = re.compile(r"--?[\w.-]+")
_ASSIGNED = re.compile(r"(-{0,2})([\w.-]+)=(.*)", re.DOTALL)
# Nothing tells where a password ends but the last @.
_USER = re.compile(r"(?<=://).*@", re.DOTALL)
# Of file.py:Name@0.5, which is not an address, a number follows.
_USER_ALONE = re.compile(r"[^\s/:@]+:(?!//).*@(?=[A-Za-z\[]|\d+\.\d+\.\d+\.)", re.DOTALL)
_QUERY = re.compile(r"(://[^?#]*[?#]|^[^\s?#]+[?#](?=\S*=)).+", re.DOTALL)
_BEARER = re.compile(r"\b(bearer)\s+\S+", re.IGNORECASE)


def without_secrets(command: Iterable[str]) -> list[str]:
    """Leaves the secrets out of a command that is stored or shown.

    Returns:
        The words, with `HIDDEN` in the place of each secret as `hide` finds them, ``[key]`` wherever else
        there is a key that is known, and ? in the place of what is not UTF-8.
    """
    words = [word.encode(errors="replace").decode() for word in command]
    keys = [key for key in keys_in_use(words) if key != HIDDEN]
    return [all_hidden(word, keys) for word in hide(words)]


def hide(value: Any, name: str = "") -> Any:
    """Leaves the secrets out of a JSON value that is stored or shown.

    Secret are values whose names have a word like key, token, password or auth in them, but not the numbers
    under a name like max_tokens; and of an address what stands before its last @ and after its question mark.
    In a list, an option names the value that follows it.

    Returns:
        The value, with `HIDDEN` in the place of each secret.
    """
    if _is_secret(name, value):
        return HIDDEN
    if isinstance(value, dict):
        return {key: hide(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        names = ["", *(word if isinstance(word, str) and _OPTION.fullmatch(word) else "" for word in value)]
        return [hide(inner, name) for inner, name in zip(value, names, strict=False)]
    if not isinstance(value, str):
        return value
    if assigned := _ASSIGNED.fullmatch(value):
        dashes, name, given = assigned.groups()
        return f"{dashes}{name}={_hide_given(given, name)}"
    named = _USER_ALONE.sub(f"{HIDDEN}@", _USER.sub(f"{HIDDEN}@", value), count=1)
    return _BEARER.sub(rf"\1 {HIDDEN}", _QUERY.sub(rf"\1{HIDDEN}", named))


def _hide_given(text: str, name: str) -> str:
    """The text of a value, which may be JSON, without the secrets in it."""
    try:
        value = parse_json(text)
    except ValueError:
        braces_hold_secret = "{" in text and (_SECRET.search(text) or _PERHAPS.search(text))
        return HIDDEN if braces_hold_secret else str(hide(text, name))
    public = hide(value, name)
    if public == value:
        return text
    return public if isinstance(public, str) else json.dumps(public, ensure_ascii=False)


def _is_secret(name: str, value: Any) -> bool:
    if _SECRET.search(name):
        return True
    text = value if isinstance(value, str) else json.dumps(value)
    return _PERHAPS.search(name) is not None and _NUMBERS.fullmatch(text) is None
