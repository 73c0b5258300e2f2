"""Worker processes under a budget."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from autotts_jax.errors import InputError
from autotts_jax.replay import workers
from autotts_jax.replay.workers import LimitedWorkers, Result


def of(name, count=1, limit=0.2):
    return LimitedWorkers(f"worker_functions:{name}", count, limit)


def gone(processes):
    """Waits until none of some processes runs."""
    _, alive = psutil.wait_procs(processes, timeout=60)
    return not alive


def test_results_are_in_order():
    with of("double", count=2) as doubling:
        assert doubling.map([]) == []
        assert doubling.map([(i,) for i in range(60)]) == [Result(2 * i, exceeded=False) for i in range(60)]


@pytest.mark.parametrize(
    "name",
    [
        "spin",
        "hoard",
        "spin_in_c",
        "swallow",
        pytest.param("hoard_slowly", marks=pytest.mark.slow),
        "crash",
        "fail",
    ],
)
def test_what_exceeds_its_limit_costs_one_item(name):
    with of(name) as some:
        found = some.map([(i,) for i in (1, -1, 2, -2, 3)])
    assert [result.value for result in found] == [1, None, 2, None, 3]
    assert [result.exceeded for result in found] == [False, True, False, True, False]


def test_an_item_at_which_one_worker_is_lost_is_tried_again(tmp_path):
    with of("crash_once") as some:
        assert some.map([(-5, str(tmp_path / "file"))]) == [Result(-5, exceeded=False)]


def test_the_limit_shrinks_as_items_exceed_it_and_grows_with_items(monkeypatch):
    limits = []

    def call(_, item, limit):
        limits.append(round(limit, 2))
        return ("exceeded", None) if item[0] < 0 else ("", item[0])

    monkeypatch.setattr("autotts_jax.replay.workers._Worker.call", call)
    with of("double", limit=1.0) as some:
        some.map([(-1,)] * 8)
        assert limits == [1, 1, 1, 0.08, 0.05, 0.05, 0.05, 0.05]
        limits.clear()
        some.map([(1,)] * 100)
        assert limits[0] == 0.05
        assert limits[-1] == 1
        assert limits == sorted(limits)


def test_killed_workers_are_replaced():
    with of("sleep", limit=5) as some:
        (first,) = some.map([(0,)])
        os.kill(first.value, signal.SIGKILL)  # the process that computes
        (second,) = some.map([(0,)])
        forked = psutil.Process(second.value)
        parent = forked.ppid()
        os.kill(parent, signal.SIGKILL)  # the one that has forked it
        while forked.ppid() == parent:
            time.sleep(0.01)
        (third,) = some.map([(0,)])
    assert len({first.value, second.value, third.value}) == 3


def test_a_worker_that_is_killed_while_idle_gives_nobody_the_answer_of_another():
    with of("echo", limit=5) as some:
        for number in range(20):
            (result,) = some.map([(number,)])
            echoed, process = result.value
            assert echoed == number
            os.kill(process, signal.SIGKILL)


def test_closing_ends_what_runs():
    threads = threading.active_count()
    with of("sleep") as some, ThreadPoolExecutor() as caller:
        (result,) = some.map([(0,)])
        worker = psutil.Process(result.value)
        processes = [worker, worker.parent()]
        busy = caller.submit(some.map, [(600,)])
        time.sleep(0.1)
        some.close()
        with pytest.raises(InputError, match="the grader is closed"):
            busy.result(60)
        assert gone(processes)
        with pytest.raises(InputError, match="the grader is closed"):
            some.map([(0,)])
    assert threading.active_count() == threads


SCRIPT = """
from autotts_jax.replay.workers import LimitedWorkers
with LimitedWorkers("worker_functions:sleep", 1, 5) as some:
    print(some.map([(0,)])[0].value, flush=True)
    some.map([(600,)] if {busy} else [])
    input()
"""


@pytest.mark.parametrize(
    ("busy", "sign"),
    [
        (True, signal.SIGKILL),
        (False, signal.SIGINT),
        pytest.param(True, signal.SIGINT, marks=pytest.mark.slow),
        pytest.param(False, signal.SIGKILL, marks=pytest.mark.slow),
    ],
)
def test_workers_do_not_outlive_their_program(tmp_path, busy, sign):
    """And the script needs no ``if __name__ == "__main__":``."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(busy=busy))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    with (
        (tmp_path / "errors.txt").open("w+") as errors,
        subprocess.Popen(
            [sys.executable, script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
        ) as program,
    ):
        worker = psutil.Process(int(program.stdout.readline()))
        processes = [worker, worker.parent()]
        time.sleep(0.2)
        program.send_signal(sign)
        program.wait(60)
        errors.seek(0)
        assert ("KeyboardInterrupt" in errors.read()) == (sign == signal.SIGINT)
    if busy and sign == signal.SIGKILL:  # one that computes notices at its next item
        worker.kill()
    assert gone(processes)


def test_workers_that_do_not_start(monkeypatch):
    monkeypatch.setattr(workers, "PROGRAM", "raise SystemExit")
    with of("double") as some, pytest.raises(InputError, match="do not start"):
        some.map([(1,)])
