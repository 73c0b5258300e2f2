"""Times the compiled path against the released Python interface, on the same episodes in one run.

    python benchmarks/evaluate_speed.py --data ../shared/replay/Qwen3-8B/aime24.json

The first table has, for each controller, episodes a second on the compiled path (all devices, compilation
apart, median of repeats) and of examples/released_programs.py through the released interface, in
this process. These take turns; times are medians, and so are ratios, each within a turn. The second has how
long compiling takes, and the same programs sealed in one process, as the package runs them. It checks that
all gave equal answers and tokens. The third has the compiled path by number of lanes.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
import tempfile
import time
from pathlib import Path
from typing import Annotated

import in_process
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
from autotts_jax.replay import SYNTHETIC_MODELS, read_files, synthetic

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
    repeats: Annotated[int, typer.Option(help="Timed runs of each path, fewer where they take long.")] = 15,
    seeds: Annotated[int, typer.Option(help="Seeds of the repo100 protocol.")] = 100,
) -> None:
    dataset, orders = opened(data, seeds)
    local = jax.local_devices()
    console = Console()
    console.print(
        f"{dataset.cells[0].name}, {seeds} seeds x {len(dataset)} questions; {cpu_model()}, "
        f"{devices.usable_cores()} cores; JAX on {len(local)} x {local[0].device_kind}"
    )
    for table in against_released(dataset, orders, repeats):
        console.print(table)
    console.print(by_lanes(dataset, orders, repeats))


def opened(data: str | None, seeds: int):
    """Readies the devices; gives a cell, or a synthetic one, and branch orders of width 64."""
    devices.configure()
    devices.pin_devices()
    dataset = read_files([data]) if data else synthetic(models=SYNTHETIC_MODELS[-1:])
    return dataset, branch_orders(dataset, "repo100", range(seeds), 64)


def all_episodes(names: str, dataset, orders):
    """The controllers of a case, and every question under every branch order with each."""
    controllers = [controller for name in names.split(",") for controller in select(name).controllers]
    shape = (len(controllers), orders.num_rows, len(dataset))
    setting, row, question = (axis.reshape(-1) for axis in np.indices(shape))
    return controllers, Episodes(question, row, setting)


def against_released(dataset, orders, repeats: int) -> tuple[Table, Table]:
    speed = table_of("ms", "episodes/s", "released", "ratio", "cached", "ratio")
    speed.caption = "times in ms; cached: the released programs, but each confidence computed once"
    beside = table_of("compile, s", "start, ms", "sealed, ms", "sealed/released")
    beside.caption = (
        "sealed: the released programs as the package runs them, in one process, starting and checks included"
    )
    asked = in_process.records(dataset)
    with tempfile.TemporaryDirectory() as folder:
        cached = Path(folder) / "cached_programs.py"
        cached.write_text(in_process.cached_source())
        plain, quick = in_process.load(in_process.PROGRAMS), in_process.load(cached)
        for names, programs in CASES.items():
            players = [configured(in_process.PROGRAMS, name, config) for name, config in programs]
            results, _ = compiled(names, dataset, orders, 1)
            (_, *others), times = in_turn(
                repeats,
                functools.partial(compiled, names, dataset, orders, repeats),
                functools.partial(clocked, released, plain, programs, asked, orders),
                functools.partial(clocked, released, quick, programs, asked, orders),
            )
            (apart, *_), sealed_times = in_turn(
                3,
                functools.partial(clocked, sealed, players, dataset, orders),
                functools.partial(clocked, start, players),
                functools.partial(clocked, released, plain, programs, asked, orders),
            )
            for correct, tokens in (*others, apart):
                assert np.array_equal(results.tokens, tokens), names
                assert np.array_equal(results.correct, correct), names
            seconds, released_ms, cached_ms = np.median(times, axis=0) * (1, 1000, 1000)
            sealed_ms, start_ms, _ = 1000 * np.median(sealed_times, axis=0)
            sealed_ratio = np.median(sealed_times[:, 0] / sealed_times[:, 2])
            _, ratio, cached_ratio = np.median(times / times[:, :1], axis=0)
            speed.add_row(
                names,
                f"{seconds * 1000:.1f}",
                f"{len(results.tokens) / seconds:,.0f}",
                f"{released_ms:.0f}",
                f"{ratio:.0f}x",
                f"{cached_ms:.0f}",
                f"{cached_ratio:.0f}x",
            )
            beside.add_row(
                names,
                f"{results.compile_seconds:.1f}",
                f"{start_ms:.0f}",
                f"{sealed_ms:.0f}",
                f"{sealed_ratio:.2f}x",
            )
    return speed, beside


def by_lanes(dataset, orders, repeats: int) -> Table:
    platform = jax.local_devices()[0].platform
    table = table_of(*(f"{lanes}{'*' * (lanes == LANES[platform])}" for lanes in LANE_COUNTS))
    table.caption = "thousands of episodes a second by lanes a device; * the default"
    for names in CASES:
        cells = []
        for lanes in LANE_COUNTS:
            results, seconds = compiled(names, dataset, orders, repeats, lanes)
            cells.append(f"{len(results.tokens) / seconds / 1000:.0f}")
        table.add_row(names, *cells)
    return table


def table_of(*headings: str) -> Table:
    """A table of controllers, which fits a terminal of 80 columns."""
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("controller")
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


def compiled(names: str, dataset, orders, repeats: int, lanes: int | None = None):
    """Results of a compiled rollout, and the median of its run times."""
    controllers, episodes = all_episodes(names, dataset, orders)
    runs = [rollout(controllers, dataset.matrix, orders, episodes, lanes=lanes) for _ in range(repeats)]
    first, *_ = runs
    return first, statistics.median(run.run_seconds for run in runs)


def released(module, programs, asked, orders) -> tuple[np.ndarray, np.ndarray]:
    """What the programs of a module came to in this process: right answers and tokens of all episodes."""
    parts = [in_process.play(getattr(module, name), config, asked, orders) for name, config in programs]
    correct, tokens = zip(*parts, strict=True)
    return np.concatenate(correct, None), np.concatenate(tokens, None)


def configured(file: Path, name: str, config):
    """A program of a file as a sealed player with settings of its own."""
    return dataclasses.replace(select(f"{file}:{name}"), config=config)


def sealed(players, dataset, orders) -> tuple[np.ndarray, np.ndarray]:
    """The same of sealed programs."""
    plays = [player.play(dataset, orders) for player in players]
    correct, tokens = ([getattr(play, name) for play in plays] for name in ("correct", "tokens"))
    return np.concatenate(correct, None), np.concatenate(tokens, None)


def start(players) -> None:
    """Starts the processes that sealed programs play in, and are checked in."""
    for player in players:
        with player.pool.children(1, fresh=len(player.values)):
            pass


def clocked(play, *arguments):
    """What a function returns, and the seconds that it took."""
    began = time.perf_counter()
    return play(*arguments), time.perf_counter() - began


def in_turn(repeats: int, *runs):
    """What runs gave last, and the seconds of each in every turn; shape (turns, runs).

    What else the machine does meets all of them. Of that many turns those after the fifth are left out where
    they take long.
    """
    turns: list[list[float]] = []
    while len(turns) < min(repeats, 5) or (len(turns) < repeats and np.sum(turns) < 4):
        played, seconds = zip(*(run() for run in runs), strict=True)
        turns.append(seconds)
    return played, np.array(turns)


def cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown CPU"


if __name__ == "__main__":
    typer.run(main)
