"""Released programs as players: they run sealed, and the parent keeps the books."""

from __future__ import annotations

import dataclasses
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from autotts_jax.core.pool import StopReason
from autotts_jax.core.stepping import Decision, Ended, Executor, Operation, Stepper
from autotts_jax.errors import InputError
from autotts_jax.policies.player import Play, Player, Seal, answer_texts
from autotts_jax.policies.sealed.cast import SEALED, Cast, Sealing, printable
from autotts_jax.policies.sealed.ledger import MOST_REFUSALS, Ledger, LedgerError, records
from autotts_jax.policies.sealed.question import (
    FULL,
    MORE,
    NEW,
    NO_ANSWER,
    REFUSED,
    SEQUENTIAL_TOKENS,
    TOKENS,
)
from autotts_jax.policies.sealed.solving import ACTION_BITS, SLOT_BITS
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.replay.matrix import NONE
from autotts_jax.replay.orders import BranchOrders
from autotts_jax.sandbox.messages import Message
from autotts_jax.sandbox.process import Child, SandboxError, ready

SLOTS = 512
"""Episodes that a child plays at a time, at most."""

CHECKED = 32
"""Episodes that are played again by a child that has played nothing else, at most."""

_COLUMNS = ("answer", "tokens", "intervals", "probes", "sequential_tokens", "branches")


class _Episode(NamedTuple):
    """An episode that waits: its number among all, question, and row of the branch orders."""

    number: int
    question: int
    row: int


@dataclasses.dataclass(frozen=True, eq=False)
class ProgramPlayer(Player):
    """A released program: a class ``X(config=None)`` with ``solve(question)``.

    It runs in processes that hold neither the questions' probes nor their gold answers. Each action is asked
    of this process, which keeps the books.

    Attributes:
        name: the name in results.
        cast: processes that have loaded the program.
        values: β of each setting, which the class is given as ``{"beta": β}``; None for none.
        sealing: how it is run.
        config: what the class is given besides β; None and no β for no configuration at all.
    """

    name: str
    cast: Cast
    values: tuple[float | None, ...] = (None,)
    sealing: Sealing = SEALED
    config: Mapping[str, Any] | None = None

    def play(
        self,
        dataset: ProbeDataset,
        orders: BranchOrders,
        *,
        budget: int | None = None,
        processes: int = 1,
        on_progress: Callable[[int], None] | None = None,
    ) -> Play:
        """Runs the program over all episodes, in one sealed process or several."""
        self.check(orders.width, budget)
        began = time.perf_counter()
        shape = (orders.num_rows, len(dataset))
        row, question = (axis.reshape(-1).tolist() for axis in np.indices(shape))
        episodes = [_Episode(*episode) for episode in zip(range(len(row)), question, row, strict=True)]
        # Whether episodes depend on one another shows where no two are of one question.
        draw = np.random.default_rng(secrets.randbits(64))
        sample = [
            _Episode(number, int(asked), int(draw.integers(orders.num_rows)))
            for number, asked in enumerate(draw.permutation(len(dataset))[:CHECKED])
        ]
        parts = []
        with self.cast.children(min(processes, len(episodes)), fresh=1) as (children, (fresh,)):
            for number, value in enumerate(self.values):
                run = _Run(self, dataset, orders, budget, value)
                before = number * len(episodes)
                report = None if on_progress is None else _after(before, on_progress)
                played = run.play(children, episodes, report)
                again = run.play([fresh], sample, None)
                self._check_alone(dataset, played, again, sample, len(dataset))
                parts.append(played)
            level = fresh.level
        columns = {
            name: np.stack([part[name] for part in parts]).reshape(len(parts), *shape) for name in _COLUMNS
        }
        ids = columns.pop("answer")
        return Play(
            self,
            answer=answer_texts(dataset, ids),
            correct=(ids != NONE) & (ids == np.asarray(dataset.matrix.gold)),
            **columns,
            rounds=None,
            stop_reason=None,
            compile_seconds=0.0,
            run_seconds=time.perf_counter() - began,
            seal=Seal(level, ("played alone",), self.sealing.spellings),
        )

    def play_episode(
        self, executor: Executor, on_decision: Callable[[Decision], None] | None = None
    ) -> Ended:
        """Lets the program solve one question."""
        self.check_single()
        stepper = Stepper(executor, on_decision)
        with self.cast.children(1) as ((child,), _):
            config, spelled = self.config_at(self.values[0]), self.sealing.spellings
            width = executor.pool.width
            child.send({"do": "solve", "config": config, "slots": 1, "width": width, "spelled": spelled})
            episode = _Stepped(stepper)
            while True:
                message = child.receive()
                if "failed" in message.says:
                    raise InputError(f"program {self.name!r} failed:\n{printable(message.says['failed'])}")
                asks, ends = _requests(child, message)
                try:
                    if ends:
                        return episode.ended(ends[0][1])
                    replies = [episode.act(action, index) for _, action, index in asks]
                except LedgerError as error:
                    raise child.broke_protocol(str(error)) from error
                texts = [(0, text) for text in episode.fresh_texts()] if spelled else []
                child.send({"texts": texts}, _replies(replies, []))

    def settings(self) -> tuple[Player, ...]:
        """Gives a player for each β."""
        return tuple(dataclasses.replace(self, values=(value,)) for value in self.values)

    def config_at(self, value: float | None) -> dict[str, Any] | None:
        """Gives what the class is constructed with.

        Args:
            value: β; None for none.
        """
        if value is None:
            return None if self.config is None else dict(self.config)
        return {**(self.config or {}), "beta": value}

    def _check_alone(
        self,
        dataset: ProbeDataset,
        played: Mapping[str, np.ndarray],
        again: Mapping[str, np.ndarray],
        sample: Sequence[_Episode],
        questions: int,
    ) -> None:
        """Checks that episodes are the same when their program has played no others of their questions."""
        for episode in sample:
            at = episode.row * questions + episode.question
            differ = [name for name in _COLUMNS if played[name][at] != again[name][episode.number]]
            if differ:
                raise SandboxError(
                    f"program {self.name!r} plays another episode when it has not played the question before "
                    f"({_place(dataset, episode)}: {', '.join(differ)}): it keeps something between "
                    "episodes, or draws random numbers that are not seeded in __init__"
                )


