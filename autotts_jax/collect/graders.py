"""Graders by name.

| specification | when answers are equal |
|---|---|
| ``math`` | they are the same mathematics, number, choice or words |
| ``arithmetic`` | the same, where unevaluated arithmetic such as ``9 * 3`` is an answer too, of its value |
| ``code`` | they are programs that pass the same tests, which are the reference answer |
| ``code-process`` | the same, on a machine whose kernel cannot confine the programs |
| ``module.name:function``, ``path/to/file.py:function`` | a function gives the same canonical form for them |
"""

from __future__ import annotations

import dataclasses

from autotts_jax.collect.code_grader import LIMITS, CodeGrader
from autotts_jax.collect.grader import Form, FormGrader, Grader
from autotts_jax.collect.grading import MathGrader
from autotts_jax.errors import InputError
from autotts_jax.user_code import load_object

MATH = "math"
ARITHMETIC = "arithmetic"
CODE = "code"
CODE_PROCESS = "code-process"
GRADERS = (MATH, ARITHMETIC, CODE, CODE_PROCESS)
"""Graders that come with the package."""

BY_TESTS = (CODE, CODE_PROCESS)
"""Those of them whose reference answers are tests."""


def open_grader(spec: str | Form = MATH, workers: int | None = None) -> Grader:
    """Opens the grader of a specification; the table at the top of this module lists them.

    Args:
        spec: the specification, or a function that gives canonical forms.
        workers: answers that are graded at once; by default one for each core.

    Returns:
        The grader, to be used as a context manager.

    Raises:
        InputError: there is no such grader, it cannot be imported, or what it needs is not installed.
    """
    if isinstance(spec, str):
        if spec in BY_TESTS:
            return CodeGrader(
                workers, LIMITS if spec == CODE else dataclasses.replace(LIMITS, level="process")
            )
        if spec in GRADERS:
            return MathGrader(workers, arithmetic=spec == ARITHMETIC)
        if ":" not in spec:
            raise InputError(
                f"grader {spec!r}: there is no grader of this name; give one of {', '.join(GRADERS)}, "
                "module.name:function or path/to/file.py:function"
            )
        found = load_object(spec, "function")
        if not callable(found):
            raise InputError(f"function {spec!r}: it is {found!r:.60}; name a function of an answer")
        return FormGrader(found)
    if not callable(spec):
        raise InputError(f"grader is {spec!r:.60}, but it must be a grader, its name or a function")
    return FormGrader(spec)
