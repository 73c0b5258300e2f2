"""The branch pool: all that a controller sees of an episode, and all that it can do in it.

A controller is written against `BranchPool` and so runs unchanged wherever one exists. `ReplayPool` is the
pool over a probe matrix, for ``jit`` and ``vmap``.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, Protocol, Self, cast

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Int, Int32, UInt32

from autotts_jax.core import mdp, votes
from autotts_jax.core.mdp import Scalar
from autotts_jax.core.votes import Vote
from autotts_jax.replay.matrix import NONE, ProbeMatrix
from autotts_jax.typing import Array, checked

NEVER = jnp.iinfo(jnp.int32).max
"""Label of an answer that was not shown yet."""


class StopReason(enum.IntEnum):
    """Why an episode ended; `RUNNING` while it has not."""

    RUNNING = 0
    DECIDED = 1
    """The controller's stopping rule was met."""
    EXHAUSTED = 2
    """Nothing was left to read."""
    STEP_LIMIT = 3
    """The controller's own limit of rounds or branches was reached."""
    BUDGET = 4
    """The token budget admits no further BRANCH or CONTINUE."""
    ROUND_LIMIT = 5
    """The rollout's limit of rounds was reached."""


class BranchPool(Protocol):
    """What a controller sees and does. All arrays have one entry a branch, in opening order; shape (W,).

    Methods that act return a new pool and leave inadmissible parts of what was asked undone.
    """

    @property
    def width(self) -> int:
        """W, the largest number of branches (static)."""

    @property
    def opened(self) -> Int32[Array, ""]:
        """m, the number of opened branches."""

    @property
    def depth(self) -> Int32[Array, " W"]:
        """Intervals read of each branch, 0 where unopened; L + 1 once finished."""

    @property
    def active(self) -> Bool[Array, " W"]:
        """Opened and not pruned, finished ones included."""

    @property
    def finished(self) -> Bool[Array, " W"]:
        """Read to the end."""

    @property
    def live(self) -> Bool[Array, " W"]:
        """Active and not finished: the branches that can advance."""

    @property
    def answers(self) -> Int32[Array, " W"]:
        """Label of the latest revealed answer of each branch; ``NONE`` where there is none.

        Equal answers have equal labels throughout an episode; answers shown earlier have smaller labels.
        Labels carry no other meaning.
        """

    @property
    def branch_tokens(self) -> Int32[Array, " W"]:
        """Tokens charged for each branch."""

    @property
    def tokens(self) -> Int32[Array, ""]:
        """Tokens charged so far."""

    def agrees(self, branch: Scalar) -> Bool[Array, " W"]:
        """Branches whose latest answer is that of ``branch``; none where it has no answer or is ``NONE``."""

    def vote(self, voters: Bool[Array, " W"], key: Int[Array, " W"] | None = None) -> Vote:
        """A vote of the latest answers; ``key`` is the insertion order, branch order by default."""

    def vote_finals(
        self, voters: Bool[Array, " W"] | None = None, key: Int[Array, " W"] | None = None
    ) -> Vote:
        """A vote of finals, by all finished branches or by those in ``voters``; cheaper than `vote`."""

    def open(self, count: Scalar, probe: bool = True) -> Self:
        """Opens ``count`` fresh branches at depth 1, and probes them."""

    def advance(self, count: Int[Array, " W"], probe: bool = True) -> Self:
        """Reads ``count[i]`` more intervals of each live branch, probing at each; it stops at its end."""

    def probe(self, mask: Bool[Array, " W"]) -> Self:
        """Reveals the current depth of active branches that were opened or advanced without a probe."""

    def prune(self, mask: Bool[Array, " W"]) -> Self:
        """Gives up active branches; what they showed stays."""

    def read(self, count: Scalar) -> Self:
        """Opens ``count`` fresh branches and reads each to its end in one call."""


