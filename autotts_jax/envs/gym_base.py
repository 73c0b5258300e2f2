"""What environments for Gymnasium share, single or not: data, and checks of what comes from outside."""

from __future__ import annotations

import inspect
import multiprocessing
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Dict, Discrete, MultiDiscrete
from gymnasium.vector import AsyncVectorEnv, VectorEnv
from jaxtyping import Int, Int32, PRNGKeyArray, UInt32

from autotts_jax.checks import check_choice, nearest
from autotts_jax.core.forks import FORKED
from autotts_jax.envs.environment import Data, Functional
from autotts_jax.envs.gym_episodes import EnvConfig, ResetOptions, Slot, view
from autotts_jax.envs.params import EnvState, different_branches
from autotts_jax.envs.spaces import Box
from autotts_jax.errors import InputError
from autotts_jax.replay.orders import repo100_orders

RENDER_MODES = ("ansi", "rgb_array")
OPTIONS = ResetOptions._fields
"""Options of `reset`."""


class Snapshot(NamedTuple):
    """Where environments stand, without their data.

    Attributes:
        shown: the kind of environment.
        num_envs: how many they are.
        envs: their states; None before the first episode.
        last: what they have shown last.
        ended: whether their episodes have ended.
    """

    shown: EnvConfig
    num_envs: int
    envs: Slot | None
    last: Any
    ended: Any


class GymBase:
    """A functional environment with its data and parameters, and the checks of what comes from outside."""

    kind: type[Functional]
    render_mode: str | None
    metadata: dict[str, Any]

    def _set_up(
        self,
        data: Data | None,
        encoding: str,
        part: str | None,
        render_mode: str | None,
        settings: dict[str, Any],
    ) -> None:
        if render_mode is not None:
            check_choice("render_mode", render_mode, self.metadata["render_modes"])
        _refuse_forked_workers()
        self.environment, self.params, self._recorded = self.kind.with_data(settings, data, encoding, part)
        self.render_mode = render_mode
        self._space = _shown_space(self.environment, self.environment.observation_space(self.params))
        keep_history = render_mode is not None and getattr(self.environment, "obs", None) != "history"
        parts = tuple(self._space) if isinstance(self._space, Dict) else None
        self._shown = EnvConfig(self.environment, parts, keep_history)

    def _check_action(self, action: Any, space: gymnasium.Space[Any], shape: tuple[int, ...]) -> np.ndarray:
        """The action as int32, or as float32; entries that are out of range stay so."""
        array = np.asarray(action)
        if isinstance(space, Box):
            if array.dtype.kind not in "iuf" or array.shape != shape:
                raise InputError(
                    f"an action must be numbers of shape {shape}, but it is {array.dtype} of shape "
                    f"{array.shape}"
                )
            return array.astype(np.float32)
        if array.dtype.kind not in "iu" or array.shape != shape:
            wanted = f"integers of shape {shape}" if shape else "an integer"
            raise InputError(f"an action must be {wanted}, but it is {array.dtype} of shape {array.shape}")
        sizes = space.n if isinstance(space, Discrete) else cast(MultiDiscrete, space).nvec
        return np.clip(array.astype(np.int64), -1, sizes).astype(np.int32)

    def _check_options(self, options: Mapping[str, Any], envs: tuple[int, ...] = ()) -> ResetOptions:
        """What is asked for, for each environment of the shape ``envs``."""
        for name in options:
            options_of = self.environment.reset_options
            if name not in options_of:
                known = (*options_of, "reset_mask") if isinstance(self, VectorEnv) else options_of
                raise InputError(f"unknown option {name!r}; {nearest(name, known)}")
        question, order, gamma = map(options.get, OPTIONS)
        recorded = self._recorded
        if question is not None:
            last = self.params.matrix.num_questions - 1
            question = _of_each("question", question, "iu", 0, last, f"one of 0 … {last}", envs)
            recorded = recorded[question]
        if order is not None:
            order = self._check_order(order, recorded, question is not None, envs)
        if gamma is not None:
            gamma = _of_each(
                "gamma",
                gamma,
                "iuf",
                0,
                float(np.finfo(np.float32).max),
                "a number of at least 0 that float32 can hold",
                envs,
            )
        return ResetOptions(
            None if question is None else question.astype(np.int32),
            order,
            None if gamma is None else gamma.astype(np.float32),
        )

    def _check_order(
        self, order: Any, recorded: Int[np.ndarray, "*Q"], chosen: bool, envs: tuple[int, ...]
    ) -> Int32[np.ndarray, "*envs W"]:
        """The branches in opening order, where questions have so many recorded ones."""
        width = self.environment.max_branches
        array = _array(order)
        if array.dtype.kind in "iu" and array.shape == ():
            if array < 0:
                raise InputError(f"option 'order' is {array}, but a seed must be at least 0")
            if recorded.min() < recorded.max():
                raise InputError(
                    "option 'order' is a seed, but questions differ in how many branches they have; "
                    "give option 'question' too, of the same number for all"
                )
            array = repo100_orders(int(recorded.min()), [int(array)])[0, :width]
        if array.dtype.kind not in "iu" or array.shape not in ((width,), (*envs, width)):
            more = f", or {envs[0]} times as many" if envs else ""
            raise InputError(
                f"option 'order' must be a seed or {width} branches{more}, but it is {array.dtype} "
                f"of shape {array.shape}"
            )
        branches = recorded if chosen else recorded.min()
        array = np.broadcast_to(array, (*envs, width))
        if not different_branches(array, branches).all():
            raise InputError(
                f"option 'order' must name {width} different branches of 0 … {np.min(branches) - 1}"
            )
        return array.astype(np.int32)

    def _check_snapshot(self, snapshot: Snapshot, num_envs: int) -> None:
        if not isinstance(snapshot, Snapshot) or snapshot[:2] != (self._shown, num_envs):
            raise InputError(
                "this is not what get_state() of an environment with the same settings has returned"
            )

    def _frame(self, state: EnvState) -> str | np.ndarray:
        from autotts_jax.envs import rendering  # here, because Matplotlib takes time to import

        shown = rendering.Frame(**jax.device_get(view(self.params, state)))
        draw = rendering.draw_text if self.render_mode == "ansi" else rendering.draw_array
        return draw(self.environment.name, shown)


