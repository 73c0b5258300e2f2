"""Times what the seal costs, each run in a process of its own, from its start to its end.

    python benchmarks/seal_cost.py --data ../shared/replay/Qwen3-8B/aime24.json

CMC as a program of the released interface (examples/released_programs.py) in the process itself and sealed;
a compiled controller (examples/my_controller.py) unsealed and sealed. All play the same episodes. They take
turns, and the medians of the repeats are shown. Wall times in seconds: of the whole process, imports and
reading the data included; of playing, starting sealed processes and checks included; and of compiling, as
results say.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import in_process
import numpy as np
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from autotts_jax.core import devices
from autotts_jax.experiments.evaluation import branch_orders
from autotts_jax.policies.players import Sealing, select
from autotts_jax.replay import SYNTHETIC_MODELS, read_files, synthetic
from autotts_jax.sandbox import Sandbox

CONTROLLER = f"{Path(__file__).parents[1] / 'examples' / 'my_controller.py'}:first_finishers@0.5"
RUNS = ("program unsealed", "program sealed", "controller unsealed", "controller sealed")


@dataclasses.dataclass
class Times:
    """Seconds that a run took to play and to compile, and the tokens of its episodes, to compare."""

    play: float
    compile: float
    tokens: int
    whole: float = 0.0


def main(
    data: Annotated[str | None, typer.Option(help="One cell; a synthetic one when left out.")] = None,
    repeats: Annotated[int, typer.Option(help="Runs of each.")] = 3,
    seeds: Annotated[int, typer.Option(help="Seeds of the repo100 protocol.")] = 100,
    beta: Annotated[float, typer.Option(help="β of CMC.")] = 0.5,
    only: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    if only:
        print(json.dumps(dataclasses.asdict(timed(only, data, seeds, beta))))
        return
    again = [sys.executable, __file__, "--seeds", str(seeds), "--beta", str(beta)]
    again += ["--data", data] if data else []
    runs: dict[str, list[Times]] = {name: [] for name in RUNS}
    for _ in range(repeats):
        for name, times in runs.items():
            began = time.perf_counter()
            printed = subprocess.run([*again, "--only", name], check=True, stdout=subprocess.PIPE).stdout
            times.append(Times(**json.loads(printed)))
            times[-1].whole = time.perf_counter() - began
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("", "whole process, s", "playing, s", "of it compiling, s", "beyond compiling, s"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, times in runs.items():
        middle = [
            statistics.median(getattr(one, part) for one in times) for part in ("whole", "play", "compile")
        ]
        beyond = statistics.median(one.whole - one.compile for one in times)
        table.add_row(name, *(f"{seconds:.2f}" for seconds in (*middle, beyond)))
    Console().print(table)
    for open_, sealed in (RUNS[:2], RUNS[2:]):
        assert runs[open_][0].tokens == runs[sealed][0].tokens, sealed


def timed(name: str, data: str | None, seeds: int, beta: float) -> Times:
    """Plays all episodes in this process, as the name says."""
    devices.configure(compilation_cache=False)
    dataset = read_files([data]) if data else synthetic(models=SYNTHETIC_MODELS[-1:])
    orders = branch_orders(dataset, "repo100", range(seeds), 64)
    began = time.perf_counter()
    if name == "program unsealed":
        program = in_process.load(in_process.PROGRAMS).OptimalController
        _, spent = in_process.play(program, {"beta": beta}, in_process.records(dataset), orders)
        return Times(time.perf_counter() - began, 0.0, int(np.sum(spent)))
    what = f"{in_process.PROGRAMS}:OptimalController@{beta}" if name == "program sealed" else CONTROLLER
    sandbox = Sandbox("none" if name == "controller unsealed" else "kernel")
    played = select(what, sealing=Sealing(sandbox=sandbox)).play(dataset, orders)
    return Times(time.perf_counter() - began, played.compile_seconds, int(played.tokens.sum()))


if __name__ == "__main__":
    typer.run(main)