class LabelsNotKeptError(Exception):
    """`ReplayPool.answers` was asked for in a pool that was begun without labels."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ReplayPool(BranchPool):
    """A `BranchPool` over a probe matrix. Its underscored fields are hidden from controllers."""

    _matrix: ProbeMatrix
    _episode: mdp.Episode
    _state: mdp.State
    _final_twins: UInt32[Array, "W words"] | None
    _labels: Int32[Array, " V"] | None
    _clock: Int32[Array, ""]
    _budget: Scalar | None

    @classmethod
    @checked
    def begin(
        cls,
        matrix: ProbeMatrix,
        question: Scalar,
        order: Int[Array, " W"],
        budget: Scalar | None = None,
        labels: bool = True,
        history: bool = True,
        twins: bool = True,
        finals: Int[Array, "Q N"] | None = None,
    ) -> ReplayPool:
        """A pool with nothing opened.

        Args:
            matrix: the probe matrix.
            question: index of the question.
            order: the order in which branches are opened; its length is W.
            budget: B in tokens; None for no limit.
            labels: keep the table behind `answers` (static). A controller that never looks at labels runs
                faster without.
            history: keep which depths were probed, for views of the episode (static).
            twins: find out at once which branches share a final answer (static). It makes `vote_finals`
                faster, and beginning slower.
            finals: `ProbeMatrix.finals`, where many pools begin over one matrix.
        """
        episode, state = mdp.begin(matrix, question, order, history)
        finals = matrix.finals() if finals is None else finals
        return cls(
            _matrix=matrix,
            _episode=episode,
            _state=state,
            _final_twins=votes.twin_sets(jnp.asarray(finals)[question][order]) if twins else None,
            _labels=jnp.full(matrix.vocabulary, NEVER, jnp.int32) if labels else None,
            _clock=jnp.int32(0),
            _budget=budget,
        )

    @property
    def width(self) -> int:
        return self._state.depth.shape[0]

    @property
    def opened(self) -> Int32[Array, ""]:
        return self._state.opened

    @property
    def depth(self) -> Int32[Array, " W"]:
        return self._state.depth

    @property
    def active(self) -> Bool[Array, " W"]:
        return self._state.active

    @property
    def finished(self) -> Bool[Array, " W"]:
        return mdp.finished(self._episode, self._state)

    @property
    def live(self) -> Bool[Array, " W"]:
        return self.active & ~self.finished

    @property
    def answers(self) -> Int32[Array, " W"]:
        if self._labels is None:
            raise LabelsNotKeptError
        ids = answer_ids(self)
        return jnp.where(ids == NONE, NONE, self._labels[ids])

    @property
    def branch_tokens(self) -> Int32[Array, " W"]:
        return mdp.branch_tokens(self._episode, self._state)

    @property
    def tokens(self) -> Int32[Array, ""]:
        return mdp.tokens(self._episode, self._state)

    @checked
    def agrees(self, branch: Scalar) -> Bool[Array, " W"]:
        ids = answer_ids(self)
        return (ids == ids[branch]) & (ids != NONE) & (branch != NONE)

    @checked
    def vote(self, voters: Bool[Array, " W"], key: Int[Array, " W"] | None = None) -> Vote:
        return votes.vote(answer_ids(self), voters, key)

    @checked
    def vote_finals(
        self, voters: Bool[Array, " W"] | None = None, key: Int[Array, " W"] | None = None
    ) -> Vote:
        shown = self._state.shown > self._episode.length
        voters = shown if voters is None else shown & voters
        if self._final_twins is None:
            return self.vote(voters, key)
        return votes.vote_twins(self._final_twins, voters, key)

    @checked
    def open(self, count: Scalar, probe: bool = True) -> ReplayPool:
        opened = mdp.open_branches(self._episode, self._state, count, self._budget)
        fresh = opened.active & (self.depth == 0)
        return self._then(mdp.reveal(opened, fresh) if probe else opened)

    @checked
    def advance(self, count: Int[Array, " W"], probe: bool = True) -> ReplayPool:
        return self._then(mdp.advance(self._episode, self._state, count, self._budget, probe))

    @checked
    def probe(self, mask: Bool[Array, " W"]) -> ReplayPool:
        return self._then(mdp.reveal(self._state, mask))

    @checked
    def prune(self, mask: Bool[Array, " W"]) -> ReplayPool:
        return dataclasses.replace(self, _state=mdp.prune(self._state, mask))

    @checked
    def read(self, count: Scalar) -> ReplayPool:
        return self._then(mdp.read_full(self._episode, self._state, count, self._budget))

    def _then(self, state: mdp.State) -> ReplayPool:
        """The pool after an action, with the answers that it showed for the first time labelled.

        A label is the moment of the first showing: a clock of actions, then the branch.
        """
        pool = dataclasses.replace(self, _state=state)
        if self._labels is None:
            return pool
        ids = mdp.answers(self._matrix, self._episode, state)
        shown = (state.shown > self._state.shown) & (ids != NONE)
        moment = self._clock + jnp.arange(self.width, dtype=jnp.int32)
        labels = (
            jnp.asarray(self._labels)
            .at[jnp.where(shown, ids, self._matrix.vocabulary)]
            .min(moment, mode="drop")
        )
        return dataclasses.replace(pool, _labels=labels, _clock=self._clock + self.width)


# --- for rollouts and views, not for controllers --------------------------------------------------------


def detach(pool: ReplayPool) -> ReplayPool:
    """The pool without its matrix, so that a batch of pools holds no copies of it."""
    return dataclasses.replace(pool, _matrix=cast(Any, None))


def attach(pool: ReplayPool, matrix: ProbeMatrix) -> ReplayPool:
    """The pool with its matrix again."""
    return dataclasses.replace(pool, _matrix=matrix)


def regrown(pool: ReplayPool, matrix: ProbeMatrix) -> ReplayPool:
    """The pool over its matrix, in which more is known of the branches by now."""
    row = pool._episode.start // matrix.max_depth
    episode = dataclasses.replace(
        pool._episode, length=matrix.lengths.reshape(-1)[row], tokens=matrix.tokens.reshape(-1)[row]
    )
    return dataclasses.replace(attach(pool, matrix), _episode=episode)


def matrix_of(pool: ReplayPool) -> ProbeMatrix:
    """The matrix behind the pool."""
    return pool._matrix


def state_of(pool: ReplayPool) -> mdp.State:
    """The state that the pool's actions have led to."""
    return pool._state


