"""How views and actions travel between the process that keeps episodes and the one that decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int

from autotts_jax.core.pool import ReplayPool
from autotts_jax.core.rollout import ROUND_LIMIT
from autotts_jax.core.view import Action, View, is_left_out
from autotts_jax.replay.matrix import NONE, ProbeMatrix
from autotts_jax.typing import Array

LABELS, REVEALED, KEYS = "_labels", "_revealed_keys", "answer_keys"
"""The fields of a view that hold keys of answers."""

_DEPTHS, _BRANCHES = ("depth", "revealed_depth", "advance"), ("opened", "open", "read")
"""Fields and parts of actions that count no further than to the largest depth, or to all branches."""

COUNTS, MASKS = ("open", "advance", "read", "repeat"), ("prune", "probe")
"""The parts of an action."""


class Shape(NamedTuple):
    """What messages of a play look like.

    Attributes:
        lanes: L, episodes in flight.
        width: W, branches that an episode can open.
        max_depth: K, the largest readable depth.
        budget: whether there is a token budget.
        signals: names of the signals that are shown.
    """

    lanes: int
    width: int
    max_depth: int
    budget: bool
    signals: tuple[str, ...]

    @property
    def num_keys(self) -> int:
        """The answers that an episode can reveal, which no question tells."""
        return self.width * self.max_depth

    def most(self, name: str) -> int | None:
        """The largest number that a field or a part of an action needs; None where that is not known."""
        if name in (LABELS, REVEALED, KEYS):
            return max(self.num_keys, np.iinfo(np.uint8).max)  # ids, for which there may be fewer labels
        if name in _DEPTHS:
            return self.max_depth
        return self.width if name in _BRANCHES else {"repeat": ROUND_LIMIT}.get(name)

    def dtype(self, name: str, dtype: Any = np.int32) -> np.dtype[Any]:
        """The dtype of a field or a part of an action in messages."""
        most = self.most(name)
        return np.dtype(dtype) if most is None else np.min_scalar_type(-1 - most)

    def of_action(self, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Shape and dtype of a part of actions, of ``stop`` or of the ``leader`` of votes."""
        each = (self.width,) if name in (*MASKS, "advance") else ()
        return (self.lanes, *each), self.dtype(name, bool if name in MASKS else np.int32)

    def view(self) -> View:
        """A view of one episode, of shapes and dtypes in place of arrays."""
        rows, cells = (1, self.width), (1, self.width, self.max_depth)
        matrix = ProbeMatrix(
            answers=np.zeros(cells, np.int16),
            lengths=np.ones(rows, np.int32),
            tokens=np.ones(rows, np.int32),
            gold=np.zeros(1, np.int16),
            interval=np.ones(1, np.int32),
            cell=np.zeros(1, np.int32),
            vocabulary=self.num_keys,
            signals={name: np.zeros(cells, np.float16) for name in self.signals},
        )

        def show(matrix: ProbeMatrix, order: Array, budget: Array | None) -> View:
            return ReplayPool.begin(matrix, 0, order, budget, equivalence=False).view(detached=True)

        shown: View = jax.eval_shape(
            show, matrix, np.arange(self.width), np.int32(0) if self.budget else None
        )
        return shown


def needed(fields: Sequence[str]) -> set[str]:
    """Names the fields of a view that the shown ones are computed from; labels need all revealed keys."""
    looks_back = LABELS in fields or REVEALED in fields
    return {*fields, KEYS, REVEALED} - {LABELS} if looks_back else {*fields}


def named(view: View) -> dict[str, Any]:
    """Names the arrays of a view."""
    leaves = jax.tree_util.tree_leaves_with_path(view)
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def view_of(like: View, fields: Mapping[str, Any]) -> View:
    """Makes a view of fields; what nobody asked for is 0 in it."""
    leaves = [
        fields[name].astype(leaf.dtype) if name in fields else jnp.zeros(leaf.shape, leaf.dtype)
        for name, leaf in named(like).items()
    ]
    made: View = jax.tree.unflatten(jax.tree.structure(like), leaves)
    return made


def parts_of(action: Action) -> tuple[str, ...]:
    """Names the parts of an action that are not known to do nothing when it is traced."""
    given = action._asdict()
    once = isinstance(action.repeat, int) and action.repeat == 1
    left_out = {name for name, part in given.items() if part is None or is_left_out(part)}
    left_out |= {"stop", "repeat"} if once else {"stop"}
    return tuple(name for name in given if name not in left_out)


def packed(action: Action, shape: Shape) -> dict[str, Any]:
    """Makes arrays of what `parts_of` names and of the stop reason; counts are limited by what there is."""
    parts = {name: jnp.asarray(getattr(action, name)) for name in parts_of(action)}
    parts = {
        name: jnp.clip(part.astype(jnp.int32), 0, shape.most(name)).astype(shape.dtype(name))
        if name in COUNTS
        else part
        for name, part in parts.items()
    }
    return {"stop": jnp.asarray(action.stop).astype(jnp.int32), **parts}


class Labels:
    """Numbers the answers of each lane in the order in which they are shown, in place of their ids."""

    def __init__(self, lanes: int, vocabulary: int):
        self._labels = np.full((lanes, vocabulary), NONE, np.int32)
        self._count = np.zeros(lanes, np.int32)
        self._before: tuple[np.ndarray, np.ndarray] | None = None

    def forget(self, fresh: Bool[np.ndarray, " L"]) -> None:
        """Begins again in some lanes."""
        self._labels[fresh], self._count[fresh] = NONE, 0
        if self._before is not None:
            for shown in self._before:
                shown[fresh] = NONE

    def put(self, fields: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Replaces the ids among the fields of views by labels."""
        if REVEALED in fields:
            revealed, keys = self._of(fields[REVEALED]), fields[KEYS]
            known = np.take_along_axis(self._labels, np.maximum(keys, 0).astype(np.intp), 1)
            latest = np.where(keys == NONE, NONE, known).astype(keys.dtype)
            return {**fields, REVEALED: revealed, KEYS: latest, LABELS: latest}
        return {**fields, KEYS: self._of(fields[KEYS])} if KEYS in fields else dict(fields)

    def _of(self, ids: Int[np.ndarray, "L ..."]) -> Int[np.ndarray, "L ..."]:
        """Labels of ids, where most are as they were the last time; what is not an id stays."""
        flat = ids.reshape(len(ids), -1)
        if self._before is None:
            self._before = np.full_like(flat, NONE), np.full_like(flat, NONE)
        before, labels = self._before
        lane, place = np.nonzero(flat != before)
        changed = flat[lane, place]
        before[lane, place] = changed
        self._number(lane, changed)
        labels[lane, place] = np.where(changed >= 0, self._labels[lane, changed], changed)
        return labels.reshape(ids.shape)

    def _number(self, lane: Int[np.ndarray, " C"], ids: Int[np.ndarray, " C"]) -> None:
        """Numbers those ids that have no label yet, lane by lane, in the order in which they are given."""
        new = (ids >= 0) & (self._labels[lane, ids] == NONE)
        size = self._labels.shape[1]
        found, first = np.unique(lane[new] * size + ids[new], return_index=True)
        found = found[np.argsort(first)]
        of_lane = found // size
        number = np.arange(len(found)) - np.searchsorted(of_lane, of_lane)
        self._labels.reshape(-1)[found] = self._count[of_lane] + number
        self._count += np.bincount(of_lane, minlength=len(self._count)).astype(np.int32)
