"""What a sealed player's process does: it loads the player, then plays what the parent asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from autotts_jax.errors import InputError
from autotts_jax.sandbox.channel import Channel
from autotts_jax.user_code import UserCode, last_lines

if TYPE_CHECKING:
    from autotts_jax.policies.player import Player

PROGRAM, PLAYER = "program", "player"
"""What somebody's code can be."""

LONGEST_FAILURE = 4000
"""Characters of what is told of a failure."""

Arrays = Mapping[str, np.ndarray]
Says = Mapping[str, Any]


def is_program(found: Any) -> bool:
    """Tells whether something is the class of a released program."""
    return isinstance(found, type) and hasattr(found, "solve")


def main(channel: Channel) -> None:
    """Serves a parent until it ends this process."""
    says, _ = channel.receive()
    try:
        found = UserCode(**says["code"]).load()
        if is_program(found):
            channel.send({"kind": PROGRAM})
            serve = {"solve": lambda says, _: _solve(channel, found, says)}
        else:
            player = _player(found, says)
            channel.send(
                {
                    "kind": PLAYER,
                    "name": player.name,
                    "values": player.values,
                    "value_name": player.value_name,
                    "width": player.width,
                    "signals": player.signals,
                }
            )
            serve = _services(channel, player)
        while True:
            says, arrays = channel.receive()
            serve[says["do"]](says, arrays)
    except InputError as error:
        channel.send({"failed": str(error)[-LONGEST_FAILURE:]})
    except MemoryError:
        channel.send({"failed": "it ran out of memory"})
    except BaseException as error:
        channel.send({"failed": f"it failed:\n{last_lines(error)}"})


def _solve(channel: Channel, program: type, says: Says) -> None:
    from autotts_jax.policies.sealed import solving

    solving.play(channel, program, says["config"], says["width"], says["spelled"], says["slots"])


def _player(found: Any, says: Says) -> Player:
    from autotts_jax.core import devices

    devices.configure(compilation_cache=False)
    from autotts_jax.policies.objects import player_from_object

    values = says["values"] or (None,)
    value = values[0] if len(values) == 1 else None
    player = player_from_object(found, says["code"]["path"], value, says["gamma"])
    return player if value == values[0] else player.only([player.values.index(kept) for kept in values])


def _services(channel: Channel, player: Player) -> dict[str, Callable[[Says, Arrays], None]]:
    from autotts_jax.policies.sealed import playing

    deciding = playing.Deciding(channel, player)
    return {
        name: getattr(deciding, name) for name in ("constants", "looks", "prepare", "init", "act", "answer")
    }
