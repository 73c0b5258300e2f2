"""Where a run writes its metrics: ``metrics.jsonl`` and its loggers."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autotts_jax.checks import check_int
from autotts_jax.errors import DataError
from autotts_jax.files import read_bytes, write_atomically
from autotts_jax.loggers import Logger, opened
from autotts_jax.parsing import parse_json

METRICS = "metrics.jsonl"
"""The file in a run's folder with one line of metrics an update."""


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Reads the metrics of a run.

    Args:
        folder: the run's folder.

    Returns:
        For each update its number as ``update`` and its metrics, None where one is not finite.

    Raises:
        DataError: a line is damaged.
    """
    path = folder / METRICS
    return [_metrics_of(path, n, line) for n, line in enumerate(read_bytes(path).splitlines(), 1)]


def _metrics_of(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        metrics: dict[str, Any] = parse_json(line)
        check_int("update", metrics["update"])
        return metrics
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(path, f"line {number} is damaged; delete it and resume again") from error


class MetricsLog:
    """Writes the metrics of a run, and forgets those of updates that will be made again.

    Raises:
        InputError: what a logger needs is missing.
        DataError: a line that is there is damaged.
    """

    def __init__(self, folder: Path, first: int, loggers: Sequence[str | Logger] = ()):
        lines = folder / METRICS
        if lines.exists():
            # A line that was being written when the process was killed has no end, and nothing behind it.
            whole = [line for line in read_bytes(lines).splitlines(keepends=True) if line.endswith(b"\n")]
            kept = [
                line
                for number, line in enumerate(whole, 1)
                if _metrics_of(lines, number, line)["update"] < first
            ]
            write_atomically(lines, b"".join(kept))
        with contextlib.ExitStack() as stack:
            self._lines = stack.enter_context(lines.open("a", encoding="utf-8", buffering=1))
            self._log = stack.enter_context(opened(loggers, folder, first))
            self._stack = stack.pop_all()

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def write(self, update: int, metrics: dict[str, float]) -> None:
        """Adds the metrics of an update."""
        known = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        self._lines.write(json.dumps({"update": update} | known) + "\n")
        self._log(update, metrics)
