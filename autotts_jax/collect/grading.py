"""Grading and clustering: which answers are right, and which are the same.

Two answers are the same if their spellings are equal or math-verify finds them equal: ``verify(gold,
answer)`` for the gold answer, either direction for others. Words, and what math-verify cannot parse, are
compared by their spelling alone. `autotts_jax.replay.equivalence` has the mathematics; this module runs it in
worker processes, because math-verify's timeouts need the main thread of a process and cannot end computations
in C.
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
from functools import lru_cache
from multiprocessing.connection import Connection, Pipe
from typing import Any

from autotts_jax.collect.spelling import is_integer, is_text, spelling
from autotts_jax.errors import InputError
from autotts_jax.replay.equivalence import ERROR, NONE, Classes, parse_answer, start_worker

_START_SECONDS = 120.0
"""Time that a worker may need to import SymPy on a busy machine."""

_PATIENCE = 3
"""Timeouts of math-verify that one answer may use up: for parsing, evaluating and comparing."""

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


class Grader:
    """Compares answers in worker processes of its own.

    Use it as a context manager; its methods may be called from many threads.

    The workers are fresh interpreters that import neither the caller's main module nor JAX. One that is
    stuck, crashes or is killed is replaced. An answer that a worker is stuck at, or at which two workers are
    lost, is compared by its spelling; no other answer is affected.

    Args:
        workers: number of processes; by default one for each core.
        timeout: seconds for one parse, one evaluation or one comparison, rounded up to whole seconds. An
            answer that takes three times as long in all ends its worker.

    Raises:
        InputError: math-verify is not installed, or an argument is out of range.
    """

    def __init__(self, workers: int | None = None, timeout: float = 5.0):
        if importlib.util.find_spec("math_verify") is None:
            raise InputError("grading needs math-verify: pip install 'autotts-jax[equiv]'")
        if workers is not None and workers < 1:
            raise InputError(f"workers is {workers}, but a grader needs 1 or more")
        if not 0 < timeout < math.inf:
            raise InputError(f"timeout is {timeout}, but must be a number of seconds above 0")
        self._workers = [_Worker(math.ceil(timeout)) for _ in range(workers or os.cpu_count() or 1)]
        self._idle: queue.LifoQueue[_Worker] = queue.LifoQueue()
        for worker in self._workers:
            self._idle.put(worker)
        self._threads = ThreadPoolExecutor(len(self._workers), "grader")
        self._closed = False

    def __enter__(self) -> Grader:
        for worker in self._workers:
            worker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the workers at once; calls that are running in other threads raise InputError."""
        self._closed = True
        for worker in self._workers:
            worker.close()
        self._threads.shutdown()

    def correct(self, gold: str, answers: Sequence[str]) -> list[bool]:
        """Grades answers; ``ERR`` and the empty answer are never right.

        Args:
            gold: the reference answer.
            answers: S answers.

        Returns:
            Whether each of the S answers is right. It is iff `cluster` puts it into the class of the gold
            answer.

        Raises:
            InputError: the grader is closed, or its workers do not start.
        """
        if self._closed:
            raise InputError(_CLOSED)
        reference = spelling(gold)
        spellings = [spelling(answer) for answer in answers]
        unknown = [text for text in dict.fromkeys(spellings) if _must_compare(reference, text)]
        chunks = [unknown[i : i + _CHUNK] for i in range(0, len(unknown), _CHUNK)]
        found = self._threads.map(lambda chunk: self.place([reference], chunk, gold=True, grow=False), chunks)
        classes = dict(zip(unknown, [c for chunk in found for c in chunk], strict=True))
        return [text != "" and (text == reference or classes.get(text) == 0) for text in spellings]

    def cluster(self, answers: Sequence[str], gold: str | None = None) -> list[int]:
        """Sorts answers into classes of equal ones.

        Args:
            answers: S answers to one question.
            gold: the reference answer; ``verify(gold, answer)`` decides what equals it.

        Returns:
            The class of each of the S answers: 0, 1, ... in order of first appearance, -1 for ``ERR`` and the
            empty answer.

        Raises:
            InputError: the grader is closed, or its workers do not start.
        """
        ids = AnswerBook(self, gold).ids(answers)
        order = {i: n for n, i in enumerate(dict.fromkeys(i for i in ids if i != NONE))}
        return [order.get(i, NONE) for i in ids]

    def canonical(self, answers: Sequence[str], gold: str | None = None) -> list[str]:
        """Gives the answers of a class one spelling, so that they can be compared as strings afterwards.

        Args:
            answers: S answers to one question.
            gold: the reference answer; what equals it gets its spelling.

        Returns:
            S answers: the gold answer, or the first answer of the class, or ``ERR`` for no answer.

        Raises:
            InputError: the grader is closed, or its workers do not start.
        """
        texts = [*answers] if gold is None else [gold, *answers]
        ids = AnswerBook(self, gold).ids(texts)
        spelled = {NONE: ERROR}
        for text, i in zip(texts, ids, strict=True):
            spelled.setdefault(i, text)
        return [spelled[i] for i in ids[len(texts) - len(answers) :]]

    def place(
        self, founders: Sequence[str], texts: Sequence[str], gold: bool, grow: bool
    ) -> list[int | None]:
        """Has a worker find the classes of spellings; `correct` and `AnswerBook` call it.

        Args:
            founders: one spelling of each existing class.
            texts: T spellings to find the classes of.
            gold: whether the first founder is the gold answer.
            grow: whether a text that equals no founder founds a class.

        Returns:
            The class of each of the T texts, None if it has none or is not mathematics.

        Raises:
            InputError: the grader is closed, or its workers do not start.
        """
        founders = list(founders)
        found: list[int | None] = []
        lost = 0  # workers, at the present text
        while len(found) < len(texts):
            worker = self._idle.get()
            try:
                with contextlib.closing(worker.place(founders, texts[len(found) :], gold, grow)) as classes:
                    for c in classes:
                        if c == len(founders):
                            founders.append(texts[len(found)])
                        found.append(c)
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