def blank(pool: ReplayPool, matrix: ProbeMatrix) -> ReplayPool:
    """A pool of the same shape in which nothing was opened, of no episode in particular but its interval."""
    zeros = jnp.zeros(pool.width, jnp.int32)
    episode, state = mdp.begin(matrix, 0, zeros, history=pool._state.revealed is not None)
    episode = dataclasses.replace(episode, interval=pool._episode.interval)
    return dataclasses.replace(attach(pool, matrix), _episode=episode, _state=state)


def episode_of(pool: ReplayPool) -> mdp.Episode:
    """What is fixed in the pool's episode."""
    return pool._episode


def admissible(pool: ReplayPool) -> mdp.Admissible:
    """The admissible atomic actions."""
    return mdp.admissible(pool._episode, pool._state, pool._budget)


def answer_ids(pool: ReplayPool) -> Int32[Array, " W"]:
    """Id in the matrix of each branch's latest answer."""
    return mdp.answers(pool._matrix, pool._episode, pool._state)


def answer_id(pool: ReplayPool, branch: Scalar) -> Int32[Array, ""]:
    """Id in the matrix of a branch's latest answer."""
    return mdp.answer(pool._matrix, pool._episode, pool._state, branch)


def all_answer_ids(pool: ReplayPool) -> Int32[Array, "W K"]:
    """Id in the matrix of each branch's answer at every depth, revealed or not."""
    depths = pool._matrix.max_depth
    at = pool._episode.start[:, None] + jnp.arange(depths)
    return jnp.asarray(pool._matrix.answers).reshape(-1)[at].astype(jnp.int32)


def budget_of(pool: ReplayPool) -> Scalar | None:
    """The token budget, None for no limit."""
    return pool._budget


def leader_answer(pool: ReplayPool, vote: Vote) -> Int32[Array, ""]:
    """Id in the matrix of a vote's winning answer, ``NONE`` without votes."""
    return jnp.where(vote.leader == NONE, NONE, answer_id(pool, vote.leader))


def keeps_labels(pool: ReplayPool) -> bool:
    """Whether `ReplayPool.answers` may be asked for."""
    return pool._labels is not None


def budget_spent(pool: ReplayPool) -> Bool[Array, ""]:
    """Whether the budget, and nothing else, forbids every BRANCH and CONTINUE."""
    if pool._budget is None:
        return jnp.bool_(False)

    def can_go_on(budget):
        allowed = mdp.admissible(pool._episode, pool._state, budget)
        return allowed.branch | jnp.any(allowed.advance)

    return can_go_on(None) & ~can_go_on(pool._budget)
