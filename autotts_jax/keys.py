"""API keys of servers: which can be sent, and texts without them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Sequence

from autotts_jax.errors import InputError

SECRET = 8
"""Characters of the shortest key that is one; shorter ones, as ``none``, are for servers that want no key."""

VARIABLES = ("OPENAI_API_KEY", "AUTOTTS_API_KEY", "ANTHROPIC_API_KEY", "HF_TOKEN")
"""Variables of the environment that hold keys."""

_OPTIONS = ("--api-key", "--require-key")


def checked_key(key: str, name: str) -> str:
    """Checks that a key can be sent.

    Returns:
        The key without white space around it.

    Raises:
        InputError: it cannot be sent.
    """
    key = key.strip()
    if not (key.isascii() and key.isprintable()):
        raise InputError(f"{name} holds characters that no key has; set it again")
    return key


def hidden(text: str, key: str) -> str:
    """Takes the key out of a text, in which a server may have repeated it.

    Returns:
        The text with ``[key]`` in the place of the key.
    """
    return text.replace(key, "[key]") if len(key) >= SECRET else text


def keys_in_use(command: Sequence[str]) -> list[str]:
    """Lists the keys that are known: of the options of a command that give one, and of the environment.

    Returns:
        The keys, the longest first.
    """
    given = [os.environ.get(name, "") for name in VARIABLES]
    for word, following in itertools.pairwise([*command, ""]):
        name, equals, value = word.partition("=")
        if name in _OPTIONS:
            given.append(value if equals else following)
    return sorted({key.strip() for key in given}, key=len, reverse=True)


def all_hidden(text: str, keys: Iterable[str]) -> str:
    """Takes several keys out of a text, as `hidden` does one.

    Returns:
        The text with ``[key]`` in the place of each key.
    """
    for key in keys:
        text = hidden(text, key)
    return text
