"""Episodes over plain lists: how they end, and how branches vote."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

NOBODY = -1


class Outcome(NamedTuple):
    """What is known of an episode when it has ended."""

    answer: int
    tokens: int
    sequential_tokens: int
    branches: int


def majority(answers):
    counts = Counter(answer for answer in answers if answer != NOBODY)
    return counts.most_common(1)[0][0] if counts else NOBODY
