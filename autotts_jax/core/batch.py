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
from autotts_jax.typing import Array

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
        raise InputError(
            f"{name}.index returned NaN after {missing[0, -1]} reads; return a number, -inf to leave a "
            "question as it is"
        )
    return Readings(urgency, answer, cost)


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

        def after(reads: Array) -> tuple[Array, Array]:
            view = pool.step(Action(read=reads)).view(reads)
            index = allocator.index(view)
            if not is_array(index, np.floating) and not is_array(index, np.integer):
                raise InputError(
                    f"{type(allocator).__name__}.index must return a number, shape (), not {described(index)}"
                )
            return jnp.asarray(index, jnp.float32), view.vote_finals().winner(view.answer_keys)

        return jax.lax.map(after, jnp.arange(orders.width + 1))

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


@functools.partial(jax.jit, static_argnames="at_once")
def _spend(
    index: Float[Array, "S Q W"], cost: Int[Array, "S Q W"], budget: Int32[Array, ""], *, at_once: int
) -> Int32[Array, "S Q W"]:
    """Tokens spent in all once each read is paid, `NEVER` for reads that are not carried out."""
    # Zeros of either sign are equal, as they are to everybody else; and nothing is left after the last read.
    index = jnp.where(index == 0, 0.0, index)
    index = jnp.pad(index, ((0, 0), (0, 0), (0, 1)), constant_values=-jnp.inf)
    seeds, questions, width = cost.shape

    def play(state: _Round, index: Array, cost: Array) -> _Round:
        urgency, chosen = jax.lax.top_k(state.head, at_once)
        place = state.reads[chosen]
        wanted = state.running & (urgency > -jnp.inf)
        total = state.spent + jnp.cumsum(jnp.where(wanted, cost[chosen, place], 0), dtype=jnp.int32)
        carried = wanted & (total <= budget)
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
