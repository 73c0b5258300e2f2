"""Released programs run live: their questions' branches are written by a language model."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from autotts_jax.collect.answers import Extractor, extractor
from autotts_jax.collect.engine import Cancelled, Engine
from autotts_jax.collect.grading import AnswerBook, Grader
from autotts_jax.collect.trajectories import Sampling, Trajectories, last_depth
from autotts_jax.core.pool import StopReason
from autotts_jax.core.rollout import check_budget
from autotts_jax.errors import InputError
from autotts_jax.live.answer import Answer
from autotts_jax.policies.programs import BudgetError, QuestionRecord, ReplayQuestion, load_program
from autotts_jax.replay.equivalence import ERROR
from autotts_jax.user_code import last_lines


def answer(
    engine: Engine,
    question: str,
    program: str,
    config: Mapping[str, Any] | None,
    grader: Grader,
    *,
    sampling: Sampling | None = None,
    answers: str | Extractor = "auto",
    max_branches: int = 64,
    budget: int | None = None,
    cancel: threading.Event | None = None,
) -> Answer:
    """Answers a question with a released program, as `collect.live.answer` does with a controller.

    Args:
        program: the class, as `load_program` takes it.
        config: what it is constructed with.

    Raises:
        Cancelled: ``cancel`` was set.
        EngineError: the engine cannot go on.
        InputError: the program cannot be loaded or raised an exception, or the question is too long.
    """
    check_budget(budget)
    sampling = sampling or Sampling()
    solver = load_program(program)(None if config is None else dict(config))
    trajectories = Trajectories(engine, question, sampling, extractor(answers), cancel)
    asked = LiveQuestion(trajectories, sampling, AnswerBook(grader), max_branches, budget)
    try:
        found = solver.solve(asked)
    except (Cancelled, InputError):
        raise
    except Exception as error:
        raise InputError(f"program {program!r} failed:\n{last_lines(error)}") from error
    longest, tokens = asked.get_seq_and_total_tokens()
    return Answer(
        answer=found if isinstance(found, str) and found != ERROR else None,
        tokens=tokens,
        usage=trajectories.usage,
        sequential_tokens=longest,
        stop=StopReason.DECIDED,
        rounds=0,
        decisions=[],
        texts=[trajectories.text(b) for b in range(asked.opened)],
    )


class LiveQuestion(ReplayQuestion):
    """What a program's ``solve`` is given: a replay of a record that is written just ahead of it."""

    __slots__ = ("_book", "_lengths", "_limit", "_shown", "_spelling", "_trajectories")

    def __init__(
        self, trajectories: Trajectories, sampling: Sampling, book: AnswerBook, width: int, budget: int | None
    ):
        self._shown: list[list[str]] = [[] for _ in range(width)]
        self._lengths = [0] * width
        record = QuestionRecord("", 0, self._shown, self._lengths, sampling.interval, None)
        super().__init__(record, range(width), budget)
        self._trajectories = trajectories
        self._limit = sampling.max_tokens
        self._book = book
        self._spelling: dict[int, str] = {}

    def probe_new(self) -> tuple[str, int, bool]:
        """As in replay."""
        branch = self._next_branch()
        self._check_left(self._interval)
        self._write(branch, 1)
        return super().probe_new()

    def probe_more(self, index: int) -> tuple[str, bool]:
        """As in replay."""
        if 0 <= index < self.opened and self.depth[index] < len(self._shown[index]):
            self._check_left(self._interval)
            self._write(index, self.depth[index] + 1)
        return super().probe_more(index)

    def get_new_branch_final_answer(self) -> str:
        """As in replay."""
        branch = self._next_branch()
        self._check_left(self._limit)
        self._write(branch, last_depth(self._limit, self._interval), probe=False)
        return super().get_new_branch_final_answer()

    def _check_left(self, cost: int) -> None:
        if cost > self._left:
            raise BudgetError(f"up to {cost} more tokens exceed the budget, which has {self._left} left")

    def _write(self, branch: int, depth: int, probe: bool = True) -> None:
        """Has a branch written up to a depth, and enters what it shows."""
        written = self._trajectories
        written.read({branch: depth}, probe)
        shown = [written.at(branch, k) for k in range(1, depth + 1)]
        answers = [self._spelled(probe.answer) if probe else "" for probe in shown]
        length = len(written[branch].tokens)
        if written[branch].ended:
            end = last_depth(length, self._interval)
            # A branch that ends within its first interval shows its answer there, and ends at the next.
            self._shown[branch][:] = (answers + answers[-1:])[:end]
            self._lengths[branch] = length
        else:
            self._shown[branch][:] = [*answers, ""]  # there is more to come

    def _spelled(self, answer: str) -> str:
        """Answers that are equal, spelled alike: programs compare strings."""
        (label,) = self._book.ids([answer])
        return self._spelling.setdefault(label, answer)
