"""Controllers by name, the published ones and a user's own, and policies by import path or by file."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from autotts_jax.core.controller import Controller, Family, check_beta
from autotts_jax.errors import InputError
from autotts_jax.policies import (
    adaptive_consistency,
    cmc,
    early_stopping,
    parallel_probe,
    self_consistency,
)
from autotts_jax.policies.env_policy import as_controller
from autotts_jax.policies.host_policy import HostPlayer
from autotts_jax.user_code import load_object, load_policy

CONTROLLERS: dict[str, Family] = {
    family.name: family
    for family in (
        self_consistency.FAMILY,
        adaptive_consistency.FAMILY,
        early_stopping.FAMILY,
        parallel_probe.FAMILY,
        cmc.FAMILY,
    )
}
"""The controllers that come with the package, by the name that the command line knows them by."""

NEURAL = "neural"
"""Name of learned policies; their parameters are in files."""


@dataclasses.dataclass(frozen=True)
class Selection:
    """A controller, a released program or a policy, and the values to run it at.

    Attributes:
        name: how results call it.
        controllers: the settings, one a value; empty for a released program or a policy on the host.
        program: a released program's import path; None for all else.
        values: β, γ or the number of branches of each setting; None where it was not given.
        host: a policy that runs on the host; None for all else.
        width: branches that an episode can open, where a policy's environment says so; None for all else.
        value_name: what the values are called: ``β``, ``γ``, ``branches``.
    """

    name: str
    controllers: tuple[Controller, ...]
    program: str | None
    values: tuple[float | None, ...]
    host: HostPlayer | None = None
    width: int | None = None
    value_name: str = "value"

    @property
    def labels(self) -> tuple[str, ...]:
        """``name@value`` of each setting."""
        return tuple(label(self.name, value) for value in self.values)


def label(name: str, value: float | None) -> str:
    """``name@value``, as `select` reads it; the name alone without a value."""
    return name if value is None else f"{name}@{value:g}"


def select(spec: str) -> Selection:
    """The controllers that ``name@value`` stands for; ``name`` alone is the whole family.

    The name is one of `CONTROLLERS`; or ``neural`` for the learned policy of this package, and
    ``neural:path`` for one in a file or in a run's folder, whose value is γ; or ``module:Class`` or
    ``path/to/file.py:Class`` of a `Controller` or of a released program (a class with ``solve(question)``),
    whose value is its β.

    Raises:
        InputError: no such controller, or it has no member at the value.
    """
    name, at, text = spec.partition("@")
    values: tuple[float, ...] = (_number("controller", spec, text),) if at else ()
    if name.partition(":")[0] == NEURAL:
        return _neural(spec, name, values)
    if ":" in name:
        found = load_object(name)
        if isinstance(found, type) and not issubclass(found, Controller):
            return _program(spec, name, found, values)
        family = _family(spec, found)
    elif name in CONTROLLERS:
        family = CONTROLLERS[name]
    else:
        raise InputError(
            f"unknown controller {name!r}; known are {', '.join([*CONTROLLERS, NEURAL])}, and classes of "
            "your own as module:Class or path/to/file.py:Class"
        )
    return _of_family(spec, family, values)


def _family(spec: str, found: Any) -> Family:
    """The family that somebody named; a controller alone is a family without values."""
    if isinstance(found, Family):
        return found
    if isinstance(found, type) and issubclass(found, Controller):
        try:
            found = found()
        except TypeError as error:
            raise InputError(
                f"controller {spec!r}: {found.__name__}() failed: {error}; name a Family of it, or give its "
                "fields defaults"
            ) from error
    if not isinstance(found, Controller):
        raise InputError(f"controller {spec!r} is neither a Family nor a Controller nor a program's class")
    return Family(type(found).__name__, (), lambda _: found)


def _of_family(spec: str, family: Family, values: tuple[float, ...]) -> Selection:
    """Members of a family, all of them where no value is given."""
    if values and not family.values:
        raise InputError(f"controller {spec!r}: {family.name} has no values; name it without @")
    chosen: tuple[float | None, ...] = values or family.values or (None,)
    try:
        controllers = tuple(family.make(value) for value in chosen)  # type: ignore[arg-type]
    except ValueError as error:
        raise InputError(f"controller {spec!r}: {error}") from error
    if jax.tree_util.all_leaves(controllers):
        raise InputError(
            f"controller {spec!r}: class {type(controllers[0]).__name__} is no pytree; decorate it with "
            "@jax.tree_util.register_dataclass above @dataclasses.dataclass(frozen=True)"
        )
    return Selection(family.name, controllers, None, chosen, value_name=family.value_name)


def select_all(players: Any, gamma: float) -> list[Selection]:
    """Gives a player or a sequence of players as selections.

    Args:
        players: texts as `select` takes them, controllers, policies and selections, or one of these.
        gamma: the γ that policies are shown.

    Raises:
        InputError: one of them is no player.
    """
    several = isinstance(players, Sequence) and not isinstance(players, str | tuple)
    return [_of(player, gamma) for player in (players if several else [players])]


def _of(player: Any, gamma: float) -> Selection:
    if isinstance(player, Selection):
        return player
    if isinstance(player, str):
        return select(player)
    if isinstance(player, Controller):
        return Selection(type(player).__name__, (player,), None, (None,))
    return _policy(type(player).__name__, player, gamma, None)


def select_policy(spec: str, gamma: float) -> Selection:
    """The policy that ``path/to/file.py:Name@γ`` or ``module:Name@γ`` stands for.

    Name is a policy, or a class or a function that makes one when it is called with nothing: an `EnvPolicy`
    with ``act`` or a `HostPolicy` with ``predict``.

    Args:
        spec: what to select.
        gamma: the γ that the policy is shown where none is given.

    Raises:
        InputError: there is no such policy, or it lacks something.
    """
    path, at, text = spec.partition("@")
    value = _number("policy", spec, text) if at else None
    policy = load_policy(path)
    try:
        return _policy(path.rpartition(":")[2], policy, gamma if value is None else value, value)
    except InputError as error:
        raise InputError(f"policy {spec!r}: {error}") from None


def _policy(name: str, policy: Any, gamma: float, value: float | None) -> Selection:
    if hasattr(policy, "predict") and not hasattr(policy, "act"):
        host = HostPlayer(policy, gamma)
        return Selection(name, (), None, (value,), host, policy.env.max_branches)
    return Selection(name, (as_controller(policy, gamma),), None, (value,), None, policy.env.max_branches)


def _neural(spec: str, name: str, values: tuple[float, ...]) -> Selection:
    """A learned policy at some prices."""
    from autotts_jax.policies.neural import policy_file  # Flax takes a second to import.
    from autotts_jax.policies.neural.policy import neural_family

    path = name.partition(":")[2]
    policy, _ = policy_file.load_policy(Path(path) if path else policy_file.SHIPPED)
    return _of_family(spec, neural_family(policy, name), values)


def _program(spec: str, path: str, kind: type, values: tuple[float, ...]) -> Selection:
    if not callable(getattr(kind, "solve", None)):
        raise InputError(
            f"controller {spec!r}: class {kind.__name__} is neither a Controller nor a released program; "
            "derive it from autotts_jax.Controller or give it a method solve(question)"
        )
    try:
        betas = tuple(check_beta(value) for value in values)
    except InputError as error:
        raise InputError(f"controller {spec!r}: {error}") from None
    return Selection(kind.__name__, (), path, betas or (None,))


def _number(kind: str, spec: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{kind} {spec!r}: {text!r} after the @ is not a number") from None
