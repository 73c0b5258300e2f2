"""The controllers that clients of a server can name."""

from __future__ import annotations

import dataclasses
import functools

from autotts_jax.collect.signals import PROBE_HEDGE
from autotts_jax.errors import InputError
from autotts_jax.policies.player import ControllerPlayer, Player
from autotts_jax.policies.players import CONTROLLERS, NEURAL, select
from autotts_jax.policies.self_consistency import SelfConsistency
from autotts_jax.policies.single_branch import SingleBranch
from autotts_jax.replay.signals import SIGNALS

DEFAULT, DEFAULT_OF_WHOLE = "cmc@0.5", "sc"
"""What answers where a client gives the model's name alone: in general, and where an engine writes whole
branches."""

PLAIN = "plain"
"""One branch, passed through as the model writes it."""

_TOLD = set(SIGNALS) - {PROBE_HEDGE}
_LIVE = tuple(
    name for name, family in CONTROLLERS.items() if _TOLD.issuperset(family.make(family.values[0]).signals)
)
PUBLISHED = (*_LIVE, NEURAL, PLAIN)
"""What a client can name: none that reads a score, or what follows a forced answer; import paths and files
are for the command line."""

_LONGEST = 64
"""Characters of what a client can name; what is longer would fill the cache of `published`."""


def published(spec: str, width: int) -> Player:
    """Gives the player that ``name[@value]`` stands for, without a value the middle one of its family.

    Raises:
        InputError: there is none, or it opens more than ``width`` branches.
    """
    if spec.partition("@")[0] not in PUBLISHED or len(spec) > _LONGEST:
        raise InputError(f"unknown controller {spec!r:.{_LONGEST}}; known are {', '.join(PUBLISHED)}")
    return _select(spec, width)


@functools.lru_cache(maxsize=256)
def _select(spec: str, width: int) -> Player:
    if spec == PLAIN:
        return ControllerPlayer(PLAIN, (SelfConsistency(1),), width=1)
    fitting = [player for player in select(spec).settings() if _fits(player, width)]
    if not fitting:
        raise InputError(f"{spec} opens more branches than the {width} of this server")
    chosen = fitting[len(fitting) // 2]
    if isinstance(chosen, ControllerPlayer) and isinstance(chosen.controllers[0], SingleBranch):
        return dataclasses.replace(chosen, width=1)
    return chosen


def _fits(player: Player, width: int) -> bool:
    try:
        player.check(width)
    except InputError:
        return False
    return True
