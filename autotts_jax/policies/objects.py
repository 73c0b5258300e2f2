"""Players from Python objects of this process: controllers, families, and policies for environments."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from typing import Any

import jax

from autotts_jax.core.controller import Controller, Family
from autotts_jax.errors import InputError
from autotts_jax.policies.env_policy import PolicyController, as_controller
from autotts_jax.policies.host_policy import HostPlayer
from autotts_jax.policies.player import ControllerPlayer, Player
from autotts_jax.user_code import last_lines


def player_from_object(
    found: Any, path: str, value: float | None, gamma: float | None, trusted: bool | None = None
) -> Player:
    """Makes a player of an object in this process.

    Raises:
        InputError: it cannot be made a player.
    """
    player = _of_object(found, path, value, gamma)
    if isinstance(player, ControllerPlayer):
        if trusted is None:
            kind = type(player.controllers[0])
            trusted = not kind.__module__.startswith("autotts_jax.") or kind is PolicyController
        return dataclasses.replace(player, trusted=trusted)
    return player


def _of_object(found: Any, path: str, value: float | None, gamma: float | None) -> Player:
    name = path.rpartition(":")[2]
    if isinstance(found, Family):
        return of_family(found, value)
    makes = inspect.isfunction(found) or inspect.ismethod(found)
    if makes or (isinstance(found, type) and _is_player(found)):
        try:
            found = found()
        except (Exception, SystemExit) as error:
            if isinstance(error, TypeError) and (needed := _needed(found)):
                raise InputError(
                    f"{name} needs {', '.join(needed)}; name an instance, as mine = {name}(…), or a function "
                    "without arguments that makes one, or an autotts_jax.Family"
                ) from error
            raise InputError(f"calling {name}() failed:\n{last_lines(error)}") from error
    if isinstance(found, Controller):
        if value is not None:
            raise InputError(f"{name} is a single controller and has no values; leave the @ out")
        return ControllerPlayer(name, _pytrees((found,)))
    if isinstance(found, list | tuple | set):
        raise InputError(f"the player is {found!r:.60}, but it must be a single one, not several")
    if not _is_player(found):
        raise InputError(
            f"{name} is neither a Controller nor a released program, a Family of controllers or a "
            "policy; derive it from autotts_jax.Controller, or give it solve(question)"
        )
    return _of_policy(found, name, value, gamma)


def _needed(function: Any) -> list[str]:
    """The arguments without which a function or a class cannot be called, as far as they can be found out."""
    if inspect.isabstract(function):
        return []
    with contextlib.suppress(Exception):  # somebody's signature or annotations
        given = inspect.signature(function, follow_wrapped=False).parameters.values()
        variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        return [one.name for one in given if one.default is one.empty and one.kind not in variadic]
    return []


def _is_player(found: Any) -> bool:
    """Whether something is a controller or looks like a policy; or a class is one of these."""
    if isinstance(found, Controller) or (isinstance(found, type) and issubclass(found, Controller)):
        return True
    return any(hasattr(found, name) for name in ("env", "act", "predict"))


def of_family(family: Family, value: float | None) -> Player:
    """Makes a player of a member of a family, or of all of them.

    Raises:
        InputError: the family has no values, or no member at the value.
    """
    values = family.values if value is None else (value,)
    if not values:
        raise InputError(f"{family.name} has no values to sweep; give one, as {family.name}@0.5")
    try:
        controllers = tuple(family.member(value) for value in values)
    except ValueError as error:
        raise InputError(str(error)) from error
    except Exception as error:
        raise InputError(f"{family.name}: making a member failed:\n{last_lines(error)}") from error
    return ControllerPlayer(family.name, _pytrees(controllers), values, family.value_name)


def _pytrees(controllers: tuple[Controller, ...]) -> tuple[Controller, ...]:
    """The controllers, if JAX knows their class."""
    if jax.tree_util.all_leaves(controllers):
        raise InputError(
            f"class {type(controllers[0]).__name__} is not a pytree; decorate it with "
            "@jax.tree_util.register_dataclass above @dataclasses.dataclass(frozen=True)"
        )
    return controllers


def _of_policy(policy: Any, name: str, value: float | None, gamma: float | None) -> Player:
    """A policy for an environment, shown a γ."""
    shown = gamma if value is None else value
    if shown is None:
        raise InputError(
            f"policy {name} is shown the γ of an interval, but the objective has that of a token; give the "
            f"policy its own, as {name}@1e-4"
        )
    if hasattr(policy, "predict") and not hasattr(policy, "act"):
        return HostPlayer(policy, shown, name, (value,))
    controller = as_controller(policy, shown)
    return ControllerPlayer(name, (controller,), (value,), "γ", controller.env.max_branches)
