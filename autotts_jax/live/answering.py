"""Live answers: a language model writes the branches that a controller asks for.

A live episode is a replay of a probe matrix that is written just ahead of the controller: before an action,
`Trajectories` write as far as the action can reach, and what they wrote is entered in the matrix; the core
then carries the action out. A controller therefore spends, sees and answers what it would
in the replay of a collection with the same seed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from autotts_jax.checks import check_bool, check_callback, check_int, check_text
from autotts_jax.collect.answers import Extractor, extractor
from autotts_jax.collect.engine import ChatMessage, Engine, EngineError, Finish, check_is_engine, writes_whole
from autotts_jax.collect.grader import Form, Grader
from autotts_jax.collect.graders import MATH, open_grader
from autotts_jax.collect.trajectories import (
    Sampling,
    Trajectories,
    Usage,
    check_differing,
    fitting_tokens,
    last_depth,
)
from autotts_jax.core.forks import refuse_forks
from autotts_jax.core.pool import ReplayPool
from autotts_jax.core.rollout import MAX_TOKENS, check_budget
from autotts_jax.core.stepping import Decision, Ended, ReplayExecutor, Stepper, apply_action, begin_pool
from autotts_jax.core.view import Action, StopReason
from autotts_jax.core.votes import MOST_BRANCHES, confidence_table
from autotts_jax.errors import InputError
from autotts_jax.policies.player import Player, warn_of_distance
from autotts_jax.policies.players import as_player
from autotts_jax.policies.sealed.worker_pool import SEALED, Sealing
from autotts_jax.replay.encoding import MAX_ANSWERS
from autotts_jax.replay.matrix import NONE, ProbeMatrix
from autotts_jax.replay.scale import Scale
from autotts_jax.replay.spelling import ERROR


@dataclasses.dataclass(frozen=True)
class Votes:
    """How many branches gave an answer.

    Attributes:
        answer: the answer, None where none was found.
        count: the branches of which it is the latest answer.
    """

    answer: str | None
    count: int


class Found(NamedTuple):
    """An answer with a branch that gives it.

    Attributes:
        answer: the answer.
        text: the text of the branch as far as it was read, followed by the answer if it was forced.
    """

    answer: str
    text: str


def telling_signals(sampling: Sampling, player: Player) -> Sampling:
    """Has a model tell the signals that a player reads.

    Returns:
        The same sampling, with the signals that the player reads and no others.

    Raises:
        InputError: it reads a signal that no model tells, or none with this sampling.
    """
    try:
        return dataclasses.replace(sampling, signals=tuple(player.signals))
    except InputError as error:
        raise InputError(f"{player.name} reads what live branches do not show: {error}") from error


class ProbingError(InputError):
    """A controller decides by what an engine does not tell on the way."""


def check_continues(engine: Engine, player: Player, executor: LiveExecutor) -> None:
    """Checks that a player needs no more than whole branches, where the engine writes no others.

    Raises:
        ProbingError: it decides by answers or signals on the way.
    """
    if writes_whole(engine) and (player.signals or player.decides_by_probes(executor.view())):
        raise ProbingError(
            f"{player.name} needs intermediate answers, but the engine of {engine.model} returns only whole "
            "branches; use a controller that needs no more, such as sc or asc, or the engine vllm or server"
        )


class NoBudgetError(InputError):
    """A token budget has no tokens for a branch."""


@dataclasses.dataclass(frozen=True)
class Answer:
    """An answer, what it cost and how it came about.

    Attributes:
        answer: the answer, None where the controller has none.
        tokens: tokens charged as in replay: a branch that ends within its first interval is charged that
            interval.
        usage: what the engine did, probes included.
        sequential_tokens: tokens that had to be generated one after another, a proxy for latency.
        stop_reason: why the episode ended.
        limited: whether the budget kept an action from being carried out as the controller asked for it, or
            cut a branch short.
        rounds: rounds of the controller.
        decisions: what the controller has done, in order.
        text: the text of a branch that gives the answer, as far as it was read, followed by the answer if it
            was forced; where there is no answer, the text of a branch alone.
        votes: the latest answers of the opened branches, the most frequent first.
        confidence: confidence in the answer by these votes, ``1 - BetaCDF(0.5; votes for it + 1, most votes
            for another + 1)``; 0 without an answer.
        texts: the text of each opened branch, in opening order.
        ends: why each of them ended; None where it was not read to its end.
        found: each answer that has votes, the most frequent first.
    """

    answer: str | None
    tokens: int
    usage: Usage
    sequential_tokens: int
    stop_reason: StopReason
    limited: bool
    rounds: int
    decisions: list[Decision]
    text: str
    votes: list[Votes]
    confidence: float
    texts: list[str]
    ends: list[Finish | None]
    found: list[Found]


def answer(
    engine: Engine,
    question: str | Sequence[ChatMessage],
    player: Any = "cmc@0.5",
    *,
    sampling: Sampling | None = None,
    answers: str | Extractor = "auto",
    max_branches: int = 64,
    budget: int | None = None,
    fall_back: bool = False,
    gold: str | None = None,
    grader: Grader | str | Form = MATH,
    sealing: Sealing = SEALED,
    stop: tuple[str, ...] = (),
    on_decision: Callable[[Decision], None] | None = None,
    on_text: Callable[[str], None] | None = None,
    cancel: threading.Event | None = None,
) -> Answer:
    """Answers a question with a language model under a controller.

    Args:
        engine: the model, as `autotts_jax.collect.open_engine` opens it.
        question: the question, or a conversation of which the last message is the user's.
        player: a player with a single setting, as `autotts_jax.evaluate` takes it.
        sampling: how branches are sampled and probed; with None, as `Sampling` has it, but no longer
            than the model's context holds, as `fitting_tokens` says.
        answers: finds the answer in a text: ``auto`` (the last box, ``####``, "answer is" or number),
            ``boxed``, ``number``, ``choice``, ``regex:PATTERN``, ``module:function``, or a function.
        max_branches: W, branches that can be opened; the environment of a policy has its own.
        budget: tokens that may be charged; None for no limit. As no length is known before a branch has
            ended, an interval is taken to cost Δ. What is left may be too little for a full read of
            ``sampling.max_tokens``: from Δ on the branch is read nevertheless, and cut off where the budget
            ends. A budget below Δ is spent on a single branch.
        fall_back: where no answer was found, whether to read a branch to its end for its text.
        grader: which answers are equal: ``math``, ``module:function``, or a function from an answer to its
            canonical form. An open `autotts_jax.collect.Grader` is left open.
        gold: the reference answer, for graders that compare answers by it; no controller sees it.
        sealing: how code from files and modules is run, as in `autotts_jax.evaluate`.
        stop: strings with which a branch ends.
        on_decision: called after each decision.
        on_text: called with what is added to the text of the first branch, while it is written.
        cancel: when it is set, the engine drops what is under way.

    Returns:
        The answer, what it cost and how it came about.

    Raises:
        NoBudgetError: the budget is 0.
        Cancelled: ``cancel`` was set.
        EngineError: the engine cannot continue.
        InputError: the question does not fit into the model's context, a setting is wrong, or the player
            failed.

    Example:
        >>> import autotts_jax as at
        >>> from autotts_jax.collect import SimulatedEngine
        >>> found = at.answer(SimulatedEngine(), "What is 17 + 25?", "cmc@0.5", max_branches=8)
        >>> found.answer, found.tokens
        ('7', 2500)
    """
    refuse_forks()
    check_is_engine(engine)
    if not _is_question(question):
        raise InputError(
            f"question is {question!r:.60}, but it must be text, or messages that end with the user's"
        )
    budget = check_budget(budget)
    if budget == 0:
        raise NoBudgetError("a budget of 0 tokens is enough for no branch; give 1 at least")
    check_callback("on_decision", on_decision, "the `Decision`")
    check_callback("on_text", on_text, "a text")
    fall_back = check_bool("fall_back", fall_back)
    if gold is not None:
        check_text("gold", gold)
    if cancel is not None and not callable(getattr(cancel, "is_set", None)):
        raise InputError(f"cancel is {cancel!r:.60}, but it must be a threading.Event")
    max_branches = check_int("max_branches", max_branches, 1, MOST_BRANCHES)
    if not isinstance(sampling, Sampling | None):
        raise InputError(f"sampling is {sampling!r:.60}, but it must be an autotts_jax.collect.Sampling")
    playing = as_player(player, sealing=sealing)
    playing.check_single()
    width = playing.width or max_branches
    playing.check(width)
    sampling = sampling or Sampling(max_tokens=fitting_tokens(engine.max_model_len))
    sampling = telling_signals(sampling, playing)
    warn_of_distance(playing, Scale(sampling.interval, sampling.interval, sampling.max_depth))
    if width > 1:
        check_differing(sampling)
    asked = question if isinstance(question, str) else tuple(question)
    last = asked if isinstance(asked, str) else asked[-1].content
    trajectories = Trajectories(
        engine, asked, sampling, extractor(answers, last), cancel, stop=stop, on_text=on_text
    )
    decisions: list[Decision] = []

    def note(decision: Decision) -> None:
        decisions.append(decision)
        if on_decision is not None:
            on_decision(decision)

    grading = contextlib.nullcontext(grader) if isinstance(grader, Grader) else open_grader(grader, 1)
    with grading as equal:
        executor = LiveExecutor(trajectories, sampling, equal, width, budget, gold, playing.signals)
        check_continues(engine, playing, executor)
        ended = playing.play_episode(executor, note)
        stepper = Stepper(executor, note)
        if executor.limited and not executor.pool.opened:
            stepper.carry_out(Action(read=1))
            tokens = int(executor.view().tokens)
            ended = Ended(executor.answers([0])[0], 0, StopReason.BUDGET, ended.rounds + 1, tokens)
        given = None if ended.answer == ERROR else ended.answer
        shown = _shown_branch(executor.pool, ended.leader)
        if fall_back and given is None and shown is not None:
            to_the_end = np.where(np.arange(width) == shown, sampling.max_depth, 0)
            stepper.carry_out(Action(advance=to_the_end, probe=np.zeros(width, bool)))
    opened = range(int(executor.pool.opened))
    votes = executor.votes()
    return Answer(
        answer=given,
        tokens=int(executor.pool.tokens),
        usage=trajectories.usage,
        sequential_tokens=ended.sequential_tokens,
        stop_reason=ended.stop_reason,
        limited=executor.limited or ended.stop_reason is StopReason.BUDGET,
        rounds=ended.rounds,
        decisions=decisions,
        text=_text(trajectories, executor.pool, ended.leader, given, shown),
        votes=votes,
        confidence=_confidence(votes, given, width),
        texts=[trajectories.text(b) for b in opened],
        ends=[trajectories[b].ended for b in opened],
        found=_found(trajectories, executor, votes),
    )


def _found(trajectories: Trajectories, executor: LiveExecutor, votes: Sequence[Votes]) -> list[Found]:
    """Each answer of the votes with the first branch that gives it."""
    latest = executor.answers(range(int(executor.pool.opened)))
    depths = np.asarray(executor.pool.revealed_depth)
    leaders = {vote.answer: latest.index(vote.answer) for vote in votes if vote.answer is not None}
    return [Found(text, trajectories.answered(b, int(depths[b]), text)) for text, b in leaders.items()]


def _shown_branch(pool: ReplayPool, leader: int) -> int | None:
    """The branch whose text stands for an answer that was not found; None if none was opened."""
    finished, active = np.asarray(pool.finished), np.asarray(pool.active)
    opened = range(int(pool.opened))
    return min(opened, key=lambda b: (not finished[b], not active[b], b != leader), default=None)


def _text(
    trajectories: Trajectories, pool: ReplayPool, leader: int, answer: str | None, shown: int | None
) -> str:
    """The text of the leading branch with the answer; without an answer that of the branch to be shown."""
    if answer is None:
        return "" if shown is None else trajectories.text(shown)
    if leader == NONE:  # a program may answer what no branch has said
        return answer
    return trajectories.answered(leader, int(pool.revealed_depth[leader]), answer)


def _confidence(votes: Sequence[Votes], answer: str | None, width: int) -> float:
    ours = sum(vote.count for vote in votes if vote.answer == answer)
    others = max((vote.count for vote in votes if vote.answer != answer), default=0)
    return 0.0 if answer is None else float(confidence_table(width)[ours, others])


def _is_question(question: Any) -> bool:
    if isinstance(question, str):
        return bool(question.strip())
    messages = list(question) if isinstance(question, Sequence) else []
    said = all(isinstance(message, ChatMessage) for message in messages)
    return bool(messages) and said and messages[-1].role == "user"


class LiveExecutor(ReplayExecutor):
    """Has a language model write what actions need, and carries them out on what was written.

    Args:
        trajectories: the branches as they are written.
        sampling: how branches are sampled and probed.
        grader: tells which answers are equal.
        width: W, branches that may be opened.
        budget: token budget; None for no limit.
        gold: the reference answer, for graders that compare answers by it.
        signals: the signals to show, as `telling_signals` lets them be told.

    Attributes:
        limited: whether the budget kept an action from being carried out as it was asked for, or cut a branch
            short.
        pool: the episode as far as it is written.
    """

    def __init__(
        self,
        trajectories: Trajectories,
        sampling: Sampling,
        grader: Grader,
        width: int,
        budget: int | None,
        gold: str | None = None,
        signals: Sequence[str] = (),
    ):
        self._trajectories = trajectories
        self._grader, self._gold = grader, gold
        self._ids = {ERROR: 0}  # of canonical forms
        self._forms = {0: ERROR}
        self._sampling = sampling
        self._budget = budget
        self.limited = False
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
            signals={name: np.full((1, width, depths), np.nan, np.float16) for name in signals},
        )
        order = np.arange(width, dtype=np.int32)
        limit = None if budget is None else jnp.int32(budget)
        super().__init__(begin_pool(self._matrix, 0, order, limit, equivalence=False), self._forms.get)

    def carry_out(self, name: str, action: Action) -> None:
        """Has the branches written as far as a part of an action reads them, and carries it out."""
        if name == "read":
            self._read(int(action.read))
            return
        depth, active = np.asarray(self.pool.depth), np.asarray(self.pool.active)
        upto: dict[int, int] = {}
        if name == "probe":
            upto = {b: int(depth[b]) for b in np.flatnonzero(np.asarray(action.probe) & active).tolist()}
            self._trajectories.force(upto)
        elif name != "prune":
            planned = np.asarray(apply_action(self.pool, action).depth)
            if self._budget is not None:
                unlimited = apply_action(self.pool.with_budget(jnp.int32(MAX_TOKENS)), action)
                self.limited |= bool((np.asarray(unlimited.depth) != planned).any())
            upto = {b: int(planned[b]) for b in np.flatnonzero(planned - depth).tolist()}
            self._trajectories.read(upto, action.probe is None)
            # No more than was planned, even where branches that ended early have made room for it.
            wanted: Any = {"advance": planned - depth} if name == "advance" else {"open": len(upto)}
            action = action._replace(**wanted)
        self._enter(upto)
        self.pool = apply_action(self.pool, action)

    def votes(self) -> list[Votes]:
        """Counts the latest answers of the opened branches, the most frequent first."""
        latest = self.answers(range(int(self.pool.opened)))
        counts = Counter(answer for answer in latest if answer is not None)
        return [Votes(None if text == ERROR else text, count) for text, count in counts.most_common()]

    def _read(self, count: int) -> None:
        """Reads fresh branches to their ends; one after another where what is left may not last for two.

        A branch for which it may not last is cut off where the budget ends.
        """
        opened, width = int(self.pool.opened), self._matrix.answers.shape[1]
        most, last = self._sampling.max_tokens, min(opened + count, width)
        while opened < last:
            together = last - opened
            if self._budget is not None:
                left = self._budget - int(self.pool.tokens)
                # So few tokens are worth no further branch.
                if left < self._sampling.interval and opened:
                    self.limited = True
                    break
                together = min(max(left // most, 1), together)
                self._trajectories[opened].limit = min(left, most)
            upto = dict.fromkeys(range(opened, opened + together), self._sampling.max_depth)
            self._trajectories.read(upto, probe=False)
            self._enter(upto)
            first = self._trajectories[opened]
            self.limited |= first.ended is Finish.length and first.limit < most
            self.pool = apply_action(self.pool, Action(read=together))
            opened += together

    def _enter(self, upto: Mapping[int, int]) -> None:
        """Puts what is known of branches, up to a depth each, into the matrix."""
        for b, depth in upto.items():
            written = self._trajectories[b]
            if written.ended:
                self._matrix.tokens[0, b] = len(written.tokens)
                self._matrix.lengths[0, b] = last_depth(len(written.tokens), self._sampling.interval) - 1
            known = min(depth, int(self._matrix.lengths[0, b]) + 1)
            for k in range(known):
                probe = self._trajectories.at(b, k + 1)
                if probe and self._matrix.answers[0, b, k] == NONE:
                    self._matrix.answers[0, b, k] = self._id(probe.answer)
            for name, values in self._matrix.signals.items():
                for k in range(known):
                    np.asarray(values)[0, b, k] = self._signal(b, name, k + 1)
        # A copy, which nobody writes to while it is on its way to the device.
        matrix = jax.tree.map(np.copy, self._matrix)
        self.pool = _with_longer_matrix(self.pool, matrix)

    def _signal(self, branch: int, name: str, depth: int) -> float:
        """A signal at a depth, NaN where no answer was forced."""
        value = self._trajectories.signal(branch, name, depth)
        if value is None and self._trajectories.at(branch, depth):
            raise EngineError(
                f"the engine of {self._trajectories.model} did not tell the signal {name}; choose a "
                "controller that does not read it, or another engine"
            )
        return math.nan if value is None else value

    def _id(self, answer: str) -> int:
        """The id of an answer; ``ERR`` is an answer like any other."""
        (form,) = self._grader.forms([answer], self._gold)
        key = self._ids.setdefault(form, len(self._ids))
        self._forms[key] = form
        return key


# Compiled once for a width and a number of depths, whatever the controller.
_with_longer_matrix = jax.jit(ReplayPool.with_longer_matrix)
