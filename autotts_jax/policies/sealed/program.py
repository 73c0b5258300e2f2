"""Released programs as players: they run sealed, and the parent keeps the books."""

from __future__ import annotations

import dataclasses
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from autotts_jax.core import devices
from autotts_jax.core.pool import StopReason
from autotts_jax.core.stepping import Decision, Ended, Executor, Operation, Stepper
from autotts_jax.errors import InputError
from autotts_jax.policies.player import Play, Player, Seal, answer_texts
from autotts_jax.policies.sealed.cast import SEALED, Cast, Sealing, printable
from autotts_jax.policies.sealed.ledger import MOST_FREE, Ledger, LedgerError, records
from autotts_jax.policies.sealed.question import (
    FULL,
    MORE,
    NEW,
    NO_ANSWER,
    REFUSED,
    SEQUENTIAL_TOKENS,
    TOKENS,
)
from autotts_jax.policies.sealed.solving import ACTION_BITS, END
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.replay.matrix import NONE
from autotts_jax.replay.orders import BranchOrders
from autotts_jax.sandbox.mailbox import LOOKS, sleep
from autotts_jax.sandbox.process import Child, SandboxError

REPORTED = 64
"""Episodes between two reports of progress."""

LOOK_AFTER = 100_000
"""Looks into mailboxes after which children are looked after, at the latest."""

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
        # This process answers the others, on a core of its own.
        crew = max(1, min(processes, devices.usable_cores() - 1, len(episodes)))
        with self.cast.children(crew, fresh=len(self.values)) as (children, fresh):
            for number, (value, alone) in enumerate(zip(self.values, fresh, strict=True)):
                run = _Run(self, dataset, orders, budget, value)
                before = number * len(episodes)
                report = None if on_progress is None else _after(before, on_progress)
                played = run.play(children, episodes, report)
                self.cast.loaded(alone)
                again = run.play([alone], sample, None)
                self._check_alone(dataset, played, again, sample, len(dataset))
                parts.append(played)
            level = alone.level
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
            seat = _Stepped(stepper, child, self)
            child.send(self.job(self.values[0], executor.pool.width))
            serve([seat])
            return seat.ended

    def settings(self) -> tuple[Player, ...]:
        """Gives a player for each β."""
        return tuple(dataclasses.replace(self, values=(value,)) for value in self.values)

    def job(self, value: float | None, width: int) -> dict[str, Any]:
        """Gives what a child is told to play.

        Args:
            value: β; None for none.
            width: W, branches that an episode can open.
        """
        config = self.config if value is None else {**(self.config or {}), "beta": value}
        config = None if config is None else dict(config)
        return {"do": "solve", "config": config, "width": width, "spelled": self.sealing.spellings}

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
        self.player = player
        self.dataset = dataset
        self._records = records(dataset.matrix)
        self._order = np.asarray(orders.table)
        self._group = np.asarray(orders.group).tolist()
        self._budget = budget
        self._job = player.job(value, orders.width)

    def play(
        self,
        children: Sequence[Child],
        episodes: Sequence[_Episode],
        on_progress: Callable[[int], None] | None,
    ) -> dict[str, np.ndarray]:
        """Plays episodes; a child that has ended one is given the next."""
        self.played = {name: np.zeros(len(episodes), np.int64) for name in _COLUMNS}
        self._queue, self._left, self._report = deque(episodes), len(episodes), on_progress
        seats = [_Replayed(child, self) for child in children[: len(episodes)]]
        for seat in seats:
            seat.child.send(self._job)
        serve(seats)
        return self.played

    def next(self) -> tuple[_Episode, Ledger] | None:
        """Gives an episode that nobody has played, and its books; None where there is none."""
        if not self._queue:
            return None
        episode = self._queue.popleft()
        order = self._order[self._group[episode.question], episode.row].tolist()
        return episode, Ledger(self._records[episode.question], order, self._budget)

    def enter(self, episode: _Episode, ledger: Ledger, label: int) -> None:
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
            self.played[name][episode.number] = value
        self._left -= 1
        done = len(self.played["answer"]) - self._left
        if self._report is not None and (done % REPORTED == 0 or not self._left):
            self._report(done)

    def says(self, episode: _Episode) -> str:
        """Says where a program failed."""
        return f"program {self.player.name!r} failed on {_place(self.dataset, episode)}"


class Seat:
    """What a child plays: one episode after another.

    Args:
        child: the child.

    Attributes:
        act: carries out an action on a branch, as `Ledger.act` does.
    """

    act: Callable[[int, int], int]

    def __init__(self, child: Child):
        self.child = child
        self.mailbox = child.mailbox

    def end(self, label: int) -> bool:
        """Ends an episode with the answer of a label, and begins the next; whether there is one."""
        raise NotImplementedError

    def says(self) -> str:
        """Says which program plays what."""
        raise NotImplementedError


