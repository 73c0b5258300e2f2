"""Times compiled rollouts against scalar C that plays the same episodes, in one run.

    python benchmarks/plain_c.py --data ../shared/replay/Qwen3-8B/aime24.json

plain.c is compiled with the C compiler of the machine and plays on as many cores. The two take turns, and the
table has the least times of each, for what disturbs such short runs makes them longer, and the share of plain
C's speed that rollouts reach. It checks that both gave every episode the same tokens and correctness.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from evaluate_speed import CASES, all_episodes, cpu_model, opened, table_of
from rich.console import Console

from autotts_jax.core import Episodes, devices, rollout
from autotts_jax.core.votes import confidence_table

SOURCE = Path(__file__).with_name("plain.c")
WIDTH, MOST_ANSWERS = 64, 1024
WHOLE = ("n_init", "max_use", "warm_up", "patience", "ema_window", "burst", "widen", "min_complete")
REAL = ("alpha", "threshold", "slack", "trend")


class Matrix(ctypes.Structure):
    """What plain.c calls so."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("branches", "depths", "vocabulary")),
        *((name, ctypes.c_void_p) for name in ("answers", "gold", "lengths", "tokens", "interval")),
        ("confidence", ctypes.c_void_p),
    )


class Settings(ctypes.Structure):
    """What plain.c calls so: the hyper-parameters of CMC."""

    _fields_ = (*((name, ctypes.c_int32) for name in WHOLE), *((name, ctypes.c_float) for name in REAL))


def main(
    data: Annotated[str | None, typer.Option(help="One cell; a synthetic one when left out.")] = None,
    seconds: Annotated[float, typer.Option(help="Seconds of each controller.")] = 10,
    seeds: Annotated[int, typer.Option(help="Seeds of the repo100 protocol.")] = 100,
) -> None:
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # or its threads would keep the cores between runs
    os.environ.setdefault("OMP_NUM_THREADS", str(devices.usable_cores()))
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise SystemExit("no C compiler is installed; install one, such as gcc")
    dataset, orders = opened(data, seeds)
    console = Console()
    console.print(f"{dataset.cells[0].name}; {cpu_model()}, {devices.usable_cores()} cores; {compiler}")
    table = table_of("episodes", "rollout/s", "plain C/s", "share")
    table.caption = "thousands of episodes a second; share: what rollouts reach of the speed of plain C"
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "plain.so"
        flags = ("-O3", "-march=native", "-fopenmp", "-shared", "-fPIC")
        subprocess.run([compiler, *flags, str(SOURCE), "-o", str(library)], check=True)
        play = ctypes.CDLL(str(library)).play
        for kind, names in enumerate(CASES):
            episodes, ours, theirs = timed(play, kind, names, dataset, orders, seconds)
            rates = f"{episodes / ours / 1000:,.0f}", f"{episodes / theirs / 1000:,.0f}"
            table.add_row(names, f"{episodes}", *rates, f"{theirs / ours:.0%}")
    console.print(table)


def timed(play, kind: int, names: str, dataset, orders, seconds: float) -> tuple[int, float, float]:
    """The number of episodes, and the least seconds of a rollout and of plain C, which take turns."""
    controllers, episodes = all_episodes(names, dataset, orders)
    in_c = prepared(play, kind, controllers, dataset.matrix, orders, episodes)
    least, until = [np.inf, np.inf], time.perf_counter() + seconds
    while time.perf_counter() < until:
        results = rollout(controllers, dataset.matrix, orders, episodes)
        least[0] = min(least[0], results.run_seconds)
        for _ in range(4):
            began = time.perf_counter()
            played = in_c()
            least[1] = min(least[1], time.perf_counter() - began)
    assert np.array_equal(played[:, 0], results.tokens), names
    assert np.array_equal(played[:, 1], results.correct), names
    return len(results.tokens), least[0], least[1]


def prepared(play, kind: int, controllers, matrix, orders, episodes: Episodes):
    """A function that plays the episodes in C, and gives tokens and correctness of each."""
    if matrix.vocabulary > MOST_ANSWERS or orders.width != WIDTH:
        raise SystemExit(f"plain.c plays {WIDTH} branches of at most {MOST_ANSWERS} distinct answers")
    arrays = {
        "answers": np.ascontiguousarray(matrix.answers, np.int16),
        "gold": np.ascontiguousarray(matrix.gold, np.int16),
        "lengths": np.ascontiguousarray(matrix.lengths, np.int32),
        "tokens": np.ascontiguousarray(matrix.tokens, np.int32),
        "interval": np.ascontiguousarray(matrix.interval, np.int32),
        "confidence": np.ascontiguousarray(confidence_table(WIDTH), np.float32),
    }
    _, branches, depths = matrix.answers.shape
    pointers = {name: array.ctypes.data for name, array in arrays.items()}
    recorded = Matrix(branches=branches, depths=depths, vocabulary=matrix.vocabulary, **pointers)
    settings = (Settings * len(controllers))()
    for setting, controller in zip(settings, controllers, strict=True):
        for name in (*WHOLE, *REAL):
            setattr(setting, name, getattr(controller, name, 0))
    rows = orders.num_rows
    every = np.ascontiguousarray(
        [orders.of(q, row) for q in range(matrix.num_questions) for row in range(rows)], np.int32
    )
    places = episodes.question * rows + episodes.row
    results = np.zeros((len(places), 2), np.int32)
    given = (episodes.question, places, episodes.setting)
    columns = [every, *(np.ascontiguousarray(column, np.int32) for column in given)]

    def run() -> np.ndarray:
        play(
            ctypes.byref(recorded),
            kind,
            settings,
            *(ctypes.c_void_p(column.ctypes.data) for column in columns),
            len(places),
            ctypes.c_void_p(results.ctypes.data),
        )
        assert arrays  # whose memory the matrix points to
        return results

    return run


if __name__ == "__main__":
    typer.run(main)
