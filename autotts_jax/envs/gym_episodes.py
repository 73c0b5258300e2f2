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
from autotts_jax.envs.environment import Environment, Observation
from autotts_jax.envs.params import EnvParams, EnvState
from autotts_jax.replay.matrix import NONE
from autotts_jax.typing import Array


class Slot(NamedTuple):
    """An environment: the key that draws its further episodes, and the state of the present one."""

    key: PRNGKeyArray
    state: EnvState


class Step(NamedTuple):
    """What a step returns, as Gymnasium names it."""

    obs: Observation
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]
    info: dict[str, Array]


def _begin(
    env: Environment,
    keep_history: bool,
    params: EnvParams,
    key: PRNGKeyArray,
    question: Int32[Array, ""] | None = None,
    order: Int32[Array, " W"] | None = None,
) -> tuple[Slot, Step]:
    """Starts an episode; ``keep_history`` keeps what it reveals for rendering, where that is not observed."""
    key, draw = jax.random.split(key)
    if keep_history:
        keeper = copy.copy(env)
        keeper.obs = "history"
        _, state = keeper.reset_env(draw, params, question, order)
        obs = env.get_obs(state, params)
    else:
        obs, state = env.reset_env(draw, params, question, order)
    nothing = jnp.int32(0)
    info = {
        "invalid_action": jnp.bool_(False),
        "tokens": nothing,
        "intervals": nothing,
        "probes": nothing,
        "cost": jnp.float32(0),
        "interval": state.pool.interval,
        "question": state.question,
        "answer": state.answer,
        "correct": jnp.bool_(False),
        "action_mask": env.action_mask(state.pool.unopened(params.matrix)),
    }
    return Slot(key, state), _step(env, obs, jnp.float32(0), jnp.bool_(False), jnp.bool_(False), info)


def _play(
    env: Environment,
    keep_history: bool,
    mode: AutoresetMode,
    params: EnvParams,
    lane: Slot,
    ended: Bool[Array, ""],
    action: Array,
) -> tuple[Slot, Step, tuple[Observation, dict[str, Array]] | None]:
    """Plays an action.

    Args:
        env: the functional environment.
        keep_history: see `_begin`.
        mode: when the next episode begins.
        params: its parameters.
        lane: the environment.
        ended: its episode ended with the step before; only NEXT_STEP looks at it.
        action: the action.

    Returns:
        The environment, what it returns, and for SAME_STEP observation and info before any reset.
    """
    obs, state, reward, terminated, info = env.step_env(lane.key, lane.state, action, params)
    truncated = ~terminated & env.is_truncated(state, params)
    played, step = Slot(lane.key, state), _step(env, obs, reward, terminated, truncated, info)
    if mode is AutoresetMode.DISABLED:
        return played, step, None
    begun, first = _begin(env, keep_history, params, lane.key)
    if mode is AutoresetMode.NEXT_STEP:
        return *_select(ended, (begun, first), (played, step)), None
    done = terminated | truncated
    final = step.obs, step.info
    lane, (obs, info) = _select(done, (begun, (first.obs, first.info)), (played, final))
    return lane, step._replace(obs=obs, info=info), final


def _step(
    env: Environment,
    obs: Any,
    reward: Array,
    terminated: Array,
    truncated: Array,
    info: dict[str, Any],
) -> Step:
    """A step as Gymnasium wants it: masks as int8, and only in ``info``."""
    if env.obs != "flat":
        names = ("branches", "globals", "history")[: 3 if env.obs == "history" else 2]
        obs = {name: obs[name] for name in names}
    mask = info["action_mask"].astype(jnp.int8)
    return Step(obs, reward, terminated, truncated, info | {"action_mask": mask})


def _select(new: Bool[Array, ""], of_new: Any, of_old: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(new, a, b), of_new, of_old)


_jit = functools.partial(jax.jit, compiler_options=COMPILER_OPTIONS)
begin_one = _jit(_begin, static_argnums=(0, 1))
play_one = _jit(_play, static_argnums=(0, 1, 2))


@functools.partial(_jit, static_argnums=(0, 1))
def begin_all(
    env: Environment,
    keep_history: bool,
    params: EnvParams,
    keys: Array,
    question: Array | None,
    order: Array | None,
) -> tuple[Slot, Step]:
    """Starts an episode in each of several environments, one for each key."""
    return jax.vmap(lambda key: _begin(env, keep_history, params, key, question, order))(keys)


@functools.partial(_jit, static_argnums=(0, 1, 2), donate_argnames="lanes")
def play_all(
    env: Environment,
    keep_history: bool,
    mode: AutoresetMode,
    params: EnvParams,
    lanes: Slot,
    ended: Array,
    actions: Array,
) -> tuple[Slot, Step, Any]:
    """Plays an action in each of several environments: the last three arguments have an axis for them."""
    return jax.vmap(functools.partial(_play, env, keep_history, mode, params))(lanes, ended, actions)


select_all = _jit(jax.vmap(_select))


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
