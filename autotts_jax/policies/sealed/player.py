"""Plays controllers and policies from outside: they decide in a separate process, which only sees views."""

from __future__ import annotations

import contextlib
import dataclasses
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Int, Int32

from autotts_jax.core import stepping
from autotts_jax.core.controller import Memory
from autotts_jax.core.rollout import COLUMNS, end_of_round
from autotts_jax.core.stepping import Decision, Ended, Executor
from autotts_jax.core.view import Action, StopReason, View
from autotts_jax.core.votes import is_correct
from autotts_jax.errors import InputError
from autotts_jax.policies.player import (
    Play,
    Player,
    Prepared,
    Seal,
    all_episodes,
    answer_texts,
    check_branches_of,
)
from autotts_jax.policies.sealed.lanes import Flight, LaneTable
from autotts_jax.policies.sealed.playing import MOST_CONSTANTS, is_name
from autotts_jax.policies.sealed.views import COUNTS, MASKS, REVEALED, Labels, Shape, named, needed
from autotts_jax.policies.sealed.worker_pool import WorkerPool, fail_if_failed
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.replay.matrix import NONE, ProbeMatrix
from autotts_jax.replay.orders import BranchOrders
from autotts_jax.replay.signals import keep_signals
from autotts_jax.sandbox.messages import Message
from autotts_jax.sandbox.process import Child
from autotts_jax.typing import Array, Scalar

LANES = 2048
"""Episodes in flight, at most: the more there are, the fewer messages it takes to play all."""

REFILL = 0.25
"""Share of the lanes whose episodes must have ended before other episodes take their place."""

MOST_SHOWN = 1 << 26
"""Bytes of all that the episodes in flight can reveal, about; it limits their number."""

VIEWS = "views alone"
"""What results say of how it was sealed: its process was shown what episodes revealed, and nothing else."""


@dataclasses.dataclass(frozen=True, eq=False)
class SealedPlayer(Player):
    """A controller, a family of them, or a policy, that decides in a process of its own.

    This process keeps the matrix, the episodes and the accounting. The other one is shown what many episodes
    have revealed, with answers numbered in the order in which they were shown, and says what to do in each.
    Episodes are in flight in an order that is drawn, so nothing tells which question one is of.

    Attributes:
        name: the name in results.
        pool: processes that have loaded the code.
        values: the value of each setting.
        value_name: what the values are called.
        width: branches that an episode can open, where the code says so.
        signals: names of the signals that it reads.
    """

    name: str
    pool: WorkerPool
    values: tuple[float | None, ...] = (None,)
    value_name: str = "value"
    width: int | None = None
    signals: tuple[str, ...] = ()

    def prepare(
        self,
        dataset: ProbeDataset,
        orders: BranchOrders,
        *,
        budget: int | None = None,
        processes: int = 1,  # noqa: ARG002
        critical_path: bool = False,
    ) -> Prepared:
        """Has all episodes played by a child that has played nothing before, and plays nothing afterwards."""

        def play(on_progress: Callable[[int], None] | None) -> Play:
            self.check(orders.width)
            with self.pool.children(0, fresh=1) as (_, (child,)):
                child.resume()
                rollout = _Rollout(self, child, dataset, orders, budget, critical_path)
                return rollout.play({}, on_progress)

        return play

    @contextlib.contextmanager
    def with_factors(
        self, dataset: ProbeDataset, orders: BranchOrders
    ) -> Iterator[tuple[tuple[str, ...], Callable[[Mapping[str, float]], Play]]]:
        """Lends a process that plays all episodes with other constants, without another compilation.

        As it has played the same episodes before, what it comes to is not a result; see
        `autotts_jax.policies.scaling` for how constants change.

        Args:
            dataset: the questions.
            orders: branch orders of each question.

        Yields:
            Names of the constants, none where the code is not a controller; and a function that plays with a
            factor for each of them.

        Raises:
            InputError: the player failed.
        """
        with self.pool.child() as child:
            message = child.ask({"do": "constants"})
            fail_if_failed(message)
            rollout = _Rollout(self, child, dataset, orders, None, critical_path=False)
            yield _names(child, message.says.get("constants")), rollout.play

    def play_episode(
        self, executor: Executor, on_decision: Callable[[Decision], None] | None = None
    ) -> Ended:
        """Plays one episode with the controller in its process."""
        self.check_single()
        with self.pool.child() as child:
            return stepping.play(_Decider(self, child, executor.view()), executor, on_decision)

    def check(self, width: int) -> None:
        """Checks that no setting reads more branches than an episode can open."""
        super().check(width)
        check_branches_of(self, width)

    def votes_with_finals(self, view: View) -> bool:
        """Asks whether the controllers hold a vote of finished branches."""
        return self._looks(view).get("finals") is True

    def decides_by_probes(self, view: View) -> bool | None:
        """Asks whether the controllers read step by step, and look at more than votes of finals for it."""
        probes = self._looks(view).get("probes")
        return probes if isinstance(probes, bool) else None

    def only(self, kept: Sequence[int]) -> Player:
        """Gives a player with some of the settings, in processes of its own."""
        values = tuple(self.values[index] for index in kept)
        return self._with(pool=self.pool.at(values), values=values)

    def _looks(self, view: View) -> Mapping[str, Any]:
        """What the controllers look at, by their own account."""
        with self.pool.child() as child:
            message = child.ask({"do": "looks", "shape": _shape_of(self, view)._asdict()})
            fail_if_failed(message)
            return message.says


