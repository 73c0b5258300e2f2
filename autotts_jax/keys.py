"""API keys of servers: which can be sent, and texts without them."""

from __future__ import annotations

import base64
import contextlib
import itertools
import os
from collections.abc import Iterable, Sequence
from urllib.parse import unquote, urlsplit

from autotts_jax.errors import InputError

SECRET = 8
"""Characters of the shortest key that is one; shorter ones, as ``none``, are for servers that want no key."""

VARIABLES = ("OPENAI_API_KEY", "AUTOTTS_API_KEY", "ANTHROPIC_API_KEY", "HF_TOKEN")
"""Variables of the environment that hold keys."""

ADDRESS = "OPENAI_BASE_URL"
"""The variable of the environment that holds a server's address."""

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


def password_of(address: str) -> list[str]:
    """Lists the password in a server's address as it may be repeated: as it stands there, and as it is sent.

    Returns:
        The spellings; none where there is no password.
    """
    with contextlib.suppress(ValueError):  # of brackets, as in what is no address
        parts = urlsplit(address)
        if parts.password:
            password = unquote(parts.password)
            sent = base64.b64encode(f"{unquote(parts.username or '')}:{password}".encode(errors="replace"))
            return [parts.password, password, sent.decode()]
    return []


def keys_in_use(command: Sequence[str]) -> set[str]:
    """Lists the known keys and passwords: of a command's options and addresses, and of the environment."""
    given = [os.environ.get(name, "") for name in VARIABLES]
    given += password_of(os.environ.get(ADDRESS, ""))
    for word, following in itertools.pairwise([*command, ""]):
        name, equals, value = word.partition("=")
        given += password_of(value if name.startswith("--") else word)
        if name in _OPTIONS:
            given.append(value if equals else following)
    return {key.strip() for key in given}


def all_hidden(text: str, keys: Iterable[str]) -> str:
    """Takes several keys out of a text, as `hidden` does one.

    Returns:
        The text with ``[key]`` in the place of each key.
    """
    for key in sorted(keys, key=len, reverse=True):  # one may begin another
        text = hidden(text, key)
    return text
