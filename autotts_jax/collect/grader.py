"""The contract of graders: which answers are equal, and which are right."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Self

from autotts_jax.errors import InputError
from autotts_jax.replay.spelling import ERROR, MAX_LENGTH
from autotts_jax.user_code import last_lines

Form = Callable[[str], str | None]
"""A function from an answer to its canonical form; None for what is not an answer."""


class Grader(abc.ABC):
    """Finds the canonical forms of answers.

    Two answers are equal if they have the same form, which makes equality an equivalence, and an answer is
    right if it has the form of right answers. Use a grader as a context manager; its methods may be called
    from many threads.
    """

    @abc.abstractmethod
    def forms(self, answers: Sequence[str], gold: str | None = None) -> list[str]:
        """Finds the canonical forms of answers.

        Args:
            answers: S answers to a question.
            gold: the question's reference answer, on which forms may depend; None if there is none.

        Returns:
            The form of each of the S answers, ``ERR`` for what is not an answer.

        Raises:
            InputError: the grader cannot go on.
        """

    @abc.abstractmethod
    def reference(self, gold: str) -> str:
        """Finds the form of right answers.

        Args:
            gold: the reference answer.

        Returns:
            The form, ``ERR`` if no answer is right.

        Raises:
            InputError: the grader cannot go on.
        """

    def correct(self, gold: str, answers: Sequence[str]) -> list[bool]:
        """Grades answers; ``ERR`` and the empty answer are never right.

        Args:
            gold: the reference answer.
            answers: S answers.

        Returns:
            Whether each of the S answers is right.

        Raises:
            InputError: the grader cannot go on.
        """
        reference = self.reference(gold)
        return [form == reference != ERROR for form in self.forms(answers, gold)]

    def close(self) -> None:  # noqa: B027  # most have nothing to end
        """Ends what the grader has started; may be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class FormGrader(Grader):
    """Compares answers by a function that gives their canonical forms.

    Args:
        function: gives the form of an answer, None if it is not one. It is called in this process, from
            many threads, also with the reference answer, and never with ``ERR``.
    """

    def __init__(self, function: Form):
        self._function = function

    def forms(self, answers: Sequence[str], gold: str | None = None) -> list[str]:  # noqa: ARG002
        """Calls the function once for each distinct answer."""
        found = {answer: self._form(answer) for answer in dict.fromkeys(answers)}
        return [found[answer] for answer in answers]

    def reference(self, gold: str) -> str:
        """Calls the function with the reference answer."""
        return self._form(gold)

    def _form(self, answer: str) -> str:
        if answer == ERROR:
            return ERROR
        try:
            form = self._function(answer)
        except (Exception, SystemExit) as error:
            raise InputError(f"the grader failed on {answer!r:.60}:\n{last_lines(error)}") from error
        if not isinstance(form, str | None):
            raise InputError(f"a grader returns a string or None, but this one returned {form!r:.60}")
        line = " ".join((form or "").split())
        if len(line) > MAX_LENGTH:
            raise InputError(
                f"the grader returned {len(line)} characters for {answer!r:.60}, but a form has {MAX_LENGTH} "
                "at most"
            )
        return line or ERROR
