"""The environments for Gymnasium, NumPy in and out; `autotts_jax.envs.registry` has their ids.

`WidthDepthEnv`, `WidthDepthRoundsEnv` and `WidthDepthMacroEnv` are single environments; those of
`autotts_jax.envs.gym_vector` step any number of them in one compiled call. All wrap the functional
environments `WidthDepth`, `WidthDepthRounds` and `WidthDepthMacro`.
"""

from __future__ import annotations

from typing import Any, cast

import gymnasium
import jax
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode
from jaxtyping import Bool

from autotts_jax.checks import check_int
from autotts_jax.envs.batch import WidthDepthBatch
from autotts_jax.envs.environment import Data, Functional, Observation
from autotts_jax.envs.gym_base import (
    RENDER_MODES,
    GymBase,
    Snapshot,
    as_options,
    can_render,
    key_words,
    to_numpy,
    wrap_keys,
)
from autotts_jax.envs.gym_episodes import Slot, Step, begin_one, play_one
from autotts_jax.envs.macros import WidthDepthMacro
from autotts_jax.envs.rounds import WidthDepthRounds
from autotts_jax.envs.width_depth import WidthDepth
from autotts_jax.replay.dataset import EXACT


class WidthDepthEnv(GymBase, gymnasium.Env[Observation, Any]):
    """`WidthDepth`, one episode at a time.

    Actions, observations, rewards and ends are those of ``kind``, the functional environment. ``info`` has
    the entries of its `step_env` after `reset` too: ``invalid_action`` (bool), ``tokens``, ``intervals``,
    ``probes``, ``interval``, ``question``, ``answer`` (int), ``cost`` (float), ``correct`` (bool) and
    ``action_mask`` (int8, shape (A,)). A subclass sets ``kind`` to a functional environment of its own.

    Args:
        data: names, files, folders or patterns as `autotts_jax.load` takes them, a
            `ProbeDataset` or a `ProbeMatrix`; the synthetic data when None, with
            signals where they are observed.
        encoding: when answers in files are equal, ``exact`` or ``equiv``.
        part: the questions of one part alone, ``train``, ``validation`` or ``test``; all when None.
        render_mode: ``ansi`` for text, ``rgb_array`` for a picture; both show what was revealed.
        **settings: arguments of the functional environment (``max_branches``, ``obs``, ``aggregate``,
            ``signals``, and ``fused`` or ``max_advance``) and of its `make_params` (``gamma``,
            ``kappa_probe``, ``budget``, ``reward``, ``progress_weight``, ``regret_budget``,
            ``invalid_penalty``, ``max_steps``, ``cost``, ``seed``).

    Raises:
        InputError: a setting or the data is wrong, or worker processes would be forks of one with JAX in it.
    """

    metadata: dict[str, Any] = {"render_modes": list(RENDER_MODES), "render_fps": 10}  # noqa: RUF012
    kind: type[Functional] = WidthDepth

    def __init__(
        self,
        data: Data | None = None,
        *,
        encoding: str = EXACT,
        part: str | None = None,
        render_mode: str | None = None,
        **settings: Any,
    ):
        self._set_up(data, encoding, part, render_mode, settings)
        self.action_space = self.environment.action_space(self.params)
        self.observation_space = self._space
        self._lane: Slot | None = None
        self._ended = True
        self._mask: np.ndarray | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Starts an episode; without a seed, the next of those that the last seed determines.

        Args:
            seed: what the episodes from here on are drawn with.
            options: ``question``, its index in the data; ``order``, W different branches in opening order, or
                the seed of an order of the repo100 protocol; ``gamma``, the price of an interval. What is
                left out is drawn.

        Raises:
            InputError: the seed or an option is wrong.
        """
        chosen = self._check_options(as_options(options))
        super().reset(seed=None if seed is None else check_int("seed", seed))
        if seed is None and self._lane is None:
            seed = int(self.np_random.integers(2**63))
        key = self._lane.key if self._lane and seed is None else wrap_keys(key_words(cast(int, seed)))
        lane, step = begin_one(self._shown, self.params, key, chosen)
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
        static = self._shown, AutoresetMode.DISABLED
        lane, step, _ = play_one(*static, self.params, self._lane, False, action)
        return self._take(lane, step)

    def _take(self, lane: Slot, step: Step) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = to_numpy(step)
        self._lane, self._mask = lane, info["action_mask"].astype(bool)
        self._ended = bool(terminated | truncated)
        info = jax.tree.map(lambda value: value if value.ndim else value.item(), info)
        return obs, reward.item(), terminated.item(), truncated.item(), info

    def get_state(self) -> Snapshot:
        """Returns a state for `set_state` to continue from; it holds no data and is not changed later."""
        return Snapshot(self._shown, 1, self._lane, self._mask, self._ended)

    def set_state(self, snapshot: Snapshot) -> None:
        """Goes back to where an environment of the same settings and data was.

        Args:
            snapshot: what `get_state` has returned.

        Raises:
            InputError: it is of another kind of environment.
        """
        self._check_snapshot(snapshot, 1)
        self._lane, self._mask, self._ended = snapshot.envs, snapshot.last, snapshot.ended

    def action_masks(self) -> Bool[np.ndarray, " A"]:
        """Returns which actions are admissible, for sb3-contrib's MaskablePPO among others."""
        if self._mask is None:
            raise ResetNeeded("no episode was started; call reset() before action_masks()")
        return self._mask.copy()

    def render(self) -> Any:
        """Draws the episode: text, or a uint8 array of shape (height, width, 3), by `render_mode`."""
        if not can_render(self.render_mode):
            return None
        if self._lane is None:
            raise ResetNeeded("no episode was started; call reset() before render()")
        return self._frame(self._lane.state)


class WidthDepthRoundsEnv(WidthDepthEnv):
    """`WidthDepthRounds`, one episode at a time; see `WidthDepthEnv`."""

    kind = WidthDepthRounds


class WidthDepthMacroEnv(WidthDepthEnv):
    """`WidthDepthMacro`, one episode at a time; see `WidthDepthEnv`."""

    kind = WidthDepthMacro


class WidthDepthBatchEnv(WidthDepthEnv):
    """`WidthDepthBatch`, one episode at a time; see `WidthDepthEnv`. Nothing is rendered.

    Settings are ``max_branches``, ``at_once``, ``budget`` and ``seed``. ``info`` is that of its `step_env`.
    Of the options of `reset` there are ``question``, whose cell is played, and ``order``, the same for all
    questions.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012
    kind = WidthDepthBatch
