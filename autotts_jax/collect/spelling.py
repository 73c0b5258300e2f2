r"""Spellings: what an answer is compared and parsed by.

A spelling leaves out what surrounds an answer, and writes out what math-verify would misread.
"""

from __future__ import annotations

import re
import unicodedata

from autotts_jax.collect.answers import MAX_LENGTH
from autotts_jax.replay.equivalence import ERROR

_WORDS = re.compile(r"(?=.*[^\W\d_]{4})[^\W\d_](?:[^\W\d_]|[ ,.'’-])*")
_INTEGER = re.compile(r"-?[0-9]{1,100}")
_GROUPED_INTEGER = re.compile(r"[-+]?[0-9]{1,3}(?:(?:,|\{,\}|,\\!|\\,|\\ | )[0-9]{3})*|[-+]?[0-9]{1,100}")
_WRAPPER = re.compile(
    r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|mbox|boxed)\s?\{([^{}]*)\}"
    r"|\\\((.*)\\\)|\\\[(.*)\\\]|\$+([^$]*)\$*|(.*[^.\\])(?:\.|\\\\)"
)
_UNICODE = str.maketrans(
    {
        "−": "-",
        "–": "-",
        "×": r"\times ",
        "·": r"\cdot ",
        "÷": r"\div ",
        "°": r"^\circ ",
        "∞": r"\infty ",
        "∪": r"\cup ",
        "≤": r"\le ",
        "≥": r"\ge ",
        "≠": r"\ne ",
        "±": r"\pm ",
        **dict.fromkeys("€£¥₹"),
        **{chr(c): chr(c - 0xFEE0) for c in range(0xFF01, 0xFF5F)},  # full width
    }
)


def spelling(answer: str) -> str:
    r"""Spells an answer for comparison.

    The spelling leaves out what surrounds the answer (``$``, ``\text{}``, a full stop), and writes out what
    math-verify would misread: 1e5, 1 1/2, 1 000, and symbols of Unicode.

    Args:
        answer: an answer, as a text gives it.

    Returns:
        Its spelling, "" for ``ERR`` and the empty answer.
    """
    text = " ".join(answer.translate(_UNICODE).split())
    if len(text) > MAX_LENGTH:
        return text
    while match := _WRAPPER.fullmatch(text):
        text = match[match.lastindex or 0].strip()
    if text == ERROR:
        return ""
    if _WORDS.fullmatch(text):
        return text.casefold()
    if _GROUPED_INTEGER.fullmatch(text):
        return str(int(re.sub(r"[^-0-9]", "", text)))
    text = re.sub("[¼-¾⅐-⅞]", lambda match: _fraction(match[0]), text)
    text = re.sub("[⁰¹²³⁴-⁹]+", lambda match: f"^{{{_plain(match[0])}}}", text)
    text = re.sub(r"√ ?(?:\(([^()]*)\)|([0-9.]+|[A-Za-z]))", r"\\sqrt{\1\2}", text)
    text = re.sub(r"^(-?[0-9]+) ([0-9]+)/([0-9]+)$", r"\1\\frac{\2}{\3}", text)
    text = re.sub(r"(?<![0-9.])[0-9]{1,3}(?:(?:\\,|\\ | )[0-9]{3})+(?![0-9])", _ungrouped, text)
    return re.sub(
        r"(?<![A-Za-z0-9\\.])([0-9]+\.?[0-9]*|\.[0-9]+)[eE]\+?(-?[0-9]+)(?![A-Za-z0-9.])",
        r"\1 \\cdot 10^{\2}",
        text,
    )


def is_text(spelled: str) -> bool:
    """Tells whether a spelling is text rather than mathematics.

    Text is empty, too long, or words of which one has four letters or more. math-verify would take words for
    products of letters, so that "silent" equals "listen".

    Args:
        spelled: what `spelling` returns.

    Returns:
        Whether it is text.
    """
    return spelled == "" or len(spelled) > MAX_LENGTH or _WORDS.fullmatch(spelled) is not None


def is_integer(spelled: str) -> bool:
    """Tells whether a spelling is an integer of at most 100 digits; equal integers have equal spellings.

    Args:
        spelled: what `spelling` returns.

    Returns:
        Whether it is an integer.
    """
    return _INTEGER.fullmatch(spelled) is not None


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text)


def _fraction(sign: str) -> str:
    above, below = _plain(sign).split("⁄")
    return rf"\frac{{{above}}}{{{below}}}"


def _ungrouped(match: re.Match[str]) -> str:
    return re.sub("[^0-9]", "", match[0])
