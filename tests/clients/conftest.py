"""What tests of clients share: a server that they ask."""

from __future__ import annotations

import gc
import subprocess
import sys
import time

import pytest


@pytest.fixture(autouse=True)
def collected():
    """Has what a client leaves open collected where its warnings are ignored."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def address(tmp_path_factory):
    """Where a server of the simulated engine is."""
    log = tmp_path_factory.mktemp("server") / "log"
    code = "from autotts_jax.cli.main import main; main()"
    options = ["--engine", "simulated", "--name", "sim", "--port", "0", "--max-branches", "8"]
    lengths = ["--interval", "500", "--max-tokens", "4000"]
    with (
        log.open("w") as told,
        subprocess.Popen([sys.executable, "-c", code, "serve", *options, *lengths], stderr=told) as server,
    ):
        try:
            while not (begun := [line for line in log.read_text().splitlines() if "serving at" in line]):
                assert server.poll() is None, log.read_text()
                time.sleep(0.1)
            yield begun[0].split()[-1]
        finally:
            server.terminate()
