"""The child's side of players in JAX: it is shown views of many episodes, and says what to do in each."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autotts_jax.core.compiling import COMPILER_OPTIONS, UNSHARED_OPTIONS
from autotts_jax.core.controller import Controller, check_fields, checked_act, checked_answer, checked_init
from autotts_jax.core.lanes import choose
from autotts_jax.core.rollout import MANY_LANES, LaneSettings, Pause, check_settings
from autotts_jax.core.view import View
from autotts_jax.policies.player import ControllerPlayer, Player
from autotts_jax.policies.scaling import constants, scaled
from autotts_jax.policies.sealed.views import LABELS, REVEALED, Shape, named, packed, parts_of, view_of
from autotts_jax.sandbox.channel import Channel

MOST_CONSTANTS, LONGEST_NAME = 64, 100
"""Constants of a controller that are tuned, and characters of a name that code chooses, at most."""

Says = Mapping[str, Any]
Arrays = Mapping[str, np.ndarray]


class Deciding:
    """Answers what the parent asks of a player's controllers."""

    def __init__(self, channel: Channel, player: Player):
        self._channel = channel
        self._player = player
        self._controllers: Sequence[Controller] = player.controllers  # type: ignore[attr-defined]
        self._compiled: dict[Shape, _Compiled] = {}

    def constants(self, says: Says, arrays: Arrays) -> None:  # noqa: ARG002
        """Names the constants of the controllers."""
        self._channel.send({"constants": constants_of(self._player)})

    def looks(self, says: Says, arrays: Arrays) -> None:  # noqa: ARG002
        """Says whether the player holds a vote of finished branches, and whether it decides by probes."""
        view, player = _shape(says).view(), self._player
        self._channel.send(
            {"finals": player.votes_with_finals(view), "probes": player.decides_by_probes(view)}
        )

    def prepare(self, says: Says, arrays: Arrays) -> None:  # noqa: ARG002
        """Compiles for a shape of messages; says first which fields it reads and what it will say."""
        shape = _shape(says)
        for controller in self._controllers:
            check_fields(controller)
        controllers = [scaled(controller, says["factors"]) for controller in self._controllers]
        check_settings(controllers)
        settings = jax.device_put(LaneSettings.of(controllers))
        self._pause: Pause | None = getattr(self._player, "pause", None)
        if shape not in self._compiled:
            self._compiled[shape] = _Compiled(settings, shape, all_fields=self._pause is not None)
        self._now = self._compiled[shape]
        self._channel.send(self._now.says)
        self._now.compile(settings)
        self._settings = settings
        self._setting = np.zeros(shape.lanes, np.int16)
        self._memory = self._now.no_memory()
        self._channel.send({"ready": True})

    def init(self, says: Says, arrays: Arrays) -> None:  # noqa: ARG002
        """Begins episodes in some of the lanes, and says what to do before the first look."""
        shown = dict(arrays)
        fresh, setting = shown.pop("fresh"), shown.pop("setting")
        self._setting = np.where(fresh, setting, self._setting)
        self._memory, action = self._now.init(self._settings, self._setting, self._memory, shown, fresh)
        self._send(action)

    def act(self, says: Says, arrays: Arrays) -> None:  # noqa: ARG002
        """Says what to do; lanes whose episode has ended keep their memory."""
        shown = dict(arrays)
        running = shown.pop("running")
        if self._pause is not None:
            self._memory = self._pause(self._memory, self._now.views(shown))
        self._memory, action = self._now.act(self._settings, self._setting, self._memory, shown, running)
        self._shown = shown
        self._send(action)

    def answer(self, says: Says, arrays: Arrays) -> None:  # noqa: ARG002
        """Says who leads the vote of each lane, at its last look."""
        leader = self._now.answer(self._settings, self._setting, self._memory, self._shown)
        self._send({"leader": leader})

    def _send(self, arrays: Mapping[str, Any]) -> None:
        self._channel.send({}, {name: np.asarray(array) for name, array in arrays.items()})


def _shape(says: Says) -> Shape:
    shape = Shape(**says["shape"])
    return shape._replace(signals=tuple(shape.signals))


