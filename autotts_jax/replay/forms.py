"""Canonical forms of many answers, computed in worker processes where that may take long."""

from __future__ import annotations

import importlib.util
import os
import threading
import warnings
from collections.abc import Sequence
from typing import Self

from autotts_jax.errors import InputError, InputWarning
from autotts_jax.replay.equivalence import simple_form, spelled_form
from autotts_jax.replay.spelling import UnreadableError
from autotts_jax.replay.workers import LIMIT, LimitedWorkers
from autotts_jax.terminal import quoted

_MOST_KNOWN = 100_000
"""Forms that are remembered, so that an answer has the same one whenever it comes."""


class FormFinder:
    """Finds the canonical forms of answers, most of them in this process, the others in `LimitedWorkers`.

    Use it as a context manager; its methods may be called from many threads. An answer that exceeds the
    budget has its spelling for a form, and an answer with a part that is too large to be computed is written
    as it is; an `InputWarning` at the end says how many there were.

    Args:
        workers: most processes at a time; by default one for each core.
        limit: seconds of a processor's time for an answer.

    Raises:
        InputError: latex2sympy2_extended is not installed.
    """

    def __init__(self, workers: int | None = None, limit: float = LIMIT):
        if importlib.util.find_spec("latex2sympy2_extended") is None:
            raise InputError("grading needs latex2sympy2_extended: pip install 'autotts-jax[equiv]'")
        count = workers or os.cpu_count() or 1
        self._workers = LimitedWorkers("autotts_jax.replay.equivalence:computed_form", count, limit)
        self._exceeded: dict[str, None] = {}
        self._known: dict[tuple[str, bool], str | None] = {}  # of what was computed, which is so for good
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Starts all workers, which otherwise start when they are needed."""
        self._workers.start()

    def close(self) -> None:
        """Ends the workers and says which answers exceeded the budget; may be called twice."""
        self._workers.close()
        exceeded, self._exceeded = self._exceeded, {}
        if exceeded:
            many = f"{len(exceeded):,} answers exceed"
            subject, each = ("1 answer exceeds", "it is") if len(exceeded) == 1 else (many, "each is")
            first = quoted(next(iter(exceeded)))
            warnings.warn(
                f"{subject} what grading may compute, as {first}; {each} equal to its own spelling only",
                InputWarning,
                stacklevel=3,
            )

    def find(self, answers: Sequence[tuple[str, bool]]) -> list[str | None]:
        """Finds canonical forms.

        Returns:
            The form of each of the S answers: ``ERR`` if it is not an answer, None if it cannot be read.

        Raises:
            InputError: the workers are closed, or do not start.
        """
        if len(self._known) > _MOST_KNOWN:
            self._known = {}
        known = self._known
        found: dict[tuple[str, bool], str | None] = {}
        unknown = []
        for answer in dict.fromkeys(answers):
            if answer in known:
                found[answer] = known[answer]
                continue
            try:
                found[answer] = simple_form(*answer)
            except UnreadableError:
                found[answer] = None
            else:
                if found[answer] is None:
                    unknown.append(answer)
        for answer, result in zip(unknown, self._workers.map(unknown), strict=True):
            form, oversize = (spelled_form(answer[0]), True) if result.exceeded else result.value
            found[answer] = known.setdefault(answer, form)
            if oversize:
                with self._lock:
                    self._exceeded[answer[0]] = None
        return [found[answer] for answer in answers]
