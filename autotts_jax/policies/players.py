"""Players by name, by import path or file, and from Python objects."""

from __future__ import annotations

import dataclasses
import inspect
import linecache
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any

from autotts_jax.checks import check_label
from autotts_jax.core.controller import Controller, Family, check_beta
from autotts_jax.core.votes import MOST_BRANCHES
from autotts_jax.errors import InputError
from autotts_jax.policies import (
    adaptive_consistency,
    adaptive_rules,
    best_of_infinity,
    certified_majority,
    cisc,
    cmc,
    deepconf,
    deer,
    distilled,
    doubling,
    dynasor,
    early_stopping,
    eat,
    es_cot,
    parallel_probe,
    scored,
    self_consistency,
    short_m,
    single_branch,
    sprt,
)
from autotts_jax.policies.objects import of_family, player_from_object
from autotts_jax.policies.player import Player
from autotts_jax.policies.sealed.child import PROGRAM, is_program
from autotts_jax.policies.sealed.player import SealedPlayer
from autotts_jax.policies.sealed.playing import LONGEST_NAME, is_name
from autotts_jax.policies.sealed.program import ProgramPlayer
from autotts_jax.policies.sealed.worker_pool import SEALED, Sealing, WorkerPool, printable
from autotts_jax.replay.signals import bad_name
from autotts_jax.sandbox.confine import NONE
from autotts_jax.sandbox.process import SandboxError
from autotts_jax.user_code import UserCode, find_code

CONTROLLERS: dict[str, Family] = {
    family.name: family
    for family in (
        self_consistency.FAMILY,
        adaptive_consistency.FAMILY,
        early_stopping.FAMILY,
        parallel_probe.FAMILY,
        cmc.FAMILY,
        distilled.FAMILY,
        short_m.FAMILY,
        short_m.FIRST_FINISH,
        sprt.FAMILY,
        adaptive_rules.DIRICHLET,
        adaptive_rules.ENTROPY,
        adaptive_rules.MAJORITY,
        best_of_infinity.FAMILY,
        certified_majority.FAMILY,
        doubling.FAMILY,
        single_branch.FAMILY,
        es_cot.FAMILY,
        cisc.FAMILY,
        deepconf.OFFLINE,
        deepconf.FAMILY,
        dynasor.FAMILY,
        deer.FAMILY,
        eat.FAMILY,
        scored.WEIGHTED,
        scored.BEST_OF_N,
    )
}
"""The controllers of this package by their names."""

NEURAL = "neural"
"""Name of learned policies; their parameters are in files."""

MOST_VALUES, LARGEST_VALUE, MOST_SIGNALS = 1000, 1e9, 100
"""Bounds of what somebody else's code can have as values and as signals."""

GAMMA = 1e-4
"""γ that policies for environments are shown where nothing else is said."""


def select(spec: str, gamma: float | None = GAMMA, sealing: Sealing = SEALED) -> Player:
    """Selects the player that ``name@value`` stands for; ``name`` alone is its whole family.

    The name is one of `CONTROLLERS`; ``neural`` for the learned policy of this package, or ``neural:path``
    for one in a file or in a run's folder, whose value is γ; or ``path/to/file.py:NAME`` or ``module:NAME``,
    where NAME is whatever `as_player` takes.

    Args:
        spec: the text.
        gamma: γ that a policy for an environment is shown where the text has none; None where it must.
        sealing: how code from files and modules is run.

    Raises:
        InputError: there is no such player, or it has no setting at the value.
    """
    place, colon, last = spec.rpartition(":")
    name, at, text = last.partition("@")
    name = place + colon + name
    found: Family
    if name.partition(":")[0] == NEURAL:
        found = _neural(name)
    elif name in CONTROLLERS:
        found = CONTROLLERS[name]
    elif ":" in name:
        return _of_code(name, _number(text) if at else None, gamma, sealing)
    elif name.endswith(".py"):
        raise InputError(f"player {name!r:.80} names a file alone; say what of it plays, as {name}:NAME")
    else:
        raise InputError(
            f"unknown player {name!r:.80}; known are {', '.join([*CONTROLLERS, NEURAL])}, and your own as "
            "path/to/file.py:NAME or module:NAME"
        )
    try:
        return of_family(found, _number(text) if at else None)
    except InputError as error:
        raise InputError(f"player {spec!r}: {error}") from error


