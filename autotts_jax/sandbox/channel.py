"""The child's end of the pipes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autotts_jax.sandbox.int_channel import IntChannel
from autotts_jax.sandbox.messages import Frames, Message, encode

_CHUNK = 1 << 20


class Channel:
    """Sends messages to the parent and receives its answers.

    Attributes:
        words: what is asked there the parent answers there.
    """

    def __init__(self, read: int, write: int, words: Sequence[int]):
        self.words = IntChannel(*words)
        self._read = read
        self._write = write
        self._frames = Frames()

    def send(self, says: Mapping[str, Any], arrays: Mapping[str, np.ndarray] | None = None) -> None:
        """Sends a message."""
        frame = memoryview(encode(says, arrays))
        while frame:
            frame = frame[os.write(self._write, frame) :]

    def receive(self) -> Message:
        """Waits for a message; ends this process when the parent has closed the pipe."""
        while self._frames.wanted():
            data = os.read(self._read, _CHUNK)
            if not data:
                sys.exit(0)
            self._frames.feed(data)
        return self._frames.take()
