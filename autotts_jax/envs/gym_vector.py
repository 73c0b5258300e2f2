"""The vector environments for Gymnasium: any number of episodes in one compiled call."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from jaxtyping import Bool, PRNGKeyArray

from autotts_jax.checks import check_choice, check_int
from autotts_jax.envs.batch import WidthDepthBatch
from autotts_jax.envs.environment import Data, Functional, Observation
from autotts_jax.envs.gym import WidthDepthBatchEnv, WidthDepthEnv
from autotts_jax.envs.gym_base import (
    GymBase,
    Snapshot,
    as_options,
    can_render,
    key_words,
    to_numpy,
    wrap_keys,
)
from autotts_jax.envs.gym_episodes import Slot, Step, begin_all, choose_all, play_all
from autotts_jax.envs.macros import WidthDepthMacro
from autotts_jax.envs.rounds import WidthDepthRounds
from autotts_jax.envs.width_depth import WidthDepth
from autotts_jax.errors import InputError
from autotts_jax.replay.dataset import EXACT
from autotts_jax.typing import Array


class WidthDepthVectorEnv(GymBase, VectorEnv[Observation, Any, np.ndarray]):
    """`WidthDepth`, any number of episodes in one compiled call.

    Behaves as `gymnasium.vector.SyncVectorEnv` of as many `WidthDepthEnv` with the same arguments: the same
    seeds and actions give the same episodes, in every autoreset mode.

    Args:
        data: see `WidthDepthEnv`.
        num_envs: number of environments.
        encoding: see `WidthDepthEnv`.
        part: see `WidthDepthEnv`.
        max_episode_steps: steps after which an episode is truncated, as `gymnasium.make` and an id's spec
            have it; None for no limit beside ``max_steps``.
        autoreset_mode: when an ended episode is followed by the next: ``NextStep``, ``SameStep`` or
            ``Disabled``, or the `AutoresetMode` itself.
        render_mode: see `WidthDepthEnv`.
        **settings: see `WidthDepthEnv`.

    Raises:
        InputError: a setting or the data is wrong, or worker processes would be forks of one with JAX in it.
    """

    metadata: dict[str, Any] = WidthDepthEnv.metadata
    kind: type[Functional] = WidthDepth

    def __init__(
        self,
        data: Data | None = None,
        *,
        num_envs: int = 1,
        encoding: str = EXACT,
        part: str | None = None,
        max_episode_steps: int | None = None,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
        **settings: Any,
    ):
        check_int("num_envs", num_envs, 1)
        if not isinstance(autoreset_mode, AutoresetMode):
            check_choice("autoreset_mode", autoreset_mode, [mode.value for mode in AutoresetMode])
        if max_episode_steps == -1:  # as Gymnasium says that there is no limit
            max_episode_steps = None
        if max_episode_steps is not None:
            check_int("max_episode_steps", max_episode_steps, 1)
        self._set_up(data, encoding, part, render_mode, settings)
        self._shown = self._shown._replace(max_episode_steps=max_episode_steps)
        self.num_envs = num_envs
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = self.metadata | {"autoreset_mode": self.autoreset_mode}
        self.single_action_space = self.environment.action_space(self.params)
        self.single_observation_space = self._space
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
            options: as in `WidthDepthEnv.reset`, the same for all or an array with one for each (questions
                and ``gamma`` of shape (num_envs,), orders of shape (num_envs, W)); and ``reset_mask``, the
                environments that start an episode while the others stay as they are, bool of shape
                (num_envs,).

        Raises:
            InputError: the seeds or an option are wrong.
            ResetNeeded: ``reset_mask`` leaves out environments that have no episode yet.
        """
        options = as_options(options)
        fresh = self._check_mask(options.pop("reset_mask", None))
        chosen = self._check_options(options, (self.num_envs,))
        seeds = self._check_seeds(seed)
        super().reset(seed=seed if isinstance(seed, int) else None)
        keys = self._next_keys(seeds)
        lanes, step = begin_all(self._shown, self.params, keys, chosen)
        if not fresh.all():
            lanes, step = choose_all(fresh, (lanes, step), (self._lanes, self._last))
        self._lanes, self._last = lanes, step
        self._ended &= ~fresh
        return to_numpy(step.obs), _infos(step.info, fresh)

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
        static = self._shown, mode
        self._lanes, self._last, final = play_all(*static, self.params, self._lanes, self._ended, actions)
        obs, reward, terminated, truncated = to_numpy(self._last[:4])
        ended = terminated | truncated
        infos = _infos(self._last.info, np.ones(self.num_envs, bool))
        if mode is not AutoresetMode.SAME_STEP:
            self._ended = ended
        elif ended.any():
            final_obs, final_info = final
            infos |= _final(final_obs, final_info, ended)
        return obs, reward.astype(np.float64), terminated, truncated, infos

    def get_state(self) -> Snapshot:
        """Returns a state for `set_state` to continue from; it holds no data and is not changed later."""
        return Snapshot(self._shown, self.num_envs, _copy(self._lanes), self._last, self._ended.copy())

    def set_state(self, snapshot: Snapshot) -> None:
        """Goes back to where environments of the same settings and data were.

        Args:
            snapshot: what `get_state` has returned.

        Raises:
            InputError: it is of another kind or number of environments.
        """
        self._check_snapshot(snapshot, self.num_envs)
        self._lanes, self._last = _copy(snapshot.envs), snapshot.last
        self._ended = snapshot.ended.copy()

    def action_masks(self) -> Bool[np.ndarray, "num_envs A"]:
        """Returns which actions are admissible in each environment."""
        if self._last is None:
            raise ResetNeeded("no episode was started; call reset() before action_masks()")
        return np.asarray(self._last.info["action_mask"]).astype(bool)

    def render(self) -> tuple[Any, ...] | None:
        """Draws each environment; see `WidthDepthEnv.render`."""
        if not can_render(self.render_mode):
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
        return [None if given is None else check_int("seed", given) for given in seeds]

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
                words[lane] = key_words(given)
        return wrap_keys(words)


