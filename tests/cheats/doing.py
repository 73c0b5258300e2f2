"""Cheats that do what no program may do; each returns whether it did it."""

import mmap
import os
import resource
import signal
from pathlib import Path

import autotts_jax

FOLDER, PID = "@FOLDER@", "@PID@"


def read_shipped_data():
    return bool((Path(autotts_jax.__file__).parent / "replay" / "smollm2.npz").read_bytes())


def read_passwords():
    return bool(Path("/etc/passwd").read_bytes())


def write_a_file():
    return bool(Path(FOLDER, "written").write_text("here"))


def signal_the_judge():
    os.kill(int(PID), signal.SIGCONT)
    return True


def share_memory():
    return bool(mmap.mmap(-1, mmap.PAGESIZE))


def raise_limits():
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
    return True


def outlive_the_judge():
    if not os.fork():
        os.setsid()
        os.execv("/bin/sleep", ["sleep", "0"])
    return bool(os.wait())
