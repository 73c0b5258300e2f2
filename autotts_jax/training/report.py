"""The report of a run: its learning curves and its manifest on a page."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from autotts_jax.pages.charts import curves_chart
from autotts_jax.pages.rendering import Cells, CellsRow, Drawn, Listing, Part, render_parts
from autotts_jax.training.manifest import read_manifest
from autotts_jax.training.metrics import read_metrics
from autotts_jax.training.validation import Difference

REPORT = "report.html"
"""The report's file in a run's folder."""

MOST = 500
"""Updates that a curve or a table shows."""

VALIDATION, TRAIN = "validation/", "train/"


def training_report(folder: Path, differences: Sequence[Difference] = ()) -> str:
    """Makes the report of a run that has ended or was stopped.

    Returns:
        The HTML of a page that needs nothing else.

    Raises:
        InputError: Altair is missing.
        DataError: the run's metrics or its manifest are damaged.
    """
    manifest = read_manifest(folder)
    config, result = manifest["config"], manifest["result"]
    lines = read_metrics(folder)
    validated = [line for line in lines if any(name.startswith(VALIDATION) for name in line)]
    best = result["best_update"]
    facts = {
        "trainer": config["trainer"]["kind"],
        "updates": f"{result['update']:,} of {config['run']['updates']:,}",
        "ended by": result["ended"],
        "best validation objective": f"{result['best_objective']:.4f}, at update {best:,}",
        "wall time": f"{result['seconds'] / 60:,.1f} minutes",
        "cells": ", ".join(manifest["data"]),
    }
    held_out = config["data"]["split"] or config["data"]["fold"] is not None
    parts = [
        Part(
            "Validation",
            f"On {'questions that the policy is not' if held_out else 'the questions that the policy is'} "
            "trained on. Update 0 is the policy that the run began with; the policy that is kept is that of "
            f"update {best:,}.",
            _curves(validated, VALIDATION, _references(validated, best, differences)),
            [_validations(validated, best)] if validated else [],
        ),
        Part(
            "Differences",
            "The policy that is kept minus published controllers, in the episodes of the validation, with "
            "95 % intervals over questions. Each controller has, for each γ, the number "
            "of branches or the β of the best objective on these questions; the policy is the best on them.",
            tables=[_differences(differences)] if differences else [],
        ),
        Part(
            "Training",
            "What the trainer measured in each update.",
            _curves(lines, TRAIN),
            [_measurements(lines)] if len(lines) > 1 else [],
        ),
        Part(
            "Manifest",
            "What made this policy.",
            listings=[Listing("Manifest as JSON", json.dumps(manifest, indent=2, ensure_ascii=False))],
        ),
    ]
    return render_parts("training", folder.resolve().name, facts, [part for part in parts if any(part[2:])])


def _names(lines: Sequence[Mapping[str, Any]], kind: str) -> list[str]:
    """The metrics of a kind, in the order in which they come up."""
    return list(dict.fromkeys(name for line in lines for name in line if name.startswith(kind)))


def _title(name: str) -> str:
    return name.partition("/")[2].replace("_", " ") + (", %" if name.endswith("accuracy") else "")


def _value(line: Mapping[str, Any], name: str) -> float | None:
    """A metric, accuracies in percent as everywhere on pages."""
    value = line.get(name)
    return 100 * value if value is not None and name.endswith("accuracy") else value


def _references(
    validated: Sequence[Mapping[str, Any]], best: int, differences: Sequence[Difference]
) -> dict[str, dict[str, float]]:
    """What published controllers come to in the same episodes, by metric: the policy less its difference."""
    kept = next((line for line in validated if line["update"] == best), {})
    found: dict[str, dict[str, float]] = {}
    for one in differences:
        known = {
            "objective": kept.get(f"{VALIDATION}objective", math.nan) - one.gain,
            "accuracy": 100 * (kept.get(f"{VALIDATION}accuracy", math.nan) - one.accuracy),
            "tokens": kept.get(f"{VALIDATION}tokens", math.nan) / one.tokens_ratio,
        }
        for metric, value in known.items():
            if math.isfinite(value):
                found.setdefault(f"{VALIDATION}{metric}", {})[one.baseline] = value
    return found


def _curves(
    lines: Sequence[Mapping[str, Any]],
    kind: str,
    references: Mapping[str, Mapping[str, float]] = MappingProxyType({}),
) -> list[Drawn]:
    """A chart for each metric that has numbers."""
    drawn = []
    for name in _names(lines, kind):
        found = [line for line in lines if line.get(name) is not None]
        if found:
            every = -(-len(found) // MOST)
            rows = [{"at": line["update"], "value": _value(line, name)} for line in found[::every]]
            caption = _title(name) + (f", every {every} updates" if every > 1 else "")
            drawn.append(Drawn(caption, curves_chart("update", references=references.get(name, {})), rows))
    return drawn


def _validations(lines: Sequence[Mapping[str, Any]], best: int) -> Cells:
    """The validation metrics; of many validations evenly spaced ones, and always the best and the last."""
    every = -(-len(lines) // MOST)
    kept = [
        line
        for number, line in enumerate(lines)
        if number % every == 0 or line["update"] == best or line is lines[-1]
    ]
    names = _names(lines, VALIDATION)
    rows = [
        CellsRow(
            [
                f"{line['update']:,}{' (best)' if line['update'] == best else ''}",
                *(_number(_value(line, name)) for name in names),
            ]
        )
        for line in kept
    ]
    return Cells("Validations", ["update", *map(_title, names)], rows)


def _differences(differences: Sequence[Difference]) -> Cells:
    """What the policy gains over each controller."""
    headings = ("minus", "Δ objective, 95 %", "Δ accuracy, 95 %", "tokens ratio")
    rows = [
        CellsRow(
            [
                one.baseline,
                f"{one.gain:+.3f} [{one.gain_low:+.3f}, {one.gain_high:+.3f}]",
                f"{100 * one.accuracy:+.1f} [{100 * one.accuracy_low:+.1f}, {100 * one.accuracy_high:+.1f}]",
                f"{one.tokens_ratio:.2f}",
            ]
        )
        for one in differences
    ]
    return Cells("Differences from published controllers", headings, rows)


def _measurements(lines: Sequence[Mapping[str, Any]]) -> Cells:
    """Where the metrics of the trainer began and ended, and their range."""
    rows = []
    for name in _names(lines, TRAIN):
        found = [value for line in lines if (value := _value(line, name)) is not None]
        if found:
            shown = (found[0], found[-1], min(found), max(found))
            rows.append(CellsRow([_title(name), *map(_number, shown)]))
    return Cells("Measurements", ["metric", "first", "last", "least", "most"], rows)


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
