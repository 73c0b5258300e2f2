"""Statistics that describe a cell of a dataset."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from autotts_jax.errors import InputError
from autotts_jax.replay.dataset import EXACT, ProbeDataset
from autotts_jax.replay.equivalence import NONE
from autotts_jax.replay.spelling import ERROR


def cell_statistics(dataset: ProbeDataset, cell: int) -> dict[str, float | int]:
    """Computes statistics of the questions of one cell.

    Args:
        dataset: a dataset of any cells and either encoding.
        cell: index into ``dataset.cells``.

    Returns:
        The statistics by name; shares are between 0 and 1:

        - ``questions``; ``branches`` of each; ``interval``, the tokens between two probes;
        - ``probes_mean``, ``probes_min``, ``probes_max`` of a branch, and likewise of its ``tokens``;
        - ``answers_max``, ``answers_median``: distinct answers to a question, in probes and finals;
        - ``error_share``: probes without an answer, ``ERR`` under `EXACT` and `NONE` under `EQUIV`, or finals
          where a cell has no probes;
        - ``overrun_share``: branches whose probes extend beyond their tokens, interval·L > T;
        - ``mean@1``: finals that are right;
        - ``label_accuracy``: questions whose majority of all finals is right, ties to the earlier branch;
        - ``majority_ratio``: finals that are the majority, of all finals, those without an answer included;
        - ``reward_accuracy``: finals that agree with the majority if they are right, and only then;
        - ``pass@n``: questions with a right final among all their branches;
        - ``settled_first``, ``settled_middle``, ``settled_last``: probes in that tenth of their branch (its
          length over ten, rounded up) that equal its final answer;
        - ``length_correlation``: Pearson correlation between a branch's number of probes and whether it is
          right, mean over the questions where both vary; NaN if there are none;
        - for each signal ``S``: ``S_mean``, ``S_min``, ``S_max`` over all depths, and ``S_auroc``, the
          probability that a right final has a larger value than a wrong one of the same question (ties count
          half), mean over the questions that have both; NaN if there are none.

    Raises:
        InputError: there is no such cell, or the dataset has none of its questions.
    """
    if not 0 <= cell < len(dataset.cells):
        raise InputError(f"no cell {cell}; the dataset has cells 0 to {len(dataset.cells) - 1}")
    index = dataset.cell_questions(cell)
    if not len(index):
        raise InputError(f"the dataset has no question of cell {dataset.cells[cell].name}; select some")
    branches = dataset.cells[cell].num_branches
    matrix: Any = jax.tree.map(lambda leaf: np.asarray(leaf)[index], dataset.matrix)
    answers = matrix.answers[:, :branches]
    lengths, tokens = matrix.lengths[:, :branches], matrix.tokens[:, :branches]
    finals = np.take_along_axis(answers, lengths[..., None], axis=2)
    right = finals[..., 0] == matrix.gold[:, None]
    depth = np.arange(answers.shape[2])
    recorded = depth < lengths[..., None] if dataset.cells[cell].probes else depth == lengths[..., None]
    errors = answers == _error_ids(dataset, index)[:, None, None]
    distinct = _distinct(answers, depth <= lengths[..., None])
    majority = np.array([_majority(row) for row in finals[..., 0]])
    elected = (finals[..., 0] == majority[:, None]) & (majority != NONE)[:, None]
    return {
        "questions": len(index),
        "branches": branches,
        "interval": int(matrix.interval[0]),
        **_spread("probes", lengths),
        **_spread("tokens", tokens),
        "answers_max": int(distinct.max()),
        "answers_median": float(np.median(distinct)),
        "error_share": float(errors[recorded].mean()),
        "overrun_share": float(np.mean(matrix.interval[:, None] * lengths > tokens)),
        "mean@1": float(right.mean()),
        "label_accuracy": float(np.mean(majority == matrix.gold)),
        "majority_ratio": float(elected.mean()),
        "reward_accuracy": float((elected == right).mean()),
        "pass@n": float(right.any(axis=1).mean()),
        **_settled(answers == finals, lengths[..., None]),
        "length_correlation": _length_correlation(lengths, right),
        **{
            statistic: value
            for name, values in matrix.signals.items()
            for statistic, value in _of_signal(name, values[:, :branches], lengths, right).items()
        },
    }


class QuestionStatistics(NamedTuple):
    """Statistics of the branches of one question.

    Attributes:
        accuracy: share of finals that are right, 0 to 1.
        error_share: share of the recorded answers, probes and finals, that are none, 0 to 1.
    """

    accuracy: float
    error_share: float


def question_statistics(dataset: ProbeDataset) -> list[QuestionStatistics]:
    """Computes statistics of the branches of each question.

    Args:
        dataset: a dataset of any cells and either encoding.

    Returns:
        The statistics of each question, in the order of the dataset.
    """
    index = np.arange(len(dataset))
    matrix: Any = jax.tree.map(np.asarray, dataset.matrix)
    errors = matrix.answers == _error_ids(dataset, index)[:, None, None]
    found = []
    for q in index:
        branches = dataset.cells[matrix.cell[q]].num_branches
        lengths, answers = matrix.lengths[q, :branches], matrix.answers[q, :branches]
        finals = answers[np.arange(branches), lengths]
        depth = np.arange(answers.shape[1])
        readable = depth <= lengths[:, None]
        if not dataset.cells[matrix.cell[q]].probes:
            readable = depth == lengths[:, None]
        share = float(errors[q, :branches][readable].mean())
        found.append(QuestionStatistics(float((finals == matrix.gold[q]).mean()), share))
    return found


def _spread(name: str, values: np.ndarray) -> dict[str, float | int]:
    return {
        f"{name}_mean": float(values.mean()),
        f"{name}_min": int(values.min()),
        f"{name}_max": int(values.max()),
    }


def _of_signal(
    name: str, values: np.ndarray, lengths: np.ndarray, right: np.ndarray
) -> dict[str, float | int]:
    """Statistics of a signal, ``values`` (q, N, K), on branches with ``lengths`` (q, N)."""
    values = values.astype(np.float64)
    of_finals = np.take_along_axis(values, lengths[..., None], axis=2)[..., 0]
    larger = [
        np.mean((hits > misses) + (hits == misses) / 2)
        for row, good in zip(of_finals, right, strict=True)
        if good.any() and not good.all()
        for hits, misses in [(row[good][:, None], row[~good])]
    ]
    shown = values[np.arange(values.shape[2]) <= lengths[..., None]]
    return {
        f"{name}_mean": float(shown.mean()),
        f"{name}_min": float(shown.min()),
        f"{name}_max": float(shown.max()),
        f"{name}_auroc": float(np.mean(larger)) if larger else float("nan"),
    }


def _error_ids(dataset: ProbeDataset, index: np.ndarray) -> np.ndarray:
    """The id of "no answer" in each question, an unused one if no branch gave it. Shape (q,)."""
    if dataset.encoding != EXACT:
        return np.full(len(index), NONE)
    vocabularies = [dataset.questions[q].vocabulary for q in index]
    return np.array([words.index(ERROR) if ERROR in words else len(words) for words in vocabularies])


def _distinct(answers: np.ndarray, readable: np.ndarray) -> np.ndarray:
    """Distinct answers of each question. Shape (q,)."""
    return np.array([len(np.setdiff1d(a[r], NONE)) for a, r in zip(answers, readable, strict=True)])


def _majority(finals: np.ndarray) -> int:
    """The most frequent of N answers, the first of several; `NONE` never votes."""
    ids, first, counts = np.unique(finals[finals != NONE], return_index=True, return_counts=True)
    return int(ids[np.lexsort((first, -counts))[0]]) if len(ids) else NONE


def _settled(agrees: np.ndarray, lengths: np.ndarray) -> dict[str, float | int]:
    """Share of ``agrees`` (q, N, K) in three tenths of each branch; ``lengths`` is (q, N, 1)."""
    tenth = -(-lengths // 10)
    depth = np.arange(agrees.shape[2])
    starts = {"first": 0, "middle": (lengths - tenth) // 2, "last": lengths - tenth}
    return {
        f"settled_{name}": float(agrees[(depth >= start) & (depth < start + tenth)].mean())
        for name, start in starts.items()
    }


def _length_correlation(lengths: np.ndarray, right: np.ndarray) -> float:
    both_vary = (np.ptp(lengths, axis=1) > 0) & right.any(axis=1) & ~right.all(axis=1)
    found = [np.corrcoef(a, b)[0, 1] for a, b in zip(lengths[both_vary], right[both_vary], strict=True)]
    return float(np.mean(found)) if found else float("nan")
