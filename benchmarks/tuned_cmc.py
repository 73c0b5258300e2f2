"""Tunes CMC's constants on some questions, and compares what comes of it with CMC on others.

    python benchmarks/tuned_cmc.py --data 'path/to/*/aime24.json' --test 'path/to/*/aime25.json'

This is the first step of training alone (docs/how-to/neural.md): each constant is a quadratic in log γ,
fitted by CMA-ES on questions of varied difficulty. The result is CMC's code with other numbers and no
network.
"""

from __future__ import annotations

import functools
import time
from pathlib import Path
from typing import Annotated

import jax
import numpy as np
import typer
from training_runs import EXAMPLE, show

from autotts_jax.core import Family, devices
from autotts_jax.experiments import evaluate
from autotts_jax.replay import load


def main(
    data: Annotated[list[str], typer.Option(help="Tune on these questions.")],
    test: Annotated[list[str], typer.Option(help="Compare on these.")],
    config: Annotated[Path, typer.Option(help="The configuration whose first step is taken.")] = EXAMPLE,
    runs: Annotated[int, typer.Option(help="Runs, with seeds 0, 1, …")] = 5,
    orders: Annotated[int, typer.Option(help="Branch orders to play.")] = 30,
    out: Annotated[Path, typer.Option(help="Where results go.")] = Path("runs/tuned-cmc"),
) -> None:
    devices.configure()  # the trainers use JAX when they are imported
    devices.pin_devices()
    from autotts_jax.training import read_config

    settings = read_config(config).changed(data)
    questions = load(data, settings.data.encoding)
    families = []
    for seed in range(runs):
        began = time.perf_counter()
        families.append(tuned(settings, questions, seed))
        print(f"{families[-1].name}: {time.perf_counter() - began:.0f} s")
    show(evaluate(load(test, settings.data.encoding), ["cmc", *families], seeds=orders), out)


def tuned(settings, questions, seed: int) -> Family:
    """CMC with the constants that a run comes to, as a family over γ."""
    from autotts_jax.training import Arena, teacher
    from autotts_jax.training.data import make_params
    from autotts_jax.training.imitation import fit_teachers

    gammas = settings.objective.gamma
    arena = Arena(make_params(settings, questions, seed), settings.trainer.max_branches)
    coefficients = fit_teachers(settings.warm_start, arena, jax.random.key(seed))
    controller = functools.partial(teacher, coefficients, gamma_range=gammas)
    return Family(f"seed-{seed}", tuple(map(float, np.geomspace(*gammas[::-1], 11))), controller, "γ")


if __name__ == "__main__":
    typer.run(main)
