"""Errors that a user caused and can mend."""

from __future__ import annotations


class InputError(ValueError):
    """Something given from outside is wrong; the message says what, where, and what to do.

    The command line prints the message alone and exits with status 2.
    """


class DataError(InputError):
    """A data file is wrong; the message names the file, and the question and branch where there is one."""

    def __init__(self, file: object, what: str, question: int | None = None, branch: int | None = None):
        place = [str(file)]
        if question is not None:
            place.append(f"question {question}")
        if branch is not None:
            place.append(f"branch {branch}")
        super().__init__(f"{', '.join(place)}: {what}")
