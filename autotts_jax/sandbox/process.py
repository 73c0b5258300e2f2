"""The parent's side of a sandbox: it starts a child, talks to it within limits, and ends it."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import math
import os
import select
import signal
import subprocess
import sys
import sysconfig
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn, Self

import numpy as np

from autotts_jax.checks import check_choice, check_float, check_int
from autotts_jax.errors import InputError
from autotts_jax.sandbox.confine import KERNEL, NONE, PROCESS
from autotts_jax.sandbox.int_channel import IntChannel
from autotts_jax.sandbox.messages import MAX_SAID, Frames, Message, MessageError, encode

Level = Literal["kernel", "process", "none"]

PACKAGE = Path(__file__).resolve().parents[1]
"""The folder of this package."""

LIBRARIES = ("stdlib", "platstdlib", "purelib", "platlib")
"""What `sysconfig` calls the folders of the standard library and of installed packages."""

_CODE = {".py", ".pyc", ".pyi", ".so", ".pyd"}
_NOWHERE = "/nonexistent"
"""A folder that no system has."""

_PRINTED_LINES = 8
"""Lines of what a child printed that an error shows."""

_LOOK_AFTER = 0.05
"""Seconds between two looks at a child that computes."""

# What JAX and the C library read of the system to find out about the processor, the clock and random numbers.
_SYSTEM = (
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/share/zoneinfo",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/dev/null",
    "/dev/zero",
    "/dev/urandom",
    "/proc/cpuinfo",
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
)


class SandboxError(InputError):
    """What runs in a sandbox failed or broke a limit; the child has been ended."""


UNCONFINED = "the kernel of this machine does not confine processes"
"""What a `LevelError` says."""

REMEDY = "if you trust it with your files, say --sandbox process, or Sandbox('process') in Python"
"""What to do then."""


class LevelError(InputError):
    """This machine does not offer the level of a sandbox."""


_HELD = ("Threads", "VmRSS", "RssFile", "VmSwap", "VmPTE")
"""Lines of ``/proc/PID/status``: threads, and memory in KiB."""

MOST_THREADS = 4096
"""Threads that a child may have; JAX starts a few for each core."""

PIPE_BYTES = 1 << 20
"""Bytes that a pipe holds, as many as any process may ask for on Linux."""

LEAST_MEMORY = 64 << 20
"""Bytes without which no interpreter starts."""


@dataclasses.dataclass(frozen=True)
class Sandbox:
    """The limits of a child process, and the level of confinement that it needs.

    Attributes:
        level: ``kernel`` to have the kernel confine the child, or else refuse; ``process`` to do without;
            ``none`` for code of your own, where a process is needed only to talk to it.
        seconds: wall-clock time that the child may take from one message to the next.
        memory: bytes that the child may hold; the children of all players, together.
        cpu_seconds: CPU time of the child as a whole; None for no limit.
        wall_seconds: wall-clock time of the child as a whole; of players, that of each play, whatever
            children take part, and as much to load the code. None for no limit.
    """

    level: Level = "kernel"
    seconds: float = 120.0
    memory: int = 4 << 30
    cpu_seconds: int | None = None
    wall_seconds: float | None = None

    def __post_init__(self) -> None:
        check_choice("sandbox level", self.level, (KERNEL, PROCESS, NONE))
        check_float("a sandbox's seconds", self.seconds, above=0)
        check_int("a sandbox's memory in bytes", self.memory, LEAST_MEMORY, 1 << 50)
        if self.cpu_seconds is not None:
            check_int("a sandbox's CPU time in seconds", self.cpu_seconds, 1, 1 << 31)
        if self.wall_seconds is not None:
            check_float("a sandbox's wall_seconds", self.wall_seconds, above=0)

    def deadline(self) -> float | None:
        """Says when what begins now has to end.

        Returns:
            The time by `time.monotonic`; None for never.
        """
        return None if self.wall_seconds is None else time.monotonic() + self.wall_seconds


class Child:
    """A process that runs untrusted code.

    It is a fresh interpreter in a session of its own, with four pipes, a few variables of the environment,
    and no folder to write to, so nothing of it is left behind. It is confined before it imports anything but
    the standard library. Whatever ends it, its whole process group is killed.

    Args:
        module: a module of this package whose ``main(channel)`` the child runs.
        sandbox: limits.
        readable: further files and folders that the child may read.
        listable: further folders whose entries it may list.
        packages: file and folders of packages that it may import besides installed ones.
        name: what the child runs, for messages.
        remedy: what to do where the kernel does not confine processes.

    Attributes:
        level: ``kernel`` or ``process``, once it has begun.
        until: when its time as a whole is over, by `time.monotonic`; None for never.
    """

    level: str
    until: float | None

    def __init__(
        self,
        module: str,
        sandbox: Sandbox,
        *,
        readable: Sequence[str | Path] = (),
        listable: Sequence[str | Path] = (),
        packages: Mapping[str, tuple[str, Sequence[str]]] | None = None,
        name: str = "the program",
        remedy: str = REMEDY,
    ):
        self.name = name
        self._sandbox, self._remedy = sandbox, remedy
        self._paused, self._weighed = False, -math.inf
        self.until = sandbox.deadline()
        self._frames = Frames()
        pipes = [os.pipe() for _ in range(4)]
        (to_child, self._write), (self._read, from_child), (answers, answer), (asks, ask) = pipes
        here, there = (self._write, self._read, answer, asks), (to_child, from_child, answers, ask)
        for pipe in here:
            os.set_blocking(pipe, False)
        for pipe in (self._write, self._read):
            _widen(pipe)
        job = {
            "parent": os.getpid(),
            "module": module,
            "level": sandbox.level,
            "memory": sandbox.memory,
            "cpu_seconds": sandbox.cpu_seconds,
            "readable": [*readable_places(), *map(str, readable)],
            "listable": [*listable_places(), *map(str, listable)],
            "path": import_path(),
            "packages": {PACKAGE.name: (str(PACKAGE / "__init__.py"), [str(PACKAGE)]), **(packages or {})},
            "read": to_child,
            "write": from_child,
            "words": (answers, ask),
        }
        entry = str(PACKAGE / "sandbox" / "entry.py")
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-B", "-X", "utf8", entry],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                cwd="/",
                env=_environment(),
                pass_fds=there,
                start_new_session=True,
            )
        except BaseException:
            for pipe in here:
                os.close(pipe)
            raise
        finally:
            for pipe in there:
                os.close(pipe)
        self._words = IntChannel(asks, answer)
        self._end = weakref.finalize(self, _end, self._process, here)
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._process.stdin as stream:
            stream.write(json.dumps(job).encode())  # A child that has ended is noticed by whoever asks it.
        self._asked = time.monotonic()

    def begin(self) -> Self:
        """Waits until the child is confined.

        Raises:
            LevelError: the machine does not offer the level that is asked for.
            SandboxError: the child does not start.
        """
        says = self.receive().says
        self.level = KERNEL if self._sandbox.level == KERNEL else PROCESS
        if says.get("level") != self.level:
            self.close()
            raise LevelError(
                f"{self.name} does not run, because {UNCONFINED} ({says.get('reason')}); {self._remedy}"
            )
        return self

    # --- messages ------------------------------------------------------------------------------------------

    def send(self, says: Mapping[str, Any], arrays: Mapping[str, np.ndarray] | None = None) -> None:
        """Sends a message; from now on the child has its time to answer.

        Args:
            says: the JSON part.
            arrays: arrays by name.

        Raises:
            SandboxError: the child has ended, or does not read, or the message is too large.
        """
        try:
            frame = memoryview(encode(says, arrays))
        except MessageError as error:
            self._fail(f"{self.name} cannot be told all that it has to know: {error}", error)
        self._asked = time.monotonic()
        while frame:
            try:
                frame = frame[os.write(self._write, frame) :]
            except BlockingIOError:
                select.select([], [self._write], [], _LOOK_AFTER)
                self._look()
            except OSError:
                self._fail_ended()

    def receive(self, most: int = 0) -> Message:
        """Waits for a message.

        Args:
            most: the most bytes that its arrays may have.

        Raises:
            SandboxError: the child has ended, takes too long or too much memory, or sends no message or a
                larger one.
        """
        while not self.complete(most):
            select.select([self._read], [], [], _LOOK_AFTER)
        return self.take()

    def ask(
        self, says: Mapping[str, Any], arrays: Mapping[str, np.ndarray] | None = None, most: int = 0
    ) -> Message:
        """Sends a message and waits for the answer.

        Args:
            says: the JSON part.
            arrays: arrays by name.
            most: the most bytes that the arrays of the answer may have.

        Raises:
            SandboxError: as `send` and `receive`.
        """
        self.send(says, arrays)
        return self.receive(most)

    def complete(self, most: int = 0) -> bool:
        """Reads what has come, and tells whether it completes a message.

        Args:
            most: the most bytes that its arrays may have.

        Raises:
            SandboxError: as `receive`.
        """
        try:
            while wanted := self._frames.wanted(MAX_SAID, most):
                data = os.read(self._read, max(wanted, 1 << 16))
                if not data:
                    self._fail_ended()
                self._frames.feed(data)
        except BlockingIOError:
            self._look()
            return False
        except MessageError as error:
            self._fail(f"{self.name} broke the protocol: {error}", error)
        return True

    def take(self) -> Message:
        """Takes the message that is complete; the child has its time again for the next one.

        Raises:
            SandboxError: it is not a message.
        """
        self._asked = time.monotonic()
        try:
            return self._frames.take()
        except MessageError as error:
            self._fail(f"{self.name} broke the protocol: {error}", error)

    # --- words ---------------------------------------------------------------------------------------------

    @property
    def descriptors(self) -> tuple[int, int]:
        """The descriptors that words and messages arrive at."""
        return self._words.fileno(), self._read

    def asked(self) -> Sequence[int]:
        """Takes the words that the child has sent; there may be none.

        Raises:
            SandboxError: the child has ended.
        """
        try:
            words = self._words.take()
        except EOFError:
            self._fail_ended()
        if words:
            self._asked = time.monotonic()
        return words

    def answer(self, words: Sequence[int]) -> None:
        """Sends words; from now on the child has its time to answer.

        Args:
            words: integers of 64 bits.

        Raises:
            SandboxError: the child has ended, or does not read.
        """
        self._asked = time.monotonic()
        try:
            self._words.send(words)
        except BlockingIOError as error:
            self._fail(f"{self.name} broke the protocol: it asks without reading the answers", error)
        except BrokenPipeError:
            self._fail_ended()

    # --- rest ----------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Stops the child, which has nothing to do, until `resume`."""
        os.killpg(self._process.pid, signal.SIGSTOP)
        self._weighed = -math.inf
        self.held()
        self._paused = True

    def resume(self) -> None:
        """Has the child go on after `pause`; it has its time again."""
        os.killpg(self._process.pid, signal.SIGCONT)
        self._paused, self._asked = False, time.monotonic()

    def held(self) -> int:
        """Gives the bytes that the child holds, as of a moment ago."""
        now = time.monotonic()
        if not self._paused and now > self._weighed + _LOOK_AFTER:
            self._held, self._threads = (0, 0) if self.closed else _holds(self._process.pid)
            self._weighed = now
        return self._held

    def held_together(self) -> int:
        """Gives the bytes that count against its limit."""
        return self.held()

    def broke_protocol(self, what: str) -> SandboxError:
        """Ends a child that sent a message which makes no sense; gives the error to raise.

        Args:
            what: what is wrong with the message.
        """
        self.close()
        return SandboxError(f"{self.name} broke the protocol: {what}")

    # --- the end -------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether the child has been ended."""
        return not self._end.alive

    def close(self) -> None:
        """Kills the child and whatever it has started."""
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _look(self) -> None:
        """Ends the child if it takes too long or holds too much."""
        if time.monotonic() - self._asked > self._sandbox.seconds:
            self._fail(f"{self.name} took longer than the {self._sandbox.seconds:g} s that a step may take")
        if self.until is not None and time.monotonic() > self.until:
            whole = self._sandbox.wall_seconds
            self._fail(f"{self.name} took longer than the {whole:g} s that it has as a whole")
        if self.held_together() > self._sandbox.memory:
            self._fail(f"{self.name} held more than {self._sandbox.memory / 2**30:.3g} GiB of memory")
        if self._threads > MOST_THREADS:
            self._fail(f"{self.name} started more than {MOST_THREADS} threads")

    def _fail_ended(self) -> NoReturn:
        self._process.poll()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        code = self._process.returncode
        if code is None:
            how = "closed its pipe"
        elif code < 0:
            how = f"was ended by {_signal_name(-code)}"
            if -code == signal.SIGXCPU:
                how += f": it took more than {self._sandbox.cpu_seconds} s of CPU time"
        else:
            how = f"ended itself with status {code}"
        self._fail(f"{self.name}: its process {how}{self._printed()}")

    def _printed(self) -> str:
        """The end of what the child printed before it ran anybody's code; later it has nowhere to print."""
        assert self._process.stderr is not None
        os.set_blocking(self._process.stderr.fileno(), False)
        printed = (self._process.stderr.read() or b"").decode(errors="replace").strip()
        return ":\n" + "\n".join(printed.splitlines()[-_PRINTED_LINES:]) if printed else ""

    def _fail(self, message: str, cause: BaseException | None = None) -> NoReturn:
        self.close()
        raise SandboxError(message) from cause


