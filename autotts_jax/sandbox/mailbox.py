"""Two words of shared memory, for questions that take a microsecond to answer.

A message through a pipe wakes the other process up, which takes longer than most actions of an episode.
Here each side looks for the other's word for a while, and sleeps only then, until a bell rings. Each writes
its own word alone and numbers what it writes, so the order of writes does not matter. A bell that is missed,
because one side fell asleep as the other wrote, costs a nap.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import select
import tempfile
from collections.abc import Sequence

VALUE = (1 << 48) - 1
"""The largest value that can be asked or answered."""

LOOKS = 300
"""How often a side looks for a word before it sleeps."""

_SIZE = 4096
_ASK, _ANSWER, _CHILD_SLEEPS, _PARENT_SLEEPS = 0, 8, 16, 24  # words in cache lines of their own
_TURNS = 0x7FFF
_NAP = 1e-3


def open_shared() -> int:
    """Makes a file without a name for the words of a mailbox; returns its descriptor."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("mailbox", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, _SIZE)
    if hasattr(os, "memfd_create"):  # Who looks into a file that the other side has cut is killed.
        fcntl.fcntl(
            descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        )
    return descriptor


class Mailbox:
    """A mailbox between a child, which asks, and its parent, which answers.

    Args:
        shared: what `open_shared` returned; it is closed.
        bell: descriptor of the bell that this side hears.
        other: descriptor of the bell that the other side hears, which does not block.

    Attributes:
        bell: the bell that this side hears.
    """

    def __init__(self, shared: int, bell: int, other: int):
        self._words = memoryview(mmap.mmap(shared, _SIZE)).cast("q")
        self._turn = self._known = 0
        self.bell = bell
        self._other = other
        os.close(shared)

    # --- the child -----------------------------------------------------------------------------------------

    def ask(self, value: int) -> int:
        """Asks, and waits for the answer.

        Args:
            value: in 0 … `VALUE`.
        """
        words = self._words
        self._turn = turn = (self._turn + 1) & _TURNS
        words[_ASK] = turn << 48 | value
        if words[_PARENT_SLEEPS]:
            self._ring()
        looks = 0
        while (word := words[_ANSWER]) >> 48 != turn:
            looks += 1
            if looks >= LOOKS:
                words[_CHILD_SLEEPS] = 1
                if words[_ANSWER] >> 48 != turn:
                    sleep([self.bell])
                words[_CHILD_SLEEPS] = 0
        return word & VALUE

    # --- the parent ----------------------------------------------------------------------------------------

    def asked(self) -> int | None:
        """Takes what the child asks; None where it asks nothing new."""
        word = self._words[_ASK]
        turn = word >> 48
        if turn == self._turn:
            return None
        self._turn = turn
        return word & VALUE

    def answer(self, value: int) -> None:
        """Answers what was asked.

        Args:
            value: in 0 … `VALUE`.
        """
        words = self._words
        words[_ANSWER] = self._turn << 48 | value
        if words[_CHILD_SLEEPS]:
            self._ring()

    def fall_asleep(self) -> bool:
        """Has the child ring from now on; False where it has asked meanwhile."""
        self._words[_PARENT_SLEEPS] = 1
        return self._words[_ASK] >> 48 == self._turn

    def awake(self) -> None:
        """Has the child ring no longer."""
        self._words[_PARENT_SLEEPS] = 0

    def heard(self) -> bool:
        """Whether anything was taken since this was last called."""
        before, self._known = self._known, self._turn
        return before != self._turn

    def _ring(self) -> None:
        # It rings already, or nobody hears it any more, which whoever looks after the other side notices.
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(self._other, b"!")


def sleep(bells: Sequence[int]) -> None:
    """Sleeps until a bell rings, or for a nap.

    Args:
        bells: descriptors of bells.
    """
    rung, _, _ = select.select(bells, [], [], _NAP)
    for bell in rung:
        os.read(bell, 64)
