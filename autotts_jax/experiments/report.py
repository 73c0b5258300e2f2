"""What an evaluation leaves behind: tables on the terminal, and a folder of files."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import json
import math
import platform
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich import box
from rich.console import Console
from rich.table import Table

from autotts_jax.collect.store import Store
from autotts_jax.collect.trajectories import Usage
from autotts_jax.core.pool import StopReason
from autotts_jax.errors import InputError
from autotts_jax.experiments.evaluate import Evaluation, Play
from autotts_jax.experiments.frontier import REFERENCE_BRANCHES, Comparison
from autotts_jax.experiments.plots import draw_frontier
from autotts_jax.experiments.summary import Row
from autotts_jax.policies.players import label
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.replay.statistics import cell_statistics

SUMMARY_COLUMNS = (
    "model",
    "benchmark",
    "controller",
    "value",
    "accuracy",
    "accuracy_se",
    "tokens",
    "sequential_tokens",
    "objective",
)
PAIRED_COLUMNS = ("model", "benchmark", "controller", "value", "gain", "gain_low", "gain_high")
FRONTIER_COLUMNS = tuple(field.name for field in dataclasses.fields(Comparison))

SETTINGS_SHOWN = 5
"""Settings of the reference controller that a printed comparison has at most; its file has them all."""


def tables(rows: Sequence[Row]) -> Iterator[Table]:
    """One table a benchmark: a section for each model, a line for each setting."""
    first = rows[0].label
    headings = ["accuracy, %", "ktokens", "seq. kt", "objective"]
    compared = any(row.label != first for row in rows)
    for benchmark in dict.fromkeys(row.benchmark for row in rows):
        of_benchmark = [row for row in rows if row.benchmark == benchmark]
        table = _table(benchmark, [*headings, "Δ accuracy, 95 %"] if compared else headings)
        for model in dict.fromkeys(row.model for row in of_benchmark):
            table.add_row(model, style="bold")
            for row in of_benchmark:
                if row.model == model:
                    table.add_row(*_figures(row), "" if row.label == first else _interval(row))
            table.add_section()
        yield table


def _table(title: str, headings: Sequence[str]) -> Table:
    """An empty table of figures; it fits 80 columns, so the padding is small."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    table.show_edge, table.padding = False, 0
    table.add_column("", overflow="fold")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _figures(row: Row) -> tuple[str, ...]:
    error = "" if math.isnan(row.accuracy_se) else f" ± {100 * row.accuracy_se:.1f}"
    return (
        row.label,
        f"{100 * row.accuracy:.1f}{error}",
        thousands(row.tokens),
        thousands(row.sequential_tokens),
        f"{row.objective:.3f}",
    )


def thousands(tokens: float) -> str:
    """Tokens in thousands, to three digits or more from 1,000 on."""
    return f"{tokens / 1000:.{1 if tokens >= 10_000 else 2}f}"


def _interval(row: Row) -> str:
    return _points(row.gain, row.gain_low, row.gain_high)


def _points(gain: float, low: float, high: float) -> str:
    """A difference of accuracies and its interval, in percentage points."""
    return f"{100 * gain:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]".replace("inf", "∞")


def print_tables(rows: Sequence[Row], console: Console) -> None:
    """Prints the tables and what their columns mean."""
    for table in tables(rows):
        console.print(table)
    console.print(
        "accuracy: mean ± standard error over seeds; seq. kt: sequential ktokens;\n"
        "objective: mean of 1{correct} - γ·cost; "
        f"Δ accuracy: gain over {rows[0].label}, with its\n"
        "95 % interval by paired bootstrap over questions",
        style="dim",
    )


