"""The child's side of programs: many episodes of one program at a time, each in a greenlet of its own.

A program that asks for an action waits until all others have asked too; then one message asks for all. There
are two halves, one of which is played while the parent answers the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from greenlet import greenlet

from autotts_jax.policies.sealed.question import NO_ANSWER, Question, Table
from autotts_jax.sandbox.channel import Channel
from autotts_jax.user_code import last_lines

Makes = Callable[[Mapping[str, Any] | None], Any]
"""The class of a program."""

SLOT_BITS, ACTION_BITS = 40, 32
"""An action is asked for as one number: slot, action and branch from these bits on."""

_LABELS = [f"a{label}" for label in range(1 << 14)]
_LABEL_OF = {text: label for label, text in enumerate(_LABELS)}
_LABELLED: Table = [(text, finished) for text in [NO_ANSWER, *_LABELS] for finished in (False, True)]


class _Slot:
    """Plays one episode after another.

    Args:
        solver: plays all slots.
        number: the slot's number.

    Attributes:
        go_on: goes on with the reply that the program waits for.
    """

    def __init__(self, solver: Solver, number: int):
        self._solver = solver
        self._number = number
        self._spelled: list[tuple[str, bool]] = []
        self._wait: Callable[[], Any] = greenlet.getcurrent().switch
        self.go_on: Callable[..., Any] = greenlet(self._play).switch

    def spell(self, text: str) -> None:
        """Notes how the next new answer of the episode is spelled."""
        self._spelled += (text, False), (text, True)

    def _play(self) -> None:
        solver = self._solver
        goes_on = True
        while goes_on:
            self._spelled = []
            self.spell(NO_ANSWER)
            table = self._spelled if solver.spelled else _LABELLED
            config = None if solver.config is None else dict(solver.config)
            try:
                answer = solver.program(config).solve(Question(self._asking(), table, solver.width))
            except (Exception, SystemExit) as error:
                solver.channel.send({"failed": last_lines(error), "slot": self._number})
                solver.channel.receive()  # The parent ends this process.
            solver.ends.append((self._number, self._label(answer)))
            goes_on = self._wait()

    def _asking(self) -> Callable[[int, int], int]:
        ask, wait, slot = self._solver.asks.append, self._wait, self._number << SLOT_BITS

        def asked(action: int, index: int) -> int:
            ask(slot | action << ACTION_BITS | index)
            return wait()

        return asked

    def _label(self, answer: Any) -> int:
        """The label that a program returned; -1 where it returned none that it was shown."""
        if not isinstance(answer, str):
            return -1
        answer = str.__str__(answer)
        if not self._solver.spelled:
            return _LABEL_OF.get(answer, -1)
        shown = (answer, False)
        return self._spelled.index(shown) // 2 - 1 if shown in self._spelled else -1


class Solver:
    """Plays a program's episodes.

    Args:
        channel: to the parent, which holds the questions.
        program: the program's class.
        config: what each instance is constructed with; each gets a copy.
        width: W, branches that an episode can open.
        spelled: whether answers are shown as they are spelled.

    Attributes:
        asks: actions that wait to be carried out.
        ends: episodes that have ended: slot and label of the answer of each.
    """

    def __init__(
        self,
        channel: Channel,
        program: Makes,
        config: Mapping[str, Any] | None,
        width: int,
        spelled: bool,
    ):
        self.channel = channel
        self.program = program
        self.config = config
        self.width = width
        self.spelled = spelled
        self.asks: list[int] = []
        self.ends: list[tuple[int, int]] = []

    def play(self, slots: int) -> None:
        """Plays until the parent has no further episode for any slot.

        Args:
            slots: episodes to play at a time, at most; the parent has one for each to begin with.
        """
        playing = [_Slot(self, number) for number in range(slots)]
        waiting: deque[tuple[list[int], list[tuple[int, int]]]] = deque()
        for half in (playing[: slots // 2], playing[slots // 2 :]):
            for slot in half:
                slot.go_on()
            self._ask(waiting)
        while waiting:
            asks, ends = waiting.popleft()
            says, arrays = self.channel.receive()
            for number, text in says.get("texts", ()):
                playing[asks[number] >> SLOT_BITS].spell(text)
            for ask, reply in zip(asks, arrays["replies"].tolist(), strict=True):
                playing[ask >> SLOT_BITS].go_on(reply)
            for (number, _), goes_on in zip(ends, arrays["goes_on"].tolist(), strict=True):
                playing[number].go_on(goes_on)
            self._ask(waiting)

    def _ask(self, waiting: deque[Any]) -> None:
        """Asks for whatever programs have asked for, and notes that the answer is waited for."""
        asks, ends = self.asks[:], self.ends[:]
        self.asks.clear()
        self.ends.clear()
        if asks or ends:
            arrays = {"asks": np.array(asks, np.int64), "ends": np.array(ends, np.int64).reshape(-1, 2)}
            self.channel.send({}, arrays)
            waiting.append((asks, ends))
