"""Many questions under one token budget: an allocator says which of them reads its next branch.

An allocator sees one question at a time, so what it says depends on how many branches the question has read,
and on nothing that other questions did. All that it can be asked is therefore asked first; then the questions
compete by what it said. One play serves every budget: a smaller one ends the same sequence of reads earlier.
"""

from __future__ import annotations

import abc
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Float32, Int, Int32

from autotts_jax.checks import check_int
from autotts_jax.core.arguments import described, is_array
from autotts_jax.core.compiling import COMPILER_OPTIONS
from autotts_jax.core.pool import ReplayPool
from autotts_jax.core.rollout import MAX_TOKENS, kind_of
from autotts_jax.core.view import Action, View
from autotts_jax.errors import InputError
from autotts_jax.replay.matrix import ProbeMatrix
from autotts_jax.replay.orders import BranchOrders
from autotts_jax.replay.signals import keep_signals
from autotts_jax.typing import Array, Scalar

NEVER = np.iinfo(np.int32).max
"""In `Readings.paid`: the read is not carried out under any of the budgets."""


class Allocator(abc.ABC):
    """Says how urgent it is that a question reads its next branch, in full.

    A subclass is a frozen dataclass registered as a pytree (`jax.tree_util.register_dataclass`) whose fields
    are numbers. They are traced, as is what a view holds: use ``jnp.where`` instead of ``if``.

    Attributes:
        signals: names of the signals that it reads by `View.signal`. Views show it no others.
    """

    signals: tuple[str, ...] = ()

    @abc.abstractmethod
    def index(self, view: View) -> Float32[Array, ""]:
        """Says how urgent the next read of a question is.

        Args:
            view: what the question has revealed; its opened branches are all read to their ends.

        Returns:
            A number, shape (); the question with the largest one is served first, of equals the earlier
            question. ``inf`` serves it before all others, ``-inf`` leaves it as it is.
        """


class Readings(NamedTuple):
    """What S seeds of a batch of Q questions can read, W branches each.

    Attributes:
        urgency: the index of each read, once those before it are done. Shape (S, Q, W).
        answer: the majority's answer id after 0 … W reads, ``NONE`` for none. Shape (S, Q, W + 1).
        cost: tokens of each read. Shape (S, Q, W).
    """

    urgency: Float[np.ndarray, "S Q W"]
    answer: Int[np.ndarray, "S Q W+1"]
    cost: Int[np.ndarray, "S Q W"]

    def after(
        self, reads: Int[np.ndarray, "B S Q"]
    ) -> tuple[Int[np.ndarray, "B S Q"], Int[np.ndarray, "B S Q"]]:
        """Looks up the tokens spent on each question after some reads of it, and its answer id.

        Args:
            reads: reads of each question, as `spend` gives them.
        """
        total = np.pad(self.cost.cumsum(axis=-1, dtype=np.int64), ((0, 0), (0, 0), (1, 0)))
        tokens, answer = (
            np.stack([np.take_along_axis(table, read[..., None], axis=-1)[..., 0] for read in reads])
            for table in (total, self.answer)
        )
        return tokens, answer


class _Round(NamedTuple):
    """Where one seed of a batch stands."""

    head: Float32[jax.Array, " Q"]
    reads: Int32[jax.Array, " Q"]
    paid: Int32[jax.Array, "Q W"]
    spent: Int32[jax.Array, ""]
    running: Bool[jax.Array, ""]


def read_through(allocator: Allocator, matrix: ProbeMatrix, orders: BranchOrders) -> Readings:
    """Reads every question to its last branch, and asks the allocator before each read.

    Args:
        allocator: the allocator.
        matrix: the probe matrix.
        orders: branch orders, a row a seed.

    Returns:
        What it said, and what the questions answer and cost.

    Raises:
        InputError: the allocator returned something other than a number, or reads a signal that the matrix
            lacks.
    """
    name = type(allocator).__name__
    matrix = keep_signals(matrix, allocator.signals, name)
    kind = kind_of(allocator)  # type: ignore[arg-type]
    urgency, answer, cost = map(np.asarray, _read_through(allocator, matrix, orders, kind=kind))
    if (missing := np.argwhere(np.isnan(urgency))).size:
        raise _no_number(name, missing[0, -1])
    return Readings(urgency, answer, cost)


