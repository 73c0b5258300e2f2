"""The stepping driver: one episode of a controller, one operation at a time.

A rollout hands a controller a pool that carries out what it asks for at once. Where an operation takes a step
of an environment or tokens of a language model, `play` passes it to an `Executor` and continues with the
pool that results. Traces and live episodes are played this way.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int, Int32

from autotts_jax.core.controller import (
    Controller,
    Memory,
    check_fields,
    checked_round,
    checked_sequential_tokens,
    checked_start,
    checked_vote,
)
from autotts_jax.core.pool import (
    BranchPool,
    Pool,
    ReplayPool,
    StopReason,
    VoteRule,
    check_argument,
    check_probe,
    check_read_until,
    check_rounds,
    read_one,
)
from autotts_jax.core.rollout import Pause, end_of_round, kind_of
from autotts_jax.errors import InputError
from autotts_jax.replay.matrix import NONE, ProbeMatrix
from autotts_jax.replay.signals import check_signals
from autotts_jax.typing import Array, Scalar

if TYPE_CHECKING:
    _Protocol = BranchPool
else:
    _Protocol = object  # the protocol's own properties would hide those of the pool behind


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Operation:
    """What a controller asks for: a method of `BranchPool` and its arguments.

    Attributes:
        action: ``open``, ``advance``, ``probe``, ``prune`` or ``read`` (static).
        argument: number of branches for ``open`` and ``read``, shape (); intervals for ``advance``, mask for
            ``probe`` and ``prune``, shape (W,).
        probe: argument of ``open`` and ``advance`` (static).
    """

    action: str = dataclasses.field(metadata={"static": True})
    argument: Int[Array, "..."] | Bool[Array, " W"]
    probe: bool = dataclasses.field(default=True, metadata={"static": True})


class Executor(abc.ABC):
    """Carries out the operations of one episode, in replay, on a running model or in an environment.

    Attributes:
        pool: the pool after all operations so far.
    """

    pool: BranchPool

    @abc.abstractmethod
    def carry_out(self, operation: Operation) -> None:
        """Carries out an operation and sets `pool` to the pool after it.

        Inadmissible parts of the operation are ignored.

        Args:
            operation: the operation.
        """

    @abc.abstractmethod
    def answers(self, branches: Sequence[int]) -> list[str | None]:
        """Spells the latest revealed answers of branches.

        Args:
            branches: positions of the branches in opening order.

        Returns:
            The text of each; None where there is no answer.
        """


class ReplayExecutor(Executor):
    """Carries out operations on a `ReplayPool`.

    Args:
        pool: the pool, in which nothing is opened.
        spell: gives the text of an answer id, None for no answer.
    """

    pool: ReplayPool

    def __init__(self, pool: ReplayPool, spell: Callable[[int], str | None]):
        self.pool = pool
        self._spell = spell

    @classmethod
    def begin(
        cls,
        matrix: ProbeMatrix,
        question: int,
        order: Int[Array, " W"],
        spell: Callable[[int], str | None],
        *,
        budget: int | None = None,
        equivalence: bool = True,
    ) -> ReplayExecutor:
        """Begins an episode of a matrix; compiled once for each shape.

        Args:
            matrix: the probe matrix.
            question: index of the question.
            order: its branches in opening order; W may be less than their number.
            spell: gives the text of an answer id, None for no answer.
            budget: token budget; None for no limit.
            equivalence: as for `ReplayPool.begin`.
        """
        return cls(_begin(matrix, question, order, budget, equivalence=equivalence), spell)

    def carry_out(self, operation: Operation) -> None:
        """Carries out an operation at once."""
        self.pool = apply_operation(self.pool, operation)

    def answers(self, branches: Sequence[int]) -> list[str | None]:
        """Spells the latest revealed answers of branches."""
        keys = np.asarray(answer_keys(self.pool))
        return [self._spell(int(keys[branch])) for branch in branches]


def apply_operation(pool: Pool, operation: Operation) -> Pool:
    """Carries out an operation on a pool; compiled once for each kind of operation.

    Args:
        pool: the pool.
        operation: the operation.

    Returns:
        The pool after it.
    """
    return _apply(pool, jax.tree.map(jnp.asarray, operation))


@jax.jit
def _apply(pool: Pool, operation: Operation) -> Pool:
    act = getattr(pool, operation.action)
    if operation.action in ("open", "advance"):
        return act(operation.argument, operation.probe)
    return act(operation.argument)


@functools.partial(jax.jit, static_argnames="equivalence")
def _begin(
    matrix: ProbeMatrix,
    question: Scalar,
    order: Int[Array, " W"],
    budget: Scalar | None,
    equivalence: bool,
) -> ReplayPool:
    return ReplayPool.begin(matrix, question, order, budget, equivalence=equivalence)


@jax.jit
def answer_keys(pool: BranchPool) -> Int32[Array, " W"]:
    """Gives the key of each branch's latest revealed answer, in one compiled program.

    Args:
        pool: the pool.
    """
    return pool.answer_keys


# --- the driver -----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Decision:
    """One operation that changed something.

    Attributes:
        round: round of the controller; 0 is its start.
        action: ``open``, ``advance``, ``probe``, ``prune`` or ``read``.
        branches: the branches that it changed, by opening order.
        intervals: intervals that it read on each of them.
        answers: the latest revealed answer of each of them, None where there is none.
        tokens: tokens charged so far.
    """

    round: int
    action: str
    branches: list[int]
    intervals: list[int]
    answers: list[str | None]
    tokens: int


class Ended(NamedTuple):
    """An episode that is over.

    Attributes:
        answer: the answer given; None for no answer.
        leader: a branch that gives it; ``NONE`` without one.
        stop_reason: why the episode ended.
        rounds: rounds that were played.
        sequential_tokens: tokens that had to be generated one after another.
    """

    answer: str | None
    leader: int
    stop_reason: StopReason
    rounds: int
    sequential_tokens: int


def results_of(ended: Ended, pool: BranchPool) -> dict[str, int]:
    """Gives the results of an episode that was played one operation at a time, as a rollout gives them.

    Args:
        ended: how the episode ended.
        pool: the pool at its end.

    Returns:
        The columns of `autotts_jax.core.rollout.COLUMNS`.
    """
    return {name: int(column) for name, column in _spent(pool, ended.leader).items()} | {
        "sequential_tokens": ended.sequential_tokens,
        "rounds": ended.rounds,
        "stop_reason": int(ended.stop_reason),
    }


@jax.jit
def _spent(pool: BranchPool, leader: Scalar) -> dict[str, Scalar]:
    return {
        "answer": pool.answer_key(leader),
        "tokens": pool.tokens,
        "intervals": pool.intervals,
        "probes": pool.probes,
        "branches": pool.opened,
    }


class Stepper:
    """Passes operations to an executor, and reports each that changed something.

    Args:
        executor: carries out the operations.
        on_decision: called after every operation that changed something.

    Attributes:
        round: round of the controller.
    """

    def __init__(self, executor: Executor, on_decision: Callable[[Decision], None] | None = None):
        self.executor = executor
        self.round = 0
        self._tell = on_decision

    def carry_out(self, operation: Operation) -> None:
        """Carries out an operation.

        Args:
            operation: the operation.
        """
        if self._tell is None:
            self.executor.carry_out(operation)
            return
        before = jax.device_get(_look(self.executor.pool))
        self.executor.carry_out(operation)
        after = jax.device_get(_look(self.executor.pool))
        decision = decision_between(before, after, self.round, operation.action, self.executor.answers)
        if decision is not None:
            self._tell(decision)


class Visible(NamedTuple):
    """What decisions show of a pool; `look` takes it."""

    depth: Array
    revealed_depth: Array
    active: Array
    tokens: Array


def look(pool: BranchPool) -> Visible:
    """Takes of a pool what decisions show.

    Args:
        pool: the pool.

    Returns:
        Its depths, revealed depths, active branches and tokens.
    """
    return Visible(pool.depth, pool.revealed_depth, pool.active, pool.tokens)


_look = jax.jit(look)


def decision_between(
    before: Visible,
    after: Visible,
    round: int,  # noqa: A002
    action: str,
    answers: Callable[[list[int]], Iterable[str | None]],
) -> Decision | None:
    """Makes a decision of what a pool showed before and after.

    Args:
        before: what it showed before, as NumPy arrays.
        after: what it showed after.
        round: round of the controller.
        action: what was done.
        answers: gives the latest revealed answers of branches.

    Returns:
        The decision; None if nothing changed.
    """
    changed = np.zeros(len(after.depth), bool)
    for old, new in zip(before[:-1], after[:-1], strict=True):
        changed |= np.asarray(old != new)
    branches = np.flatnonzero(changed)
    if not branches.size:
        return None
    return Decision(
        round=round,
        action=action,
        branches=branches.tolist(),
        intervals=(after.depth - before.depth)[branches].tolist(),
        answers=list(answers(branches.tolist())),
        tokens=int(after.tokens),
    )


def play(
    controller: Controller,
    executor: Executor,
    on_decision: Callable[[Decision], None] | None = None,
    *,
    pause: Pause | None = None,
) -> Ended:
    """Plays an episode.

    Args:
        controller: the controller; its methods must keep the pool out of ``jax.lax`` control flow.
        executor: carries out its operations; nothing is opened yet.
        on_decision: called after every operation that changed something.
        pause: replaces what the controller remembers before each round by what this function returns, as in a
            rollout of one lane.

    Returns:
        How the episode ended.

    Raises:
        InputError: the controller has a field that cannot be traced, reads a signal that the pool does not
            show, or returned something else than `Controller` requires.
    """
    check_fields(controller)
    name = type(controller).__name__
    check_signals(controller.signals, executor.pool.signals, name, "this episode shows")
    kind, stepper = kind_of(controller), Stepper(executor, on_decision)
    memory, stop = _step(functools.partial(_start, controller, kind=kind), stepper)
    while stop == StopReason.RUNNING:
        if pause is not None:
            lanes = jax.tree.map(lambda leaf: leaf[None], memory)
            memory = jax.tree.map(lambda leaf: leaf[0], pause(lanes, np.full(1, stepper.round, np.int32)))
        stepper.round += 1
        memory, stop = _step(functools.partial(_round, controller, memory, stepper.round, kind=kind), stepper)
    end = jax.device_get(_end(controller, memory, executor.pool, kind=kind))
    leader, sequential_tokens = int(end.leader), int(end.sequential_tokens)
    if int(stop) not in set(StopReason):
        raise InputError(f"{name}.round returned the stop reason {int(stop)}; return a StopReason")
    if not NONE <= leader < end.opened:
        raise InputError(
            f"{name}.vote returned a Vote whose leader is {leader}; it must be one of the {end.opened} "
            f"opened branches, counted from 0, or {NONE} for none"
        )
    if not end.longest <= sequential_tokens <= end.tokens:
        raise InputError(
            f"{name}.sequential_tokens returned {sequential_tokens}; it must be between the {end.longest} "
            f"tokens of the longest branch and the {end.tokens} of all branches"
        )
    answer = None if leader == NONE else executor.answers([leader])[0]
    return Ended(answer, leader, StopReason(int(stop)), stepper.round, sequential_tokens)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class SteppedPool(_Protocol):
    """A `BranchPool` whose operations somebody else carries out.

    The pool after an operation is known only when it has been carried out. Until then asking for it raises
    `_NotKnownYet`; afterwards it is in ``later``. Pruning is known at once.

    Attributes:
        now: the pool as it is known.
        later: the pools after each of the next operations, as far as these have been carried out.
    """

    now: BranchPool
    later: tuple[BranchPool, ...] = ()

    def __getattr__(self, name: str) -> Any:
        if name == "now":  # while JAX rebuilds it
            raise AttributeError(name)
        return getattr(self.now, name)

    def open(self, count: Scalar, probe: bool = True) -> SteppedPool:
        check_argument("open", count, np.signedinteger)
        check_probe("open", probe)
        return self._ask(Operation("open", jnp.asarray(count), probe))

    def advance(self, count: Int[Array, " W"], probe: bool = True) -> SteppedPool:
        check_argument("advance", count, np.signedinteger, self.width)
        check_probe("advance", probe)
        return self._ask(Operation("advance", jnp.asarray(count), probe))

    def advance_rounds(
        self,
        count: Int[Array, " W"],
        rounds: Scalar,
        opening: Scalar = 0,
        most: Scalar | None = None,
        wait: Scalar = 0,
    ) -> tuple[SteppedPool, Int32[Array, ""]]:
        check_rounds(self.width, count, rounds, opening, most, wait)
        return self.advance(count), jnp.int32(1)

    def probe(self, mask: Bool[Array, " W"]) -> SteppedPool:
        check_argument("probe", mask, np.bool_, self.width)
        return self._ask(Operation("probe", mask))

    def prune(self, mask: Bool[Array, " W"]) -> SteppedPool:
        return dataclasses.replace(self, now=self.now.prune(mask))

    def read(self, count: Scalar) -> SteppedPool:
        check_argument("read", count, np.signedinteger)
        return self._ask(Operation("read", jnp.asarray(count)))

    def read_until(self, rule: VoteRule, count: Scalar) -> tuple[SteppedPool, Bool[Array, ""]]:
        check_read_until(rule, count)
        return read_one(self, rule, count)

    def _ask(self, operation: Operation) -> SteppedPool:
        if not self.later:
            raise _NotKnownYet(_Asked(operation, self.active))
        return SteppedPool(self.later[0], self.later[1:])  # type: ignore[abstract]


class _Asked(NamedTuple):
    """A controller asks for an operation, in a pool with these active branches."""

    operation: Operation
    active: Bool[Array, " W"]


class _Done(NamedTuple):
    """A controller's step is over, in a pool with these active branches."""

    memory: Memory
    stop: Int32[Array, ""]
    active: Bool[Array, " W"]


