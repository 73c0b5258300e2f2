"""The stepping driver: one episode of a controller, one look at a time.

A rollout carries actions out at once. Where they take a step of an environment or tokens of a language model,
`play` passes their parts to an `Executor`. Traces and live episodes are played this way.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int32

from autotts_jax.core import mdp
from autotts_jax.core.controller import (
    Controller,
    Memory,
    check_fields,
    checked_act,
    checked_answer,
    checked_init,
)
from autotts_jax.core.pool import ReplayPool
from autotts_jax.core.rollout import Pause, end_of_round, kind_of
from autotts_jax.core.view import Action, StopReason, View
from autotts_jax.core.votes import pack_bits
from autotts_jax.errors import InputError
from autotts_jax.replay.matrix import NONE
from autotts_jax.replay.signals import check_signals
from autotts_jax.typing import Array, Scalar


def parts(action: Action, width: int) -> Iterator[tuple[str, Action]]:
    """Takes an action apart, in the order in which its parts are carried out.

    Yields:
        The name of each part that does something, and an action that has this part alone.
    """
    action = jax.tree.map(np.asarray, action)
    rest = {} if action.probe is None else {"probe": np.zeros(width, bool)}
    for name in ("prune", "open", "advance", "read"):
        argument = getattr(action, name)
        if argument is not None and np.any(argument if name == "prune" else argument > 0):
            yield name, Action(**{name: argument}, **rest)
    if action.probe is not None and action.probe.any():
        yield "probe", Action(probe=action.probe)


class Executor(abc.ABC):
    """Carries out actions in one episode, in replay, on a running model or in an environment."""

    @abc.abstractmethod
    def view(self, rounds: int = 0) -> View:
        """Shows the episode.

        Args:
            rounds: rounds that were played.
        """

    @abc.abstractmethod
    def carry_out(self, name: str, action: Action) -> None:
        """Carries out a part of an action; what of it is inadmissible is ignored.

        Args:
            name: ``prune``, ``open``, ``advance``, ``read`` or ``probe``.
            action: an action that has this part alone.
        """

    @abc.abstractmethod
    def settle(self) -> None:
        """Labels what the parts of an action have revealed, when all are carried out."""

    @abc.abstractmethod
    def answers(self, branches: Sequence[int]) -> list[str | None]:
        """Spells the latest revealed answers of branches.

        Args:
            branches: positions of the branches in opening order.

        Returns:
            The text of each; None where there is no answer.
        """


class ReplayExecutor(Executor):
    """Carries out actions on a `ReplayPool`.

    Args:
        pool: the pool, in which nothing is opened, as `begin_pool` makes it.
        spell: gives the text of an answer id, None for no answer.

    Attributes:
        pool: the pool after all actions so far.
    """

    pool: ReplayPool

    def __init__(self, pool: ReplayPool, spell: Callable[[int], str | None]):
        self.pool = pool
        self._spell = spell
        self._settled = pool.state

    def view(self, rounds: int = 0) -> View:
        """Shows the episode."""
        return view_of(self.pool, rounds)

    def carry_out(self, name: str, action: Action) -> None:  # noqa: ARG002
        """Carries out a part of an action at once."""
        self.pool = apply_action(self.pool, action)

    def settle(self) -> None:
        """Labels what an action has revealed."""
        self.pool, self._settled = _labelled(self.pool, self._settled), self.pool.state

    def answers(self, branches: Sequence[int]) -> list[str | None]:
        """Spells the latest revealed answers of branches."""
        keys = np.asarray(_answer_keys(self.pool))
        return [self._spell(int(keys[branch])) for branch in branches]


begin_pool = jax.jit(ReplayPool.begin, static_argnames="equivalence")
"""`ReplayPool.begin` in one compiled program."""


def view_of(pool: ReplayPool, rounds: int = 0) -> View:
    """Makes a view of a pool in one compiled program."""
    return _view(pool, np.int32(rounds))


_view = jax.jit(functools.partial(ReplayPool.view, detached=True))
_labelled = jax.jit(ReplayPool.labelled)
_apply = jax.jit(ReplayPool.carry_out)
_answer_keys = jax.jit(lambda pool: pool.answer_keys)


def apply_action(pool: ReplayPool, action: Action) -> ReplayPool:
    """Carries out an action, or a part of one; compiled once, and again for those that say what is probed.

    Returns:
        The pool after it.
    """
    none, zero = np.zeros(pool.width, bool), np.zeros(pool.width, np.int32)
    given = Action(
        stop=np.asarray(StopReason.RUNNING, np.int32),
        prune=none if action.prune is None else np.asarray(action.prune),
        open=np.asarray(action.open, np.int32),
        advance=zero if action.advance is None else np.asarray(action.advance, np.int32),
        read=np.asarray(action.read, np.int32),
        probe=None if action.probe is None else np.asarray(action.probe),
        repeat=np.asarray(1, np.int32),
    )
    return _apply(pool, given)


# --- the driver -----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Decision:
    """One part of an action that changed something.

    Attributes:
        round: round of the controller, counted from 1; 0 is what it does before its first look.
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


