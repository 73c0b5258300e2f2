"""Released programs as players: they run sealed, and the parent keeps the books."""

from __future__ import annotations

import dataclasses
import secrets
import select
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from autotts_jax.core import devices
from autotts_jax.core.stepping import Decision, Ended, Executor, Stepper
from autotts_jax.core.view import Action, StopReason, View
from autotts_jax.core.votes import is_correct
from autotts_jax.errors import InputError
from autotts_jax.policies.player import Play, Player, Prepared, Seal, answer_texts
from autotts_jax.policies.sealed.ledger import Bounded, Ledger, LedgerError, records
from autotts_jax.policies.sealed.question import (
    BRANCHES,
    END,
    FULL,
    MORE,
    NEW,
    NO_ANSWER,
    REFUSED,
    SEQUENTIAL_TOKENS,
    TOKENS,
)
from autotts_jax.policies.sealed.worker_pool import SEALED, Sealing, WorkerPool, place, printable
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.replay.matrix import NONE
from autotts_jax.replay.orders import BranchOrders
from autotts_jax.sandbox.process import Child, SandboxError

REPORTED = 64
"""Episodes between two reports of progress."""

SLOTS = 64
"""Episodes that a child plays in turns, at most."""

LOOK_AFTER = 0.05
"""Seconds after which children are looked after, at the latest."""

AWAKE = 3e-4
"""Seconds that this process stays awake for the next requests, at most."""

MOST_ASLEEP = 255
"""Waits that it sleeps through, at most, before it tries to stay awake again."""

