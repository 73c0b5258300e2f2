"""What a program's ``solve(question)`` is given: the released AutoTTS interface.

Source: AutoTTS (arXiv 2605.08083) and its released controllers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

NO_ANSWER = "ERR"
"""What a program is shown where a probe holds no answer that may vote."""

NEW, MORE, FULL, SEQUENTIAL_TOKENS, TOKENS, END = (action << 24 for action in range(6))
"""Actions: open a branch and read it to depth 1; read a branch one interval further; open a branch and read
it to its end; tell the tokens on the longest branch, and on all branches; end the episode. A request is an
action plus the number of its branch; `END` comes with the label of the answer, plus 1."""

BRANCHES = (1 << 24) - 1
"""The bits of a request that hold the branch."""

SHOWING = SEQUENTIAL_TOKENS
"""Requests below this one show an answer."""

REFUSED = -1
"""The reply to an action that exceeds the token budget."""

Ask = Callable[[int], int]
"""Makes a request; branches are numbered in opening order. The reply is tokens; or `REFUSED`; or
``2 (label + 1) + finished`` with the label of the branch's latest answer, -1 for no answer."""

Replies = Sequence[tuple[str, bool]]
"""The answer and whether it is final, as a program is shown them, for each reply."""


class BranchError(IndexError, ValueError):
    """No branch is left to open, or there is no opened branch of that index.

    The released interface names no class for this, so programs may catch either base.
    """


class BudgetError(BranchError):
    """The action would cost more than the token budget has left; nothing was read."""


class ProgramQuestion:
    """One episode of one question.

    Branches are numbered in the order in which they are opened. Answers are shown as labels, which are equal
    where answers are and mean nothing outside the episode, or as they are spelled.
    """

    __slots__ = ("_ask", "_shown", "_table", "_width")

    def __init__(self, ask: Ask, table: Replies, width: int):
        self._ask = ask
        self._table = table
        self._width = width
        self._shown: list[tuple[str, bool]] = []

    @property
    def opened(self) -> int:
        """m, the number of opened branches."""
        return len(self._shown)

    def probe_new(self) -> tuple[str, int, bool]:
        """BRANCH, then PROBE.

        Returns:
            The first probe's answer, the branch's index, and whether the branch is finished.

        Raises:
            BranchError: every branch is open.
            BudgetError: an interval exceeds the budget.
        """
        answer, finished = self._open(NEW)
        return answer, len(self._shown) - 1, finished

    def probe_more(self, index: int) -> tuple[str, bool]:
        """CONTINUE, then PROBE; a finished branch repeats its final answer at no cost.

        Returns:
            The branch's latest answer, and whether the branch is finished.

        Raises:
            BranchError: no opened branch has this index.
            BudgetError: the interval exceeds the budget.
        """
        shown = self._shown
        if not 0 <= index < len(shown):
            raise BranchError(f"branch {index} is not open; {len(shown)} are")
        latest = shown[index]
        if latest[1]:
            return latest
        reply = self._ask(MORE + index)
        if reply == REFUSED:
            raise BudgetError(f"another interval of branch {index} exceeds the token budget")
        shown[index] = latest = self._table[reply]
        return latest

    def get_new_branch_final_answer(self) -> str:
        """Opens a branch and reads it to its end at its T tokens (a full read).

        Returns:
            The final answer.

        Raises:
            BranchError: every branch is open.
            BudgetError: the branch exceeds the budget.
        """
        return self._open(FULL)[0]

    def get_seq_and_total_tokens(self) -> tuple[int, int]:
        """Tokens on the longest branch, and tokens on all branches together."""
        return self._ask(SEQUENTIAL_TOKENS), self._ask(TOKENS)

    def _open(self, action: int) -> tuple[str, bool]:
        index = len(self._shown)
        if index == self._width:
            raise BranchError(f"no branch is left to open; all {index} are open")
        reply = self._ask(action + index)
        if reply == REFUSED:
            raise BudgetError("another branch exceeds the token budget")
        latest = self._table[reply]
        self._shown.append(latest)
        return latest
