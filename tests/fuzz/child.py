"""The process in which inputs are read: within limits of memory and time, writing to one folder alone.

Usage: child.py FOLDER INPUTS SEED. Prints a line of JSON for each reader.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
import warnings
from pathlib import Path
from random import Random

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.configuration import set_hypothesis_home_dir
from readers import Reader, readers, refused

MEMORY = 2**30
"""Bytes of address space that reading may take beyond what the libraries have."""

SECONDS = 20
"""An input that takes more time of a processor hangs."""

WAIT = 600
"""Seconds after which an input hangs that waits for something."""

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_PATHS = {
    **{f"os.{name}": (0,) for name in ("mkdir", "remove", "rmdir", "truncate", "chmod", "utime", "mknod")},
    **{f"os.{name}": (0, 1) for name in ("rename", "link", "symlink")},
}


class Escape(BaseException):
    """Something that no input may bring about; no reader can take it for an error of the input."""


def hang(*_: object) -> None:
    """Ends an input that takes too long; a handler of SIGPROF and SIGALRM."""
    raise Escape(f"an input took more than {SECONDS} seconds of a processor, or {WAIT} in all")


def confine(folder: Path) -> None:
    """Makes writing outside a folder an `Escape`."""
    allowed = (f"{folder}{os.sep}", "/dev/null")

    def watch(event: str, arguments: tuple) -> None:
        if event == "open":
            path, mode, flags = arguments
            written = [path] if set(mode or "") & set("wax+") or flags & _WRITES else []
        else:
            written = [arguments[index] for index in _PATHS.get(event, ())]
        for path in written:
            if not isinstance(path, int):
                place = os.path.abspath(os.fsdecode(path))  # noqa: PTH100
                if not f"{place}{os.sep}".startswith(allowed):
                    raise Escape(f"{event} of {place!r}, which is not in {folder}")

    sys.addaudithook(watch)


def limit_memory() -> None:
    """Limits the address space to what there is and `MEMORY` more."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def read_many(reader: Reader, inputs: int, seed: int) -> tuple[int, int]:
    """Reads changed files.

    Args:
        reader: what reads them.
        inputs: how many.
        seed: seed of the changes.

    Returns:
        How many there were, and how many were accepted.
    """
    counts = {"inputs": 0, "accepted": 0}

    @hypothesis.seed(seed)
    @settings(
        max_examples=inputs,
        database=None,
        deadline=None,
        phases=[Phase.generate],  # a change that is drawn otherwise is another one, and no simpler
        suppress_health_check=list(HealthCheck),
    )
    @given(st.sampled_from(reader.examples), st.integers(0, 2**63))
    def read(example: bytes, number: int) -> None:
        content = reader.change(example, Random(number))
        counts["inputs"] += 1
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        signal.alarm(WAIT)
        try:
            reader.read(content)
            counts["accepted"] += 1
        except Exception as error:
            if not refused(error):
                error.add_note(f"The input was {content[:4000]!r}")
                raise
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.alarm(0)

    read()
    return counts["inputs"], counts["accepted"]


def main() -> None:
    """Reads changed files until there were enough of each reader."""
    folder, inputs, seed = Path(sys.argv[1]).resolve(), int(sys.argv[2]), int(sys.argv[3])
    os.environ |= {"TMPDIR": str(folder), "HOME": str(folder)}
    set_hypothesis_home_dir(folder)
    os.chdir(folder)

    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, hang)
    warnings.simplefilter("ignore")
    made = list(readers(folder))
    confine(folder)
    limit_memory()
    whole = sum(reader.share for _, reader in made)
    for name, reader in made:
        start = time.monotonic()
        count, accepted = read_many(reader, -(-inputs * reader.share // whole), seed)
        seconds = round(time.monotonic() - start, 1)
        told = {"reader": name, "inputs": count, "accepted": accepted, "seconds": seconds}
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
