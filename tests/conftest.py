"""Fixtures that several test modules share."""

import os
import signal
import tempfile
from pathlib import Path

# What one test, worker or subprocess has compiled, the others load, and nobody's own cache is touched.
# Workers inherit the folder from the process that starts them, and it goes with that.
if "PYTEST_XDIST_WORKER" not in os.environ:
    COMPILED = tempfile.TemporaryDirectory(prefix="compiled-")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = COMPILED.name
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.3"

import jax
import pytest
from hypothesis import settings

from autotts_jax.core.compiling import XLA_FLAGS

# Before JAX is used: programs are compiled as the command line does, and rollouts are tested on two devices.
os.environ.setdefault("XLA_FLAGS", XLA_FLAGS)
jax.config.update("jax_num_cpu_devices", 2)

# A shell starts background jobs with SIGINT ignored, and child processes inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes depends on the machine.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

DATA = Path(os.environ.get("AUTOTTS_DATA") or Path(__file__).resolve().parents[2] / "shared")
NO_DATA = f"no released data at {DATA}"


def _released_data(name: str) -> Path:
    directory = DATA / name
    if not directory.is_dir():
        pytest.skip(NO_DATA)
    return directory


def pytest_terminal_summary(terminalreporter):
    """Says in one line how many tests were skipped for lack of the released data."""
    reasons = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])]
    skipped = sum(NO_DATA in reason for reason in reasons)
    if skipped:
        terminalreporter.write_line(
            f"{skipped} tests skipped: {NO_DATA}; set AUTOTTS_DATA to the folder with replay/ and golden/",
            yellow=True,
        )


@pytest.fixture(scope="session")
def replay_dir() -> Path:
    """``<model>/<benchmark>.json`` for each released cell."""
    return _released_data("replay")


@pytest.fixture(scope="session")
def golden_dir() -> Path:
    """``episodes/<cell>.npz`` and ``sweeps/<model>/*.csv``, measured with the released evaluator."""
    return _released_data("golden")


@pytest.fixture(scope="session")
def released(replay_dir):
    """All released cells, in exact encoding."""
    from autotts_jax.replay import read_files

    return read_files([replay_dir])


@pytest.fixture(scope="session")
def compiling_fast() -> dict[str, str]:
    """The environment of processes that mostly compile, and much of it what others of them have compiled."""
    return os.environ | {
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }


@pytest.fixture(scope="module", autouse=True)
def _forget_compiled():
    """Every compiled program holds mappings of memory, of which Linux lets a process have some 65,000."""
    yield
    jax.clear_caches()


@pytest.fixture(scope="module")
def compile_fast():
    """For modules that mostly compile, and run little of what they compiled."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
