"""The grader of mathematics, numbers, choices and words.

`autotts_jax.replay.equivalence` says what the canonical forms are; this module has mathematics brought into
them in worker processes, because timeouts need the main thread of a process, and only its end is that of a
computation in C.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import os
import queue
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from multiprocessing.connection import Connection, Pipe
from typing import Self

from autotts_jax.collect.grader import Grader
from autotts_jax.errors import InputError
from autotts_jax.replay.equivalence import form, plain_form, spelled_form, start_worker

_START_SECONDS = 120.0
"""Time that a worker may need to import SymPy on a busy machine."""

_PATIENCE = 3
"""Timeouts that one answer may use up: for parsing, checking and simplifying."""

_STUCK = 20
"""How much longer than it may compute a worker may take; one that computes longer ends by itself."""

_CHUNK = 50
"""Answers that a worker grades at a time."""

_MEMORY = 4 * 2**30
"""Bytes that a worker may allocate, so that no expression takes the machine's memory."""

PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from autotts_jax.collect import grading; grading.serve(int(sys.argv[2]), int(sys.argv[3]))"
)
"""What a worker process runs."""

_CLOSED = "the grader is closed; use it inside its `with` block"


class MathGrader(Grader):
    """Finds the canonical forms of answers in worker processes of its own.

    Use it as a context manager; its methods may be called from many threads.

    The workers are fresh interpreters that import neither the caller's main module nor JAX. One that is
    stuck, crashes or is killed is replaced. An answer that a worker is stuck at, or at which two workers are
    lost, has its spelling for a form; no other answer is affected.

    Args:
        workers: number of processes; by default one for each core.
        timeout: seconds of a processor's time for one parse or one evaluation, rounded up to whole seconds.
            An answer that takes three times as long in all ends its worker.
        arithmetic: whether unevaluated arithmetic, such as ``9 * 3``, is an answer, of its value.

    Raises:
        InputError: latex2sympy2_extended is not installed, or an argument is out of range.
    """

    def __init__(self, workers: int | None = None, timeout: float = 5.0, *, arithmetic: bool = False):
        if importlib.util.find_spec("latex2sympy2_extended") is None:
            raise InputError("grading needs latex2sympy2_extended: pip install 'autotts-jax[equiv]'")
        if workers is not None and workers < 1:
            raise InputError(f"workers is {workers}, but a grader needs 1 or more")
        if not 0 < timeout < math.inf:
            raise InputError(f"timeout is {timeout}, but must be a number of seconds above 0")
        self._workers = [_Worker(math.ceil(timeout)) for _ in range(workers or os.cpu_count() or 1)]
        self._idle: queue.LifoQueue[_Worker] = queue.LifoQueue()
        for worker in self._workers:
            self._idle.put(worker)
        self._threads = ThreadPoolExecutor(len(self._workers), "grader")
        self._arithmetic = arithmetic
        self._closed = False

    def __enter__(self) -> Self:
        for worker in self._workers:
            worker.start()
        return self

    def close(self) -> None:
        """Ends the workers at once; calls that are running in other threads raise InputError."""
        self._closed = True
        for worker in self._workers:
            worker.close()
        self._threads.shutdown()

    def reference(self, gold: str) -> str:
        """Finds the form of right answers; of unevaluated arithmetic, its value counts."""
        return self._forms([gold], arithmetic=True)[0]

    def forms(self, answers: Sequence[str], gold: str | None = None) -> list[str]:  # noqa: ARG002
        """Finds the canonical forms of answers.

        Args:
            answers: S answers.
            gold: not used.

        Returns:
            The form of each of the S answers, ``ERR`` for what is no answer.

        Raises:
            InputError: the grader is closed, or its workers do not start.
        """
        return self._forms(answers, self._arithmetic)

    def _forms(self, answers: Sequence[str], arithmetic: bool) -> list[str]:
        if self._closed:
            raise InputError(_CLOSED)
        found = {answer: plain_form(answer, arithmetic) for answer in dict.fromkeys(answers)}
        unknown = [answer for answer, known in found.items() if known is None]
        chunks = [unknown[i : i + _CHUNK] for i in range(0, len(unknown), _CHUNK)]
        for chunk, forms in zip(
            chunks, self._threads.map(partial(self._computed, arithmetic), chunks), strict=True
        ):
            found |= zip(chunk, forms, strict=True)
        return [found[answer] or spelled_form(answer) for answer in answers]

    def _computed(self, arithmetic: bool, answers: Sequence[str]) -> list[str | None]:
        """Has a worker find the forms of answers, None where it cannot."""
        found: list[str | None] = []
        lost = 0  # workers, at the present answer
        while len(found) < len(answers):
            worker = self._idle.get()
            try:
                with contextlib.closing(worker.forms(answers[len(found) :], arithmetic)) as forms:
                    for known in forms:
                        found.append(known)
                        lost = 0
            except TimeoutError:
                found.append(None)
            except (EOFError, OSError):
                lost += 1
                if lost == 2:
                    found.append(None)
                    lost = 0
            finally:
                self._idle.put(worker)
        return found