class _NotKnownYet(Exception):  # noqa: N818
    """A controller went on to something whose outcome is not known."""


def _step(step: Callable[[BranchPool], _Asked | _Done], stepper: Stepper) -> tuple[Memory, Int32[Array, ""]]:
    """Runs a step of a controller from one thing that it asks for to the next."""
    executor = stepper.executor
    pool = SteppedPool(executor.pool)  # type: ignore[abstract]
    while True:
        reached = step(pool)
        pruned = np.asarray(executor.pool.active) & ~np.asarray(reached.active)
        if pruned.any():
            stepper.carry_out(Operation("prune", pruned))
        if isinstance(reached, _Done):
            return reached.memory, reached.stop
        stepper.carry_out(reached.operation)
        pool = dataclasses.replace(pool, later=(*pool.later, executor.pool))


# Compiled once for each number of outcomes that are known. How far a step gets with them is found out by
# tracing: the exception leaves the controller's code with what it asked for.


@functools.partial(jax.jit, static_argnames="kind")
def _start(controller: Controller, pool: SteppedPool, kind: Any) -> _Asked | _Done:  # noqa: ARG001
    try:
        memory, pool = checked_start(controller, pool)
    except _NotKnownYet as unknown:
        return unknown.args[0]
    _check_latest(f"{type(controller).__name__}.start", pool)
    return _Done(memory, jnp.int32(StopReason.RUNNING), pool.active)


