"""Which answers are the same mathematics, by math-verify and SymPy.

Worker processes import this module, which therefore does not import JAX. A process that uses it calls
`start_worker` first, and runs it in its main thread, because math-verify's timeouts are alarms.
"""

from __future__ import annotations

import bisect
import contextlib
import logging
import math
import os
import re
import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

NONE = -1
"""The answer id of "no answer": it never votes and is never correct."""

ERROR = "ERR"
"""What the released data holds where no answer could be extracted."""

_TOLERANCE = 1e-6
"""Coordinates closer than this are compared; math-verify rounds floats to six decimals."""

_FAR = 1e5
"""Coordinate of infinity; numbers beyond it, of more than 43,000 digits, are not computed with."""

_timeout = 5
"""Seconds for one parse, one evaluation or one comparison; `start_worker` sets them."""


def start_worker(timeout: int = 5) -> None:
    """Makes every computation of this process interruptible, and timeouts silent.

    Call it before SymPy is imported.

    Args:
        timeout: whole seconds for one parse, one evaluation or one comparison.
    """
    global _timeout
    _timeout = timeout
    # CPython's big integers notice the alarm of a timeout; GMP's, which SymPy prefers, do not.
    os.environ["SYMPY_GROUND_TYPES"] = "python"
    os.environ["MPMATH_NOGMPY"] = "1"
    logging.getLogger("math_verify").setLevel(logging.ERROR)


def cluster(vocabulary: Sequence[str], gold: int) -> list[int]:
    """Sorts the answers to one question into classes of equal mathematics.

    Args:
        vocabulary: the distinct answers.
        gold: index of the reference answer among them.

    Returns:
        The class of each answer: 0, 1, ... in order of first appearance, `NONE` for what is no answer. If the
        gold answer cannot be parsed, every class is `NONE`.
    """
    found = [NONE] * len(vocabulary)
    reference = parse_answer(vocabulary[gold])
    if reference is None:
        return found
    classes = Classes(reference)
    for i, text in enumerate(vocabulary):
        expression = parse_answer(text)
        if expression is not None:
            found[i] = classes.of(expression)
    number = {c: n for n, c in enumerate(dict.fromkeys(c for c in found if c != NONE))}
    return [number.get(c, NONE) for c in found]


class Classes:
    """Classes of equal expressions, numbered in the order in which they are founded.

    A gold answer founds class 0, so that being correct never depends on the spelling that a branch used. An
    expression is compared only with the founders of classes at nearly the same coordinate, but always with a
    gold answer that is no number or formula (an equation, a set), and with any gold answer if one of the
    two is a percentage.

    Args:
        gold: the gold answer, a SymPy object; None if it is not known.
    """

    def __init__(self, gold: Any = None):
        self._founders: list[Any] = []
        self._known: dict[Any, int] = {}
        self._places: list[tuple[float, int]] = []  # (coordinate, class), sorted
        self._gold = gold is not None
        if self._gold:
            self.found(gold)
        self._always = {0} if self._gold and _is_special(gold) else set()

    def of(self, expression: Any) -> int:
        """Finds the class of an expression, and founds one if the expression equals no founder.

        Args:
            expression: a SymPy object.

        Returns:
            Its class.
        """
        found = self.find(expression)
        return self.found(expression) if found is None else found

    def find(self, expression: Any) -> int | None:
        """Finds the class of an expression.

        Args:
            expression: a SymPy object.

        Returns:
            Its class, or None if the expression equals no founder.
        """
        if expression not in self._known:
            near = self._always.union(*map(self._near, _coordinates(expression)))
            if self._gold and _is_percentage(expression):
                near.add(0)
            found = next((c for c in sorted(near) if self._equal(c, expression)), None)
            if found is None:
                return None
            self._known[expression] = found
        return self._known[expression]

    def found(self, expression: Any) -> int:
        """Founds a class.

        Args:
            expression: its founder, a SymPy object.

        Returns:
            The new class, numbered after those before it.
        """
        c = len(self._founders)
        self._founders.append(expression)
        self._known.setdefault(expression, c)
        for coordinate in _coordinates(expression):
            bisect.insort(self._places, (coordinate, c))
        return c

    def _near(self, coordinate: float) -> set[int]:
        low = bisect.bisect_left(self._places, (coordinate - _TOLERANCE, -1))
        high = bisect.bisect_right(self._places, (coordinate + _TOLERANCE, len(self._founders)))
        return {c for _, c in self._places[low:high]}

    def _equal(self, c: int, expression: Any) -> bool:
        from math_verify import verify

        founder = self._founders[c]
        # `verify` is asymmetric: only verify(gold, answer) decides what equals the gold answer.
        return verify(founder, expression, timeout_seconds=_timeout) or (
            not (self._gold and c == 0) and verify(expression, founder, timeout_seconds=_timeout)
        )


