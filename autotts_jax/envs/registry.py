"""The ids that Gymnasium knows the environments by; imported without JAX."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium

NAMESPACE = "autotts_jax/"
"""What may stand before an id, to tell it from ids of other packages."""

SMALL: Mapping[str, Any] = {"max_branches": 8, "obs": "flat"}
"""The settings of the ids for scripts that take nothing but an id."""


class Registered(NamedTuple):
    """What an id stands for.

    Attributes:
        kind: name of the functional environment in `autotts_jax.envs`.
        settings: settings that differ from its defaults.
    """

    kind: str
    settings: Mapping[str, Any]


ENVIRONMENTS: Mapping[str, Registered] = {
    "WidthDepth-v0": Registered("WidthDepth", {}),
    "WidthDepthRounds-v0": Registered("WidthDepthRounds", {}),
    "WidthDepthMacro-v0": Registered("WidthDepthMacro", {}),
    "WidthDepthBatch-v0": Registered("WidthDepthBatch", {}),
    "WidthDepthSmall-v0": Registered("WidthDepth", {**SMALL, "fused": True}),
    "WidthDepthRoundsSmall-v0": Registered("WidthDepthRounds", SMALL),
    "WidthDepthMacroSmall-v0": Registered("WidthDepthMacro", SMALL),
}
"""The environments by their ids."""


TASK_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "laptop": {"data": "synthetic", "max_branches": 8, "gamma": [1e-4, 1e-4]},
    "easy": {"data": "synthetic-easy", "max_branches": 8, "gamma": [5e-4, 5e-4]},
    "medium": {"data": "synthetic-medium", "max_branches": 8, "gamma": [5e-4, 5e-4]},
    "hard": {"data": "synthetic-hard", "max_branches": 16, "gamma": [5e-4, 5e-4]},
    "arithmetic": {"data": "smollm2", "max_branches": 64, "gamma": [1e-5, 1e-5]},
    "frontier": {"data": "synthetic", "max_branches": 64, "gamma": [1e-5, 3e-4]},
}
"""The settings of the benchmark's tasks that have data of their own, by name; plain JSON."""

BATCH_TOKENS: Mapping[str, int] = {"easy": 18_000, "medium": 24_000, "hard": 30_000}
"""Tokens for each question, about two branches of it, in the batches of the tasks that have them."""

TASK_ENVIRONMENTS: Mapping[str, Registered] = {
    f"{kind}-{task.title()}-{part.title()}-v0": Registered(kind, {**settings, "part": part, "obs": "flat"})
    for task, settings in TASK_SETTINGS.items()
    for kind in ("WidthDepth", "WidthDepthRounds", "WidthDepthMacro")
    for part in ("train", "validation", "test")
} | {
    f"WidthDepthBatch-{task.title()}-{part.title()}-v0": Registered(
        "WidthDepthBatch",
        {
            "data": TASK_SETTINGS[task]["data"],
            "part": part,
            "max_branches": TASK_SETTINGS[task]["max_branches"],
            "at_once": 10,
            "budget": tokens * questions,
        },
    )
    for task, tokens in BATCH_TOKENS.items()
    for part, questions in (("train", 500), ("validation", 250), ("test", 500))
}
"""The environments of the tasks by id, as ``WidthDepthMacro-Laptop-Train-v0``; observations are flat but for
batches."""


def register() -> None:
    """Registers every id with Gymnasium, alone and in the namespace ``autotts_jax``."""
    for name, entry in {**ENVIRONMENTS, **TASK_ENVIRONMENTS}.items():
        for id_ in (name, NAMESPACE + name):
            # Gymnasium warns where an id is registered twice, as a reload would.
            if id_ not in gymnasium.registry:
                gymnasium.register(
                    id=id_,
                    entry_point=f"autotts_jax.envs.gym:{entry.kind}Env",
                    vector_entry_point=f"autotts_jax.envs.gym_vector:{entry.kind}VectorEnv",
                    kwargs=copy.deepcopy(dict(entry.settings)),
                )
