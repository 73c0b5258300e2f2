"""Writing files so that nothing is lost or half-written."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from autotts_jax.errors import InputError


def write_atomically(path: str | Path, content: bytes) -> None:
    """Writes a file whole or not at all: whatever happens, ``path`` is as it was or complete.

    Raises:
        InputError: the file cannot be written.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written: {error.strerror}; check its folder and the disk"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def make_folder(folder: Path) -> None:
    """Makes a folder, and those above it, where they are not there.

    Raises:
        InputError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made: {error.strerror}; choose another folder") from error
