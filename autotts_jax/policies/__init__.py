"""Controllers: the published ones, and how others are loaded."""

from autotts_jax.policies.adaptive_consistency import AdaptiveConsistency
from autotts_jax.policies.cmc import CMC
from autotts_jax.policies.early_stopping import EarlyStopping
from autotts_jax.policies.parallel_probe import ParallelProbe
from autotts_jax.policies.self_consistency import SelfConsistency

CONTROLLERS = {
    "sc": SelfConsistency,
    "asc": AdaptiveConsistency,
    "esc": EarlyStopping,
    "parallel-probe": ParallelProbe,
    "cmc": CMC,
}
"""The controllers that come with the package, by the name that the command line knows them by."""

__all__ = [
    "CMC",
    "CONTROLLERS",
    "AdaptiveConsistency",
    "EarlyStopping",
    "ParallelProbe",
    "SelfConsistency",
]
