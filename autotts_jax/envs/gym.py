"""The environments for Gymnasium: ``WidthDepth-v0`` and ``WidthDepthRounds-v0``, NumPy in and out.

`autotts_jax` registers both ids. `WidthDepthEnv` and `WidthDepthRoundsEnv` are single environments,
`WidthDepthVectorEnv` and `WidthDepthRoundsVectorEnv` step any number of them in one compiled call. All wrap
the functional environments `WidthDepth` and `WidthDepthRounds`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, cast

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Discrete, MultiDiscrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from jaxtyping import Bool, Int, Int32, PRNGKeyArray, UInt32

from autotts_jax.envs.environment import Environment, Observation
from autotts_jax.envs.gym_episodes import (
    Slot,
    Step,
    begin_all,
    begin_one,
    play_all,
    play_one,
    select_all,
    view,
)
from autotts_jax.envs.making import build
from autotts_jax.envs.params import EnvState
from autotts_jax.envs.rounds import WidthDepthRounds
from autotts_jax.envs.width_depth import WidthDepth
from autotts_jax.errors import InputError
from autotts_jax.replay import embedded
from autotts_jax.replay.dataset import EXACT, ProbeDataset
from autotts_jax.replay.matrix import ProbeMatrix
from autotts_jax.replay.orders import repo100_orders
from autotts_jax.typing import Array

Data = str | Path | Sequence[str | Path] | ProbeDataset | ProbeMatrix | None
"""What an environment replays: what `autotts_jax.replay.embedded.load` takes, or a dataset."""

RENDER_MODES = ("ansi", "rgb_array")


# --- what single and vector environments share ----------------------------------------------------------


class _Face:
    """A functional environment with its data and parameters, and the checks of what comes from outside."""

    kind: type[Environment]
    render_mode: str | None

    def _set_up(self, data: Data, encoding: str, render_mode: str | None, settings: dict[str, Any]) -> None:
        if render_mode is not None and render_mode not in RENDER_MODES:
            raise InputError(f"unknown render_mode {render_mode!r}; choose one of {', '.join(RENDER_MODES)}")
        matrix, self._recorded = _load(data, encoding)
        self.environment, self.params = build(self.kind, matrix, settings)
        self.render_mode = render_mode
        self._keep_history = render_mode is not None and self.environment.obs != "history"

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
            if name not in ("question", "order"):
                raise InputError(
                    f"unknown option {name!r}; there are question and order, and reset_mask where "
                    "environments are vectorised"
                )
        question, order = options.get("question"), options.get("order")
        recorded = self._recorded
        if question is not None:
            last = self.params.matrix.num_questions - 1
            if not _is_integer(question) or not 0 <= question <= last:
                raise InputError(f"option 'question' is {question!r}, but it must be one of 0 … {last}")
            question = np.asarray(question, np.int32)
            recorded = recorded[question, None]
        return question, None if order is None else self._check_order(order, recorded)

    def _check_order(self, order: Any, recorded: Int[np.ndarray, " Q"]) -> Int32[np.ndarray, " W"]:
        width, branches = self.environment.max_branches, int(recorded.min())
        if _is_integer(order):
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


def _load(data: Data, encoding: str) -> tuple[ProbeMatrix, Int[np.ndarray, " Q"]]:
    """The probe matrix, and how many branches of each question are recorded."""
    if isinstance(data, ProbeMatrix):
        return data, np.full(data.num_questions, data.num_branches)
    if not isinstance(data, ProbeDataset):
        data = embedded.load("synthetic" if data is None else data, encoding)
    branches = np.array([cell.num_branches for cell in data.cells])
    return data.matrix, branches[data.matrix.cell]


def _is_integer(value: Any) -> bool:
    return isinstance(value, int | np.integer)


def _key_words(seed: int) -> UInt32[np.ndarray, "2"]:
    """A key's words from a seed of any size."""
    return np.random.SeedSequence(seed).generate_state(2)


def _keys(words: UInt32[np.ndarray, "*batch 2"]) -> PRNGKeyArray:
    return jax.random.wrap_key_data(jnp.asarray(words), impl="threefry2x32")


def _to_numpy(tree: Any) -> Any:
    """Copies, because what JAX hands out cannot be written to."""
    return jax.tree.map(np.array, jax.device_get(tree))


