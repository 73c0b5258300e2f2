"""All learners of the examples, or some of them, on a task of the benchmark.

Run it as ``TASK=hard python examples/train_baselines.py --learners purejax dagger --out runs/hard``.
Those that use PyTorch need ``pip install autotts-jax[examples]``, and are left out without it.
"""

import functools
import importlib.util
from typing import Any

from common import run

MODULES = {
    "purejax": "train_purejaxrl_ppo",
    "recurrent": "train_recurrent_ppo",
    "sb3": "train_sb3_ppo",
    "maskable": "train_maskable_ppo",
    "cleanrl": "train_cleanrl_ppo",
    "evolution": "train_evolution",
    "dagger": "train_dagger",
}

TORCH = ("sb3", "maskable", "cleanrl")
"""Learners that need PyTorch; left out where it is missing."""


def train(module: str, seed: int, steps: int) -> Any:
    return importlib.import_module(module).train(seed, steps)


if __name__ == "__main__":
    missing = () if importlib.util.find_spec("torch") else TORCH
    modules = {name: module for name, module in MODULES.items() if name not in missing}
    run(__doc__, **{name: functools.partial(train, module) for name, module in modules.items()})
