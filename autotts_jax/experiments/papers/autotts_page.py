"""AutoTTS: Table 1, the scaling curves, and the rounds of discovery runs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from autotts_jax import figures
from autotts_jax.collect.loading import loaded
from autotts_jax.errors import InputError
from autotts_jax.experiments.evaluation import PROTOCOLS, Evaluation, OnProgress, evaluate
from autotts_jax.experiments.files import SUMMARY_COLUMNS, rows_table
from autotts_jax.experiments.papers.page import Grid, Page, Section
from autotts_jax.experiments.papers.playing import (
    Data,
    benchmarks,
    by_model,
    common_width,
    families,
)
from autotts_jax.experiments.papers.published import DIFFERENT, PUBLISHED, TOKENS_SAVED, Published
from autotts_jax.experiments.plots import frontier_figure
from autotts_jax.experiments.summary import ALL_MODELS, Row
from autotts_jax.experiments.tables import points, ratio_text, thousands
from autotts_jax.policies.player import name_of
from autotts_jax.replay.dataset import EXACT, ProbeDataset

FAMILIES = ("sc", "asc", "esc", "parallel-probe", "cmc")
BETAS = (0.5, 1.0)
"""β of CMC in Table 1."""

QUESTIONS, BRANCHES, INTERVAL = 30, 128, 500
"""Questions, branches of each and tokens between two probes, in each cell of the paper."""

AS_PUBLISHED = PROTOCOLS["repo100"], EXACT
"""Seeds and encoding of the published figures."""

SAME = 0.0501
"""Figures that are printed with one digit are the same within half of the last one."""


class _Line(NamedTuple):
    """A figure of Table 1: ours, and what was published of the same model, benchmark and setting."""

    row: Row
    known: Published | None

    @property
    def shown(self) -> str:
        star = "*" if self.known is not None and not self.known.in_paper else ""
        ktokens = self.row.tokens / 1000
        return f"{100 * self.row.accuracy:.1f}/{ktokens:.{0 if ktokens >= 10 else 2}f}k{star}"

    @property
    def difference(self) -> tuple[float, float]:
        """Ours less the published: accuracy in points, thousands of tokens; NaN where none is known."""
        if self.known is None:
            return math.nan, math.nan
        return 100 * self.row.accuracy - self.known.accuracy, self.row.tokens / 1000 - self.known.ktokens


def autotts(
    data: Data = "synthetic",
    *,
    seeds: int | None = None,
    max_branches: int = 64,
    runs: Mapping[str, pa.Table] | None = None,
    on_progress: OnProgress | None = None,
) -> Page:
    """Makes the tables and figures of AutoTTS (arXiv 2605.08083): Table 1 and the scaling curves.

    Args:
        data: the questions: a dataset, or whatever `autotts_jax.load` takes.
        seeds: S, to play seeds 0 … S - 1 of the released evaluator's protocol; 100 when None.
        max_branches: the most branches that an episode opens; fewer where questions have fewer.
        runs: candidates of discovery runs, as `Discovery.to_parquet` writes them, by the names of the runs.
        on_progress: called with what is running, how many of its episodes have ended, and how many it has.

    Returns:
        The page. Beside our figures of the cells that the paper has stand its own; any other cells are there
        without.

    Raises:
        InputError: the data or the arguments are of no use.
    """
    if runs is not None and not isinstance(runs, Mapping):
        raise InputError(f"runs is {runs!r:.60}, but it must be tables of candidates by the names of runs")
    dataset = loaded(data)
    width = common_width(dataset, max_branches)
    first, *others = families(FAMILIES, width)
    # The setting that is played first is the one that the others are compared with.
    widest_first = dataclasses.replace(first, values=first.values[::-1])
    evaluation = evaluate(
        dataset, [widest_first, *others], seeds=seeds, max_branches=width, on_progress=on_progress
    )
    return page(evaluation, runs or {})


def page(evaluation: Evaluation, runs: Mapping[str, pa.Table]) -> Page:
    """Makes the page of an evaluation of the paper's families.

    Args:
        evaluation: the evaluation.
        runs: candidates of discovery runs by the names of the runs.

    Returns:
        The page.
    """
    width = evaluation.max_branches
    settings = {(name, float(width)) for name in FAMILIES} | {("cmc", beta) for beta in BETAS}
    released = _released(evaluation.dataset)
    known = {one[:4]: one for one in PUBLISHED if one[:2] in released}
    lines = [
        _Line(row, known.get((row.model, row.benchmark.lower(), row.controller, float(row.value or 0))))
        for row in evaluation.rows
        if (row.controller, row.value) in settings
    ]
    rows = [line.row for line in lines]
    sections = [_table1(lines), *_beside(evaluation, lines), _paired(evaluation, rows), _scaling(evaluation)]
    if runs:
        sections.append(_rounds(runs))
    return Page(
        "autotts",
        "AutoTTS: agentic discovery for test-time scaling",
        "arXiv 2605.08083",
        evaluation.dataset,
        tuple(sections),
    )


def _released(dataset: ProbeDataset) -> set[tuple[str, str]]:
    """Model and benchmark of the cells that can be those of the paper, going by their sizes."""
    found = set()
    for index, cell in enumerate(dataset.cells):
        questions = dataset.cell_questions(index)
        intervals = set(np.asarray(dataset.matrix.interval)[questions].tolist())
        if (len(questions), cell.num_branches, intervals) == (QUESTIONS, BRANCHES, {INTERVAL}):
            found.add((cell.model, cell.benchmark.lower()))
    return found


def _table1(lines: Sequence[_Line]) -> Section:
    grids = []
    for benchmark in benchmarks([line.row for line in lines]):
        here = [line for line in lines if line.row.benchmark == benchmark]
        models = list(dict.fromkeys(line.row.model for line in here))
        cells = {(line.row.name, line.row.model): line.shown for line in here}
        names = dict.fromkeys(line.row.name for line in here)
        headings = ["", *("mean" if model == ALL_MODELS else model for model in models)]
        grids.append(
            Grid(benchmark, headings, [(name, *(cells[name, model] for model in models)) for name in names])
        )
    columns: dict[str, list[Any]] = {
        "published_accuracy": [None if line.known is None else line.known.accuracy / 100 for line in lines],
        "published_tokens": [None if line.known is None else 1000 * line.known.ktokens for line in lines],
        "published_by": [None if line.known is None else line.known.source for line in lines],
        "paper_prints_the_same": [None if line.known is None else line.known.in_paper for line in lines],
    }
    data = rows_table(SUMMARY_COLUMNS, [line.row for line in lines])
    for name, column in columns.items():
        data = data.append_column(name, pa.array(column))
    return Section(
        "table1",
        "Table 1",
        "Accuracy in percent/tokens per episode. A star marks a cell in which the paper "
        "prints another figure than its released evaluator gives; ours follow the "
        "evaluator.",
        grids,
        data,
    )


def _beside(evaluation: Evaluation, lines: Sequence[_Line]) -> Iterator[Section]:
    """Our figures beside published ones, and the cells in which these disagree with each other."""
    known = [line for line in lines if line.known is not None]
    if not known:
        return
    off = [line.row for line in known if max(map(abs, line.difference)) > SAME]
    which = f": all but {', '.join(f'{row.model} {row.benchmark} {row.name}' for row in off)}" if off else ""
    seeds, encoding = evaluation.seeds, evaluation.dataset.encoding
    other = ""
    if (seeds, encoding) != AS_PUBLISHED:
        most, exact = AS_PUBLISHED
        played = f"{seeds} {'seed' if seeds == 1 else 'seeds'} in the encoding {encoding}"
        other = f" Ours are of {played}, and the published of {most} in {exact}."
    yield Section(
        "beside",
        "Beside what was published",
        f"Of {len(known)} published figures, {len(known) - len(off)} are ours to the printed digit{which}. "
        "Those of SC are the paper's, the others the released evaluator's; but for the six "
        f"cells below, the paper prints the same.{other} Accuracy in percent, thousands of tokens.",
        [
            Grid(
                benchmark,
                ("", "model", "ours", "published", "ktokens", "published"),
                [
                    (
                        row.name,
                        row.model,
                        f"{100 * row.accuracy:.1f}",
                        f"{one.accuracy:.1f}",
                        f"{row.tokens / 1000:.1f}",
                        f"{one.ktokens:.1f}",
                    )
                    for row, one in known
                    if one is not None and row.benchmark == benchmark
                ],
            )
            for benchmark in benchmarks([line.row for line in known])
        ],
        printed=False,
    )
    ours = {line.known: line.row for line in known}
    yield Section(
        "different",
        "The six cells in which the paper differs from its released evaluator",
        "Accuracy in percent / thousands of tokens by the evaluator, which ours follow. The "
        "paper's tables also differ in the protocol: its text draws 64 subsets of branches "
        "for each question, the evaluator shuffles all branches of a cell by 100 seeds.",
        [
            Grid(
                "",
                ("", "model", "benchmark", "evaluator", "ours"),
                [
                    (
                        name_of(one.controller, one.value),
                        one.model,
                        one.benchmark,
                        f"{one.accuracy:.1f} / {one.ktokens:.1f}",
                        f"{100 * ours[one].accuracy:.1f} / {ours[one].tokens / 1000:.1f}"
                        if one in ours
                        else "not played",
                    )
                    for one in sorted(DIFFERENT)
                ],
            )
        ],
    )


def _paired(evaluation: Evaluation, rows: Sequence[Row]) -> Section:
    """Table 1 against self-consistency with all branches, which was played first."""
    first = evaluation.rows[0].baseline
    grids = []
    for benchmark in benchmarks(rows):
        model, settings = list(by_model(rows, benchmark).items())[-1]
        lines = [
            (
                row.name,
                points(row.gain, row.gain_low, row.gain_high),
                "" if math.isnan(row.gain_p_adjusted) else f"{row.gain_p_adjusted:.3f}",
                "" if math.isnan(row.gain_detectable) else f"{100 * row.gain_detectable:.1f}",
                ratio_text(row.tokens_ratio, row.ratio_low, row.ratio_high),
            )
            for row in settings
            if row.name != first
        ]
        headings = ("", "Δ accuracy, 95 %", "p", "detectable", "tokens ratio, 95 %")
        grids.append(Grid(f"{benchmark}, {model}", headings, lines))
    return Section(
        "paired",
        f"Against {first}, on the same episodes",
        "Intervals are over questions, each the mean of its seeds. p: of the "
        "gain, adjusted by Benjamini and Hochberg for all settings that were played. "
        "detectable: points of the smallest gain that so many questions show four times in "
        f"five. {TOKENS_SAVED.text} {TOKENS_SAVED.percent} % ({TOKENS_SAVED.source}).",
        grids,
        evaluation.paired(),
    )


def _scaling(evaluation: Evaluation) -> Section:
    grids = []
    for benchmark in benchmarks(evaluation.rows):
        model, rows = list(by_model(evaluation.rows, benchmark).items())[-1]
        lines = [
            (row.name, f"{100 * row.accuracy:.1f}", thousands(row.tokens), thousands(row.sequential_tokens))
            for row in sorted(rows, key=lambda row: (FAMILIES.index(row.controller), row.tokens))
        ]
        grids.append(
            Grid(f"{benchmark}, {model}", ("", "accuracy, %", "ktokens", "sequential ktokens"), lines)
        )
    return Section(
        "scaling",
        "Scaling curves",
        "Accuracy and cost as the number of branches, or β, grows.",
        grids,
        evaluation.summary(),
        printed=False,
        figure=frontier_figure(evaluation.rows) if figures.available() else None,
        rows=evaluation.rows,
    )


def _rounds(runs: Mapping[str, pa.Table]) -> Section:
    """The best candidates of discovery runs after each round, and what they had tried and paid by then."""
    rows = [row for name, candidates in runs.items() for row in _rounds_of(name, candidates)]
    lines = [
        (row["run"], str(row["round"]), f"{row['candidates']:,}", _score(row["score"]), _score(row["best"]))
        for row in rows
    ]
    return Section(
        "rounds",
        "Rounds of discovery",
        "Best score of the candidates of each round that are judged by all questions, and best "
        "so far. Runs without one of the parts of a search, beside one with all, make the "
        "ablation.",
        [Grid("", ("run", "round", "candidates", "best of it", "best so far"), lines)],
        pa.Table.from_pylist(rows),
    )


def _rounds_of(name: str, candidates: pa.Table) -> Iterator[dict[str, Any]]:
    by_round: dict[int, list[dict[str, Any]]] = {}
    for row in candidates.select(("round", "fold", "score", "tokens", "dollars")).to_pylist():
        by_round.setdefault(row["round"], []).append(row)
    tried, tokens, dollars, best = 0, 0, 0.0, -math.inf
    for number, rows in sorted(by_round.items()):
        scores = [row["score"] for row in rows if row["fold"] is None and row["score"] is not None]
        tried += len(rows)
        tokens += sum(row["tokens"] or 0 for row in rows)
        dollars += sum(row["dollars"] or 0.0 for row in rows)
        best = max([best, *scores])
        yield {
            "run": name,
            "round": number,
            "candidates": tried,
            "score": max(scores, default=math.nan),
            "best": math.nan if best == -math.inf else best,
            "tokens": tokens,
            "dollars": dollars,
        }


def _score(score: float) -> str:
    return "" if math.isnan(score) else f"{score:.4f}"
