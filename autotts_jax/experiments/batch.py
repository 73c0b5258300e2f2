"""Allocators on sets of questions: accuracy at total token budgets, on the same branches."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float, Int
from rich.console import RenderableType

from autotts_jax.checks import check_int
from autotts_jax.collect.loading import loaded
from autotts_jax.core.batch import Allocator, Readings, read_through, spend
from autotts_jax.core.forks import refuse_forks
from autotts_jax.core.rollout import MAX_TOKENS
from autotts_jax.core.votes import is_correct
from autotts_jax.errors import InputError
from autotts_jax.experiments.batch_rows import BatchPlay, BatchRow, near
from autotts_jax.experiments.evaluation import (
    MAX_SEED,
    MAX_SEEDS,
    branch_orders,
    check_width,
    provenance,
    widest,
)
from autotts_jax.experiments.files import (
    FILES,
    names_column,
    results_folder,
    rows_table,
    write_csv,
    write_manifest,
)
from autotts_jax.experiments.report.batch import batch_report
from autotts_jax.experiments.tables import Table, add_row, few_note, numbers_table, percent, points, thousands
from autotts_jax.intervals import DRAWS, Questions, Uncertain, reach
from autotts_jax.pages import rendering
from autotts_jax.policies.allocators import Uniform, as_allocator
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.replay.matrix import NONE, ProbeMatrix
from autotts_jax.replay.orders import BranchOrders
from autotts_jax.terminal import printable, styled

ORACLE = "oracle"
"""The allocator that knows how the accuracy of each question grows with its branches."""

ORACLE_ORDERS = 200
"""Branch orders that the oracle learns that from; none of them is played."""


@dataclasses.dataclass(frozen=True, eq=False)
class BatchEvaluation:
    """What `evaluate_batch` played: a table, data frames and files of it.

    Attributes:
        dataset: the questions.
        plays: what each allocator has made of the budgets.
        budgets: token budgets, each for all questions of a cell.
        seeds: S, seeds 0 … S - 1.
        max_branches: W, branches that a question could read.
        at_once: k, questions that read a branch at a time.
    """

    dataset: ProbeDataset
    plays: tuple[BatchPlay, ...]
    budgets: tuple[int, ...]
    seeds: int
    max_branches: int
    at_once: int

    @functools.cached_property
    def rows(self) -> tuple[BatchRow, ...]:
        """One row for each cell, budget and allocator."""
        return tuple(
            row for cell in range(len(self.dataset.cells)) for row in _rows(self.dataset, self, cell)
        )

    def table(self) -> Table:
        """Shows accuracy under each budget, what was spent of it, and the gain over the first allocator.

        Returns:
            A table that prints in 80 columns and that a notebook shows.
        """
        return Table(self._parts)

    def summary(self) -> pa.Table:
        """Gives the rows.

        Returns:
            An Arrow table with the attributes of `BatchRow` as columns.
        """
        return rows_table(BatchRow, self.rows)

    def episodes(self) -> pa.Table:
        """Gives what every question got and answered, one row for each allocator, budget, seed and question.

        Returns:
            An Arrow table with the columns ``model``, ``benchmark``, ``name``, ``budget``, ``seed``,
            ``question``, ``branches``, ``tokens``, ``answer`` and ``correct``.
        """
        return pa.concat_tables(_episodes(self, play) for play in self.plays).unify_dictionaries()

    def save(self, folder: str | Path) -> list[Path]:
        """Writes ``episodes.parquet``, ``summary.csv`` and ``manifest.json``.

        Where Altair is installed, ``report.html`` shows who got how much of a budget, and why. The files
        appear together, when all are complete, and replace those of an earlier evaluation.

        Args:
            folder: where to write them; made if need be.

        Returns:
            The files.

        Raises:
            InputError: the folder cannot be written to, or holds what no evaluation has written.
        """
        with results_folder(folder, FILES) as partial:
            pq.write_table(self.episodes(), partial / "episodes.parquet")
            write_csv(partial / "summary.csv", self.summary())
            if rendering.available():
                (partial / "report.html").write_text(self._report(), encoding="utf-8")
            write_manifest(partial, self.manifest())
            names = sorted(file.name for file in partial.iterdir())
        return [Path(folder) / name for name in names]

    def _report(self) -> str:
        return batch_report(self.dataset, self.plays, self.rows, self.manifest())

    def manifest(self) -> dict[str, Any]:
        """Says what made the results.

        Returns:
            Versions, devices, data and settings, for ``manifest.json``.
        """
        return provenance(self.dataset) | {
            "protocol": "repo100",
            "seeds": self.seeds,
            "max_branches": self.max_branches,
            "budgets": list(self.budgets),
            "at_once": self.at_once,
            "controllers": [{"name": play.name} for play in self.plays],
        }

    def __repr__(self) -> str:
        names = ", ".join(play.name for play in self.plays)
        return f"BatchEvaluation of {names}: {len(self.dataset)} questions, {self.seeds} seeds"

    def _repr_html_(self) -> str:
        return self.table().html()

    def _parts(self, _: int) -> Iterator[RenderableType]:
        first = self.plays[0].name
        compared = len(self.plays) > 1
        headings = ["accuracy, % [95 %]", "spent, %", "unanswered", "Δ [95 %]"]
        for cell in self.dataset.cells:
            of_cell = [row for row in self.rows if (row.model, row.benchmark) == (cell.model, cell.benchmark)]
            table = numbers_table(cell.name, headings if compared else headings[:-1])
            for budget in self.budgets:
                add_row(table, f"{thousands(budget)} ktokens", style="bold")
                for row in (row for row in of_cell if row.budget == budget):
                    gain = "" if row.name == first else points(row.gain, row.gain_low, row.gain_high)
                    add_row(
                        table,
                        row.name,
                        percent(row.accuracy, row.accuracy_low, row.accuracy_high),
                        f"{100 * row.tokens / budget:.1f}",
                        f"{row.unanswered:.1f}",
                        *[gain] * compared,
                    )
                table.add_section()
            yield table
        yield styled(
            f"Δ: gain over {printable(first)}; 95 %: interval over sets of questions and their branches",
            style="dim",
        )
        yield from few_note(row.accuracy_low for row in self.rows)


def evaluate_batch(
    data: ProbeDataset | str | Path | Sequence[str | Path],
    allocators: str | Allocator | Sequence[str | Allocator],
    *,
    budgets: Sequence[int],
    seeds: int = 100,
    max_branches: int | None = None,
    at_once: int = 1,
) -> BatchEvaluation:
    """Answers all questions of a cell with one token budget, shared out by allocators.

    An allocator says of each question how urgent its next branch is. The most urgent questions read theirs to
    the end, each read is charged its tokens, and the batch ends with the first read that the budget cannot
    pay, or when no question is urgent. Each question answers the majority of its branches.

    Args:
        data: the questions: a dataset, or whatever `autotts_jax.load` takes. Every cell is a set of its own.
        allocators: one or several, the first of which the others are compared with: names of
            `autotts_jax.policies.ALLOCATORS`, ``"oracle"``, which knows how the accuracy of each question
            grows with its branches, files of `autotts_jax.policies.save_weights`, or allocators of your own.
        budgets: token budgets, each for all questions of a cell.
        seeds: S, to play seeds 0 … S - 1; a seed draws the order of the branches, as ``repo100`` does.
        max_branches: W, branches that a question can read; None as in `autotts_jax.evaluate`.
        at_once: k, questions that read a branch at a time.

    Returns:
        The results: ``table()``, ``summary()``, ``episodes()`` and ``save(folder)``.

    Raises:
        InputError: the arguments do not fit together, or an allocator returned something other than a number.
            Other exceptions of allocators are passed on.

    Example:
        >>> import autotts_jax as at
        >>> data = at.load("smollm2")
        >>> chosen = ["uniform", "dirichlet", "oracle"]
        >>> result = at.evaluate_batch(data, chosen, budgets=[20_000], seeds=5)
        >>> [(row.name, round(row.accuracy, 3), row.tokens <= 20_000) for row in result.rows]
        [('uniform', 0.165, True), ('dirichlet', 0.135, True), ('oracle', 0.225, True)]
    """
    refuse_forks()
    data = loaded(data)
    chosen = _chosen(allocators)
    if isinstance(budgets, str) or not isinstance(budgets, Sequence) or not budgets:
        raise InputError(
            f"budgets is {budgets!r:.60}, but it must be a list of at least one number of tokens"
        )
    budgets = tuple(check_int("a budget", budget, 1) for budget in budgets)
    if len(set(budgets)) < len(budgets):
        raise InputError("a budget is given more than once; give each once")
    seeds = check_int("the number of seeds", seeds, 1, MAX_SEEDS)
    max_branches = check_width(data, widest(data, max_branches))
    at_once = check_int("at_once", at_once, 1)
    cells = [data.cell_questions(cell) for cell in range(len(data.cells))]
    played: dict[str, list[tuple[np.ndarray, ...]]] = {name: [] for name in chosen}
    for questions in cells:
        of_cell = data.select(questions)
        orders = branch_orders(of_cell, "repo100", range(seeds), max_branches)
        for name, allocator in chosen.items():
            if allocator is None:
                others = branch_orders(
                    of_cell, "repo100", range(MAX_SEED - ORACLE_ORDERS, MAX_SEED), max_branches
                )
                readings = read_by_oracle(of_cell.matrix, orders, others)
            else:
                readings = read_through(allocator, of_cell.matrix, orders)
            played[name].append(_played(readings, np.asarray(of_cell.matrix.gold), budgets, at_once))
    place = np.argsort(np.concatenate(cells))
    plays = []
    for name, parts in played.items():
        columns = zip(*parts, strict=True)
        plays.append(BatchPlay(name, *(np.concatenate(column, axis=-1)[..., place] for column in columns)))
    return BatchEvaluation(data, tuple(plays), budgets, seeds, max_branches, at_once)


def read_by_oracle(matrix: ProbeMatrix, orders: BranchOrders, others: BranchOrders) -> Readings:
    """Has an oracle say how urgent each read is: it knows how the accuracy of each question grows.

    It reads where the mean accuracy gains most a token, by the least concave curve above it, and leaves a
    question that gains nothing more. So no allocation that is fixed beforehand has a higher mean. It does not
    see what a question has answered.
    """
    answer = read_through(Uniform(), matrix, others).answer
    growth = is_correct(answer, np.asarray(matrix.gold)[:, None]).mean(axis=0)
    tokens = np.asarray(matrix.tokens)
    mean_tokens = tokens.sum(axis=1) / (tokens > 0).sum(axis=1)
    urgency = np.array([concave_slopes(curve) for curve in growth]) / mean_tokens[:, None]
    urgency = np.where(urgency > 0, urgency, -np.inf).astype(np.float32)
    played = read_through(Uniform(), matrix, orders)
    return played._replace(urgency=np.broadcast_to(urgency, played.urgency.shape))


def concave_slopes(curve: Float[np.ndarray, " N+1"]) -> Float[np.ndarray, " N"]:
    """Computes the slopes of the least concave curve above another.

    Returns:
        Its slopes between them, which never rise.
    """
    slopes = np.empty(len(curve) - 1)
    at = 0
    while at < len(slopes):
        ahead = (curve[at + 1 :] - curve[at]) / np.arange(1, len(curve) - at)
        end = at + 1 + int(np.argmax(ahead))
        slopes[at:end] = ahead.max()
        at = end
    return slopes


def _chosen(allocators: Any) -> dict[str, Allocator | None]:
    """The allocators by name; None stands for the oracle."""
    given = [allocators] if isinstance(allocators, str | Allocator) else allocators
    if not isinstance(given, Sequence) or not given:
        raise InputError(f"allocators is {allocators!r:.60}, but it must be a list of at least one allocator")
    found = [(ORACLE, None) if one == ORACLE else as_allocator(one, [ORACLE]) for one in given]
    if twice := [name for name, count in Counter(name for name, _ in found).items() if count > 1]:
        raise InputError(f"{', '.join(twice)}: given more than once; give each allocator once")
    return dict(found)


def _played(
    readings: Readings, gold: Int[np.ndarray, " Q"], budgets: Sequence[int], at_once: int
) -> tuple[np.ndarray, ...]:
    """What is in a `BatchPlay`, of one cell."""
    at_once = min(at_once, len(gold))
    most = MAX_TOKENS - at_once * int(readings.cost.max())
    others = np.clip(np.outer(budgets, near(len(gold))), 1, most).astype(int)
    branches = spend(readings, np.array([*budgets, *others.reshape(-1)]), at_once)
    tokens, answer = readings.after(branches)
    correct = is_correct(answer, gold)
    near_tokens, near_correct = (
        of[len(budgets) :].mean(axis=1).reshape(*others.shape, -1) for of in (tokens, correct)
    )
    branches, tokens, answer, correct = (of[: len(budgets)] for of in (branches, tokens, answer, correct))
    index = np.pad(readings.urgency, ((0, 0), (0, 0), (1, 0)), constant_values=np.nan)
    index = np.pad(index, ((0, 0), (0, 0), (0, 1)), constant_values=-np.inf)
    last, after = (np.take_along_axis(index[None], branches[..., None] + more, -1)[..., 0] for more in (0, 1))
    return branches, tokens, answer, correct, last, after, near_tokens, near_correct


def redrawn(
    over: Questions, tokens: Float[np.ndarray, "G Q"], correct: Float[np.ndarray, "G Q"]
) -> Float[np.ndarray, " R"]:
    """Answers sets of other questions with the same budget a question: what each draw of `Questions` has.

    Which of two reads is first does not depend on the other questions of a set. Drawn with weights, the
    questions therefore read in the same order, and only go on for longer or for less long.

    Args:
        over: the questions.
        tokens: mean tokens of each, at budgets that grow, the middle one their own.
        correct: how often each is answered correctly there.

    Returns:
        What the questions that were seen add to the accuracy where the mean tokens are those in the middle.
    """
    weights, unseen = over.weights[1:, :-2], over.weights[1:, -2:].sum(axis=1)
    typical = over.weights[0, :-2] @ over.means(tokens).T
    cost = weights @ over.means(tokens).T + unseen[:, None] * typical
    value = weights @ over.means(correct).T
    middle = typical[len(typical) // 2]
    right = np.clip((cost <= middle).sum(axis=1), 1, len(typical) - 1)[:, None]
    low, high = (np.take_along_axis(cost, at, axis=1)[:, 0] for at in (right - 1, right))
    share = np.clip((middle - low) / np.maximum(high - low, 1e-9), 0, 1)
    below, above = (np.take_along_axis(value, at, axis=1)[:, 0] for at in (right - 1, right))
    return below + share * (above - below)


def _rows(dataset: ProbeDataset, result: BatchEvaluation, cell: int) -> Iterator[BatchRow]:
    questions = dataset.cell_questions(cell)
    texts = [dataset.questions[question].text for question in questions]
    over = Questions(np.full(len(questions), 1 / len(questions)), texts)
    nobody = np.full(DRAWS, np.nan)
    worst, best = over.weights[1:, -2:].T
    for at, budget in enumerate(result.budgets):
        drawn = [
            nobody
            if over.few
            else redrawn(over, play.near_tokens[at][:, questions], play.near_correct[at][:, questions])
            for play in result.plays
        ]
        first = result.plays[0].correct[at][:, questions].mean(axis=0)
        for play, draws in zip(result.plays, drawn, strict=True):
            correct = play.correct[at][:, questions].mean(axis=0)
            spent = play.tokens[at][:, questions].sum(axis=1).mean()
            far = reach(over.means(correct - first))
            accuracy = Uncertain(over.mean(correct).value, draws + best)
            gain = Uncertain(over.gain(correct - first).value, draws - drawn[0] + far * (best - worst))
            yield BatchRow(
                dataset.cells[cell].model,
                dataset.cells[cell].benchmark,
                play.name,
                budget,
                accuracy.value,
                *accuracy.interval,
                gain.value,
                *gain.interval,
                tokens=float(spent),
                unspent=float(budget - spent),
                unanswered=float((play.answer[at][:, questions] == NONE).sum(axis=1).mean()),
            )


def _episodes(result: BatchEvaluation, play: BatchPlay) -> pa.Table:
    dataset = result.dataset
    budget, seed, question = (axis.reshape(-1) for axis in np.indices(play.tokens.shape))
    cell = np.asarray(dataset.matrix.cell)[question]
    spelled = [dataset.questions[q].answer(a) for q, a in zip(question, play.answer.reshape(-1), strict=True)]

    return pa.table(
        {
            "model": names_column(cell, [cell.model for cell in dataset.cells]),
            "benchmark": names_column(cell, [cell.benchmark for cell in dataset.cells]),
            "name": names_column(np.zeros_like(cell), [play.name]),
            "budget": pa.array(np.array(result.budgets)[budget], pa.int64()),
            "seed": pa.array(seed, pa.int32()),
            "question": pa.array([q.index for q in dataset.questions], pa.int32()).take(pa.array(question)),
            "branches": pa.array(play.branches.reshape(-1), pa.int32()),
            "tokens": pa.array(play.tokens.reshape(-1), pa.int64()),
            "answer": pa.array(spelled, pa.string()),
            "correct": pa.array(play.correct.reshape(-1), pa.bool_()),
        }
    )
