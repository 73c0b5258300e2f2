"""Messages between a parent and its child: JSON and plain arrays in frames, and nothing that can run code."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "float16", "float32")
"""Dtypes of the arrays that a message may hold."""

MAX_BYTES = 1 << 28
"""The most bytes of a message."""

MAX_HEADER = 1 << 22
"""The most bytes of the JSON part of a message."""

MAX_SAID = 1 << 18
"""The most bytes of the JSON part of a child's message: a parsed one takes up to thirty times as many."""

MAX_AXES = 8
"""The most axes of an array of a message."""

_SIZES = struct.Struct("<II")


class MessageError(ValueError):
    """Bytes that are not a message."""


class Message(NamedTuple):
    """What one side says to the other.

    Attributes:
        says: the JSON part, an object.
        arrays: arrays by name.
    """

    says: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray]


def encode(says: Mapping[str, Any], arrays: Mapping[str, np.ndarray] | None = None) -> bytes:
    """Writes a message as a frame.

    Raises:
        MessageError: the message is too large.
    """
    columns = {name: np.asarray(array, order="C") for name, array in (arrays or {}).items()}
    shapes = [[name, array.dtype.name, *array.shape] for name, array in columns.items()]
    header = json.dumps([says, shapes]).encode()
    size = sum(array.nbytes for array in columns.values())
    if len(header) > MAX_HEADER or size > MAX_BYTES:
        raise MessageError(f"a message of {len(header)} and {size} bytes is too large")
    return b"".join([_SIZES.pack(len(header), size), header, *(a.tobytes() for a in columns.values())])


class Frames:
    """Takes frames out of a stream of bytes as they become complete."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        """Appends bytes of the stream."""
        self._buffer += data

    def wanted(self, most_header: int = MAX_HEADER, most: int = MAX_BYTES) -> int:
        """Counts the bytes that are missing of the next message.

        Args:
            most_header: the most bytes that its JSON part may have.
            most: the most bytes that its arrays may have.

        Returns:
            The bytes; 0 when it is complete.

        Raises:
            MessageError: the stream does not hold a frame, or a larger one.
        """
        if len(self._buffer) < _SIZES.size:
            return _SIZES.size - len(self._buffer)
        header, size = _SIZES.unpack_from(self._buffer)
        if header > most_header or size > min(most, MAX_BYTES):
            raise MessageError(f"a message of {header} and {size} bytes is too large")
        return max(0, _SIZES.size + header + size - len(self._buffer))

    def take(self) -> Message:
        """Takes the next message, which is complete.

        Raises:
            MessageError: its frame does not hold a message.
        """
        header, size = _SIZES.unpack_from(self._buffer)
        first = _SIZES.size + header
        text, body = bytes(self._buffer[_SIZES.size : first]), bytes(self._buffer[first : first + size])
        del self._buffer[: first + size]
        return _decode(text, body)


def _decode(text: bytes, body: bytes) -> Message:
    try:
        says, shapes = json.loads(text)
        arrays, first = {}, 0
        for name, dtype, *shape in shapes:
            # Multiplying axes that are long or many takes minutes.
            axes = len(shape) <= MAX_AXES and all(
                type(axis) is int and 0 <= axis <= MAX_BYTES for axis in shape
            )
            if dtype not in DTYPES or not axes:
                raise MessageError(f"an array of {str(dtype)[:40]!r} and {len(shape)} axes")
            count = math.prod(shape)
            # A byte that is neither 0 nor 1 would be neither true nor false.
            raw = np.frombuffer(body, "uint8" if dtype == "bool" else dtype, count, first)
            first += raw.nbytes
            arrays[str(name)] = raw.astype(dtype, copy=False).reshape(shape)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise MessageError(f"no message: {error}") from error
    if not isinstance(says, dict) or first != len(body):
        raise MessageError("no message: its parts do not fit together")
    return Message(says, arrays)
