"""Times the compiled path against the released Python interface, on the same episodes in one run.

    python benchmarks/evaluate_speed.py --data ../shared/replay/Qwen3-8B/aime24.json

The first table has, for each controller, episodes a second on the compiled path (all devices, compilation
apart, median of repeats) and through the released interface (examples/released_programs.py, one process), and
checks that both gave the same answers and tokens. The second has the compiled path by number of lanes.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Annotated

import jax
import numpy as np
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from autotts_jax.core import Episodes, devices, rollout
from autotts_jax.core.rollout import LANES
from autotts_jax.experiments.evaluation import branch_orders
from autotts_jax.policies.players import select
from autotts_jax.policies.programs import evaluate_program, program_episodes, question_records
from autotts_jax.replay import SYNTHETIC_MODELS, read_files, synthetic

PROGRAMS = Path(__file__).parents[1] / "examples" / "released_programs.py"
CACHED = Path(__file__).parent / "cached_programs.py"
CASES = {
    "sc@64": [("SelfConsistency", {"max_samples": 64})],
    "asc@64": [("AdaptiveConsistency", {"max_samples": 64})],
    "esc@64": [("EarlyStoppingConsistency", {"max_samples": 64})],
    "parallel-probe@64": [("ParallelProbe", {"num_chains": 64})],
    "cmc@0.5,cmc@1": [("OptimalController", {"beta": 0.5}), ("OptimalController", {"beta": 1.0})],
}
LANE_COUNTS = tuple(2**n for n in range(6, 14))


def main(
    data: Annotated[str | None, typer.Option(help="One cell; a synthetic one when left out.")] = None,
    repeats: Annotated[int, typer.Option(help="Timed runs of the compiled path.")] = 15,
    seeds: Annotated[int, typer.Option(help="Seeds of the repo100 protocol.")] = 100,
) -> None:
    devices.configure()
    devices.pin_devices()
    dataset = read_files([data]) if data else synthetic(models=SYNTHETIC_MODELS[-1:])
    orders = branch_orders(dataset, "repo100", range(seeds), 64)
    local = jax.local_devices()
    console = Console()
    console.print(
        f"{dataset.cells[0].name}, {seeds} seeds x {len(dataset)} questions; {cpu_model()}, "
        f"{devices.usable_cores()} cores; JAX on {len(local)} x {local[0].device_kind}"
    )
    console.print(against_released(dataset, orders, repeats))
    console.print(by_lanes(dataset, orders, repeats))


def against_released(dataset, orders, repeats: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    headings = ("episodes", "compile, s", "compiled, ms", "episodes/s")
    for heading in ("controller", *headings, "released, ms", "ratio", "cached, ms", "ratio"):
        table.add_column(heading, justify="left" if heading == "controller" else "right")
    for names, programs in CASES.items():
        results, seconds = compiled(names, dataset, orders, repeats)
        played, released_seconds = released(PROGRAMS, programs, dataset, orders, repeats)
        assert np.array_equal(results.tokens, played["tokens"]), names
        assert np.array_equal(results.correct, played["correct"]), names
        _, cached_seconds = released(CACHED, programs, dataset, orders, repeats)
        episodes = len(played)
        table.add_row(
            names,
            str(episodes),
            f"{results.compile_seconds:.1f}",
            f"{seconds * 1000:.1f}",
            f"{episodes / seconds:,.0f}",
            f"{released_seconds * 1000:.0f}",
            f"{released_seconds / seconds:.0f}x",
            f"{cached_seconds * 1000:.0f}",
            f"{cached_seconds / seconds:.0f}x",
        )
    table.caption = "cached: the released programs, but each confidence computed once (cached_programs.py)"
    return table


def by_lanes(dataset, orders, repeats: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    platform = jax.local_devices()[0].platform
    for heading in ("controller", *(f"{lanes}{'*' * (lanes == LANES[platform])}" for lanes in LANE_COUNTS)):
        table.add_column(heading, justify="right")
    for names in CASES:
        cells = []
        for lanes in LANE_COUNTS:
            results, seconds = compiled(names, dataset, orders, repeats, lanes)
            cells.append(f"{len(results.tokens) / seconds / 1000:.1f}k")
        table.add_row(names, *cells)
    table.caption = "episodes a second by lanes a device; * the default"
    return table


def compiled(names: str, dataset, orders, repeats: int, lanes: int | None = None):
    """Results of a compiled rollout, and the median of its run times."""
    controllers = [controller for name in names.split(",") for controller in select(name).controllers]
    shape = (len(controllers), orders.num_rows, len(dataset))
    setting, row, question = (axis.reshape(-1) for axis in np.indices(shape))
    episodes = Episodes(question, row, setting)
    runs = [rollout(controllers, dataset.matrix, orders, episodes, lanes=lanes) for _ in range(repeats)]
    first, *_ = runs
    return first, statistics.median(run.run_seconds for run in runs)


def released(file: Path, programs, dataset, orders, repeats: int) -> tuple[np.ndarray, float]:
    """The same episodes through the released interface in one process, and the median of their run times.

    They are repeated while that takes less than a second.
    """
    records = question_records(dataset)
    row, question = np.indices((orders.num_rows, len(dataset)))
    episodes = program_episodes(orders.of(question, row), range(orders.num_rows))
    for name, config in programs:  # imports what the programs need, so that it is not timed
        evaluate_program(f"{file}:{name}", config, records, episodes[:1])
    seconds: list[float] = []
    while not seconds or (len(seconds) < repeats and sum(seconds) < 1):
        began = time.perf_counter()
        parts = [evaluate_program(f"{file}:{name}", config, records, episodes) for name, config in programs]
        seconds.append(time.perf_counter() - began)
    return np.concatenate(parts), statistics.median(seconds)


def cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown CPU"


if __name__ == "__main__":
    typer.run(main)
