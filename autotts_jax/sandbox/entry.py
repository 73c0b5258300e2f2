"""Where a child begins: it is confined, finds the libraries, and hands over to a module of this package.

The parent starts this file by its path, in an isolated interpreter without site packages, so that nothing but
the standard library has been imported when the process is confined.
"""

from __future__ import annotations

import fcntl
import importlib
import importlib.util
import json
import os
import sys
import tempfile
import threading
import time
from typing import Any


def main() -> None:
    """Runs the job that standard input describes; says first whether it was confined."""
    job = json.loads(sys.stdin.buffer.read())
    confine = _load(os.path.join(os.path.dirname(__file__), "confine.py"))  # noqa: PTH118, PTH120
    confine.end_with_parent(job["parent"])
    confine.limit(job["memory"], job["cpu_seconds"])
    reached, reason = confine.PROCESS, ""
    if job["level"] == confine.KERNEL:
        try:
            confine.confine(job["readable"], job["listable"])
            reached = confine.KERNEL
        except confine.ConfinementError as error:
            reason = str(error)
    if sys.platform != "linux":
        threading.Thread(target=_watch, args=(job["parent"],), daemon=True).start()
    tempfile.tempdir = os.environ["TMPDIR"]  # libraries ask for it; nothing can be written there
    sys.path[:] = job["path"]
    sys.meta_path.insert(0, _Packages(job["packages"]))
    channel = importlib.import_module("autotts_jax.sandbox.channel").Channel(
        job["read"], job["write"], job["words"]
    )
    channel.send({"level": reached, "reason": reason})
    if not reason:
        module = importlib.import_module(job["module"])
        # What goes wrong up to here is printed for the parent; whatever runs from here on has no such voice.
        os.close(2)
        fcntl.fcntl(1, fcntl.F_DUPFD, 2)  # the call that dup2 makes is not among those that are left
        module.main(channel)


def _load(path: str) -> Any:
    spec = importlib.util.spec_from_file_location("confine", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _Packages:
    """Finds packages of which only the code may be read, not the folder that they are in."""

    def __init__(self, places: dict[str, tuple[str, list[str]]]):
        self._places = places

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:  # noqa: ARG002
        """Finds a package; None for others."""
        if name not in self._places:
            return None
        file, folders = self._places[name]
        return importlib.util.spec_from_file_location(name, file, submodule_search_locations=folders or None)


def _watch(parent: int) -> None:
    """Ends this process when its parent has ended, where the kernel does not see to that."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


if __name__ == "__main__":
    main()
