"""Draws what learners come to on a task of the benchmark by environment steps.

    python benchmarks/learning_curves.py runs/purejax/scores.csv runs/sb3/scores.csv --out learners.png

The files are the ``scores.csv`` of ``autotts-jax bench --out`` or of an example's ``--out``, all of one task.
Lines are learners, with a standard error over training seeds; the entries of the first file that are no
learners are horizontal.
"""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from matplotlib.figure import Figure


def draw(files: Sequence[Path], picture: Path) -> None:
    """Draws the objective of every learner by steps, and that of the others."""
    scores = [list(csv.DictReader(file.read_text().splitlines())) for file in files]
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
    figure.savefig(picture, dpi=150)


def main(
    files: Annotated[list[Path], typer.Argument(help="Scores.")],
    out: Annotated[Path, typer.Option(help="The picture.")] = Path("learners.png"),
) -> None:
    """Draw what learners come to on a task of the benchmark by environment steps."""
    draw(files, out)


if __name__ == "__main__":
    typer.run(main)
