"""A problem that branches are sampled for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """A question for the model, with its reference answer.

    Attributes:
        text: the question, as the model reads it.
        gold: the reference answer.
        topic: what a generated question is about; empty for others.
    """

    text: str
    gold: str
    topic: str = ""
