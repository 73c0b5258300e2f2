"""A comparison of this package's grading with that of math-verify."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
from collections.abc import Callable

import numpy as np

from autotts_jax.errors import InputError
from autotts_jax.replay.dataset import EXACT, ProbeDataset
from autotts_jax.replay.forms import FormFinder
from autotts_jax.replay.spelling import ERROR
from autotts_jax.replay.workers import LimitedWorkers

_AT_ONCE = 1000
"""Answers between two reports of progress."""


@dataclasses.dataclass(frozen=True)
class Disagreement:
    """An answer that one grader takes for right and the other for wrong.

    Attributes:
        file: where the question comes from.
        question: its index there.
        gold: the reference answer.
        answer: the answer.
        form: its canonical form; None where nothing can be read.
        right: whether it is right here; math-verify says the opposite.
    """

    file: str
    question: int
    gold: str
    answer: str
    form: str | None
    right: bool


@dataclasses.dataclass(frozen=True)
class GradingCheck:
    """What two graders say of the same answers.

    Attributes:
        answers: number of distinct answers to each question, over all questions, that were compared.
        undecided: how many of them math-verify did not grade, as it took too long.
        disagreements: where the verdicts differ.
    """

    answers: int
    undecided: int
    disagreements: tuple[Disagreement, ...]


def check_grading(
    dataset: ProbeDataset, on_progress: Callable[[int, int], None] = lambda _done, _total: None
) -> GradingCheck:
    """Grades the answers of a dataset with this package and with math-verify.

    Each distinct answer to a question counts once, in the order in which answers are numbered. Those that are
    the reference answer to the letter, and ``ERR``, are left out.

    Args:
        dataset: a dataset in `EXACT`, whose answers are as they were written.
        on_progress: called with the numbers of answers that are compared and of all.

    Returns:
        What the graders say.

    Raises:
        InputError: math-verify is not installed, or the dataset is not in `EXACT`.
    """
    if importlib.util.find_spec("math_verify") is None:
        raise InputError("comparing graders needs math-verify: pip install 'autotts-jax[verify]'")
    if dataset.encoding != EXACT:
        raise InputError("comparing graders needs answers as they were written, in 'exact' encoding")
    cells = np.asarray(dataset.matrix.cell)
    pairs = [
        (q, answer)
        for q, question in enumerate(dataset.questions)
        for answer in question.vocabulary
        if answer not in (question.gold, ERROR, "")
    ]
    disagreements = []
    undecided = 0
    cores = os.cpu_count() or 1
    with (
        FormFinder(cores) as finder,
        LimitedWorkers("autotts_jax.collect.grading_check:verdict", cores) as others,
    ):
        golds = finder.find([(question.gold, True) for question in dataset.questions])
        for start in range(0, len(pairs), _AT_ONCE):
            on_progress(start, len(pairs))
            some = pairs[start : start + _AT_ONCE]
            forms = finder.find([(answer, False) for _, answer in some])
            verdicts = others.map([(dataset.questions[q].gold, answer) for q, answer in some])
            for (q, answer), form, verdict in zip(some, forms, verdicts, strict=True):
                question = dataset.questions[q]
                right = form is not None and form == golds[q] != ERROR
                if verdict.exceeded:
                    undecided += 1
                elif right != verdict.value:
                    source = dataset.cells[cells[q]].source
                    disagreements.append(
                        Disagreement(source, question.index, question.gold, answer, form, right)
                    )
    return GradingCheck(len(pairs), undecided, tuple(disagreements))


def start_worker() -> None:
    """Prepares a worker process that calls `verdict`."""
    import logging

    # It says for every answer that its own timeouts are off.
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    verdict("0.5", r"\frac{1}{2}")


def verdict(gold: str, answer: str) -> bool:
    """Asks math-verify whether an answer is right.

    Args:
        gold: the reference answer.
        answer: the answer.

    Returns:
        Its verdict.
    """
    from math_verify import parse, verify

    ours, theirs = (parse(rf"\boxed{{{text}}}", parsing_timeout=None) for text in (gold, answer))
    return bool(verify(ours, theirs, timeout_seconds=None))
