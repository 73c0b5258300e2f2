"""Probe matrices without padding, as files hold them."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from autotts_jax.errors import DataError, InputWarning
from autotts_jax.replay.dataset import EXACT, Cell, ProbeDataset, Question
from autotts_jax.replay.encoding import MAX_ANSWERS
from autotts_jax.replay.matrix import MAX_ENTRIES, NONE, ProbeMatrix
from autotts_jax.replay.signals import bad_name, first_gap
from autotts_jax.replay.spelling import ERROR

MAX_TOKENS = int(np.iinfo(np.int32).max)
"""The most tokens that all branches of a question together may have."""

MAX_BRANCHES = int(np.iinfo(np.int16).max)
"""The most branches of a question; orders number them."""


@dataclasses.dataclass(frozen=True)
class FlatMatrix:
    """The arrays of a `ProbeMatrix` without padding.

    R is the number of recorded branches over all questions, S the number of their readable depths.

    Attributes:
        answers: answer ids by question, branch and depth, int16. Shape (S,).
        lengths: probes of each branch, by question and branch, int32. Shape (R,).
        tokens: tokens of each branch, likewise, int32. Shape (R,).
        gold: id of the reference answer of each question, int16. Shape (Q,).
        interval: tokens between two probes, int32. Shape (Q,).
        cell: index into the cells, int32. Shape (Q,).
        signals: the signals by name, in the order of the answers, float16. Each of shape (S,).
    """

    answers: np.ndarray
    lengths: np.ndarray
    tokens: np.ndarray
    gold: np.ndarray
    interval: np.ndarray
    cell: np.ndarray
    signals: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)


def branches_per_question(cells: Sequence[Cell], cell: np.ndarray) -> np.ndarray:
    """Counts the recorded branches of each question.

    Args:
        cells: the cells.
        cell: index of each question's cell. Shape (Q,).

    Returns:
        The counts. Shape (Q,).
    """
    return np.array([cell.num_branches for cell in cells])[cell]


def to_dataset(
    file: object, flat: FlatMatrix, cells: Sequence[Cell], questions: Sequence[Question], encoding: str
) -> ProbeDataset:
    """Makes a dataset, and checks what every command relies on, whatever format the data comes from.

    Returns:
        The dataset.

    Raises:
        DataError: a cell has no question or a question occurs twice, a text cannot be encoded, a gold answer
            is empty or not the one that its id means, there are more branches, answers or tokens than can be
            counted, the matrix is too large when it is padded, or a signal has a wrong name or is not finite.
    """
    _check(file, flat, cells, questions, encoding)
    _warn_of_lengths(file, flat, cells)
    matrix = pad(flat, cells, questions)
    if gap := first_gap(matrix):
        raise DataError(file, gap.problem, gap.question, gap.branch)
    return ProbeDataset(matrix, tuple(questions), tuple(cells), encoding)


def _check(
    file: object, flat: FlatMatrix, cells: Sequence[Cell], questions: Sequence[Question], encoding: str
) -> None:
    if problem := bad_name(flat.signals):
        raise DataError(file, problem)
    for cell, count in zip(cells, np.bincount(flat.cell, minlength=len(cells)), strict=True):
        if not count:
            raise DataError(file, f"the cell {cell.name} has no question; leave the cell out")
        if cell.num_branches > MAX_BRANCHES:
            raise DataError(
                file,
                f"the cell {cell.name} has {cell.num_branches:,} branches; leave out all but "
                f"{MAX_BRANCHES:,}",
            )
        if not _encodable(cell.model, cell.benchmark, cell.source):
            raise DataError(file, f"the cell {cell.name} has a name that is not UTF-8; rename it")
    branches = branches_per_question(cells, flat.cell)
    shape = len(questions), int(branches.max()), int(flat.lengths.max()) + 1
    if math.prod(shape) * (1 + len(flat.signals)) > MAX_ENTRIES:
        arrays = f" × {1 + len(flat.signals)} arrays, the answers and signals," if flat.signals else ","
        raise DataError(
            file,
            f"{shape[0]:,} questions × {shape[1]:,} branches × {shape[2]:,} depths{arrays} as many as its "
            f"longest branch has, are more than {MAX_ENTRIES:,}; split it, or leave out what is so long",
        )
    reach = np.maximum(flat.tokens, flat.interval.repeat(branches) * (flat.lengths.astype(np.int64) + 1))
    longest = np.maximum.reduceat(reach, np.cumsum(branches) - branches)
    seen: dict[tuple[int, int | str], int] = {}
    for q, question in enumerate(questions):
        if not 0 <= question.index <= MAX_TOKENS:
            raise DataError(file, f"its index {question.index:.3g} is not in 0 … {MAX_TOKENS}; correct it", q)
        unique: dict[str, int | str] = {"index": question.index, "text": question.text}
        for name, value in unique.items():
            first = seen.setdefault((int(flat.cell[q]), value), q)
            if first != q:
                raise DataError(file, f"the same {name} as question {first}; keep one of them", q)
        if not question.gold.strip():
            raise DataError(file, "unknown gold: it is empty; give one, or leave the question out", q)
        if question.gold == ERROR:  # lest branches without an answer be right
            raise DataError(
                file,
                f"unknown gold: it is {ERROR}, which stands for none; give one, or leave the question out",
                q,
            )
        if len(question.vocabulary) > MAX_ANSWERS:
            raise DataError(
                file, f"{len(question.vocabulary)} distinct answers, where {MAX_ANSWERS} are possible", q
            )
        if not _encodable(question.text, question.gold, *question.vocabulary):
            raise DataError(file, "holds half of a surrogate pair (\\ud800 to \\udfff); remove it", q)
        if encoding == EXACT and question.vocabulary[flat.gold[q]] != question.gold:
            meant = question.vocabulary[flat.gold[q]]
            raise DataError(
                file, f"its gold answer is {question.gold!r}, but its id means {meant!r}; correct one", q
            )
        if int(branches[q]) * int(longest[q]) > MAX_TOKENS:
            raise DataError(
                file,
                f"{branches[q]:,} branches of up to {longest[q]:,} tokens are more than the {MAX_TOKENS:,} "
                "that can be counted; leave out branches",
                q,
            )


def _warn_of_lengths(file: object, flat: FlatMatrix, cells: Sequence[Cell]) -> None:
    """Warns where branches have far more or fewer tokens than their probes take: they play as too short."""
    interval = flat.interval.repeat(branches_per_question(cells, flat.cell)).astype(np.int64)
    probes, tokens = flat.lengths.astype(np.int64), flat.tokens.astype(np.int64)
    off = (tokens > 2 * interval * (probes + 1)) | (2 * tokens < interval * (probes - 1))
    if off.any():
        branch = int(np.argmax(off))
        warnings.warn(
            f"{file}: {off.sum():,} of {len(off):,} branches have tokens that their probes contradict, as "
            f"{tokens[branch]:,} tokens with {probes[branch]:,} probes, one every {interval[branch]:,}; "
            "controllers that stop early are played wrongly on them. If there are no probes, import the "
            "answers and lengths (autotts-jax data import)",
            InputWarning,
            stacklevel=3,
        )


def _encodable(*texts: str) -> bool:
    """Whether the texts can be written to a file."""
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        return False
    return True


def pad(flat: FlatMatrix, cells: Sequence[Cell], questions: Sequence[Question]) -> ProbeMatrix:
    """Pads flat arrays to a matrix.

    Returns:
        The matrix, with the branches of the largest cell and the depths of the longest branch.
    """
    recorded = _recorded(cells, flat.cell)
    lengths = _spread(flat.lengths, recorded, 0)
    readable = _readable(recorded, lengths)
    return ProbeMatrix(
        answers=_spread(flat.answers, readable, NONE),
        lengths=lengths,
        tokens=_spread(flat.tokens, recorded, 0),
        gold=flat.gold,
        interval=flat.interval,
        cell=flat.cell,
        vocabulary=max(len(question.vocabulary) for question in questions),
        signals={name: _spread(values, readable, np.nan) for name, values in flat.signals.items()},
    )


def flatten(dataset: ProbeDataset) -> FlatMatrix:
    """Removes the padding of a dataset's matrix; the inverse of `pad`.

    Returns:
        NumPy arrays.
    """
    matrix: Any = jax.tree.map(np.asarray, dataset.matrix)
    recorded = _recorded(dataset.cells, matrix.cell)
    branches = recorded.shape[1]
    lengths = matrix.lengths[:, :branches]
    readable = _readable(recorded, lengths)

    def of_depths(values: np.ndarray) -> np.ndarray:
        return values[:, :branches, : readable.shape[2]][readable]

    return FlatMatrix(
        answers=of_depths(matrix.answers),
        lengths=lengths[recorded],
        tokens=matrix.tokens[:, :branches][recorded],
        gold=matrix.gold,
        interval=matrix.interval,
        cell=matrix.cell,
        signals={name: of_depths(values) for name, values in matrix.signals.items()},
    )


def _recorded(cells: Sequence[Cell], cell: np.ndarray) -> np.ndarray:
    """Which branches are recorded, the others being padding. Shape (Q, N)."""
    branches = branches_per_question(cells, cell)
    return np.arange(branches.max()) < branches[:, None]


def _readable(recorded: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Which depths can be read. Shape (Q, N, K), K one more than the largest length."""
    return recorded[..., None] & (np.arange(lengths.max() + 1) <= lengths[..., None])


def _spread(values: np.ndarray, where: np.ndarray, padding: float) -> Any:
    padded = np.full(where.shape, padding, values.dtype)
    padded[where] = values
    return padded
