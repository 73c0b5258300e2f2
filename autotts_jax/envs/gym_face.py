"""What environments for Gymnasium share, single or not: data, and checks of what comes from outside."""

from __future__ import annotations

import functools
import inspect
import multiprocessing
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Dict, Discrete, MultiDiscrete
from gymnasium.vector import AsyncVectorEnv, VectorEnv
from jaxtyping import Int, Int32, PRNGKeyArray, UInt32

from autotts_jax.checks import nearest
from autotts_jax.envs.environment import Environment
from autotts_jax.envs.gym_episodes import Shown, view
from autotts_jax.envs.making import split_settings
from autotts_jax.envs.params import EnvState
from autotts_jax.envs.spaces import Box
from autotts_jax.errors import InputError
from autotts_jax.replay import embedded
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.replay.matrix import ProbeMatrix
from autotts_jax.replay.orders import repo100_orders

Data = str | Path | Sequence[str | Path] | ProbeDataset | ProbeMatrix | None
"""What an environment replays: what `autotts_jax.replay.embedded.load` takes, or a dataset."""

RENDER_MODES = ("ansi", "rgb_array")
OPTIONS = ("question", "order")
"""Options of `reset`."""


class Face:
    """A functional environment with its data and parameters, and the checks of what comes from outside."""

    kind: type[Environment]
    render_mode: str | None

    def _set_up(self, data: Data, encoding: str, render_mode: str | None, settings: dict[str, Any]) -> None:
        if render_mode is not None and render_mode not in RENDER_MODES:
            raise InputError(f"unknown render_mode {render_mode!r}; choose one of {', '.join(RENDER_MODES)}")
        _refuse_forks()
        matrix, self._recorded = _load(data, encoding)
        of_class, of_params = split_settings(self.kind, settings)
        self.environment = self.kind(**of_class)
        self.params = self.environment.make_params(matrix, **of_params)
        self.render_mode = render_mode
        self._space = _shown_space(self.environment, self.environment.observation_space(self.params))
        keep_history = render_mode is not None and self.environment.obs != "history"
        parts = tuple(self._space) if isinstance(self._space, Dict) else None
        self._shown = Shown(self.environment, parts, keep_history)

    def _check_action(self, action: Any, space: gymnasium.Space[Any], shape: tuple[int, ...]) -> np.ndarray:
        """The action as int32; entries that are out of range stay so."""
        array = np.asarray(action)
        if array.dtype.kind not in "iu" or array.shape != shape:
            wanted = f"integers of shape {shape}" if shape else "an integer"
            raise InputError(f"an action must be {wanted}, but it is {array.dtype} of shape {array.shape}")
        sizes = space.n if isinstance(space, Discrete) else cast(MultiDiscrete, space).nvec
        return np.clip(array.astype(np.int64), -1, sizes).astype(np.int32)

    def _check_options(self, options: Mapping[str, Any]) -> tuple[np.ndarray | None, np.ndarray | None]:
        """The question and the branch order that are asked for."""
        for name in options:
            if name not in OPTIONS:
                known = (*OPTIONS, "reset_mask") if isinstance(self, VectorEnv) else OPTIONS
                raise InputError(f"unknown option {name!r}; {nearest(name, known)}")
        question, order = options.get("question"), options.get("order")
        recorded = self._recorded
        if question is not None:
            last = self.params.matrix.num_questions - 1
            if not is_integer(question) or not 0 <= question <= last:
                raise InputError(f"option 'question' is {question!r}, but it must be one of 0 … {last}")
            question = np.asarray(question, np.int32)
            recorded = recorded[question, None]
        return question, None if order is None else self._check_order(order, recorded)

    def _check_order(self, order: Any, recorded: Int[np.ndarray, " Q"]) -> Int32[np.ndarray, " W"]:
        width, branches = self.environment.max_branches, int(recorded.min())
        if is_integer(order):
            if order < 0:
                raise InputError(f"option 'order' is {order}, but a seed must be at least 0")
            if branches < recorded.max():
                raise InputError(
                    "option 'order' is a seed, but questions differ in how many branches they have; "
                    "give option 'question' too"
                )
            return repo100_orders(branches, [int(order)])[0, :width].astype(np.int32)
        array = np.asarray(order)
        if array.dtype.kind not in "iu" or array.shape != (width,):
            raise InputError(
                f"option 'order' must be a seed or {width} branches, but it is {array.dtype} "
                f"of shape {array.shape}"
            )
        if array.min() < 0 or array.max() >= branches or np.unique(array).size < width:
            raise InputError(f"option 'order' must name {width} different branches of 0 … {branches - 1}")
        return array.astype(np.int32)

    def _frame(self, state: EnvState) -> str | np.ndarray:
        from autotts_jax.envs import rendering  # here, because Matplotlib takes time to import

        shown = rendering.View(**jax.device_get(view(self.params, state)))
        draw = rendering.draw_text if self.render_mode == "ansi" else rendering.draw_array
        return draw(self.environment.name, shown)