def as_options(options: Any) -> dict[str, Any]:
    """Checks that the options of a reset have names.

    Returns:
        A copy.

    Raises:
        InputError: they are not a mapping.
    """
    if options is not None and not isinstance(options, Mapping):
        raise InputError(f"options is {options!r:.60}, but it must be a dict, as {{'question': 0}}")
    return dict(options or {})


def _refuse_forked_workers() -> None:
    """Refuses workers that would be forked."""
    for call in inspect.stack(0):
        # Gymnasium makes one environment in the parent, which starts JAX, and then the workers.
        if call.frame.f_code is AsyncVectorEnv.__init__.__code__:
            context = multiprocessing.get_context(call.frame.f_locals["context"])
            if context.get_start_method() == "fork":
                raise InputError(
                    f"{FORKED}; make worker processes with spawn, as in gymnasium.make_vec(…, "
                    'vectorization_mode=\'async\', vector_kwargs={"context": "spawn"}), or leave '
                    "vectorization_mode out: one process then steps all environments in one compiled call"
                )


def _shown_space(env: Functional, space: gymnasium.Space[Any]) -> gymnasium.Space[Any]:
    """The space of observations in Gymnasium: the mask is there if asked for, as int8 like in ``info``."""
    if not isinstance(space, Dict) or "action_mask" not in space.spaces:
        return space
    parts = dict(space)
    mask = parts.pop("action_mask")
    if getattr(env, "mask_in_obs", True):
        parts["action_mask"] = Box(0, 1, mask.shape, np.int8)
    return Dict(parts)


def _array(value: Any) -> np.ndarray:
    """An array of what was given; of objects where it is none."""
    try:
        return np.asarray(value)
    except ValueError:
        return np.array(None)


def _of_each(
    name: str, value: Any, kinds: str, least: float, most: float, wanted: str, envs: tuple[int, ...]
) -> np.ndarray:
    """An option's value for each environment."""
    array = _array(value)
    fits = array.dtype.kind in kinds and array.shape in ((), envs)
    if not fits or not ((array >= least) & (array <= most)).all():
        more = f", or {envs[0]} of them" if envs else ""
        raise InputError(f"option {name!r} is {value!r}, but it must be {wanted}{more}")
    return np.broadcast_to(array, envs)


def key_words(seed: int) -> UInt32[np.ndarray, "2"]:
    """Makes a key's words from a seed of any size."""
    return np.random.SeedSequence(seed).generate_state(2)


def wrap_keys(words: UInt32[np.ndarray, "*batch 2"]) -> PRNGKeyArray:
    """Makes keys of their words."""
    return jax.random.wrap_key_data(jnp.asarray(words), impl="threefry2x32")


def to_numpy(tree: Any) -> Any:
    """Copies arrays to the host, because what JAX hands out cannot be written to."""
    return jax.tree.map(np.array, jax.device_get(tree))


def can_render(mode: str | None) -> bool:
    """Tells whether there is a mode to render in, and warns where there is none."""
    if mode is None:
        gymnasium.logger.warn("render() shows nothing without a render_mode; give one to gymnasium.make")
    return mode is not None