def comparison_tables(comparisons: Sequence[Comparison]) -> Iterator[Table]:
    """One table a benchmark, of the mean of its models: a section for each controller.

    Beside the reference a controller has a line for some of the reference's settings.
    """
    for benchmark in dict.fromkeys(comparison.benchmark for comparison in comparisons):
        of_benchmark = [comparison for comparison in comparisons if comparison.benchmark == benchmark]
        model = of_benchmark[-1].model  # the mean of the models, where there are several, comes last
        reference = of_benchmark[-1].reference
        headings = ["accuracy, %", "ktokens", "tokens ratio, 95 %", "Δ accuracy, 95 %"]
        table = _table(f"{benchmark}, {model}: against {reference}", headings)
        by_controller: dict[str, list[Comparison]] = {}
        for comparison in of_benchmark:
            if comparison.model == model:
                by_controller.setdefault(comparison.controller, []).append(comparison)
        settings = len(by_controller[reference])
        shown = np.linspace(0, settings - 1, min(settings, SETTINGS_SHOWN)).round().astype(int)
        for controller, lines in by_controller.items():
            areas = f"hypervolume {lines[0].hypervolume:.4f}", f"regret {lines[0].regret:.4f}"
            table.add_row(controller, "", "", *areas, style="bold")
            if controller != reference:
                for index in shown:
                    table.add_row(*_matched(lines[index]))
            table.add_section()
        yield table


def _matched(comparison: Comparison) -> tuple[str, ...]:
    ratio, low, high = comparison.tokens_ratio, comparison.ratio_low, comparison.ratio_high
    gain = comparison.accuracy_gain, comparison.gain_low, comparison.gain_high
    return (
        label(comparison.reference, comparison.value),
        f"{100 * comparison.accuracy:.1f}",
        thousands(comparison.tokens),
        "not reached" if math.isnan(ratio) else f"{ratio:.2f} [{low:.2f}, {high:.2f}]".replace("inf", "∞"),
        "too few tokens" if math.isnan(gain[0]) else _points(*gain),
    )


def print_comparisons(comparisons: Sequence[Comparison], console: Console) -> None:
    """Prints the comparisons, if there are any, and what their columns mean."""
    if not comparisons:
        return
    for table in comparison_tables(comparisons):
        console.print(table)
    console.print(
        "tokens ratio: tokens at the setting's accuracy, over those of the reference's\n"
        "frontier; Δ accuracy: accuracy at the setting's tokens, less that of the same\n"
        "frontier; both with their 95 % interval by paired bootstrap over questions;\n"
        f"hypervolume: mean accuracy over budgets up to the tokens of SC@{REFERENCE_BRANCHES}, each spent\n"
        "on the best setting within it; regret: accuracy missing to the best of these\n"
        "controllers, mean over the same budgets",
        style="dim",
    )


def statistics_tables(dataset: ProbeDataset) -> Iterator[Table]:
    """Statistics of the cells: one table a benchmark, a column for each model."""
    for benchmark in dict.fromkeys(cell.benchmark for cell in dataset.cells):
        members = [index for index, cell in enumerate(dataset.cells) if cell.benchmark == benchmark]
        columns = [cell_statistics(dataset, index) for index in members]
        table = _table(benchmark, [dataset.cells[index].model for index in members])
        for name in columns[0]:
            table.add_row(name, *(_number(column[name]) for column in columns))
        yield table


def collection_table(store: Store) -> Table:
    """How far a collection is, and what it took so far."""
    done, plan = store.done(), store.plan
    usage = sum((collected.usage for collected in done), Usage())
    branches = sum(collected.unit.size for collected in done)
    probe_tokens = usage.forced / max(usage.probes, 1)
    table = _table(f"{plan.model}/{plan.benchmark}", ["collection"])
    for name, value in {
        "questions": len(plan.questions),
        "branches": f"{branches:,} of {len(plan.questions) * plan.num_branches:,}",
        "tokens written": f"{usage.generated:,}",
        "tokens a branch": f"{usage.generated / max(branches, 1):,.0f}",
        "probes": f"{usage.probes:,}",
        "tokens a probe": f"{probe_tokens:.1f}",
        "κ_probe": f"{probe_tokens / plan.sampling.interval:.4f}",
        "prompt tokens cached": f"{usage.cached / max(usage.prompted, 1):.0%}",
    }.items():
        table.add_row(name, str(value))
    return table


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.1f}" if value >= 10 else f"{value:.3f}"