def _is_special(gold: Any) -> bool:
    """Whether expressions with other coordinates may equal this gold answer."""
    from sympy import Expr

    return not isinstance(gold, Expr) or _is_percentage(gold) or not _coordinates(gold)


def parse_answer(text: str) -> Any:
    """Parses a whole answer as mathematics.

    Only the whole text counts: math-verify would otherwise take some number within a sentence.

    Args:
        text: the answer.

    Returns:
        A SymPy object, or None if the text is no mathematics.
    """
    import sympy
    from math_verify import LatexExtractionConfig, parse

    body = " ".join(text.split())
    if body.startswith("$"):
        body = body.strip("$")
    body = re.sub(r"(?<!\.)\.$", "", body)  # a full stop, not the end of an ellipsis
    if body in ("", ERROR):
        return None
    plain = re.sub(r"^(-?)\\[dt]?frac\{([0-9]+)\}\{([0-9]+)\}$", r"\1\2/\3", body)
    if re.fullmatch(r"-?[0-9]{1,100}(/0*[1-9][0-9]{0,99})?", plain):
        return sympy.Rational(plain)  # most answers: math-verify needs a hundred times longer
    found = parse(
        f"${body}$",
        [LatexExtractionConfig()],
        fallback_mode="no_fallback",
        extraction_mode="first_match",
        parsing_timeout=_timeout,
    )
    if not found or _attempt(found[0].has, sympy.nan, sympy.zoo) is not False:
        return None
    return found[0].as_immutable() if isinstance(found[0], sympy.MatrixBase) else found[0]


@lru_cache(maxsize=4096)
def _coordinates(expression: Any) -> tuple[float, ...]:
    r"""Where on a line to look for equal answers; without a coordinate, an expression equals only itself.

    An equation is also looked for at its right-hand side, and a percentage at its number: math-verify takes
    ``x = 5`` for 5 and ``50\%`` for 50.
    """
    from math_verify.grader import is_relation, take_last_relation

    faces = [expression]
    if is_relation(expression):
        faces.append(take_last_relation(expression).rhs)
    elif _is_percentage(expression):
        faces.append(expression.args[0])
    found = [_attempt(_coordinate, face) for face in faces]
    return tuple(x for x in found if x is not None)


def _is_percentage(expression: Any) -> bool:
    r"""Whether the expression was written as ``x\%``."""
    from sympy import Mul, Rational, UnevaluatedExpr

    return isinstance(expression, Mul) and expression.args[1:] == (UnevaluatedExpr(Rational(1, 100)),)


def _coordinate(expression: Any) -> float:
    """A number that equal expressions share: asinh of the value, with fixed values for its symbols.

    asinh grows like a logarithm, so that one tolerance serves numbers near zero and numbers of a thousand
    digits. Sets, tuples and matrices add up their elements, because math-verify takes (1, 2), {1, 2} and the
    open interval for the same; relations have the coordinate of their symbols, because equal ones may be
    written in many ways.

    Raises:
        OverflowError: the value is finite and beyond `_FAR`.
    """
    import mpmath
    from math_verify.grader import is_relation
    from sympy import Expr, MatrixBase, Rational, oo

    if isinstance(expression, Rational):  # most answers: the general way needs a hundred times longer
        with contextlib.suppress(OverflowError):
            return math.asinh(expression.p / expression.q)
    symbols = {symbol: _symbol_value(symbol.name) for symbol in expression.free_symbols}
    if is_relation(expression):
        return math.fsum(symbols.values())
    if not isinstance(expression, Expr) or isinstance(expression, MatrixBase):
        return math.fsum(map(_coordinate, expression.args))
    real, imaginary = expression.evalf(15, subs=symbols).as_real_imag()
    if real + imaginary in (oo, -oo):
        return _FAR if real + imaginary == oo else -_FAR
    place = mpmath.asinh(mpmath.mpf(real + imaginary))
    if abs(place) > _FAR:
        raise OverflowError
    return float(place)


def _symbol_value(name: str) -> float:
    """A number for a symbol: the product over its letters, since math-verify takes the word `ab` for a·b."""
    if name.lower() == "e":
        return math.e
    return math.prod(1 + zlib.crc32(letter.encode()) / 2**32 for letter in name.lower())


def _attempt(function: Callable[..., Any], *arguments: Any) -> Any:
    """The function's result, or None if it fails or takes too long."""
    from math_verify.errors import TimeoutException
    from math_verify.utils import timeout

    try:
        return timeout(_timeout)(function)(*arguments)
    except (Exception, TimeoutException):
        return None
