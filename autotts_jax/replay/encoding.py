"""Answers as ids: equal strings under `EXACT`, equal mathematics under `EQUIV`.

Both are per question. `EXACT` comes first and cheaply; `EQUIV` then merges the exact ids, so a dataset can go
from one to the other but not back.

Worker processes import this module, which therefore does not import JAX.
"""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import logging
import math
import multiprocessing
import os
import re
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from autotts_jax.errors import DataError, InputError

if TYPE_CHECKING:
    from autotts_jax.replay.dataset import ProbeDataset

NONE = -1
"""The id of no answer: `replay.matrix.NONE`, whose module imports JAX."""

ERROR = "ERR"
"""What the released data holds where no answer could be extracted."""

MAX_ANSWERS = 32767
"""Distinct answers that one question may have, so that ids fit int16."""

_TIMEOUT = 5
"""Seconds for one parse, one evaluation or one comparison; math-verify's own default."""

_TOLERANCE = 1e-6
"""Coordinates closer than this are compared; math-verify rounds floats to six decimals."""

_FAR = 1e5
"""Coordinate of infinity; numbers beyond it, of more than 43,000 digits, are not computed with."""


@dataclasses.dataclass(frozen=True)
class Encoded:
    """The answers of one question as ids.

    Attributes:
        ids: id of every answer given, in the order given. Shape (S,), int16.
        gold: id of the reference answer.
        vocabulary: the distinct strings by id, in order of first appearance.
    """

    ids: np.ndarray
    gold: int
    vocabulary: tuple[str, ...]


def encode_exact(answers: Sequence[str], gold: str, file: object, question: int) -> Encoded:
    """Gives equal strings equal ids, in order of first appearance.

    A gold answer that nobody gave gets an id of its own, after all others.

    Args:
        answers: S answers: branch 0 from its first probe to its final answer, then branch 1, and so on.
        gold: the reference answer.
        file: where the answers are from, for messages.
        question: index of the question in that file, for messages.

    Raises:
        DataError: more than `MAX_ANSWERS` distinct answers.
    """
    vocabulary = tuple(dict.fromkeys((*answers, gold)))
    if len(vocabulary) > MAX_ANSWERS:
        raise DataError(
            file,
            f"{len(vocabulary)} distinct answers, where {MAX_ANSWERS} are possible; shorten or round them",
            question,
        )
    id_of = {text: i for i, text in enumerate(vocabulary)}
    ids = np.fromiter(map(id_of.__getitem__, answers), np.int16, len(answers))
    return Encoded(ids, id_of[gold], vocabulary)


def merge_equivalent(dataset: ProbeDataset) -> ProbeDataset:
    """Gives mathematically equal answers one id: turns an `EXACT` dataset into an `EQUIV` one.

    Equality is math-verify's: exact numbers and expressions symbolically, floats to six decimals. An answer
    belongs to the gold class iff ``verify(gold, answer)`` holds; elsewhere either direction will do.
    ``ERR``, empty and unparsable answers become `NONE`. A class is spelled as its first appearance.

    Questions are clustered in a pool of worker processes: math-verify's timeouts need the main thread of a
    process, and a process with JAX in it must not fork. As with every such pool, a script that calls this
    needs the ``if __name__ == "__main__":`` guard.

    Raises:
        InputError: math-verify is not installed, or a worker process died.
        DataError: a gold answer that cannot be parsed.
    """
    from autotts_jax.replay.dataset import EQUIV

    try:
        import math_verify  # noqa: F401
    except ImportError as error:
        raise InputError(
            "the 'equiv' encoding needs math-verify: pip install 'autotts-jax[equiv]', or use 'exact'"
        ) from error
    gold = np.asarray(dataset.matrix.gold)
    answers: Any = np.array(dataset.matrix.answers)
    merged_gold: Any = np.empty_like(gold)
    questions = []
    for q, classes in enumerate(_cluster_all([question.vocabulary for question in dataset.questions], gold)):
        question = dataset.questions[q]
        if classes[gold[q]] == NONE:
            raise DataError(
                dataset.cells[dataset.matrix.cell[q]].source,
                f"gold answer {question.gold!r} cannot be parsed as mathematics; mend it, or use 'exact'",
                question.index,
            )
        # One more entry, which the id NONE (-1) finds from the end.
        answers[q] = np.array([*classes, NONE], np.int16)[answers[q]]
        merged_gold[q] = classes[gold[q]]
        spelling: dict[int, str] = {}
        for text, label in zip(question.vocabulary, classes, strict=True):
            spelling.setdefault(label, text)
        spelling.pop(NONE, None)
        questions.append(dataclasses.replace(question, vocabulary=tuple(spelling.values())))
    matrix = dataclasses.replace(
        dataset.matrix,
        answers=answers,
        gold=merged_gold,
        vocabulary=max(len(question.vocabulary) for question in questions),
    )
    return dataclasses.replace(dataset, matrix=matrix, questions=tuple(questions), encoding=EQUIV)


