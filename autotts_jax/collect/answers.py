r"""Extractors: how the answer is found in a text.

| specification | what it finds |
|---|---|
| ``auto`` | ``<answer>`` tags; else the box; else what follows ``####`` or "answer is"; or the last number |
| ``boxed`` | what the last complete ``\boxed{...}`` or ``\fbox{...}`` holds |
| ``number`` | the last plain number: 1,234.5, -3, 2/3, 1 1/2, 50%, 6.02e23, and simple LaTeX for them |
| ``choice`` | the last choice letter, A to J: ``(B)``, ``Answer: C``, ``**D**`` |
| ``code`` | the last block of code between lines that begin with three backticks |
| ``regex:PATTERN`` | the last match of a regular expression, its first group if it has one |
| ``module.name:function``, ``path/to/file.py:function`` | what a function of the text returns |

The first five take time linear in the text's length.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections import deque
from collections.abc import Callable

from autotts_jax.errors import InputError
from autotts_jax.extras import needs
from autotts_jax.files import read_bytes
from autotts_jax.replay.spelling import ERROR, MAX_LENGTH, ROW
from autotts_jax.user_code import find_code, last_lines, load_object

Extractor = Callable[[str], str | None]
"""A function from the text of a branch to its answer, or None."""

CODE = "code"
"""The extractor of code."""

MAX_CODE = 20_000
"""Most characters of code that is an answer."""

FENCE = "```"
"""What the lines around a block of code begin with."""

_REGEX_SECONDS = 1.0

_BOX_OR_BRACE = re.compile(
    r"""
    (?P<box> \\{1,2}(?:boxed|fbox)(?![A-Za-z]) \s*
        (?: \{ | (?P<bare>[-+−]?[0-9][^\s{}$\\]* | [A-Za-z](?![A-Za-z])) )? )
    | \\. | (?P<open>\{) | (?P<close>\})
    """,
    re.VERBOSE | re.DOTALL,
)

# A minus is a sign unless it stands after what it could be subtracted from.
_SIGN = r"(?P<sign>(?<![0-9A-Za-z)\]}])[-−]\\?[$€£¥]?)?"
# Digits alone, or in groups of three as 1,234 or, in LaTeX, 1{,}234 and 1\,234 and 1,\!234.
_DIGITS = r"(?:(?!0)[0-9]{1,3}(?:(?:,(?:\\!)?|\{,\}|\\,)[0-9]{3})+(?![0-9])|[0-9]+)"
_NUMBER = re.compile(
    rf"""
    (?=[-−0-9.\\]) {_SIGN}
    (?:
        (?: (?<![A-Za-z0-9_.]) (?P<whole>[0-9]+) [ ]? )?+
        \\[dt]?frac \s?\{{ (?P<above>[-−]?[0-9]+) \}} \s?\{{ (?P<below>[0-9]+) \}}
      |
        (?<![A-Za-z0-9_.]) (?P<units>[0-9]+) [ ] (?P<half>[0-9]+/[0-9]+)
      |
        (?: (?<![A-Za-z0-9_]) (?P<integer>{_DIGITS}) (?:\.(?P<decimals>[0-9]+))?
          | (?<![A-Za-z0-9_]) \.(?P<only_decimals>[0-9]+) )
        (?: [eE](?P<exponent>[-+−]?[0-9]+)
          | [ ]?(?:\\times|\\cdot|[×*x])[ ]?10\^(?:(?P<power>[-−]?[0-9]+)|\{{(?P<braced>[-−]?[0-9]+)\}})
          | [ ]?/[ ]?(?P<divisor>[0-9]+) )?
        (?P<percent>[ ]?\\?%)?
    )
    """,
    re.VERBOSE,
)

# Letters of words, of names such as x_A, and of I'm and A-level are none.
_BEFORE, _AFTER = r"(?<![A-Za-z0-9_])", r"(?!['’_-]?[A-Za-z0-9])"
_MARKED_CHOICE = re.compile(
    rf"""
    (?: [(\[{{] | \*\* ) \s? {_BEFORE} (?P<enclosed>[A-J]) {_AFTER} (?= \s?[)\]}}.:] | \*\*)
    | (?i:answer|option|choice) (?:\s(?i:is))? (?:\s?[:=])? \W{{0,4}} {_BEFORE}
      (?P<named>[A-HJ]|I(?!\s+[a-z])) {_AFTER}
    """,
    re.VERBOSE,
)
# A is an article, and I a pronoun, where a lower-case word or a number follows, other than "is", "or", "and".
_PLAIN_CHOICE = re.compile(rf"{_BEFORE}(?:[B-HJ]|[AI](?!\s+(?!(?:is|or|and)\b)[a-z0-9])){_AFTER}")
_ONLY_CHOICE = re.compile(r"\W*([A-Ja-j])\W*")
_LISTED_A, _LISTED_B = (re.compile(rf"(?:^|\s)[(\[]?{letter}[)\].:]\s") for letter in "AB")

_HASHES = re.compile(r"####[ \t]*(?=\S)")
_SAYINGS = (
    *(
        ("answer", "is"),
        ("réponse", "est"),
        ("antwort", "ist|lautet"),
        ("respuesta", "es"),
        ("resposta", "é"),
    ),
    *(
        ("risposta", "è"),
        ("antwoord", "is"),
        ("odpowiedź", "to|jest"),
        ("odpověď", "je"),
        ("svar(?:et)?", "är|er"),
    ),
    *(
        ("ответ", "это|равен"),
        ("відповідь", "це"),
        ("απάντηση", "είναι"),
        ("cevap|yanıt", "şudur"),
        ("vastaus", "on"),
    ),
    *(
        ("đáp án|câu trả lời", "là"),
        ("jawaban(?:nya)?", "adalah"),
        ("الإجابة|الجواب", "هي|هو"),
        ("उत्तर", "है"),
    ),
)
"""The word for an answer and the verb behind it, in languages that separate words."""
_FINAL = r"(?:\s+(?:fin|corr|right|richt|defin|ostat)[^\W\d_]*)?"
_STATED = re.compile(
    "(?i:"
    + "|".join(
        rf"(?<![^\W\d_])(?:{noun}){_FINAL}(?:\s+(?:{verb})(?![^\W\d_])\s?[:：]?|\s?[:：=])"
        for noun, verb in _SAYINGS
    )
    + r"|(?:答案|答え|正解|정답|답)\s?(?:[是为為はがは은는이]\s?[:：]?|[:：=]))[\s*_]*(?=\S)"
)
_TAG = re.compile("<(?P<end>/)?answer>", re.IGNORECASE)
_LETTERED = re.compile(
    r"(?:\\(?:text|mathrm|mathbf|textbf) ?\{|[\s*$(\[])*(?P<letter>[A-J])"
    r"(?:[)\]}\s*$.]*|\s?[)\].:}][\s)\]}*:.]*\S.*)",
    re.DOTALL,
)
"""A choice by its letter, with or without its text."""
_SENTENCE = re.compile(r"(?:[^.!?;\n。！？；]|[.!?;](?=\S))*")
_MATHEMATICS = re.compile(r"\$((?:\\.|[^$\\\n])+)\$|\\\(([^\n]+?)\\\)|\\\[([^\n]+?)\\\]")
_STATED_CHOICE = re.compile(
    r"(?:option|choice)?\s*[(\[]?(?:[B-HJ]|[AI](?!\s+[a-z]))(?:[)\]]|(?![A-Za-z0-9_'^+*/=-]))"
)
# Terms hold no spaces, and after the last one no word goes on: 3\sqrt{2}, 2x + 3; (2, 3), x > 1 and x < 2.
_TERM = (
    r"(?:(?>[0-9]*\.?[0-9]+(?:\.[0-9]+)*)|\\[A-Za-z]++\ ?|(?![aAI](?:\s|$))[A-Za-z](?![A-Za-z])"
    r"|[-+−√π∞()\[\]{}|!^_%°'])++"
)
_JOINT, _LISTED = r"[-+−*/×÷±=<>≤≥≠^]", r"[,;:]|\b(?:and|or)\b"
_EXPRESSION, _FORMULAS = (
    re.compile(rf"{_TERM}(?:\s*(?:{joint})\s*{_TERM})*(?![A-Za-z0-9])")
    for joint in (_JOINT, f"{_JOINT}|{_LISTED}")
)
_UNIT_LETTER = re.compile("(?<=[0-9])[CFJKLNVWghlms]$")
"""What stands for a unit rather than a factor behind a number that is stated to be the answer: 5m."""
_MAX_WORDS = 3
"""Words that a stated answer without a number may have."""


def extract(text: str, extractor: Extractor) -> str:
    """Extracts the answer of a text.

    Args:
        text: the text.
        extractor: how the answer is found.

    Returns:
        The answer on one line, or `ERROR` if there is none of at most `MAX_LENGTH` characters. Code keeps its
        lines, and has at most `MAX_CODE` characters.

    Raises:
        InputError: the extractor failed, or returned something other than a string or None.
    """
    try:
        found = extractor(text)
    except (Exception, SystemExit) as error:
        raise InputError(f"the extractor failed on a text:\n{last_lines(error)}") from error
    if not isinstance(found, str | None):
        raise InputError(f"an extractor returns a string or None, but this one returned {found!r}")
    if extractor is _code:
        return found if found and len(found) <= MAX_CODE else ERROR
    answer = " ".join((found or "").split())
    return answer if 0 < len(answer) <= MAX_LENGTH else ERROR


def extractor(spec: str | Extractor, question: str = "") -> Extractor:
    """Makes the extractor of a specification; the table at the top of this module lists them.

    Args:
        spec: the specification, or a function, which is returned as it is.
        question: the question; if it lists choices, ``auto`` looks for one.

    Returns:
        The extractor.

    Raises:
        InputError: there is no such extractor, its pattern is wrong, or it cannot be imported.
    """
    if callable(spec):
        return spec
    if not isinstance(spec, str):
        raise InputError(f"answers is {spec!r:.60}, but it must be a rule's name or a function")
    if spec == "auto" and (first := _LISTED_A.search(question)) and _LISTED_B.search(question, first.end()):
        return _choice_found
    if spec in _BY_NAME:
        return _BY_NAME[spec]
    if spec.startswith("regex:"):
        return _by_pattern(spec.removeprefix("regex:"))
    if ":" in spec:
        return _by_path(spec)
    raise InputError(
        f"extractor {spec!r}: there is no extractor of this name; give one of {', '.join(_BY_NAME)}, "
        "regex:PATTERN, module.name:function or path/to/file.py:function"
    )


def source_sha256(spec: str) -> str | None:
    """Hashes the file of the code that a specification names, of which nothing is run.

    Args:
        spec: the specification, as for `extractor`.

    Returns:
        The SHA-256 of the file, which may be that of a module; None if the specification names none.

    Raises:
        InputError: the file is missing or no text.
    """
    if ":" not in spec or spec.startswith("regex:"):
        return None
    file = find_code(spec, "function").file()
    return None if file is None else hashlib.sha256(read_bytes(file)).hexdigest()


def _boxed(text: str) -> str | None:
    """The content of the last closed, non-empty box; of nested boxes the inner one is the last."""
    last, found = -1, None
    opened: list[int | None] = []  # open braces: where a box's content begins, None for other braces
    for match in _BOX_OR_BRACE.finditer(text):
        kind = match.lastgroup
        if kind == "open":
            opened.append(None)
        elif kind == "close" and opened:
            start = opened.pop()
            if start is not None and start > last:
                last, found = start, text[start : match.start()].strip() or found
        elif kind == "box":
            if match["bare"]:
                last, found = match.start("bare"), match["bare"].rstrip(".,;:")
            elif match[0].endswith("{"):
                opened.append(match.end())
    return found


def _number(text: str) -> str | None:
    # The last number is usually near the end, where searching costs less.
    for begin in (max(0, len(text) - 10 * MAX_LENGTH), 0):
        last = deque(_NUMBER.finditer(text, begin), maxlen=1)
        if last:
            return _spelled(last[0])
    return None


def _spelled(match: re.Match[str]) -> str:
    """A number without the signs that surround or group its digits."""
    number = "-" if match["sign"] else ""
    if match["above"]:
        whole = f"{match['whole']} " if match["whole"] else ""
        number += f"{whole}{match['above']}/{match['below']}"
    elif match["units"]:
        number += f"{match['units']} {match['half']}"
    else:
        number += re.sub("[^0-9]", "", match["integer"] or "")
        decimals = match["decimals"] or match["only_decimals"]
        exponent = match["exponent"] or match["power"] or match["braced"]
        number += f".{decimals}" if decimals else ""
        number += f"e{exponent}" if exponent else ""
        number += f"/{match['divisor']}" if match["divisor"] else ""
        number += "%" if match["percent"] else ""
    return number.replace("−", "-").removeprefix("--")


def _choice(text: str) -> str | None:
    """The last letter that is marked as a choice, or else the last that stands alone."""
    only = _ONLY_CHOICE.fullmatch(text)
    if only:
        return only[1].upper()
    marked = [match["enclosed"] or match["named"] for match in _MARKED_CHOICE.finditer(text)]
    return (marked or _PLAIN_CHOICE.findall(text) or [None])[-1]


def _code(text: str) -> str | None:
    """The last block that is closed, or else the one that is not."""
    last: list[str] = []
    begun: list[str] | None = None
    for line in text.splitlines():
        if not line.lstrip().startswith(FENCE):
            if begun is not None:
                begun.append(line)
        elif begun is None:
            begun = []
        else:
            last, begun = begun, None
    return "\n".join(last or begun or []).strip("\n") or None


def _found(text: str) -> str | None:
    if tagged := _tagged(text):
        return _boxed(tagged) or _stated(tagged) or tagged
    return _boxed(text) or _stated(text) or _number(text)


def _choice_found(text: str) -> str | None:
    text = _tagged(text) or text
    boxed, stated = _boxed(text), _stated(text)
    for found in (boxed, stated):
        if found and (choice := _LETTERED.fullmatch(found)):
            return choice["letter"]
    return boxed or stated or _choice(text) or _number(text)


def _tagged(text: str) -> str | None:
    """What stands in the last pair of ``<answer>`` tags that is not empty."""
    last = begin = None
    for tag in _TAG.finditer(text):
        if tag["end"] and begin is not None:
            last = text[begin : tag.start()].strip() or last
        begin = None if tag["end"] else tag.end()
    return last


def _stated(text: str) -> str | None:
    """What the text says to be its answer, after the last ``####`` or the last "answer is"."""
    for statement in (_HASHES, _STATED):
        last = deque(statement.finditer(text), maxlen=1)
        if last and (found := _said(text[last[0].end() :][: 10 * MAX_LENGTH])):
            return found
    return None


def _said(text: str) -> str | None:
    """The answer that a sentence begins with: a choice, mathematics, a row, a number or a few words."""
    if choice := _STATED_CHOICE.match(text):
        return choice[0].strip()
    if mathematics := _MATHEMATICS.match(text):
        return mathematics[mathematics.lastindex or 0].strip()
    sentence = _SENTENCE.match(text)
    said = sentence[0].strip(" *_`") if sentence else ""
    if ROW.fullmatch(row := " ".join(said.split())):
        return row
    number = _NUMBER.search(said.rpartition("=")[2])
    if formula := _formula(said):
        return formula
    if number is None:
        return said if 0 < len(said.split()) <= _MAX_WORDS else None
    return _spelled(number)


def _formula(said: str) -> str | None:
    """The mathematics that a sentence begins with; None where that is a number, or nothing."""
    short = len(said.split()) <= _MAX_WORDS
    found = _FORMULAS.match(said)
    if found and said[0] not in "([{\\" and found.end() < len(said) and not short:
        found = _EXPRESSION.match(said)  # 12, 5 more than 7
    if found is None or any(
        found[0].count(left) != found[0].count(right) for left, right in ("()", "[]", "{}")
    ):
        return None
    formula = found[0].strip()
    value = formula if re.search(_LISTED, formula) else formula.rpartition("=")[2].strip()
    if _NUMBER.fullmatch(_UNIT_LETTER.sub("", value)):
        return None
    return said if short else formula


_BY_NAME: dict[str, Extractor] = {
    "auto": _found,
    "boxed": _boxed,
    "number": _number,
    "choice": _choice,
    CODE: _code,
}


def _by_pattern(pattern: str) -> Extractor:
    with needs("collecting", "an extractor regex:PATTERN"):
        import regex
    try:
        compiled = regex.compile(pattern)
    except regex.error as error:
        raise InputError(f"extractor 'regex:{pattern}': {error}") from error
    group = min(compiled.groups, 1)

    def last_match(text: str) -> str | None:
        found = None
        try:
            for match in compiled.finditer(text, timeout=_REGEX_SECONDS):
                found = match[group] or found
        except TimeoutError:
            logging.getLogger(__name__).warning(
                "regex:%s took longer than %g s on a text of %d characters, which gives no answer",
                pattern,
                _REGEX_SECONDS,
                len(text),
            )
            return None
        return found

    return last_match


def _by_path(path: str) -> Extractor:
    found = load_object(path, "function")
    if not callable(found):
        raise InputError(f"function {path!r}: it is {found!r}; name a function of a text")
    return found
