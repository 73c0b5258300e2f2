"""Programs of the released interface in this process: what sealed and compiled runs are timed against.

Plain Python over lists, as the released evaluator does it; programs can see everything.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from autotts_jax.replay import BranchOrders, ProbeDataset

PROGRAMS = Path(__file__).parents[1] / "examples" / "released_programs.py"


class Record(NamedTuple):
    """A question: answers of each branch at each depth, tokens of each branch, Δ and the gold answer."""

    answers: Sequence[Sequence[str]]
    tokens: Sequence[int]
    interval: int
    gold: str | None


class Question:
    """One episode: what a program's ``solve`` is given."""

    __slots__ = ("_order", "_record", "branch_tokens", "depth")

    def __init__(self, record: Record, order: Sequence[int]):
        self._record = record
        self._order = order
        self.depth: list[int] = []
        self.branch_tokens: list[int] = []

    def probe_new(self) -> tuple[str, int, bool]:
        answers = self._open(1, self._record.interval)
        return answers[0], len(self.depth) - 1, len(answers) == 1

    def probe_more(self, index: int) -> tuple[str, bool]:
        branch = self._order[index]
        answers = self._record.answers[branch]
        depth, end = self.depth[index], len(answers)
        if depth < end:
            depth += 1
            rest = self._record.tokens[branch] - self._record.interval * (end - 1)
            self.branch_tokens[index] += self._record.interval if depth < end else max(rest, 0)
            self.depth[index] = depth
        return answers[depth - 1], depth == end

    def get_new_branch_final_answer(self) -> str:
        branch = self._order[len(self.depth)]
        return self._open(len(self._record.answers[branch]), self._record.tokens[branch])[-1]

    def _open(self, depth: int, cost: int) -> Sequence[str]:
        answers = self._record.answers[self._order[len(self.depth)]]
        self.depth.append(depth)
        self.branch_tokens.append(cost)
        return answers


def records(dataset: ProbeDataset) -> list[Record]:
    """The questions of a dataset as plain lists."""
    matrix = dataset.matrix
    found = []
    for row, question in enumerate(dataset.questions):
        text = [*question.vocabulary, "ERR"]  # The id of "no answer" is -1, the last entry.
        branches = zip(matrix.answers[row].tolist(), matrix.lengths[row].tolist(), strict=True)
        answers = [[text[i] for i in ids[: length + 1]] for ids, length in branches]
        gold = question.answer(int(matrix.gold[row]))
        found.append(Record(answers, matrix.tokens[row].tolist(), int(matrix.interval[row]), gold))
    return found


def play(
    program: type, config: Mapping[str, Any], asked: Sequence[Record], orders: BranchOrders
) -> tuple[np.ndarray, np.ndarray]:
    """Whether each answer is right, and tokens; both of shape (S, Q)."""
    shape = (orders.num_rows, len(asked))
    row, column = np.indices(shape)
    correct, tokens = np.zeros(shape, bool), np.zeros(shape, np.int64)
    for seed, of_seed in enumerate(orders.of(column, row).tolist()):
        for index, (record, order) in enumerate(zip(asked, of_seed, strict=True)):
            question = Question(record, order)
            answer = program(dict(config)).solve(question)
            correct[seed, index] = answer is not None and answer == record.gold
            tokens[seed, index] = sum(question.branch_tokens)
    return correct, tokens


def cached_source() -> str:
    """The example programs with one change: each confidence is computed once.

    Most of the time of the programs that use it goes into SciPy's Beta distribution; this shows how much.
    """
    return PROGRAMS.read_text() + "\n\nimport functools\n\nconfidence = functools.cache(confidence)\n"


def load(file: Path) -> Any:
    """Imports a file of programs."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # Dataclasses look their module up while it is being executed.
    spec.loader.exec_module(module)
    return module
