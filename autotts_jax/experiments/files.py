"""What an evaluation leaves on disk: columns, and files that appear together."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import json
import math
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from autotts_jax.core.view import StopReason
from autotts_jax.errors import InputError
from autotts_jax.figures import FORMATS
from autotts_jax.files import destination, locked, read_bytes
from autotts_jax.parsing import parse_json
from autotts_jax.policies.player import Play
from autotts_jax.replay.dataset import ProbeDataset

SUMMARY_COLUMNS = (
    "model",
    "benchmark",
    "controller",
    "value",
    "accuracy",
    "accuracy_low",
    "accuracy_high",
    "accuracy_se",
    "tokens",
    "sequential_tokens",
    "cost",
    "objective",
    "objective_low",
    "objective_high",
    "objective_se",
)
MANIFEST = "manifest.json"
"""The file of an evaluation that appears last."""

FILES = (
    "episodes.parquet",
    "summary.csv",
    "paired.csv",
    "frontier.csv",
    "scores.csv",
    *(f"{kind}.{ending}" for kind in ("frontier", "gains") for ending in FORMATS),
    "table.md",
    "table.tex",
    "report.html",
    MANIFEST,
)
"""The files of an evaluation or a benchmark."""

PARTIAL = ".autotts-jax-partial-"
"""What the name of a folder with results that are being written begins with."""

UNFINISHED = ".autotts-jax-unfinished"
"""A file that is there while those of an evaluation appear, and stays where they do not."""

PATIENCE = 30
"""Seconds to wait for another process that writes results to the same folder."""

PAIRED_COLUMNS = (
    "model",
    "benchmark",
    "controller",
    "value",
    "baseline",
    "gain",
    "gain_low",
    "gain_high",
    "gain_se",
    "gain_p",
    "gain_p_adjusted",
    "gain_detectable",
    "objective_gain",
    "objective_gain_low",
    "objective_gain_high",
    "tokens_ratio",
    "ratio_low",
    "ratio_high",
    "cost_ratio",
    "cost_ratio_low",
    "cost_ratio_high",
)
TEXT_COLUMNS = (
    "model",
    "benchmark",
    "controller",
    "baseline",
    "reference",
    "cost_name",
    "ratio_bound",
    "envelope",
    "name",
    "setting",
)


def rows_table(columns: Sequence[str] | type[Any], rows: Sequence[object]) -> pa.Table:
    """Attributes of rows, or all fields of their class, as an Arrow table of strings and float64."""
    if isinstance(columns, type):
        columns = [field.name for field in dataclasses.fields(columns)]
    kinds = {name: pa.string() if name in TEXT_COLUMNS else pa.float64() for name in columns}
    return pa.table(
        {name: pa.array([getattr(row, name) for row in rows], kind) for name, kind in kinds.items()}
    )


def names_column(index: np.ndarray, names: Sequence[str]) -> pa.Array:
    """Names as a column that holds each once.

    Args:
        index: which name stands in each row. Shape (rows,).
        names: the names.
    """
    return pa.DictionaryArray.from_arrays(pa.array(index, pa.int32()), pa.array(names, pa.string()))


def episodes_table(dataset: ProbeDataset, plays: Sequence[Play]) -> pa.Table:
    """The episodes of an evaluation as an Arrow table, one row an episode."""
    return pa.concat_tables(_play_table(dataset, play) for play in plays).unify_dictionaries()


def _play_table(dataset: ProbeDataset, play: Play) -> pa.Table:
    setting, seed, question = (axis.reshape(-1) for axis in np.indices(play.tokens.shape))
    cell = np.asarray(dataset.matrix.cell)[question]

    def numbers(values: np.ndarray | None, kind: pa.DataType) -> pa.Array:
        if values is None:
            return pa.nulls(play.tokens.size, kind)
        return pa.array(values.reshape(-1), kind)

    stop = play.stop_reason
    reasons = [reason.name.lower() for reason in StopReason]
    values = pa.array(play.player.values, pa.float64())
    columns = {
        "model": names_column(cell, [cell.model for cell in dataset.cells]),
        "benchmark": names_column(cell, [cell.benchmark for cell in dataset.cells]),
        "controller": names_column(np.zeros_like(cell), [play.player.name]),
        "value": values.take(pa.array(setting)),
        "seed": pa.array(seed, pa.int32()),
        "question": pa.array([q.index for q in dataset.questions], pa.int32()).take(pa.array(question)),
        "answer": pa.array(play.answer.reshape(-1), pa.string()),
        "correct": numbers(play.correct, pa.bool_()),
        "tokens": numbers(play.tokens, pa.int64()),
        "intervals": numbers(play.intervals, pa.int32()),
        "probes": numbers(play.probes, pa.int32()),
        "sequential_tokens": numbers(play.sequential_tokens, pa.int64()),
        "branches": numbers(play.branches, pa.int32()),
        "rounds": numbers(play.rounds, pa.int32()),
        "stop_reason": (
            pa.nulls(play.tokens.size, pa.dictionary(pa.int32(), pa.string()))
            if stop is None
            else names_column(stop.reshape(-1), reasons)
        ),
    }
    return pa.table(columns)


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Writes the manifest of results as JSON."""
    text = json.dumps(manifest, indent=2, ensure_ascii=False)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def write_csv(file: Path, table: pa.Table) -> None:
    """Writes a table as CSV, numbers with ten digits and nothing for None and NaN.

    A text that a spreadsheet would run as a formula begins with an apostrophe.
    """
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(table.column_names)
        for row in table.to_pylist():
            writer.writerow([_cell(value) for value in row.values()])