def results_of(ended: Ended, view: View) -> dict[str, int]:
    """Gives the results of an episode that was played one look at a time, as a rollout gives them.

    Returns:
        The columns of `autotts_jax.core.rollout.COLUMNS`.
    """
    return {name: int(column) for name, column in _spent(view, ended.leader).items()} | {
        "sequential_tokens": ended.sequential_tokens,
        "rounds": ended.rounds,
        "stop_reason": int(ended.stop_reason),
    }


@jax.jit
def _spent(view: View, leader: Scalar) -> dict[str, Scalar]:
    return {
        "answer": view.answer_key(leader),
        "tokens": view.tokens,
        "intervals": view.intervals,
        "probes": view.probes,
        "branches": view.opened,
    }


class Stepper:
    """Passes parts of actions to an executor, and reports each that changed something.

    Args:
        executor: carries out the actions.
        on_decision: called after every part that changed something.

    Attributes:
        round: round of the controller.
    """

    def __init__(self, executor: Executor, on_decision: Callable[[Decision], None] | None = None):
        self.executor = executor
        self.round = 0
        self._tell = on_decision
        self._starts: Bool[np.ndarray, " W"] | None = None

    def carry_out(self, action: Action) -> None:
        """Carries out an action part by part.

        Args:
            action: the action.
        """
        before = self.executor.view()
        for name, part in parts(action, before.width):
            self.executor.carry_out(name, part)
            if self._tell is None and name not in ("prune", "open", "read"):
                continue
            after = self.executor.view()
            self._note_batches(name, before, int(after.opened))
            self._report(name, before, after)
            before = after
        self.executor.settle()

    def _report(self, name: str, before: View, after: View) -> None:
        """Tells of a part that changed something."""
        if self._tell is None:
            return
        changed = np.zeros(before.width, bool)
        for shown in ("depth", "revealed_depth", "active"):
            changed |= np.asarray(getattr(before, shown)) != np.asarray(getattr(after, shown))
        branches = np.flatnonzero(changed)
        if branches.size:
            self._tell(
                Decision(
                    round=self.round,
                    action=name,
                    branches=branches.tolist(),
                    intervals=(np.asarray(after.depth) - np.asarray(before.depth))[branches].tolist(),
                    answers=self.executor.answers(branches.tolist()),
                    tokens=int(np.sum(after.branch_tokens)),
                )
            )

    @property
    def sequential_tokens(self) -> int:
        """Tokens that had to be generated one after another, see `mdp.sequential_tokens`."""
        tokens = self.executor.view().branch_tokens
        starts = np.zeros(len(tokens), bool) if self._starts is None else self._starts
        return int(_sequential_tokens(jnp.asarray(tokens), pack_bits(starts)))

    def _note_batches(self, name: str, before: View, last: int) -> None:
        if self._starts is None:
            self._starts = np.zeros(before.width, bool)
        first = int(before.opened)
        if last > first and (name == "read" or (name == "open" and not np.any(before.live))):
            self._starts[first] = True


_sequential_tokens = jax.jit(mdp.sequential_tokens)


