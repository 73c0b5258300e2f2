"""Compiled programs that outlive a run of the tests, in ``~/.cache/autotts_jax/tests``.

Every run works on a folder of its own, whose entries are links to what earlier runs have kept. Tests kill
processes while these write, and JAX neither writes an entry in one step nor accepts one that is cut off; so
only what is whole is kept, when a run ends. JAX finds entries by keys that XLA makes of programs, flags and
versions. The folder may be deleted at any time.
"""

import contextlib
import hashlib
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import platformdirs

MOST_BYTES = 2 * 2**30
"""What is kept for one version of JAX and its flags; beyond it goes what has not been read for longest."""

FOLDER = Path(platformdirs.user_cache_dir("autotts_jax")) / "tests"
LEFT_BEHIND = 24 * 3600.0
"""Seconds after which the folder of a run is one that was killed."""


def lend(flags: str, folder: Path = FOLDER) -> tuple[Path, Callable[[], None]]:
    """Makes the folder of a run.

    Args:
        flags: how XLA compiles.
        folder: where everything is.

    Returns:
        The folder of the run, and what to call when the run has ended.
    """
    kept = folder / f"jax-{version('jax')}-{hashlib.sha256(flags.encode()).hexdigest()[:8]}"
    runs = folder / "runs"
    try:
        kept.mkdir(parents=True, exist_ok=True)
        runs.mkdir(exist_ok=True)
        for old in runs.iterdir():
            with contextlib.suppress(FileNotFoundError):  # that run has just ended
                if time.time() - old.stat().st_mtime > LEFT_BEHIND:
                    shutil.rmtree(old, ignore_errors=True)
        run = Path(tempfile.mkdtemp(dir=runs))
        for entry in kept.iterdir():
            with contextlib.suppress(OSError):  # another run has just deleted it
                (run / entry.name).hardlink_to(entry)
    except OSError:  # a user without a folder, or without the right to write there
        run = Path(tempfile.mkdtemp(prefix="compiled-"))
        return run, lambda: shutil.rmtree(run, ignore_errors=True)

    def end() -> None:
        with contextlib.suppress(OSError):  # somebody has deleted the folder, or the disk is full
            for entry in run.iterdir():
                if not (kept / entry.name).exists() and is_whole(entry):
                    with contextlib.suppress(FileExistsError):  # another run has just kept it
                        (kept / entry.name).hardlink_to(entry)
            shrink(kept, MOST_BYTES)
        shutil.rmtree(run, ignore_errors=True)

    return run, end


def is_whole(entry: Path) -> bool:
    """Whether an entry of JAX's was written to its end: it is compressed, with a checksum at the end."""
    try:
        zlib.decompress(entry.read_bytes())
    except (OSError, zlib.error):
        return False
    return True


def shrink(folder: Path, most: int) -> None:
    """Deletes the files that have not been read for longest, until those that are left have so many bytes."""
    entries = {entry: entry.stat() for entry in folder.iterdir()}
    size = sum(found.st_size for found in entries.values())
    for entry in sorted(entries, key=lambda entry: entries[entry].st_atime):
        if size <= most:
            break
        entry.unlink(missing_ok=True)
        size -= entries[entry].st_size
