"""Processes that compute what may take too long, under one budget.

An item has a limit of a processor's time, by default a second. All items share what those may waste that
exceed it: once that is used up, an item has a twentieth of a second, which is more than most need. A process
that exceeds a limit where it cannot be interrupted, or takes too much memory, is killed and replaced.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import json
import math
import mmap
import os
import queue
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection, Pipe
from typing import Any, Self

from autotts_jax.errors import InputError

LIMIT = 1.0
"""Seconds of a processor's time for an item."""

_LEAST = 0.05
"""Seconds that an item has in any case."""

_SHARED, _EACH = 3.0, 0.02
"""Seconds that all items together may waste by exceeding their limits, and more for each item."""

_MEMORY = 2**29
"""Bytes that a worker may allocate."""

_SHARE = 20
"""Items that go to one worker at a time, and are worth the start of another."""

_START_SECONDS = 120.0
"""Time that a worker may need to import what it needs on a busy machine."""

_PATIENCE = 60
"""How much longer than it may compute a worker may take on a busy machine."""

PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from autotts_jax.replay import workers; workers.serve(int(sys.argv[2]), *sys.argv[3:])"
)
"""What a worker process runs."""

_CLOSED = "the grader is closed; use it inside its `with` block"
_EXCEEDED, _LOST = "exceeded", "lost"


@dataclasses.dataclass(frozen=True)
class Result:
    """What was computed of an item.

    Attributes:
        value: what the function returned; None where the limit was exceeded.
        exceeded: whether it was.
    """

    value: Any
    exceeded: bool


