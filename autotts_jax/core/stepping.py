"""Controllers played one operation at a time, against a pool whose operations somebody else carries out.

A rollout hands a controller a pool that carries out what it asks for at once. Where that takes a step of an
environment or tokens of a language model, `play` says what is asked for, and goes on when it is told what it
led to.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Int

from autotts_jax.core.controller import Controller, Memory
from autotts_jax.core.mdp import Scalar
from autotts_jax.core.pool import BranchPool, StopReason
from autotts_jax.core.rollout import ROUND_LIMIT, kind_of
from autotts_jax.core.votes import Vote
from autotts_jax.typing import Array

if TYPE_CHECKING:
    _Pool = BranchPool
else:
    _Pool = object  # the protocol's properties would stand in the way of a dataclass's fields


class SteppedPool(_Pool):
    """A `BranchPool` whose operations somebody else carries out.

    What they lead to is known only then. Until then asking for it raises `_NotKnownYet`; afterwards it is in
    ``later``. Pruning needs nothing carried out to be known.

    Attributes:
        later: what the next operations led to, as far as they were carried out.
    """

    later: tuple[Self, ...]

    def open(self, count: Scalar, probe: bool = True) -> Self:
        return self._ask(Open(self, jnp.asarray(count), jnp.asarray(probe)))

    def advance(self, count: Int[Array, " W"], probe: bool = True) -> Self:
        return self._ask(Advance(self, jnp.asarray(count), jnp.asarray(probe)))

    def probe(self, mask: Bool[Array, " W"]) -> Self:
        return self._ask(Probe(self, mask))

    def read(self, count: Scalar) -> Self:
        return self._ask(Read(self, jnp.asarray(count)))

    def _ask(self, asked: Operation) -> Self:
        if not self.later:
            raise _NotKnownYet(asked)
        return dataclasses.replace(self.later[0], later=self.later[1:])  # type: ignore[type-var]


class Open(NamedTuple):
    """A controller asks to open branches, and to probe them."""

    pool: SteppedPool
    wanted: Int[Array, ""]
    probe: Bool[Array, ""]


class Advance(NamedTuple):
    """A controller asks to read on, and to probe at each interval."""

    pool: SteppedPool
    wanted: Int[Array, " W"]
    probe: Bool[Array, ""]


class Probe(NamedTuple):
    """A controller asks for the answers where branches are."""

    pool: SteppedPool
    wanted: Bool[Array, " W"]


class Read(NamedTuple):
    """A controller asks to open branches and to read them to their ends."""

    pool: SteppedPool
    wanted: Int[Array, ""]


Operation = Open | Advance | Probe | Read
"""An operation, and the pool that it was asked of."""


class Ended(NamedTuple):
    """An episode is over.

    Attributes:
        pool: the branches at its end.
        vote: the vote whose winner the controller answers.
        stop: why it ended.
        rounds: rounds that were played.
        sequential_tokens: the controller's latency proxy.
    """

    pool: SteppedPool
    vote: Vote
    stop: StopReason
    rounds: int
    sequential_tokens: int


def play(
    controller: Controller, pool: SteppedPool, budget_spent: Callable[[], bool]
) -> Generator[Operation, SteppedPool, Ended]:
    """Plays an episode: yields what the controller asks for, and is sent what that led to.

    Args:
        controller: the controller; its methods must leave the pool out of ``jax.lax`` control flow.
        pool: the pool, in which nothing is opened.
        budget_spent: whether a token budget, and nothing else, forbids to open and to read on.
    """
    kind = kind_of(controller)
    memory, pool, stop = yield from _carry_out(_start, controller, None, pool, kind)
    rounds = 0
    while stop == StopReason.RUNNING:
        memory, pool, stop = yield from _carry_out(_round, controller, memory, pool, kind)
        rounds += 1
        if stop == StopReason.RUNNING and budget_spent():
            stop = StopReason.BUDGET
        elif stop == StopReason.RUNNING and rounds >= ROUND_LIMIT:
            stop = StopReason.ROUND_LIMIT
    vote, sequential = _end(controller, memory, pool, kind)
    return Ended(pool, vote, StopReason(int(stop)), rounds, int(sequential))


class _Done(NamedTuple):
    """A controller's step is over."""

    memory: Memory
    pool: SteppedPool
    stop: Scalar


class _NotKnownYet(Exception):  # noqa: N818
    """A controller went on to something whose outcome is not known."""


def _carry_out(
    step: Callable[..., Operation | _Done],
    controller: Controller,
    memory: Memory,
    pool: SteppedPool,
    kind: Any,
) -> Generator[Operation, SteppedPool, _Done]:
    """Runs a step of the controller from one thing that it asks for to the next."""
    while not isinstance(asked := step(controller, memory, pool, kind), _Done):
        after = yield asked
        pool = dataclasses.replace(pool, later=(*pool.later, after))  # type: ignore[type-var]
    return asked


# Compiled once for each number of outcomes that are known. How far a step gets with them is found out by
# tracing: the exception leaves the controller's code with what it asked for.


@functools.partial(jax.jit, static_argnames="kind")
def _start(controller: Controller, memory: None, pool: SteppedPool, kind: Any) -> Operation | _Done:  # noqa: ARG001
    return _reach(lambda pool: (*controller.start(pool), StopReason.RUNNING), pool)


@functools.partial(jax.jit, static_argnames="kind")
def _round(controller: Controller, memory: Memory, pool: SteppedPool, kind: Any) -> Operation | _Done:  # noqa: ARG001
    return _reach(lambda pool: controller.round(memory, pool), pool)


def _reach(step: Callable[[SteppedPool], tuple], pool: SteppedPool) -> Operation | _Done:
    try:
        return _Done(*step(pool))
    except _NotKnownYet as unknown:
        return unknown.args[0]


@functools.partial(jax.jit, static_argnames="kind")
def _end(
    controller: Controller,
    memory: Memory,
    pool: SteppedPool,
    kind: Any,  # noqa: ARG001
) -> tuple[Vote, Scalar]:
    return controller.vote(memory, pool), controller.sequential_tokens(memory, pool)