def look(allocator: Allocator, matrix: ProbeMatrix, reads: int) -> tuple[float, int]:
    """Asks an allocator about a question of which some branches are known, the first ones.

    Args:
        allocator: the allocator.
        matrix: the question alone, its W branches in the order in which they are read.
        reads: how many of them are read.

    Returns:
        The index of the next read, ``-inf`` where none is left, and the id of the answer.

    Raises:
        InputError: the allocator returned something other than a number.
    """
    kind = kind_of(allocator)  # type: ignore[arg-type]
    index, answer = _look_at_one(allocator, matrix, jnp.int32(reads), kind=kind)
    if np.isnan(index):
        raise _no_number(type(allocator).__name__, reads)
    return -np.inf if reads == matrix.num_branches else float(index), int(answer)


def _no_number(name: str, reads: int) -> InputError:
    return InputError(
        f"{name}.index returned NaN after {reads} reads; return a number, -inf to leave a question as it is"
    )


def view_after(
    matrix: ProbeMatrix,
    question: Scalar,
    order: Int[Array, " W"],
    reads: Scalar,
    finals: Int[Array, "Q N"],
) -> View:
    """Shows a question of which some branches were read, as an allocator sees it."""
    pool = ReplayPool.begin(
        matrix,
        question,
        order,
        labels=False,
        revealed=False,
        unprobed=False,
        batches=False,
        finals=finals,
    )
    return pool.step(Action(read=reads)).view(reads)


def _look(allocator: Allocator, view: View) -> tuple[Array, Array]:
    """What an allocator says of a question, and what that answers."""
    index = allocator.index(view)
    if not is_array(index, np.floating) and not is_array(index, np.integer):
        raise InputError(
            f"{type(allocator).__name__}.index must return a number, shape (), not {described(index)}"
        )
    return jnp.asarray(index, jnp.float32), view.vote_finals().winner(view.answer_keys)


@functools.partial(jax.jit, static_argnames="kind", compiler_options=COMPILER_OPTIONS)
def _look_at_one(
    allocator: Allocator,
    matrix: ProbeMatrix,
    reads: Int32[Array, ""],
    *,
    kind: Any,  # noqa: ARG001
) -> tuple[Array, Array]:
    order = jnp.arange(matrix.num_branches, dtype=jnp.int32)
    return _look(allocator, view_after(matrix, 0, order, reads, matrix.finals()))


@functools.partial(jax.jit, static_argnames="kind", compiler_options=COMPILER_OPTIONS)
def _read_through(
    allocator: Allocator,
    matrix: ProbeMatrix,
    orders: BranchOrders,
    *,
    kind: Any,  # noqa: ARG001
) -> tuple[Array, Array, Array]:
    questions, finals = jnp.arange(matrix.num_questions), matrix.finals()

    def of_question(question: Array, order: Array) -> tuple[Array, Array]:
        return jax.lax.map(
            lambda reads: _look(allocator, view_after(matrix, question, order, reads, finals)),
            jnp.arange(orders.width + 1, dtype=jnp.int32),
        )

    def of_seed(row: Array) -> tuple[Array, Array, Array]:
        order = jnp.asarray(orders.table)[jnp.asarray(orders.group), row]
        index, answer = jax.vmap(of_question)(questions, order)
        cost = jnp.take_along_axis(jnp.asarray(matrix.tokens), order.astype(jnp.int32), axis=1)
        return index[:, :-1], answer, cost

    return jax.lax.map(of_seed, jnp.arange(orders.num_rows))