class _Deciding:
    """A child that says what to do in many episodes.

    Attributes:
        fields: names of the fields of views that it is shown.
        first: the parts of the action before the first look; None where there is none.
        parts: the parts of later actions.
    """

    def __init__(self, player: SealedPlayer, child: Child, shape: Shape, factors: Mapping[str, float]):
        self._name, self._child, self._shape = player.name, child, shape
        message = self._ask({"do": "prepare", "shape": shape._asdict(), "factors": dict(factors)}, {}, 0)
        known = named(shape.view())
        says: Mapping[str, Any] = {"fields": None, "first": None, "parts": None, **message.says}
        fields, first, parts = says["fields"], says["first"], says["parts"]
        if not _are_of(fields, known) or not (first is None or _are_of(first, (*COUNTS, *MASKS))):
            raise child.broke_protocol("fields or parts of actions that there are not")
        if not _are_of(parts, (*COUNTS, *MASKS)):
            raise child.broke_protocol("parts of actions that there are not")
        self.fields = tuple(fields)
        self.first = None if first is None else tuple(first)
        self.parts = tuple(parts)

    def wait(self) -> None:
        """Waits until it has compiled."""
        message = self._child.receive()
        fail_if_failed(message)

    def init(
        self, shown: Mapping[str, np.ndarray], fresh: Bool[np.ndarray, " L"], setting: Int[np.ndarray, " L"]
    ) -> dict[str, np.ndarray] | None:
        """Begins episodes; gives the parts of the action before the first look, None where there is none."""
        arrays = {**shown, "fresh": fresh, "setting": setting.astype(np.int16)}
        wanted = None if self.first is None else ("stop", *self.first)
        message = self._ask({"do": "init"}, arrays, self._size(wanted or ()))
        return None if wanted is None else self._action(message, wanted)

    def act(self, shown: Mapping[str, np.ndarray], running: Bool[np.ndarray, " L"]) -> dict[str, np.ndarray]:
        """Gives the parts of an action for each lane."""
        wanted = ("stop", *self.parts)
        message = self._ask({"do": "act"}, {**shown, "running": running}, self._size(wanted))
        action = self._action(message, wanted)
        stop = action["stop"][running]
        unknown = stop[(stop < min(StopReason)) | (stop > max(StopReason))]
        if unknown.size:
            self._child.close()
            raise InputError(f"{self._name}: act returned the stop reason {unknown[0]}; return a StopReason")
        return action

    def answer(self, ended: Bool[np.ndarray, " L"], opened: Int[np.ndarray, " L"]) -> Int[np.ndarray, " L"]:
        """Gives the branch that leads the vote of each lane; ``NONE`` where its episode goes on."""
        message = self._ask({"do": "answer"}, {}, self._size(("leader",)))
        leader = np.where(ended, self._array(message, "leader"), NONE)
        astray = (leader < NONE) | (leader >= opened) & (leader != NONE)
        if astray.any():
            self._child.close()
            raise InputError(
                f"{self._name}: answer returned a Vote whose leader is {leader[astray][0]}; it must be one "
                f"of the {opened[astray][0]} opened branches, counted from 0, or {NONE} for none"
            )
        return leader

    def _ask(self, says: Mapping[str, Any], arrays: Mapping[str, np.ndarray], most: int) -> Message:
        message = self._child.ask(says, arrays, most)
        fail_if_failed(message)
        return message

    def _size(self, names: Sequence[str]) -> int:
        return sum(int(np.prod(shape)) * dtype.itemsize for shape, dtype in map(self._shape.of_action, names))

    def _array(self, message: Message, name: str) -> np.ndarray:
        array, (shape, dtype) = message.arrays.get(name), self._shape.of_action(name)
        if array is None or array.shape != shape or array.dtype != dtype:
            given = "nothing" if array is None else f"{array.dtype} of shape {array.shape}"
            raise self._child.broke_protocol(f"{given} for {name}, which is {dtype} of shape {shape}")
        return array

    def _action(self, message: Message, wanted: Sequence[str]) -> dict[str, np.ndarray]:
        action = {name: self._array(message, name) for name in wanted}
        for name in COUNTS:
            most = self._shape.most(name)
            assert most is not None
            if name in action and not 0 <= action[name].min() <= action[name].max() <= most:
                raise self._child.broke_protocol(f"an action whose {name} is not in 0 … {most}")
        return action


