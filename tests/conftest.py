"""Fixtures that several test modules share."""

import os
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

from autotts_jax.core.compiling import XLA_FLAGS

# Before JAX is used: programs are compiled as the command line does, and rollouts are tested on two devices.
os.environ.setdefault("XLA_FLAGS", XLA_FLAGS)
jax.config.update("jax_num_cpu_devices", 2)

SHARED = Path(__file__).resolve().parents[2] / "shared"


def _shared(name: str) -> Path:
    directory = SHARED / name
    if not directory.is_dir():
        pytest.skip(f"the released data is not here: no directory {directory}")
    return directory


@pytest.fixture(scope="session")
def replay_dir() -> Path:
    """``<model>/<benchmark>.json`` for each released cell."""
    return _shared("replay")


@pytest.fixture(scope="session")
def golden_dir() -> Path:
    """``episodes/<cell>.npz`` and ``sweeps/<model>/*.csv``, measured with the released evaluator."""
    return _shared("golden")


@pytest.fixture(scope="session")
def released(replay_dir):
    """All released cells, in exact encoding."""
    from autotts_jax.replay import formats

    return formats.read([replay_dir])


@pytest.fixture(scope="session")
def compiling_fast() -> dict[str, str]:
    """The environment of processes that mostly compile, and much of it what others of them have compiled."""
    return os.environ | {
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }


@pytest.fixture(scope="module")
def compile_fast():
    """For modules that mostly compile, and run little of what they compiled."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