class Decider(Protocol):
    """Decides in an episode that is played one look at a time, as a controller in whatever process does."""

    name: str
    """What it is called in messages."""

    signals: tuple[str, ...]
    """Names of the signals that it reads."""

    def init(self, view: View) -> tuple[Memory, Action | None]:
        """What it remembers at first, and what is to be done before the first look."""

    def act(self, memory: Memory, view: View) -> tuple[Memory, Action]:
        """What it remembers from now on, and what is to be done; `end_of_round` has decided on its `stop`."""

    def answer(self, memory: Memory, view: View) -> int:
        """The leader of the vote that is the answer."""


class Compiled:
    """A controller in this process.

    Raises:
        InputError: the controller has a field that cannot be traced.
    """

    def __init__(self, controller: Controller, pause: Pause | None = None):
        check_fields(controller)
        self.name = type(controller).__name__
        self.signals = controller.signals
        self._controller, self._pause, self._kind = controller, pause, kind_of(controller)

    def init(self, view: View) -> tuple[Memory, Action | None]:
        """Calls `Controller.init`."""
        memory, action = _init(self._controller, view, kind=self._kind)
        return memory, jax.device_get(action)

    def act(self, memory: Memory, view: View) -> tuple[Memory, Action]:
        """Calls `Controller.act`."""
        if self._pause is not None:
            lanes = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], (memory, view))
            memory = jax.tree.map(lambda leaf: leaf[0], self._pause(*lanes))
        memory, action = _act(self._controller, memory, view, kind=self._kind)
        return memory, jax.device_get(action)

    def answer(self, memory: Memory, view: View) -> int:
        """Calls `Controller.answer`."""
        return int(_answer(self._controller, memory, view, kind=self._kind))


def play(
    controller: Controller | Decider,
    executor: Executor,
    on_decision: Callable[[Decision], None] | None = None,
    *,
    pause: Pause | None = None,
) -> Ended:
    """Plays an episode.

    Returns:
        How the episode ended.

    Raises:
        InputError: the controller has a field that cannot be traced, reads a signal that the episode does not
            show, or returned something else than `Controller` requires.
    """
    decider: Decider = Compiled(controller, pause) if isinstance(controller, Controller) else controller
    name, view = decider.name, executor.view()
    check_signals(decider.signals, view.signals, name, "this episode shows")
    stepper = Stepper(executor, on_decision)
    memory, action = decider.init(view)
    if action is not None:
        stepper.carry_out(action)
        view = executor.view()
    rounds = 0
    while True:
        memory, action = decider.act(memory, view)
        if action.stop != StopReason.RUNNING:
            break
        rounds = stepper.round = rounds + 1
        stepper.carry_out(action)
        view = executor.view(rounds)
    stop, leader = int(action.stop), decider.answer(memory, view)
    if stop not in set(StopReason):
        raise InputError(f"{name}.act returned the stop reason {stop}; return a StopReason")
    if not NONE <= leader < view.opened:
        raise InputError(
            f"{name}.answer returned a Vote whose leader is {leader}; it must be one of the {view.opened} "
            f"opened branches, counted from 0, or {NONE} for none"
        )
    answer = None if leader == NONE else executor.answers([leader])[0]
    return Ended(answer, leader, StopReason(stop), rounds, stepper.sequential_tokens)


@functools.partial(jax.jit, static_argnames="kind")
def _init(controller: Controller, view: View, kind: Any) -> tuple[Memory, Action | None]:  # noqa: ARG001
    return checked_init(controller, view)


@functools.partial(jax.jit, static_argnames="kind")
def _act(
    controller: Controller,
    memory: Memory,
    view: View,
    kind: Any,  # noqa: ARG001
) -> tuple[Memory, Action]:
    memory, action = checked_act(controller, memory, view)
    return memory, action._replace(stop=end_of_round(action, view))


@functools.partial(jax.jit, static_argnames="kind")
def _answer(
    controller: Controller,
    memory: Memory,
    view: View,
    kind: Any,  # noqa: ARG001
) -> Int32[Array, ""]:
    return jnp.asarray(checked_answer(controller, memory, view).leader)