class _Rollout:
    """Plays every question under every branch order with every setting."""

    def __init__(
        self,
        player: SealedPlayer,
        child: Child,
        dataset: ProbeDataset,
        orders: BranchOrders,
        budget: int | None,
        critical_path: bool,
    ):
        self._player, self._child, self._dataset = player, child, dataset
        self._critical_path = critical_path
        matrix: ProbeMatrix = keep_signals(dataset.matrix, player.signals, player.name)
        table = LaneTable(matrix, orders, None if budget is None else np.asarray(budget, np.int32))
        self._table: LaneTable = jax.device_put(table)
        self._episodes = all_episodes(player, dataset, orders)
        self._shape = Shape(
            1, orders.width, matrix.max_depth, budget is not None, tuple(sorted(player.signals))
        )
        self._of = (len(player.values), orders.num_rows, len(dataset))

    def play(self, factors: Mapping[str, float], on_progress: Callable[[int], None] | None = None) -> Play:
        """Plays all episodes.

        Args:
            factors: a factor for each constant that changes.
            on_progress: called with the number of episodes that have ended.

        Raises:
            InputError: the player failed, or said what cannot be.
        """
        began = time.perf_counter()
        total = len(self._episodes.question)
        each = self._shape.num_keys * self._shape.dtype(REVEALED).itemsize
        lanes = min(total, LANES, max(1, MOST_SHOWN // each))
        shape = self._shape._replace(lanes=1 << (lanes - 1).bit_length())
        deciding = _Deciding(self._player, self._child, shape, factors)
        parts = frozenset((*deciding.parts, *(deciding.first or ())))
        played = Flight(self._table, shape, deciding.fields, parts, self._critical_path)
        played.warm_up({deciding.parts, *([] if deciding.first is None else [deciding.first])})
        deciding.wait()
        compiled = time.perf_counter()
        columns = self._run(deciding, played, shape.lanes, on_progress)
        ended = time.perf_counter()
        ids = columns.pop("answer")
        return Play(
            self._player,
            answer=answer_texts(self._dataset, ids),
            correct=is_correct(ids, np.asarray(self._dataset.matrix.gold)),
            **columns,
            compile_seconds=compiled - began,
            run_seconds=ended - compiled,
            seal=Seal(self._child.level, (VIEWS,)),
        )

    def _run(
        self,
        deciding: _Deciding,
        lanes: Flight,
        number: int,
        on_progress: Callable[[int], None] | None,
    ) -> dict[str, np.ndarray]:
        total = len(self._episodes.question)
        names = (*COLUMNS, "critical_path") if self._critical_path else COLUMNS
        columns = {name: np.zeros(total, np.int32) for name in names}
        queue = np.random.default_rng(secrets.randbits(64)).permutation(total)
        episode, done = np.full(number, -1), 0
        running = np.zeros(number, bool)
        while True:
            ended = (episode >= 0) & ~running
            if ended.any():
                played = lanes.results(deciding.answer(ended, lanes.opened))
                for name, column in columns.items():
                    column[episode[ended]] = played[name][ended]
                done += int(ended.sum())
                if on_progress is not None:
                    on_progress(done)
            fresh = np.flatnonzero(~running)[: len(queue)]
            episode[~running] = -1
            episode[fresh], queue = queue[: len(fresh)], queue[len(fresh) :]
            running[fresh] = True
            if not running.any():
                return {name: column.reshape(self._of) for name, column in columns.items()}
            if fresh.size:
                self._begin(deciding, lanes, episode, np.isin(np.arange(number), fresh))
            left = (1 - REFILL) * number if len(queue) else 0
            while running.sum() > left:
                action = deciding.act(lanes.shown(), running)
                lanes.step(action, running, counts=True)
                running = running & (lanes.stop == StopReason.RUNNING)

    def _begin(
        self,
        deciding: _Deciding,
        lanes: Flight,
        episode: Int[np.ndarray, " L"],
        fresh: Bool[np.ndarray, " L"],
    ) -> None:
        at = np.maximum(episode, 0)
        question, row, setting = (np.asarray(column)[at] for column in self._episodes)
        lanes.begin(fresh, question, row)
        action = deciding.init(lanes.shown(), fresh, setting)
        if action is not None:
            lanes.step(action, fresh, counts=False)


def _shape_of(player: SealedPlayer, view: View) -> Shape:
    """The shape of messages about a single episode."""
    return Shape(1, view.width, view.max_depth, view.budget is not None, tuple(sorted(player.signals)))


class _Decider:
    """Decides in a single episode by asking a child; see `stepping.Decider`."""

    def __init__(self, player: SealedPlayer, child: Child, view: View):
        self.name, self.signals = player.name, player.signals
        self._shape = _shape_of(player, view)
        self._deciding = _Deciding(player, child, self._shape, {})
        self._deciding.wait()
        self._labels = Labels(1, view.num_keys)

    def init(self, view: View) -> tuple[Memory, Action | None]:
        """Begins the episode."""
        action = self._deciding.init(self._shown(view), np.ones(1, bool), np.zeros(1, np.int16))
        return None, None if action is None else _single(action)

    def act(self, memory: Memory, view: View) -> tuple[Memory, Action]:
        """Asks what to do."""
        action = _single(self._deciding.act(self._shown(view), np.ones(1, bool)))
        return memory, action._replace(stop=int(_end(action.stop, view)))

    def answer(self, memory: Memory, view: View) -> int:  # noqa: ARG002
        """Asks who leads the vote."""
        return int(self._deciding.answer(np.ones(1, bool), np.asarray(view.opened)[None])[0])

    def _shown(self, view: View) -> dict[str, np.ndarray]:
        fields = named(view)
        wanted = self._deciding.fields
        shown = self._labels.put({name: np.asarray(fields[name])[None] for name in needed(wanted)})
        return {name: shown[name].astype(self._shape.dtype(name, shown[name].dtype)) for name in wanted}


@jax.jit
def _end(stop: Scalar, view: View) -> Int32[Array, ""]:
    return end_of_round(Action(stop=stop), view)


def _single(action: Mapping[str, np.ndarray]) -> Action:
    return Action(**{name: part[0] for name, part in action.items()})


def _are_of(names: Any, known: Any) -> bool:
    if not isinstance(names, list) or not all(isinstance(name, str) and name in known for name in names):
        return False
    return len({*names}) == len(names)


def _names(child: Child, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MOST_CONSTANTS or not all(map(is_name, value)):
        raise child.broke_protocol("something else than names of constants")
    return tuple(dict.fromkeys(value))
