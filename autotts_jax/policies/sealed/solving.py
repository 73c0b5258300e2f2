"""The child's side of programs: it plays one episode after another, and asks the parent for every action."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from autotts_jax.policies.sealed.question import NO_ANSWER, SHOWING, Question, Table
from autotts_jax.sandbox.channel import Channel
from autotts_jax.user_code import last_lines

Makes = Callable[[Mapping[str, Any] | None], Any]
"""The class of a program."""

END = 7
"""What is asked for when an episode has ended; the label of its answer, and 1, in place of the branch."""

ACTION_BITS = 32
"""An action is asked for as one number: the action from this bit on, and the branch below."""

_LABELS = [f"a{label}" for label in range(1 << 14)]
_LABEL_OF = {text: label for label, text in enumerate(_LABELS)}
_LABELLED: Table = [(text, finished) for text in [NO_ANSWER, *_LABELS] for finished in (False, True)]


def play(
    channel: Channel, program: Makes, config: Mapping[str, Any] | None, width: int, spelled: bool
) -> None:
    """Plays a program's episodes until the parent has no further one.

    Args:
        channel: to the parent, which holds the questions.
        program: the program's class.
        config: what each instance is constructed with; each gets a copy.
        width: W, branches that an episode can open.
        spelled: whether answers are shown as they are spelled.
    """
    ask = channel.mailbox.ask
    goes_on = True
    while goes_on:
        spellings = _Spellings(channel) if spelled else None
        asked, table = (_ask(ask), _LABELLED) if spellings is None else (spellings.ask, spellings.table)
        try:
            answer = program(None if config is None else dict(config)).solve(Question(asked, table, width))
        except BaseException as error:
            own = error.__traceback__.tb_next if error.__traceback__ else None  # without the line above
            channel.send({"failed": last_lines(error.with_traceback(own))})
            channel.receive()  # The parent ends this process.
        goes_on = ask(END << ACTION_BITS | _label(answer, spellings) + 1) == 1


def _ask(ask: Callable[[int], int]) -> Callable[[int, int], int]:
    def asked(action: int, index: int) -> int:
        return ask(action << ACTION_BITS | index) - 1

    return asked


class _Spellings:
    """Answers as they are spelled, which the parent says when an episode first sees one.

    Args:
        channel: to the parent.

    Attributes:
        table: see `Question`.
    """

    def __init__(self, channel: Channel):
        self._channel = channel
        self._ask = _ask(channel.mailbox.ask)
        self.table: list[tuple[str, bool]] = [(NO_ANSWER, False), (NO_ANSWER, True)]

    def ask(self, action: int, index: int) -> int:
        """Asks for an action, and notes how its answer is spelled if that is new."""
        reply = self._ask(action, index)
        if action < SHOWING and reply >= len(self.table):
            text = self._channel.receive().says["text"]
            self.table += (text, False), (text, True)
        return reply


def _label(answer: Any, spellings: _Spellings | None) -> int:
    """The label that a program returned; -1 where it returned none that it was shown."""
    if not isinstance(answer, str):
        return -1
    answer = str.__str__(answer)
    if spellings is None:
        return _LABEL_OF.get(answer, -1)
    shown = (answer, False)
    return spellings.table.index(shown) // 2 - 1 if shown in spellings.table else -1
