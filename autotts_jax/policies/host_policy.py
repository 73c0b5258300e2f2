"""Policies outside JAX, such as a Stable-Baselines3 model, on the same episodes as controllers."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import time
from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int, Int32

from autotts_jax.core import pool as branch_pool
from autotts_jax.core.controller import first_of
from autotts_jax.core.pool import StopReason
from autotts_jax.core.rollout import COLUMNS, Episodes, Results, end_of_round, result_row, results_of
from autotts_jax.envs.width_depth import Environment, EnvParams, EnvState, Observation
from autotts_jax.errors import InputError
from autotts_jax.policies.env_policy import check_action, check_gamma, check_policy
from autotts_jax.replay.matrix import ProbeMatrix
from autotts_jax.typing import Array
from autotts_jax.user_code import last_lines

LANES = 256
"""Episodes that a policy is asked about at a time, at most."""

REFILL = 0.25
"""Share of the lanes that have to have ended before further episodes take their place."""


class HostPolicy(Protocol):
    """A policy of NumPy arrays for a batch of episodes, with the ``predict`` of Stable-Baselines3."""

    env: Environment
    """The environment that it was made for; nothing but its settings is used."""

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Bool[np.ndarray, " L"] | None = None,
        deterministic: bool = False,
    ) -> tuple[Int[np.ndarray, "L ..."], Any]:
        """Actions of ``env.action_space()`` for L episodes, and the state from now on.

        The observation is that of Gymnasium, without the action mask. It is given as ``action_masks``, bool
        (L, A), to a ``predict`` that has an argument of this name, as sb3-contrib's MaskablePPO has.
        """


@dataclasses.dataclass(frozen=True)
class HostPlayer:
    """A host policy at a γ.

    Attributes:
        policy: the policy.
        gamma: γ, the price of an interval that the policy is shown.
    """

    policy: HostPolicy
    gamma: float

    def __post_init__(self):
        check_policy(self.policy, "predict")
        check_gamma(self.gamma)

    def rollout(
        self,
        matrix: ProbeMatrix,
        orders: Int[np.ndarray, "R W"],
        episodes: Episodes,
        *,
        budget: int | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> Results:
        """Plays every episode; as `autotts_jax.core.rollout.rollout`, with a single setting.

        Raises:
            InputError: ``predict`` failed or returned no actions.
        """
        env = self.policy.env
        began = time.perf_counter()
        params = env.make_params(matrix, gamma=float(self.gamma), budget=budget)
        question, order = np.asarray(episodes.question, np.int32), np.asarray(episodes.order)
        queue = question, np.asarray(orders, np.int32)[order]
        lanes = min(len(question), LANES)
        first = _first(env, params, *(column[:lanes] for column in queue))
        _step(env, params, *first[:2], np.zeros((lanes, *(env.action_space().shape or ())), np.int32))
        compiled = time.perf_counter()
        rows = self._play(params, queue, first, on_progress)
        ended = time.perf_counter()
        return results_of(rows, matrix, episodes, compiled - began, ended - compiled)

    def _play(self, params, queue, first: _Lanes, on_progress) -> Int[np.ndarray, "E C"]:
        """Plays the queue, episodes that have not begun taking the place of such that have ended."""
        env, (states, stops, observation, mask) = self.policy.env, first
        lanes, number = len(stops), len(queue[0])
        episode, taken = np.arange(lanes), lanes
        memory, starting = None, np.ones(lanes, bool)
        rows = np.zeros((number, len(COLUMNS)), np.int32)
        while True:
            ended = np.asarray(stops) != StopReason.RUNNING
            if ended.all() or (taken < number and ended.mean() >= REFILL):
                rows[episode[ended]] = np.asarray(_rows(env, params, states, stops))[ended]
                free = np.flatnonzero(ended)[: number - taken]
                if not free.size:
                    return rows
                episode[free] = taken + np.arange(free.size)
                taken += free.size
                starting[free] = True
                begun = _first(env, params, *(column[episode] for column in queue))
                states, stops, observation, mask = _select(
                    starting, begun, (states, stops, observation, mask)
                )
            action, memory = self._predict(observation, mask, memory, starting)
            states, stops, observation, mask = _step(env, params, states, stops, action)
            starting = np.zeros(lanes, bool)
            if on_progress:
                on_progress(taken - int((np.asarray(stops) == StopReason.RUNNING).sum()))

    def _predict(self, observation, mask, state, starting) -> tuple[np.ndarray, Any]:
        seen, mask = jax.tree.map(np.array, (observation, mask))  # copies, which may be written to
        name = type(self.policy).__name__
        try:
            masks = {"action_masks": mask} if self._takes_masks else {}
            action, state = self.policy.predict(
                seen, state=state, episode_start=starting, deterministic=True, **masks
            )
        except Exception as error:
            raise InputError(f"policy {name}: predict failed:\n{last_lines(error)}") from error
        check_action(name, self.policy.env.action_space(), action, starting.shape)
        return action, state

    @functools.cached_property
    def _takes_masks(self) -> bool:
        return "action_masks" in inspect.signature(self.policy.predict).parameters


_Lanes = tuple[EnvState, Int32[Array, " L"], Observation, Bool[Array, "L A"]]
"""States, why their episodes ended, what is seen of them and which actions are admissible."""


@functools.partial(jax.jit, static_argnums=0)
def _first(
    env: Environment, params: EnvParams, question: Int32[Array, " L"], order: Int32[Array, "L W"]
) -> _Lanes:
    def begin(question, order):
        _, state = env.reset_env(jax.random.key(0), params, question, order)
        return state, jnp.int32(StopReason.RUNNING), *_view(env, params, state)

    return jax.vmap(begin)(question, order)


@functools.partial(jax.jit, static_argnums=0)
def _step(
    env: Environment, params: EnvParams, states: EnvState, stops: Int32[Array, " L"], actions: Array
) -> _Lanes:
    """One step of every episode that has not ended."""

    def step(state, stop, action):
        _, stepped, _, answered, _ = env.step_env(jax.random.key(0), state, action, params)
        pool = branch_pool.attach(stepped.pool, params.matrix)
        limit = env.is_truncated(stepped, params)
        reason = first_of((answered, StopReason.DECIDED), (limit, StopReason.STEP_LIMIT))
        reason = end_of_round(reason, pool, stepped.time)
        running = stop == StopReason.RUNNING
        state, stop = jax.tree.map(functools.partial(jnp.where, running), (stepped, reason), (state, stop))
        return state, stop, *_view(env, params, state)

    return jax.vmap(step)(states, stops, actions)


@jax.jit
@jax.vmap
def _select(new: Bool[Array, " L"], begun: _Lanes, others: _Lanes) -> _Lanes:
    return jax.tree.map(functools.partial(jnp.where, new), begun, others)


def _view(env: Environment, params: EnvParams, state: EnvState) -> tuple[Observation, Bool[Array, " A"]]:
    """A state's observation as Gymnasium has it, and its action mask apart."""
    observation = env.get_obs(state, params)
    if isinstance(observation, dict):
        observation = {name: field for name, field in observation.items() if name != "action_mask"}
    return observation, env.action_mask(branch_pool.attach(state.pool, params.matrix))


@functools.partial(jax.jit, static_argnums=0)
def _rows(
    env: Environment, params: EnvParams, states: EnvState, stops: Int32[Array, " L"]
) -> Int32[Array, "L C"]:
    def row(state, stop):
        pool = branch_pool.attach(state.pool, params.matrix)
        vote = env.aggregate(pool, state.tracker)
        return result_row(pool, vote, jnp.max(pool.branch_tokens), state.time, stop)

    return jax.vmap(row)(states, stops)
