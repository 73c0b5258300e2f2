"""Rollouts: any controllers over any episodes in one compiled call.

Episodes never look at each other, so results depend neither on the number of lanes nor on that of devices or
processes.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jax.tree_util import PyTreeDef
from jaxtyping import Bool, Int, Int16, Int32

from autotts_jax.checks import check_float, check_int
from autotts_jax.core.compiling import COMPILER_OPTIONS, UNSHARED_OPTIONS
from autotts_jax.core.controller import (
    Controller,
    Memory,
    check_fields,
    checked_act,
    checked_answer,
    checked_init,
)
from autotts_jax.core.costs import critical_tokens
from autotts_jax.core.forks import refuse_forks
from autotts_jax.core.lanes import (
    Lane,
    LanePlay,
    RolloutState,
    Shapes,
    empty_rollout,
    play_lanes,
    trace_shapes,
    unpack,
    while_running,
)
from autotts_jax.core.pool import ReplayPool
from autotts_jax.core.view import Action, NotKeptError, StopReason, View
from autotts_jax.core.votes import is_correct
from autotts_jax.errors import InputError
from autotts_jax.replay.matrix import NONE, ProbeMatrix
from autotts_jax.replay.orders import BranchOrders
from autotts_jax.replay.signals import keep_signals
from autotts_jax.typing import Array, Scalar

DEVICE_AXIS = "device"
MAX_TOKENS = np.iinfo(np.int32).max

ROUND_LIMIT = 25_000
"""Rounds after which an episode is ended, in case a controller never stops.

Reading 128 branches to a depth of 81 by atomic actions takes 20,865.
"""

LANES = {"cpu": 64, "gpu": 8192, "tpu": 4096}
"""Lanes a device by platform: as many as its caches or its cores are filled by."""

MANY_LANES = 1024
"""From this many lanes on, the threads of a CPU device share the passes over them.

With two threads sharing takes longer at 1,024 lanes and less time at 4,096.
"""

NO_LEADER = np.iinfo(np.int32).min
"""In the column of answers: the leader of the controller's vote is not an opened branch."""

FOREVER = np.int32(np.iinfo(np.int32).max)
"""Rounds that no rollout has."""

SEGMENTS = 100
"""Steps in which progress is reported, to begin with."""

REPORT_SECONDS = 0.05
"""Seconds between two reports of progress: steps are made longer where they take less, and shorter again."""


class Episodes(NamedTuple):
    """Which episodes to play, one entry each; shape (E,).

    Attributes:
        question: index of the question in the matrix.
        row: row of the question's branch orders.
        setting: index of the controller.
    """

    question: Int[Array, " E"]
    row: Int[Array, " E"]
    setting: Int[Array, " E"]


class ShownRounds(NamedTuple):
    """What pools show after each round: E episodes, T rounds, the first of which is the start.

    What an episode showed last stands after its end.

    Attributes:
        depth: intervals read of each branch. Shape (E, T, W).
        revealed_depth: the deepest probed depth. Shape (E, T, W).
        probed: how many depths were probed. Shape (E, T, W).
        active: whether the branch is open and was not pruned. Shape (E, T, W).
        tokens: tokens charged so far. Shape (E, T).
    """

    depth: Array
    revealed_depth: Array
    probed: Array
    active: Array
    tokens: Array


class Results(NamedTuple):
    """The results of the episodes, one entry each; shape (E,).

    Attributes:
        answer: answer id, ``NONE`` for no answer.
        correct: whether it is the gold answer.
        tokens: tokens charged.
        intervals: Σ l_i.
        probes: number of revealed answers, #Ω.
        sequential_tokens: tokens generated one after another, a proxy for latency.
        branches: branches opened.
        rounds: rounds of the controller.
        stop_reason: a `StopReason`.
        compile_seconds: tracing, compiling and the first call, for all episodes together.
        run_seconds: running, for all episodes together.
        ends: what `Hooks.at_end` gave; leaves have a leading axis E.
        records: what `Hooks.after_round` gave; leaves have leading axes (E, T). Rows after an episode's end
            hold nothing of it.
        critical_path: tokens on the critical path, see `critical_tokens`; None where hooks do not ask for it.
        shown: what the pools showed; None where that was not asked for.
    """

    answer: np.ndarray
    correct: np.ndarray
    tokens: np.ndarray
    intervals: np.ndarray
    probes: np.ndarray
    sequential_tokens: np.ndarray
    branches: np.ndarray
    rounds: np.ndarray
    stop_reason: np.ndarray
    compile_seconds: float
    run_seconds: float
    ends: Any = None
    records: Any = None
    critical_path: np.ndarray | None = None
    shown: ShownRounds | None = None

    @property
    def recorded(self) -> Bool[np.ndarray, "E T"]:
        """Which rows of `records` are of a look of the episode, that at which it ends included."""
        num_rounds = jax.tree.leaves(self.records)[0].shape[1]
        looks = np.where(self.stop_reason == StopReason.RUNNING, num_rounds, self.rounds + 1)
        return np.arange(num_rounds) < looks[:, None]


