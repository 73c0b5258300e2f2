"""The parent's books of a sealed program: what an episode has opened, read and been charged.

The decision process and its cost are those of `autotts_jax.core.mdp`, here over plain Python lists: a program
takes one action at a time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from autotts_jax.policies.sealed.question import (
    BRANCHES,
    FULL,
    MORE,
    NEW,
    REFUSED,
    SEQUENTIAL_TOKENS,
    TOKENS,
)
from autotts_jax.replay.matrix import NONE, ProbeMatrix

MOST_FREE = 1000
"""Actions beyond the budget and questions for tokens that an episode may begin with."""

FREE_EACH = 10
"""How many more of them it may have for each interval that it has read, so that each episode ends."""


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
    """The questions of a probe matrix as records."""
    answers, lengths, tokens, interval = (
        np.asarray(array).tolist()
        for array in (matrix.answers, matrix.lengths, matrix.tokens, matrix.interval)
    )
    return [
        Record([ids[: end + 1] for ids, end in zip(rows, ends, strict=True)], total, delta)
        for rows, ends, total, delta in zip(answers, lengths, tokens, interval, strict=True)
    ]


class Bounded:
    """Bounds the actions of an episode that read nothing, so that each episode ends."""

    __slots__ = ("_free",)

    def __init__(self) -> None:
        self._free = 0

    @property
    def intervals(self) -> int:
        """Intervals that the episode has read."""
        raise NotImplementedError

    def for_free(self, reply: int) -> int:
        """Counts an action that reads nothing, and passes its reply on.

        Raises:
            LedgerError: there were too many.
        """
        self._free += 1
        if self._free > MOST_FREE and self._free > MOST_FREE + FREE_EACH * self.intervals:
            raise LedgerError(
                f"more than {MOST_FREE} actions that read nothing, and {FREE_EACH} for each interval read"
            )
        return reply


class Ledger(Bounded):
    """The books of one episode.

    Attributes:
        depth: l_i, intervals read of each opened branch.
        answers: ids of the answers by label, numbered in the order in which the episode first saw them.
    """

    __slots__ = ("_full", "_left", "_opened", "_order", "_record", "_reply", "answers", "depth")

    def __init__(self, record: Record, order: Sequence[int], budget: int | None = None):
        super().__init__()
        self._record = record
        self._order = order
        self._left = budget
        self._opened: list[Sequence[int]] = []
        self._full: set[int] = set()
        self._reply = {NONE: 0}
        self.depth: list[int] = []
        self.answers: list[int] = []

    @property
    def intervals(self) -> int:
        """Intervals read."""
        return sum(self.depth)

    @property
    def branch_tokens(self) -> list[int]:
        """Tokens charged for each opened branch."""
        return [self._charge(index, depth, index in self._full) for index, depth in enumerate(self.depth)]

    @property
    def tokens(self) -> int:
        """Tokens charged."""
        return sum(self.branch_tokens)

    @property
    def sequential_tokens(self) -> int:
        """Tokens on the longest branch."""
        return max(self.branch_tokens, default=0)

    @property
    def probes(self) -> int:
        """Probes read: one of a branch that was read in full, one an interval of the others."""
        return sum(1 if index in self._full else depth for index, depth in enumerate(self.depth))

    def act(self, request: int) -> int:
        """Carries out an action.

        Returns:
            The reply, as `autotts_jax.policies.sealed.question.Ask` has it.

        Raises:
            LedgerError: there is no such action; the branch is finished, not open, or not the next one; or
                too many actions read nothing.
        """
        index = request & BRANCHES
        action = request - index
        if action == MORE:
            if index >= len(self.depth):
                raise LedgerError("a branch that is not open")
            answers, depth = self._opened[index], self.depth[index] + 1
            end = len(answers)
            if depth > end:
                raise LedgerError("a branch that is finished")
            if self._left is not None and self._refuses(self._left, index, depth, False):
                return self.for_free(REFUSED)
            self.depth[index] = depth
        elif action in (NEW, FULL):
            if index != len(self.depth) or index == len(self._order):
                raise LedgerError("a branch that is not the next to be opened")
            answers = self._record.answers[self._order[index]]
            end = len(answers)
            depth = 1 if action == NEW else end
            if self._left is not None and self._refuses(self._left, index, depth, action == FULL):
                return self.for_free(REFUSED)
            self._opened.append(answers)
            self.depth.append(depth)
            if action == FULL:
                self._full.add(index)
        elif action in (TOKENS, SEQUENTIAL_TOKENS):
            return self.for_free(self.tokens if action == TOKENS else self.sequential_tokens)
        else:
            raise LedgerError("an action that does not exist")
        found = answers[depth - 1]
        reply = self._reply.get(found)
        if reply is None:
            self.answers.append(found)
            self._reply[found] = reply = 2 * len(self.answers)
        return reply + 1 if depth == end else reply

    def answer(self, label: int) -> int:
        """Looks up the id of an answer.

        Returns:
            Its id; ``NONE`` where the episode has shown no such answer.
        """
        return self.answers[label] if 0 <= label < len(self.answers) else NONE

    def _charge(self, index: int, depth: int, full: bool) -> int:
        """Tokens that a branch costs at a depth: T when it was read in full, max(Δ·L, T) at its end else."""
        branch, interval = self._order[index], self._record.interval
        total, end = self._record.tokens[branch], len(self._record.answers[branch])
        if full:
            return total
        return interval * depth if depth < max(end, 2) else max(interval * (end - 1), total)

    def _refuses(self, left: int, index: int, depth: int, full: bool) -> bool:
        """Whether taking a branch to a depth costs more than is left; it is charged where it does not."""
        before = self._charge(index, depth - 1, False) if index < len(self.depth) else 0
        cost = self._charge(index, depth, full) - before
        if cost > left:
            return True
        self._left = left - cost
        return False