def serve(seats: Sequence[Seat]) -> None:
    """Answers what children ask in their mailboxes, until no seat has a further episode.

    Args:
        seats: what each of them plays.

    Raises:
        InputError: a program raised.
        SandboxError: a child broke the protocol or a limit, or has ended.
    """
    playing = list(seats)
    below, tries, turns = (1 << ACTION_BITS) - 1, 0, 0
    while playing:
        tries, turns = tries + 1, turns + 1
        for seat in playing:
            asked = seat.mailbox.asked()
            if asked is None:
                continue
            tries, action = 0, asked >> ACTION_BITS
            try:
                if action != END:
                    seat.mailbox.answer(seat.act(action, asked & below) + 1)
                    continue
                goes_on = seat.end((asked & below) - 1)
            except LedgerError as error:
                raise seat.child.broke_protocol(str(error)) from error
            seat.mailbox.answer(goes_on)
            if not goes_on:
                playing.remove(seat)
                break
        if tries >= LOOKS:
            boxes = [seat.mailbox for seat in playing]
            if all(mailbox.fall_asleep() for mailbox in boxes):
                sleep([mailbox.bell for mailbox in boxes])
            for mailbox in boxes:
                mailbox.awake()
        if tries > LOOKS + 50 or turns % LOOK_AFTER == 0:
            for seat in playing:
                _look_after(seat)


def _look_after(seat: Seat) -> None:
    """Notices a child that has failed or ended, or that takes too long."""
    child = seat.child
    if seat.mailbox.heard():
        child.touch()
    if child.complete():
        said = child.take().says.get("failed")
        if said is None:
            raise child.broke_protocol("a message that nobody asked for")
        raise InputError(f"{seat.says()}:\n{printable(said)}")


class _Replayed(Seat):
    """Episodes of recorded questions.

    Args:
        child: the child; there is an episode for it.
        run: has the episodes.
    """

    def __init__(self, child: Child, run: _Run):
        super().__init__(child)
        self._run = run
        self._begin()

    def end(self, label: int) -> bool:
        self._run.enter(self._episode, self._ledger, label)
        return self._begin()

    def says(self) -> str:
        return self._run.says(self._episode)

    def _begin(self) -> bool:
        found = self._run.next()
        if found is None:
            return False
        self._episode, self._ledger = found
        self.act = self._spell if self._run.player.sealing.spellings else self._ledger.act
        return True

    def _spell(self, action: int, index: int) -> int:
        """Carries out an action, and says how its answer is spelled if that is new."""
        known = len(self._ledger.answers)
        reply = self._ledger.act(action, index)
        if len(self._ledger.answers) > known:
            vocabulary = self._run.dataset.questions[self._episode.question].vocabulary
            self.child.send({"text": vocabulary[self._ledger.answers[-1]]})
        return reply


class _Stepped(Seat):
    """One episode, whose operations an executor carries out.

    Args:
        stepper: passes operations to the executor; nothing is opened yet.
        child: the child.
        player: the program.

    Attributes:
        ended: what the episode came to, when it is over.
    """

    ended: Ended

    def __init__(self, stepper: Stepper, child: Child, player: ProgramPlayer):
        super().__init__(child)
        self.act = self._act
        self._stepper = stepper
        self._player = player
        self._texts: list[str] = []
        self._free = 0

    def says(self) -> str:
        return f"program {self._player.name!r} failed"

    def _act(self, action: int, index: int) -> int:
        pool = self._pool
        if action in (TOKENS, SEQUENTIAL_TOKENS):
            return self._for_free(int(pool.tokens if action == TOKENS else np.max(pool.branch_tokens)))
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
            return self._for_free(REFUSED)
        return 2 * (self._label(index) + 1) + bool(pool.finished[index])

    def end(self, label: int) -> bool:
        answer = self._texts[label] if 0 <= label < len(self._texts) else None
        latest = self._stepper.executor.answers(range(int(self._pool.opened)))
        leader = latest.index(answer) if answer is not None and answer in latest else NONE
        sequential_tokens = int(np.max(self._pool.branch_tokens))
        self.ended = Ended(answer, leader, StopReason.DECIDED, 0, sequential_tokens)
        return False

    def _for_free(self, reply: int) -> int:
        self._free += 1
        if self._free > MOST_FREE:
            raise LedgerError(f"more than {MOST_FREE} actions that read nothing")
        return reply

    def _label(self, index: int) -> int:
        (answer,) = self._stepper.executor.answers([index])
        if answer is None or answer == NO_ANSWER:
            return NONE
        if answer not in self._texts:
            self._texts.append(answer)
            if self._player.sealing.spellings:
                self.child.send({"text": answer})
        return self._texts.index(answer)

    @property
    def _pool(self) -> Any:
        return self._stepper.executor.pool


def _place(dataset: ProbeDataset, episode: _Episode) -> str:
    """Says which episode it is."""
    question = dataset.questions[episode.question]
    cell = dataset.cells[int(dataset.matrix.cell[episode.question])]
    return f"question {question.index} of {cell.name}, seed {episode.row}"


def _after(before: int, on_progress: Callable[[int], None]) -> Callable[[int], None]:
    """Reports progress of a part that has others before it."""
    return lambda done: on_progress(before + done)
