"""Rollouts: any controllers over any episodes in one compiled call.

A batch of ``while`` loops would run until its longest episode ends, most lanes idle. Here a fixed number of
lanes is kept busy instead: when half of them have ended, their results are written out and the next episodes
take their place. Episodes never look at each other, so results depend neither on the number of lanes nor on
that of devices or processes.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jax.tree_util import PyTreeDef
from jaxtyping import Bool, Int, Int16, Int32

from autotts_jax.core import mdp
from autotts_jax.core import pool as branch_pool
from autotts_jax.core.compiling import COMPILER_OPTIONS
from autotts_jax.core.controller import Controller, Memory
from autotts_jax.core.mdp import Scalar
from autotts_jax.core.pool import LabelsNotKeptError, ReplayPool, StopReason
from autotts_jax.core.votes import Vote
from autotts_jax.errors import InputError
from autotts_jax.replay.matrix import NONE, ProbeMatrix
from autotts_jax.typing import Array

DEVICE_AXIS = "device"
MAX_TOKENS = np.iinfo(np.int32).max

ROUND_LIMIT = 25_000
"""Rounds after which an episode is ended, in case a controller never stops.

Reading 128 branches to a depth of 81 by atomic actions takes 20,865.
"""

LANES = {"cpu": 64, "gpu": 8192, "tpu": 4096}
"""Lanes a device by platform: as many as its caches or its cores are filled by."""

SEGMENTS = 100
"""Stops of the compiled loop in which progress can be reported."""


class Episodes(NamedTuple):
    """Which episodes to run, one entry each; shape (E,).

    Attributes:
        question: index of the question in the matrix.
        order: row of the table of branch orders.
        setting: row of the stacked controllers' hyper-parameters.
    """

    question: Int[Array, " E"]
    order: Int[Array, " E"]
    setting: Int[Array, " E"]


class Results(NamedTuple):
    """What the episodes came to, one entry each; shape (E,).

    Attributes:
        answer: answer id, ``NONE`` for no answer.
        correct: whether it is the gold answer.
        tokens: tokens charged.
        intervals: Σ l_i.
        probes: |Ω|.
        sequential_tokens: latency proxy in tokens.
        branches: branches opened.
        rounds: rounds of the controller.
        stop_reason: a `StopReason`.
        compile_seconds: tracing, compiling and readying, for all episodes together.
        run_seconds: running, for all episodes together.
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