class _Compiled:
    """What is compiled for a shape of messages, on whatever controllers of the same kind."""

    def __init__(self, settings: LaneSettings, shape: Shape, all_fields: bool):
        self._shape, self._like = shape, shape.view()
        self._init, self._act, self._answer = map(self._jit, (self._init_lane, self._act_lane, self._leader))
        self.views = jax.jit(jax.vmap(functools.partial(view_of, self._like)))
        self._done: tuple[Any, ...] | None = None
        parts: list[Sequence[str] | None] = []

        def look(first: View, later: View) -> Any:
            controller = settings.controller([leaf[0] for leaf in settings.varied])
            memory, action = checked_init(controller, first)
            after, decided = checked_act(controller, memory, later)
            leader = checked_answer(controller, after, later).leader
            parts[:] = [None if action is None else parts_of(action), parts_of(decided)]
            begun = {} if action is None else packed(action, shape)
            return memory, (begun, packed(decided, shape), leader, after)

        traced, (self._memory, _) = jax.make_jaxpr(look, return_shape=True)(self._like, self._like)
        names = list(named(self._like))
        read = {id(used) for used in traced.jaxpr.outvars}
        read |= {id(used) for step in traced.jaxpr.eqns for used in step.invars}
        inputs = zip(names * 2, traced.jaxpr.invars, strict=True)
        wanted = {name for name, given in inputs if id(given) in read}
        if all_fields:  # As in a rollout, all but what costs the most to keep.
            wanted |= {name for name in names if name not in (LABELS, REVEALED)}
        self._fields = [name for name in names if name in wanted]
        self.says = {"fields": self._fields, "first": parts[0], "parts": parts[1]}

    def compile(self, settings: LaneSettings) -> None:
        """Compiles what is asked for, once."""
        if self._done is not None:
            return
        lanes, leaves = self._shape.lanes, named(self._like)
        shown = {
            name: jax.ShapeDtypeStruct(
                (lanes, *leaves[name].shape), self._shape.dtype(name, leaves[name].dtype)
            )
            for name in self._fields
        }
        setting = jax.ShapeDtypeStruct((lanes,), np.int16)
        mask = jax.ShapeDtypeStruct((lanes,), np.bool_)
        memory = jax.eval_shape(self.no_memory)
        begin = self._init.lower(settings, setting, memory, shown, mask)
        act = self._act.lower(settings, setting, memory, shown, mask)
        answer = self._answer.lower(settings, setting, memory, shown)
        self._done = tuple(lowered.compile() for lowered in (begin, act, answer))
        self.init, self.act, self.answer = self._done

    def no_memory(self) -> Any:
        """What lanes remember before their first episode."""
        return jax.tree.map(
            lambda leaf: jnp.zeros((self._shape.lanes, *leaf.shape), leaf.dtype), self._memory
        )

    def _jit(self, lane: Any) -> Any:
        def lanes(settings: LaneSettings, setting: Any, memory: Any, shown: Any, *mask: Any) -> Any:
            def one(index: Any, memory: Any, shown: Any, *mask: Any) -> Any:
                controller = settings.controller([leaf[index] for leaf in settings.varied])
                return lane(controller, memory, view_of(self._like, shown), *mask)

            return jax.vmap(one)(setting, memory, shown, *mask)

        few = self._shape.lanes < MANY_LANES
        return jax.jit(lanes, compiler_options=UNSHARED_OPTIONS if few else COMPILER_OPTIONS)

    def _init_lane(self, controller: Controller, memory: Any, view: View, fresh: Any) -> Any:
        first, action = checked_init(controller, view)
        return choose(fresh, first, memory), {} if action is None else packed(action, self._shape)

    def _act_lane(self, controller: Controller, memory: Any, view: View, running: Any) -> Any:
        after, action = checked_act(controller, memory, view)
        return choose(running, after, memory), packed(action, self._shape)

    def _leader(self, controller: Controller, memory: Any, view: View) -> Any:
        return jnp.asarray(checked_answer(controller, memory, view).leader).astype(jnp.int32)


def constants_of(player: Player) -> tuple[str, ...]:
    """Names the constants of a player's controllers.

    Returns:
        At most `MOST_CONSTANTS` names, of which all can be shown; none of a player that is not a controller.
    """
    names = constants(player.controllers[0]) if isinstance(player, ControllerPlayer) else ()
    return tuple(filter(is_name, names))[:MOST_CONSTANTS]


def is_name(value: Any) -> bool:
    """Tells whether something can be a name that code chooses."""
    return isinstance(value, str) and value.isprintable() and 0 < len(value) <= LONGEST_NAME
