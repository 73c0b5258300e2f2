"""The grader of mathematics, numbers, choices and words.

`autotts_jax.replay.equivalence` says what the canonical forms are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

from autotts_jax.collect.grader import Grader
from autotts_jax.errors import InputError
from autotts_jax.replay.equivalence import spelled_form
from autotts_jax.replay.forms import FormFinder
from autotts_jax.replay.workers import LIMIT


class MathGrader(Grader):
    """Finds the canonical forms of answers, in worker processes of its own where they take long.

    Use it as a context manager; its methods may be called from many threads. The form of an answer that
    cannot be read, or would take more time or memory than there is for it, is its spelling.

    Args:
        workers: number of processes; by default one for each core.
        timeout: seconds of a processor's time for an answer.
        arithmetic: whether unevaluated arithmetic, such as ``9 * 3``, is an answer, of its value.

    Raises:
        InputError: latex2sympy2_extended is not installed, or an argument is out of range.
    """

    def __init__(self, workers: int | None = None, timeout: float = LIMIT, *, arithmetic: bool = False):
        if workers is not None and workers < 1:
            raise InputError(f"workers is {workers}, but a grader needs 1 or more")
        if not 0 < timeout < math.inf:
            raise InputError(f"timeout is {timeout}, but must be a number of seconds above 0")
        self._finder = FormFinder(workers, timeout)
        self._arithmetic = arithmetic

    def __enter__(self) -> Self:
        self._finder.start()
        return self

    def close(self) -> None:
        """Ends the workers at once; calls that are running in other threads raise InputError.

        An `InputWarning` says how many answers exceeded the budget.
        """
        self._finder.close()

    def reference(self, gold: str) -> str:
        """Finds the form of right answers; of unevaluated arithmetic, its value counts."""
        return self._forms([gold], arithmetic=True)[0]

    def forms(self, answers: Sequence[str], gold: str | None = None) -> list[str]:  # noqa: ARG002
        """Finds the canonical forms of answers.

        Args:
            answers: S answers.
            gold: not used.

        Returns:
            The form of each of the S answers, ``ERR`` for what is not an answer.

        Raises:
            InputError: the grader is closed, or its workers do not start.
        """
        return self._forms(answers, self._arithmetic)

    def _forms(self, answers: Sequence[str], arithmetic: bool) -> list[str]:
        found = self._finder.find([(answer, arithmetic) for answer in answers])
        return [form or spelled_form(answer) for answer, form in zip(answers, found, strict=True)]
