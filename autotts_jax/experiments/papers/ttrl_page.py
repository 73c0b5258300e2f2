"""TTRL: how well the majority of a question's branches stands in for its gold answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from autotts_jax.checks import check_int
from autotts_jax.collect.loading import loaded
from autotts_jax.experiments.evaluation import MAX_SEEDS, PROTOCOLS, branch_orders
from autotts_jax.experiments.metrics import pass_at, vote_accuracy
from autotts_jax.experiments.papers.page import Grid, Page, Section
from autotts_jax.experiments.papers.playing import Data, cells_of, common_width, powers, title_of
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.replay.statistics import cell_statistics

REWARDS = ("mean@1", "label_accuracy", "majority_ratio", "reward_accuracy", "pass@n")
CURVES = ("pass@n", "mean@n", "maj@n")

VOTERS = 128
"""The most branches of maj@n, unless others are asked for."""


def ttrl(data: Data = "synthetic", *, seeds: int = PROTOCOLS["repo100"], max_branches: int = VOTERS) -> Page:
    """Computes the metrics of TTRL (arXiv 2504.16084) from the final answers of recorded branches.

    Args:
        data: the questions: a dataset, or whatever `autotts_jax.load` takes.
        seeds: S, to draw the branches of maj@n by seeds 0 … S - 1.
        max_branches: the most branches of pass@n, mean@n and maj@n; fewer where questions have fewer.

    Returns:
        The page: the rewards that a majority gives, and pass@n, mean@n and maj@n.

    Raises:
        InputError: the data or the arguments are of no use.

    Example:
        >>> import autotts_jax as at
        >>> page = at.papers.ttrl("smollm2", seeds=2)
        >>> page.data()["rewards"].column_names[2:5]
        ['mean@1', 'label_accuracy', 'majority_ratio']
    """
    dataset = loaded(data)
    return Page(
        "ttrl",
        "TTRL: test-time reinforcement learning",
        "arXiv 2504.16084",
        dataset,
        (
            _rewards(dataset),
            _curves(dataset, check_int("the number of seeds", seeds, 1, MAX_SEEDS), max_branches),
        ),
    )


def _rewards(dataset: ProbeDataset) -> Section:
    found = [cell_statistics(dataset, index) for index in range(len(dataset.cells))]
    rows: list[dict[str, Any]] = [
        {"model": cell.model, "benchmark": cell.benchmark}
        | {name: float(statistics[name]) for name in REWARDS}
        | {"branches": cell.num_branches}
        for cell, statistics in zip(dataset.cells, found, strict=True)
    ]
    grids = [
        Grid(
            benchmark,
            ("", "mean@1", "label acc.", "majority ratio", "reward acc.", "pass@n"),
            [
                (row["model"], *(f"{100 * row[name]:.2f}" for name in REWARDS))
                for row in rows
                if row["benchmark"] == benchmark
            ],
        )
        for benchmark in dict.fromkeys(cell.benchmark for cell in dataset.cells)
    ]
    return Section(
        "rewards",
        "Majority rewards",
        "Percent, over all branches. mean@1: finals that are right; label acc.: questions whose "
        "majority is right; majority ratio: finals that are the majority; reward acc.: finals "
        "that the majority rewards as the gold answer would; pass@n: questions that any "
        "branch answers.",
        grids,
        pa.Table.from_pylist(rows),
    )


def _curves(dataset: ProbeDataset, seeds: int, max_branches: int) -> Section:
    """Pass@n and mean@n over all draws of n branches; maj@n over the orders of seeds, as SC@n votes."""
    width = common_width(dataset, max_branches)
    drawn = powers(width)
    orders = branch_orders(dataset, "repo100", range(seeds), width)
    (voted,) = vote_accuracy(dataset, orders, drawn, [dataset.matrix.max_depth]).swapaxes(0, 1)
    right = np.asarray(dataset.matrix.finals()) == np.asarray(dataset.matrix.gold)[:, None]
    rows: list[dict[str, Any]] = []
    for index, cell in enumerate(dataset.cells):
        questions = dataset.cell_questions(index)
        of_cell = right[questions, : cell.num_branches]
        for n, of_votes in zip(drawn, voted, strict=True):
            figures = (pass_at(of_cell, n), float(of_cell.mean()), float(of_votes[questions].mean()))
            rows.append(
                {"model": cell.model, "benchmark": cell.benchmark, "n": n}
                | dict(zip(CURVES, figures, strict=True))
            )
    grids = []
    for benchmark, cells in cells_of(dataset).items():
        lines = []
        for n in drawn:
            here = [row for row in rows if row["benchmark"] == benchmark and row["n"] == n]
            lines.append((str(n), *(f"{100 * np.mean([row[name] for row in here]):.2f}" for name in CURVES)))
        grids.append(Grid(title_of(dataset, benchmark, cells), ("n", *CURVES), lines))
    return Section(
        "curves",
        "Pass@n, mean@n and maj@n",
        "Percent. pass@n and mean@n: the expectation over all draws of n branches; maj@n: the "
        f"majority of the first n branches of {seeds} random orders.",
        grids,
        pa.Table.from_pylist(rows),
    )
