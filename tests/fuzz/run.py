"""Reads many changed files of every kind; `make fuzz` runs it.

Usage: run.py [INPUTS [SEED]]. Exits with status 1 if an input escaped: if it was answered by anything but
success or one error that says what is wrong, hung, took too much memory, or made a reader write elsewhere.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

CHILD = Path(__file__).with_name("child.py")
SHARED = Path("/dev/shm")
"""Files in memory are written fast, where there are any."""


def fuzz(inputs: int, seed: int, processes: int, timeout: float | None = None) -> Counter[str]:
    """Reads changed files in processes of their own.

    Args:
        inputs: how many.
        seed: seed of the changes.
        processes: how many processes share them.
        timeout: seconds that they may take.

    Returns:
        How many there were of each kind.

    Raises:
        AssertionError: an input escaped; the message is the end of what the process said.
    """
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=SHARED if SHARED.is_dir() else None) as place:
        children = []
        for number in range(processes):
            folder = Path(place) / str(number) / "given"
            folder.mkdir(parents=True)
            share = str(inputs // processes)
            command = [sys.executable, "-B", str(CHILD), str(folder), share, str(seed * 64 + number)]
            log = (folder.parent / "log").open("w")
            children.append((folder, log, subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)))
        for folder, log, child in children:
            try:
                status = child.wait(timeout)
            finally:
                child.kill()
                log.close()
            said = (folder.parent / "log").read_text(errors="replace")
            assert status == 0, f"status {status}:\n{said[-8000:]}"
            assert sorted(path.name for path in folder.parent.iterdir()) == ["given", "log"]
            for line in said.splitlines():
                if line.startswith('{"reader"'):
                    told = json.loads(line)
                    counts[told["reader"]] += told["inputs"]
    return counts


def main() -> int:
    """Runs the harness from the command line."""
    inputs = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else time.time_ns() % 2**32
    print(f"seed {seed}", flush=True)
    start = time.monotonic()
    try:
        counts = fuzz(inputs, seed, len(os.sched_getaffinity(0)))
    except AssertionError as escaped:
        print(escaped)
        return 1
    for reader, count in counts.items():
        print(f"{count:>8,}  {reader}")
    print(f"{sum(counts.values()):>8,}  inputs without an escape, in {time.monotonic() - start:,.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
