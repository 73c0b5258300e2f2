r"""Formulas: their canonical forms, by SymPy.

A formula is parsed without being computed. Where its value would have more than `MAX_DIGITS` digits, or its
simplest form more than `MAX_LENGTH` characters, the form is the formula as it was written.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

from autotts_jax.replay.spelling import MAX_LENGTH, PAIR, TRIPLE, UnreadableError, text_form, written

MAX_DIGITS = 4000
"""Digits that the value of a formula, or of a part of it, may have; Python writes numbers of up to 4300."""

_MAX_EXPONENT = 100
"""Greatest power of a sum that is multiplied out."""

_FUNCTION = re.compile("(?:arc)?(?:sin|cos|tan)|(?:sin|cos|tan)h|cot|sec|csc|log|exp|sqrt|max|min|gcd|lcm")
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")
_ADJACENT_FACTORS = re.compile(rf"(?<![\\A-Za-z])(?!gcd|lcm)(?:{PAIR.pattern}|{TRIPLE.pattern})(?![A-Za-z])")
_OF_LETTERS = re.compile(r"(?:gcd|lcm)\}? ?(?:\\left)? ?[({][^(){}]*(?<![\\A-Za-z])[a-z](?![A-Za-z])")
"""A divisor or multiple of letters, which SymPy would take for polynomials."""
_MATHEMATICS = re.compile(r"(?=.*[-+/^0-9]|.*\\frac)(?:[^\\]|\\(?:frac|sqrt|cdot|times|pi)(?![A-Za-z]))*")
_SMALL_WORD = re.compile("as|at|be|by|do|he|if|in|is|it|me|my|no|of|on|or|so|to|up|we", re.IGNORECASE)
_NUMBERED = re.compile(r"(?<![\\A-Za-z])[A-Za-z]+ *[0-9]")  # x2, which may be x_2 or x^2; 5 ft 3 in; CO2
_BESIDE = re.compile(r"(?:(?<![\w\\^}.])[0-9]+(?:\.[0-9]+)?|\)) ?(?=(?:\\left ?)?\()")
"""A factor before one in brackets, as in 2(3), which the parser would take for a mixed number."""
_SUBSCRIPT = re.compile(r"(?P<base>.+?)_\{?(?P<place>[^{}]+)\}?")
_POSITIVE = re.compile(r"[kmn](?:_.*)?")
"""Names of positive integers."""
_ELEMENTARY = frozenset(
    [
        "exp",
        "log",
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "tanh",
        "Abs",
        "sign",
        "factorial",
        "binomial",
    ]
)
"""Functions that the parser knows by the names that are written."""

_MOST_OWN = 4096
_own: set[str] = set()
"""Forms that need not be read again, which takes as long as the first time."""

_INDICES = "kjlpqrstuvw"
"""Names of the indices of sums and products, from the outermost on."""


class OversizeError(ValueError):
    """A formula is too large to be computed or written out."""

    def __init__(self, form: str):
        super().__init__(form)
        self.form = form


def formula(text: str, other: str | None = None) -> str:
    """Finds the form of a formula, or of the equation of two.

    Returns:
        The form.

    Raises:
        UnreadableError: it is not a formula.
        OversizeError: it is one that is too large.
    """
    if text in _own and other is None:
        return text
    beside = other is not None or _MATHEMATICS.fullmatch(text) is not None
    for side in (text, other or ""):
        if _NUMBERED.search(side) or any(_is_word(word, beside) for word in _WORD.findall(side)):
            raise UnreadableError
    try:
        sides = [_parsed(side) for side in (text, other) if side is not None]
    except MemoryError:
        raise
    except Exception as error:  # SymPy and the parser raise whatever comes
        raise UnreadableError from error
    if all(_fits(side) for side in sides):
        try:
            found = _written(*sides)
        except (MemoryError, UnreadableError):
            raise
        except Exception:  # it cannot be simplified
            pass
        else:
            if len(found) <= MAX_LENGTH:
                return text_form(found) or found
    try:
        as_written = " = ".join(map(_latex, sides))
    except Exception as error:
        raise UnreadableError from error
    raise OversizeError(as_written)


def _is_word(letters: str, beside: bool) -> bool:
    """Whether letters are a word, or an order such as BAC, rather than a product such as ab."""
    product = len(letters) == 2 or (beside and TRIPLE.fullmatch(letters))
    return bool(_SMALL_WORD.fullmatch(letters)) or not (product or _FUNCTION.fullmatch(letters))


# --- parsing --------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _parser() -> Any:
    """The parser of LaTeX."""
    from latex2sympy2_extended.latex2sympy2 import _Latex2Sympy
    from sympy import binomial, factorial2

    class Parser(_Latex2Sympy):  # type: ignore[misc]
        """Computes nothing, and knows double factorials."""

        def convert_binom(self, binom: Any) -> Any:
            return binomial(self.convert_expr(binom.upper), self.convert_expr(binom.lower), evaluate=False)

        def convert_postfix(self, postfix: Any) -> Any:
            signs = postfix.postfix_op()
            if len(signs) < 2 or not all(sign.BANG() for sign in signs):
                return super().convert_postfix(postfix)
            if len(signs) > 2:
                raise UnreadableError
            value = postfix.exp() if hasattr(postfix, "exp") else postfix.exp_nofunc()
            return factorial2(self.convert_exp(value), evaluate=False)

    return Parser


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Any:
    """Parses a formula, the whole of it, as it is written.

    Raises:
        UnreadableError: it is something else, or divides by zero.
    """
    from sympy import Expr, nan, zoo

    if _OF_LETTERS.search(text):
        raise UnreadableError
    apart = _ADJACENT_FACTORS.sub(lambda letters: " ".join(letters[0]), text)  # tr is no trace
    found = _parser()(is_real=True).parse(_BESIDE.sub(r"\g<0> \\cdot ", apart))
    if not isinstance(found, Expr) or found.has(nan, zoo):
        raise UnreadableError
    return found


def _fits(expression: Any) -> bool:
    """Whether a formula is small enough to be computed."""
    try:
        return _digits(expression, {}) <= MAX_DIGITS
    except OverflowError:
        return False


def _digits(expression: Any, indices: Mapping[Any, float]) -> float:
    """Digits that a formula and its parts have at most, above or below the fraction bar.

    Raises:
        OverflowError: far too many.
    """
    from sympy import (
        Add,
        Float,
        Mul,
        Pow,
        Product,
        Rational,
        Sum,
        Symbol,
        binomial,
        exp,
        factorial,
        factorial2,
        gamma,
    )

    if isinstance(expression, Symbol):
        return indices.get(expression, 0.0)
    if isinstance(expression, Rational):
        return math.log10(max(abs(expression.p), expression.q))
    if isinstance(expression, Float):
        _, _, power, bits = expression._mpf_
        return (abs(power) + bits) * math.log10(2)
    if isinstance(expression, Sum | Product):
        indices = dict(indices)
        terms = 0.0
        for index, *bounds in reversed(expression.limits):
            indices[index] = max((_digits(bound, indices) for bound in bounds), default=0.0)
            terms += indices[index]
        each = _digits(expression.function, indices)
        return each * 10**terms if isinstance(expression, Product) else each + terms
    parts = [_digits(part, indices) for part in expression.args]
    if max(parts, default=0.0) > MAX_DIGITS:
        raise OverflowError

    def size(place: int) -> float:
        part = expression.args[place]
        return abs(float(part)) if isinstance(part, Rational) else 10 ** parts[place]

    match expression:
        case Add():
            return max(parts) + math.log10(len(parts))
        case Mul():
            return sum(parts)
        case Pow():
            if isinstance(expression.base, Add) and expression.base.free_symbols and size(1) > _MAX_EXPONENT:
                raise OverflowError
            return parts[0] * max(1.0, size(1))
        case exp():
            return size(0)
        case factorial() | factorial2() | gamma():
            return math.lgamma(size(0) + 1) / math.log(10)
        case binomial():
            return min(size(0), max(parts) * size(1))
    return max(parts, default=0.0)


# --- the simplest form ----------------------------------------------------------------------------------


def _written(left: Any, right: Any = None) -> str:
    """Simplifies a formula or an equation, and writes it."""
    from sympy import Poly, PolynomialError, numer, together

    expression = _simplified(_meant(left))
    if right is None:
        if expression.is_Rational:
            return _rational(expression)
        text = _latex(expression)
        if _is_plain(expression):
            if len(_own) == _MOST_OWN:
                _own.clear()
            _own.add(text)
        return text
    difference = numer(together(expression - _simplified(_meant(right))))
    try:
        polynomial = Poly(difference, *sorted(difference.free_symbols, key=str))
    except PolynomialError:  # it has functions of them
        polynomial = Poly(difference)
    if polynomial.domain.is_ZZ or polynomial.domain.is_QQ:
        _, normal = polynomial.primitive()
        if normal.LC() < 0:
            normal = -normal
    else:
        normal = polynomial.monic()
    return f"{_latex(_simplified(normal.as_expr()))} = 0"


def _is_plain(expression: Any) -> bool:
    """Whether the form of a formula, read again, is sure to be itself: of quotients of sums, and of roots."""
    from sympy import pi, preorder_traversal

    number = not expression.free_symbols
    return all(
        part.is_Add
        or part.is_Mul
        or part.is_Rational
        or part is pi
        or (part.is_Symbol and _reads_back(part))
        or (part.is_Pow and (part.exp.is_Integer or (number and part.base.is_Integer)))
        for part in preorder_traversal(expression)
    )


@lru_cache(maxsize=4096)
def _reads_back(symbol: Any) -> bool:
    """Whether a symbol as it is written is that symbol."""
    return len(symbol.name) == 1 or bool(_meant(_parsed(_latex(symbol))) == symbol)


def _meant(expression: Any) -> Any:
    """A formula with what its names mean: i is the imaginary unit, and k, m and n are positive integers.

    Numbers become exact, and the reciprocal trigonometric functions fractions.
    """
    from sympy import Float, I, Product, Rational, Sum, Symbol, cos, cot, csc, sec, sin

    expression = expression.xreplace({value: Rational(str(value)) for value in expression.atoms(Float)})
    if expression.has(Sum, Product):
        expression = _with_indices(expression, iter(_free_names(expression)))
    expression = expression.xreplace(
        {
            symbol: I if symbol.name == "i" else Symbol(symbol.name, integer=True, positive=True)
            for symbol in expression.free_symbols
            if symbol.name == "i" or _POSITIVE.fullmatch(symbol.name)
        }
    )
    if not expression.has(sec, csc, cot):
        return expression
    for function, reciprocal in ((sec, lambda x: 1 / cos(x)), (csc, lambda x: 1 / sin(x))):
        expression = expression.replace(function, reciprocal)
    return expression.replace(cot, lambda x: cos(x) / sin(x))


def _free_names(expression: Any) -> list[str]:
    """Names for the indices of sums and products that a formula does not use for something else."""
    from sympy import Product, Sum

    bound = {limit[0].name for part in expression.atoms(Sum, Product) for limit in part.limits}
    used: set[str] = set()
    for symbol in expression.free_symbols:
        match = _SUBSCRIPT.fullmatch(symbol.name)
        used |= {*match["base"], *(set(match["place"]) - bound)} if match else {symbol.name}
    return [name for name in _INDICES if name not in used]


def _with_indices(expression: Any, names: Iterator[str]) -> Any:
    """Renames the indices of sums and products, and makes functions of what has them as a subscript."""
    from sympy import Function, Product, Sum, Symbol

    if not expression.has(Sum, Product):
        return expression
    if not isinstance(expression, Sum | Product):
        return expression.func(*(_with_indices(part, names) for part in expression.args))
    renamed: dict[Any, Any] = {}
    limits = []
    for index, *bounds in reversed(expression.limits):
        limits.append([bound.xreplace(renamed) for bound in bounds])
        if (name := next(names, None)) is None:
            raise UnreadableError
        renamed[index] = Symbol(name, integer=True)
    term = _with_indices(expression.function, names)
    for symbol in term.free_symbols:
        match = _SUBSCRIPT.fullmatch(symbol.name)
        if match and symbol not in renamed:
            places = [_parsed(place) for place in _places(match["place"])]
            if any(not place.free_symbols.isdisjoint(renamed) for place in places):
                of_places = Function(f"{match['base']}_")
                renamed[symbol] = of_places(*(place.xreplace(renamed) for place in places))
    indices = reversed([*renamed.values()][: len(limits)])
    return expression.func(
        term.xreplace(renamed),
        *((index, *bounds) for index, bounds in zip(indices, reversed(limits), strict=True)),
    )


def _places(subscript: str) -> list[str]:
    """The parts of a subscript: those of a_{i,j} and a_{ij}, but a_{2k} and a_{k+1} have one."""
    return list(subscript) if subscript.isalpha() else subscript.split(",")


@lru_cache(maxsize=1)
def _printer() -> Any:
    """The writer of LaTeX."""
    from sympy import Symbol
    from sympy.printing.latex import LatexPrinter

    class Printer(LatexPrinter):  # type: ignore[misc]
        """Writes a sum with several indices as a sum of sums, which the parser reads."""

        def _print_Sum(self, expression: Any) -> str:  # noqa: N802
            return self._nested(expression, super()._print_Sum)

        def _print_Product(self, expression: Any) -> str:  # noqa: N802
            return self._nested(expression, super()._print_Product)

        def _print_log(self, expression: Any, exp: Any = None) -> str:
            if len(expression.args) == 1:
                return super()._print_log(expression, exp)
            value, base = map(self.doprint, expression.args)
            power = "" if exp is None else f"^{{{exp}}}"
            return rf"\log_{{{base}}}{power}{{\left({value} \right)}}"

        def _nested(self, expression: Any, written: Callable[[Any], str]) -> str:
            *inner, outer = expression.limits
            if not inner:
                return written(expression)
            mark = Symbol("_")
            text = written(expression.func(mark, outer))
            return text.removesuffix(self.doprint(mark)) + self.doprint(
                expression.func(expression.function, *inner)
            )

    return Printer({"ln_notation": True})


def _latex(expression: Any) -> str:
    from sympy import Symbol
    from sympy.core.function import AppliedUndef

    def with_subscript(function: Any) -> Any:
        places = [_printer().doprint(place) for place in function.args]
        joint = "" if all(map(str.isalpha, places)) else ","
        place = re.sub("(?<![A-Za-z]) | (?![A-Za-z])", "", joint.join(places))
        return Symbol(
            f"{function.name}{place}" if len(place) == 1 else f"{function.name}{{{place}}}", real=True
        )

    expression = expression.replace(
        lambda part: isinstance(part, AppliedUndef) and part.name.endswith("_"), with_subscript
    )
    text = _printer().doprint(expression)
    return re.sub(r"(?<=[0-9}]) (?=[a-zA-Z])", "", text)  # 4 m would be a length


def _simplified(expression: Any) -> Any:
    """An expression in the form in which it is compared: exact, without brackets and nested roots."""
    from sympy import (
        Function,
        Product,
        Sum,
        binomial,
        cancel,
        expand,
        expand_func,
        expand_log,
        nan,
        radsimp,
        simplify,
        sqrtdenest,
        zoo,
    )

    expression = _computed(expression)
    if expression.has(binomial):
        expression = expand_func(expression)
    if expression.is_Rational:
        return expression
    if expression.has(nan, zoo):
        raise UnreadableError
    if expression.has(Sum, Product):
        return _computed(expand(simplify(expression)))
    if expression.free_symbols:
        if expression.is_rational_function(*expression.free_symbols):
            return cancel(expression)
        return expand(simplify(expression))
    if expression.has(Function):
        expression = simplify(expression)
    return expand_log(expand(radsimp(sqrtdenest(expression))), force=True, factor=True)


def _computed(expression: Any) -> Any:
    """The value of an expression, if it can be written without the names of special functions and cases."""
    from sympy import Function, Piecewise
    from sympy.core.function import AppliedUndef

    def functions(of: Any) -> set[type]:
        return {type(part) for part in of.atoms(Function, Piecewise) if not isinstance(part, AppliedUndef)}

    done = expression.doit()
    new = functions(done) - functions(expression)
    return done if all(kind.__name__ in _ELEMENTARY for kind in new) else expression


def _rational(value: Any) -> str:
    from sympy import factorint

    if value.q == 1 and abs(value.p) >= 10**MAX_LENGTH:
        factors = factorint(abs(value.p), limit=1000)
        if max(factors) < 1000:
            powers = (f"{prime}^{{{power}}}" if power > 1 else str(prime) for prime, power in factors.items())
            return "-" * (value.p < 0) + " \\cdot ".join(powers)
    return written(Fraction(value.p, value.q))
