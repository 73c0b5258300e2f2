"""Answers as ids: equal strings under `EXACT`, equal mathematics under `EQUIV`.

Both are per question. `EXACT` comes first and is cheap; `EQUIV` then merges the exact ids, so a dataset can
be converted to it but not back.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np

from autotts_jax.errors import DataError, InputError
from autotts_jax.replay.dataset import EQUIV, ProbeDataset
from autotts_jax.replay.equivalence import NONE
from autotts_jax.replay.forms import FormFinder
from autotts_jax.replay.spelling import ERROR

MAX_ANSWERS = 32767
"""Distinct answers that one question may have, so that ids fit int16."""


@dataclasses.dataclass(frozen=True)
class EncodedAnswers:
    """The answers of one question as ids.

    Attributes:
        ids: id of every answer given, in the order given, int16. Shape (S,).
        gold: id of the reference answer.
        vocabulary: the distinct strings by id, in order of first appearance.
    """

    ids: np.ndarray
    gold: int
    vocabulary: tuple[str, ...]


def encode_exact(answers: Sequence[str], gold: str, file: object, question: int) -> EncodedAnswers:
    """Gives equal strings equal ids, in order of first appearance.

    A gold answer that no branch gave gets the last id.

    Returns:
        The ids.

    Raises:
        DataError: there are more than `MAX_ANSWERS` distinct answers.
    """
    vocabulary = tuple(dict.fromkeys((*answers, gold)))
    if len(vocabulary) > MAX_ANSWERS:
        raise DataError(
            file,
            f"{len(vocabulary)} distinct answers, where {MAX_ANSWERS} are possible; shorten or round them",
            question,
        )
    id_of = {text: i for i, text in enumerate(vocabulary)}
    ids = np.fromiter(map(id_of.__getitem__, answers), np.int16, len(answers))
    return EncodedAnswers(ids, id_of[gold], vocabulary)


def merge_equivalent(dataset: ProbeDataset) -> ProbeDataset:
    """Gives mathematically equal answers one id: converts an `EXACT` dataset to `EQUIV`.

    Answers are equal if they have the same canonical form, and a class is spelled as its form. ``ERR``, empty
    and unparsable answers and unevaluated arithmetic become `NONE`; of a gold answer that is arithmetic, the
    value counts. Answers that would take more time or memory than there is for them are equal to their own
    spelling only, and an `InputWarning` says how many there are.

    Args:
        dataset: a dataset in `EXACT`.

    Returns:
        The same questions and cells in `EQUIV`.

    Raises:
        InputError: latex2sympy2_extended is not installed, or worker processes do not start.
        DataError: a gold answer cannot be parsed.
    """
    if importlib.util.find_spec("latex2sympy2_extended") is None:
        raise InputError(
            "encoding 'equiv' needs latex2sympy2_extended: pip install 'autotts-jax[equiv]'; or use 'exact'"
        )
    gold = np.asarray(dataset.matrix.gold)
    answers: Any = np.array(dataset.matrix.answers)
    merged_gold: Any = np.empty_like(gold)
    questions = []
    # The gold answer is read as arithmetic where it is some.
    texts = [
        (text, i == gold[q])
        for q, question in enumerate(dataset.questions)
        for i, text in enumerate(question.vocabulary)
    ]
    with FormFinder() as finder:
        found = iter(finder.find(texts))
    for q, question in enumerate(dataset.questions):
        classes, forms = _classes([next(found) or ERROR for _ in question.vocabulary])
        if classes[gold[q]] == NONE:
            raise DataError(
                dataset.cells[dataset.matrix.cell[q]].source,
                f"gold answer {question.gold!r} cannot be parsed as mathematics; correct it, or use 'exact'",
                question.index,
            )
        # One more entry, which the id NONE (-1) finds from the end.
        answers[q] = np.array([*classes, NONE], np.int16)[answers[q]]
        merged_gold[q] = classes[gold[q]]
        questions.append(dataclasses.replace(question, vocabulary=tuple(forms)))
    matrix = dataclasses.replace(
        dataset.matrix,
        answers=answers,
        gold=merged_gold,
        vocabulary=max(len(question.vocabulary) for question in questions),
    )
    return dataclasses.replace(dataset, matrix=matrix, questions=tuple(questions), encoding=EQUIV)


def _classes(forms: Sequence[str]) -> tuple[list[int], list[str]]:
    """Maps each form to a class, or to `NONE` if it is not an answer; also returns each class's form."""
    number = {form: n for n, form in enumerate(dict.fromkeys(form for form in forms if form != ERROR))}
    return [number.get(form, NONE) for form in forms], list(number)
