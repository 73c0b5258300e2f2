"""Episodes as Gymnasium counts them, compiled: begin one, play an action, begin the next.

What the classes of `autotts_jax.envs.gym` call, for one environment and for many in one call.
"""

from __future__ import annotations

import copy
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from gymnasium.vector import AutoresetMode
from jaxtyping import Bool, Float, Int32, PRNGKeyArray

from autotts_jax.core.compiling import COMPILER_OPTIONS
from autotts_jax.core.lanes import choose
from autotts_jax.envs.environment import Functional, Observation
from autotts_jax.envs.params import EnvParams, EnvState
from autotts_jax.envs.spaces import Box
from autotts_jax.replay.matrix import NONE
from autotts_jax.typing import Array


class EnvConfig(NamedTuple):
    """A functional environment, and what of it is shown; static under ``jit``.

    Attributes:
        env: the environment.
        parts: names of the parts of an observation; None where observations are not dicts.
        keep_history: keep what an episode reveals for rendering, where that is not observed.
        max_episode_steps: steps after which an episode is truncated as by `gymnasium.wrappers.TimeLimit`,
            which observations do not show; None for no such limit.
    """

    env: Functional
    parts: tuple[str, ...] | None
    keep_history: bool
    max_episode_steps: int | None = None


class Slot(NamedTuple):
    """An environment: the key that draws its further episodes, and the state of the present one."""

    key: PRNGKeyArray
    state: EnvState


class ResetOptions(NamedTuple):
    """What was asked of an episode; None for what is drawn."""

    question: Int32[Array, "*envs"] | None = None
    order: Int32[Array, "*envs W"] | None = None
    gamma: Float[Array, "*envs"] | None = None


class Step(NamedTuple):
    """What a step returns, as Gymnasium names it."""

    obs: Observation
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]
    info: dict[str, Array]


def _begin(
    shown: EnvConfig,
    params: EnvParams,
    key: PRNGKeyArray,
    chosen: ResetOptions = ResetOptions(),  # noqa: B008
) -> tuple[Slot, Step]:
    """Starts an episode; an entry of ``info`` that `first_info` leaves out is 0."""
    env = shown.env
    key, draw = jax.random.split(key)
    asked = {name: getattr(chosen, name) for name in env.reset_options}
    if shown.keep_history:
        keeper: Any = copy.copy(env)
        keeper.obs = "history"
        _, state = keeper.reset_env(draw, params, **asked)
        obs = env.get_obs(state, params)
    else:
        obs, state = env.reset_env(draw, params, **asked)
    begun, space = env.first_info(state, params), env.action_space(params)
    action = jax.ShapeDtypeStruct(space.shape or (), jnp.float32 if isinstance(space, Box) else jnp.int32)
    *_, told = jax.eval_shape(env.step_env, draw, state, action, params)
    info = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), told)
    info |= {name: value for name, value in begun.items() if name in told}
    no = jnp.bool_(False)
    return Slot(key, state), _step(shown, obs, jnp.float32(0), no, no, info)


def _play(
    shown: EnvConfig,
    mode: AutoresetMode,
    params: EnvParams,
    lane: Slot,
    ended: Bool[Array, ""],
    action: Array,
) -> tuple[Slot, Step, tuple[Observation, dict[str, Array]] | None]:
    """Plays an action.

    Returns:
        The environment, what it returns, and for SAME_STEP observation and info before any reset.
    """
    env = shown.env
    obs, state, reward, terminated, info = env.step_env(lane.key, lane.state, action, params)
    truncated = ~terminated & env.is_truncated(state, params)
    if shown.max_episode_steps is not None:
        truncated |= state.time >= shown.max_episode_steps
    played, step = Slot(lane.key, state), _step(shown, obs, reward, terminated, truncated, info)
    if mode is AutoresetMode.DISABLED:
        return played, step, None
    begun, first = _begin(shown, params, lane.key)
    if mode is AutoresetMode.NEXT_STEP:
        return *choose(ended, (begun, first), (played, step)), None
    done = terminated | truncated
    final = step.obs, step.info
    lane, (obs, info) = choose(done, (begun, (first.obs, first.info)), (played, final))
    return lane, step._replace(obs=obs, info=info), final


def _step(
    shown: EnvConfig,
    obs: Any,
    reward: Array,
    terminated: Array,
    truncated: Array,
    info: dict[str, Any],
) -> Step:
    """A step as Gymnasium wants it: the parts of the observation space alone, and masks as int8."""
    if shown.parts is not None:
        obs = {name: _as_int8(name, obs[name]) for name in shown.parts}
    info = {name: _as_int8(name, value) for name, value in info.items()}
    return Step(obs, reward, terminated, truncated, info)


def _as_int8(name: str, value: Any) -> Any:
    return value.astype(jnp.int8) if name == "action_mask" else value


_jit = functools.partial(jax.jit, compiler_options=COMPILER_OPTIONS)
begin_one = _jit(_begin, static_argnums=0)
play_one = _jit(_play, static_argnums=(0, 1))


@functools.partial(_jit, static_argnums=0)
def begin_all(
    shown: EnvConfig,
    params: EnvParams,
    keys: Array,
    chosen: ResetOptions,
) -> tuple[Slot, Step]:
    """Starts an episode in each of several environments, one for each key."""
    return jax.vmap(lambda key, of_env: _begin(shown, params, key, of_env))(keys, chosen)


@functools.partial(_jit, static_argnums=(0, 1), donate_argnames="lanes")
def play_all(
    shown: EnvConfig,
    mode: AutoresetMode,
    params: EnvParams,
    lanes: Slot,
    ended: Array,
    actions: Array,
) -> tuple[Slot, Step, Any]:
    """Plays an action in each of several environments: the last three arguments have an axis for them."""
    return jax.vmap(functools.partial(_play, shown, mode, params))(lanes, ended, actions)


choose_all = _jit(choose)


@_jit
def view(params: EnvParams, state: EnvState) -> dict[str, Array]:
    """What is rendered of an episode: answers as the numbers that its history gives them."""
    assert state.history is not None
    pool = state.pool.with_matrix(params.matrix)
    return {
        "time": state.time,
        "tokens": pool.tokens,
        "answer": jnp.where(state.answer == NONE, NONE, state.history.numbers[state.answer]),
        "shown": state.history.shown,
        "depth": pool.depth,
        "finished": pool.finished,
        "pruned": ~pool.active,
    }
