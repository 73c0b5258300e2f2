"""Policies that benchmarks train, each run only once."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autotts_jax.core import Family
from autotts_jax.policies import load_policy, neural_family
from autotts_jax.replay import ProbeDataset

if TYPE_CHECKING:
    from autotts_jax.training import Config


def trained_family(
    config: Config,
    questions: ProbeDataset,
    folder: Path,
    values: Sequence[float],
    *,
    seed: int | None = None,
    fold: int | None = None,
) -> Family:
    """Trains a policy, unless its run has ended, and says how much CPU time that took.

    Args:
        config: what to train.
        questions: what to train on.
        folder: the folder of the run.
        values: the values of γ that the policy is to be played with.
        seed: seed of the run, in place of the configuration's.
        fold: fold to hold out, in place of the configuration's.
    """
    from autotts_jax import training

    began = time.process_time()
    # A run that has ended is resumed, too: that makes no update, and refuses another configuration.
    resume = (folder / "manifest.json").is_file()
    training.train(config, questions, out=folder, resume=resume, seed=seed, fold=fold)
    print(f"{folder}: {time.process_time() - began:.0f} s of CPU time", flush=True)
    return dataclasses.replace(neural_family(load_policy(folder)[0]), values=tuple(values))
