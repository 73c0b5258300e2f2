"""Errors that a user can fix, and warnings."""

from __future__ import annotations

from autotts_jax.terminal import printable


class InputError(ValueError):
    """Some input is wrong: an argument, a file, an installation.

    The message says what is wrong, where, and what to do. The command line prints the message alone and exits
    with status 2.
    """


class UnknownSettingError(InputError, TypeError):
    """A keyword argument has a name that is not known.

    Also a TypeError, in the words of Python's own: trainers try arguments that not every environment has.
    """


class TooLargeError(InputError):
    """A file would be larger than this package reads; it was not written."""


class InputWarning(UserWarning):
    """Something about the input that a user should know, although it is not an error.

    The command line prints the message alone.
    """


class DataError(InputError):
    """A data file is wrong; the message names the file, and the question and branch if there is one.

    Args:
        file: the file, as the message names it.
        problem: what is wrong with it, and what to do.
        question: index of the question in the file.
        branch: index of the branch in the question.
    """

    def __init__(self, file: object, problem: str, question: int | None = None, branch: int | None = None):
        super().__init__(printable(file), problem, question, branch)  # pickling gives them back to it

    def __str__(self) -> str:
        file, problem, question, branch = self.args
        place = [file]
        if question is not None:
            place.append(f"question {question}")
        if branch is not None:
            place.append(f"branch {branch}")
        return f"{', '.join(place)}: {problem}"
