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
BETAS = (0.0, 0.5, 1.0)


def main(
    data: Annotated[str, typer.Option(help="The questions.")] = "synthetic",
    repeats: Annotated[int, typer.Option(help="Timed runs.")] = 5,
) -> None:
    from autotts_jax.core import devices

    devices.configure()
    devices.pin_devices()
    import autotts_jax as at
    from autotts_jax.discovery import Judge, cmc, decision_list
    from autotts_jax.policies import CMC

    judge = Judge.of(at.load(data), 64, 0)
    found = children(BATCH)
    sets = {
        "children of CMC and Parallel-Probe": lambda: decision_lists(found),
        "CMC's program": lambda: [[decision_list(cmc(), b) for b in BETAS]] * BATCH,
        "CMC": lambda: [[CMC.of_beta(b) for b in BETAS]] * BATCH,
    }
    cores = devices.usable_cores()
    print(f"{cores} cores, JAX {jax.__version__}, {len(judge.data)} questions, {len(BETAS)} β, 1 order")
    print("| candidates | candidates/min | candidates/CPU min |\n|---|---|---|")
    for name, make in sets.items():
        per_minute = (f"{rate:,.0f}" for rate in screened_per_minute(judge, make, repeats))
        print(f"| {name} | {' | '.join(per_minute)} |")


def children(number: int) -> list:
    """Programs as a search proposes them: children of CMC and Parallel-Probe, and one in ten at random."""
    from autotts_jax.discovery import cmc, cross, mutate, parallel_probe, random_program

    rng = np.random.default_rng(0)

    def child():
        if rng.random() < 0.1:
            return random_program(rng)
        return mutate(cross(cmc(), parallel_probe(), rng), rng)

    return [child() for _ in range(number)]


def decision_lists(programs) -> list:
    """The controllers of programs, a row for each program."""
    from autotts_jax.discovery import decision_list

    return [[decision_list(program, beta) for beta in BETAS] for program in programs]


def screened_per_minute(judge, make, repeats: int) -> tuple[float, float]:
    """Candidates that are screened in a minute of wall time, and of CPU time; ``make`` makes their rows."""
    questions = np.arange(len(judge.data))
    judge.play(make(), questions, judge.search, [0])
    wall, cpu = [], []
    for repeat in range(repeats):
        began, spent = time.perf_counter(), time.process_time()
        rows = make()
        judge.play(rows, questions, judge.search, [repeat + 1])
        wall.append(time.perf_counter() - began)
        cpu.append(time.process_time() - spent)
    return tuple(60 * len(rows) / statistics.median(seconds) for seconds in (wall, cpu))


if __name__ == "__main__":
    typer.run(main)
