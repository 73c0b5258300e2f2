"""Trains policies with signals and without, and compares them where they have not trained.

    python benchmarks/signals_training.py

Both follow the recipe of the policy that comes with the package. Run k has seed k and leaves out fold k, and
each question is played by the policy that was trained without it. CMC stands beside them with the β that is
best on the training questions. A run that has ended is not made again.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich import box
from rich.console import Console
from rich.table import Table
from trained import trained_family

from autotts_jax.core import devices
from autotts_jax.experiments import Questions, evaluate
from autotts_jax.policies import Play, as_player
from autotts_jax.replay import SIGNALS, load

RECIPE = Path(__file__).parents[1] / "examples" / "train_aime24.toml"
KINDS = {"without": (), "with": SIGNALS}
PRICES = (2e-4, 1e-4, 5e-5, 2e-5, 1e-5, 4e-6)
"""The γ of the comparison, prices of an interval: the range for which the recipe trains."""


def main(
    data: Annotated[str, typer.Option(help="The questions, with signals.")] = "smollm2-signals",
    folds: Annotated[int, typer.Option(help="Parts that the questions are dealt into; as many runs.")] = 5,
    orders: Annotated[int, typer.Option(help="Branch orders to play each question in.")] = 32,
    out: Annotated[Path, typer.Option(help="Where the runs go.")] = Path("runs/signals"),
) -> None:
    devices.configure()  # the trainers use JAX when they are imported
    from autotts_jax import training

    questions = load(data)
    fold = training.fold_of(questions, folds)
    recipe = training.read_config(RECIPE)
    recipe = dataclasses.replace(recipe, data=dataclasses.replace(recipe.data, folds=folds))
    plays: dict[str, list[Play]] = {}
    for kind, signals in KINDS.items():
        config = dataclasses.replace(recipe, network=dataclasses.replace(recipe.network, signals=signals))
        plays[kind] = []
        for run in range(folds):
            folder = out / f"{kind}-{run}"
            family = trained_family(config, questions, folder, PRICES, seed=run, fold=run)
            plays[kind] += evaluate(questions, as_player(family), seeds=orders).plays
    (cmc,) = evaluate(questions, "cmc", seeds=orders).plays

    shown = Table(box=box.SIMPLE_HEAD)
    names = ("cmc", *KINDS)
    columns = [f"{name}: {of}" for name in names for of in ("accuracy, %", "tokens")]
    for heading in ("γ", *columns, "Δ objective"):
        shown.add_column(heading, justify="right")
    texts = [question.text for question in questions.questions]
    for number, price in enumerate(PRICES):
        reached = {"cmc": of_best(cmc, price, fold)}
        for kind, of_kind in plays.items():
            of_runs = np.stack([columns_of(play, price)[:, number] for play in of_kind])  # (F, 3, Q)
            reached[kind] = of_runs[fold, :, np.arange(len(fold))].T
        gain = reached["with"][2] - reached["without"][2]
        low, high = Questions(np.ones(len(gain)), texts).gain(gain).interval
        cells = [
            cell
            for name in names
            for cell in (f"{100 * reached[name][0].mean():.1f}", f"{reached[name][1].mean():,.0f}")
        ]
        shown.add_row(f"{price:g}", *cells, f"{gain.mean():+.4f} [{low:+.4f}, {high:+.4f}]")
    Console(width=150).print(shown)


def columns_of(play: Play, price: float) -> np.ndarray:
    """Right, tokens and objective at a price. Shape (3, values, questions)."""
    columns = play.correct, play.tokens, play.correct - price * play.intervals
    return np.stack([column.mean(axis=1) for column in columns])


def of_best(play: Play, price: float, fold: np.ndarray) -> np.ndarray:
    """The same of each question at the value that is best on the other folds. Shape (3, questions)."""
    columns = columns_of(play, price)
    best = [columns[2][:, fold != one].mean(axis=1).argmax() for one in fold]
    return columns[:, best, np.arange(len(fold))]


if __name__ == "__main__":
    typer.run(main)
