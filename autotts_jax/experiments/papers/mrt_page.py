"""MRT: how well the tokens of a branch are used: regret, the width-depth map, progress, efficiency."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from autotts_jax.collect.loading import loaded
from autotts_jax.experiments.evaluation import Evaluation, OnProgress, branch_orders, evaluate
from autotts_jax.experiments.files import rows_table
from autotts_jax.experiments.frontier import Comparison
from autotts_jax.experiments.metrics import Anytime, anytime, normalised_regret, vote_accuracy
from autotts_jax.experiments.papers.page import Grid, Page, Section
from autotts_jax.experiments.papers.playing import (
    Data,
    cells_of,
    common_width,
    families,
    powers,
    title_of,
)
from autotts_jax.experiments.tables import matched, points
from autotts_jax.replay.dataset import ProbeDataset

BUDGETS = (4096, 8192, 12288, 16384)
"""Budgets of the paper, in tokens."""

FAMILIES = ("sc", "asc", "parallel-probe", "cmc")
COMPARED = ("", "accuracy, %", "ktokens", "tokens ratio, 95 %", "Δ accuracy, 95 %")
AREAS = (
    "model",
    "benchmark",
    "controller",
    "reference",
    "hypervolume",
    "hypervolume_low",
    "hypervolume_high",
    "hypervolume_gain",
    "hypervolume_gain_low",
    "hypervolume_gain_high",
    "regret",
    "reference_cost",
)


def mrt(
    data: Data = "synthetic",
    *,
    budgets: Sequence[int] | None = None,
    seeds: int | None = None,
    max_branches: int = 64,
    on_progress: OnProgress | None = None,
) -> Page:
    """Computes the metrics of MRT (arXiv 2503.07572): regret, the width-depth map, progress, efficiency.

    Args:
        data: the questions: a dataset, or whatever `autotts_jax.load` takes.
        budgets: C0 of the normalised regret, in tokens; when None those of the paper, or where no branch is
            so long quarters of the longest.
        seeds: S, to draw branches by seeds 0 … S - 1; 100 when None.
        max_branches: the most branches that vote or that an episode opens; fewer where questions have fewer.
        on_progress: called with what is running, how many of its episodes have ended, and how many it has.

    Returns:
        The page.

    Raises:
        InputError: the data or the arguments are of no use.
    """
    dataset = loaded(data)
    width = common_width(dataset, max_branches)
    evaluation = evaluate(
        dataset, list(families(FAMILIES, width)), seeds=seeds, max_branches=width, on_progress=on_progress
    )
    curves = [anytime(dataset, cell) for cell in range(len(dataset.cells))]
    longest = int(max(curve.tokens[-1] for curve in curves))
    if budgets is None:
        budgets = BUDGETS if longest >= BUDGETS[-1] else [longest * part // 4 for part in (1, 2, 3, 4)]
    return Page(
        "mrt",
        "MRT: optimizing test-time compute via meta reinforcement fine-tuning",
        "arXiv 2503.07572",
        dataset,
        (
            _regret(dataset, curves, budgets),
            _map(dataset, evaluation.seeds, width),
            _progress(dataset, curves),
            *_efficiency(evaluation),
        ),
    )


def _regret(dataset: ProbeDataset, curves: Sequence[Anytime], budgets: Sequence[int]) -> Section:
    found = [[normalised_regret(curve, budget) for budget in budgets] for curve in curves]
    rows = [
        {"model": cell.model, "benchmark": cell.benchmark, "budget": budget, "regret": regret}
        for cell, of_cell in zip(dataset.cells, found, strict=True)
        for budget, regret in zip(budgets, of_cell, strict=True)
    ]
    grids = [
        Grid(
            benchmark,
            ("", *(f"{budget:,}" for budget in budgets)),
            [(dataset.cells[cell].model, *(f"{regret:.4f}" for regret in found[cell])) for cell in cells],
        )
        for benchmark, cells in cells_of(dataset).items()
    ]
    return Section(
        "regret",
        "Normalised regret",
        "Of single branches, up to a budget of tokens: accuracy that is missing to an oracle "
        "which is right from the first token, mean over the budget.",
        grids,
        pa.Table.from_pylist(rows),
    )


def _map(dataset: ProbeDataset, seeds: int, width: int) -> Section:
    """Xmaj@p_j of each cell."""
    widths, depths = powers(width), powers(dataset.matrix.max_depth)
    orders = branch_orders(dataset, "repo100", range(seeds), width)
    accuracy = vote_accuracy(dataset, orders, widths, depths)
    of_cells = np.stack(
        [accuracy[..., dataset.cell_questions(cell)].mean(axis=-1) for cell in range(len(dataset.cells))]
    )
    rows: list[dict[str, Any]] = [
        {
            "model": cell.model,
            "benchmark": cell.benchmark,
            "branches": width,
            "depth": depth,
            "accuracy": float(of_cell[p, j]),
        }
        for cell, of_cell in zip(dataset.cells, of_cells, strict=True)
        for p, width in enumerate(widths)
        for j, depth in enumerate(depths)
    ]
    grids = [
        Grid(
            title_of(dataset, benchmark, cells),
            ("branches", *map(str, depths)),
            [
                (str(width), *(f"{100 * value:.1f}" for value in of_cells[cells].mean(axis=0)[p]))
                for p, width in enumerate(widths)
            ],
        )
        for benchmark, cells in cells_of(dataset).items()
    ]
    return Section(
        "map",
        "Width and depth: xmaj@p_j",
        "Accuracy in percent of the vote among p branches (lines), all read to depth j in "
        "intervals (columns); finished branches vote with their final answer. MRT's maj@p_j "
        "votes among p answers forced from one prefix instead.",
        grids,
        pa.Table.from_pylist(rows),
    )


def _progress(dataset: ProbeDataset, curves: Sequence[Anytime]) -> Section:
    """What each interval, MRT's episode, adds to the accuracy of a branch."""
    rows: list[dict[str, Any]] = [
        {
            "model": cell.model,
            "benchmark": cell.benchmark,
            "depth": depth,
            "tokens": int(curve.tokens[depth]),
            "running": float(curve.running[depth]),
            "accuracy": float(curve.accuracy[depth]),
            "gained": float(curve.gained[depth]),
            "lost": float(curve.lost[depth]),
            "progress": float(curve.gained[depth] - curve.lost[depth]),
        }
        for cell, curve in zip(dataset.cells, curves, strict=True)
        for depth in range(1, len(curve.tokens))
    ]
    return Section(
        "progress",
        "Progress per episode",
        "Points of accuracy that an interval adds to a branch, mean over the intervals of a "
        "range of depths: answers that become right, less those that cease to be. Branches "
        "that have ended make no progress.",
        [
            Grid(
                title_of(dataset, benchmark, cells),
                ("intervals", "running, %", "gained", "lost", "progress"),
                list(_progress_lines([curves[cell] for cell in cells])),
            )
            for benchmark, cells in cells_of(dataset).items()
        ],
        pa.Table.from_pylist(rows),
    )


