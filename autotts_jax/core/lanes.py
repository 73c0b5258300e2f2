"""Lanes: the loop that plays episodes.

A batch of ``while`` loops would run until its longest episode ends, most lanes idle. Here a fixed number of
lanes is kept busy: when enough of them have ended, their results are written and the next episodes take their
place. `autotts_jax.core.rollout` plays controllers this way, and training plays environments.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int32

from autotts_jax.core.view import StopReason
from autotts_jax.typing import Array, Scalar

Chosen = TypeVar("Chosen")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Lane:
    """One episode in flight.

    Attributes:
        body: what is played; a pytree.
        episode: its number in the queue; the length of the queue in an empty lane. Shape ().
        rounds: rounds played. Shape ().
        stop_reason: a `StopReason`, `RUNNING` until the episode has ended. Shape ().
    """

    body: Any
    episode: Int32[Array, ""]
    rounds: Int32[Array, ""]
    stop_reason: Int32[Array, ""]


class LanePlay(NamedTuple):
    """How a lane is played: functions of one episode.

    Attributes:
        begin: from an episode's number in the queue, the body at its start.
        round: from a lane, its body after one more round and a `StopReason`; where its episode has ended, the
            body must stay as it is, see `while_running`.
        end: from a lane whose episode has ended, its results; a pytree of arrays, or an empty one.
        record: from a lane before and after a round, what to record of the round; None to record nothing.
    """

    begin: Callable[[Int32[Array, ""]], Any]
    round: Callable[[Lane], tuple[Any, Scalar]]
    end: Callable[[Lane], Any]
    record: Callable[[Lane, Lane], Any] | None = None


class RolloutState(NamedTuple):
    """Where a rollout stands.

    Attributes:
        lanes: the episodes in flight; leaves have a leading axis L.
        taken: episodes taken from the queue. Shape ().
        ended: episodes whose results are written. Shape ().
        time: rounds of the loop. Shape ().
        results: what `LanePlay.end` gave, packed by `pack`; leaves have a leading axis of the queue's length.
        records: what `LanePlay.record` gave, packed; leaves have leading axes (T, L), rounds of the loop and
            lanes.
    """

    lanes: Lane
    taken: Int32[Array, ""]
    ended: Int32[Array, ""]
    time: Int32[Array, ""]
    results: dict[str, Array]
    records: dict[str, Array]


def play_lanes(
    play: LanePlay,
    state: RolloutState,
    *,
    num_episodes: Scalar,
    target: Scalar,
    refill: int,
    until: Scalar | None = None,
) -> RolloutState:
    """Plays lanes on; to be called under ``jit``.

    Args:
        play: how a lane is played.
        state: where to continue.
        num_episodes: length of the queue.
        target: return once this many episodes have ended.
        refill: lanes that have to have ended before episodes from the queue take their place (static).
        until: return when `RolloutState.time` is this, at the latest; None for no such limit. The first call
            takes episodes from the queue anyway.

    Returns:
        The state after it. A lane whose episode has ended stays as it is until another takes its place.
    """
    begin = jax.vmap(play.begin)

    @jax.vmap
    def end(lane: Lane) -> dict[str, Array]:
        return pack(play.end(lane))

    def holds(lanes: Lane) -> Bool[Array, " L"]:
        return lanes.episode < num_episodes

    def replaceable(lanes: Lane, taken: Scalar) -> Bool[Array, " L"]:
        """Ended lanes and, while the queue has more, empty ones."""
        ended = lanes.stop_reason != StopReason.RUNNING
        return ended & (holds(lanes) | (taken < num_episodes))

    def in_time(time: Scalar) -> Bool[Array, ""]:
        return jnp.bool_(True) if until is None else jnp.less(time, until)

    @jax.vmap
    def record(before: Lane, after: Lane) -> dict[str, Array]:
        return {} if play.record is None else pack(play.record(before, after))

    def play_round(
        carry: tuple[Lane, Array, dict[str, Array]],
    ) -> tuple[Lane, Array, dict[str, Array]]:
        lanes, time, records = carry
        after = jax.vmap(functools.partial(_play_round, play))(lanes)
        rows = record(lanes, after)
        records = jax.tree.map(lambda column, row: jnp.asarray(column).at[time].set(row), records, rows)
        return after, time + 1, records

    def replace(state: RolloutState, out: Bool[Array, " L"]) -> RolloutState:
        counted = out & holds(state.lanes)
        number = state.taken + jnp.cumsum(out) - 1
        coming = Lane(
            body=begin(number),
            episode=jnp.minimum(number, num_episodes).astype(jnp.int32),
            rounds=jnp.zeros_like(state.lanes.rounds),
            stop_reason=jnp.where(number < num_episodes, StopReason.RUNNING, StopReason.EXHAUSTED).astype(
                jnp.int32
            ),
        )

        def write(column: Array, rows: Array) -> Array:
            row = jnp.where(counted, state.lanes.episode, column.shape[0])
            return jnp.asarray(column).at[row].set(rows, mode="drop")

        lanes = choose(out, coming, state.lanes)
        # What was played last stays to be seen in a lane that gets nothing else.
        body = choose(out & (number < num_episodes), coming.body, state.lanes.body)
        return state._replace(
            lanes=dataclasses.replace(lanes, body=body),
            taken=state.taken + jnp.sum(out, dtype=jnp.int32),
            ended=state.ended + jnp.sum(counted, dtype=jnp.int32),
            results=jax.tree.map(write, state.results, end(state.lanes)),
        )

    def play_on(state: RolloutState) -> RolloutState:
        want = jnp.minimum(refill, jnp.sum(holds(state.lanes)))
        lanes, time, records = jax.lax.while_loop(
            lambda carry: (jnp.sum(replaceable(carry[0], state.taken)) < want) & in_time(carry[1]),
            play_round,
            (state.lanes, state.time, state.records),
        )
        out = replaceable(lanes, state.taken)
        # Without the records, which a conditional would copy.
        state = state._replace(lanes=lanes, time=time, records={})
        # Where time is up, there may be too few.
        return replace(state, out & (jnp.sum(out) >= want))._replace(records=records)

    def goes_on(state: RolloutState) -> Bool[Array, ""]:
        # Whatever the time, the first episodes are taken from the queue.
        return (state.ended < target) & (in_time(state.time) | (state.taken == 0))

    return jax.lax.while_loop(goes_on, play_on, state)


def _play_round(play: LanePlay, lane: Lane) -> Lane:
    """Plays one round of a lane; nothing where its episode has ended."""
    body, stop = play.round(lane)
    running = lane.stop_reason == StopReason.RUNNING
    rounds = jnp.where(running, lane.rounds + 1, lane.rounds)
    return Lane(
        body, lane.episode, rounds, jnp.where(running, jnp.asarray(stop, jnp.int32), lane.stop_reason)
    )


def while_running(lane: Lane, new: Any, old: Any, stop: Scalar = StopReason.RUNNING) -> Any:
    """Picks what a lane holds after a round: the new where its episode goes on, the old elsewhere."""
    running = (lane.stop_reason == StopReason.RUNNING) & (jnp.asarray(stop) == StopReason.RUNNING)
    return choose(running, new, old)


class Shapes(NamedTuple):
    """Shapes and dtypes of what a play handles: a body, results, and what is recorded of a round."""

    body: Any
    results: Any
    record: Any


def trace_shapes(play: LanePlay) -> Shapes:
    """Finds the shapes by playing a round of the first episode; to be called under `jax.eval_shape`."""
    zero = jnp.int32(0)
    lane = Lane(play.begin(zero), zero, zero, zero)
    after = _play_round(play, lane)
    return Shapes(lane.body, play.end(after), None if play.record is None else play.record(lane, after))


def empty_rollout(
    shapes: Shapes, lanes: int, num_episodes: Scalar, *, results: int, rounds: int = 0
) -> RolloutState:
    """Makes the state before the first episode: every lane is empty."""

    def zeros(tree: Any, *leading: int) -> Any:
        return jax.tree.map(lambda leaf: np.zeros((*leading, *leaf.shape), leaf.dtype), tree)

    empty = Lane(
        body=zeros(shapes.body, lanes),
        episode=np.full(lanes, num_episodes, np.int32),
        rounds=np.zeros(lanes, np.int32),
        stop_reason=np.full(lanes, StopReason.EXHAUSTED, np.int32),
    )
    zero = np.zeros((), np.int32)
    ends, records = jax.eval_shape(pack, shapes.results), jax.eval_shape(pack, shapes.record)
    return RolloutState(empty, zero, zero, zero, zeros(ends, results), zeros(records, rounds, lanes))


def pack(tree: Any) -> dict[str, Array]:
    """Joins all leaves of a dtype to one vector, so that a single scatter writes them.

    XLA fails on scatters of one shape when it fuses them to one pass, as `XLA_FLAGS` has it do.

    Returns:
        A vector by name of the dtype.
    """
    parts: dict[str, list[Array]] = {}
    for leaf in jax.tree.leaves(tree):
        parts.setdefault(jnp.result_type(leaf).name, []).append(jnp.reshape(leaf, -1))
    return {name: jnp.concatenate(vectors) for name, vectors in parts.items()}


def unpack(packed: dict[str, Any], like: Any) -> Any:
    """Restores what `pack` joined.

    Returns:
        A pytree whose leaves have the leading axes in front.
    """
    used = dict.fromkeys(packed, 0)

    def take(leaf: Any) -> Any:
        vectors, first = packed[leaf.dtype.name], used[leaf.dtype.name]
        used[leaf.dtype.name] += leaf.size
        return vectors[..., first : first + leaf.size].reshape(*vectors.shape[:-1], *leaf.shape)

    return jax.tree.map(take, like)


def choose(condition: Bool[Array, " *L"], ours: Chosen, others: Chosen) -> Chosen:
    """Picks between two pytrees of the same structure, for each entry of their leading axes."""

    def pick(one: Array, other: Array) -> Array:
        axes = (1,) * (np.ndim(other) - condition.ndim)
        return jnp.where(condition.reshape(condition.shape + axes) if axes else condition, one, other)

    return jax.tree.map(pick, ours, others)
