"""The command line as it is written down: without secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable

HIDDEN = "[hidden]"
"""What stands in the place of a secret."""

_NAME = r"[\w.-]*(?:key|token|secret|password|passwd|credentials?)"
_OPTION = re.compile(f"--?{_NAME}", re.IGNORECASE)
_ASSIGNED = re.compile(f"({_NAME})=.*", re.IGNORECASE | re.DOTALL)
_USER = re.compile(r"(?<=://)[^/@\s]+(?=@)")


def is_secret(name: str) -> bool:
    """Tells whether an option holds a secret.

    Args:
        name: its name, without dashes.

    Returns:
        Whether it ends in a word like key, token or password.
    """
    return re.fullmatch(_NAME, name, re.IGNORECASE) is not None


def without_secrets(command: Iterable[str]) -> list[str]:
    """Leaves the secrets out of a command that is stored or shown.

    Secret are the values of options and arguments whose names end in a word like key, token or password, and
    what stands before the @ of an address.

    Args:
        command: the words of the command.

    Returns:
        The words, with `HIDDEN` in the place of each secret, and ? in that of what is not UTF-8.
    """
    kept: list[str] = []
    for word in (word.encode(errors="replace").decode() for word in command):
        if kept and _OPTION.fullmatch(kept[-1]):
            kept.append(HIDDEN)
        else:
            kept.append(_USER.sub(HIDDEN, _ASSIGNED.sub(rf"\1={HIDDEN}", word)))
    return kept
