"""Parallel-Probe: its sweeps over the number of branches and over its constants."""

from __future__ import annotations

import dataclasses
from typing import Any

import pyarrow as pa

from autotts_jax.collect.loading import loaded
from autotts_jax.experiments.evaluation import Evaluation, OnProgress, evaluate
from autotts_jax.experiments.files import SUMMARY_COLUMNS, rows_table
from autotts_jax.experiments.papers.page import Grid, Page, Section
from autotts_jax.experiments.papers.playing import (
    Data,
    benchmarks,
    by_model,
    common_width,
    families,
)
from autotts_jax.experiments.papers.published import SEQUENTIAL_SAVED, TOTAL_SAVED
from autotts_jax.experiments.tables import thousands
from autotts_jax.policies.parallel_probe import ParallelProbe
from autotts_jax.policies.player import ControllerPlayer

SWEEPS: dict[str, tuple[int, ...]] = {
    "stability": (5, 10, 20, 40, 80),
    "prune_patience": (3, 5, 7, 10, 15),
    "warm_up": (5, 10, 15, 20, 30),
}
"""Values of the constants of Parallel-Probe, one swept at a time."""


def parallel_probe(
    data: Data = "synthetic",
    *,
    seeds: int | None = None,
    max_branches: int = 64,
    on_progress: OnProgress | None = None,
) -> Page:
    """Sweeps Parallel-Probe (arXiv 2602.03845) over its number of branches and over its constants.

    Args:
        data: the questions: a dataset, or whatever `autotts_jax.load` takes.
        seeds: S, to play seeds 0 … S - 1 of the released evaluator's protocol; 100 when None.
        max_branches: the most branches that an episode opens; fewer where questions have fewer.
        on_progress: called with what is running, how many of its episodes have ended, and how many it has.

    Returns:
        The page: against self-consistency with as many branches, and with one constant changed at a time.

    Raises:
        InputError: the data or the arguments are of no use.
    """
    dataset = loaded(data)
    width = common_width(dataset, max_branches)
    sweeps = (
        ControllerPlayer(
            name,
            tuple(dataclasses.replace(ParallelProbe(width), **{name: value}) for value in values),
            values,
            name,
        )
        for name, values in SWEEPS.items()
    )
    evaluation = evaluate(
        dataset,
        [*families(("sc", "parallel-probe"), width), *sweeps],
        seeds=seeds,
        max_branches=width,
        on_progress=on_progress,
    )
    return Page(
        "parallel-probe",
        "Parallel-Probe: efficient parallel thinking by 2D probing",
        "arXiv 2602.03845",
        dataset,
        (_widths(evaluation), _constants(evaluation, width)),
    )


def _widths(evaluation: Evaluation) -> Section:
    """Against self-consistency with as many branches."""
    rows = [row for row in evaluation.rows if row.controller in ("sc", "parallel-probe")]
    sc = {(row.model, row.benchmark, row.value): row for row in rows if row.controller == "sc"}
    compared = [(row, sc[row.model, row.benchmark, row.value]) for row in rows if row.controller != "sc"]
    data: list[dict[str, Any]] = [
        {
            "model": row.model,
            "benchmark": row.benchmark,
            "branches": row.value,
            "accuracy": row.accuracy,
            "sc_accuracy": of_sc.accuracy,
            "tokens": row.tokens,
            "sc_tokens": of_sc.tokens,
            "tokens_saved": 1 - row.tokens / of_sc.tokens,
            "sequential_tokens": row.sequential_tokens,
            "sc_sequential_tokens": of_sc.sequential_tokens,
            "sequential_saved": 1 - row.sequential_tokens / of_sc.sequential_tokens,
        }
        for row, of_sc in compared
    ]
    last = {row.benchmark: row.model for row in rows}
    grids = [
        Grid(
            f"{benchmark}, {model}",
            ("branches", "accuracy, %", "SC", "ktokens", "saved, %", "seq. kt", "saved, %"),
            [
                (
                    f"{row['branches']:g}",
                    f"{100 * row['accuracy']:.1f}",
                    f"{100 * row['sc_accuracy']:.1f}",
                    thousands(row["tokens"]),
                    f"{100 * row['tokens_saved']:.1f}",
                    thousands(row["sequential_tokens"]),
                    f"{100 * row['sequential_saved']:.1f}",
                )
                for row in data
                if (row["benchmark"], row["model"]) == (benchmark, model)
            ],
        )
        for benchmark, model in last.items()
    ]
    return Section(
        "widths",
        "Numbers of branches",
        "Parallel-Probe and SC with as many branches; saved: tokens, and sequential tokens, "
        "less than those of SC. The paper's abstract, for all of its experiments: "
        f"{SEQUENTIAL_SAVED.text} {SEQUENTIAL_SAVED.percent} %. "
        f"{TOTAL_SAVED.text} {TOTAL_SAVED.percent} %.",
        grids,
        pa.Table.from_pylist(data),
    )


def _constants(evaluation: Evaluation, width: int) -> Section:
    """One constant changed at a time."""
    swept = [row for row in evaluation.rows if row.controller in SWEEPS]
    grids = []
    for benchmark in benchmarks(swept):
        model, rows = list(by_model(swept, benchmark).items())[-1]
        lines = [
            (row.name, f"{100 * row.accuracy:.1f}", thousands(row.tokens), thousands(row.sequential_tokens))
            for row in rows
        ]
        headings = ("", "accuracy, %", "ktokens", "sequential ktokens")
        grids.append(Grid(f"{benchmark}, {model}", headings, lines))
    defaults = ", ".join(f"{name} {getattr(ParallelProbe(width), name)}" for name in SWEEPS)
    return Section(
        "constants",
        "Constants",
        f"Parallel-Probe@{width} with one constant changed; the released code has {defaults}.",
        grids,
        rows_table(SUMMARY_COLUMNS, swept),
    )