def _can_render(mode: str | None) -> bool:
    if mode is None:
        gymnasium.logger.warn("render() shows nothing without a render_mode; give one to gymnasium.make")
    return mode is not None


# --- single environments --------------------------------------------------------------------------------


class WidthDepthEnv(_Face, gymnasium.Env[Observation, Any]):
    """`WidthDepth`, one episode at a time.

    Actions, observations, rewards and ends are the functional environment's, with the action mask in ``info``
    alone. ``info`` has the same entries after `reset` and `step`: ``invalid_action`` (bool), ``tokens``,
    ``intervals``, ``probes``, ``interval``, ``question``, ``answer`` (int), ``cost`` (float), ``correct``
    (bool) and ``action_mask`` (int8, shape (A,)).

    Args:
        data: names, files, folders or patterns as `autotts_jax.replay.embedded.load` takes them, a
            `ProbeDataset` or a `ProbeMatrix`; the synthetic data when None.
        encoding: how the answers in files are told apart, ``exact`` or ``equiv``.
        render_mode: ``ansi`` for text, ``rgb_array`` for a picture; both show what was revealed.
        **settings: arguments of the functional environment (``max_branches``, ``obs``, ``aggregate``, and
            ``fused`` or ``max_advance``) and of its `make_params` (``gamma``, ``kappa_probe``, ``budget``,
            ``reward``, ``progress_weight``, ``regret_budget``, ``invalid_penalty``, ``max_steps``, ``seed``).

    Raises:
        InputError: a setting or the data is wrong.
    """

    metadata: dict[str, Any] = {"render_modes": list(RENDER_MODES), "render_fps": 10}  # noqa: RUF012
    kind: type[Environment] = WidthDepth

    def __init__(
        self, data: Data = None, *, encoding: str = EXACT, render_mode: str | None = None, **settings: Any
    ):
        self._set_up(data, encoding, render_mode, settings)
        self.action_space = self.environment.action_space(self.params)
        self.observation_space = self.environment.observation_space(self.params)
        self._lane: Slot | None = None
        self._ended = True
        self._mask: np.ndarray | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Starts an episode; without a seed the next one that the last seed leads to.

        Args:
            seed: what the episodes from here on are drawn with.
            options: ``question``, its index in the data; ``order``, W different branches in opening order, or
                the seed of an order of the repo100 protocol. What is left out is drawn.

        Raises:
            InputError: an option is unknown or wrong.
        """
        question, order = self._check_options(options or {})
        super().reset(seed=seed)
        if seed is None and self._lane is None:
            seed = int(self.np_random.integers(2**63))
        key = self._lane.key if self._lane and seed is None else _keys(_key_words(cast(int, seed)))
        lane, step = begin_one(self.environment, self._keep_history, self.params, key, question, order)
        obs, *_, info = self._take(lane, step)
        return obs, info

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Plays an action.

        Args:
            action: an integer, or in rounds integers of shape (2 + W,).

        An action that is inadmissible or out of range does nothing, and ``info["invalid_action"]`` says so.

        Raises:
            InputError: the action is of another type or shape.
            ResetNeeded: the episode has ended, or none was started.
        """
        if self._lane is None or self._ended:
            raise ResetNeeded("the episode has ended, or none was started; call reset() before step()")
        action = self._check_action(action, self.action_space, self.action_space.shape or ())
        static = self.environment, self._keep_history, AutoresetMode.DISABLED
        lane, step, _ = play_one(*static, self.params, self._lane, False, action)
        return self._take(lane, step)

    def _take(self, lane: Slot, step: Step) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = _to_numpy(step)
        self._lane, self._mask = lane, info["action_mask"].astype(bool)
        self._ended = bool(terminated | truncated)
        info = {name: value if value.ndim else value.item() for name, value in info.items()}
        return obs, reward.item(), terminated.item(), truncated.item(), info

    def action_masks(self) -> Bool[np.ndarray, " A"]:
        """Returns which actions are admissible, for sb3-contrib's MaskablePPO among others."""
        if self._mask is None:
            raise ResetNeeded("no episode was started; call reset() before action_masks()")
        return self._mask.copy()

    def render(self) -> Any:
        """Draws the episode: text, or a uint8 array of shape (height, width, 3), by `render_mode`."""
        if not _can_render(self.render_mode):
            return None
        if self._lane is None:
            raise ResetNeeded("no episode was started; call reset() before render()")
        return self._frame(self._lane.state)


