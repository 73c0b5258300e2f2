"""Reading whole files, and writing them so that nothing is lost or half-written."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import filelock

from autotts_jax.checks import check_text
from autotts_jax.errors import DataError, InputError

MAX_BYTES = 2**30
"""The largest file that is read."""

LOCK = ".lock"
"""The file in a folder that belongs to a process as long as it is locked."""


def read_bytes(path: str | Path, most: int = MAX_BYTES) -> bytes:
    """Returns the content of a file.

    Args:
        path: the file.
        most: the most bytes that it may have.

    Returns:
        Its bytes.

    Raises:
        DataError: the file cannot be read, is too large, or is a device or a pipe, which might have no end.
    """
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise DataError(path, f"has {size:,} bytes, more than {most:,}; split it")
        return file.read()


@contextlib.contextmanager
def opened(path: str | Path) -> Iterator[BinaryIO]:
    """Opens a file to read its bytes, of whatever size.

    Args:
        path: the file.

    Yields:
        The open file.

    Raises:
        DataError: the file cannot be read, or is a device or a pipe, which might have no end.
    """
    try:
        # Opening a pipe would wait for somebody who writes to it.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise DataError(path, "is a pipe or a device; write its content to a file and name that")
            yield file
    except OSError as error:
        reason = error.strerror or error
        raise DataError(path, f"cannot be read: {reason}; name a file that you may read") from error


def exists(path: str | Path) -> bool:
    """Tells whether there is a file or a folder.

    Args:
        path: its path.

    Returns:
        Whether there is.

    Raises:
        InputError: nothing can have such a path, or it cannot be looked up.
    """
    if not str(path):
        raise InputError("an empty path names nothing; give a file or a folder")
    if "\0" in str(path):
        raise InputError(f"{str(path)!r:.60}: no path has a NUL in it; name what is there")
    try:
        return Path(path).exists()
    except OSError as error:
        raise InputError(f"{str(path)!r:.60}: {error.strerror}; name what is there") from error


def destination(path: str | Path, name: str = "out") -> Path:
    """Checks that results can be at a path.

    Args:
        path: a file or a folder; there may be none yet.
        name: what the argument is called, for the message.

    Returns:
        The path.

    Raises:
        InputError: it is not a path, is empty, which would be the current folder, or is impossible.
    """
    if not isinstance(path, str | Path):
        raise InputError(f"{name} is {path!r:.60}, but it must be a path")
    check_text(name, str(path))
    exists(path)
    return Path(path)


def files_below(folder: Path) -> list[Path]:
    """Lists the files in a folder and all its subfolders; links to folders are not followed.

    Args:
        folder: the folder.

    Returns:
        The regular files, sorted by path.

    Raises:
        InputError: a folder cannot be listed, or a file not looked at.
    """

    def refuse(error: OSError) -> None:
        raise InputError(
            f"{error.filename}: cannot be listed: {error.strerror}; allow it, or name the files to read"
        ) from error

    found = (Path(place, name) for place, _, names in os.walk(folder, onerror=refuse) for name in names)
    try:
        return sorted(file for file in found if file.is_file())
    except OSError as error:
        raise InputError(
            f"{error.filename}: cannot be looked at: {error.strerror}; allow it, or name the files to read"
        ) from error


def write_atomically(path: str | Path, content: bytes) -> None:
    """Writes a file completely or not at all: an interrupted write leaves ``path`` as it was.

    Args:
        path: the file to write; an existing one is replaced. Where it is a link, the file that it leads to.
        content: its new content.

    Raises:
        InputError: the file cannot be written.
    """
    target = Path(os.path.realpath(destination(path, "the file's path")))
    if target.is_symlink():
        raise InputError(f"{path} is a link that leads back to itself; name a file")
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        _write_new(temporary, content)
        temporary.replace(target)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written: {error.strerror}; check its folder and the disk"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def write_folder(path: str | Path, contents: Mapping[str, bytes]) -> None:
    """Writes a new folder completely or not at all.

    Args:
        path: the folder to write; there is none, or an empty one that is not the current folder. Where it is
            a link, the folder that it leads to.
        contents: the content of each file, by its path in the folder.

    Raises:
        InputError: there are files in the folder already, it is the current folder, or it cannot be written.
    """
    try:
        # A complete folder takes the place of the empty one, and not that of a link to it.
        target = Path(os.path.realpath(destination(path, "the folder's path")))
        if target == Path.cwd():
            raise InputError(f"{path} is the current folder; name a new one in it or beside it")
        if target.exists() and not (target.is_dir() and not any(target.iterdir())):
            raise InputError(f"{path} is there and not an empty folder; name a new one")
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
        try:
            for name, content in contents.items():
                file = temporary / name
                file.parent.mkdir(parents=True, exist_ok=True)
                _write_new(file, content)
            temporary.rename(target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written: {error.strerror}; check its folder and the disk"
        ) from error


def _write_new(path: Path, content: bytes) -> None:
    """Writes a file that is not there, through to the disk."""
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def make_folder(folder: Path) -> None:
    """Creates a folder and its parents unless they exist.

    Args:
        folder: the folder to create.

    Raises:
        InputError: the folder cannot be created.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made: {error.strerror}; choose another folder") from error


def check_name(name: str, path: str | Path) -> str:
    """Checks that a name from elsewhere can be the name of a file or a folder.

    Args:
        name: the name.
        path: where it comes from, for the message.

    Returns:
        The name.

    Raises:
        DataError: it would lead elsewhere, or cannot be shown.
    """
    if not name.isprintable() or name in ("", ".", "..") or "/" in name or "\\" in name:
        raise DataError(path, f"gives a file the name {name!r:.60}, which no file can have; rename it")
    return name


@contextlib.contextmanager
def locked(folder: Path, patience: float = 0) -> Iterator[None]:
    """Keeps other processes that ask for the same out of a folder, until the end of the block or the process.

    What a killed process has left half-written there is removed.

    Args:
        folder: the folder; made if there is none, and removed if the block puts nothing into it.
        patience: seconds to wait for another process that has it.

    Raises:
        InputError: another has it, or the folder cannot be written.
    """
    holding = filelock.FileLock(folder / LOCK, timeout=patience)
    while not holding.is_locked:
        made = not exists(folder)
        make_folder(folder)
        try:
            holding.acquire()
        except filelock.Timeout:
            raise InputError(f"{folder} is in use by another run; wait for it, or end it") from None
        except FileNotFoundError:  # another process, which put nothing into the folder, has removed it
            continue
        except OSError as error:
            raise InputError(f"{folder}: cannot be written: {error.strerror}; check its folder") from error
    try:
        remove_unfinished(folder)
        yield
    finally:
        # Removed while it is held: who waits for it finds out, and makes another.
        with contextlib.suppress(OSError):
            (folder / LOCK).unlink()
        holding.release()
        if made:
            with contextlib.suppress(OSError):  # it is not empty
                folder.rmdir()


def remove_unfinished(folder: Path) -> None:
    """Removes what `write_atomically` has left in a folder when its process was killed.

    Args:
        folder: a folder that nobody else writes to.
    """
    for left in folder.glob(".*.????????.tmp"):
        left.unlink(missing_ok=True)
