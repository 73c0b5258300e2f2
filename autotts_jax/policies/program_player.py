"""Released programs as players: on recorded questions in worker processes, elsewhere over an executor."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from autotts_jax.core.pool import StopReason
from autotts_jax.core.stepping import Decision, Ended, Executor, Operation, Stepper
from autotts_jax.errors import InputError
from autotts_jax.policies.player import Play, Player
from autotts_jax.policies.programs import (
    NO_ANSWER,
    RESULT,
    BranchError,
    BudgetError,
    evaluate_program,
    load_program,
    program_episodes,
    question_records,
)
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.replay.matrix import NONE
from autotts_jax.replay.orders import BranchOrders
from autotts_jax.user_code import last_lines


@dataclasses.dataclass(frozen=True)
class ProgramPlayer(Player):
    """A released program: a class ``X(config=None)`` with ``solve(question)``.

    Attributes:
        name: the name in results.
        program: the class, as `autotts_jax.policies.programs.load_program` takes it.
        values: β of each setting, which the class is given as ``{"beta": β}``; None for no configuration.
    """

    name: str
    program: str
    values: tuple[float | None, ...] = (None,)

    def check(self, width: int, budget: int | None = None) -> None:
        """Checks that there is no budget, of which programs know nothing."""
        super().check(width, budget)
        if budget is not None:
            raise InputError(
                f"{self.name}: released programs know no token budget; leave the budget out for them"
            )

    def play(
        self,
        dataset: ProbeDataset,
        orders: BranchOrders,
        *,
        budget: int | None = None,
        processes: int = 1,
        on_progress: Callable[[int], None] | None = None,
    ) -> Play:
        """Runs the program over all episodes, in worker processes where there are several."""
        self.check(orders.width, budget)
        began = time.perf_counter()
        records = question_records(dataset)
        table = np.asarray(orders.table)[np.asarray(orders.group)].swapaxes(0, 1)
        episodes = program_episodes(table, range(orders.num_rows))
        parts = []
        for number, value in enumerate(self.values):
            before = number * len(episodes)
            report = on_progress and functools.partial(_report_after, before, on_progress)
            parts.append(evaluate_program(self.program, _config(value), records, episodes, processes, report))
        played = np.stack(parts).reshape(len(parts), orders.num_rows, len(dataset))
        return Play(
            self,
            **{name: played[name] for name in RESULT.names or ()},
            rounds=None,
            stop_reason=None,
            compile_seconds=0.0,
            run_seconds=time.perf_counter() - began,
        )

    def play_episode(
        self, executor: Executor, on_decision: Callable[[Decision], None] | None = None
    ) -> Ended:
        """Lets the program solve one question."""
        self.check_single()
        question = SteppedQuestion(Stepper(executor, on_decision))
        program = load_program(self.program)
        try:
            found = program(_config(self.values[0])).solve(question)
        except (Exception, SystemExit) as error:
            if question.failure is None:
                raise InputError(f"program {self.program!r} failed:\n{last_lines(error)}") from error
        if question.failure is not None:  # whatever the program made of it
            raise question.failure
        answer = found if isinstance(found, str) and found != NO_ANSWER else None
        answers = executor.answers(range(question.opened))
        leader = answers.index(answer) if answer is not None and answer in answers else NONE
        sequential_tokens, _ = question.get_seq_and_total_tokens()
        return Ended(answer, leader, StopReason.DECIDED, 0, sequential_tokens)

    def settings(self) -> tuple[Player, ...]:
        """Gives a player for each β."""
        return tuple(dataclasses.replace(self, values=(value,)) for value in self.values)


class SteppedQuestion:
    """What a program's ``solve`` is given: one episode, whose operations an executor carries out.

    `autotts_jax.policies.programs.ReplayQuestion` documents the methods.

    Attributes:
        failure: the exception that ended an operation; None while all went well.
    """

    def __init__(self, stepper: Stepper):
        """Starts an episode.

        Args:
            stepper: passes operations to the executor; nothing is opened yet.
        """
        self._stepper = stepper
        self.failure: BaseException | None = None

    @property
    def opened(self) -> int:
        """m, the number of opened branches."""
        return int(self._pool.opened)

    def probe_new(self) -> tuple[str, int, bool]:
        """BRANCH, then PROBE."""
        index = self._open(Operation("open", np.asarray(1)))
        return self._answer(index), index, self._finished(index)

    def probe_more(self, index: int) -> tuple[str, bool]:
        """CONTINUE, then PROBE; a finished branch repeats its final answer at no cost."""
        if not 0 <= index < self.opened:
            raise BranchError(f"branch {index} is not open; {self.opened} are")
        if not self._finished(index):
            depth = int(self._pool.depth[index])
            one = np.zeros(self._pool.width, np.int32)
            one[index] = 1
            self._carry_out(Operation("advance", one))
            if int(self._pool.depth[index]) == depth:
                raise BudgetError("another interval exceeds the budget")
        return self._answer(index), self._finished(index)

    def get_new_branch_final_answer(self) -> str:
        """Opens a branch and reads it to its end at its T tokens (a full read)."""
        return self._answer(self._open(Operation("read", np.asarray(1))))

    def get_seq_and_total_tokens(self) -> tuple[int, int]:
        """Tokens on the longest branch, and tokens on all branches together."""
        return int(np.max(self._pool.branch_tokens)), int(self._pool.tokens)

    @property
    def _pool(self) -> Any:
        return self._stepper.executor.pool

    def _open(self, operation: Operation) -> int:
        """Opens a branch, and gives its index."""
        index = self.opened
        if index == self._pool.width:
            raise BranchError(f"no branch is left to open; all {index} are open")
        self._carry_out(operation)
        if self.opened == index:
            raise BudgetError("another branch exceeds the budget")
        return index

    def _carry_out(self, operation: Operation) -> None:
        try:
            self._stepper.carry_out(operation)
        except BaseException as error:
            self.failure = error
            raise

    def _answer(self, index: int) -> str:
        (answer,) = self._stepper.executor.answers([index])
        return NO_ANSWER if answer is None else answer

    def _finished(self, index: int) -> bool:
        return bool(self._pool.finished[index])


def _config(value: float | None) -> dict[str, float] | None:
    return None if value is None else {"beta": value}


def _report_after(before: int, on_progress: Callable[[int], None], done: int) -> None:
    """Reports progress of a part that has others before it."""
    on_progress(before + done)
