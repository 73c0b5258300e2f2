"""The child's side of programs: it plays their episodes in turns, and asks the parent for every action.

A process that waits for each answer spends its time on waiting. So several episodes are under way, each on a
stack of its own (a greenlet): while the parent answers what some have asked, others go on. Whose turn it is
follows from the order of actions alone, never from time: the first to have asked is the first to go on.
"""

from __future__ import annotations

import functools
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from greenlet import getcurrent, greenlet

from autotts_jax.policies.sealed.question import END, NO_ANSWER, SHOWING, Ask, ProgramQuestion, Replies
from autotts_jax.sandbox.channel import Channel
from autotts_jax.sandbox.int_channel import IntChannel
from autotts_jax.user_code import last_lines

Makes = Callable[[Mapping[str, Any] | None], Any]
"""The class of a program."""

_PATIENCE = 0.05
"""Seconds after which the parent should hear of what was asked."""

_LABELS = [f"a{label}" for label in range(1 << 14)]
_LABEL_OF = {text: label for label, text in enumerate(_LABELS)}
_LABELLED: Replies = [(text, finished) for text in [NO_ANSWER, *_LABELS] for finished in (False, True)]


def play(
    channel: Channel,
    program: Makes,
    config: Mapping[str, Any] | None,
    width: int,
    spelled: bool,
    slots: int,
) -> None:
    """Plays a program's episodes until the parent has no further one."""
    turns = _Turns(channel.words)

    def play_slot(slot: int) -> None:
        ask = turns.asker()
        goes_on = turns.first()
        while goes_on == 1:
            spellings = _Spellings(channel, ask) if spelled else None
            asks, table = (ask, _LABELLED) if spellings is None else (spellings.ask, spellings.table)
            try:
                answer = program(None if config is None else dict(config)).solve(
                    ProgramQuestion(asks, table, width)
                )
                if not (answer is None or isinstance(answer, str)):
                    raise TypeError(
                        f"solve returned a {type(answer).__name__}; return an answer that was shown, a str, "
                        "or None for none"
                    )
            except BaseException as error:
                own = error.__traceback__.tb_next if error.__traceback__ else None  # without the line above
                channel.send({"failed": last_lines(error.with_traceback(own)), "slot": slot})
                channel.receive()  # The parent ends this process.
            goes_on = ask(END + _label(answer, spellings) + 1)

    turns.take([functools.partial(play_slot, slot) for slot in range(slots)])


class _Turns:
    """Runs functions in turns, each on a stack of its own."""

    def __init__(self, words: IntChannel):
        self._words = words
        self._waiting = deque[Callable[[int], int]]()
        self._requests: list[int] = []
        self._replies: list[int] = []  # in reverse
        self._number = 1
        self._heard = time.monotonic()

    def take(self, functions: Iterable[Callable[[], None]]) -> None:
        """Calls functions, each of which waits for its `first` reply, until all have returned."""
        for function in functions:
            slot = greenlet(function)
            slot.switch()  # Begun here, it is not on top of another's stack.
            self._waiting.append(slot.switch)
        while self._waiting:
            if not self._replies:
                self._exchange()
            self._waiting.popleft()(self._replies.pop())

    def first(self) -> int:
        """Waits for the first reply to the function that is running, which it has not requested."""
        return getcurrent().parent.switch()

    def asker(self) -> Ask:
        """Gives the function that is running what it makes its requests with."""
        slot, waiting = getcurrent().switch, self._waiting
        requests, replies = self._requests, self._replies

        def ask(request: int) -> int:
            requests.append(request)
            waiting.append(slot)
            if not replies:
                self._exchange()
            return waiting.popleft()(replies.pop())

        return ask

    def _exchange(self) -> None:
        """Sends what was requested, and waits for the replies to earlier requests."""
        self._words.send(self._requests)
        self._requests.clear()
        # While the parent replies to one half, the other half goes on. A program that thinks for long sends
        # less at a time, for the parent to hear of it.
        now = time.monotonic()
        number = 1 if now - self._heard > _PATIENCE else min(2 * self._number, len(self._waiting) // 2)
        self._number = max(1, number)
        self._replies += reversed(self._words.receive(self._number))
        self._heard = time.monotonic()


class _Spellings:
    """Answers as they are spelled, which the parent says when an episode first sees one.

    Attributes:
        table: see `ProgramQuestion`.
    """

    def __init__(self, channel: Channel, ask: Ask):
        self._channel = channel
        self._ask = ask
        self.table: list[tuple[str, bool]] = [(NO_ANSWER, False), (NO_ANSWER, True)]

    def ask(self, request: int) -> int:
        """Makes a request, and notes how its answer is spelled if that is new."""
        reply = self._ask(request)
        if request < SHOWING and reply >= len(self.table):
            text = self._channel.receive().says["text"]
            self.table += (text, False), (text, True)
        return reply


def _label(answer: str | None, spellings: _Spellings | None) -> int:
    """The label that a program returned; -1 where it returned none that it was shown."""
    if answer is None:
        return -1
    answer = str.__str__(answer)
    if spellings is None:
        return _LABEL_OF.get(answer, -1)
    shown = (answer, False)
    return spellings.table.index(shown) // 2 - 1 if shown in spellings.table else -1
