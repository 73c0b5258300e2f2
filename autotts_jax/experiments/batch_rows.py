"""What an evaluation of allocators holds: rows of its summary, and what was played."""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Bool, Float, Int


def near(questions: int) -> Float[np.ndarray, " G"]:
    """Gives multiples of a budget between which sets of as many other questions answer, 1 in the middle.

    They cover four standard deviations of what these cost, where tokens spread as widely as their mean.

    Args:
        questions: Q.
    """
    return np.exp2(np.linspace(-1, 1, 9) * min(1.0, 6 / np.sqrt(questions)))


@dataclasses.dataclass(frozen=True)
class BatchRow:
    """An allocator on the questions of a cell under a budget, in means over seeds.

    Attributes:
        model: the model.
        benchmark: the benchmark.
        name: the allocator.
        budget: token budget for all questions together.
        accuracy: share of the questions that are answered correctly.
        accuracy_low: lower end of its 95 % interval, over sets of questions; NaN where they are too few.
        accuracy_high: upper end of it.
        gain: accuracy less that of the first allocator under the budget.
        gain_low: lower end of its 95 % interval, over sets of questions.
        gain_high: upper end of it.
        tokens: tokens spent, of all questions.
        unspent: tokens that are left of the budget.
        unanswered: questions without an answer.
    """

    model: str
    benchmark: str
    name: str
    budget: int
    accuracy: float
    accuracy_low: float
    accuracy_high: float
    gain: float
    gain_low: float
    gain_high: float
    tokens: float
    unspent: float
    unanswered: float


@dataclasses.dataclass(frozen=True, eq=False)
class BatchPlay:
    """What an allocator has made of B budgets under S seeds, for Q questions.

    Attributes:
        name: the allocator.
        branches: branches read of each question. Shape (B, S, Q).
        tokens: tokens spent on each. Shape (B, S, Q).
        answer: answer ids, ``NONE`` for no answer. Shape (B, S, Q).
        correct: whether these are the gold answers. Shape (B, S, Q).
        last_index: index of the last branch of each question, NaN without one. Shape (B, S, Q).
        next_index: index of the branch that it would have read next, ``-inf`` without one. Shape (B, S, Q).
        near_tokens: mean tokens of each question over seeds, at `near` times each budget. Shape (B, G, Q).
        near_correct: how often it is answered correctly there. Shape (B, G, Q).
    """

    name: str
    branches: Int[np.ndarray, "B S Q"]
    tokens: Int[np.ndarray, "B S Q"]
    answer: Int[np.ndarray, "B S Q"]
    correct: Bool[np.ndarray, "B S Q"]
    last_index: Float[np.ndarray, "B S Q"]
    next_index: Float[np.ndarray, "B S Q"]
    near_tokens: Float[np.ndarray, "B G Q"]
    near_correct: Float[np.ndarray, "B G Q"]