SHARE = 1 << 28
"""Bytes of memory that there must be for each child where there are several."""

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
        pool: processes that have loaded the program.
        values: β of each setting, which the class is given as ``{"beta": β}``; None for none.
        sealing: how it is run.
        config: what the class is given besides β; None and no β for no configuration at all.
    """

    name: str
    pool: WorkerPool
    values: tuple[float | None, ...] = (None,)
    sealing: Sealing = SEALED
    config: Mapping[str, Any] | None = None

    def prepare(
        self,
        dataset: ProbeDataset,
        orders: BranchOrders,
        *,
        budget: int | None = None,
        processes: int = 1,
        critical_path: bool = False,  # noqa: ARG002
    ) -> Prepared:
        """Has the program run over all episodes, in one sealed process or several."""
        return lambda on_progress: self._play(dataset, orders, budget, processes, on_progress)

    def _play(
        self,
        dataset: ProbeDataset,
        orders: BranchOrders,
        budget: int | None,
        processes: int,
        on_progress: Callable[[int], None] | None,
    ) -> Play:
        self.check(orders.width)
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
        most = self.sealing.sandbox.memory // SHARE - len(self.values)
        workers = max(1, min(processes, devices.usable_cores(), len(episodes), most))
        with self.pool.children(workers, fresh=len(self.values)) as (children, fresh):
            runs = [_Run(self, dataset, orders, budget, value) for value in self.values]
            # First, while the others stand still: what has played a question could tell its answer.
            alone = [run.play_once(child, sample) for run, child in zip(runs, fresh, strict=True)]
            for child in children:
                child.resume()
            for number, (run, again) in enumerate(zip(runs, alone, strict=True)):
                before = number * len(episodes)
                report = None if on_progress is None else _after(before, on_progress)
                played = run.play(children, episodes, report)
                self._check_alone(dataset, played, again, sample)
                parts.append(played)
            level = children[0].level
        columns = {
            name: np.stack([part[name] for part in parts]).reshape(len(parts), *shape) for name in _COLUMNS
        }
        ids = columns.pop("answer")
        return Play(
            self,
            answer=answer_texts(dataset, ids),
            correct=is_correct(ids, np.asarray(dataset.matrix.gold)),
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
        with self.pool.child() as child:
            scheduler = Scheduler(child)
            slot = _Stepped(stepper, self, scheduler.texts)
            scheduler.assign([slot], self.job(self.values[0], executor.view().width))
            serve([scheduler])
            return slot.ended

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
    ) -> None:
        """Checks that episodes are the same when their program has played no others of their questions."""
        for episode in sample:
            at = episode.row * len(dataset) + episode.question
            differ = [name for name in _COLUMNS if played[name][at] != again[name][episode.number]]
            if differ:
                where = place(dataset, episode.question, episode.row)
                raise SandboxError(
                    f"program {self.name!r} plays another episode when it has not played the question before "
                    f"({where}: {', '.join(differ)}): it keeps something outside its instance, or "
                    "draws random numbers from a generator that is not its own and seeded"
                )


class _Run:
    """One setting of a program over many episodes."""

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
        slots = min(SLOTS, -(-len(episodes) // len(children)))
        schedulers = []
        for child in children:
            scheduler = Scheduler(child)
            scheduler.assign(
                [_Replayed(self, scheduler.texts) for _ in range(min(slots, len(self._queue)))], self._job
            )
            schedulers.append(scheduler)
        serve([scheduler for scheduler in schedulers if not scheduler.empty])
        return self.played

    def play_once(self, child: Child, episodes: Sequence[_Episode]) -> dict[str, np.ndarray]:
        """Plays episodes in a child that stands still, and ends it."""
        child.resume()
        played = self.play([child], episodes, None)
        child.close()
        return played

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
            "intervals": ledger.intervals,
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
        return f"program {self.player.name!r} failed on {place(self.dataset, episode.question, episode.row)}"


class EpisodeSlot:
    """Where a child plays one episode after another.

    Attributes:
        act: carries out an action, as `Ledger.act` does.
    """

    act: Callable[[int], int]

    def end(self, label: int) -> bool:
        """Ends an episode with the answer of a label, and begins the next; whether there is one."""
        raise NotImplementedError

    def says(self) -> str:
        """Says which program plays what."""
        raise NotImplementedError


class Scheduler:
    """The slots of a child, which plays their episodes in turns.

    Attributes:
        child: the child.
        texts: spellings of answers that the child has not been told yet.
    """

    def __init__(self, child: Child):
        self.child = child
        self.texts: list[str] = []

    @property
    def empty(self) -> bool:
        """Whether no slot has an episode any more."""
        return not self._turns

    def assign(self, slots: Sequence[EpisodeSlot], job: Mapping[str, Any]) -> None:
        """Has the child begin."""
        self._seats = slots
        self._turns = deque(slots)
        if slots:
            self.child.send({**job, "slots": len(slots)})
            self.child.answer([1] * len(slots))  # Each goes on with its first episode.

    def answer(self, requests: Sequence[int]) -> None:
        """Replies to what the child asks.

        Raises:
            LedgerError: a request cannot be.
        """
        turns, replies = self._turns, []
        for request in requests:
            if not turns:
                raise LedgerError("an action of no episode")
            slot = turns.popleft()
            if request < END:
                replies.append(slot.act(request))
            elif request > END + BRANCHES:
                raise LedgerError("an action that does not exist")
            elif slot.end(request - END - 1):
                replies.append(1)
            else:
                replies.append(0)
                continue
            turns.append(slot)
        self.child.answer(replies)
        # The child reads them after the reply that is theirs.
        for text in self.texts:
            self.child.send({"text": text})
        self.texts.clear()

    def look_after(self) -> None:
        """Notices a child that has failed or ended, or that takes too long.

        Raises:
            InputError: its program raised.
            SandboxError: it broke the protocol or a limit, or has ended.
        """
        if self.child.complete():
            says = self.child.take().says
            number = says.get("slot")
            if "failed" not in says or not isinstance(number, int) or not 0 <= number < len(self._seats):
                raise self.child.broke_protocol("a message that nobody asked for")
            raise InputError(f"{self._seats[number].says()}:\n{printable(says['failed'])}")


def serve(schedulers: Sequence[Scheduler]) -> None:
    """Answers what children ask, until no slot has a further episode.

    Args:
        schedulers: what each of them plays.

    Raises:
        InputError: a program raised.
        SandboxError: a child broke the protocol or a limit, or has ended.
    """
    playing, due, waits = list(schedulers), 0.0, Waits()
    while playing:
        ready = waits.until_any(
            [descriptor for scheduler in playing for descriptor in scheduler.child.descriptors]
        )
        look = time.monotonic() > due
        for scheduler in list(playing):
            words, messages = scheduler.child.descriptors
            if words in ready:
                try:
                    if requests := scheduler.child.asked():
                        scheduler.answer(requests)
                except LedgerError as error:
                    raise scheduler.child.broke_protocol(str(error)) from error
                if scheduler.empty:
                    playing.remove(scheduler)
            if look or messages in ready:
                scheduler.look_after()
        if look:
            due = time.monotonic() + LOOK_AFTER


class Waits:
    """Waits for children, awake as long as that is worth it.

    To be woken on another processor costs both sides more than the replies do. The next requests are mostly
    on their way, so this process looks for them a while before it sleeps. But where a child thinks for
    longer, or shares its processor with this process, that is in vain: the more often it has been, the less
    often it is tried.
    """

    def __init__(self) -> None:
        self._asleep = 0  # waits that are slept through before the next one awake
        self._left = 0  # those of them that are still to come

    def until_any(self, descriptors: Sequence[int]) -> list[int]:
        """Waits until something has arrived, or it is time to look after children.

        Returns:
            Those at which something has arrived; there may be none.
        """
        if not self._left:
            until = time.monotonic() + AWAKE
            while time.monotonic() < until:
                ready, _, _ = select.select(descriptors, [], [], 0)
                if ready:
                    self._left = self._asleep = self._asleep // 2
                    return ready
            self._left = self._asleep = min(2 * self._asleep + 1, MOST_ASLEEP)
        self._left -= 1
        ready, _, _ = select.select(descriptors, [], [], LOOK_AFTER)
        return ready


class _Replayed(EpisodeSlot):
    """Episodes of recorded questions."""

    def __init__(self, run: _Run, texts: list[str]):
        self._run = run
        self._texts = texts
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

    def _spell(self, request: int) -> int:
        """Carries out an action, and says how its answer is spelled if that is new."""
        known = len(self._ledger.answers)
        reply = self._ledger.act(request)
        if len(self._ledger.answers) > known:
            vocabulary = self._run.dataset.questions[self._episode.question].vocabulary
            self._texts.append(vocabulary[self._ledger.answers[-1]])
        return reply


class _Stepped(Bounded, EpisodeSlot):
    """One episode, whose actions an executor carries out.

    Attributes:
        ended: what the episode came to, when it is over.
    """

    ended: Ended

    def __init__(self, stepper: Stepper, player: ProgramPlayer, texts: list[str]):
        super().__init__()
        self.act = self._act
        self._stepper = stepper
        self._player = player
        self._shown: list[str] = []
        self._texts = texts

    def says(self) -> str:
        return f"program {self._player.name!r} failed"

    @property
    def intervals(self) -> int:
        return int(self._view.intervals)

    def _act(self, request: int) -> int:
        view, index = self._view, request & BRANCHES
        action = request - index
        if action in (TOKENS, SEQUENTIAL_TOKENS):
            return self.for_free(int(view.tokens if action == TOKENS else np.max(view.branch_tokens)))
        opened, width = int(view.opened), view.width
        more = action == MORE
        if action not in (NEW, MORE, FULL) or not (0 <= index < opened if more else index == opened < width):
            raise LedgerError("an action or a branch that does not exist")
        if more and bool(view.finished[index]):
            raise LedgerError("a branch that is finished")
        one = np.zeros(width, np.int32)
        one[index] = 1
        depth = int(view.depth[index])
        self._stepper.carry_out(
            {NEW: Action(open=1), MORE: Action(advance=one), FULL: Action(read=1)}[action]
        )
        view = self._view
        if int(view.depth[index]) == depth:
            return self.for_free(REFUSED)
        return 2 * (self._label(index) + 1) + bool(view.finished[index])

    def end(self, label: int) -> bool:
        answer = self._shown[label] if 0 <= label < len(self._shown) else None
        latest = self._stepper.executor.answers(range(int(self._view.opened)))
        leader = latest.index(answer) if answer is not None and answer in latest else NONE
        sequential_tokens = int(np.max(self._view.branch_tokens))
        self.ended = Ended(answer, leader, StopReason.DECIDED, 0, sequential_tokens)
        return False

    def _label(self, index: int) -> int:
        (answer,) = self._stepper.executor.answers([index])
        if answer is None or answer == NO_ANSWER:
            return NONE
        if answer not in self._shown:
            self._shown.append(answer)
            if self._player.sealing.spellings:
                self._texts.append(answer)
        return self._shown.index(answer)

    @property
    def _view(self) -> View:
        return self._stepper.executor.view()


def _after(before: int, on_progress: Callable[[int], None]) -> Callable[[int], None]:
    """Reports progress of a part that has others before it."""
    return lambda done: on_progress(before + done)
