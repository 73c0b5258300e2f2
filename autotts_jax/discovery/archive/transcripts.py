"""Transcripts: what was asked of whom, what it can cost, and the reply; a file for each call.

A transcript is written as pending before the call, and again with the reply before that is used. A run that
is resumed reads it instead of paying again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

from autotts_jax.discovery.archive.records import is_amount, is_count
from autotts_jax.errors import DataError
from autotts_jax.files import make_folder, read_bytes, write_atomically
from autotts_jax.parsing import parse_json

TRANSCRIPTS = "transcripts"
"""The folder of a run that holds transcripts."""


@dataclasses.dataclass(frozen=True)
class Transcript:
    """A call, and its reply once that is there.

    Attributes:
        request: what was asked.
        most: what a call can cost, as two numbers.
        lost: calls before this one whose replies were lost.
        response: the reply, which cost what it names as ``used``; None while it is pending.
    """

    request: dict[str, Any]
    most: tuple[Any, ...]
    lost: int = 0
    response: dict[str, Any] | None = None

    @property
    def cost(self) -> tuple[Any, ...]:
        """What the calls have cost, or may have."""
        used = (self.response or {}).get("used") or self.most
        return tuple(last + self.lost * most for last, most in zip(used, self.most, strict=True))

    @classmethod
    def of_call(
        cls, request: dict[str, Any], most: tuple[Any, ...], folder: Path, name: str
    ) -> tuple[Path, Transcript]:
        """Finds the transcript of a call that is made now, or was in a run before.

        Returns:
            Its file, and what that holds; a new transcript where there is none.

        Raises:
            DataError: the file is damaged.
        """
        digest = hashlib.sha256(json.dumps(request).encode()).hexdigest()[:12]
        path = folder / f"{name}-{digest}.json"
        return path, cls.read(path) if path.exists() else cls(request, most)

    def begin(self, path: Path) -> Transcript:
        """Writes the transcript as pending, before its call is made.

        Returns:
            The transcript as it was written.
        """
        pending = dataclasses.replace(self, lost=self.lost + path.exists())
        make_folder(path.parent)
        pending.write(path)
        return pending

    def withdraw(self, path: Path) -> None:
        """Takes back what `begin` has written, because nothing was paid for the call."""
        if self.lost:
            dataclasses.replace(self, lost=self.lost - 1).write(path)
        else:
            path.unlink()

    @classmethod
    def read(cls, path: Path) -> Transcript:
        """Reads a transcript.

        Raises:
            DataError: the file is damaged.
        """
        try:
            fields = parse_json(read_bytes(path))
            read = cls(fields["request"], tuple(fields["most"]), fields["lost"], fields["response"])
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(path, "is not a transcript; restore the file") from error
        if not read._can_be():
            raise DataError(path, "is not a transcript, or damaged; restore the file")
        return read

    def _can_be(self) -> bool:
        """Whether each field is of its type, and no cost below nothing."""
        response = {} if self.response is None else self.response
        if not (isinstance(self.request, dict) and isinstance(response, dict) and is_count(self.lost)):
            return False
        used = self.most if response.get("used") is None else response["used"]
        texts = [response[name] for name in ("text", "failure", "finish") if response.get(name) is not None]
        return (
            isinstance(used, list | tuple)
            and len(used) == len(self.most) == 2
            and all(map(is_amount, [*used, *self.most]))
            and all(isinstance(text, str) for text in texts)
        )

    def write(self, path: Path) -> None:
        """Writes the transcript."""
        text = json.dumps(dataclasses.asdict(self), indent=1, ensure_ascii=False)
        write_atomically(path, f"{text}\n".encode(errors="replace"))