@dataclasses.dataclass(frozen=True)
class Hooks:
    """Functions of one episode whose values a rollout returns besides. Equal hooks share a compilation.

    Attributes:
        at_end: from the controller, its memory and its pool when an episode has ended, a pytree of arrays.
        after_round: from the controller, its memory and its pool after a look, and after what was decided
            at it, a pytree of arrays. Every episode then has a lane of its own.
        rounds: T, looks to record; the rollout ends after them, and episodes that have not ended have the
            stop reason `RUNNING`.
        critical_path: count the tokens on the critical path of each episode.
    """

    at_end: Callable[[Controller, Memory, ReplayPool], Any] | None = None
    after_round: Callable[[Controller, Memory, ReplayPool], Any] | None = None
    rounds: int = 0
    critical_path: bool = False


Pause = Callable[[Memory, View], Memory]
"""Called on the host before each round with the memories and the views of all lanes; gives their memories."""


def rollout(
    controllers: Sequence[Controller],
    matrix: ProbeMatrix,
    orders: BranchOrders,
    episodes: Episodes,
    *,
    budget: int | None = None,
    lanes: int | None = None,
    refill: float = 0.5,
    devices: Sequence[jax.Device] | None = None,
    hooks: Hooks = Hooks(),  # it is immutable
    pause: Pause | None = None,
    watch: bool = False,
    capacity: int = 0,
    on_progress: Callable[[int], None] | None = None,
) -> Results:
    """Plays every episode with its controller.

    Args:
        controllers: the controllers that ``episodes.setting`` indexes; all of one class.
        matrix: the probe matrix.
        orders: branch orders; an episode's pool has their length W as its width.
        episodes: question, branch order and controller of each episode.
        budget: token budget B; None for no limit.
        lanes: episodes in flight on each device; None for the number that suits the platform. Like
            ``refill``, it affects speed alone.
        refill: share of the lanes whose episodes must have ended before other episodes take their place.
        devices: local devices to share the episodes among; when None, all devices of all processes, each of
            which then makes the same call and gets all results.
        hooks: functions whose values are returned besides.
        pause: a function that replaces the controllers' memories before each round, for which the rollout is
            played round by round; None to play in one go.
        watch: whether to play round by round, and return what the pools show; each episode needs a lane.
        capacity: episodes to allocate for; rollouts of one capacity share a compilation, watched or not.
        on_progress: called from time to time with the number of episodes that have ended in this process.

    Returns:
        Results in the order of ``episodes``.

    Raises:
        InputError: there is no controller, there are controllers of several classes, or one has a field that
            cannot be traced, reads a signal that the matrix lacks, or returned something other than
            `Controller` requires; there are no episodes, or
            one has an index that is out of range; the branch orders are of another matrix; the budget or the
            number of lanes is out of range, or there are more episodes to watch than lanes; or this process
            is a fork of one that has used JAX.

    Any other exception of a controller's code is passed on.

    Example:
        >>> import autotts_jax as at
        >>> from autotts_jax.core import Episodes
        >>> from autotts_jax.experiments import branch_orders
        >>> from autotts_jax.policies import SelfConsistency
        >>> data = at.load("smollm2")
        >>> orders = branch_orders(data, "repo100", range(1), 8)
        >>> episodes = Episodes(question=range(40), row=[0] * 40, setting=[0] * 40)
        >>> played = at.rollout([SelfConsistency(8)], data.matrix, orders, episodes)
        >>> int(played.branches.max()), float(played.correct.mean())
        (8, 0.125)
    """
    return prepare_rollout(
        controllers,
        matrix,
        orders,
        episodes,
        budget=budget,
        lanes=lanes,
        refill=refill,
        devices=devices,
        hooks=hooks,
        pause=pause,
        watch=watch,
        capacity=capacity,
    )(on_progress)


