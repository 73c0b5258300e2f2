"""Replaces everything that an episode did not reveal by noise."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Int

from autotts_jax.core.view import UNREVEALED, View
from autotts_jax.replay.matrix import ProbeMatrix
from autotts_jax.typing import Array

MOST_TOKENS = 50_000


class Revealed(NamedTuple):
    """What an episode has read and revealed of its branches.

    Attributes:
        depth: depth of each branch, 0 where unopened. Shape (W,).
        answers: whether the answer at a depth was revealed. Shape (W, K).
    """

    depth: Int[Array, " W"]
    answers: Bool[Array, "W K"]

    @classmethod
    def of(cls, view: View) -> Revealed:
        """Reads it off a view."""
        return _revealed(view)

    @classmethod
    def nothing(cls, width: int, max_depth: int) -> Revealed:
        """Makes it for the start of an episode."""
        return cls(np.zeros(width, np.int32), np.zeros((width, max_depth), bool))


@jax.jit
def _revealed(view: View) -> Revealed:
    return Revealed(view.depth, view.revealed_keys != UNREVEALED)


def scramble(
    matrix: ProbeMatrix,
    question: int,
    order: Int[np.ndarray, " W"],
    kept: Revealed,
    rng: np.random.Generator,
) -> tuple[ProbeMatrix, Int[np.ndarray, " V"]]:
    """Replaces everything in a matrix that an episode did not reveal by noise, and permutes answer ids.

    Deeper answers and signals, unopened branches, lengths and tokens of unfinished branches and the gold
    answer become noise. A controller that depends on what is revealed alone plays the same episode again.

    Returns:
        The matrix, and the new id of each old answer id.
    """
    answers, lengths, tokens = (
        np.array(array[question]) for array in (matrix.answers, matrix.lengths, matrix.tokens)
    )
    ids = rng.permutation(matrix.vocabulary).astype(np.int16)
    depth = np.zeros(matrix.num_branches, int)
    depth[order] = kept.depth
    revealed = np.zeros(answers.shape, bool)
    revealed[order] = kept.answers

    unfinished = depth <= lengths
    longest = answers.shape[1] - 1
    lengths = np.where(unfinished, rng.integers(np.clip(depth, 1, longest), longest + 1), lengths)
    tokens = np.where(unfinished, rng.integers(1, MOST_TOKENS, matrix.num_branches), tokens)
    noise = rng.integers(0, matrix.vocabulary, answers.shape).astype(np.int16)
    answers = np.where(revealed, np.where(answers < 0, answers, ids[answers]), noise)

    def scrambled_signal(values: Array) -> np.ndarray:
        recorded = np.array(values[question])
        most = np.nanmax(np.abs(recorded), initial=1.0)  # larger than one: on both sides of any threshold
        return np.where(revealed, recorded, rng.uniform(-most, most, recorded.shape).astype(recorded.dtype))

    def replaced(array: Array, row: Any) -> np.ndarray:
        array = np.array(array)
        array[question] = row
        return array

    scrambled = dataclasses.replace(
        matrix,
        answers=replaced(matrix.answers, answers),
        lengths=replaced(matrix.lengths, lengths),
        tokens=replaced(matrix.tokens, tokens),
        gold=replaced(matrix.gold, rng.integers(0, matrix.vocabulary)),
        signals={
            name: replaced(values, scrambled_signal(values))
            for name, values in sorted(matrix.signals.items())
        },
    )
    return scrambled, ids