@functools.partial(jax.jit, static_argnames="kind")
def _round(
    controller: Controller,
    memory: Memory,
    rounds: Int[Array, ""],
    pool: SteppedPool,
    kind: Any,  # noqa: ARG001
) -> _Asked | _Done:
    try:
        memory, pool, stop = checked_round(controller, memory, pool)
    except _NotKnownYet as unknown:
        return unknown.args[0]
    _check_latest(f"{type(controller).__name__}.round", pool)
    return _Done(memory, end_of_round(stop, pool, rounds), pool.active)


def _check_latest(method: str, pool: SteppedPool) -> None:
    """Raises an `InputError` where a controller dropped the pool that an operation returned."""
    if pool.later:
        raise InputError(
            f"{method} returned a pool from before an operation that it asked for; go on with the pool that "
            "the operation returns, as in pool = pool.advance(…)"
        )


class _End(NamedTuple):
    """What a controller returns when an episode is over, and what that is checked against."""

    leader: Scalar
    sequential_tokens: Scalar
    opened: Scalar
    longest: Scalar
    tokens: Scalar


@functools.partial(jax.jit, static_argnames="kind")
def _end(
    controller: Controller,
    memory: Memory,
    pool: BranchPool,
    kind: Any,  # noqa: ARG001
) -> _End:
    return _End(
        leader=checked_vote(controller, memory, pool).leader,
        sequential_tokens=checked_sequential_tokens(controller, memory, pool),
        opened=pool.opened,
        longest=jnp.max(pool.branch_tokens),
        tokens=pool.tokens,
    )