def _cluster_all(vocabularies: Sequence[tuple[str, ...]], golds: np.ndarray) -> list[list[int]]:
    """`_cluster` of every question, one question a task."""
    context = multiprocessing.get_context("spawn")
    workers = min(len(vocabularies), os.cpu_count() or 1)
    try:
        with ProcessPoolExecutor(workers, context, initializer=start_worker) as pool:
            return list(pool.map(_cluster, vocabularies, golds.tolist()))
    except BrokenProcessPool as error:
        raise InputError(
            "a worker process of the 'equiv' encoding died: a script must use it under "
            "`if __name__ == '__main__':`, and each worker needs about 1 GB of memory"
        ) from error


def start_worker(timeout: int = _TIMEOUT) -> None:
    """Makes every computation of a process interruptible, before it imports SymPy, and timeouts silent.

    Args:
        timeout: whole seconds for one parse, one evaluation or one comparison.
    """
    global _TIMEOUT
    _TIMEOUT = timeout
    # CPython's big integers notice the alarm of a timeout; GMP's, which SymPy prefers, do not.
    os.environ["SYMPY_GROUND_TYPES"] = "python"
    os.environ["MPMATH_NOGMPY"] = "1"
    logging.getLogger("math_verify").setLevel(logging.ERROR)


def _cluster(vocabulary: Sequence[str], gold: int) -> list[int]:
    """The class of every text: 0, 1, ... in order of first appearance, `NONE` for what is no answer.

    An unparsable gold answer makes every class `NONE`.
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
    label = {c: n for n, c in enumerate(dict.fromkeys(c for c in found if c != NONE))}
    return [label.get(c, NONE) for c in found]


class Classes:
    """Classes of equal expressions, numbered as they are founded.

    A gold answer founds class 0, so that being correct never hangs on the spelling that a branch used. An
    expression is compared only with the founders of classes at nearly the same coordinate, but always with a
    gold answer that is no number or formula (an equation, a set), and with any gold answer where one of the
    two is a percentage.
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
        """The class of an expression, a new one where it equals no founder."""
        found = self.find(expression)
        return self.found(expression) if found is None else found

    def find(self, expression: Any) -> int | None:
        """The class of an expression, None where it equals no founder."""
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
        """Founds a class, which is numbered after those before it."""
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
        # `verify` is asymmetric: what equals the gold answer is decided from its side alone.
        return verify(founder, expression, timeout_seconds=_TIMEOUT) or (
            not (self._gold and c == 0) and verify(expression, founder, timeout_seconds=_TIMEOUT)
        )


def _is_special(gold: Any) -> bool:
    """Whether what equals a gold answer may have other coordinates."""
    from sympy import Expr

    return not isinstance(gold, Expr) or _is_percentage(gold) or not _coordinates(gold)


def parse_answer(text: str) -> Any:
    """The SymPy object that a whole answer spells, or None. For processes that began with `start_worker`.

    Only the whole text counts: math-verify would else settle for some number within a sentence.
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
        parsing_timeout=_TIMEOUT,
    )
    if not found or _attempt(found[0].has, sympy.nan, sympy.zoo) is not False:
        return None
    return found[0].as_immutable() if isinstance(found[0], sympy.MatrixBase) else found[0]


@lru_cache(maxsize=4096)
def _coordinates(expression: Any) -> tuple[float, ...]:
    r"""Where on a line to look for equal answers; without a place, only the very same expression is equal.

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
    r"""Whether it was written as ``x\%``."""
    from sympy import Mul, Rational, UnevaluatedExpr

    return isinstance(expression, Mul) and expression.args[1:] == (UnevaluatedExpr(Rational(1, 100)),)


def _coordinate(expression: Any) -> float:
    """A number that equal expressions share: asinh of the value, with fixed values for its symbols.

    Its logarithmic growth makes one tolerance serve numbers near zero and numbers of a thousand digits. Sets,
    tuples and matrices add up their elements, because math-verify takes (1, 2), {1, 2} and the open interval
    for the same; relations have the place of their symbols, because equal ones may be written in many ways.

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
    """The function's result, or None where it fails or takes too long."""
    from math_verify.errors import TimeoutException
    from math_verify.utils import timeout

    try:
        return timeout(_TIMEOUT)(function)(*arguments)
    except (Exception, TimeoutException):
        return None
