"""The controllers that papers play, on data of any width."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from autotts_jax.checks import check_int
from autotts_jax.core.controller import Family
from autotts_jax.errors import InputWarning
from autotts_jax.experiments.summary import ALL_MODELS, Row
from autotts_jax.policies.early_stopping import WINDOW
from autotts_jax.policies.players import CONTROLLERS
from autotts_jax.replay.dataset import ProbeDataset

Data = ProbeDataset | str | Path | Sequence[str | Path]
"""A dataset, or whatever `autotts_jax.load` takes."""


def common_width(dataset: ProbeDataset, max_branches: int) -> int:
    """Finds how many branches every question has, at most.

    Returns:
        W.
    """
    most = check_int("max_branches", max_branches, 1)
    return min(most, *(cell.num_branches for cell in dataset.cells))


def families(names: Sequence[str], width: int) -> Iterator[Family]:
    """Gives controllers over the values of a sweep: numbers of branches up to W, and W among them.

    Yields:
        The families.
    """
    for name in names:
        family = CONTROLLERS[name]
        if family.value_name != "branches":
            yield family
        elif name == "esc" and width < WINDOW:
            warnings.warn(
                f"ESC is left out: it looks at {WINDOW} branches at a time, and episodes open {width}",
                InputWarning,
                stacklevel=2,
            )
        else:
            fewer = tuple(value for value in family.values if value < width)
            yield dataclasses.replace(family, values=(*fewer, width))


def by_model(rows: Sequence[Row], benchmark: str) -> dict[str, list[Row]]:
    """Groups the rows of a benchmark.

    Returns:
        Rows by model; the mean of models, if there are several, comes last.
    """
    grouped: dict[str, list[Row]] = {}
    for row in rows:
        if row.benchmark == benchmark:
            grouped.setdefault(row.model, []).append(row)
    return grouped


def benchmarks(rows: Sequence[Row]) -> list[str]:
    """Lists the benchmarks of an evaluation."""
    return list(dict.fromkeys(row.benchmark for row in rows))


def cells_of(dataset: ProbeDataset) -> dict[str, list[int]]:
    """Groups the cells of a dataset.

    Returns:
        Indices of cells by benchmark.
    """
    grouped: dict[str, list[int]] = {}
    for index, cell in enumerate(dataset.cells):
        grouped.setdefault(cell.benchmark, []).append(index)
    return grouped


def powers(most: int) -> list[int]:
    """Lists 1, 2, 4 … below a number, and the number."""
    return [*(2**power for power in range(most.bit_length()) if 2**power < most), most]


def title_of(dataset: ProbeDataset, benchmark: str, cells: Sequence[int]) -> str:
    """Says of which model a figure of a benchmark is, or that it is of the mean of several."""
    return f"{benchmark}, {dataset.cells[cells[0]].model if len(cells) == 1 else ALL_MODELS}"