def spend(readings: Readings, budgets: Int[np.ndarray, " B"], at_once: int = 1) -> Int[np.ndarray, "B S Q"]:
    """Lets the questions of a batch compete for each of several budgets.

    Rounds follow each other. In each the ``at_once`` most urgent questions read a branch, in order of
    urgency, and each read is charged its tokens. The batch ends with the first read that the budget cannot
    pay, whose length nobody would have known, or when no question is urgent.

    Args:
        readings: what the questions can read.
        budgets: B token budgets.
        at_once: k, reads of a round, at most one a question.

    Returns:
        How many branches each question has read, by budget and seed.

    Raises:
        InputError: a budget is not positive, or more than can be counted; or ``at_once`` is not positive.
    """
    at_once = min(check_int("at_once", at_once, 1), readings.urgency.shape[1])
    most = MAX_TOKENS - at_once * int(readings.cost.max())
    budgets = np.array([check_int("a budget", budget, 1, most) for budget in budgets], np.int32)
    paid = np.asarray(_spend(readings.urgency, readings.cost, budgets.max(), at_once=at_once))
    return np.stack([(paid <= budget).sum(axis=-1) for budget in budgets])


def most_urgent(index: Float[Array, " Q"], at_once: int) -> tuple[Int[Array, " k"], Bool[Array, " k"]]:
    """Chooses the questions whose turn it is.

    Args:
        index: what an allocator says of each question; ``-inf`` of those that it leaves.
        at_once: k, how many questions read at a time (static).

    Returns:
        The k most urgent questions, of equals the earlier one first; and which of them are to read.
    """
    # Zeros of either sign are equal, as they are to everybody else.
    urgency, chosen = jax.lax.top_k(jnp.where(index == 0, 0.0, index), at_once)
    return chosen, urgency > -jnp.inf


def charge(
    cost: Int[Array, " k"], wanted: Bool[Array, " k"], spent: Scalar, budget: Scalar
) -> tuple[Int32[Array, " k"], Bool[Array, " k"]]:
    """Charges the reads of a round, in order of urgency, as long as the budget can pay them.

    Args:
        cost: tokens of each read.
        wanted: which of the reads are to be carried out.
        spent: tokens spent before.
        budget: the token budget.

    Returns:
        Tokens spent after each read, and which reads are paid. The batch ends where one is not.
    """
    total = spent + jnp.cumsum(jnp.where(wanted, cost, 0), dtype=jnp.int32)
    return total, wanted & (total <= budget)


@functools.partial(jax.jit, static_argnames="at_once")
def _spend(
    index: Float[Array, "S Q W"], cost: Int[Array, "S Q W"], budget: Int32[Array, ""], *, at_once: int
) -> Int32[Array, "S Q W"]:
    """Tokens spent in all once each read is paid, `NEVER` for reads that are not carried out."""
    # Nothing is left after the last read.
    index = jnp.pad(index, ((0, 0), (0, 0), (0, 1)), constant_values=-jnp.inf)
    seeds, questions, width = cost.shape

    def play(state: _Round, index: Array, cost: Array) -> _Round:
        chosen, wanted = most_urgent(state.head, at_once)
        wanted &= state.running
        place = state.reads[chosen]
        total, carried = charge(cost[chosen, place], wanted, state.spent, budget)
        after = place + carried
        return _Round(
            head=state.head.at[chosen].set(index[chosen, after]),
            reads=state.reads.at[chosen].set(after),
            paid=state.paid.at[chosen, jnp.where(carried, place, width)].set(total, mode="drop"),
            spent=jnp.max(jnp.where(carried, total, state.spent)),
            running=jnp.any(wanted) & jnp.all(wanted == carried),
        )

    start = _Round(
        head=index[:, :, 0],
        reads=jnp.zeros((seeds, questions), jnp.int32),
        paid=jnp.full((seeds, questions, width), NEVER),
        spent=jnp.zeros(seeds, jnp.int32),
        running=jnp.ones(seeds, bool),
    )
    return jax.lax.while_loop(
        lambda state: jnp.any(state.running), lambda state: jax.vmap(play)(state, index, cost), start
    ).paid
