"""The report of a batch: what allocators reach, who got how much of a budget, and why."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from autotts_jax.experiments.batch_rows import BatchPlay, BatchRow
from autotts_jax.experiments.report.charts import Axis, frontier_chart
from autotts_jax.experiments.report.episodes import LISTED
from autotts_jax.experiments.tables import percent, points, thousands
from autotts_jax.pages.rendering import Cells, CellsRow, Drawn, Listing, Part, render_parts
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.replay.matrix import NONE
from autotts_jax.styles import styles

SEED = 0
"""The seed whose episode is shown question by question."""


def batch_report(
    dataset: ProbeDataset,
    plays: Sequence[BatchPlay],
    rows: Sequence[BatchRow],
    manifest: Mapping[str, Any],
) -> str:
    """Makes the report of a batch: for each cell the frontier, results, and every question under one budget.

    Args:
        dataset: the questions.
        plays: what each allocator has made of the budgets.
        rows: the summary.
        manifest: what made them.

    Returns:
        The HTML of a page that needs nothing else.

    Raises:
        InputError: Altair is missing.
    """
    budgets = manifest["budgets"]
    facts = {
        "questions": f"{len(dataset):,}",
        "seeds": f"{manifest['seeds']:,}",
        "most branches": f"{manifest['max_branches']}",
        "at once": f"{manifest['at_once']}",
        "token budgets": ", ".join(f"{budget:,}" for budget in budgets),
    }
    listing = Listing("Manifest as JSON", json.dumps(manifest, indent=2, ensure_ascii=False))
    parts = [_part(dataset, plays, rows, budgets, cell) for cell in range(len(dataset.cells))]
    parts.append(Part("Manifest", "What made these results.", listings=[listing]))
    return render_parts("batch", f"{', '.join(play.name for play in plays)} under one budget", facts, parts)


def _part(
    dataset: ProbeDataset,
    plays: Sequence[BatchPlay],
    rows: Sequence[BatchRow],
    budgets: Sequence[int],
    cell: int,
) -> Part:
    about, questions = dataset.cells[cell], dataset.cell_questions(cell).tolist()
    rows = [row for row in rows if (row.model, row.benchmark) == (about.model, about.benchmark)]
    at = sorted(range(len(budgets)), key=lambda place: budgets[place])[len(budgets) // 2]
    budget = f"{budgets[at]:,}"
    text = (
        "Accuracy against the tokens of all questions, and Δ, the gain over the first allocator, with 95 % "
        f"intervals over sets of questions. The last table shows seed {SEED} under {budget} tokens: branches "
        "and ktokens of each question, its vote (✓ right, ✗ wrong), and the indices that led to it: of its "
        "last branch, and of the next one, which it did not get."
    )
    if len(questions) > LISTED:
        text += f" {LISTED} questions are listed."
    look = styles(row.name for row in rows)
    spec = frontier_chart(rows, Axis("tokens", "tokens of all questions", "~s"), look, legend=True)
    drawn = Drawn(f"{about.name}, frontier", spec, [_chart_row(row) for row in rows])
    headings = ["question"]
    for play in plays:
        headings += [f"{play.name}: {what}" for what in ("branches", "ktokens", "vote", "last index", "next")]
    listed = [
        CellsRow([f"{dataset.questions[question].index}", *_shares(dataset, plays, at, question)])
        for question in questions[:LISTED]
    ]
    return Part(
        about.name,
        text,
        [drawn],
        [_results(about.name, rows), Cells(f"{about.name}, {budget} tokens, by question", headings, listed)],
    )


def _chart_row(row: BatchRow) -> dict[str, Any]:
    few = math.isnan(row.accuracy_low)
    low, high = (row.accuracy,) * 2 if few else (row.accuracy_low, row.accuracy_high)
    return {
        "setting": f"{row.name}, {row.budget:,} tokens",
        "controller": row.name,
        "accuracy": 100 * row.accuracy,
        "accuracy_text": percent(row.accuracy, row.accuracy_low, row.accuracy_high),
        "low": 100 * low,
        "high": 100 * high,
        "tokens": row.tokens,
    }


def _results(name: str, rows: Sequence[BatchRow]) -> Cells:
    headings = ["allocator", "budget, ktokens", "accuracy, %, 95 %", "Δ, 95 %", "spent, %", "unanswered"]
    lines = [
        CellsRow(
            [
                row.name,
                thousands(row.budget),
                percent(row.accuracy, row.accuracy_low, row.accuracy_high),
                "–" if row.name == rows[0].name else points(row.gain, row.gain_low, row.gain_high),
                f"{100 * row.tokens / row.budget:.1f}",
                f"{row.unanswered:.1f}",
            ]
        )
        for row in rows
    ]
    return Cells(f"{name}, results", headings, lines)


def _shares(dataset: ProbeDataset, plays: Sequence[BatchPlay], at: int, question: int) -> Iterator[str]:
    """What each allocator gave a question, and why."""
    for play in plays:
        here = at, SEED, question
        answer = dataset.questions[question].answer(play.answer[here])
        yield f"{play.branches[here]}"
        yield thousands(play.tokens[here])
        if play.answer[here] == NONE:
            yield "–"
        else:
            yield f"{'✓' if play.correct[here] else '✗'} {answer}"
        yield from (_index(index[here]) for index in (play.last_index, play.next_index))


def _index(index: float) -> str:
    """An index; of what comes before all else ∞, and – where there is no branch."""
    if math.isnan(index) or index == -math.inf:
        return "–"
    return "∞" if index > 1e38 else f"{index:.4g}"
