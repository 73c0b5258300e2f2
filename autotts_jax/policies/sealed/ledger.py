"""The parent's books of a sealed program: what an episode has opened, read and been charged.

The decision process and its cost are those of `autotts_jax.core.mdp`, here over plain Python lists: a program
takes one action at a time.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from autotts_jax.policies.sealed.question import FULL, MORE, NEW, REFUSED, SEQUENTIAL_TOKENS, TOKENS
from autotts_jax.replay.matrix import NONE, ProbeMatrix

MOST_FREE = 100_000
"""Actions beyond the budget and questions for tokens that an episode may ask, so that each episode ends."""


class LedgerError(ValueError):
    """A program asked for what no program can ask for."""


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """The probes of a question, shared by all its episodes.

    Attributes:
        answers: for each branch the ids of its answers at its L + 1 readable depths, the final one last.
        tokens: T, tokens of each branch when read to its end.
        interval: Δ, tokens between two probes.
    """

    answers: Sequence[Sequence[int]]
    tokens: Sequence[int]
    interval: int


def records(matrix: ProbeMatrix) -> list[Record]:
    """The questions of a probe matrix as records.

    Args:
        matrix: the matrix.
    """
    answers, lengths, tokens, interval = (
        np.asarray(array).tolist()
        for array in (matrix.answers, matrix.lengths, matrix.tokens, matrix.interval)
    )
    return [
        Record([ids[: end + 1] for ids, end in zip(rows, ends, strict=True)], total, delta)
        for rows, ends, total, delta in zip(answers, lengths, tokens, interval, strict=True)
    ]


class Ledger:
    """The books of one episode.

    Args:
        record: the question.
        order: the branches that can be opened, in opening order.
        budget: the most tokens that may be charged; None for no limit.

    Attributes:
        depth: l_i, intervals read of each opened branch.
        branch_tokens: tokens charged for each opened branch.
        probes: probes read.
        answers: ids of the answers by label, numbered in the order in which the episode first saw them.
    """

    __slots__ = (
        "_free",
        "_label",
        "_left",
        "_order",
        "_record",
        "answers",
        "branch_tokens",
        "depth",
        "probes",
    )

    def __init__(self, record: Record, order: Sequence[int], budget: int | None = None):
        self._record = record
        self._order = order
        self._left = math.inf if budget is None else budget
        self._label = {NONE: NONE}
        self._free = 0
        self.depth: list[int] = []
        self.branch_tokens: list[int] = []
        self.probes = 0
        self.answers: list[int] = []

    @property
    def tokens(self) -> int:
        """Tokens charged."""
        return sum(self.branch_tokens)

    @property
    def sequential_tokens(self) -> int:
        """Tokens on the longest branch."""
        return max(self.branch_tokens, default=0)

    def act(self, action: int, index: int) -> int:
        """Carries out an action.

        Args:
            action: `NEW`, `MORE`, `FULL`, `SEQUENTIAL_TOKENS` or `TOKENS`.
            index: the branch, in opening order.

        Returns:
            The reply, as `autotts_jax.policies.sealed.question.Ask` has it.

        Raises:
            LedgerError: there is no such action; the branch is finished, not open, or not the next one; or
                too many actions read nothing.
        """
        record, opened = self._record, len(self.depth)
        if action == MORE:
            if not 0 <= index < opened:
                raise LedgerError("a branch that is not open")
            branch = self._order[index]
            answers, depth = record.answers[branch], self.depth[index] + 1
            end = len(answers)
            if depth > end:
                raise LedgerError("a branch that is finished")
            # The last interval brings the branch's charge from Δ·L to max(Δ·L, T).
            last = record.tokens[branch] - record.interval * (end - 1)
            cost = record.interval if depth < end else max(last, 0)
            if cost > self._left:
                return self._for_free(REFUSED)
            self.depth[index] = depth
            self.branch_tokens[index] += cost
        elif action in (NEW, FULL):
            if index != opened or opened == len(self._order):
                raise LedgerError("a branch that is not the next to be opened")
            branch = self._order[index]
            answers = record.answers[branch]
            end = len(answers)
            depth, cost = (1, record.interval) if action == NEW else (end, record.tokens[branch])
            if cost > self._left:
                return self._for_free(REFUSED)
            self.depth.append(depth)
            self.branch_tokens.append(cost)
        elif action in (TOKENS, SEQUENTIAL_TOKENS):
            return self._for_free(self.tokens if action == TOKENS else self.sequential_tokens)
        else:
            raise LedgerError("an action that does not exist")
        self._left -= cost
        self.probes += 1
        found = answers[depth - 1]
        label = self._label.get(found)
        if label is None:
            self._label[found] = label = len(self.answers)
            self.answers.append(found)
        return 2 * (label + 1) + (depth == end)

    def answer(self, label: int) -> int:
        """Looks up the id of an answer.

        Args:
            label: its label.

        Returns:
            Its id; ``NONE`` where the episode has shown no such answer.
        """
        return self.answers[label] if 0 <= label < len(self.answers) else NONE

    def _for_free(self, reply: int) -> int:
        self._free += 1
        if self._free > MOST_FREE:
            raise LedgerError(f"more than {MOST_FREE} actions that read nothing in one episode")
        return reply
