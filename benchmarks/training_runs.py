"""Trains a configuration with several seeds, and compares the policies with CMC where they have not trained.

    python benchmarks/training_runs.py --data 'path/to/*/aime24.json' --test 'path/to/*/aime25.json'
    python benchmarks/training_runs.py --data 'path/to/*/aime24.json' --folds --out runs/folds

Every run has a folder of its own under --out. A run that was interrupted is resumed, and one that has ended
is not made again. With --folds, run k is trained without fold k, and the policies are also compared on the
training questions, each played by the policy that was trained without it. ``curves.png`` shows validation
during training.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from matplotlib.figure import Figure
from rich import box
from rich.console import Console
from rich.table import Table

from autotts_jax.core import devices
from autotts_jax.experiments import ALL_MODELS, REFERENCE, Comparison, Evaluation, evaluate
from autotts_jax.policies import Play, select
from autotts_jax.replay import load

EXAMPLE = Path(__file__).parents[1] / "examples" / "train_aime24.toml"
BETAS = (0.3, 0.5, 0.8, 1.0)
HELD_OUT = "held out"
CURVES = {
    "validation/objective": ("objective", 1),
    "validation/accuracy": ("accuracy, %", 100),
    "validation/tokens": ("tokens per episode, thousands", 1e-3),
}


def main(
    data: Annotated[
        list[str] | None, typer.Option(help="Train on these instead of what the configuration names.")
    ] = None,
    test: Annotated[list[str] | None, typer.Option(help="Other questions to compare on.")] = None,
    config: Annotated[Path, typer.Option(help="What to train.")] = EXAMPLE,
    runs: Annotated[int, typer.Option(help="Runs, with seeds 0, 1, …; by fold, as many as folds.")] = 5,
    folds: Annotated[bool, typer.Option("--folds", help="Leave a fold out of each run.")] = False,
    orders: Annotated[
        int | None, typer.Option(help="Branch orders to play; by protocol if left out.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where runs and results go.")] = Path("runs/seeds"),
) -> None:
    devices.configure()  # the trainers use JAX when they are imported
    from autotts_jax import training

    settings = training.read_config(config).changed(data)
    folders = [out / f"run-{seed}" for seed in range(settings.data.folds if folds else runs)]
    for seed, folder in enumerate(folders):
        began = time.perf_counter()
        # A run that has ended is resumed, too: that makes no update, and refuses another configuration.
        resume = (folder / "manifest.json").is_file()
        run = training.train(settings, out=folder, resume=resume, seed=seed, fold=seed if folds else None)
        if run.stopped_by:
            raise typer.Exit(128 + run.stopped_by)
        print(f"{folder}: {time.perf_counter() - began:.0f} s")
    draw_curves({folder.name: training.read_metrics(folder) for folder in folders}, out / "curves.png")
    controllers = [select(REFERENCE), *(select(f"neural:{folder}") for folder in folders)]
    if folds:
        questions = load(settings.data.paths or "synthetic", settings.data.encoding)
        evaluation = evaluate(questions, controllers, seeds=orders)
        show(held_out(evaluation, training.fold_of(questions, len(folders))), out / HELD_OUT)
    if test:
        others = load(test, settings.data.encoding)
        show(evaluate(others, controllers, seeds=orders), out / "test")


def draw_curves(metrics: Mapping[str, Sequence[Mapping[str, Any]]], file: Path) -> None:
    """Draws validation metrics by update, a line for each run."""
    figure = Figure(figsize=(10, 3), layout="constrained")
    panels = figure.subplots(1, len(CURVES))
    for run, entries in metrics.items():
        validated = [entry for entry in entries if "validation/objective" in entry]
        updates = [entry["update"] for entry in validated]
        for panel, (name, (label, scale)) in zip(panels, CURVES.items(), strict=True):
            panel.plot(updates, [entry[name] * scale for entry in validated], label=run)
            panel.set_xlabel("update")
            panel.set_ylabel(label)
            panel.grid(alpha=0.25)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper", frameon=False)
    figure.savefig(file, dpi=150)


def held_out(evaluation: Evaluation, fold: np.ndarray) -> Evaluation:
    """Joins the policies of all folds to one that plays each question as the one trained without it."""
    reference, *policies = evaluation.plays

    def of_fold(name: str) -> np.ndarray:
        columns = np.stack([getattr(play, name) for play in policies])  # (F, V, S, Q)
        return np.moveaxis(columns[fold, ..., np.arange(len(fold))], 0, -1)

    names = [field.name for field in dataclasses.fields(Play) if np.ndim(getattr(policies[0], field.name))]
    columns: dict[str, Any] = {name: of_fold(name) for name in names}
    player = dataclasses.replace(policies[0].player, name=HELD_OUT)  # type: ignore[type-var]
    joined = dataclasses.replace(policies[0], player=player, **columns)
    return dataclasses.replace(evaluation, plays=(reference, joined))


def show(evaluation: Evaluation, folder: Path) -> None:
    """Writes the results of an evaluation, and prints the comparisons."""
    evaluation.save(folder)
    comparisons = [of for of in evaluation.frontier().comparisons if of.controller != REFERENCE]
    for model, benchmark in dict.fromkeys((of.model, of.benchmark) for of in comparisons):
        of_model = [of for of in comparisons if (of.model, of.benchmark) == (model, benchmark)]
        name = "mean of models" if model == ALL_MODELS else model
        Console(width=120).print(table(f"{benchmark}, {name}", of_model))


def table(title: str, comparisons: Sequence[Comparison]) -> Table:
    """Compares each policy with CMC: share of CMC's tokens at equal accuracy, gain at equal tokens."""
    shown = Table(title=title, box=box.SIMPLE_HEAD)
    shown.add_column("policy")
    for name in ("ratio", "gain"):
        for beta in BETAS:
            shown.add_column(f"{name}, β {beta}", justify="right")
    lines = {
        name: against_reference([of for of in comparisons if of.controller == name])
        for name in dict.fromkeys(of.controller for of in comparisons)
    }
    if len(lines) > 1:
        columns = np.array(list(lines.values()))
        lines |= {"median": np.median(columns, axis=0), "mean": columns.mean(axis=0)}
        with np.errstate(invalid="ignore"):  # where a policy does not reach an accuracy
            lines["spread"] = columns.std(axis=0, ddof=1)
    for name, (*line,) in lines.items():
        ratios, gains = line[: len(BETAS)], line[len(BETAS) :]
        shown.add_row(
            Path(name).name, *(f"{ratio:.2f}" for ratio in ratios), *(f"{gain:+.2f}" for gain in gains)
        )
    return shown


def against_reference(comparisons: Sequence[Comparison]) -> np.ndarray:
    """Returns ratios of tokens, then gains in points, at `BETAS`; infinite where there is none."""
    at = {of.value: of for of in comparisons}
    ratios = [np.nan_to_num(at[beta].cost_ratio, nan=np.inf) for beta in BETAS]
    gains = [np.nan_to_num(100 * at[beta].accuracy_gain, nan=-np.inf) for beta in BETAS]
    return np.array([*ratios, *gains])


if __name__ == "__main__":
    typer.run(main)
