"""A toy for `autotts-jax train` to train, whatever the data is."""

import types

import numpy as np
from toy_runs import Toy, save_policy, validate

from autotts_jax.training import EvolutionSettings

CONFIG = """
[data]
folds = 3
fold = 0

[network]
hidden = 4

[trainer]
kind = "evolution"
max_branches = 8

[run]
updates = 30
validate_every = 3
checkpoint_every = 4
seed = 5
"""


def load_policy(folder):
    with np.load(folder / "best.npz") as policy:
        return dict(policy), {}


class ToyValidation:
    """Measures `Toy`'s policies, and compares them with nothing."""

    def __init__(self, *_):
        self.compare = lambda _: []

    def __call__(self, policy):
        return validate(policy)


TOY = {
    "TRAINERS": {EvolutionSettings: lambda *_, **__: Toy()},
    "Validation": ToyValidation,
    "rendering": types.SimpleNamespace(available=lambda: False),  # a report takes seconds
    "dataclasses": types.SimpleNamespace(replace=lambda policy, **_: policy),
    "policy_file": types.SimpleNamespace(
        save_policy=lambda path, policy, _card: save_policy(path, policy), load_policy=load_policy
    ),
}
"""What to put into `entry` so that it trains `Toy`, whatever the data is."""
