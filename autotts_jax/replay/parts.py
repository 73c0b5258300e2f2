"""The parts that the benchmark deals questions into: to train on, to choose by, and to test on."""

from __future__ import annotations

import hashlib

import numpy as np
from jaxtyping import Shaped

from autotts_jax.checks import check_choice
from autotts_jax.errors import InputError
from autotts_jax.replay.dataset import ProbeDataset

PARTS = {"train": 0.4, "validation": 0.2, "test": 0.4}
"""The parts, and the share of a benchmark's distinct questions in each."""

FEWEST = 5
"""The fewest distinct questions that leave no part empty."""


def part_of(dataset: ProbeDataset) -> Shaped[np.ndarray, " Q"]:
    """Assigns each question to a part.

    The distinct questions of each benchmark are ordered by the SHA-256 of their text: the first two fifths
    are ``train``, the next fifth ``validation``, the others ``test``. So the part of a question depends on
    the questions of its benchmark alone, not on models, on their order or on a seed; all copies of a question
    are in the same part. A text in several benchmarks has the part of the first one by name.

    Args:
        dataset: the questions.

    Returns:
        The name of each question's part.

    Raises:
        InputError: a benchmark has fewer than `FEWEST` distinct questions.
    """
    parts: dict[str, str] = {}
    cell = np.asarray(dataset.matrix.cell)
    for benchmark in sorted({one.benchmark for one in dataset.cells}):
        texts = {
            question.text
            for question, of_cell in zip(dataset.questions, cell, strict=True)
            if dataset.cells[of_cell].benchmark == benchmark
        }
        if len(texts) < FEWEST:
            raise InputError(
                f"benchmark {benchmark!r} has {len(texts)} distinct questions, but a split into "
                f"{', '.join(PARTS)} needs at least {FEWEST}; give more questions"
            )
        ordered = sorted(texts, key=lambda text: hashlib.sha256(text.encode()).digest())
        ends = np.round(np.cumsum(list(PARTS.values())) * len(texts)).astype(int)
        for name, begin, end in zip(PARTS, [0, *ends], ends, strict=False):
            for text in ordered[begin:end]:
                parts.setdefault(text, name)
    return np.array([parts[question.text] for question in dataset.questions])


def select_part(dataset: ProbeDataset, part: str) -> ProbeDataset:
    """Selects the questions of a part.

    Args:
        dataset: the questions of whole benchmarks.
        part: a key of `PARTS`.

    Returns:
        A dataset of these questions.

    Raises:
        InputError: there is no such part, or `part_of` cannot deal the questions.
    """
    check_choice("part", part, PARTS)
    return dataset.select(np.flatnonzero(part_of(dataset) == part))
