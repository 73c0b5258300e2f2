"""Draws what learners come to on tasks of the benchmark by environment steps.

    python benchmarks/learning_curves.py runs/purejax/scores.csv runs/sb3/scores.csv --out learners.png

The files are the ``scores.csv`` of ``autotts-jax bench --out`` or of an example's ``--out``; tasks that a
column ``task`` tells apart have a panel each. Lines are learners, with a standard error over training seeds;
entries that are no learners are horizontal. It also prints what a learner gains from more steps, with a 95 %
interval over training seeds by Welch's t.
"""

import csv
import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import t

Row = dict[str, str]
STYLES = ("--", ":", "-.", (0, (1, 4)))


def curves(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each learner, from few steps to many."""
    learners = sorted((row for row in rows if row["steps"]), key=lambda row: int(row["steps"]))
    names = dict.fromkeys(row["name"] for row in rows if row["steps"])
    return {name: [row for row in learners if row["name"] == name] for name in names}


def tasks(files: Sequence[Path]) -> dict[str, list[Row]]:
    """The rows of each task, an entry without training the first time alone."""
    rows = [row for file in files for row in csv.DictReader(file.read_text().splitlines())]
    if not rows:
        raise SystemExit(f"there are no scores in {', '.join(map(str, files))}")
    found: dict[str, dict[tuple[str, str], Row]] = {}
    for row in rows:
        known = found.setdefault(row.get("task", ""), {}).setdefault((row["name"], row["steps"]), row)
        if known is not row and (row["steps"] or known["objective"] != row["objective"]):
            raise SystemExit(f"{row['name']} has two objectives; tell tasks apart by a column 'task'")
    return {task: list(entries.values()) for task, entries in found.items()}


def gain(fewer: Row, more: Row) -> tuple[float, float]:
    """What more steps gain in objective, and half the width of its interval."""
    difference = float(more["objective"]) - float(fewer["objective"])
    variances = [float(row["objective_se"]) ** 2 for row in (fewer, more)]
    total = sum(variances)
    if total == 0:
        return difference, 0.0
    seeds = [int(row["training_seeds"]) for row in (fewer, more)]
    freedom = total**2 / sum(own**2 / (n - 1) for own, n in zip(variances, seeds, strict=True))
    return difference, float(t.ppf(0.975, freedom)) * math.sqrt(total)


def draw_task(panel: Axes, rows: Sequence[Row], colors: dict[str, str], styles: dict[str, Any]) -> None:
    """Draws the objective of every learner by steps, and that of the others."""
    for name, points in curves(rows).items():
        steps, objective, error = (
            [float(row[key]) for row in points] for key in ("steps", "objective", "objective_se")
        )
        panel.errorbar(steps, objective, error, marker="o", capsize=3, label=name, color=colors[name])
    for name, row in ((row["name"], row) for row in rows if not row["steps"]):
        panel.axhline(float(row["objective"]), color="black", linewidth=1, linestyle=styles[name], label=name)
    panel.set(xscale="log", xlabel="environment steps", ylabel="objective", title=rows[0].get("task", ""))
    panel.grid(alpha=0.25)


def draw(files: Sequence[Path], picture: Path) -> None:
    """Draws all tasks."""
    found = tasks(files)
    names = dict.fromkeys(name for rows in found.values() for name in curves(rows))
    colors = {name: f"C{index}" for index, name in enumerate(names)}
    others = dict.fromkeys(row["name"] for rows in found.values() for row in rows if not row["steps"])
    styles = dict(zip(others, itertools.cycle(STYLES), strict=False))
    columns = min(len(found), 2)
    lines = math.ceil(len(found) / columns)
    figure = Figure(figsize=(2 + 4 * columns, 0.5 + 3 * lines), layout="constrained")
    labelled: dict[Any, Any] = {}
    for index, rows in enumerate(found.values(), 1):
        panel = figure.add_subplot(lines, columns, index)
        draw_task(panel, rows, colors, styles)
        handles, labels = panel.get_legend_handles_labels()
        labelled |= dict(zip(labels, handles, strict=True))
    figure.legend(list(labelled.values()), list(labelled), loc="outside right upper", frameon=False)
    figure.savefig(picture, dpi=150)


def main(
    files: Annotated[list[Path], typer.Argument(help="Scores.")],
    out: Annotated[Path, typer.Option(help="The picture.")] = Path("learners.png"),
) -> None:
    """Draw what learners come to on tasks of the benchmark by environment steps."""
    draw(files, out)
    for task, rows in tasks(files).items():
        for name, points in curves(rows).items():
            several = [row for row in points if int(row.get("training_seeds", 0)) > 1]
            for fewer, more in itertools.pairwise(several):
                steps = f"{fewer['steps']} to {more['steps']} steps"
                gained, width = gain(fewer, more)
                print(f"{task} {name}, {steps}: {gained:+.3f} ± {width:.3f}".strip())


if __name__ == "__main__":
    typer.run(main)
