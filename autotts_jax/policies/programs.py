"""The released AutoTTS interface: programs with ``solve(question)``, run unmodified.

A program is a Python class ``X(config=None)`` whose ``solve(question)`` returns an answer string. It reads
branches through ``probe_new``, ``probe_more`` and ``get_new_branch_final_answer`` (AutoTTS, arXiv 2605.08083,
and its released controllers). The decision process and its cost are those of `autotts_jax.core.mdp`, here
over plain Python lists.

Worker processes import this module, so it must not import JAX.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from autotts_jax.errors import InputError
from autotts_jax.user_code import last_lines, load_class

if TYPE_CHECKING:
    from autotts_jax.replay.dataset import ProbeDataset

NO_ANSWER = "ERR"
"""What a program is shown where a probe holds no answer that may vote."""

_Row = tuple[Any, ...]
"""The entries of `RESULT`."""

RESULT = np.dtype(
    [
        ("answer", object),
        ("correct", bool),
        ("tokens", np.int64),
        ("intervals", np.int64),
        ("probes", np.int64),
        ("sequential_tokens", np.int64),
        ("branches", np.int64),
    ]
)
"""One episode: the answer (None for "none") and whether it is right; tokens, intervals and probes charged;
the largest number of tokens on one branch; the number of opened branches."""

_MAX_CHUNK = 50


class BranchError(IndexError, ValueError):
    """No branch is left to open, or there is no opened branch of that index.

    The released interface names no class for this, so programs may catch either base.
    """


class BudgetError(BranchError):
    """The action would cost more than the token budget has left; nothing was read."""


@dataclasses.dataclass(frozen=True, slots=True)
class QuestionRecord:
    """A question's probes as plain strings, shared by all episodes of it.

    Attributes:
        cell: the (model, benchmark) pair that it belongs to.
        index: its position in the file that it came from.
        answers: for each of N branches the answers at its L + 1 readable depths, the final answer last.
        tokens: T, tokens of each branch when read to its end.
        interval: Δ, tokens between two probes.
        gold: the right answer as the branches spell it; None where no answer can be right.
    """

    cell: str
    index: int
    answers: Sequence[Sequence[str]]
    tokens: Sequence[int]
    interval: int
    gold: str | None


class ReplayQuestion:
    """One episode of one question: what a program's ``solve`` is given.

    Branches are numbered in the order in which they are opened.

    Attributes:
        depth: l_i, intervals of each opened branch.
        branch_tokens: tokens charged for each opened branch.
        probes: number of probes read.
    """

    __slots__ = ("_answers", "_interval", "_left", "_order", "_tokens", "branch_tokens", "depth", "probes")

    def __init__(self, record: QuestionRecord, order: Sequence[int], budget: int | None = None):
        """Starts an episode.

        Args:
            record: the question.
            order: the branches that may be opened, in opening order.
            budget: the most tokens that may be charged; None for no limit.
        """
        # Of the record only what is needed: the right answer is not within a program's reach.
        self._answers = record.answers
        self._tokens = record.tokens
        self._interval = record.interval
        self._order = order
        self._left = math.inf if budget is None else budget
        self.depth: list[int] = []
        self.branch_tokens: list[int] = []
        self.probes = 0

    @property
    def opened(self) -> int:
        """m, the number of opened branches."""
        return len(self.depth)

    @property
    def intervals(self) -> int:
        """Σ l_i, intervals read on all branches."""
        return sum(self.depth)

    def probe_new(self) -> tuple[str, int, bool]:
        """BRANCH, then PROBE.

        Returns:
            The first probe's answer, the branch's index, and whether the branch is finished.

        Raises:
            BranchError: every branch is open.
            BudgetError: an interval exceeds the budget.
        """
        answers = self._answers[self._next_branch()]
        self._open(1, self._interval)
        return answers[0], len(self.depth) - 1, len(answers) == 1

    def probe_more(self, index: int) -> tuple[str, bool]:
        """CONTINUE, then PROBE; a finished branch repeats its final answer at no cost.

        Returns:
            The branch's latest answer, and whether the branch is finished.

        Raises:
            BranchError: no opened branch has this index.
            BudgetError: the interval exceeds the budget.
        """
        if not 0 <= index < len(self.depth):
            raise BranchError(f"branch {index} is not open; {len(self.depth)} are")
        branch = self._order[index]
        answers = self._answers[branch]
        depth = self.depth[index]
        end = len(answers)
        if depth < end:
            depth += 1
            # The last interval brings the branch's charge from Δ·L to max(Δ·L, T).
            rest = self._tokens[branch] - self._interval * (end - 1)
            cost = self._interval if depth < end else max(rest, 0)
            self._spend(cost)
            self.depth[index] = depth
            self.branch_tokens[index] += cost
            self.probes += 1
        return answers[depth - 1], depth == end

    def get_new_branch_final_answer(self) -> str:
        """Opens a branch and reads it to its end at its T tokens (a full read).

        Returns:
            The final answer.

        Raises:
            BranchError: every branch is open.
            BudgetError: the branch exceeds the budget.
        """
        branch = self._next_branch()
        answers = self._answers[branch]
        self._open(len(answers), self._tokens[branch])
        return answers[-1]

    def get_seq_and_total_tokens(self) -> tuple[int, int]:
        """Tokens on the longest branch, and tokens on all branches together."""
        return max(self.branch_tokens, default=0), sum(self.branch_tokens)

    def _next_branch(self) -> int:
        index = len(self.depth)
        if index == len(self._order):
            raise BranchError(f"no branch is left to open; all {index} are open")
        return self._order[index]

    def _open(self, depth: int, cost: int) -> None:
        self._spend(cost)
        self.depth.append(depth)
        self.branch_tokens.append(cost)
        self.probes += 1

    def _spend(self, cost: int) -> None:
        if cost > self._left:
            raise BudgetError(f"{cost} more tokens exceed the budget, which has {self._left} left")
        self._left -= cost


def question_records(dataset: ProbeDataset) -> list[QuestionRecord]:
    """The questions of a dataset as records, in its order."""
    matrix = dataset.matrix
    records = []
    for row, question in enumerate(dataset.questions):
        cell = dataset.cells[int(matrix.cell[row])]
        lengths = matrix.lengths[row, : cell.num_branches].tolist()
        # The id of "no answer" is -1, hence the last entry.
        text = [*question.vocabulary, NO_ANSWER]
        ids = matrix.answers[row].tolist()
        records.append(
            QuestionRecord(
                cell=cell.name,
                index=question.index,
                answers=[[text[i] for i in ids[b][: length + 1]] for b, length in enumerate(lengths)],
                tokens=matrix.tokens[row, : cell.num_branches].tolist(),
                interval=int(matrix.interval[row]),
                gold=question.answer(int(matrix.gold[row])),
            )
        )
    return records


# --- programs -------------------------------------------------------------------------------------------


def load_program(path: str) -> type:
    """The class that ``path/to/file.py:ClassName`` or ``module.name:ClassName`` names.

    Raises:
        InputError: it cannot be loaded, or has no ``solve``.
    """
    program = load_class(path)
    if not callable(getattr(program, "solve", None)):
        raise InputError(f"class {path!r} is no released program: it has no method solve(question)")
    return program


# --- evaluation -----------------------------------------------------------------------------------------


class ProgramEpisode(NamedTuple):
    """One run of a program.

    Attributes:
        question: position of the question among the records.
        seed: the seed that the order was drawn from; it only names the episode.
        order: the branches that may be opened, in opening order, as Python integers.
    """

    question: int
    seed: int
    order: Sequence[int]


def program_episodes(orders: np.ndarray, seeds: Sequence[int]) -> list[ProgramEpisode]:
    """All questions under all seeds, the questions of the first seed first.

    Args:
        orders: branch orders. Shape (S, Q, W).
        seeds: S seeds.
    """
    return [
        ProgramEpisode(question, seed, order)
        for seed, of_questions in zip(seeds, orders.tolist(), strict=True)
        for question, order in enumerate(of_questions)
    ]


def evaluate_program(
    program: str,
    config: Mapping[str, Any] | None,
    records: Sequence[QuestionRecord],
    episodes: Sequence[ProgramEpisode],
    processes: int = 1,
    on_progress: Callable[[int], None] | None = None,
) -> np.ndarray:
    """Runs a program over episodes, each with an instance of its own.

    With several processes the calling script needs the usual ``if __name__ == "__main__"`` guard.

    Args:
        program: the class, as `load_program` takes it.
        config: what the class is constructed with, e.g. ``{"beta": 0.5}``; each instance gets a copy.
        records: the questions.
        episodes: what to run.
        processes: worker processes; 1 runs here.
        on_progress: called now and then with the number of episodes done.

    Returns:
        The episodes in order. An answer is right when it is the record's right answer; anything that is not a
        string is the answer "none". Structured array of `RESULT`, shape (len(episodes),).

    Raises:
        InputError: the program cannot be loaded or raised an exception, or the arguments do not fit together.
    """
    job = _Job(program, config, records)
    if processes < 1:
        raise InputError(f"processes must be at least 1, not {processes}")
    _check_orders(records, episodes)
    size = max(1, min(_MAX_CHUNK, len(episodes) // (4 * processes)))
    chunks = [episodes[first : first + size] for first in range(0, len(episodes), size)]
    parts = (
        (job(chunk) for chunk in chunks)
        if processes == 1
        else _run_in_workers(processes, (program, config, records), chunks)
    )
    results: list[_Row] = []
    with contextlib.closing(parts):
        for rows in parts:
            results += rows
            if on_progress is not None:
                on_progress(len(results))
    return np.array(results, RESULT)


def _check_orders(records: Sequence[QuestionRecord], episodes: Iterable[ProgramEpisode]) -> None:
    for question, seed, order in episodes:
        num_branches = len(records[question].answers)
        if order and not 0 <= min(order) <= max(order) < num_branches:
            raise InputError(
                f"the branch order of question {question}, seed {seed} leaves the range of the "
                f"question's branches, 0 to {num_branches - 1}"
            )


class _Job:
    """Runs chunks of episodes of one evaluation."""

    def __init__(self, program: str, config: Mapping[str, Any] | None, records: Sequence[QuestionRecord]):
        self._program = program
        self._class = load_program(program)
        self._config = config
        self._records = records

    def __call__(self, episodes: Iterable[ProgramEpisode]) -> list[_Row]:
        return [self._run(episode) for episode in episodes]

    def _run(self, episode: ProgramEpisode) -> _Row:
        record = self._records[episode.question]
        question = ReplayQuestion(record, episode.order)
        try:
            answer = self._class(None if self._config is None else dict(self._config)).solve(question)
        except (Exception, SystemExit) as error:
            raise InputError(
                f"program {self._program!r} failed on question {record.index} of {record.cell}, "
                f"seed {episode.seed}:\n{last_lines(error)}"
            ) from error
        if not isinstance(answer, str):
            answer = None
        correct = answer is not None and answer == record.gold
        sequential, total = question.get_seq_and_total_tokens()
        return answer, correct, total, question.intervals, question.probes, sequential, question.opened


def _run_in_workers(
    processes: int, job_arguments: tuple[Any, ...], chunks: Iterable[Sequence[ProgramEpisode]]
) -> Generator[list[_Row], None, None]:
    """The results of each chunk in order; when it is closed early or fails, the workers end at once."""
    others = set(multiprocessing.active_children())
    workers = set[BaseProcess]()
    executor = ProcessPoolExecutor(
        processes, multiprocessing.get_context("spawn"), _start_worker, job_arguments
    )
    try:
        with _interrupts_blocked():
            futures = deque(executor.submit(_run_in_worker, chunk) for chunk in chunks)
            workers = set(multiprocessing.active_children()) - others
        while futures:
            yield futures.popleft().result()
    except BaseException as error:
        # Not left to shutdown(): that waits for programs, which may be in a long solve or an endless one.
        for worker in workers:
            worker.terminate()
        if isinstance(error, BrokenProcessPool):
            raise InputError(
                "a worker process ended before its time: it ran out of memory, the program ended it, or the "
                "calling script has no 'if __name__ == \"__main__\"' guard; processes=1 shows which"
            ) from error
        raise
    finally:
        executor.shutdown(cancel_futures=True)


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Holds Ctrl-C back; processes started meanwhile never see it, as the parent alone answers it."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


_job: _Job
"""The job of a worker process."""


def _start_worker(*job_arguments: Any) -> None:
    global _job
    # For Windows, where Ctrl-C cannot be blocked from the start.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _job = _Job(*job_arguments)


def _end_with_parent() -> None:
    """Ends this worker when its parent is gone, even if that was killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _run_in_worker(episodes: Sequence[ProgramEpisode]) -> list[_Row]:
    return _job(episodes)
