"""Controllers run live: what they ask of a pool of branches, a language model writes.

The accounting is the replay core's. A live episode is a replay of a probe matrix that is written just ahead
of the controller: before an operation, `Trajectories` write as far as it can reach, and what they wrote is
entered in the matrix; the core then carries the operation out. A controller therefore spends, sees and
answers what it would in the replay of a collection with the same seed.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int

from autotts_jax.collect.answers import Extractor, extractor
from autotts_jax.collect.engine import Engine
from autotts_jax.collect.grading import AnswerBook, Grader
from autotts_jax.collect.trajectories import Sampling, Trajectories, Usage, last_depth
from autotts_jax.core import pool as branch_pool
from autotts_jax.core import stepping
from autotts_jax.core.controller import Controller
from autotts_jax.core.pool import BranchPool, ReplayPool, StopReason
from autotts_jax.core.rollout import check_budget
from autotts_jax.core.stepping import Operation, SteppedPool
from autotts_jax.replay.encoding import MAX_ANSWERS
from autotts_jax.replay.equivalence import ERROR
from autotts_jax.replay.matrix import NONE, ProbeMatrix
from autotts_jax.typing import Array

FIELDS = dataclasses.fields(ReplayPool)
_ACTIONS = {
    stepping.Open: "open",
    stepping.Advance: "advance",
    stepping.Probe: "probe",
    stepping.Read: "read",
}


@dataclasses.dataclass(frozen=True)
class Decision:
    """Something that a controller did.

    Attributes:
        action: ``open``, ``advance``, ``probe``, ``read`` or ``prune``.
        branches: the branches that it changed, by opening order.
        answers: what they answer now, ``ERR`` where no answer was found, None where none was asked for.
        tokens: tokens charged so far.
    """

    action: str
    branches: list[int]
    answers: list[str | None]
    tokens: int


@dataclasses.dataclass(frozen=True)
class Answer:
    """What came of a question.

    Attributes:
        answer: the answer, None where the controller has none.
        tokens: tokens charged, as a replay would: a branch that ends within its first interval is charged
            that interval.
        usage: what the engine really did, probes included.
        sequential_tokens: the controller's latency proxy.
        stop: why it ended.
        rounds: rounds of the controller.
        decisions: what it did, in order.
        texts: what each opened branch has written, in opening order.
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
    question: str,
    controller: Controller,
    grader: Grader,
    *,
    sampling: Sampling | None = None,
    answers: str | Extractor = "auto",
    max_branches: int = 64,
    budget: int | None = None,
    on_decision: Callable[[Decision], None] | None = None,
    cancel: threading.Event | None = None,
) -> Answer:
    """Answers a question with a controller.

    Args:
        engine: the model.
        question: the question.
        controller: any controller that runs in replay.
        grader: tells which answers are equal.
        sampling: how branches are sampled and probed.
        answers: finds the answer in a text, as `answers.extractor` takes it.
        max_branches: W.
        budget: tokens that may be charged; None for no limit. As no length is known before a branch has
            ended, an interval is taken to cost Δ, and a full read ``sampling.max_tokens``.
        on_decision: called after each decision.
        cancel: when it is set, the engine drops what is under way.

    Raises:
        Cancelled: ``cancel`` was set.
        EngineError: the engine cannot go on.
        InputError: the question does not fit into the model's context, or a setting is wrong.
    """
    check_budget(budget)
    sampling = sampling or Sampling()
    trajectories = Trajectories(engine, question, sampling, extractor(answers), cancel)
    history = controller.needs_history
    episode = _Episode(trajectories, sampling, AnswerBook(grader), max_branches, budget, history, on_decision)
    game = stepping.play(controller, episode.look(), episode.budget_spent)
    try:
        asked = next(game)
        while True:
            asked = game.send(episode.carry_out(asked))
    except StopIteration as over:
        ended: stepping.Ended = over.value
    episode.prune(ended.pool)
    return Answer(
        answer=episode.text(int(ended.vote.leader)),
        tokens=int(ended.pool.tokens),
        usage=trajectories.usage,
        sequential_tokens=ended.sequential_tokens,
        stop=ended.stop,
        rounds=ended.rounds,
        decisions=episode.decisions,
        texts=[trajectories.text(b) for b in range(int(ended.pool.opened))],
    )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LivePool(SteppedPool, ReplayPool):
    """The pool that a controller sees: a replay's, over what was written so far."""

    later: tuple[LivePool, ...] = ()