def _progress_lines(curves: Sequence[Anytime]) -> Iterator[tuple[str, ...]]:
    """A line for each range of depths, which doubles from one to the next; mean of some cells."""
    longest = max(len(curve.tokens) for curve in curves) - 1
    start = 1
    for end in powers(longest):
        means = [
            np.mean([np.sum(getattr(curve, name)[start : end + 1]) for curve in curves]) / (end + 1 - start)
            for name in ("running", "gained", "lost")
        ]
        running, gained, lost = (100 * float(mean) for mean in means)
        depths = str(end) if start == end else f"{start}-{end}"
        yield depths, f"{running:.1f}", f"{gained:.2f}", f"{lost:.2f}", f"{gained - lost:+z.2f}"
        start = end + 1


def _efficiency(evaluation: Evaluation) -> Iterator[Section]:
    """Frontiers against each other, at matched accuracy and at matched tokens, and as areas."""
    comparisons = evaluation.frontier().comparisons
    if not comparisons:
        return
    of_settings: dict[str, list[Comparison]] = {}
    of_areas: dict[str, dict[str, Comparison]] = {}
    last = {
        one.benchmark: one.model for one in comparisons
    }  # the mean of the models, where there are several
    for one in comparisons:
        if one.model == last[one.benchmark]:
            title = f"{one.benchmark}, {one.model}"
            of_areas.setdefault(title, {})[one.controller] = one
            if one.controller != one.reference:
                of_settings.setdefault(f"{title}: {one.controller} against {one.reference}", []).append(one)
    yield Section(
        "efficiency",
        "Token efficiency",
        "tokens ratio: tokens at the setting's accuracy, over those of the reference's frontier; "
        "Δ accuracy: at the setting's tokens, less that of the same frontier; both with their "
        "95 % interval over questions. The paper compares models that were "
        "trained in different ways; here one model is used by different controllers.",
        [Grid(title, COMPARED, [matched(one) for one in found]) for title, found in of_settings.items()],
        rows_table(Comparison, comparisons),
        printed=False,
    )
    per_controller = {(one.model, one.benchmark, one.controller): one for one in comparisons}
    yield Section(
        "areas",
        "Frontiers as areas",
        "hypervolume: mean accuracy in percent over budgets up to the tokens of "
        f"{max((one.reference_branches for one in comparisons), default=0)} branches, each spent on the best "
        "setting within it; Δ: less that of the reference; regret: accuracy missing to the best of these "
        "controllers, mean over the same budgets. Intervals are over questions.",
        [
            Grid(
                title,
                ("", "hypervolume, 95 %", "Δ hypervolume, 95 %", "regret"),
                [
                    (
                        name,
                        points(one.hypervolume, one.hypervolume_low, one.hypervolume_high).replace("+", ""),
                        ""
                        if name == one.reference
                        else points(
                            one.hypervolume_gain, one.hypervolume_gain_low, one.hypervolume_gain_high
                        ),
                        f"{one.regret:.4f}",
                    )
                    for name, one in found.items()
                ],
            )
            for title, found in of_areas.items()
        ],
        rows_table(AREAS, list(per_controller.values())),
    )