# --- files ----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def results_folder(folder: Path | None) -> Iterator[Path | None]:
    """A place to write results to, whose files appear in ``folder`` together, when all are complete.

    Args:
        folder: where they are to appear, made if need be; None gives None.

    Raises:
        InputError: the folder cannot be written to; found out before any work is done.
    """
    if folder is None:
        yield None
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=folder))
    except OSError as error:
        raise InputError(
            f"cannot write results to {folder}: {error.strerror}; give another folder with --out"
        ) from None
    try:
        yield partial
        for file in sorted(partial.iterdir()):
            file.replace(folder / file.name)
    except OSError as error:
        raise InputError(f"writing results to {folder} failed: {error.strerror or error}") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def write_results(
    folder: Path,
    evaluation: Evaluation,
    rows: Sequence[Row],
    arguments: Mapping[str, Any],
    comparisons: Sequence[Comparison] = (),
) -> list[Path]:
    """Writes ``episodes.parquet``, ``summary.csv``, ``paired.csv``, the frontier and ``manifest.json``.

    Comparisons, where there are any, go to ``frontier.csv``.

    Returns:
        The files.
    """
    pq.write_table(episodes_table(evaluation), folder / "episodes.parquet")
    _write_csv(folder / "summary.csv", SUMMARY_COLUMNS, rows)
    _write_csv(folder / "paired.csv", PAIRED_COLUMNS, rows)
    if comparisons:
        _write_csv(folder / "frontier.csv", FRONTIER_COLUMNS, comparisons)
    draw_frontier(rows, [folder / "frontier.png", folder / "frontier.svg"])
    manifest = json.dumps(build_manifest(evaluation, arguments), indent=2, ensure_ascii=False)
    (folder / "manifest.json").write_text(manifest + "\n", encoding="utf-8")
    return sorted(folder.iterdir())


def episodes_table(evaluation: Evaluation) -> pa.Table:
    """One row an episode."""
    return pa.concat_tables(_play_table(evaluation, play) for play in evaluation.plays)


def _play_table(evaluation: Evaluation, play: Play) -> pa.Table:
    dataset = evaluation.dataset
    setting, seed, question = (axis.reshape(-1) for axis in np.indices(play.tokens.shape))
    cell = np.asarray(dataset.matrix.cell)[question]

    def names(index: np.ndarray, of: Sequence[str]) -> pa.Array:
        return pa.DictionaryArray.from_arrays(pa.array(index, pa.int32()), pa.array(of, pa.string()))

    def numbers(values: np.ndarray | None, kind: pa.DataType) -> pa.Array:
        if values is None:
            return pa.nulls(play.tokens.size, kind)
        return pa.array(values.reshape(-1), kind)

    stop = play.stop_reason
    reasons = [reason.name.lower() for reason in StopReason]
    values = pa.array(play.selection.values, pa.float64())
    columns = {
        "model": names(cell, [cell.model for cell in dataset.cells]),
        "benchmark": names(cell, [cell.benchmark for cell in dataset.cells]),
        "controller": names(np.zeros_like(cell), [play.selection.name]),
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
            else names(stop.reshape(-1), reasons)
        ),
    }
    return pa.table(columns)


def _write_csv(path: Path, columns: Sequence[str], rows: Sequence[Row] | Sequence[Comparison]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for row in rows:
            writer.writerow([_cell(getattr(row, column)) for column in columns])


def _cell(value: Any) -> Any:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return f"{value:.10g}" if isinstance(value, float) else value


def build_manifest(evaluation: Evaluation, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What made the results: versions, device, data, arguments and wall times."""
    packages = ("autotts-jax", "jax", "jaxlib", "numpy", "scipy")
    dataset = evaluation.dataset
    return {
        "versions": {"python": platform.python_version()}
        | {package: metadata.version(package) for package in packages},
        "devices": [str(device.device_kind) for device in jax.local_devices()],
        "arguments": dict(arguments),
        "data": [{"cell": cell.name, "source": cell.source, "sha256": cell.sha256} for cell in dataset.cells],
        "encoding": dataset.encoding,
        "seeds": evaluation.seeds,
        "controllers": [
            {
                "name": play.selection.name,
                "program": play.selection.program,
                "values": play.selection.values,
                "episodes": int(play.tokens.size),
                "compile_seconds": round(play.compile_seconds, 3),
                "run_seconds": round(play.run_seconds, 3),
            }
            for play in evaluation.plays
        ],
    }