class WidthDepthRoundsVectorEnv(WidthDepthVectorEnv):
    """`WidthDepthRounds`, any number of episodes in one compiled call; see `WidthDepthVectorEnv`."""

    kind = WidthDepthRounds


class WidthDepthMacroVectorEnv(WidthDepthVectorEnv):
    """`WidthDepthMacro`, any number of episodes in one compiled call; see `WidthDepthVectorEnv`."""

    kind = WidthDepthMacro


class WidthDepthBatchVectorEnv(WidthDepthVectorEnv):
    """`WidthDepthBatch`, any number of episodes in one compiled call; see `WidthDepthBatchEnv`."""

    metadata: dict[str, Any] = WidthDepthBatchEnv.metadata
    kind = WidthDepthBatch


def _copy(lanes: Slot | None) -> Slot | None:
    """A copy, because a step gives up the buffers of what it is given."""
    return jax.tree.map(jnp.copy, lanes)


_WIDE = {"i": np.int64, "u": np.int64, "f": np.float64}
"""The dtypes as which Gymnasium gathers numbers of single environments, by kind."""


def _infos(info: dict[str, Any], lanes: Bool[np.ndarray, " num_envs"]) -> dict[str, Any]:
    """What some environments tell, and for each entry which do; 0 for the others."""
    infos: dict[str, Any] = {}
    for name, column in jax.device_get(info).items():
        if isinstance(column, dict):
            column = _infos(column, lanes)
        else:
            number = column.ndim == 1 and column.dtype.kind in _WIDE
            column = column.astype(_WIDE[column.dtype.kind] if number else column.dtype)
            column[~lanes] = 0
        infos |= {name: column, f"_{name}": lanes.copy()}
    return infos


def _final(obs: Observation, info: dict[str, Array], ended: Bool[np.ndarray, " num_envs"]) -> dict[str, Any]:
    """Observations and infos of episodes that ended, in the layout of Gymnasium's own vector environments."""
    lanes = np.flatnonzero(ended)
    rows = jax.tree.map(lambda column: np.asarray(column)[lanes], obs)
    observations = np.full(ended.size, None, object)
    for row, lane in enumerate(lanes):
        observations[lane] = jax.tree.map(lambda column, row=row: np.asarray(column[row]), rows)
    final = {"final_obs": observations, "final_info": _infos(info, ended)}
    return final | {f"_{name}": ended.copy() for name in final}
