"""Whole numbers through a pair of pipes: for questions that take a microsecond to answer, many at a time.

A message wakes the other process up and is parsed, which takes longer than most actions of an episode. Words
have a fixed size and no names, and one call of the system carries as many as there are.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Sequence

_SIZE = array("q").itemsize
_CHUNK = 1 << 16


class IntChannel:
    """One end of the pipes."""

    def __init__(self, read: int, write: int):
        self._read = read
        self._write = write
        self._part = b""

    def fileno(self) -> int:
        """The descriptor that words arrive at."""
        return self._read

    def send(self, words: Sequence[int]) -> None:
        """Sends words.

        Raises:
            BlockingIOError: the descriptor does not block, and the other side does not read.
            BrokenPipeError: nobody reads any more.
        """
        data = memoryview(array("q", words)).cast("B")
        while data:
            data = data[os.write(self._write, data) :]

    def receive(self, number: int) -> array[int]:
        """Waits for a number of words.

        Raises:
            EOFError: nobody writes any more.
        """
        words = array("q")
        while len(words) < number:
            words += self._take(_SIZE * (number - len(words)) - len(self._part))
        return words

    def take(self) -> array[int]:
        """Takes the words that have come; the descriptor must not block.

        Raises:
            EOFError: nobody writes any more.
        """
        try:
            return self._take(_CHUNK)
        except BlockingIOError:
            return array("q")

    def _take(self, most: int) -> array[int]:
        data = os.read(self._read, most)
        if not data:
            raise EOFError
        data = self._part + data
        whole = len(data) - len(data) % _SIZE
        self._part = data[whole:]
        words = array("q")
        words.frombytes(data[:whole])
        return words