def prepare_rollout(
    controllers: Sequence[Controller],
    matrix: ProbeMatrix,
    orders: BranchOrders,
    episodes: Episodes,
    *,
    budget: int | None = None,
    lanes: int | None = None,
    refill: float = 0.5,
    devices: Sequence[jax.Device] | None = None,
    hooks: Hooks = Hooks(),  # it is immutable
    pause: Pause | None = None,
    watch: bool = False,
    capacity: int = 0,
) -> Callable[[Callable[[int], None] | None], Results]:
    """Compiles a rollout; several can be compiled side by side, each in a thread.

    Returns:
        A function of ``on_progress``, or of None, that plays the episodes; to be called once.

    Raises:
        InputError: see `rollout`.
    """
    refuse_forks()
    _check_kinds(controllers, matrix, orders)
    episodes = _columns(episodes)
    refill = check_float("refill", refill, 0)
    _check(controllers, matrix, orders, episodes, budget, lanes)
    mesh = Mesh(np.array(devices or jax.local_devices()), (DEVICE_AXIS,))
    lanes = lanes or LANES.get(mesh.devices.flat[0].platform, LANES["cpu"])
    shared = devices is None and jax.process_count() > 1
    queue, place = _deal(_own_share(episodes) if shared else episodes, mesh.size, capacity)
    per_device = -(-len(place) // mesh.size)
    length = len(queue.question) // mesh.size
    if watch and per_device > lanes:
        raise InputError(f"{per_device} episodes a device cannot be watched in {lanes} lanes; give fewer")
    lanes = length if hooks.after_round else lanes
    step_by_step = bool(hooks.after_round) or pause is not None
    table = _Table(
        LaneSettings.of(controllers),
        keep_signals(matrix, controllers[0].signals, type(controllers[0]).__name__),
        BranchOrders(_bucket(np.asarray(orders.table, np.int32)), np.asarray(orders.group, np.int32)),
        budget=None if budget is None else np.asarray(budget, np.int32),
        num_episodes=np.asarray(per_device, np.int32),
        # Who looks at each round has it played alone.
        at_once=np.asarray(1 if step_by_step or watch or hooks.critical_path else ROUND_LIMIT, np.int32),
    )
    table = jax.device_put(table, NamedSharding(mesh, P()))
    queue = jax.device_put(queue, NamedSharding(mesh, P(DEVICE_AXIS)))

    began = time.perf_counter()
    keep, shapes = _trace(table, queue, hooks)
    state = _first_state(shapes, lanes, per_device, length, hooks.rounds, mesh)
    # What is recorded ends at a time at which the results of all episodes that have ended must be written.
    refill = 0 if hooks.after_round else refill
    static = {"keep": keep, "hooks": hooks, "mesh": mesh, "refill": max(1, int(lanes * refill))}
    zero = np.int32(0)
    play = functools.partial(_play_few if lanes < MANY_LANES else _play_many, table, queue, **static)
    # Plays nothing: JAX compiles in the first call, and readies later ones.
    first = jax.block_until_ready(play(state, zero, zero))
    compile_seconds = time.perf_counter() - began

    def run(on_progress: Callable[[int], None] | None) -> Results:
        def report(state: RolloutState) -> None:
            if on_progress:
                on_progress(min(_ended(state), len(place)))  # without those that fill up the queues

        began, state, shown = time.perf_counter(), first, None
        if pause is not None:
            state = _play_with_pauses(play, state, per_device, table.matrix, pause, report)
        elif watch:
            state, looks = _play_and_look(play, state, per_device)
            lane = place // length * lanes + place % length
            shown = ShownRounds(*(np.stack(column, axis=1)[lane] for column in zip(*looks, strict=True)))
        elif step_by_step:
            state = play(state, np.int32(per_device), np.int32(hooks.rounds))
        else:
            for target in progress_stops(per_device) if on_progress else (per_device,):
                state = play(state, np.int32(target), FOREVER)
                report(state)
        packed = jax.tree.map(lambda leaf: np.asarray(leaf).take(place, axis=0), state.results)
        rows, ends, critical_path = unpack(packed, shapes.results)
        packed = jax.tree.map(lambda leaf: _by_episode(leaf, mesh.size)[place], state.records)
        records = unpack(packed, shapes.record)
        if shared:
            total = len(episodes.question)
            rows, ends, records, critical_path = jax.tree.map(
                lambda leaf: _interleave(leaf)[:total],
                multihost_utils.process_allgather((rows, ends, records, critical_path)),
            )
        run_seconds = time.perf_counter() - began
        results = results_of(rows, matrix, episodes, compile_seconds, run_seconds)
        _check_ends(type(controllers[0]).__name__, results)
        return results._replace(ends=ends, records=records, critical_path=critical_path, shown=shown)

    return run


def _play_with_pauses(
    play: Callable[..., RolloutState],
    state: RolloutState,
    per_device: int,
    matrix: ProbeMatrix,
    pause: Pause,
    report: Callable[[RolloutState], None],
) -> RolloutState:
    devices = len(state.time)
    target = np.int32(per_device)
    # Takes the first episodes from the queue and plays no round.
    state = play(state, target, np.int32(0))
    while _ended(state) < per_device * devices:
        memory = pause(state.lanes.body.memory, _views(matrix, state.lanes))
        body = dataclasses.replace(state.lanes.body, memory=memory)
        state = state._replace(lanes=dataclasses.replace(state.lanes, body=body))
        state = play(state, target, np.max(np.asarray(state.time)) + np.int32(1))
        report(state)
    return state


def _play_and_look(
    play: Callable[..., RolloutState], state: RolloutState, per_device: int
) -> tuple[RolloutState, list[ShownRounds]]:
    """Plays round by round, and looks at the lanes after each."""
    total, rounds = per_device * len(state.time), 0
    looks = []
    while True:
        state = play(state, np.int32(per_device), np.int32(rounds))
        looks.append(jax.device_get(_look(state.lanes.body.pool)))
        if _ended(state) == total:
            return state, looks
        rounds += 1


@jax.jit
def _views(matrix: ProbeMatrix, lanes: Lane) -> View:
    """The views of all lanes."""
    return jax.vmap(lambda lane: lane.body.pool.with_matrix(matrix).view(lane.rounds, detached=True))(lanes)


@jax.jit
@jax.vmap
def _look(pool: ReplayPool) -> ShownRounds:
    return ShownRounds(pool.depth, pool.revealed_depth, pool.probed, pool.active, pool.tokens)


def progress_stops(episodes: int) -> Iterator[int]:
    """Chooses at which numbers of ended episodes to report progress, by the time between two of them.

    Yields:
        Each number, the last of which is that of all episodes.
    """
    stop, step = 0, -(-episodes // SEGMENTS)
    while stop < episodes:
        stop, began = min(stop + step, episodes), time.perf_counter()
        yield stop
        seconds = time.perf_counter() - began
        if seconds < REPORT_SECONDS:
            step *= 2
        elif seconds > 2 * REPORT_SECONDS:
            step = max(step // 2, 1)


def _ended(state: RolloutState) -> int:
    """The episodes that have ended, added up on the host: devices would have to wait for each other."""
    return int(np.asarray(state.ended).sum())


def _interleave(gathered: np.ndarray) -> np.ndarray:
    """Joins (processes, episodes of each, …) to the order in which episodes were dealt."""
    return gathered.swapaxes(0, 1).reshape(-1, *gathered.shape[2:])


def _by_episode(records: Array, devices: int) -> np.ndarray:
    """Turns (devices · T, L, …) into (devices · L, T, …)."""
    records = np.asarray(records)
    parts = records.reshape(devices, -1, *records.shape[1:]).swapaxes(1, 2)
    return parts.reshape(-1, *parts.shape[2:])


COLUMNS = (
    "answer",
    "tokens",
    "intervals",
    "probes",
    "sequential_tokens",
    "branches",
    "rounds",
    "stop_reason",
)
"""The columns of a row of results."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LaneSettings:
    """The controllers, leaf by leaf.

    Arrays that are the same object in all of them stay out of the lanes: a copy of a policy's parameters in
    each would cost memory, and would make one small matrix product a lane of a large one.

    Attributes:
        varied: the other leaves, stacked.
        common: those arrays.
        is_common: for each leaf, whether it is one of them.
        structure: the tree that the leaves belong to.
        kind: the controllers' class and the names of all classes in the tree. JAX takes trees of different
            dataclasses with as many leaves for equal, and would now and then play one as the other.
    """

    varied: list[Array]
    common: list[Array]
    is_common: tuple[bool, ...] = dataclasses.field(metadata={"static": True})
    structure: PyTreeDef = dataclasses.field(metadata={"static": True})
    kind: tuple[type, str] = dataclasses.field(metadata={"static": True})

    @classmethod
    def of(cls, controllers: Sequence[Controller]) -> LaneSettings:
        """Takes controllers apart."""
        columns = list(zip(*map(jax.tree.leaves, controllers), strict=True))
        is_common = tuple(
            isinstance(column[0], jax.Array | np.ndarray) and all(leaf is column[0] for leaf in column)
            for column in columns
        )
        marked = list(zip(columns, is_common, strict=True))
        return cls(
            varied=[_padded(np.stack(column)) for column, common in marked if not common],
            common=[column[0] for column, common in marked if common],
            is_common=is_common,
            structure=jax.tree.structure(controllers[0]),
            kind=kind_of(controllers[0]),
        )

    def controller(self, setting: Sequence[Array]) -> Controller:
        """The controller whose varied leaves are these."""
        varied, common = iter(setting), iter(self.common)
        leaves = [next(common if is_common else varied) for is_common in self.is_common]
        return jax.tree.unflatten(self.structure, leaves)


def kind_of(controller: Controller) -> tuple[type, str]:
    """Tells a controller's tree from that of any other class; to be a static argument under ``jit``."""
    return type(controller), str(jax.tree.structure(controller))


class _Table(NamedTuple):
    """What all lanes read and none changes.

    Attributes:
        settings: the controllers.
        matrix: the probe matrix.
        orders: branch orders.
        budget: token budget, None for no limit.
        num_episodes: episodes in the queue of each device, which may be longer.
        at_once: rounds that pools may play at once.
    """

    settings: LaneSettings
    matrix: ProbeMatrix
    orders: BranchOrders
    budget: Int32[Array, ""] | None
    num_episodes: Int32[Array, ""]
    at_once: Int32[Array, ""]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _Body:
    """What a lane plays.

    Attributes:
        setting: its controller's hyper-parameters, but for those that all controllers share.
        pool: its branch pool, without the matrix.
        memory: what the controller remembers.
        critical_path: tokens on the critical path so far; None where nobody asks for them.
    """

    setting: list[Array]
    pool: ReplayPool
    memory: Memory
    critical_path: Int32[Array, ""] | None


def _play(
    table: _Table,
    queue: Episodes,
    state: RolloutState,
    target: Int32[Array, ""],
    until: Int32[Array, ""],
    *,
    keep: frozenset[str],
    hooks: Hooks,
    mesh: Mesh,
    refill: int,
) -> RolloutState:
    """Plays until ``target`` episodes of each device have ended; ``state`` has the device axis in front."""

    def play_shard(
        table: _Table, queue: Episodes, state: RolloutState, target: Array, until: Array
    ) -> RolloutState:
        play = _lane_play(table, queue, keep, hooks, table.matrix.finals())
        scalars = {name: getattr(state, name)[0] for name in ("taken", "ended", "time")}
        state = play_lanes(
            play,
            state._replace(**scalars),
            num_episodes=table.num_episodes,
            target=target,
            refill=refill,
            until=until,
        )
        return state._replace(**{name: getattr(state, name)[None] for name in scalars})

    specs = (P(), P(DEVICE_AXIS), P(DEVICE_AXIS), P(), P())
    play = jax.shard_map(play_shard, mesh=mesh, in_specs=specs, out_specs=P(DEVICE_AXIS), check_vma=False)
    return play(table, queue, state, target, until)


_jit = functools.partial(
    jax.jit, static_argnames=("keep", "hooks", "mesh", "refill"), donate_argnames="state"
)
_play_few = _jit(_play, compiler_options=UNSHARED_OPTIONS)
_play_many = _jit(_play, compiler_options=COMPILER_OPTIONS)


def _lane_play(
    table: _Table,
    queue: Episodes,
    keep: frozenset[str],
    hooks: Hooks,
    finals: Int16[Array, "Q N"] | None = None,
) -> LanePlay:
    """How a lane plays its controller."""

    def begin(episode: Int32[Array, ""]) -> _Body:
        at = jnp.minimum(episode, table.num_episodes - 1)
        setting = [leaf[queue.setting[at]] for leaf in table.settings.varied]
        pool = ReplayPool.begin(
            table.matrix,
            queue.question[at],
            table.orders.of(queue.question[at], queue.row[at]),
            table.budget,
            labels="labels" in keep,
            revealed="revealed" in keep,
            unprobed="unprobed" in keep,
            finals=finals,
        )
        memory, action = checked_init(table.settings.controller(setting), pool.view())
        started = pool if action is None else pool.step(action)
        critical_path = critical_tokens(jnp.int32(0) if hooks.critical_path else None, pool, started)
        return _Body(setting, started.without_matrix(), memory, critical_path)

    def opened(lane: Lane) -> tuple[Controller, Memory, ReplayPool]:
        body: _Body = lane.body
        left = ROUND_LIMIT - lane.rounds - body.pool.skipped
        pool = body.pool.with_matrix(table.matrix, jnp.minimum(table.at_once, left))
        return table.settings.controller(body.setting), body.memory, pool

    def play_round(lane: Lane) -> tuple[_Body, Scalar]:
        controller, memory, before = opened(lane)
        view = before.view(lane.rounds)
        after, action = checked_act(controller, memory, view)
        stop = end_of_round(action, view)
        stepped = before.step(action)
        body: _Body = lane.body
        pool, critical_path = while_running(
            lane,
            (stepped.without_matrix(), critical_tokens(body.critical_path, before, stepped)),
            (body.pool, body.critical_path),
            stop,
        )
        return _Body(body.setting, pool, while_running(lane, after, memory), critical_path), stop

    def end(lane: Lane) -> tuple[Int32[Array, " C"], Any, Int32[Array, ""] | None]:
        controller, memory, pool = opened(lane)
        extra = None if hooks.at_end is None else hooks.at_end(controller, memory, pool)
        # The look at which the episode has ended was not a round.
        row = _result_row(controller, memory, pool, lane.rounds - 1, lane.stop_reason)
        return row, extra, lane.body.critical_path

    def record(before: Lane, after: Lane) -> Any:  # noqa: ARG001
        assert hooks.after_round is not None
        return hooks.after_round(*opened(after))

    return LanePlay(begin, play_round, end, record if hooks.after_round else None)


def end_of_round(action: Action, view: View) -> Int32[Array, ""]:
    """Decides whether an episode ends at a look, and why.

    Returns:
        The controller's reason; else `BUDGET` where the budget is spent, or `ROUND_LIMIT`. The first action
        is carried out on any budget, as a branch that is shorter than an interval may fit into it.
    """
    spent = jnp.where(view.budget_spent & (view.rounds > 0), StopReason.BUDGET, StopReason.RUNNING)
    limit = jnp.where(view.rounds >= ROUND_LIMIT, StopReason.ROUND_LIMIT, spent)
    stop = jnp.asarray(action.stop)
    return jnp.where(stop == StopReason.RUNNING, limit, stop).astype(jnp.int32)


def _result_row(
    controller: Controller, memory: Memory, pool: ReplayPool, rounds: Scalar, stop: Scalar
) -> Int32[Array, " C"]:
    """The results of an ended episode, in the order of `COLUMNS`."""
    view = pool.view(rounds)
    vote = checked_answer(controller, memory, view)
    is_leader = (vote.leader >= NONE) & (vote.leader < view.opened)
    row = {
        "answer": jnp.where(is_leader, view.answer_key(vote.leader), NO_LEADER),
        "tokens": pool.tokens,
        "intervals": pool.intervals,
        "probes": pool.probes,
        "sequential_tokens": pool.sequential_tokens,
        "branches": pool.opened,
        "rounds": view.rounds,
        "stop_reason": stop,
    }
    columns = jnp.zeros(len(COLUMNS), jnp.int32)
    for index, name in enumerate(COLUMNS):
        # A select for each: XLA's own way to stack scalars of many lanes is five times slower on a CPU.
        columns = jnp.where(jnp.arange(len(COLUMNS)) == index, jnp.asarray(row[name], jnp.int32), columns)
    return columns


def results_of(
    rows: Int[np.ndarray, "E C"],
    matrix: ProbeMatrix,
    episodes: Episodes,
    compile_seconds: float,
    run_seconds: float,
) -> Results:
    """Makes results of rows with `COLUMNS`, one for each episode."""
    answer = rows[:, 0]
    correct = is_correct(answer, np.asarray(matrix.gold)[np.asarray(episodes.question)])
    columns = dict(zip(COLUMNS, rows.T, strict=True))
    return Results(correct=correct, **columns, compile_seconds=compile_seconds, run_seconds=run_seconds)


def _check_ends(controller: str, results: Results) -> None:
    """Checks what no trace can tell of what a controller returns."""
    reason = results.stop_reason
    unknown = reason[(reason < min(StopReason)) | (reason > max(StopReason))]
    if unknown.size:
        raise InputError(f"{controller}.act returned the stop reason {unknown[0]}; return a StopReason")
    astray = np.flatnonzero(results.answer == NO_LEADER)
    if astray.size:
        raise InputError(
            f"{controller}.answer returned a Vote whose leader is none of the {results.branches[astray[0]]} "
            f"opened branches, counted from 0, nor {NONE} for none; return a vote of the view"
        )


def _trace(table: _Table, queue: Episodes, hooks: Hooks) -> tuple[frozenset[str], Shapes]:
    """What pools have to keep because the controller looks at it, and the shapes of what is played."""
    keep: frozenset[str] = frozenset()
    while True:
        try:
            return keep, jax.eval_shape(functools.partial(_shapes, keep=keep, hooks=hooks), table, queue)
        except NotKeptError as missing:
            keep |= {missing.args[0]}


@functools.partial(jax.jit, static_argnames=("keep", "hooks"))
def _shapes(table: _Table, queue: Episodes, keep: frozenset[str], hooks: Hooks) -> Shapes:
    """`trace_shapes` of a rollout. What `jax.jit` has traced once, `jax.eval_shape` need not trace again."""
    return trace_shapes(_lane_play(table, queue, keep, hooks))


def _first_state(
    shapes: Shapes, lanes: int, num_episodes: int, results: int, rounds: int, mesh: Mesh
) -> RolloutState:
    """The state before the first episode, on each device; all leaves have the device axis in front."""
    state = empty_rollout(shapes, lanes, num_episodes, results=results, rounds=rounds)
    state = jax.tree.map(lambda leaf: np.concatenate([np.atleast_1d(leaf)] * mesh.size), state)
    return jax.device_put(state, NamedSharding(mesh, P(DEVICE_AXIS)))


def _own_share(episodes: Episodes) -> Episodes:
    """Those that this process plays when they are dealt to all in turn; the last one fills up the shares."""
    processes, last = jax.process_count(), len(episodes.question) - 1
    own = np.minimum(np.arange(last // processes + 1) * processes + jax.process_index(), last)
    return Episodes(*(column[own] for column in episodes))


def _deal(episodes: Episodes, devices: int, capacity: int) -> tuple[Episodes, np.ndarray]:
    """Deals the episodes to the devices in turn, question by question, so that lanes read the same rows.

    Returns:
        The devices' queues one after another, filled up with the last episode, and the place of each episode
        in them.
    """
    number = np.arange(len(episodes.question))
    length = _bucket_size(-(-max(len(number), capacity) // devices))
    by_question = np.argsort(episodes.question, kind="stable")
    place = np.empty_like(number)
    place[by_question] = number % devices * length + number // devices
    dealt = np.full(devices * length, number[-1])
    dealt[place] = number
    return Episodes(*(column[dealt] for column in episodes)), place


def _bucket(table: Int[np.ndarray, "G R W"]) -> Int[np.ndarray, "G R W"]:
    """Repeats the last row up to a power of two rows, so that few shapes have to be compiled for."""
    filling = _bucket_size(table.shape[1]) - table.shape[1]
    return np.concatenate([table, np.repeat(table[:, -1:], filling, axis=1)], axis=1)


def _padded(rows: np.ndarray) -> np.ndarray:
    """The same for rows on the first axis."""
    return _bucket(rows[None].reshape(1, len(rows), -1)).reshape(-1, *rows.shape[1:])


def _bucket_size(size: int) -> int:
    return 1 << (size - 1).bit_length()


def check_budget(budget: int | None) -> int | None:
    """Checks that a token budget is a whole number that can be counted down from.

    Returns:
        The budget as a Python integer, or None.

    Raises:
        InputError: it is negative or too large.
    """
    if budget is None:
        return None
    try:
        return check_int("the token budget", budget, 0, MAX_TOKENS)
    except InputError as error:
        raise InputError(f"{error}; leave it out for no limit") from None


def _columns(episodes: Any) -> Episodes:
    """The episodes as NumPy arrays of int32."""
    try:
        columns = [np.asarray(column) for column in episodes]
        if any(column.dtype.kind not in "iu" and column.size for column in columns):
            raise ValueError(f"they are of {', '.join(str(column.dtype) for column in columns)}")
        return Episodes(*(column.astype(np.int32) for column in columns))
    except (TypeError, ValueError) as error:
        raise InputError(f"episodes hold no three columns of whole numbers: {error}") from error


def _check_kinds(controllers: Any, matrix: Any, orders: Any) -> None:
    """Raises an `InputError` for arguments of another kind."""
    if not isinstance(controllers, Sequence) or not all(isinstance(one, Controller) for one in controllers):
        raise InputError(f"controllers is {controllers!r:.60}, but it must be a sequence of controllers")
    for name, given, kind in (("matrix", matrix, ProbeMatrix), ("orders", orders, BranchOrders)):
        if not isinstance(given, kind):
            raise InputError(f"{name} is {given!r:.60}, but it must be a {kind.__name__}")


def check_settings(controllers: Sequence[Controller]) -> None:
    """Checks that controllers can be settings of one rollout.

    Raises:
        InputError: there is none, they are of several classes or differ in more than traced fields, or one
            has a field that cannot be traced.
    """
    for controller in controllers:
        check_fields(controller)
    kinds = {type(controller).__name__ for controller in controllers}
    if len(kinds) != 1:
        raise InputError(f"a rollout needs controllers of one class, got {sorted(kinds) or 'none'}")
    if len({kind_of(controller) for controller in controllers}) > 1:
        raise InputError(
            f"a rollout needs controllers that differ in traced fields alone, but these {kinds.pop()} differ "
            "in static fields or in structure; make every hyper-parameter a number or an array"
        )


def _check(
    controllers: Sequence[Controller],
    matrix: ProbeMatrix,
    orders: BranchOrders,
    episodes: Episodes,
    budget: int | None,
    lanes: int | None,
) -> None:
    check_settings(controllers)
    shapes = {column.shape for column in episodes}
    if len(shapes) != 1 or len(shapes.pop()) != 1:
        raise InputError("the columns of episodes must be of one length, shape (E,)")
    if len(episodes.question) == 0:
        raise InputError("a rollout needs at least one episode")
    check_budget(budget)
    if lanes is not None and lanes < 1:
        raise InputError(f"the number of lanes is {lanes}, but it must be at least 1")
    limits = {
        "question": matrix.num_questions,
        "row": orders.num_rows,
        "setting": len(controllers),
    }
    for (name, limit), column in zip(limits.items(), episodes, strict=True):
        if column.min() < 0 or column.max() >= limit:
            raise InputError(f"an episode's {name} is outside 0 … {limit - 1}")
    if len(orders.group) != matrix.num_questions:
        raise InputError(
            f"there are branch orders for {len(orders.group)} questions, but the matrix has "
            f"{matrix.num_questions}"
        )
    if np.min(orders.table) < 0 or np.max(orders.table) >= matrix.num_branches:
        raise InputError(f"a branch order holds a branch outside 0 … {matrix.num_branches - 1}")