def as_player(
    player: Any, *, gamma: float | None = GAMMA, name: str | None = None, sealing: Sealing = SEALED
) -> Player:
    """Makes a player of a text, a controller, a family, a program or a policy.

    Args:
        player: a text as `select` takes it; a controller, its class if that takes no arguments, or a family
            of controllers; the class of a released program, with ``solve(question)``; or a policy for an
            environment, with ``env`` and ``act`` or ``predict``, its class, or a function that makes one.
        gamma: γ that a policy for an environment is shown; None where the text has to say it.
        name: the name in results; by the object when None.
        sealing: how programs, and code from files and modules, are run.

    Raises:
        InputError: it cannot be made a player.
    """
    if not isinstance(sealing, Sealing):
        raise InputError(f"sealing is {sealing!r:.60}, but it must be an autotts_jax.Sealing")
    if isinstance(player, Player):
        made = player
    elif isinstance(player, str | Path):
        made = select(str(player), gamma, sealing)
    elif is_program(player):
        pool = WorkerPool(_code_of(player), sealing.sandbox)
        pool.describe()
        made = ProgramPlayer(player.__name__, pool, sealing=sealing)
    else:
        made = player_from_object(player, name or _described(player), None, gamma)
    if name is None or name in made.names:
        return made
    return dataclasses.replace(made, name=name)  # type: ignore[type-var]  # all players are dataclasses


def as_players(
    players: Any,
    gamma: float | None = GAMMA,
    sealing: Sealing = SEALED,
    refused: MutableMapping[str, InputError] | None = None,
) -> list[Player]:
    """Makes players of one player or several.

    Args:
        players: whatever `as_player` takes, a mapping of names to such, or an iterable of both.
        gamma: γ that policies for environments are shown.
        sealing: how programs, and code from files and modules, are run.
        refused: is given the errors of sealed code that failed or broke a limit while it was loaded, by what
            it was called; None to raise them. They are raised where no player is left; see `all_refused`.

    Raises:
        InputError: there is none, or one of them is nothing that can play.
    """
    made = []
    for name, player in _named(players):
        try:
            made.append(as_player(player, gamma=gamma, name=name, sealing=sealing))
        except SandboxError as error:
            if refused is None:
                raise
            refused[name or str(getattr(player, "__name__", player))] = error
    if not made:
        raise all_refused(refused or {})
    return made


def all_refused(refused: Mapping[str, InputError]) -> InputError:
    """Makes the error that no player has results: that of the only one, or a line for each."""
    if len(refused) == 1:
        return next(iter(refused.values()))
    if not refused:
        return InputError("there are no players; give at least one, as 'cmc@0.5'")
    lines = ["no player has results"]
    for name, error in refused.items():
        first, *rest = str(error).splitlines()
        lines.append(" ".join([f"{name}: {first}", *rest[-1:]]))
    return InputError("\n".join(lines))


def _named(players: Any) -> Iterator[tuple[str | None, Any]]:
    """Yields each player with the name that it is given, if any."""
    several = isinstance(players, Iterable) and not isinstance(players, str | bytes)
    several = several and getattr(players, "ndim", 1) > 0  # an array without axes cannot be iterated over
    if isinstance(players, Mapping):
        for name, player in players.items():
            yield check_label("the name of a player", name), player
    else:
        for player in players if several else [players]:
            yield from _named(player) if isinstance(player, Mapping) else [(None, player)]


def _of_code(path: str, value: float | None, gamma: float | None, sealing: Sealing) -> Player:
    """A player of what a file or a module holds; it is loaded here only where nothing seals it."""
    code = find_code(path, "player")
    own = code.source is None and code.place.startswith("autotts_jax.")
    if own or sealing.sandbox.level == NONE:
        found = code.load()
        if not is_program(found):
            player = player_from_object(found, path, value, gamma, trusted=not own)
            if not own:
                _own_name(player.name, code)
            return player
    return of_code(code, value, gamma, sealing)