class _Worker:
    """A worker process and the pipe to it, for one thread at a time.

    It is an interpreter of its own rather than `multiprocessing`'s, which would import the caller's main
    module into every worker, and with it JAX or vLLM, and fail where that has no
    ``if __name__ == "__main__":``.
    """

    def __init__(self, timeout: int):
        self._timeout = timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._ready = self._closed = False
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
                arguments = [json.dumps(sys.path), str(theirs.fileno()), str(self._timeout)]
                self._process = subprocess.Popen(
                    [sys.executable, "-c", PROGRAM, *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},  # whose buffers would count as memory
                    pass_fds=[theirs.fileno()],
                    process_group=0,  # an interrupt from the keyboard does not reach it
                )

    def forms(self, answers: Sequence[str], arithmetic: bool) -> Generator[str | None, None, None]:
        """Finds the forms of answers, one by one. An iteration that is abandoned ends the process.

        Raises:
            TimeoutError: the process is stuck.
            EOFError, OSError: the process is gone.
            InputError: no process can be started.
        """
        try:
            connection = self._connected()
            connection.send((answers, arithmetic))
            for _ in answers:
                if not connection.poll(_STUCK * _PATIENCE * self._timeout):
                    raise TimeoutError
                yield connection.recv()
        except BaseException:
            self._stop()
            raise

    def close(self) -> None:
        """Ends the process for good; may be called from any thread."""
        with self._lock:
            self._closed = True
            if self._process:
                self._process.kill()
                self._process.wait()

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
        raise InputError(
            "the worker processes of the grader do not start; what they print says why, "
            "and so may: python -c 'import latex2sympy2_extended'"
        )

    def _stop(self) -> None:
        """Ends the process; `start` replaces it."""
        with self._lock:
            if self._process and self._connection:
                self._process.kill()
                self._process.wait()
                self._connection.close()
            self._process = self._connection = None
            self._ready = False


def serve(descriptor: int, timeout: int) -> None:
    """Runs a worker process: it finds forms until the pipe closes.

    Args:
        descriptor: file descriptor of the pipe.
        timeout: seconds of a processor's time for one parse or one evaluation.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ValueError):  # macOS has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    start_worker(timeout)
    _form(r"\sqrt{2} + \ln 2", False)  # the first answer takes many times longer than later ones
    with Connection(descriptor) as connection, contextlib.suppress(EOFError, OSError):
        connection.send(True)
        while True:
            answers, arithmetic = connection.recv()
            for answer in answers:
                # No signal's handler ends a computation in C.
                seconds = math.ceil(time.process_time()) + _PATIENCE * timeout
                resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))
                connection.send(_form(answer, arithmetic))


@lru_cache(maxsize=4096)
def _form(answer: str, arithmetic: bool) -> str | None:
    return form(answer, arithmetic)
