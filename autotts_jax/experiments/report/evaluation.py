"""The report of an evaluation."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from autotts_jax.core.costs import UNITS, CostName
from autotts_jax.experiments.frontier import Comparison
from autotts_jax.experiments.report.charts import (
    ANSWERS,
    axes,
    chart_row,
    episode_chart,
    frontier_chart,
    gains_chart,
    page_styles,
    votes_chart,
)
from autotts_jax.experiments.report.episodes import (
    LISTED,
    BestSetting,
    best_settings,
    by_disagreement,
    watched_episodes,
)
from autotts_jax.experiments.summary import ALL_MODELS, Objective, Row
from autotts_jax.experiments.tables import difference, matched, objective_text, percent, points, thousands
from autotts_jax.pages.rendering import Cells, CellsRow, render
from autotts_jax.policies.player import Play
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.replay.orders import BranchOrders
from autotts_jax.styles import styles

NO_FIGURE = "–"


def evaluation_report(
    dataset: ProbeDataset,
    plays: Sequence[Play],
    objective: Objective,
    rows: Sequence[Row],
    comparisons: Sequence[Comparison],
    orders: BranchOrders,
    manifest: Mapping[str, Any],
) -> str:
    """Makes the report of an evaluation, the HTML of a page that needs nothing else."""
    kind = objective.model.kind
    first = rows[0].baseline
    controllers = list(dict.fromkeys(row.controller for row in rows))
    cells = list(dict.fromkeys((row.model, row.benchmark) for row in rows))
    # Of a benchmark, the mean of its models is last.
    shown = {benchmark: model for model, benchmark in cells}
    chosen = best_settings(dataset, plays, objective)
    ranked = by_disagreement(dataset, chosen)
    episodes = watched_episodes(dataset, chosen, ranked, orders, manifest["max_branches"], manifest["budget"])
    names = f"{', '.join(controllers[:4])}{' …' if len(controllers) > 4 else ''}"
    return render(
        "evaluation",
        f"{names} on {', '.join(shown)}",
        _chart_data(rows, controllers, kind) | {"episodes": episodes},
        facts=_facts(dataset, manifest),
        controllers=controllers,
        cells=[
            {
                "id": f"{model}/{benchmark}",
                "model": model,
                "benchmark": benchmark,
                "shown": shown[benchmark] == model,
            }
            for model, benchmark in cells
        ],
        costs=axes(kind),
        first=first,
        compared=any(row.name != first for row in rows),
        gamma=f"{objective.gamma:g}",
        cost=kind,
        results={"/".join(cell): _results(rows, *cell, kind) for cell in cells},
        differences={"/".join(cell): _differences(rows, *cell, first, kind) for cell in cells},
        frontiers=_frontiers(comparisons),
        questions=_questions(dataset, chosen, ranked[:LISTED].tolist(), episodes),
        listed=min(len(ranked), LISTED),
        settings={name: one.name for name, one in chosen.items()},
        watched=list(episodes[0]["plays"]) if episodes else [],
        manifest=json.dumps(manifest, indent=2, ensure_ascii=False),
    )


def _chart_data(rows: Sequence[Row], controllers: Sequence[str], kind: CostName) -> dict[str, Any]:
    """What charts show, and how."""
    look = styles(controllers)
    by_benchmark: dict[str, list[Row]] = {}
    for row in rows:
        by_benchmark.setdefault(row.benchmark, []).append(row)
    frontier = {
        benchmark: {axis.field: frontier_chart(of, axis, look) for axis in axes(kind)}
        for benchmark, of in by_benchmark.items()
    }
    return {
        "first": rows[0].baseline,
        "rows": [chart_row(row) for row in rows],
        "styles": page_styles(look),
        "answers": ANSWERS,
        "charts": {
            "frontier": frontier,
            "gains": gains_chart(look),
            "episode": episode_chart(),
            "votes": votes_chart(),
        },
    }


def _facts(dataset: ProbeDataset, manifest: Mapping[str, Any]) -> dict[str, str]:
    """What was played, in a line each."""
    budget = manifest["budget"]
    episodes = sum(controller["episodes"] for controller in manifest["controllers"])
    return {
        "questions": f"{len(dataset):,}",
        "seeds": f"{manifest['seeds']:,}",
        "episodes": f"{episodes:,}",
        "protocol": manifest["protocol"],
        "most branches": f"{manifest['max_branches']}",
        "token budget": "none" if budget is None else f"{budget:,}",
        "answers": dataset.encoding,
    }


def _here(rows: Sequence[Row], model: str, benchmark: str) -> Iterator[Row]:
    return (row for row in rows if (row.model, row.benchmark) == (model, benchmark))


def _caption(model: str, benchmark: str) -> str:
    return f"{benchmark}, {model}"


def _results(rows: Sequence[Row], model: str, benchmark: str, kind: CostName) -> Cells:
    """Accuracy, costs and objective of each setting on a cell."""
    other = kind not in ("intervals", "tokens")

    def cells(row: Row) -> list[str]:
        own = [f"{row.cost:.3g}"] if other else []
        return [
            row.name,
            percent(row.accuracy, row.accuracy_low, row.accuracy_high),
            thousands(row.tokens),
            thousands(row.sequential_tokens),
            *own,
            objective_text(row),
        ]

    headings = ["setting", "accuracy, %, 95 %", "ktokens", "sequential ktokens"]
    headings += [f"{kind}, {UNITS[kind]}"] if other else []
    lines = [CellsRow(cells(row), row.controller) for row in _here(rows, model, benchmark)]
    return Cells(_caption(model, benchmark), [*headings, "objective, 95 %"], lines)


def _differences(rows: Sequence[Row], model: str, benchmark: str, first: str, kind: CostName) -> Cells:
    """The gains of each setting over the first one on a cell."""
    other = kind not in ("intervals", "tokens")

    def ratio(of: float, low: float, high: float) -> str:
        return NO_FIGURE if math.isnan(of) else f"{of:.2f} [{low:.2f}, {high:.2f}]"

    def cells(row: Row) -> list[str]:
        own = [ratio(row.cost_ratio, row.cost_ratio_low, row.cost_ratio_high)] if other else []
        detectable = row.gain_detectable
        return [
            row.name,
            points(row.gain, row.gain_low, row.gain_high),
            NO_FIGURE if math.isnan(row.gain_p_adjusted) else f"{row.gain_p_adjusted:.3f}",
            NO_FIGURE if math.isnan(detectable) else f"{100 * detectable:.1f}",
            ratio(row.tokens_ratio, row.ratio_low, row.ratio_high),
            *own,
            difference(row.objective_gain, row.objective_gain_low, row.objective_gain_high),
        ]

    headings = ["setting", "Δ accuracy, 95 %", "p, adjusted", "detectable", "tokens ratio, 95 %"]
    headings += [f"{kind} ratio, 95 %"] if other else []
    lines = [CellsRow(cells(r), r.controller) for r in _here(rows, model, benchmark) if r.name != first]
    return Cells(_caption(model, benchmark), [*headings, "Δ objective, 95 %"], lines)


def _questions(
    dataset: ProbeDataset,
    chosen: Mapping[str, BestSetting],
    questions: Sequence[int],
    episodes: Sequence[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """How often each controller is right on each question."""
    watched = {(one["cell"], one["question"]): number for number, one in enumerate(episodes)}
    accuracy = {name: one.correct.mean(axis=0) for name, one in chosen.items()}
    found = []
    for question in questions:
        asked, cell = dataset.questions[question], dataset.cells[int(dataset.matrix.cell[question])]
        percent = {name: 100 * of[question] for name, of in accuracy.items()}
        found.append(
            {
                "name": f"{asked.index}",
                "text": asked.text,
                "cell": cell.name,
                "mean": f"{ALL_MODELS}/{cell.benchmark}",
                "where": _caption(cell.model, cell.benchmark),
                "accuracy": {name: f"{of:.0f}" for name, of in percent.items()},
                "spread": f"{max(percent.values()) - min(percent.values()):.0f}",
                "episode": watched.get((cell.name, asked.index)),
            }
        )
    return found


def _frontiers(comparisons: Sequence[Comparison]) -> dict[str, Cells]:
    """Swept controllers at the accuracy and at the cost of the reference's settings, by cell."""
    tables: dict[str, Cells] = {}
    for model, benchmark in dict.fromkeys((one.model, one.benchmark) for one in comparisons):
        here = [one for one in comparisons if (one.model, one.benchmark) == (model, benchmark)]
        cost = here[0].cost_name
        headings = (
            "controller, against",
            "accuracy, %",
            "ktokens" if cost == "tokens" else f"{cost}, {UNITS[cost]}",
            f"{cost} ratio, 95 %",
            "Δ accuracy, 95 %",
        )
        rows = []
        for one in here:
            if one.controller != one.reference:
                against, *figures = matched(one)
                rows.append(CellsRow([f"{one.controller}, {against}", *figures], one.controller))
        tables[f"{model}/{benchmark}"] = Cells(_caption(model, benchmark), headings, rows)
    return tables
