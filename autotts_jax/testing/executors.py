"""An executor that writes a recorded episode ahead of the controller, as a live one is written."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import numpy as np
from jaxtyping import Int

from autotts_jax.core.pool import ReplayPool
from autotts_jax.core.scrambling import MOST_TOKENS
from autotts_jax.core.stepping import Operation, ReplayExecutor, apply_operation
from autotts_jax.replay.matrix import NONE, ProbeMatrix


class WrittenAheadExecutor(ReplayExecutor):
    """Plays over a matrix that is written just ahead of the controller, as a live episode does.

    Before an operation, what it can reach is copied from the recorded matrix. What was not read yet is not
    there: answers are missing, and branches are as long as they can be.

    Args:
        matrix: the recorded matrix.
        question: index of the question.
        order: the branch order.
        spell: gives the text of an answer id, None for no answer.
    """

    def __init__(
        self,
        matrix: ProbeMatrix,
        question: int,
        order: Int[np.ndarray, " W"],
        spell: Callable[[int], str | None],
    ):
        self._recorded = matrix
        self._question = question
        self._order = order
        self._written = dataclasses.replace(
            matrix,
            answers=np.full_like(matrix.answers, NONE),
            lengths=np.full_like(matrix.lengths, matrix.max_depth - 1),
            tokens=np.full_like(matrix.tokens, MOST_TOKENS),
            gold=np.full_like(matrix.gold, NONE),
            signals={name: np.full_like(values, np.nan) for name, values in matrix.signals.items()},
        )
        pool = ReplayPool.begin(jax.device_put(self._written), question, order, equivalence=False)
        super().__init__(pool, spell)

    def carry_out(self, operation: Operation) -> None:
        """Writes what an operation reads, and carries it out."""
        reached = np.asarray(apply_operation(self.pool, operation).depth)
        written, recorded, question = self._written, self._recorded, self._question
        for branch, depth in zip(self._order.tolist(), reached.tolist(), strict=True):
            length = int(recorded.lengths[question, branch])
            known = min(depth, length + 1)
            written.answers[question, branch, :known] = recorded.answers[question, branch, :known]
            for name, values in recorded.signals.items():
                written.signals[name][question, branch, :known] = values[question, branch, :known]
            if depth > length:
                written.lengths[question, branch] = length
                written.tokens[question, branch] = recorded.tokens[question, branch]
        # A copy, which nobody writes to while it is on its way to the device.
        self.pool = _with_longer_matrix(self.pool, jax.tree.map(np.copy, written))
        super().carry_out(operation)


_with_longer_matrix = jax.jit(ReplayPool.with_longer_matrix)
