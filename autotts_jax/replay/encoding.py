"""Answers as ids: equal strings under `EXACT`, equal mathematics under `EQUIV`.

Both are per question. `EXACT` comes first and is cheap; `EQUIV` then merges the exact ids, so a dataset can
be converted to it but not back.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import numpy as np

from autotts_jax.errors import DataError, InputError
from autotts_jax.replay.dataset import EQUIV, ProbeDataset
from autotts_jax.replay.equivalence import NONE, cluster, start_worker

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

    Args:
        answers: S answers: branch 0 from its first probe to its final answer, then branch 1, and so on.
        gold: the reference answer.
        file: where the answers come from, for messages.
        question: index of the question in that file, for messages.

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
    value counts.

    Questions are clustered in a pool of worker processes: timeouts need the main thread of a process, and a
    process with JAX in it must not fork. As with every such pool, a script that calls this needs the
    ``if __name__ == "__main__":`` guard.

    Args:
        dataset: a dataset in `EXACT`.

    Returns:
        The same questions and cells in `EQUIV`.

    Raises:
        InputError: latex2sympy2_extended is not installed, or a worker process died.
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
    clustered = _cluster_all([question.vocabulary for question in dataset.questions], gold)
    for q, (classes, forms) in enumerate(clustered):
        question = dataset.questions[q]
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


def _cluster_all(
    vocabularies: Sequence[tuple[str, ...]], golds: np.ndarray
) -> list[tuple[list[int], list[str]]]:
    """`cluster` of every question, one question a task."""
    context = multiprocessing.get_context("spawn")
    workers = min(len(vocabularies), os.cpu_count() or 1)
    try:
        with ProcessPoolExecutor(workers, context, initializer=start_worker) as pool:
            return list(pool.map(cluster, vocabularies, golds.tolist()))
    except BrokenProcessPool as error:
        raise InputError(
            "a worker process of the 'equiv' encoding died: a script must use it under "
            "`if __name__ == '__main__':`, and each worker needs about 1 GB of memory"
        ) from error
