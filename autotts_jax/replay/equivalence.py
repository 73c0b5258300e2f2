r"""Which answers are the same: those that have the same canonical form.

The form of an answer is a text that depends on the answer alone, so that equality is reflexive, symmetric
and transitive. Numbers are exact; mathematics is brought into its form by SymPy;
where nothing can be read, the spelling is the form.

Worker processes import this module, which therefore does not import JAX.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache

from autotts_jax.replay.formulas import OversizeError, formula
from autotts_jax.replay.spelling import (
    ERROR,
    MAX_LENGTH,
    NoAnswerError,
    UnreadableError,
    is_arithmetic,
    number,
    quantity,
    scaled,
    spelling,
    text_form,
    written,
)

NONE = -1
"""The answer id of "no answer": it never votes and is never correct."""

_READINGS = 4
"""Times that a form is read again until it is the form of itself."""


def start_worker() -> None:
    """Prepares a worker process, before it imports SymPy."""
    # CPython's big integers notice signals; GMP's, which SymPy prefers, do not.
    os.environ["SYMPY_GROUND_TYPES"] = "python"
    os.environ["MPMATH_NOGMPY"] = "1"
    for answer in (r"\sqrt{2} + \ln 2", r"\frac{x + 1}{y} = 0", r"\sin^2 x"):  # first ones take much longer
        form(answer)


def simple_form(answer: str, arithmetic: bool = False) -> str | None:
    """Finds the canonical form of an answer that is a number, a word or a choice, as most are.

    It needs neither SymPy nor a process of its own.

    Returns:
        The form, `ERROR` for no answer; None for what `computed_form` has to find.

    Raises:
        UnreadableError: nothing can be read in it.
    """
    text = spelling(answer)
    if not text:
        return ERROR
    if len(text) > MAX_LENGTH:
        raise UnreadableError
    try:
        return _plain(text, arithmetic)
    except NoAnswerError:
        return ERROR


def plain_form(answer: str, arithmetic: bool = False) -> str | None:
    """Finds the form as `simple_form` does, where the spelling is the form of what cannot be read."""
    try:
        return simple_form(answer, arithmetic)
    except UnreadableError:
        return spelled_form(answer)


def spelled_form(answer: str) -> str:
    """Writes an answer in which nothing can be read: its spelling in small letters.

    Returns:
        Its form.
    """
    return spelling(answer).casefold() or ERROR


def form(answer: str, arithmetic: bool = False) -> str | None:
    r"""Finds the canonical form of an answer.

    Sums, differences, products and whole quotients of plain numbers (``7 + 5``, ``9 * 3``, ``112 / 8``) are
    arithmetic that is still to be done, and no answer.

    Returns:
        The form, `ERROR` for no answer; None if nothing can be read in it.
    """
    return computed_form(answer, arithmetic)[0]


def computed_form(answer: str, arithmetic: bool = False) -> tuple[str | None, bool]:
    """Finds the canonical form of an answer, which is the form of itself.

    Returns:
        What `form` returns, and whether a part of it is too large to be computed.
    """
    found, oversize = _read(answer, arithmetic)
    if found is None and (small := spelled_form(answer)) != spelling(answer):
        found, oversize = _read(small, arithmetic)  # small letters may be read where capital ones are not
    if found is None or found == ERROR:
        return found, oversize
    settled = _settled(found)
    return spelled_form(answer) if settled is None else settled, oversize


@lru_cache(maxsize=4096)
def _settled(found: str) -> str | None:
    """The form of itself to which reading a form again and again leads; None if it leads to none."""
    seen = [found]
    for _ in range(_READINGS):
        again, _ = _read(seen[-1], arithmetic=False)
        if again in seen:
            return min(seen[seen.index(again) :])
        if again is None or again == ERROR:
            return None
        seen.append(again)
    return None


def _read(answer: str, arithmetic: bool) -> tuple[str | None, bool]:
    """Reads an answer once."""
    text = spelling(answer)
    if not text:
        return ERROR, False
    if len(text) > MAX_LENGTH:
        return None, False
    reader = _Reader(arithmetic)
    try:
        return reader.read(text), reader.oversize
    except NoAnswerError:
        return ERROR, False
    except (UnreadableError, RecursionError):
        return None, False


# --- structure ------------------------------------------------------------------------------------------

_AND, _OR = r"\band\b|\\(?:land|wedge)(?![A-Za-z])", r"\bor\b|\\(?:lor|vee)(?![A-Za-z])"
_AND_OR = rf"[,;]|{_AND}|{_OR}"
_CUP = r"\\cup(?![A-Za-z])"
_EQUAL = r"(?<![<>!:])=(?!=)"
_IN = r"\\in(?![A-Za-z])"
_RELATION = re.compile(r"(\\(?:leqslant|geqslant|leq?|geq?|lt|gt|neq?)(?![A-Za-z])|<=|>=|!=|<|>)")
_SIGNS = {"\\le": "<=", "\\ge": ">=", "\\ne": "!=", "\\lt": "<", "\\gt": ">"}
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "!=": "!="}
_INTEGERS = r"(?:\\in ?(?:\\math(?:bb|bf) ?\{?)?Z\}?|is an(?:y| arbitrary)? integer)"
_FOR_INTEGERS = re.compile(
    r"(?P<formula>.+?) ?(?:[,;:|]|\\mid(?![A-Za-z]))? ?\(?(?:for|where|with)? ?(?:all|any|each|every|some)? ?"
    rf"(?:(?<![\\A-Za-z0-9])(?P<name>[a-df-hj-z]) ?{_INTEGERS}|integers? (?P<named>[a-df-hj-z]))\)?"
)
_VARIABLE = re.compile(r"(?!(?:\\pi|\\infty|e) ?$)(?:\\[a-z]+|[A-Za-z])(?: ?_ ?(?:\{\w+\}|\w))?")
_BOTH_SIGNS = re.compile(r"\\(?:pm|mp)(?![A-Za-z])")
_BY_TURNS = {"\\pm": "+-", "\\mp": "-+"}
_NAME = re.compile(
    r"\\?[A-Za-z]+(?: ?_ ?(?:\{\w+\}|\w))?'?(?: ?\([\w\s,]+\))?"  # x, x_1, f(x), area
    r"|(?:[A-Za-z]+ )+[A-Za-z]+|\([\w\s,]+\)"  # total cost, (x, y)
)
_LETTER = re.compile(r"(?<![A-Za-z\\])[A-Za-z](?![A-Za-z])")
_COORDINATES = re.compile(r"(?<![A-Za-z\\])[xyz]+(?![A-Za-z])")
_CONGRUENT = re.compile(
    rf"(?:{_VARIABLE.pattern} ?\\equiv ?)?(?P<residue>[^()]+?) ?\(mod (?P<modulus>[^()]+)\)"
)
_REMAINDER = re.compile(r"(-?[0-9]+) ?\\bmod ?\{?([0-9]+)\}?")
_PRODUCT = re.compile(r"[xyz](?: ?(?:\\cdot)? ?[xyz])+")
_MATRIX = re.compile(
    r"(?P<open>\\?[(\[{|.])? ?\\begin ?\{(?P<kind>[a-zA-Z]*matrix\*?|array)\}"
    r"(?: ?\[[lcr]\]| ?\{[lcr| ]*\})?(?P<cells>.*)\\end ?\{(?P=kind)\} ?(?P<close>\\?[)\]}|.])?"
)
_ROWS = re.compile(r"\[ ?\[[^\[\]]*\](?: ?[,;] ?\[[^\[\]]*\])+ ?\]")
_REALS = "(-\\infty, \\infty)"
_NAMED = {"\\mathbb{R}": _REALS, "all real numbers": _REALS, "all reals": _REALS, "empty set": "\\emptyset"}
_NAMED |= dict.fromkeys(("\\emptyset", "no solution", "no solutions"), "\\emptyset")
_NAMED |= {
    "infinity": "\\infty",
    "-infinity": "-\\infty",
    "negative infinity": "-\\infty",
    "dne": "does not exist",
}


def _plain(text: str, arithmetic: bool) -> str | None:
    """The form of what needs no mathematics."""
    if text in _NAMED or text.casefold() in _NAMED:
        return _NAMED.get(text) or _NAMED[text.casefold()]
    if (words := text_form(text)) is not None:  # before numbers: 10:30 is not a ratio
        return words
    if (value := number(text, arithmetic)) is not None:
        return written(value)
    if (value := scaled(text)) is not None:
        return written(value)
    measured, unit = quantity(text)
    if unit and (value := number(measured, arithmetic) or scaled(measured)) is not None:
        return written(value)
    if is_arithmetic(text) and not arithmetic and not _is_structure(text):
        raise NoAnswerError
    return None


def _is_structure(text: str) -> bool:
    """Whether brackets stand around all of a text, which may be more than arithmetic."""
    return text[0] in "([{\\" and not text.startswith("\\frac")


class _Reader:
    """Reads an answer part by part: equations, lists, sets, intervals, tuples, quantities and formulas."""

    def __init__(self, arithmetic: bool):
        self._arithmetic = arithmetic
        self.oversize = False
        """Whether a part of what was read is too large to be computed."""

    def read(self, text: str) -> str:
        text = text.strip()
        if not text:
            raise UnreadableError
        if (found := _plain(text, self._arithmetic)) is not None:
            return found
        if (match := _MATRIX.fullmatch(text)) and "\\begin" not in match["cells"]:
            kind = "v" if match["kind"] == "vmatrix" or match["open"] == match["close"] == "|" else "p"
            return self._matrix([row.split("&") for row in match["cells"].split("\\\\") if row.strip()], kind)
        if _ROWS.fullmatch(text):  # [[1, 2], [3, 4]]
            return self._matrix([_split(row, "[,;]") for row in re.findall(r"\[([^\[\]]*)\]", text)], "p")
        if match := _FOR_INTEGERS.fullmatch(text):
            return self.read(_of_n(match["formula"], match["name"] or match["named"]))
        if match := _CONGRUENT.fullmatch(text):
            return _residues(match["residue"], match["modulus"])
        if match := _REMAINDER.fullmatch(text):
            return _residues(*match.groups()).partition(" ")[0]
        if len(parts := _split(text, _CUP)) > 1:
            return " \\cup ".join(sorted({self.read(part) for part in parts}, key=_order))
        if len(parts := _split(text, _AND_OR)) > 1:
            return self._list([part for part in parts if part.strip()], text)
        if len(parts := _split(text, _EQUAL)) > 1:
            return self._equation([part.strip() for part in parts])
        if len(parts := _split(text, _IN)) > 1:
            return self.read(parts[-1])
        if _RELATION.search(text):
            return _relation(text, self.read)
        if (inner := _inner(text)) is not None:
            return self._brackets(text, inner)
        if _BOTH_SIGNS.search(text):
            return self._both_signs(text)
        measured, unit = quantity(text)
        if unit:
            return self.read(measured)
        if is_arithmetic(text) and not self._arithmetic:
            raise NoAnswerError
        return self._formula(text)

    def _formula(self, text: str, other: str | None = None) -> str:
        try:
            return formula(text, other)
        except OversizeError as error:
            self.oversize = True
            return error.form

    def _matrix(self, rows: list[list[str]], kind: str) -> str:
        if len({len(row) for row in rows}) != 1:
            raise UnreadableError
        cells = " \\\\ ".join(" & ".join(map(self.read, row)) for row in rows)
        return f"\\begin{{{kind}matrix}}{cells}\\end{{{kind}matrix}}"

    def _list(self, parts: list[str], text: str) -> str:
        if all(_RELATION.search(part) for part in parts):
            if re.search(_OR, text):
                return " \\cup ".join(sorted({self.read(part) for part in parts}, key=_order))
            if chain := _chain(parts, joined=re.search(_AND, text) is not None):
                return self.read(chain)
        units = {unit for part in parts if (unit := quantity(part.strip())[1])}
        if len(units) > 1:
            raise UnreadableError
        sides = [[side.strip() for side in _split(part, _EQUAL)] for part in parts]
        names = [side[0] for side in sides if len(side) > 1]
        values = [self.read(part) for part in parts]
        if len(names) == len(parts) and len(set(names)) == len(names):  # x = 1, y = 2
            return f"({', '.join(value for _, value in sorted(zip(names, values, strict=True)))})"
        return _set(values)

    def _equation(self, sides: list[str]) -> str:
        left, right = sides[-2:]
        if not right:
            raise NoAnswerError
        if len(sides) == 2:
            named = _VARIABLE.fullmatch(left) or not _NAME.fullmatch(left)  # which f(x, y) and (x, y) are not
            several = len({*"".join(_COORDINATES.findall(f"{left} {right}"))}) > 1
            if (named and several) or _PRODUCT.fullmatch(left):
                return self._formula(left, right)
            if not _NAME.fullmatch(left):
                if _VARIABLE.fullmatch(right):
                    return self.read(left)
                if _COORDINATES.search(left):
                    return self._formula(left, right)
        return self.read(right)

    def _brackets(self, text: str, inner: str) -> str:
        parts = _split(inner, "[,;]")
        if text[0] == "\\" or text[0] == "{":
            return _set([self.read(part) for part in parts])
        if len(parts) == 1:
            return self.read(inner)
        return text[0] + ", ".join(self.read(part) for part in parts) + text[-1]

    def _both_signs(self, text: str) -> str:
        reader = _Reader(arithmetic=True)
        values = [reader.read(_with_sign(text, turn).strip().removeprefix("+")) for turn in (0, 1)]
        self.oversize |= reader.oversize
        return _set(values)


def _with_sign(text: str, turn: int) -> str:
    """A text with the upper signs, or the lower ones, in the place of both."""
    return _BOTH_SIGNS.sub(lambda sign: _BY_TURNS[sign[0]][turn], text)


def _split(text: str, separator: str) -> list[str]:
    """Splits a text where a separator stands outside all brackets."""
    depth, start, parts = 0, 0, []
    for match in re.finditer(rf"(?P<open>\\?[({{\[])|(?P<close>\\?[)}}\]])|{separator}", text):
        if match["open"] or match["close"]:
            depth += 1 if match["open"] else -1
        elif depth == 0:
            parts.append(text[start : match.start()])
            start = match.end()
    return [*parts, text[start:]]


def _inner(text: str) -> str | None:
    """What stands between brackets that enclose all of a text, None if there are none."""
    depth = 0
    for match in re.finditer(r"(\\?[({\[])|\\?[)}\]]", text):
        depth += 1 if match[1] else -1
        if match.start() and depth == 0:
            opening = re.match(r"\\?[({\[]", text)
            return text[opening.end() : match.start()] if opening and match.end() == len(text) else None
    return None


def _order(element: str) -> tuple[bool, Fraction, str]:
    try:
        value = number(element, arithmetic=True)
    except UnreadableError:
        value = None
    return value is None, value or Fraction(0), element


def _set(elements: Sequence[str]) -> str:
    """A set or a list without an order; that of one element is its element."""
    return ", ".join(sorted(set(elements), key=_order))


def _residues(listed: str, modulo: str) -> str:
    """The set of what is congruent to one of the numbers that are listed.

    Raises:
        UnreadableError: these are no numbers, or the modulus is no integer.
    """
    signed = [_with_sign(part, turn) for part in _split(listed, _AND_OR) for turn in (0, 1)]
    residues = [number(part.strip().removeprefix("+").strip()) for part in signed if part.strip()]
    modulus = number(modulo)
    if None in residues or not modulus or modulus.denominator > 1:
        raise UnreadableError
    return _set(
        [
            f"{written(residue % modulus)} (mod {written(modulus)})"
            for residue in residues
            if residue is not None
        ]
    )


def _of_n(formula: str, name: str) -> str:
    """A formula that holds for every integer, which has the name n.

    Raises:
        UnreadableError: it does not depend on the integer, or has another n.
    """
    letters = _LETTER.findall(formula)
    if name not in letters or (name != "n" and "n" in letters):
        raise UnreadableError
    return _LETTER.sub(lambda letter: "n" if letter[0] == name else letter[0], formula)


def _sides(text: str) -> tuple[list[str], list[str]]:
    """The sides of inequalities, and the signs between them."""
    parts = _RELATION.split(text)
    return [part.strip() for part in parts[::2]], [_SIGNS.get(sign[:3], sign) for sign in parts[1::2]]


def _bound(text: str) -> tuple[str, str, str] | None:
    """The variable, the sign and the bound of an inequality of one variable; None of another."""
    sides, signs = _sides(text)
    if len(sides) != 2 or all(map(_VARIABLE.fullmatch, sides)):  # where neither bounds the other
        return None
    for (name, other), sign in ((sides, signs[0]), (sides[::-1], _TURNED[signs[0]])):
        if _VARIABLE.fullmatch(name):
            return name, sign, other
    return None


def _chain(parts: list[str], joined: bool) -> str | None:
    """A lower and an upper bound as a chain, ``1 < x < 2``; None where they are something else.

    Bounds that are not joined by "and" may be alternatives, unless their numbers leave something between.
    """
    bounds = [bound for part in parts if (bound := _bound(part))]
    if len(parts) != 2 or len(bounds) != 2 or "!=" in (bounds[0][1], bounds[1][1]):
        return None
    (name, low, least), (other, high, most) = sorted(bounds, key=lambda bound: bound[1], reverse=True)
    if name != other or low[0] == high[0]:
        return None
    start, end = number(least, arithmetic=True), number(most, arithmetic=True)
    between = joined if start is None or end is None else start < end
    return f"{least} {_TURNED[low]} {name} {high} {most}" if between else None


def _relation(text: str, read: Callable[[str], str]) -> str:
    """An inequality of one variable as its interval.

    Raises:
        UnreadableError: it is another.
    """
    if found := _bound(text):
        _, sign, side = found
        bound = read(side)
        if sign == "!=":
            return f"(-\\infty, {bound}) \\cup ({bound}, \\infty)"
        if sign[0] == "<":
            return f"(-\\infty, {bound}" + ("]" if sign == "<=" else ")")
        return ("[" if sign == ">=" else "(") + f"{bound}, \\infty)"
    sides, signs = _sides(text)
    if len(sides) == 3 and _VARIABLE.fullmatch(sides[1]) and signs[0][0] == signs[1][0] != "!":
        if signs[0][0] == ">":
            sides, signs = sides[::-1], signs[::-1]
        low, high = ("[" if signs[0][1:] else "("), ("]" if signs[1][1:] else ")")
        return f"{low}{read(sides[0])}, {read(sides[2])}{high}"
    raise UnreadableError
