"""Draws what learners come to on a task of the benchmark by environment steps.

    python benchmarks/learning_curves.py runs/purejax runs/sb3 --out docs/learners.png

A run is a folder with the ``scores.csv`` of ``autotts-jax bench --out`` or of an example's ``--out``.
All are of one task. Lines are learners, with a standard error over training seeds; the entries of the first
run that are no learners are horizontal.
"""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from matplotlib.figure import Figure


def draw(folders: Sequence[Path], file: Path) -> None:
    """Draws the objective of every learner by steps, and that of the others, into a file."""
    scores = [list(csv.DictReader((folder / "scores.csv").read_text().splitlines())) for folder in folders]
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    panel = figure.subplots()
    learners = [row for rows in scores for row in rows if row["steps"]]
    for name in dict.fromkeys(row["name"] for row in learners):
        rows = sorted((row for row in learners if row["name"] == name), key=lambda row: int(row["steps"]))
        steps, *columns = (
            [float(row[key]) for row in rows] for key in ("steps", "objective", "objective_se")
        )
        panel.errorbar(steps, columns[0], columns[1], marker="o", capsize=3, label=name)
    others = [row for row in scores[0] if not row["steps"]]
    for style, row in zip(("--", ":", "-.", (0, (1, 4))), others, strict=False):
        panel.axhline(float(row["objective"]), color="black", linewidth=1, linestyle=style, label=row["name"])
    panel.set(xscale="log", xlabel="environment steps", ylabel="objective")
    panel.grid(alpha=0.25)
    figure.legend(loc="outside right upper", frameon=False)
    figure.savefig(file, dpi=150)


def main(
    folders: Annotated[list[Path], typer.Argument()],
    out: Annotated[Path, typer.Option(help="The picture.")] = Path("learners.png"),
) -> None:
    """Draw what learners come to on a task of the benchmark by environment steps."""
    draw(folders, out)


if __name__ == "__main__":
    typer.run(main)
