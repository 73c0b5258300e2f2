"""Fixtures that several test modules share."""

import atexit
import functools
import gc
import os
import shutil
import signal
import sys
from importlib.metadata import version
from pathlib import Path

from compiled import lend

# Tests compile much, and run little of what they compiled. With the older of XLA's ways to emit loops, and
# without optimizations, they compile in a third of the time; so do the processes that they start. Where
# XLA_FLAGS is set, programs are compiled as it says, and optimized: `make` runs the tests that are marked
# `shipped` with the flags of the command line.
if "XLA_FLAGS" not in os.environ:
    flags = [
        "--xla_cpu_parallel_codegen_split_count=1",
        "--xla_backend_extra_options=xla_cpu_disable_loop_unrolling",
    ]
    if [int(part) for part in version("jaxlib").split(".")[:2]] < [0, 11]:  # later ones refuse the flag
        flags.append("--xla_cpu_use_fusion_emitters=false")
    os.environ["XLA_FLAGS"] = " ".join(flags)
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"

# What one test, worker, subprocess or earlier run has compiled, the others load, and nobody's own cache is
# touched. Workers inherit the folder from the process that starts them, and it goes with that.
if "PYTEST_XDIST_WORKER" not in os.environ:
    optimized = "JAX_DISABLE_MOST_OPTIMIZATIONS" not in os.environ
    compiled_folder, run_ends = lend(f"{os.environ['XLA_FLAGS']} {optimized}")
    atexit.register(run_ends)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(compiled_folder)
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"
    os.environ["JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES"] = "none"  # or the keys would depend on the folder

import jax
import pytest
from hypothesis import settings

from autotts_jax.cli.main import GC_THRESHOLD
from autotts_jax.sandbox import Child, Sandbox
from autotts_jax.sandbox.process import UNCONFINED, LevelError

# Before JAX is used: rollouts are tested on two devices.
jax.config.update("jax_num_cpu_devices", 2)

gc.set_threshold(*GC_THRESHOLD)  # tests trace as much as commands do

# A shell starts background jobs with SIGINT ignored, and child processes inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes depends on the machine. Most compile or start something: `make check` tries a
# hundred of each test, and what tests a change fewer.
settings.register_profile("few", deadline=None, max_examples=30)
settings.register_profile("many", deadline=None, max_examples=100)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "few"))

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
"""What keeps Chromium from speaking to anybody by itself."""

DATA = Path(os.environ.get("AUTOTTS_DATA") or Path(__file__).resolve().parents[2] / "shared")
NO_DATA = f"no released data at {DATA}"


def _released_data(name: str) -> Path:
    directory = DATA / name
    if not directory.is_dir():
        pytest.skip(NO_DATA)
    return directory


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs the command line in this process, 80 columns wide; gives exit status, stdout and stderr."""
    from autotts_jax.cli import main as cli
    from autotts_jax.core import devices

    monkeypatch.setenv("COLUMNS", "80")
    # JAX is in use already, and tests leave no cache behind.
    monkeypatch.setattr(devices, "configure", lambda *_: None)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["autotts-jax", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        return end.value.code or 0, *capsys.readouterr()

    return run


def pytest_configure(config):
    """Has an entry of the cache that cannot be read or written cost a compilation, and no test."""
    said = "Error (reading|writing) persistent compilation cache entry"
    config.addinivalue_line("filterwarnings", f"ignore:{said}:UserWarning")


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items):
    """Marks what is nightly as slow, too."""
    for item in items:
        if item.get_closest_marker("nightly"):
            item.add_marker("slow")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Skips what fails because this machine's kernel does not confine processes; no test asks for less."""
    report = yield
    if report.failed:
        error = call.excinfo.value
        # A warning that is waited for in vain comes after the error.
        if UNCONFINED in f"{error} {error.__context__}" and not confines():
            report.outcome = "skipped"
            report.longrepr = str(item.path), None, "the kernel confines no processes"
    return report


@functools.cache
def confines():
    """Whether the kernel of this machine confines processes."""
    try:
        with Child("autotts_jax.policies.sealed.child", Sandbox()) as child:
            child.begin()
    except LevelError:
        return False
    return True


def pytest_terminal_summary(terminalreporter):
    """Says in one line how many tests were skipped for lack of the released data."""
    reasons = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])]
    skipped = sum(NO_DATA in reason for reason in reasons)
    if skipped:
        terminalreporter.write_line(
            f"{skipped} tests skipped: {NO_DATA}; set AUTOTTS_DATA to the folder with replay/ and golden/",
            yellow=True,
        )


@pytest.fixture
def browser():
    """A headless Chromium."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium; on Debian: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def replay_dir() -> Path:
    """``<model>/<benchmark>.json`` for each released cell."""
    return _released_data("replay")


@pytest.fixture(scope="session")
def shared():
    """Finds a folder of released data by name."""
    return _released_data


@pytest.fixture(scope="session")
def golden_dir() -> Path:
    """``episodes/<cell>.npz`` and ``sweeps/<model>/*.csv``, measured with the released evaluator."""
    return _released_data("golden")


@pytest.fixture(scope="session")
def released(replay_dir):
    """All released cells, in exact encoding."""
    from autotts_jax.replay import read_files

    return read_files([replay_dir])


@pytest.fixture(scope="module", autouse=True)
def _forget_compiled():
    """Every compiled program holds mappings of memory, of which Linux lets a process have some 65,000."""
    yield
    maps = Path("/proc/self/maps")
    if not maps.exists() or len(maps.read_bytes().splitlines()) > 10_000:
        jax.clear_caches()
