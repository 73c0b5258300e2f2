"""Text as terminals and logs may show it: names, questions, answers and errors may come from others."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.style import Style
    from rich.text import Text

QUOTED = 300
"""Characters that a message quotes of what comes from outside."""

LONGEST_LINE = 4000
"""Characters of a line of a message."""

_ESCAPED = {
    code: f"\\u{code:04x}"
    for codes in (
        (*range(0x09), *range(0x0A, 0x20), *range(0x7F, 0xA0)),  # controls, but tab
        (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)),  # line ends, directions
        range(0xD800, 0xE000),  # halves of surrogate pairs, and bytes of file names that are not UTF-8
    )
    for code in codes
}
_BUT_LINES = {code: shown for code, shown in _ESCAPED.items() if code != ord("\n")}


def printable(text: object, lines: bool = False) -> str:
    r"""Shows what would control a terminal, or reorder what it shows, as an escape like ``\u001b``.

    Returns:
        The text, its tabs as they are. JSON without line feeds means the same as before.
    """
    return str(text).translate(_BUT_LINES if lines else _ESCAPED)


def counted(number: int, one: str, many: str) -> str:
    """Writes a number of things, as in 1 branch and 2 branches.

    Returns:
        The number and what they are called.
    """
    return f"{number:,} {one if number == 1 else many}"


def counted_branches(number: int) -> str:
    """Writes a number of branches."""
    return counted(number, "branch", "branches")


def quoted(text: object, most: int = QUOTED) -> str:
    """Shortens what comes from outside, to be a part of a message.

    Returns:
        Its words on one line. Of more than ``most`` characters the beginning and the end are left.
    """
    line = " ".join(str(text).split())
    half = (most - 1) // 2
    return line if len(line) <= most else f"{line[: most - 1 - half]}…{line[-half:]}"


def brief(value: Any) -> str:
    """Shows a dataclass with the dtypes and shapes of its arrays in place of their numbers."""
    fields = [f"{field.name}={_brief(getattr(value, field.name))}" for field in dataclasses.fields(value)]
    return f"{type(value).__name__}({', '.join(fields)})"


def _brief(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_brief(entry)}" for key, entry in value.items()) + "}"
    shape = getattr(value, "shape", ())
    return f"{value.dtype}[{','.join(map(str, shape))}]" if shape else repr(value)


def styled(text: object, style: str | Style = "", lines: bool = False) -> Text:
    """Makes text for Rich that is shown as it is, even where it looks like Rich's markup."""
    from rich.text import Text

    return Text(printable(text, lines), style=style)