class WidthDepthRoundsEnv(WidthDepthEnv):
    """`WidthDepthRounds`, one episode at a time; see `WidthDepthEnv`."""

    kind = WidthDepthRounds


# --- vector environments --------------------------------------------------------------------------------


class WidthDepthVectorEnv(_Face, VectorEnv[Observation, Any, np.ndarray]):
    """`WidthDepth`, any number of episodes in one compiled call.

    Behaves as `gymnasium.vector.SyncVectorEnv` of as many `WidthDepthEnv` with the same arguments: the same
    seeds and actions give the same episodes, in every autoreset mode.

    Args:
        data: see `WidthDepthEnv`.
        num_envs: number of environments.
        encoding: see `WidthDepthEnv`.
        autoreset_mode: when an ended episode is followed by the next: ``NextStep``, ``SameStep`` or
            ``Disabled``, or the `AutoresetMode` itself.
        render_mode: see `WidthDepthEnv`.
        **settings: see `WidthDepthEnv`.

    Raises:
        InputError: a setting or the data is wrong.
    """

    metadata: dict[str, Any] = WidthDepthEnv.metadata
    kind: type[Environment] = WidthDepth

    def __init__(
        self,
        data: Data = None,
        *,
        num_envs: int = 1,
        encoding: str = EXACT,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
        **settings: Any,
    ):
        if not _is_integer(num_envs) or num_envs < 1:
            raise InputError(f"num_envs is {num_envs!r}, but it must be an integer of at least 1")
        modes = [mode.value for mode in AutoresetMode]
        if not isinstance(autoreset_mode, AutoresetMode) and autoreset_mode not in modes:
            raise InputError(f"unknown autoreset_mode {autoreset_mode!r}; choose one of {', '.join(modes)}")
        self._set_up(data, encoding, render_mode, settings)
        self.num_envs = num_envs
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = self.metadata | {"autoreset_mode": self.autoreset_mode}
        self.single_action_space = self.environment.action_space(self.params)
        self.single_observation_space = self.environment.observation_space(self.params)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self._lanes: Slot | None = None
        self._last: Step | None = None
        self._ended = np.zeros(num_envs, bool)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Starts an episode in every environment, or in those of ``reset_mask``.

        Args:
            seed: environment i takes ``seed + i``, or ``seed[i]``; see `WidthDepthEnv.reset`.
            options: as in `WidthDepthEnv.reset`, the same for all; and ``reset_mask``, the environments that
                start an episode while the others stay as they are, bool of shape (num_envs,).

        Raises:
            InputError: the seeds or an option are wrong.
            ResetNeeded: ``reset_mask`` leaves out environments that have no episode yet.
        """
        options = dict(options or {})
        fresh = self._check_mask(options.pop("reset_mask", None))
        question, order = self._check_options(options)
        seeds = self._check_seeds(seed)
        super().reset(seed=seed if isinstance(seed, int) else None)
        keys = self._next_keys(seeds)
        lanes, step = begin_all(self.environment, self._keep_history, self.params, keys, question, order)
        if not fresh.all():
            lanes, step = select_all(fresh, (lanes, step), (self._lanes, self._last))
        self._lanes, self._last = lanes, step
        self._ended &= ~fresh
        return _to_numpy(step.obs), _infos(step.info, fresh)

    def step(self, actions: Any) -> tuple[Observation, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Plays an action in every environment.

        Args:
            actions: integers of shape (num_envs,), or in rounds (num_envs, 2 + W).

        Raises:
            InputError: the actions are of another type or shape.
            ResetNeeded: no episode was started, or in mode ``Disabled`` one has ended.
        """
        mode = self.autoreset_mode
        if self._lanes is None:
            raise ResetNeeded("no episode was started; call reset() before step()")
        if mode is AutoresetMode.DISABLED and self._ended.any():
            ended = np.flatnonzero(self._ended).tolist()
            raise ResetNeeded(
                f"the episodes of environments {ended} have ended; call reset() with a reset_mask"
            )
        actions = self._check_action(actions, self.single_action_space, self.action_space.shape or ())
        static = self.environment, self._keep_history, mode
        self._lanes, self._last, final = play_all(*static, self.params, self._lanes, self._ended, actions)
        obs, reward, terminated, truncated = _to_numpy(self._last[:4])
        ended = terminated | truncated
        infos = _infos(self._last.info, np.ones(self.num_envs, bool))
        if mode is not AutoresetMode.SAME_STEP:
            self._ended = ended
        elif ended.any():
            final_obs, final_info = final
            infos |= _final(final_obs, final_info, ended)
        return obs, reward.astype(np.float64), terminated, truncated, infos

    def action_masks(self) -> Bool[np.ndarray, "num_envs A"]:
        """Returns which actions are admissible in each environment."""
        if self._last is None:
            raise ResetNeeded("no episode was started; call reset() before action_masks()")
        return np.asarray(self._last.info["action_mask"]).astype(bool)

    def render(self) -> tuple[Any, ...] | None:
        """Draws each environment; see `WidthDepthEnv.render`."""
        if not _can_render(self.render_mode):
            return None
        if self._lanes is None:
            raise ResetNeeded("no episode was started; call reset() before render()")
        states = self._lanes.state
        return tuple(self._frame(jax.tree.map(itemgetter(lane), states)) for lane in range(self.num_envs))

    def _check_mask(self, mask: Any) -> Bool[np.ndarray, " num_envs"]:
        if mask is None:
            return np.ones(self.num_envs, bool)
        mask = np.asarray(mask)
        if mask.dtype != bool or mask.shape != (self.num_envs,) or not mask.any():
            raise InputError(
                f"option 'reset_mask' must be bool of shape ({self.num_envs},) and somewhere True, "
                f"but it is {mask.dtype} of shape {mask.shape}" + (" and all False" if not mask.any() else "")
            )
        if self._lanes is None and not mask.all():
            raise ResetNeeded("no episode was started; call reset() without a reset_mask first")
        return mask

    def _check_seeds(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, Sequence | np.ndarray):
            seeds = list(seed)
        else:
            seeds = [seed + lane for lane in range(self.num_envs)]
        if len(seeds) != self.num_envs:
            raise InputError(
                f"there are {len(seeds)} seeds for {self.num_envs} environments; give one for each"
            )
        for given in seeds:
            if given is not None and (not _is_integer(given) or given < 0):
                raise InputError(f"seed {given!r} is not an integer of at least 0")
        return [None if given is None else int(given) for given in seeds]

    def _next_keys(self, seeds: list[int | None]) -> PRNGKeyArray:
        """The keys of the next episodes: of their seeds, or those that the last episodes left."""
        if self._lanes is None:
            drawn = self.np_random.integers(2**63, size=self.num_envs).tolist()
            seeds = [other if given is None else given for given, other in zip(seeds, drawn, strict=True)]
        if None in seeds:
            assert self._lanes is not None
            words = np.array(jax.random.key_data(self._lanes.key))
        else:
            words = np.empty((self.num_envs, 2), np.uint32)
        for lane, given in enumerate(seeds):
            if given is not None:
                words[lane] = _key_words(given)
        return _keys(words)


