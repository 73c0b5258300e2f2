"""A problem that branches are sampled for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """A question to be asked.

    Attributes:
        text: the question, as the model will read it.
        gold: the reference answer.
        topic: what it is about, for questions that are made up; else empty.
    """

    text: str
    gold: str
    topic: str = ""