class LimitedWorkers:
    """Worker processes that call a function.

    Use them as a context manager; `map` may be called from many threads. Each worker is a fresh interpreter
    that imports neither the caller's main module nor JAX, and forks a process that computes. One that
    crashes is replaced; an item at which two are lost counts as one that exceeds its limit.

    Args:
        function: the function, as ``module:name``. The module has a function ``start_worker()``, which is
            called once before the first item.
        count: number of workers.
        limit: seconds of a processor's time for an item.
    """

    def __init__(self, function: str, count: int, limit: float = LIMIT):
        self._limit = limit
        self._workers = [_Worker(function) for _ in range(count)]
        self._idle: queue.LifoQueue[_Worker] = queue.LifoQueue()
        for worker in self._workers:
            self._idle.put(worker)
        self._threads = ThreadPoolExecutor(count, "worker")
        self._lock = threading.Lock()
        self._allowance = _SHARED
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Starts all workers, which otherwise start when they are needed."""
        for worker in self._workers:
            worker.start()

    def close(self) -> None:
        """Ends the workers at once; calls that are running in other threads raise InputError."""
        self._closed = True
        for worker in self._workers:
            worker.close()
        self._threads.shutdown()

    def map(self, items: Sequence[tuple[Any, ...]]) -> list[Result]:
        """Calls the function with the arguments that each item holds.

        Returns:
            The result of each.

        Raises:
            InputError: the workers are closed, or do not start.
        """
        if self._closed:
            raise InputError(_CLOSED)
        results: list[Any] = [None] * len(items)
        starts = iter(range(0, len(items), _SHARE))

        def lane(_: int) -> None:
            for start in starts:  # neighbours are alike, so that one worker remembers parts of the next
                for place in range(start, min(start + _SHARE, len(items))):
                    results[place] = self._one(items[place])

        list(self._threads.map(lane, range(min(len(self._workers), math.ceil(len(items) / _SHARE)))))
        return results

    def _one(self, item: tuple[Any, ...]) -> Result:
        with self._lock:
            self._allowance += _EACH
            limit = min(self._limit, max(self._allowance, _LEAST))
        worker = self._idle.get()
        try:
            for _ in range(2):
                with contextlib.suppress(EOFError, OSError):
                    state, value = worker.call(item, limit)
                    if state != _LOST:
                        break
            else:
                state, value = _EXCEEDED, None
        except TimeoutError:
            state, value = _EXCEEDED, None
        finally:
            self._idle.put(worker)
        if state == _EXCEEDED:
            with self._lock:
                self._allowance -= limit
        return Result(value, state == _EXCEEDED)


class _Worker:
    """A worker process and the pipe to it, for one thread at a time.

    It is an interpreter of its own rather than `multiprocessing`'s, which would import the caller's main
    module into every worker, and with it JAX or vLLM, and fail where that has no
    ``if __name__ == "__main__":``.
    """

    def __init__(self, function: str):
        self._function = function
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._ready = self._closed = False
        self._number = 0
        self._lock = threading.Lock()

    def start(self) -> None:
        """Starts the process unless it is running, without waiting for it to be ready."""
        with self._lock:
            if self._closed:
                raise InputError(_CLOSED)
            if self._process:
                return
            self._connection, theirs = Pipe()
            with theirs:
                self._process = subprocess.Popen(
                    [
                        sys.executable,
                        "-c",
                        PROGRAM,
                        json.dumps(sys.path),
                        str(theirs.fileno()),
                        self._function,
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},  # whose buffers would count as memory
                    pass_fds=[theirs.fileno()],
                    process_group=0,  # an interrupt from the keyboard does not reach it
                )

    def call(self, item: tuple[Any, ...], limit: float) -> tuple[str, Any]:
        """Calls the function. A call that is abandoned ends the process.

        Returns:
            How the call ended, and what the function returned.

        Raises:
            TimeoutError: the process is stuck.
            EOFError, OSError: the process is gone.
            InputError: no process can be started.
        """
        try:
            connection = self._connected()
            self._number += 1
            connection.send((self._number, item, limit))
            while connection.poll(_PATIENCE * (1 + limit)):
                number, result = connection.recv()
                if number == self._number:  # else a process was lost after its answer
                    return result
            raise TimeoutError
        except BaseException:
            self._stop()
            raise

    def close(self) -> None:
        """Ends the process for good; may be called from any thread."""
        with self._lock:
            self._closed = True
            self._kill()

    def _connected(self) -> Connection:
        """The pipe to a process that is ready."""
        for _ in range(3):
            self.start()
            assert self._connection is not None
            with contextlib.suppress(EOFError, OSError):
                if self._ready or (self._connection.poll(_START_SECONDS) and self._connection.recv()):
                    self._ready = True
                    return self._connection
            self._stop()
        module = self._function.partition(":")[0]
        raise InputError(
            "the worker processes do not start; what they print says why, "
            f"and so may: python -c 'from {module} import start_worker; start_worker()'"
        )

    def _stop(self) -> None:
        """Ends the process; `start` replaces it."""
        with self._lock:
            self._kill()
            if self._connection:
                self._connection.close()
            self._process = self._connection = None
            self._ready = False

    def _kill(self) -> None:
        if self._process:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


# --- the worker's side ----------------------------------------------------------------------------------


class _OutOfTimeError(BaseException):
    """A computation takes too long; not an `Exception`, which SymPy may catch."""


def serve(descriptor: int, function: str) -> None:
    """Runs a worker process until the pipe closes: it forks one that computes, and again where that is lost.

    Args:
        descriptor: file descriptor of the pipe.
        function: the function that computes, as ``module:name``.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ValueError):  # macOS has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    module = importlib.import_module(function.partition(":")[0])
    module.start_worker()
    called = getattr(module, function.partition(":")[2])
    taken = memoryview(mmap.mmap(-1, 8)).cast("q")  # number of the item at which a forked process is, or was
    with Connection(descriptor) as connection, contextlib.suppress(EOFError, OSError):
        connection.send(True)
        while True:
            parent = os.getpid()
            if (child := os.fork()) == 0:
                with contextlib.suppress(EOFError, OSError):
                    _compute(connection, called, parent, taken)
                os._exit(0)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if status == 0:
                return
            beyond = -status in (signal.SIGVTALRM, signal.SIGXCPU)
            connection.send((taken[0], (_EXCEEDED if beyond else _LOST, None)))


def _compute(
    connection: Connection, function: Callable[..., Any], parent: int, taken: memoryview[int]
) -> None:
    """Computes one item after the other, while the process that has forked this one lives."""
    signal.signal(signal.SIGPROF, _give_up)
    while True:
        number, item, limit = connection.recv()
        if os.getppid() != parent:
            return
        taken[0] = number
        connection.send((number, _limited(functools.partial(function, *item), limit)))


def _give_up(*_: object) -> None:
    raise _OutOfTimeError


def _limited(function: Callable[[], Any], limit: float) -> tuple[str, Any]:
    # A computation in C notices no handler; the second signal has none, and ends the process.
    signal.setitimer(signal.ITIMER_VIRTUAL, 1.25 * limit + 0.05)
    try:
        signal.setitimer(signal.ITIMER_PROF, limit)
        try:
            return "", function()
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    except (_OutOfTimeError, MemoryError):
        return _EXCEEDED, None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