def rollout(
    controllers: Sequence[Controller],
    matrix: ProbeMatrix,
    orders: Int[np.ndarray, "R W"],
    episodes: Episodes,
    *,
    budget: int | None = None,
    lanes: int | None = None,
    devices: Sequence[jax.Device] | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Results:
    """Plays every episode with its controller.

    Args:
        controllers: the settings that ``episodes.setting`` indexes; all of one class.
        matrix: the probe matrix.
        orders: branch orders; an episode's pool has their length W as its width.
        episodes: question, branch order and setting of each episode.
        budget: token budget B; None for no limit.
        lanes: episodes in flight on each device; by platform when None. Changes speed alone.
        devices: local devices to share the episodes among; all when None, of all processes, each of which
            then makes the same call and gets all results.
        on_progress: called from time to time with the number of episodes that have ended in this process.

    Returns:
        Results in the order of ``episodes``.

    Raises:
        InputError: no controller, controllers of several classes, or an index out of range.
    """
    orders = np.asarray(orders, np.int32)
    episodes = Episodes(*(np.asarray(column, np.int32) for column in episodes))
    _check(controllers, matrix, orders, episodes, budget, lanes)
    mesh = Mesh(np.array(devices or jax.local_devices()), (DEVICE_AXIS,))
    lanes = lanes or LANES.get(mesh.devices.flat[0].platform, LANES["cpu"])
    settings = _Settings.of(controllers)
    shared = devices is None and jax.process_count() > 1
    queue, place = _deal(_own_share(episodes) if shared else episodes, mesh.size)
    per_device = -(-len(place) // mesh.size)
    table = _Table(
        settings,
        matrix,
        _bucket(orders),
        budget=None if budget is None else np.asarray(budget, np.int32),
        num_episodes=np.asarray(per_device, np.int32),
    )
    table = jax.device_put(table, NamedSharding(mesh, P()))
    queue = jax.device_put(queue, NamedSharding(mesh, P(DEVICE_AXIS)))

    began = time.perf_counter()
    run = _empty_run(table, queue, mesh, lanes)
    play = _play.lower(table, queue, run, np.int32(0), mesh=mesh).compile(COMPILER_OPTIONS)
    # Plays nothing: JAX readies later calls in the first.
    run = jax.block_until_ready(play(table, queue, run, np.int32(0)))
    compiled = time.perf_counter()
    for segment in range(1, SEGMENTS + 1) if on_progress else (SEGMENTS,):
        run = play(table, queue, run, np.int32(-(-per_device * segment // SEGMENTS)))
        if on_progress:
            on_progress(min(int(np.sum(run.ended)), len(place)))
    rows = np.asarray(run.results)[place]
    if shared:
        every = multihost_utils.process_allgather(rows)
        rows = every.swapaxes(0, 1).reshape(-1, len(COLUMNS))[: len(episodes.question)]
    ended = time.perf_counter()

    return results_of(rows, matrix, episodes, compiled - began, ended - compiled)


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
"""The columns of what `result_row` makes."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _Settings:
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
    def of(cls, controllers: Sequence[Controller]) -> _Settings:
        columns = list(zip(*map(jax.tree.leaves, controllers), strict=True))
        is_common = tuple(
            isinstance(column[0], jax.Array | np.ndarray) and all(leaf is column[0] for leaf in column)
            for column in columns
        )
        marked = list(zip(columns, is_common, strict=True))
        return cls(
            varied=[_bucket(np.stack(column)) for column, common in marked if not common],
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
    """What tells a controller's tree from that of any other class; to be a static argument under ``jit``."""
    return type(controller), str(jax.tree.structure(controller))


class _Table(NamedTuple):
    """What all lanes read and none changes.

    Attributes:
        settings: the controllers.
        matrix: the probe matrix.
        orders: branch orders.
        budget: token budget, None for no limit.
        num_episodes: episodes in the queue of each device, which may be longer.
    """

    settings: _Settings
    matrix: ProbeMatrix
    orders: Int32[Array, "R W"]
    budget: Int32[Array, ""] | None
    num_episodes: Int32[Array, ""]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _Lane:
    """One episode in flight.

    Attributes:
        setting: its controller's hyper-parameters, but for those that all controllers share.
        pool: its branch pool, without the matrix.
        memory: what the controller remembers.
        episode: its place in the queue; ``num_episodes`` in a lane that holds none.
        rounds: rounds played.
        stop: why it ended, `RUNNING` while it has not.
    """

    setting: list[Array]
    pool: ReplayPool
    memory: Memory
    episode: Int32[Array, ""]
    rounds: Int32[Array, ""]
    stop: Int32[Array, ""]


class _Run(NamedTuple):
    """A rollout under way; every leaf has the device axis in front.

    Attributes:
        lanes: the episodes in flight.
        taken: episodes taken from the queue.
        ended: episodes written to the results.
        results: rows as `_result` makes them, in the order of the queue.
    """

    lanes: _Lane
    taken: Int32[Array, " D"]
    ended: Int32[Array, " D"]
    results: Int32[Array, "E C"]


@functools.partial(jax.jit, static_argnames="mesh", donate_argnames="run")
def _play(table: _Table, queue: Episodes, run: _Run, target: Int32[Array, ""], *, mesh: Mesh) -> _Run:
    """Plays on until ``target`` episodes of each device have ended."""
    specs = (P(), P(DEVICE_AXIS), P(DEVICE_AXIS), P())
    play = jax.shard_map(_play_shard, mesh=mesh, in_specs=specs, out_specs=P(DEVICE_AXIS), check_vma=False)
    return play(table, queue, run, target)


def _play_shard(table: _Table, queue: Episodes, run: _Run, target: Int32[Array, ""]) -> _Run:
    num_episodes = table.num_episodes
    refill = max(1, run.lanes.stop.shape[0] // 2)
    labels = branch_pool.keeps_labels(run.lanes.pool)
    begin = jax.vmap(functools.partial(_begin, table, queue, labels=labels, finals=table.matrix.finals()))
    step = jax.vmap(functools.partial(_step, table))
    result = jax.vmap(functools.partial(_result, table))

    def holds(lanes):
        return lanes.episode < num_episodes

    def replaceable(lanes, taken):
        """Ended lanes, and while the queue has more, empty ones."""
        return (lanes.stop != StopReason.RUNNING) & (holds(lanes) | (taken < num_episodes))

    def play_on(run: _Run) -> _Run:
        taken = run.taken[0]
        want = jnp.minimum(refill, jnp.sum(holds(run.lanes)))
        lanes = jax.lax.while_loop(
            lambda lanes: jnp.sum(replaceable(lanes, taken)) < want,
            step,
            run.lanes,
        )
        out = replaceable(lanes, taken)
        counted = out & holds(lanes)
        row = jnp.where(counted, lanes.episode, run.results.shape[0])
        coming = begin(taken + jnp.cumsum(out) - 1)
        return _Run(
            lanes=jax.tree.map(functools.partial(_where, out), coming, lanes),
            taken=run.taken + jnp.sum(out, dtype=jnp.int32),
            ended=run.ended + jnp.sum(counted, dtype=jnp.int32),
            results=jnp.asarray(run.results).at[row].set(result(lanes), mode="drop"),
        )

    return jax.lax.while_loop(lambda run: run.ended[0] < target, play_on, run)


def _begin(
    table: _Table,
    queue: Episodes,
    episode: Int[Array, ""],
    *,
    labels: bool,
    finals: Int16[Array, "Q N"] | None = None,
) -> _Lane:
    """A lane at the start of an episode; an empty one beyond the last."""
    at = jnp.minimum(episode, table.num_episodes - 1)
    setting = [leaf[queue.setting[at]] for leaf in table.settings.varied]
    controller = table.settings.controller(setting)
    order = table.orders[queue.order[at]]
    pool = ReplayPool.begin(
        table.matrix,
        queue.question[at],
        order,
        table.budget,
        labels,
        history=controller.needs_history,
        finals=finals,
    )
    memory, after = controller.start(pool)
    pool = cast(ReplayPool, after)
    ended = jnp.where(episode < table.num_episodes, StopReason.RUNNING, StopReason.EXHAUSTED)
    return _Lane(
        setting,
        branch_pool.detach(pool),
        memory,
        episode=jnp.minimum(episode, table.num_episodes).astype(jnp.int32),
        rounds=jnp.int32(0),
        stop=ended.astype(jnp.int32),
    )


_traced_begin = jax.jit(_begin, static_argnames="labels")
"""What `jax.jit` has traced once, `jax.eval_shape` need not trace again for every rollout."""


def _step(table: _Table, lane: _Lane) -> _Lane:
    """One round of a lane's controller; nothing where its episode has ended."""
    pool = branch_pool.attach(lane.pool, table.matrix)
    memory, after, stop = table.settings.controller(lane.setting).round(lane.memory, pool)
    pool = cast(ReplayPool, after)
    rounds = lane.rounds + 1
    stop = end_of_round(stop, pool, rounds)
    stepped = _Lane(lane.setting, branch_pool.detach(pool), memory, lane.episode, rounds, stop)
    running = lane.stop == StopReason.RUNNING
    return jax.tree.map(lambda new, old: _where(running, new, old), stepped, lane)


def end_of_round(stop: Scalar, pool: ReplayPool, rounds: Scalar) -> Int32[Array, ""]:
    """Why an episode ends after a round: the controller's reason, else a spent budget or too many rounds."""
    spent = jnp.where(branch_pool.budget_spent(pool), StopReason.BUDGET, StopReason.RUNNING)
    limit = jnp.where(jnp.asarray(rounds) >= ROUND_LIMIT, StopReason.ROUND_LIMIT, spent)
    return jnp.where(jnp.asarray(stop) == StopReason.RUNNING, limit, stop).astype(jnp.int32)


def _result(table: _Table, lane: _Lane) -> Int32[Array, " C"]:
    """A lane's row of results, as `COLUMNS` names them."""
    pool = branch_pool.attach(lane.pool, table.matrix)
    controller = table.settings.controller(lane.setting)
    vote = controller.vote(lane.memory, pool)
    sequential_tokens = controller.sequential_tokens(lane.memory, pool)
    return result_row(pool, vote, sequential_tokens, lane.rounds, lane.stop)


def result_row(
    pool: ReplayPool, vote: Vote, sequential_tokens: Scalar, rounds: Scalar, stop: Scalar
) -> Int32[Array, " C"]:
    """What an ended episode came to, in the order of `COLUMNS`."""
    state = branch_pool.state_of(pool)
    row = {
        "answer": branch_pool.leader_answer(pool, vote),
        "tokens": pool.tokens,
        "intervals": mdp.intervals(state),
        "probes": mdp.probes(state),
        "sequential_tokens": sequential_tokens,
        "branches": pool.opened,
        "rounds": rounds,
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
    """The results that rows made by `result_row` hold."""
    answer = rows[:, 0]
    correct = (answer != NONE) & (answer == np.asarray(matrix.gold)[np.asarray(episodes.question)])
    columns = dict(zip(COLUMNS, rows.T, strict=True))
    return Results(correct=correct, **columns, compile_seconds=compile_seconds, run_seconds=run_seconds)


def _reads_labels(table: _Table) -> bool:
    """Whether the controller looks at answer labels; their table is left out of the lanes otherwise."""
    try:
        jax.eval_shape(_first_round, table)
    except LabelsNotKeptError:
        return True
    return False


@jax.jit
def _first_round(table: _Table) -> Int32[Array, " C"]:
    queue = Episodes(*(jnp.zeros(1, jnp.int32) for _ in Episodes._fields))
    return _result(table, _step(table, _begin(table, queue, jnp.int32(0), labels=False)))


def _empty_run(table: _Table, queue: Episodes, mesh: Mesh, lanes: int) -> _Run:
    """A rollout before its first episode: every lane is empty."""
    begin = functools.partial(_traced_begin, labels=_reads_labels(table))
    lane = jax.eval_shape(begin, table, queue, jax.ShapeDtypeStruct((), jnp.int32))
    shape = (mesh.size * lanes,)
    empty = jax.tree.map(lambda leaf: np.zeros(shape + leaf.shape, leaf.dtype), lane)
    empty = dataclasses.replace(
        empty,
        episode=np.full(shape, table.num_episodes, np.int32),
        stop=np.full(shape, StopReason.EXHAUSTED, np.int32),
    )
    counter = np.zeros(mesh.size, np.int32)
    results = np.zeros((queue.question.shape[0], len(COLUMNS)), np.int32)
    return jax.device_put(_Run(empty, counter, counter, results), NamedSharding(mesh, P(DEVICE_AXIS)))


def _own_share(episodes: Episodes) -> Episodes:
    """Those that this process plays when they are dealt to all in turn; the last one fills up the shares."""
    processes, last = jax.process_count(), len(episodes.question) - 1
    own = np.minimum(np.arange(last // processes + 1) * processes + jax.process_index(), last)
    return Episodes(*(column[own] for column in episodes))


def _deal(episodes: Episodes, devices: int) -> tuple[Episodes, np.ndarray]:
    """Deals the episodes to the devices in turn.

    Returns:
        The devices' queues one after another, filled up with the last episode, and the place of each episode
        in them.
    """
    number = np.arange(len(episodes.question))
    length = _bucket_size(-(-len(number) // devices))
    place = number % devices * length + number // devices
    dealt = np.full(devices * length, number[-1])
    dealt[place] = number
    return Episodes(*(column[dealt] for column in episodes)), place


def _bucket(rows: np.ndarray) -> np.ndarray:
    """Repeats the last row up to a power of two rows, so that few shapes have to be compiled for."""
    filling = _bucket_size(len(rows)) - len(rows)
    return np.concatenate([rows, np.repeat(rows[-1:], filling, axis=0)])


def _bucket_size(size: int) -> int:
    return 1 << (size - 1).bit_length()


def check_budget(budget: int | None) -> None:
    """Raises an `InputError` for a token budget that cannot be counted down from."""
    if budget is not None and not 0 <= budget <= MAX_TOKENS:
        raise InputError(
            f"the token budget is {budget}, but it must be between 0 and {MAX_TOKENS}; "
            "leave it out for no limit"
        )


def _check(controllers, matrix, orders, episodes, budget, lanes) -> None:
    kinds = {type(controller).__name__ for controller in controllers}
    if len(kinds) != 1:
        raise InputError(f"a rollout needs controllers of one class, got {sorted(kinds) or 'none'}")
    if len(episodes.question) == 0:
        raise InputError("a rollout needs at least one episode")
    check_budget(budget)
    if lanes is not None and lanes < 1:
        raise InputError(f"the number of lanes is {lanes}, but it must be at least 1")
    limits = {
        "question": matrix.num_questions,
        "order": orders.shape[0],
        "setting": len(controllers),
    }
    for (name, limit), column in zip(limits.items(), episodes, strict=True):
        if column.min() < 0 or column.max() >= limit:
            raise InputError(f"an episode's {name} is outside 0 … {limit - 1}")
    if orders.min() < 0 or orders.max() >= matrix.num_branches:
        raise InputError(f"a branch order holds a branch outside 0 … {matrix.num_branches - 1}")


def _where(mask: Bool[Array, " *L"], new: Array, old: Array) -> Array:
    """``where`` along the leading axes."""
    return jnp.where(mask.reshape(mask.shape + (1,) * (old.ndim - mask.ndim)), new, old)
