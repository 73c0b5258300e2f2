"""API keys of servers: which can be sent, and texts without them."""

from __future__ import annotations

from autotts_jax.errors import InputError

SECRET = 8
"""Characters of the shortest key that is one; shorter ones, as ``none``, are for servers that want no key."""


def checked_key(key: str, name: str) -> str:
    """Checks that a key can be sent.

    Args:
        key: the key; may be empty.
        name: what it is called, for the message.

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

    Args:
        text: the text.
        key: the key.

    Returns:
        The text with ``[key]`` in the place of the key.
    """
    return text.replace(key, "[key]") if len(key) >= SECRET else text