class WidthDepthRoundsVectorEnv(WidthDepthVectorEnv):
    """`WidthDepthRounds`, any number of episodes in one compiled call; see `WidthDepthVectorEnv`."""

    kind = WidthDepthRounds


_WIDE = {np.dtype(np.int32): np.int64, np.dtype(np.float32): np.float64}
"""The dtypes as which Gymnasium gathers numbers of single environments."""


def _infos(info: dict[str, Array], lanes: Bool[np.ndarray, " num_envs"]) -> dict[str, Any]:
    """What some environments tell, and for each entry which do; 0 for the others."""
    infos: dict[str, Any] = {}
    for name, column in jax.device_get(info).items():
        column = column.astype(_WIDE.get(column.dtype, column.dtype))
        column[~lanes] = 0
        infos |= {name: column, f"_{name}": lanes.copy()}
    return infos


def _final(obs: Observation, info: dict[str, Array], ended: Bool[np.ndarray, " num_envs"]) -> dict[str, Any]:
    """Observations and infos of episodes that ended, in the layout of Gymnasium's own vector environments."""
    lanes = np.flatnonzero(ended)
    rows = jax.tree.map(lambda column: np.asarray(column)[lanes], obs)
    observations = np.full(ended.size, None, object)
    for row, lane in enumerate(lanes):
        observations[lane] = jax.tree.map(itemgetter(row), rows)
    final = {"final_obs": observations, "final_info": _infos(info, ended)}
    return final | {f"_{name}": ended.copy() for name in final}
