"""What GPUs are given to compile, and ``benchmarks/gpu.py`` on a CPU."""

import json
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from autotts_jax.core import votes
from autotts_jax.policies.neural.network import VOTE_INPUTS
from autotts_jax.policies.neural.policy import initial_parameters, log_weights
from autotts_jax.user_code import load_object

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "gpu.py"


def compiled_for(platform, function, *arguments):
    return jax.jit(function).trace(*arguments).lower(lowering_platforms=(platform,)).as_text()


def test_gpus_are_not_asked_for_the_least_of_negated_integers():
    """As of JAX 0.11.2 XLA gets it wrong there: of (8192, 64) integers a quarter of the rows."""
    values = np.zeros(64, np.int32)
    gpu, cpu = (compiled_for(platform, votes.largest, values) for platform in ("cuda", "cpu"))
    assert "maximum" in gpu
    assert "minimum" not in gpu
    assert "maximum" not in cpu


def test_gpus_multiply_matrices_in_full_precision():
    parameters = initial_parameters(4, jax.random.key(0), "rounds")
    inputs = np.zeros((len(VOTE_INPUTS), 8), np.float32)
    products = [
        line for line in compiled_for("cuda", log_weights, parameters, inputs).splitlines() if "dot" in line
    ]
    assert products
    assert all("HIGHEST" in line for line in products)


@pytest.mark.nightly
def test_every_benchmark_runs_and_the_page_has_its_rates(tmp_path):
    page = tmp_path / "gpu.md"
    subprocess.run([sys.executable, SCRIPT, "--small", "--platform", "cpu", "--out", page], check=True)
    rows = [
        line.split(" | ") for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| ")
    ]
    assert len(rows) == 2 + 14
    whats = [row[0] for row in rows]
    for what in (
        "| cmc@0.5,cmc@1",
        "| discovery",
        "| WidthDepth, features",
        "| evolution",
        "| PPO, updates included",
    ):
        assert what in whats


def rates(device, *found):
    return {"device": device, "jax": "0.10.2", "rates": [["sc@8", "episodes", *rate] for rate in found]}


def test_the_page_compares_platforms_that_played_the_same():
    page = load_object(f"{SCRIPT}:page", "function")
    results = {("cpu", "lanes"): rates("a CPU", (2000.0, 64, "lanes", 7))}
    results["cuda", "lanes"] = json.loads(json.dumps(rates("a GPU", (1.5e6, 8192, "lanes", 7))))
    assert "| sc@8 | episodes | 2 k | 1.5 M | 750 | 64 and 8,192 lanes |" in page(results)
    results["cuda", "lanes"] = rates("a GPU", (1.5e6, 8192, "lanes", 8))
    with pytest.raises(AssertionError, match="sc@8 differs between platforms"):
        page(results)
