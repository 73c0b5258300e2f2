"""Functional environments by name, with the parameters of their data."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autotts_jax.envs.environment import Environment
from autotts_jax.envs.params import EnvParams
from autotts_jax.envs.rounds import WidthDepthRounds
from autotts_jax.envs.width_depth import WidthDepth
from autotts_jax.errors import InputError
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.replay.embedded import load
from autotts_jax.replay.matrix import ProbeMatrix

ENVIRONMENTS: dict[str, type[Environment]] = {
    "WidthDepth-v0": WidthDepth,
    "WidthDepthRounds-v0": WidthDepthRounds,
}
"""The environments by the ids that Gymnasium knows them by."""


def make(
    name: str, data: ProbeDataset | str | Path | Sequence[str | Path], **settings: Any
) -> tuple[Environment, EnvParams]:
    """Makes a functional environment, to be used under ``jit`` and ``vmap``, and its parameters.

    ``gymnasium.make`` makes the same environments with the interface of Gymnasium.

    Args:
        name: ``WidthDepth-v0``, one atomic action a step, or ``WidthDepthRounds-v0``, one round a step.
        data: the questions: a dataset, or whatever `autotts_jax.load` takes.
        **settings: settings of the class, as ``max_branches``, and of its `Environment.make_params`, as
            ``gamma``.

    Returns:
        The environment and its parameters, for ``env.reset(key, params)`` and
        ``env.step(key, state, action, params)``.

    Raises:
        InputError: there is no such environment or setting, or a value is out of range.

    Example:
        >>> import jax
        >>> import autotts_jax as at
        >>> env, params = at.make("WidthDepthRounds-v0", at.load("smollm2"), max_branches=8)
        >>> observation, state = env.reset(jax.random.key(0), params)
        >>> observation["branches"].shape
        (8, 12)
    """
    if name not in ENVIRONMENTS:
        raise InputError(f"unknown environment {name!r}; choose one of {', '.join(ENVIRONMENTS)}")
    dataset = data if isinstance(data, ProbeDataset) else load(data)
    return build(ENVIRONMENTS[name], dataset.matrix, settings)


def build(
    kind: type[Environment], matrix: ProbeMatrix, settings: dict[str, Any]
) -> tuple[Environment, EnvParams]:
    """Makes an environment and its parameters from settings of both.

    Args:
        kind: the class of the environment.
        matrix: the probe matrix.
        settings: arguments of the class and of `Environment.make_params`.

    Raises:
        InputError: there is no such setting, or a value is out of range.
    """
    of_class = list(inspect.signature(kind).parameters)
    of_params = list(inspect.signature(kind.make_params).parameters)[2:]  # after self and the matrix
    for name in settings:
        if name not in (*of_class, *of_params):
            known = ", ".join([*of_class, *of_params])
            raise InputError(f"{kind.__name__} has no setting {name!r}; there are {known}")
    env = kind(**{name: value for name, value in settings.items() if name in of_class})
    return env, env.make_params(
        matrix, **{name: value for name, value in settings.items() if name in of_params}
    )