class AnswerBook:
    """Ids for the answers to one question, given as the answers arrive: equal answers have equal ids.

    A new book gives the ids that `Grader.cluster` gives to the same answers in the same order. It may be used
    from many threads.

    Args:
        grader: compares the answers.
        gold: the reference answer, if it is known; it gets id 0.
    """

    def __init__(self, grader: Grader, gold: str | None = None):
        self._grader = grader
        self._lock = threading.Lock()
        self._ids = {"": NONE}  # by spelling
        self._founders: list[str] = []  # the first spelling of each class that is mathematics
        self._founder_ids: list[int] = []
        self._gold = False
        self._next = 0
        if gold is not None:
            self.ids([gold])
            self._gold = bool(self._founders)

    def ids(self, answers: Sequence[str]) -> list[int]:
        """Returns the ids of answers.

        Args:
            answers: S answers.

        Returns:
            S ids; -1 is for ``ERR`` and the empty answer, and the first answer of a class gets the next id.

        Raises:
            InputError: the grader is closed, or its workers do not start.
        """
        spellings = [spelling(answer) for answer in answers]
        with self._lock:
            self._add([text for text in dict.fromkeys(spellings) if text not in self._ids])
            return [self._ids[text] for text in spellings]

    def _add(self, texts: Sequence[str]) -> None:
        mathematics = [text for text in texts if not is_text(text)]
        placed = self._grader.place(self._founders, mathematics, self._gold, grow=True)
        classes = dict(zip(mathematics, placed, strict=True))
        for text in texts:
            c = classes.get(text)
            if c is not None and c < len(self._founders):
                self._ids[text] = self._founder_ids[c]
                continue
            if c is not None:
                self._founders.append(text)
                self._founder_ids.append(self._next)
            self._ids[text] = self._next
            self._next += 1


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

    def place(
        self, founders: list[str], texts: Sequence[str], gold: bool, grow: bool
    ) -> Generator[int | None, None, None]:
        """Does `Grader.place`, text by text. An iteration that is abandoned ends the process.

        Raises:
            TimeoutError: the process is stuck.
            EOFError, OSError: the process is gone.
            InputError: no process can be started.
        """
        try:
            connection = self._connected()
            connection.send((founders, texts, gold, grow))
            for _ in texts:
                if not connection.poll(_PATIENCE * self._timeout):
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
            "and so may: python -c 'import math_verify'"
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
    """Runs a worker process: it answers the requests of `Grader.place` until the pipe closes.

    Args:
        descriptor: file descriptor of the pipe.
        timeout: seconds for one parse, one evaluation or one comparison.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ValueError):  # macOS has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    start_worker(timeout)
    _expression(r"\frac{1}{2}")  # the first parse takes many times longer than later ones
    with Connection(descriptor) as connection, contextlib.suppress(EOFError, OSError):
        connection.send(True)
        while True:
            founders, texts, gold, grow = connection.recv()
            classes = _classes(founders, gold)
            for text in texts:
                # If the parent is gone, nobody else ends a computation in C.
                seconds = math.ceil(time.process_time()) + 2 * _PATIENCE * timeout
                resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))
                expression = _expression(text)
                if expression is None:
                    connection.send(None)
                else:
                    connection.send(classes.of(expression) if grow else classes.find(expression))


def _classes(founders: Sequence[str], gold: bool) -> Classes:
    from sympy import Dummy

    # A founder that times out this time keeps its number; nothing equals a dummy.
    expressions = [Dummy() if (found := _expression(text)) is None else found for text in founders]
    classes = Classes(expressions[0] if gold else None)
    for expression in expressions[gold:]:
        classes.found(expression)
    return classes


@lru_cache(maxsize=4096)
def _expression(text: str) -> Any:
    return parse_answer(text)


def _must_compare(gold: str, answer: str) -> bool:
    """Whether only mathematics can tell if two spellings are equal."""
    if gold == answer or is_text(gold) or is_text(answer):
        return False
    return not (is_integer(gold) and is_integer(answer))
