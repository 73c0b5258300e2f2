"""Times how fast discovery screens candidates, each on every question at three values of β in one order.

    python benchmarks/discovery_speed.py [--data PATH]

In the same run, as a yardstick: CMC over as many values of β, questions and orders, and the program of CMC.
Times are medians of repeats, without compilation, and include making the controllers. On a machine that
others use, CPU time says more than wall time.
"""

from __future__ import annotations

import statistics
import time
from typing import Annotated

import jax
import numpy as np
import typer

BATCH = 256


def main(
    data: Annotated[str, typer.Option(help="The questions.")] = "synthetic",
    repeats: Annotated[int, typer.Option(help="Timed runs.")] = 5,
) -> None:
    from autotts_jax.core import devices

    devices.configure()
    devices.pin_devices()
    import autotts_jax as at
    from autotts_jax.discovery import (
        Judge,
        Program,
        cmc,
        cross,
        decision_list,
        mutate,
        parallel_probe,
        random_program,
    )
    from autotts_jax.policies import CMC

    dataset = at.load(data)
    judge, betas = Judge.of(dataset, 64, 0), (0.0, 0.5, 1.0)
    questions, rng = np.arange(len(dataset)), np.random.default_rng(0)

    def child() -> Program:
        if rng.random() < 0.1:
            return random_program(rng)
        return mutate(cross(cmc(), parallel_probe(), rng), rng)

    found = [child() for _ in range(BATCH)]
    sets = {
        "children of CMC and Parallel-Probe": lambda: [[decision_list(p, b) for b in betas] for p in found],
        "CMC's program": lambda: [[decision_list(cmc(), b) for b in betas]] * BATCH,
        "CMC": lambda: [[CMC.of_beta(b) for b in betas]] * BATCH,
    }
    cores = devices.usable_cores()
    print(f"{cores} cores, JAX {jax.__version__}, {len(dataset)} questions, {len(betas)} β, 1 order")
    print("| candidates | candidates/min | candidates/CPU min |\n|---|---|---|")
    for name, make in sets.items():
        judge.play(make(), questions, judge.search, [0])
        wall, cpu = [], []
        for repeat in range(repeats):
            began, spent = time.perf_counter(), time.process_time()
            judge.play(make(), questions, judge.search, [repeat + 1])
            wall.append(time.perf_counter() - began)
            cpu.append(time.process_time() - spent)
        per_minute = (f"{60 * BATCH / statistics.median(seconds):,.0f}" for seconds in (wall, cpu))
        print(f"| {name} | {' | '.join(per_minute)} |")


if __name__ == "__main__":
    typer.run(main)