@functools.cache
def _first_process() -> int:
    """The process that made the first environment, also in forks of it."""
    return os.getpid()


def _refuse_forks() -> None:
    """Refuses to start JAX in a fork of a process with JAX in it, where it would wait for ever."""
    forks = os.getpid() != _first_process()
    for call in inspect.stack(0):
        # Gymnasium makes one environment in the parent, which starts JAX, and then the workers.
        if call.frame.f_code is AsyncVectorEnv.__init__.__code__:
            context = multiprocessing.get_context(call.frame.f_locals["context"])
            forks |= context.get_start_method() == "fork"
    if forks:
        raise InputError(
            "JAX does not run in a process that was forked after JAX had started; make worker processes with "
            "spawn, as in gymnasium.make_vec(…, vectorization_mode='async', "
            'vector_kwargs={"context": "spawn"}), or leave vectorization_mode out: '
            "one process then steps all environments in one compiled call"
        )


def _shown_space(env: Environment, space: gymnasium.Space[Any]) -> gymnasium.Space[Any]:
    """The space of observations in Gymnasium: the mask is there if asked for, as int8 like in ``info``."""
    if not isinstance(space, Dict) or "action_mask" not in space.spaces:
        return space
    parts = dict(space)
    mask = parts.pop("action_mask")
    if env.mask_in_obs:
        parts["action_mask"] = Box(0, 1, mask.shape, np.int8)
    return Dict(parts)


def _load(data: Data, encoding: str) -> tuple[ProbeMatrix, Int[np.ndarray, " Q"]]:
    """The probe matrix, and how many branches of each question are recorded."""
    if isinstance(data, ProbeMatrix):
        return data, np.full(data.num_questions, data.num_branches)
    if not isinstance(data, ProbeDataset):
        data = embedded.load("synthetic" if data is None else data, encoding)
    branches = np.array([cell.num_branches for cell in data.cells])
    return data.matrix, branches[data.matrix.cell]


def is_integer(value: Any) -> bool:
    """Tells whether a value is a whole number of Python or NumPy.

    Args:
        value: the value.
    """
    return isinstance(value, int | np.integer)


def key_words(seed: int) -> UInt32[np.ndarray, "2"]:
    """Makes a key's words from a seed of any size.

    Args:
        seed: the seed, at least 0.
    """
    return np.random.SeedSequence(seed).generate_state(2)


def wrap_keys(words: UInt32[np.ndarray, "*batch 2"]) -> PRNGKeyArray:
    """Makes keys of their words.

    Args:
        words: two words for each key.
    """
    return jax.random.wrap_key_data(jnp.asarray(words), impl="threefry2x32")


def to_numpy(tree: Any) -> Any:
    """Copies arrays to the host, because what JAX hands out cannot be written to.

    Args:
        tree: a tree of arrays.
    """
    return jax.tree.map(np.array, jax.device_get(tree))


def can_render(mode: str | None) -> bool:
    """Tells whether there is a mode to render in, and warns where there is none.

    Args:
        mode: the ``render_mode``.
    """
    if mode is None:
        gymnasium.logger.warn("render() shows nothing without a render_mode; give one to gymnasium.make")
    return mode is not None
