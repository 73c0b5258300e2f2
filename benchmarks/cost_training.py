"""Trains policies for tokens and for latency, and compares them on latency where they have not trained.

    python benchmarks/cost_training.py --data 'path/to/Qwen3-8B/*.json'

Policies of each cost are trained without each fold, by a small recipe that imitates tuned teachers. The γ
that a policy is shown is the one that is best for latency on its training questions, for both costs alike:
a policy for tokens gets the best that it can do for latency. Each question is then played by the policies
that were trained without it. A run that has ended is not made again.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich import box
from rich.console import Console
from rich.table import Table
from trained import trained_family

from autotts_jax.core import CostModel, devices
from autotts_jax.core.costs import spent_by
from autotts_jax.experiments import Objective, Questions, evaluate
from autotts_jax.policies import as_player
from autotts_jax.replay import load

WIDTH = 16
RANGES = {"tokens": (1e-5, 1e-3), "latency": (1e-4, 3e-3)}
"""The γ that policies are trained for: where they read from all there is to next to nothing."""

SHOWN = 10
"""Values of γ that each policy is played with."""

PRICES = (1e-4, 3e-4, 1e-3, 3e-3)
"""The γ of the comparison: prices of what a lone first interval takes."""


def main(
    data: Annotated[list[str], typer.Option(help="The questions.")],
    folds: Annotated[int, typer.Option(help="Parts that the questions are dealt into.")] = 2,
    runs: Annotated[int, typer.Option(help="Runs of each cost and fold, with seeds 0, 1, …")] = 2,
    orders: Annotated[int, typer.Option(help="Branch orders to play each question in.")] = 16,
    out: Annotated[Path, typer.Option(help="Where the runs go.")] = Path("runs/costs"),
) -> None:
    devices.configure()  # the trainers use JAX when they are imported
    from autotts_jax import training

    questions = load(data)
    fold = training.fold_of(questions, folds)
    played = {}
    for cost, (low, high) in RANGES.items():
        shown = np.geomspace(low, high, SHOWN).tolist()
        played[cost] = []
        for seed, held_out in itertools.product(range(runs), range(folds)):
            config = training.Config(
                data=training.DataSettings(folds=folds, fold=held_out),
                objective=training.ObjectiveSettings((low, high), cost=cost),
                warm_start=training.WarmStartSettings(
                    generations=25, population=16, dagger_iterations=2, num_gammas=8, updates=800
                ),
                trainer=training.EvolutionSettings(max_branches=WIDTH),
                run=training.RunSettings(0, seed=seed),
            )
            family = trained_family(config, questions, out / f"{cost}-{held_out}-{seed}", shown)
            (play,) = evaluate(
                questions, as_player(family), seeds=orders, max_branches=WIDTH, cost="latency"
            ).plays
            played[cost].append((held_out, play))

    matrix, model = questions.matrix, CostModel("latency")
    latency = model.of_models([cell.model for cell in questions.cells]).of_cells(np.asarray(matrix.cell))

    def figures(cost: str, price: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What each question comes to with the policy trained without it: right, seconds and objective."""
        columns = []
        for held_out, play in played[cost]:
            spent = spent_by(play, np.asarray(matrix.interval), matrix.max_depth)
            worth = play.correct - price * latency.in_intervals(spent)
            best = np.argmax(worth[..., fold != held_out].mean(axis=(1, 2)))
            seconds = Objective(unit=model).cost(play, questions)
            columns.append([part[best].mean(axis=0) for part in (play.correct, seconds, worth)])
        of_runs = np.reshape(columns, (runs, folds, 3, -1)).mean(axis=0)
        return tuple(of_runs[fold, :, np.arange(len(fold))].T)

    shown = Table(box=box.SIMPLE_HEAD)
    for heading in ("γ", *(f"{cost}: {of}" for cost in RANGES for of in ("accuracy, %", "s")), "Δ objective"):
        shown.add_column(heading, justify="right")
    texts = [question.text for question in questions.questions]
    for price in PRICES:
        reached = {cost: figures(cost, price) for cost in RANGES}
        gain = reached["latency"][2] - reached["tokens"][2]
        low, high = Questions(np.ones(len(gain)), texts).gain(gain).interval
        cells = [
            cell
            for right, seconds, _ in reached.values()
            for cell in (f"{100 * right.mean():.1f}", f"{seconds.mean():.1f}")
        ]
        shown.add_row(f"{price:g}", *cells, f"{gain.mean():+.4f} [{low:+.4f}, {high:+.4f}]")
    Console(width=110).print(shown)


if __name__ == "__main__":
    typer.run(main)
