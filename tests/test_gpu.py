"""What GPUs are given to compile."""

import jax
import numpy as np

from autotts_jax.core import votes
from autotts_jax.policies.neural.network import VOTE_INPUTS
from autotts_jax.policies.neural.policy import initial_parameters, log_weights


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