def of_code(
    code: UserCode, value: float | None = None, gamma: float | None = GAMMA, sealing: Sealing = SEALED
) -> SealedPlayer | ProgramPlayer:
    """Makes a player of code, which is loaded in a process of its own and never in this one.

    Raises:
        SandboxError: the code cannot be loaded, or is nothing that can play.
        LevelError: the machine does not offer the sandbox.
    """
    pool = WorkerPool(code, sealing.sandbox, None if value is None else (value,), gamma)
    says = pool.describe()
    if says.get("kind") == PROGRAM:
        beta = None if value is None else check_beta(value)
        return ProgramPlayer(code.name, pool, (beta,), sealing)
    values, width, said = says.get("values"), says.get("width"), says.get("name")
    numbers = isinstance(values, list) and 0 < len(values) <= MOST_VALUES and all(map(_is_value, values))
    numbers = numbers and (value is None or values == [value])
    if not numbers or not (width is None or (type(width) is int and 0 < width <= MOST_BRANCHES)):
        raise SandboxError(f"player {code.path!r} does not say what its values are")
    signals = says.get("signals")
    if not isinstance(signals, list) or len(signals) > MOST_SIGNALS:
        raise SandboxError(
            f"player {code.path!r}: its signals are {signals!r:.60}; make them a tuple of at most "
            f"{MOST_SIGNALS} names, as ('conf_low',)"
        )
    if problem := bad_name(signals):
        raise SandboxError(f"player {code.path!r}: {problem}")
    value_name = printable(says.get("value_name"))[:20]
    return SealedPlayer(
        _own_name(said, code), pool, tuple(values or ()), value_name, width, signals=tuple(signals)
    )


def _own_name(said: Any, code: UserCode) -> str:
    """The name that code gives itself, with which it cannot pass for a controller of this package."""
    published = said in (*CONTROLLERS, NEURAL)
    if not is_name(said) or "@" in said or (published and said.replace("-", "_") != code.name):
        whose = ", as a controller of this package" if published else ""
        raise SandboxError(
            f"player {code.path!r}: its name is {said!r:.60}{whose}; give its Family another one, of at most "
            f"{LONGEST_NAME} printable characters without @"
        )
    return str(said)


def _is_value(value: Any) -> bool:
    """Whether something is a value that a setting can have, or None."""
    return value is None or (type(value) in (int, float) and abs(value) < LARGEST_VALUE)


def _code_of(program: type) -> UserCode:
    """The code of a class, which a process of its own can load."""
    path = f"{program.__module__}:{program.__qualname__}"
    code = UserCode(path, "program")
    if program.__module__ != "__main__" and code.package() is not None:
        return code
    file = inspect.getsourcefile(program) or ""
    source = "".join(linecache.getlines(file))
    if not source or "<locals>" in path:
        raise InputError(
            f"the source of program {path!r} cannot be found; define it at the top of a file or of a cell"
        )
    return UserCode(f"{file}:{program.__qualname__}", "program", source)


def _neural(name: str) -> Family:
    """The family of a learned policy."""
    from autotts_jax.policies.neural import policy_file  # Flax takes a second to import.
    from autotts_jax.policies.neural.policy import neural_family

    path = name.partition(":")[2]
    policy, _ = policy_file.load_policy(Path(path) if path else policy_file.SHIPPED)
    return neural_family(policy, name)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{text!r} after the @ is not a number; give one, and only once") from None


def _described(player: Any) -> str:
    """A name for an object: its class, with the fields of a controller where they are numbers."""
    kind = player if isinstance(player, type) or inspect.isroutine(player) else type(player)
    fields = vars(player) if isinstance(player, Controller) and hasattr(player, "__dict__") else {}
    if not fields or not all(isinstance(value, int | float) for value in fields.values()):
        return kind.__name__
    return f"{kind.__name__}({', '.join(f'{value:g}' for value in fields.values())})"
