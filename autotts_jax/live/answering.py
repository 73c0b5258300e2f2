"""Live answers: a language model writes the branches that a controller asks for.

A live episode is a replay of a probe matrix that is written just ahead of the controller: before an
operation, `Trajectories` write as far as the operation can reach, and what they wrote is entered in the
matrix; the core then carries the operation out. A controller therefore spends, sees and answers what it would
in the replay of a collection with the same seed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autotts_jax.checks import callback, whole
from autotts_jax.collect.answers import Extractor, extractor
from autotts_jax.collect.engine import Engine, Message
from autotts_jax.collect.grading import AnswerBook, Grader
from autotts_jax.collect.trajectories import Sampling, Trajectories, Usage, last_depth
from autotts_jax.core.pool import ReplayPool, StopReason
from autotts_jax.core.rollout import check_budget
from autotts_jax.core.stepping import Decision, Executor, Operation, apply_operation
from autotts_jax.errors import InputError
from autotts_jax.policies.players import as_player
from autotts_jax.policies.sealed.cast import SEALED, Sealing
from autotts_jax.replay.encoding import MAX_ANSWERS
from autotts_jax.replay.equivalence import ERROR
from autotts_jax.replay.matrix import NONE, ProbeMatrix


class BudgetError(InputError):
    """A token budget is too small for a single branch."""


@dataclasses.dataclass(frozen=True)
class Answer:
    """An answer, what it cost and how it came about.

    Attributes:
        answer: the answer, None where the controller has none.
        tokens: tokens charged as in replay: a branch that ends within its first interval is charged that
            interval.
        usage: what the engine did, probes included.
        sequential_tokens: tokens that had to be generated one after another, a proxy for latency.
        stop: why the episode ended.
        rounds: rounds of the controller.
        decisions: the operations of the controller, in order.
        texts: the text of each opened branch, in opening order.
    """

    answer: str | None
    tokens: int
    usage: Usage
    sequential_tokens: int
    stop: StopReason
    rounds: int
    decisions: list[Decision]
    texts: list[str]


def answer(
    engine: Engine,
    question: str | Sequence[Message],
    player: Any = "cmc@0.5",
    *,
    sampling: Sampling | None = None,
    answers: str | Extractor = "auto",
    max_branches: int = 64,
    budget: int | None = None,
    grader: Grader | None = None,
    sealing: Sealing = SEALED,
    on_decision: Callable[[Decision], None] | None = None,
    cancel: threading.Event | None = None,
) -> Answer:
    """Answers a question with a language model under a controller.

    Args:
        engine: the model, as `autotts_jax.collect.open_engine` opens it.
        question: the question, or a conversation of which the last message is the user's.
        player: a player with a single setting, as `autotts_jax.evaluate` takes it.
        sampling: how branches are sampled and probed; `Sampling()` when None.
        answers: finds the answer in a text: ``auto`` (the last box, else the last number), ``boxed``,
            ``number``, ``choice``, ``regex:PATTERN``, ``module:function``, or a function.
        max_branches: W, branches that can be opened; the environment of a policy has its own.
        budget: tokens that may be charged; None for no limit. As no length is known before a branch has
            ended, an interval is taken to cost Δ, and a full read ``sampling.max_tokens``.
        grader: tells which answers are equal, and is left open; one is opened for this question when None.
        sealing: how code from files and modules is run, as in `autotts_jax.evaluate`.
        on_decision: called after each decision.
        cancel: when it is set, the engine drops what is under way.

    Returns:
        The answer, what it cost and how it came about.

    Raises:
        BudgetError: the budget is too small for a single branch.
        Cancelled: ``cancel`` was set.
        EngineError: the engine cannot go on.
        InputError: the question does not fit into the model's context, a setting is wrong, or the player
            failed.

    Example:
        >>> import autotts_jax as at
        >>> from autotts_jax.collect import SimulatedEngine
        >>> found = at.answer(SimulatedEngine(), "What is 17 + 25?", "cmc@0.5", max_branches=8)
        >>> found.answer, found.tokens
        ('7', 2500)
    """
    if not callable(getattr(engine, "generate", None)):
        raise InputError(
            f"engine is {engine!r:.60}, but it must be an engine, as autotts_jax.collect.open_engine opens it"
        )
    if not _is_question(question):
        raise InputError(
            f"question is {question!r:.60}, but it must be text, or messages that end with the user's"
        )
    check_budget(budget)
    callback("on_decision", on_decision, "the `Decision`")
    max_branches = whole("max_branches", max_branches, 1)
    playing = as_player(player, sealing=sealing)
    playing.check_single()
    width = playing.width or max_branches
    playing.check(width)
    sampling = sampling or Sampling()
    asked = question if isinstance(question, str) else tuple(question)
    trajectories = Trajectories(engine, asked, sampling, extractor(answers), cancel)
    decisions: list[Decision] = []

    def note(decision: Decision) -> None:
        decisions.append(decision)
        if on_decision is not None:
            on_decision(decision)

    with Grader(1) if grader is None else contextlib.nullcontext(grader) as equal:
        executor = LiveExecutor(trajectories, sampling, AnswerBook(equal), width, budget)
        ended = playing.play_episode(executor, note)
    if budget is not None and budget < sampling.max_tokens and not executor.pool.opened:
        least = sampling.interval if budget < sampling.interval else sampling.max_tokens
        raise BudgetError(
            f"with a budget of {budget:,} tokens {playing.name} opens no branch; give {least:,} at least"
        )
    return Answer(
        answer=None if ended.answer == ERROR else ended.answer,
        tokens=int(executor.pool.tokens),
        usage=trajectories.usage,
        sequential_tokens=ended.sequential_tokens,
        stop=ended.stop,
        rounds=ended.rounds,
        decisions=decisions,
        texts=[trajectories.text(b) for b in range(int(executor.pool.opened))],
    )


def _is_question(question: Any) -> bool:
    if isinstance(question, str):
        return bool(question.strip())
    messages = list(question) if isinstance(question, Sequence) else []
    said = all(isinstance(message, Message) for message in messages)
    return bool(messages) and said and messages[-1].role == "user"


class LiveExecutor(Executor):
    """Has a language model write what operations need, and carries them out on what was written.

    Args:
        trajectories: the branches as they are written.
        sampling: how branches are sampled and probed.
        book: tells which answers are equal.
        width: W, branches that may be opened.
        budget: token budget; None for no limit.
    """

    pool: ReplayPool

    def __init__(
        self,
        trajectories: Trajectories,
        sampling: Sampling,
        book: AnswerBook,
        width: int,
        budget: int | None,
    ):
        self._trajectories = trajectories
        self._book = book
        self._spelling: dict[int, str] = {}
        self._interval = sampling.interval
        depths = sampling.max_depth
        # A branch that has not ended is taken to be as long as it can be.
        self._matrix = ProbeMatrix(
            answers=np.full((1, width, depths), NONE, np.int16),
            lengths=np.full((1, width), depths - 1, np.int32),
            tokens=np.full((1, width), sampling.max_tokens, np.int32),
            gold=np.full(1, NONE, np.int16),
            interval=np.full(1, sampling.interval, np.int32),
            cell=np.zeros(1, np.int32),
            vocabulary=min(width * depths + 1, MAX_ANSWERS),
        )
        limit = None if budget is None else jnp.int32(budget)
        order = jnp.arange(width, dtype=jnp.int32)
        self.pool = ReplayPool.begin(self._matrix, 0, order, limit, equivalence=False)

    def carry_out(self, operation: Operation) -> None:
        """Has the branches written as far as an operation reads them, and carries it out."""
        depth, active = np.asarray(self.pool.depth), np.asarray(self.pool.active)
        upto: dict[int, int] = {}
        if operation.action == "probe":
            upto = {
                b: int(depth[b]) for b in np.flatnonzero(np.asarray(operation.argument) & active).tolist()
            }
            self._trajectories.force(upto)
        elif operation.action != "prune":
            planned = np.asarray(apply_operation(self.pool, operation).depth)
            upto = {b: int(planned[b]) for b in np.flatnonzero(planned - depth).tolist()}
            self._trajectories.read(upto, operation.probe and operation.action != "read")
            # No more than was planned, even where branches that ended early have made room for it.
            wanted = planned - depth if operation.action == "advance" else np.asarray(len(upto))
            operation = dataclasses.replace(operation, argument=wanted)
        self._enter(upto)
        self.pool = apply_operation(self.pool, operation)

    def answers(self, branches: Sequence[int]) -> list[str | None]:
        """Spells the latest revealed answers of branches; ``ERR`` where a text holds none."""
        keys = np.asarray(_answer_keys(self.pool))
        return [self._spelling.get(int(keys[branch])) for branch in branches]

    def _enter(self, upto: Mapping[int, int]) -> None:
        """Puts what is known of branches, up to a depth each, into the matrix."""
        for b, depth in upto.items():
            written = self._trajectories[b]
            if written.ended:
                self._matrix.tokens[0, b] = len(written.tokens)
                self._matrix.lengths[0, b] = last_depth(len(written.tokens), self._interval) - 1
            for k in range(min(depth, self._matrix.lengths[0, b] + 1)):
                probe = self._trajectories.at(b, k + 1)
                if probe and self._matrix.answers[0, b, k] == NONE:
                    self._matrix.answers[0, b, k] = self._id(probe.answer)
        # A copy, which nobody writes to while it is on its way to the device.
        matrix = jax.tree.map(np.copy, self._matrix)
        self.pool = _with_longer_matrix(self.pool, matrix)

    def _id(self, answer: str) -> int:
        """The id of an answer; ``ERR`` is an answer like any other."""
        (label,) = self._book.ids([answer])
        self._spelling.setdefault(label + 1, answer)
        return label + 1


# Compiled once for a width and a number of depths, whatever the controller.
_with_longer_matrix = jax.jit(ReplayPool.with_longer_matrix)
_answer_keys = jax.jit(lambda pool: pool.answer_keys)
