"""The parent's side of players in JAX: it keeps episodes, shows what they reveal and carries out actions."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int, Int32

from autotts_jax.core.compiling import COMPILER_OPTIONS, UNSHARED_OPTIONS
from autotts_jax.core.costs import critical_tokens
from autotts_jax.core.lanes import choose
from autotts_jax.core.pool import ReplayPool
from autotts_jax.core.rollout import MANY_LANES, ROUND_LIMIT, end_of_round
from autotts_jax.core.view import Action, StopReason
from autotts_jax.policies.sealed.views import REVEALED, Labels, Shape, named, needed
from autotts_jax.replay.matrix import NONE, ProbeMatrix
from autotts_jax.replay.orders import BranchOrders
from autotts_jax.typing import Array, Scalar


class LaneTable(NamedTuple):
    """What all lanes read.

    Attributes:
        matrix: the probe matrix.
        orders: branch orders.
        budget: token budget; None for no limit.
    """

    matrix: ProbeMatrix
    orders: BranchOrders
    budget: Int32[Array, ""] | None


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _Lane:
    """An episode.

    Attributes:
        pool: its branches, without the matrix.
        rounds: rounds played. Shape ().
        stop: a `StopReason`. Shape ().
        critical_path: tokens on the critical path so far; None where nobody asks for them.
    """

    pool: ReplayPool
    rounds: Int32[Array, ""]
    stop: Int32[Array, ""]
    critical_path: Int32[Array, ""] | None


class _Kept(NamedTuple):
    """What is compiled for: the fields that views show, and what pools keep.

    Attributes:
        fields: names of the fields.
        revealed: whether all that was revealed is kept.
        unprobed: whether what was read without a probe is kept.
        critical_path: whether the tokens on the critical path are counted.
    """

    fields: tuple[str, ...]
    revealed: bool
    unprobed: bool
    critical_path: bool


class Flight:
    """Episodes in flight."""

    def __init__(
        self,
        table: LaneTable,
        shape: Shape,
        fields: tuple[str, ...],
        parts: frozenset[str],
        critical_path: bool,
    ):
        kept = tuple(name for name in named(shape.view()) if name in needed(fields))
        self._kept = _Kept(kept, REVEALED in kept, "probe" in parts, critical_path)
        self._fields, self._shape, self._table = fields, shape, table
        self._labels = Labels(shape.lanes, table.matrix.vocabulary)
        few = shape.lanes < MANY_LANES
        self._begin, self._step = (_begin_few, _step_few) if few else (_begin_many, _step_many)
        shapes = jax.eval_shape(functools.partial(_begun, kept=self._kept), table, np.int32(0), np.int32(0))
        self._lanes = jax.tree.map(lambda leaf: np.zeros((shape.lanes, *leaf.shape), leaf.dtype), shapes)

    def warm_up(self, parts: Iterable[Sequence[str]]) -> None:
        """Has JAX compile what will be called."""
        lanes, none = self._lanes, np.zeros(self._shape.lanes, bool)
        nowhere = none.astype(np.int32)
        self.begin(none, nowhere, nowhere)
        for names in parts:
            like = {name: np.zeros(*self._shape.of_action(name)) for name in ("stop", *names)}
            self.step(like, none, counts=False)
        self.results(nowhere)
        self._lanes = lanes

    @property
    def stop(self) -> Int[np.ndarray, " L"]:
        """Why each episode has ended."""
        return np.asarray(self._lanes.stop)

    @property
    def opened(self) -> Int[np.ndarray, " L"]:
        """The number of opened branches of each episode."""
        return np.asarray(self._lanes.pool.opened)

    def begin(
        self, fresh: Bool[np.ndarray, " L"], question: Int[np.ndarray, " L"], row: Int[np.ndarray, " L"]
    ) -> None:
        """Begins episodes."""
        self._labels.forget(fresh)
        self._lanes, self._shown = self._begin(
            self._table, self._lanes, fresh, question, row, shape=self._shape, kept=self._kept
        )

    def shown(self) -> dict[str, np.ndarray]:
        """What the views of all lanes show, with labels in place of ids."""
        fields = self._labels.put({name: np.asarray(field) for name, field in self._shown.items()})
        return {name: fields[name] for name in self._fields}

    def step(self, action: Mapping[str, np.ndarray], moves: Bool[np.ndarray, " L"], counts: bool) -> None:
        """Carries out the actions of all lanes."""
        self._lanes, self._shown = self._step(
            self._table, self._lanes, action, moves, np.bool_(counts), shape=self._shape, kept=self._kept
        )

    def results(self, leader: Int[np.ndarray, " L"]) -> dict[str, np.ndarray]:
        """What the episodes have come to."""
        return {name: np.asarray(of) for name, of in _results(self._table, self._lanes, leader).items()}


def _begun(table: LaneTable, question: Scalar, row: Scalar, kept: _Kept) -> _Lane:
    pool = ReplayPool.begin(
        table.matrix,
        question,
        table.orders.of(question, row),
        table.budget,
        labels=False,
        revealed=kept.revealed,
        unprobed=kept.unprobed,
        equivalence=False,
    )
    zero = jnp.int32(0)
    return _Lane(pool.without_matrix(), zero, zero, zero if kept.critical_path else None)


def _shown(table: LaneTable, lane: _Lane, shape: Shape, kept: _Kept) -> dict[str, Array]:
    fields = named(lane.pool.with_matrix(table.matrix).view(lane.rounds, detached=True))
    return {
        name: jnp.asarray(fields[name]).astype(shape.dtype(name, fields[name].dtype)) for name in kept.fields
    }


def _begin(
    table: LaneTable, lanes: _Lane, fresh: Array, question: Array, row: Array, *, shape: Shape, kept: _Kept
) -> tuple[_Lane, dict[str, Array]]:
    @jax.vmap
    def one(lane: _Lane, fresh: Array, question: Array, row: Array) -> tuple[_Lane, dict[str, Array]]:
        lane = choose(fresh, _begun(table, question, row, kept), lane)
        return lane, _shown(table, lane, shape, kept)

    return one(lanes, fresh, question, row)


def _step(
    table: LaneTable,
    lanes: _Lane,
    action: dict[str, Array],
    moves: Array,
    counts: Array,
    *,
    shape: Shape,
    kept: _Kept,
) -> tuple[_Lane, dict[str, Array]]:
    @jax.vmap
    def one(lane: _Lane, parts: dict[str, Array], moves: Array) -> tuple[_Lane, dict[str, Array]]:
        asked = Action(**{name: _wide(part) for name, part in parts.items()})
        left = ROUND_LIMIT - lane.rounds - lane.pool.skipped
        # Whoever looks at what each round has revealed or takes has it played alone.
        alone = kept.revealed or kept.critical_path
        # What is done before the first look is done once.
        before = lane.pool.with_matrix(table.matrix, None if alone else jnp.where(counts, left, 1))
        stop = jnp.where(counts, end_of_round(asked, before.view(lane.rounds, detached=True)), lane.stop)
        after = before.step(asked)
        waited = critical_tokens(lane.critical_path, before, after)
        stepped = _Lane(after.without_matrix(), lane.rounds + counts, stop, waited)
        goes_on = moves & (stop == StopReason.RUNNING)
        lane = dataclasses.replace(choose(goes_on, stepped, lane), stop=jnp.where(moves, stop, lane.stop))
        return lane, _shown(table, lane, shape, kept)

    return one(lanes, action, moves)


def _wide(part: Array) -> Array:
    return part if part.dtype == bool else part.astype(jnp.int32)


@jax.jit
def _results(table: LaneTable, lanes: _Lane, leader: Array) -> dict[str, Array]:
    @jax.vmap
    def one(lane: _Lane, leader: Array) -> dict[str, Array]:
        pool = lane.pool.with_matrix(table.matrix)
        waited = {} if lane.critical_path is None else {"critical_path": lane.critical_path}
        return waited | {
            "answer": jnp.where(leader == NONE, NONE, pool.answer_keys[leader]),
            "tokens": pool.tokens,
            "intervals": pool.intervals,
            "probes": pool.probes,
            "sequential_tokens": pool.sequential_tokens,
            "branches": pool.opened,
            "rounds": lane.rounds + pool.skipped,
            "stop_reason": lane.stop,
        }

    return one(lanes, leader)


def _jit(function: Any, few: bool) -> Any:
    return jax.jit(
        function,
        static_argnames=("shape", "kept"),
        compiler_options=UNSHARED_OPTIONS if few else COMPILER_OPTIONS,
    )


_begin_few, _begin_many = _jit(_begin, True), _jit(_begin, False)
_step_few, _step_many = _jit(_step, True), _jit(_step, False)
