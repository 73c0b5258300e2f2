"""Checks certificates where true losses are known: how often they are wrong, and what they save.

    python benchmarks/certificates.py path/to/finals/analysis_math500_*.jsonl

A population is a set of recorded questions, on which each setting's mean loss is its true loss. A calibration
draws half as many of them, or --questions of the synthetic ones, and certifies a setting of ASC against 64
branches. Drawn with replacement, questions are independent, as a certificate assumes. Drawn without, as
halves are, they tell more of the population than it assumes, and less of the other half.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer

import autotts_jax as at
from autotts_jax.core import devices
from autotts_jax.experiments.certificates import DISAGREEMENT, fixed_sequence, test_of
from autotts_jax.replay import SYNTHETIC_MODELS, synthetic

WIDTH = 64
SETTINGS = [f"asc@{branches}" for branches in (2, 4, 8, 12, 16, 24, 32, 48, 64)]
LEVELS = ((0.1, 0.1), (0.05, 0.1), (0.05, 0.05), (0.02, 0.05))
"""ε and δ."""


class Population(NamedTuple):
    """Questions that calibrations are drawn from.

    Attributes:
        name: what it is called.
        losses: by setting, seed and question, 0 or 1.
        tokens: mean tokens of each setting, and last of the full budget.
    """

    name: str
    losses: np.ndarray
    tokens: np.ndarray


class Rates(NamedTuple):
    """Shares of the calibrations.

    Attributes:
        certified: those that certify a setting.
        wrong: those that certify one whose true loss is above ε.
        other: those that certify one whose loss on the questions that were not drawn is above ε; of no
            meaning where questions are drawn with replacement.
        saved: mean tokens that the certified setting saves of the full budget, 0 where none is certified.
    """

    certified: float
    wrong: float
    other: float
    saved: float


def main(
    files: Annotated[list[Path] | None, typer.Argument(help="Finals of MATH-500, a model each.")] = None,
    calibrations: Annotated[int, typer.Option(help="Calibrations of each kind.")] = 1000,
    questions: Annotated[int, typer.Option(help="Questions of a synthetic calibration.")] = 250,
    size: Annotated[int, typer.Option(help="Questions of the synthetic population.")] = 2000,
    seeds: Annotated[int, typer.Option(help="Episodes of each question.")] = 100,
) -> None:
    devices.configure()
    made = synthetic(seed=1, models=SYNTHETIC_MODELS[-1:], questions=size, branches=WIDTH)
    show([played("synthetic", made, seeds)], calibrations, questions, replace=True)
    if files:
        halves = [played(file.stem, at.import_answers(file).dataset, seeds) for file in files]
        show(halves, calibrations, None, replace=True)
        show(halves, calibrations, None, replace=False)


def played(name: str, data: at.ProbeDataset, seeds: int) -> Population:
    """Plays the settings and the full budget on the questions of a population."""
    result = at.evaluate(data, [f"sc@{WIDTH}", *SETTINGS], seeds=seeds, max_branches=WIDTH)
    full, *plays = result.plays
    losses = np.concatenate([play.answer != full.answer for play in plays]).astype(float)
    tokens = [play.tokens.mean() for play in (*plays, full)]
    shown = "  ".join(f"{100 * loss:.2f}" for loss in losses.mean(axis=(1, 2)))
    print(f"{name}: {len(data)} questions, true losses of {', '.join(SETTINGS)} in %: {shown}")
    return Population(name, losses, np.array(tokens))


def show(populations: list[Population], calibrations: int, questions: int | None, replace: bool) -> None:
    """Prints a row for each (ε, δ) and test: means over populations, and the worst share of wrong ones."""
    print(
        "\n| drawn | test | ε | δ | certified, % | tokens saved, % | wrong, % | wrong at the edge, % | "
        "limit, % | wrong on the others, % |\n|---|---|---|---|---|---|---|---|---|---|"
    )
    for epsilon, delta in LEVELS:
        limit = delta + 2 * np.sqrt(delta * (1 - delta) / calibrations)
        for seeds, test in ((1, "binomial"), (None, "betting")):
            found, edges = [], []
            for population in populations:
                risks = population.losses.mean(axis=(1, 2))
                # As hard as it gets: ε is just below the true loss of the setting that is nearest.
                nearest = risks[risks > 0][np.argmin(abs(risks[risks > 0] - epsilon))]
                draw = drawer(population, questions, replace, seeds)
                found.append(rates(population, draw, calibrations, seeds, epsilon, delta))
                edges.append(rates(population, draw, calibrations, seeds, nearest * (1 - 1e-9), delta))
            mean, worst = np.mean(found, axis=0), np.max(found, axis=0)
            others = "" if replace else f"{100 * Rates(*mean).other:.1f}"
            drawn, edge = "with replacement" if replace else "halves", np.max(edges, axis=0)[1]
            print(
                f"| {drawn} | {test} | {epsilon:g} | {delta:g} | {100 * mean[0]:.1f} | {100 * mean[3]:.1f} | "
                f"{100 * worst[1]:.1f} | {100 * edge:.1f} | {100 * limit:.1f} | {others} |"
            )


Draw = Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]


def drawer(population: Population, questions: int | None, replace: bool, seeds: int | None) -> Draw:
    """Makes what draws the losses of a calibration, and the questions it is of.

    With one seed, each question has one of its episodes, the same one for all settings.
    """
    means = population.losses.mean(axis=1)
    _, rows, size = population.losses.shape

    def draw(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        chosen = rng.choice(size, questions or size // 2, replace=replace)
        if seeds is None:
            return means[:, chosen], chosen
        return population.losses[:, rng.integers(rows, size=len(chosen)), chosen], chosen

    return draw


def rates(
    population: Population, draw: Draw, calibrations: int, seeds: int | None, epsilon: float, delta: float
) -> Rates:
    """Certifies many times."""
    rng = np.random.default_rng(0)
    p_value = test_of(DISAGREEMENT, seeds or population.losses.shape[1], epsilon, delta)
    means = population.losses.mean(axis=1)
    risks, saved = means.mean(axis=1), 1 - population.tokens[:-1] / population.tokens[-1]
    rows = []
    for _ in range(calibrations):
        losses, chosen = draw(rng)
        _, certified = fixed_sequence(losses, p_value, delta)
        if not certified.any():
            rows.append((False, False, False, 0.0))
            continue
        setting = int(np.argmax(certified))
        others = np.setdiff1d(np.arange(means.shape[1]), chosen)
        rows.append((True, risks[setting] > epsilon, means[setting, others].mean() > epsilon, saved[setting]))
    return Rates(*np.mean(rows, axis=0))


if __name__ == "__main__":
    typer.run(main)