def _widen(pipe: int) -> None:
    """Has a pipe hold as much as it may, so that a large message goes through it in few parts."""
    with contextlib.suppress(AttributeError, OSError):  # other systems, or too many pipes
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals have no names
        return f"signal {number}"


def _end(process: subprocess.Popen[bytes], pipes: Sequence[int]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()
    if process.stderr:
        process.stderr.close()
    for pipe in pipes:
        os.close(pipe)


# --- what a child is given ------------------------------------------------------------------------------


def _environment() -> dict[str, str]:
    """The variables of a child: none of the parent's but those without which nothing runs."""
    kept = {name: os.environ[name] for name in ("SYSTEMROOT", "LD_LIBRARY_PATH") if name in os.environ}
    return kept | {
        "HOME": _NOWHERE,
        "TMPDIR": _NOWHERE,
        "LANG": "C.UTF-8",
        "JAX_PLATFORMS": "cpu",
        "PYTHONHASHSEED": "0",
    }


def import_path() -> list[str]:
    """The folders that the parent imports from, as a child finds them from any folder."""
    return [str(Path(place).resolve()) for place in sys.path if place and Path(place).exists()]


def readable_places() -> list[str]:
    """The interpreter, installed libraries, the code of this package, and a few files of the system."""
    found: dict[str, None] = {}
    for place in _libraries():
        found |= dict.fromkeys(_around(place, PACKAGE))
    return [*found, *code_files(PACKAGE)]


def listable_places() -> list[str]:
    """The folder of this package, and the libraries that it is installed among, which imports list."""
    return [str(place) for place in (PACKAGE, *_libraries()) if PACKAGE.is_relative_to(place)]


def _libraries() -> list[Path]:
    """Where the interpreter, installed libraries and a few files of the system are."""
    paths = sysconfig.get_paths()
    installed = [paths[name] for name in LIBRARIES]
    places = [*installed, str(Path(sys.base_prefix) / "lib"), *_SYSTEM]
    return list(dict.fromkeys(Path(place).resolve() for place in places))


def code_files(folder: str | Path) -> list[str]:
    """The code in a folder, without whatever else is in it or a link leads to."""
    root = Path(folder).resolve()
    files = (file for file in root.rglob("*") if file.suffix in _CODE and file.is_file())
    return [str(file) for file in files if file.resolve().is_relative_to(root)]


def _around(place: Path, left_out: Path) -> Iterator[str]:
    """A place, or what it holds besides a folder in it that is left out."""
    if not left_out.is_relative_to(place):
        yield str(place)
    elif place != left_out:
        for entry in place.iterdir():
            yield from _around(entry.resolve(), left_out)


def _holds(pid: int) -> tuple[int, int]:
    """Bytes that a process holds, and its threads; 0 where that cannot be found out.

    Page tables count, but not pages of files, which processes share and the kernel can drop.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0, 0
    said = {
        name: int(value.split()[0]) for name, value in (line.split(":", 1) for line in lines) if name in _HELD
    }
    held = said.get("VmRSS", 0) - said.get("RssFile", 0) + said.get("VmSwap", 0) + said.get("VmPTE", 0)
    return 1024 * held, said.get("Threads", 0)