def _cell(value: Any) -> Any:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, str):
        return f"'{value}" if value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
    return f"{value:.10g}" if isinstance(value, float) else value


@contextlib.contextmanager
def results_folder(
    folder: str | Path, names: Sequence[str], earlier: Callable[[], Iterable[str]] = tuple
) -> Iterator[Path]:
    """Gives a place to write results to, whose files appear in ``folder`` when the block ends.

    The results of two processes are never mixed, nor those of two evaluations: what was written before is
    removed before the files appear, in the order of ``names``. Where the last of them is, all are.

    Raises:
        InputError: the folder cannot be written to, or holds what others have written, see
            `check_results_folder`, which is found out before the block begins; or another process does not
            end to write to it.
    """
    folder = destination(folder, "folder")
    with locked(folder, PATIENCE), _failures(folder):
        _check_others(folder, names)
        for left in folder.glob(f"{PARTIAL}*/"):
            shutil.rmtree(left)
        # PyArrow would take a path that begins with "~" for another than everybody else does.
        partial = Path(tempfile.mkdtemp(prefix=PARTIAL, dir=folder.absolute()))
        try:
            yield partial
            if MANIFEST in names:
                (folder / UNFINISHED).touch()
            for name in (*names, *earlier()):
                (folder / name).unlink(missing_ok=True)
            for name in names:
                if (partial / name).exists():
                    (partial / name).replace(folder / name)
            if MANIFEST in names:
                (folder / UNFINISHED).unlink()
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def check_results_folder(folder: str | Path, names: Sequence[str]) -> None:
    """Finds out whether `results_folder` can give a place, and leaves the folder as it is.

    Raises:
        InputError: the folder cannot be written to; or it holds a ``manifest.json`` that is not an
            evaluation's, as that of a training run, or a folder of one of these names, or files of an
            evaluation's names with neither a ``manifest.json`` nor `UNFINISHED`, which somebody else has
            written; or another process does not end to write to it.
    """
    folder = destination(folder, "folder")
    with locked(folder, PATIENCE), _failures(folder):
        _check_others(folder, names)
        Path(tempfile.mkdtemp(prefix=PARTIAL, dir=folder)).rmdir()


@contextlib.contextmanager
def _failures(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"writing results to {folder} failed: {error.strerror or error}") from None


def _check_others(folder: Path, names: Sequence[str]) -> None:
    """Raises an `InputError` where the folder holds what no evaluation has written."""
    _check_manifest(folder)
    for file in (folder / name for name in names if (folder / name).is_dir()):
        raise InputError(f"{file} is a folder; move it, or give another folder for the results")
    if MANIFEST not in names or (folder / MANIFEST).exists() or (folder / UNFINISHED).exists():
        return
    if others := [name for name in names if (folder / name).exists()]:
        raise InputError(
            f"{folder} holds {', '.join(others)} and no {MANIFEST}, so that no evaluation has written this; "
            "move it, or give another folder for the results"
        )


def _check_manifest(folder: Path) -> None:
    """Raises an `InputError` where there is a manifest that is not an evaluation's."""
    manifest = folder / MANIFEST
    if not manifest.exists():
        return
    try:
        content = parse_json(read_bytes(manifest).decode())
        own = isinstance(content, dict) and {"controllers", "protocol", "seeds"} <= content.keys()
    except ValueError:  # it is damaged, and replaced if it is an evaluation's
        own = (folder / "episodes.parquet").exists()
    if not own:
        raise InputError(f"{manifest} is not an evaluation's, as that of a training run; give another folder")
