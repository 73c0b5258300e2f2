"""Functional environments by name, with the parameters of their data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autotts_jax.checks import check_choice
from autotts_jax.envs.batch import WidthDepthBatch
from autotts_jax.envs.environment import Data, Functional
from autotts_jax.envs.macros import WidthDepthMacro
from autotts_jax.envs.registry import ENVIRONMENTS, NAMESPACE, TASK_ENVIRONMENTS, Registered
from autotts_jax.envs.rounds import WidthDepthRounds
from autotts_jax.envs.width_depth import WidthDepth

if TYPE_CHECKING:
    from autotts_jax.envs import gymnax_env, sb3

KINDS: dict[str, type[Functional]] = {
    kind.__name__: kind for kind in (WidthDepth, WidthDepthRounds, WidthDepthMacro, WidthDepthBatch)
}
"""The functional environments by the names of their classes."""


def make(
    name: str,
    data: Data | None = None,
    *,
    part: str | None = None,
    **settings: Any,
) -> tuple[Any, Any]:
    """Makes a functional environment, to be used under ``jit`` and ``vmap``, and its parameters.

    ``gymnasium.make`` makes the same environments with the interface of Gymnasium.

    Args:
        name: an id in `ENVIRONMENTS`, as ``WidthDepth-v0``, one atomic action a step, or
            ``WidthDepthRounds-v0``, one round a step, or ``WidthDepthBatch-v0``, many questions under one
            budget; or an id of a task in `TASK_ENVIRONMENTS`.
        data: the questions: a dataset, its matrix, or whatever `autotts_jax.load` takes; those of the id when
            None, as the ids of tasks have, or else the synthetic data.
        part: the questions of one part alone, ``train``, ``validation`` or ``test``.
        **settings: settings of the class, as ``max_branches``, and of its `Environment.make_params`, as
            ``gamma``. ``cost`` is a name, as ``latency``, or an `autotts_jax.core.CostModel`.

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
    registered = find_environment(name)
    settings = {**registered.settings, **settings}
    of_id, part_of_id = (settings.pop(key, None) for key in ("data", "part"))
    env, params, _ = KINDS[registered.kind].with_data(
        settings, of_id if data is None else data, part=part_of_id if part is None else part
    )
    return env, params


def find_environment(name: str) -> Registered:
    """Finds a registered environment.

    Raises:
        InputError: there is no such environment.
    """
    # Gymnasium takes a name after that of the module to import.
    alone = name.removeprefix("autotts_jax:").removeprefix(NAMESPACE) if isinstance(name, str) else name
    if isinstance(alone, str) and alone in TASK_ENVIRONMENTS:
        return TASK_ENVIRONMENTS[alone]
    return ENVIRONMENTS[check_choice("environment", alone, ENVIRONMENTS)]


def as_gymnax(env: Functional, params: Any = None, *, old_step: bool = False) -> gymnax_env.GymnaxEnv:
    """Makes an environment of gymnax, for trainers and wrappers that want its class and its spaces.

    Args:
        env: a functional environment.
        params: what it is played with; `Environment.default_params` when None.
        old_step: ``step`` returns five values, as before gymnax 1.0: observation, state, reward, done, info.

    Returns:
        The environment; its ``default_params`` are the given ones.

    Raises:
        InputError: gymnax is missing.
    """
    from autotts_jax.envs import gymnax_env  # here, because gymnax is optional

    kind = gymnax_env.OldGymnaxEnv if old_step else gymnax_env.GymnaxEnv
    return kind(env, env.default_params if params is None else params)


def sb3_vec_env(
    name: str = "WidthDepthRounds-v0", num_envs: int = 64, *, reward_scale: float = 1.0, **settings: Any
) -> sb3.SB3VecEnv:
    """Makes environments for Stable-Baselines3, stepped in one compiled call.

    Args:
        name: an id of these, in the namespace ``autotts_jax`` or alone.
        num_envs: number of environments.
        reward_scale: what rewards are multiplied by.
        **settings: what `gymnasium.make` takes for the id, as ``data``, ``max_branches`` and ``gamma``.

    Returns:
        The environments, for ``PPO("MultiInputPolicy", …)``, or with ``obs="flat"`` for
        ``PPO("MlpPolicy", …)``.

    Raises:
        InputError: there is no such setting, a value is wrong, or Stable-Baselines3 is missing.
    """
    find_environment(name)
    from autotts_jax.envs import sb3  # here, because Stable-Baselines3 is optional, and imports PyTorch

    return sb3.SB3VecEnv.make(name, num_envs, reward_scale, **settings)