class _Episode:
    """A pool over the matrix that is being written, and the trajectories that it is written from."""

    def __init__(
        self,
        trajectories: Trajectories,
        sampling: Sampling,
        book: AnswerBook,
        width: int,
        budget: int | None,
        history: bool,
        on_decision: Callable[[Decision], None] | None,
    ):
        self._trajectories = trajectories
        self._book = book
        self._spelling: dict[int, str] = {}
        self._interval = sampling.interval
        self._tell = on_decision
        self.decisions: list[Decision] = []
        depths = sampling.max_depth
        # What has not ended is taken to be as long as can be.
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
        self._pool = ReplayPool.begin(self._matrix, 0, order, limit, history=history, twins=False)

    def look(self) -> LivePool:
        """What a controller sees."""
        return LivePool(**{field.name: getattr(self._pool, field.name) for field in FIELDS})

    def budget_spent(self) -> bool:
        """Whether the budget alone forbids to go on."""
        return bool(_budget_spent(self._pool))

    def text(self, branch: int) -> str | None:
        """The answer of a branch, None for none."""
        label = NONE if branch == NONE else int(_answer_ids(self._pool)[branch])
        found = self._spelling.get(label, ERROR)
        return None if found == ERROR else found

    def prune(self, pool: BranchPool) -> None:
        """Gives up what is given up in ``pool``."""
        given_up = np.flatnonzero(np.asarray(self._pool.active) & ~np.asarray(pool.active))
        self._pool = _prune(self._pool, np.asarray(pool.active))
        self._note("prune", given_up.tolist())

    def carry_out(self, asked: Operation) -> LivePool:
        """Does what a controller asks for."""
        self.prune(asked.pool)
        action = _ACTIONS[type(asked)]
        probe = bool(asked.probe) if isinstance(asked, stepping.Open | stepping.Advance) else False
        depth, active = np.asarray(self._pool.depth), np.asarray(self._pool.active)
        if isinstance(asked, stepping.Probe):
            wanted = np.asarray(asked.wanted)
            upto = {b: int(depth[b]) for b in np.flatnonzero(wanted & active).tolist()}
            self._trajectories.force(upto)
        else:
            planned = np.asarray(_act(self._pool, np.asarray(asked.wanted), action, probe).depth)
            upto = {b: int(planned[b]) for b in np.flatnonzero(planned - depth).tolist()}
            self._trajectories.read(upto, probe)
            # No more than was planned for, even where ends that are known now have made room for it.
            wanted = planned - depth if action == "advance" else np.asarray(len(upto))
        self._enter(upto)
        self._pool = _act(self._pool, wanted, action, probe)
        self._note(action, list(upto))
        return self.look()

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
        self._pool = _regrown(self._pool, matrix)

    def _id(self, answer: str) -> int:
        """The id of an answer; ``ERR`` is an answer like any other."""
        (label,) = self._book.label([answer])
        self._spelling.setdefault(label + 1, answer)
        return label + 1

    def _note(self, action: str, branches: Sequence[int]) -> None:
        if not branches:
            return
        ids = np.asarray(_answer_ids(self._pool))
        answers = [self._spelling.get(int(ids[b])) for b in branches]
        self.decisions.append(Decision(action, list(branches), answers, int(self._pool.tokens)))
        if self._tell is not None:
            self._tell(self.decisions[-1])


# Compiled once for a width and a number of depths, whatever the controller.


@functools.partial(jax.jit, static_argnames=("action", "probe"))
def _act(
    pool: ReplayPool, wanted: Int[Array, "..."] | Bool[Array, "..."], action: str, probe: bool
) -> ReplayPool:
    if action in ("open", "advance"):
        return getattr(pool, action)(wanted, probe)
    return getattr(pool, action)(wanted)


@jax.jit
def _regrown(pool: ReplayPool, matrix: ProbeMatrix) -> ReplayPool:
    return branch_pool.regrown(pool, matrix)


@jax.jit
def _prune(pool: ReplayPool, kept: Bool[Array, " W"]) -> ReplayPool:
    return pool.prune(~kept)


_budget_spent = jax.jit(branch_pool.budget_spent)
_answer_ids = jax.jit(branch_pool.answer_ids)
