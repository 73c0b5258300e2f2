"""The report of a run: its archive, the test, the controller that was found and the manifest on a page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from autotts_jax.discovery.programs.interpreter import BETAS
from autotts_jax.discovery.results.found import Discovery
from autotts_jax.discovery.results.tried import archive_parts
from autotts_jax.experiments.tables import thousands
from autotts_jax.extras import needs
from autotts_jax.pages.rendering import Cells, CellsRow, Drawn, Listing, Part, render_parts
from autotts_jax.styles import COLOURS

REPORT = "report.html"
"""The report's file in a run's folder."""

NO_FIGURE = "–"


def discovery_report(found: Discovery) -> str:
    """Makes the report of a run, the HTML of a page that needs nothing else."""
    begun = found.begun
    facts = {
        "to beat": found.incumbent,
        "verdict": "no test yet" if found.test is None else _verdict(found),
        "candidates": f"{len(found.candidates):,}",
        "CPU time": f"{found.cpu_seconds / 60:,.1f} minutes",
        "proposers": ", ".join(map(str, begun.get("proposers", ()))),
        "seed": str(begun.get("seed", NO_FIGURE)),
        "most branches": str(begun.get("max_branches", NO_FIGURE)),
        "cells": ", ".join(cell["cell"] for cell in begun.get("data", ())),
    }
    manifest = Part(
        "Manifest",
        "What the run was begun with.",
        listings=[Listing("Manifest as JSON", json.dumps(begun, indent=2, ensure_ascii=False))],
    )
    tried = archive_parts(found.to_arrow().to_pylist(), found.candidates)
    tested = [] if found.test is None else [_test(found, found.test), _source(found)]
    title = f"Search for a controller better than {found.incumbent}"
    return render_parts("discovery", title, facts, [*tried, *tested, manifest])


def _verdict(found: Discovery) -> str:
    return f"candidate {found.number} {'promoted' if found.promoted else 'not promoted'}"


def _test(found: Discovery, test: Mapping[str, Any]) -> Part:
    """The verdict, and the paired differences from the incumbent behind it."""
    text = (
        f"On questions that searches left out they gain {test['gain']:+.4f} of objective on "
        f"{found.incumbent}, each question under the same branch orders; the lower bound is "
        f"{test['low']:+.4f} at {100 * test['level']:.2g} %. {_verdict(found).capitalize()}."
    )
    if test["falls"]:
        falls = ", ".join(f"{beta:g}" for beta in test["falls"])
        text += f" Tokens fall after β = {falls}, which rules promotion out."
    if found.excel is not None:
        text += f" Excel@best: {100 * found.excel:+.1f} %."
    gains = sorted(test.get("gains", ()))
    rows = [{"rank": rank, "gain": gain} for rank, gain in enumerate(gains, 1)]
    tables = [_matched(found, test)]
    if "baselines" in test:
        known = sorted(test["baselines"].items(), key=lambda named: -named[1])
        named = [("found", test["objective"]), *known]
        lines = [CellsRow([name, f"{objective:.4f}"]) for name, objective in named]
        tables.append(Cells("Objective on questions left out", ["controller", "objective"], lines))
    tables.append(_tokens(test))
    drawn = [Drawn(f"Gain over {found.incumbent} on each question", _gains_chart(), rows)] if rows else []
    return Part("Test", text, drawn, tables)


def _gains_chart() -> dict[str, Any]:
    """Draws the gain on each question, the least first."""
    with needs("plot", "a chart"):
        import altair as alt

    x = alt.X("rank:O", title="questions, by gain", axis=alt.Axis(labels=False, ticks=False))
    tips = [alt.Tooltip("gain:Q", title="Δ objective", format="+.4f")]
    bars = alt.Chart(alt.NamedData("rows")).mark_bar(color=COLOURS[1])
    bars = bars.encode(x=x, y=alt.Y("gain:Q", title="Δ objective"), tooltip=tips)
    return bars.properties(width="container", height=180).to_dict()


def _matched(found: Discovery, test: Mapping[str, Any]) -> Cells:
    """What is found against each setting of the incumbent, at its accuracy and at its tokens."""
    settings = zip(found.begun["incumbent"], test["matched_tokens"], test["matched_accuracy"], strict=False)
    lines = [
        CellsRow(
            [
                name,
                NO_FIGURE if share is None else f"{share:.2f}",
                NO_FIGURE if more is None else f"{100 * more:+.1f}",
            ]
        )
        for name, share, more in settings
    ]
    headings = ("against", "tokens ratio at its accuracy", "Δ accuracy at its tokens, points")
    return Cells("Setting by setting, on questions left out", headings, lines)


def _tokens(test: Mapping[str, Any]) -> Cells:
    """Tokens of the candidate that was tested, by β."""
    betas = [f"β = {beta:g}" for beta in BETAS] if len(test["tokens"]) > 1 else ["every β"]
    errors = test.get("tokens_se", [None] * len(test["tokens"]))
    lines = [
        CellsRow([beta, thousands(tokens), NO_FIGURE if error is None else thousands(error)])
        for beta, tokens, error in zip(betas, test["tokens"], errors, strict=False)
    ]
    return Cells(f"Tokens of candidate {test['number']}", ["setting", "ktokens", "±"], lines)


def _source(found: Discovery) -> Part:
    promoted = "was promoted" if found.promoted else "was tested last, and not promoted"
    return Part(
        "Controller",
        f"Candidate {found.number} {promoted}. discover export writes this file; evaluate and trace play it.",
        listings=[Listing(f"Source of candidate {found.number}", found.source())],
    )