class _Run:
    """One setting of a program over many episodes.

    Args:
        player: the program.
        dataset: the questions.
        orders: branch orders of each question.
        budget: token budget of an episode; None for no limit.
        value: β; None for none.
    """

    def __init__(
        self,
        player: ProgramPlayer,
        dataset: ProbeDataset,
        orders: BranchOrders,
        budget: int | None,
        value: float | None,
    ):
        self._player = player
        self._dataset = dataset
        self._records = records(dataset.matrix)
        self._order = np.asarray(orders.table)
        self._group = np.asarray(orders.group).tolist()
        self._budget = budget
        self._begin: dict[str, Any] = {
            "do": "solve",
            "config": player.config_at(value),
            "width": orders.width,
        }
        self._begin["spelled"] = player.sealing.spellings

    def play(
        self,
        children: Sequence[Child],
        episodes: Sequence[_Episode],
        on_progress: Callable[[int], None] | None,
    ) -> dict[str, np.ndarray]:
        """Plays episodes; a child whose slot is free is given the next one."""
        played = {name: np.zeros(len(episodes), np.int64) for name in _COLUMNS}
        queue, done = deque(episodes), 0
        playing: dict[Child, dict[int, tuple[_Episode, Ledger]]] = {}
        for child in children:
            slots = min(SLOTS, -(-len(episodes) // len(children)), len(queue))
            if slots:
                playing[child] = {slot: self._next(queue) for slot in range(slots)}
                child.send({**self._begin, "slots": slots})
        while playing:
            for child in ready(list(playing)):
                ended = self._answer(child, playing[child], child.take(), queue, played)
                done += ended
                if ended and on_progress is not None:
                    on_progress(done)
                if not playing[child]:
                    del playing[child]
        return played

    def _next(self, queue: deque[_Episode]) -> tuple[_Episode, Ledger]:
        episode = queue.popleft()
        order = self._order[self._group[episode.question], episode.row].tolist()
        return episode, Ledger(self._records[episode.question], order, self._budget)

    def _answer(
        self,
        child: Child,
        slots: dict[int, tuple[_Episode, Ledger]],
        message: Message,
        queue: deque[_Episode],
        played: Mapping[str, np.ndarray],
    ) -> int:
        """Answers what a child asks; gives the number of episodes that ended."""
        if "failed" in message.says:
            playing = slots.get(message.says.get("slot"))  # type: ignore[arg-type]
            where = "" if playing is None else f" on {_place(self._dataset, playing[0])}"
            raise InputError(
                f"program {self._player.name!r} failed{where}:\n{printable(message.says['failed'])}"
            )
        spelled = self._player.sealing.spellings
        asks, ends = _requests(child, message)
        replies: list[int] = []
        texts: list[tuple[int, str]] = []
        goes_on = [False] * len(ends)
        try:
            for slot, action, index in asks:
                episode, ledger = slots[slot]
                known = len(ledger.answers)
                replies.append(ledger.act(action, index))
                if spelled and len(ledger.answers) > known:
                    vocabulary = self._dataset.questions[episode.question].vocabulary
                    texts.append((len(replies) - 1, vocabulary[ledger.answers[-1]]))
            for number, (slot, label) in enumerate(ends):
                episode, ledger = slots.pop(slot)
                _enter(played, episode.number, ledger, label)
                if queue:
                    slots[slot] = self._next(queue)
                    goes_on[number] = True
        except LedgerError as error:
            raise child.broke_protocol(str(error)) from error
        except KeyError:
            raise child.broke_protocol("an episode that is not played") from None
        child.send({"texts": texts} if texts else {}, _replies(replies, goes_on))
        return len(ends)


def _enter(played: Mapping[str, np.ndarray], number: int, ledger: Ledger, label: int) -> None:
    """Enters what an episode came to."""
    columns = {
        "answer": ledger.answer(label),
        "tokens": ledger.tokens,
        "intervals": sum(ledger.depth),
        "probes": ledger.probes,
        "sequential_tokens": ledger.sequential_tokens,
        "branches": len(ledger.depth),
    }
    for name, value in columns.items():
        played[name][number] = value


class _Stepped:
    """One episode, whose operations an executor carries out.

    Args:
        stepper: passes operations to the executor; nothing is opened yet.
    """

    def __init__(self, stepper: Stepper):
        self._stepper = stepper
        self._texts: list[str] = []
        self._told = 0
        self._refusals = 0

    def act(self, action: int, index: int) -> int:
        """Carries out an action; gives the reply, as `Ledger.act` does."""
        pool = self._pool
        if action in (TOKENS, SEQUENTIAL_TOKENS):
            return int(pool.tokens if action == TOKENS else np.max(pool.branch_tokens))
        opened, width = int(pool.opened), pool.width
        more = action == MORE
        if action not in (NEW, MORE, FULL) or not (0 <= index < opened if more else index == opened < width):
            raise LedgerError("an action or a branch that does not exist")
        if more and bool(pool.finished[index]):
            raise LedgerError("a branch that is finished")
        one = np.zeros(width, np.int32)
        one[index] = 1
        depth = int(pool.depth[index])
        self._stepper.carry_out(
            {
                NEW: Operation("open", np.asarray(1)),
                MORE: Operation("advance", one),
                FULL: Operation("read", np.asarray(1)),
            }[action]
        )
        pool = self._pool
        if int(pool.depth[index]) == depth:
            self._refusals += 1
            if self._refusals > MOST_REFUSALS:
                raise LedgerError(f"more than {MOST_REFUSALS} actions beyond the budget")
            return REFUSED
        return 2 * (self._label(index) + 1) + bool(pool.finished[index])

    def fresh_texts(self) -> list[str]:
        """The answers that are new since it was last asked."""
        fresh, self._told = self._texts[self._told :], len(self._texts)
        return fresh

    def ended(self, label: int) -> Ended:
        """What the episode came to, with an answer by its label."""
        if not NONE <= label < len(self._texts):
            raise LedgerError("an answer that was not shown")
        answer = None if label == NONE else self._texts[label]
        latest = self._stepper.executor.answers(range(int(self._pool.opened)))
        leader = latest.index(answer) if answer is not None and answer in latest else NONE
        sequential_tokens = int(np.max(self._pool.branch_tokens))
        return Ended(answer, leader, StopReason.DECIDED, 0, sequential_tokens)

    def _label(self, index: int) -> int:
        (answer,) = self._stepper.executor.answers([index])
        if answer is None or answer == NO_ANSWER:
            return NONE
        if answer not in self._texts:
            self._texts.append(answer)
        return self._texts.index(answer)

    @property
    def _pool(self) -> Any:
        return self._stepper.executor.pool


def _requests(child: Child, message: Message) -> tuple[list[tuple[int, int, int]], list[tuple[int, int]]]:
    """The actions that a message asks for, as slot, action and branch, and slot and label of what it ends."""
    asks, ends = (message.arrays.get(name) for name in ("asks", "ends"))
    if asks is None or asks.dtype != np.int64 or asks.ndim != 1 or np.any(asks < 0):
        raise child.broke_protocol("a message without actions")
    if ends is None or ends.dtype != np.int64 or ends.ndim != 2 or ends.shape[1] != 2:
        raise child.broke_protocol("a message without ends")
    if not len(asks) and not len(ends):
        raise child.broke_protocol("a message that asks for nothing")
    below = (1 << SLOT_BITS) - 1
    action, index = (asks & below) >> ACTION_BITS, asks & ((1 << ACTION_BITS) - 1)
    rows = zip((asks >> SLOT_BITS).tolist(), action.tolist(), index.tolist(), strict=True)
    return list(rows), [(slot, label) for slot, label in ends.tolist()]


def _replies(replies: list[int], goes_on: list[bool]) -> dict[str, np.ndarray]:
    return {"replies": np.array(replies, np.int64), "goes_on": np.array(goes_on, bool)}


def _place(dataset: ProbeDataset, episode: _Episode) -> str:
    """Says which episode it is."""
    question = dataset.questions[episode.question]
    cell = dataset.cells[int(dataset.matrix.cell[episode.question])]
    return f"question {question.index} of {cell.name}, seed {episode.row}"


def _after(before: int, on_progress: Callable[[int], None]) -> Callable[[int], None]:
    """Reports progress of a part that has others before it."""
    return lambda done: on_progress(before + done)
