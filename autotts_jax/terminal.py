"""Text as terminals and logs may show it: names, questions, answers and errors may come from others."""

from __future__ import annotations

from rich.style import Style
from rich.text import Text

_ESCAPED = {
    code: f"\\u{code:04x}"
    for codes in (
        (*range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0)),  # controls, but tab and line feed
        (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)),  # line ends, directions
        range(0xD800, 0xE000),  # halves of surrogate pairs, and bytes of file names that are not UTF-8
    )
    for code in codes
}


def printable(text: object) -> str:
    r"""Shows what would control a terminal, or reorder what it shows, as an escape like ``\u001b``.

    Args:
        text: the text, or what is to be shown as one.

    Returns:
        The text, its tabs and line feeds as they are. JSON means the same as before.
    """
    return str(text).translate(_ESCAPED)


def styled(text: object, style: str | Style = "") -> Text:
    """Makes text for Rich that is shown as it is, even where it looks like Rich's markup.

    Args:
        text: the text.
        style: its style.
    """
    return Text(printable(text), style=style)
