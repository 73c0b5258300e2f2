"""Somebody's code in processes of its own, each of which has loaded it and waits for work."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from autotts_jax.checks import check_bool
from autotts_jax.errors import InputError
from autotts_jax.policies.sealed.child import LONGEST_FAILURE, PROGRAM
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.sandbox.messages import Message
from autotts_jax.sandbox.process import Child, Sandbox, SandboxError, code_files
from autotts_jax.user_code import UserCode

_MODULE = "autotts_jax.policies.sealed.child"


@dataclasses.dataclass(frozen=True)
class Sealing:
    """How code that somebody else wrote is run.

    Attributes:
        spellings: show programs answers as they are spelled, not as labels.
        sandbox: limits of the processes that it runs in. At the level ``none`` controllers and policies are
            loaded into this process, unchecked; programs have one of their own even then.
    """

    spellings: bool = False
    sandbox: Sandbox = dataclasses.field(default_factory=Sandbox)

    def __post_init__(self) -> None:
        check_bool("spellings", self.spellings)
        if not isinstance(self.sandbox, Sandbox):
            raise InputError(f"sandbox is {self.sandbox!r:.60}, but it must be an autotts_jax.Sandbox")


SEALED = Sealing()
"""How code is run where nothing else is said: in a process of its own."""


_CHILDREN: weakref.WeakSet[Child] = weakref.WeakSet()
"""Children of every pool."""

_IDLE: weakref.WeakKeyDictionary[Child, bool] = weakref.WeakKeyDictionary()
"""Those of them that are not lent and stand still, in this order, and whether they have played."""

_LOCK = threading.Lock()
"""Held by whoever uses these."""


class _Member(Child):
    """A child of a pool. All that there are share one limit of memory."""

    def held_together(self) -> int:
        """Gives the bytes that all children hold; where these are too many, idle ones are ended first."""
        with _LOCK:
            held = sum(child.held() for child in _CHILDREN if not child.closed)
            while held > self._sandbox.memory and _IDLE:
                child, _ = _IDLE.popitem()
                if not child.closed:
                    held -= child.held()
                    child.close()
        return held


class WorkerPool:
    """Children that run one piece of code.

    A child ends with the thread that started it, so each thread is given those that it started itself.
    """

    def __init__(
        self,
        code: UserCode,
        sandbox: Sandbox,
        values: Sequence[float | None] | None = None,
        gamma: float | None = None,
    ):
        self.code = code
        self._sandbox = sandbox
        self._gamma = gamma
        self._job = {"code": dataclasses.asdict(code), "values": values, "gamma": gamma}
        self._of_thread = threading.local()

    def __reduce__(self) -> tuple[type[WorkerPool], tuple[object, ...]]:
        """Another process starts children of its own."""
        return WorkerPool, (self.code, self._sandbox, self._job["values"], self._gamma)

    def at(self, values: Sequence[float | None]) -> WorkerPool:
        """Gives children of other settings."""
        return WorkerPool(self.code, self._sandbox, values, self._gamma)

    @contextlib.contextmanager
    def children(self, number: int, *, fresh: int = 0) -> Iterator[tuple[list[Child], list[Child]]]:
        """Lends children, which have loaded the code and stand still.

        Yields:
            Those, and the fresh ones.

        Raises:
            SandboxError: the code cannot be loaded.
            LevelError: the machine does not offer the sandbox.
        """
        workers = self._lend(number + fresh, played=not fresh)
        try:
            self._load(workers, number + fresh - len(workers))
            until = self._sandbox.deadline()
            for child in workers:
                child.until = until
            yield workers[:number], workers[number:]
        except BaseException:
            for child in workers:
                child.close()
            raise
        for child in workers:
            if fresh:
                child.close()
            else:
                child.pause()
                self._rest(child, played=True)

    @contextlib.contextmanager
    def child(self) -> Iterator[Child]:
        """Lends one child, which goes on, for single episodes."""
        with self.children(1) as ((child,), _):
            child.resume()
            yield child

    def describe(self) -> Mapping[str, Any]:
        """Loads the code in a child, and asks what it is.

        Raises:
            SandboxError: the code cannot be loaded.
            LevelError: the machine does not offer the sandbox.
        """
        loaded: list[Child] = []
        try:
            (says,) = self._load(loaded, 1)
            if says.get("kind") == PROGRAM:
                self._load(loaded, 1)  # One to play and one to check, which load while nobody plays.
        except BaseException:
            for child in loaded:
                child.close()
            raise
        for child in loaded:
            self._rest(child, played=False)
        return says

    def _load(self, workers: list[Child], number: int) -> list[Mapping[str, Any]]:
        """Starts further workers, which load the code side by side and stop; gives what they say of it."""
        begun = [self._start() for _ in range(number)]
        workers += begun
        for child in begun:
            child.begin().send(self._job)
        return [self._loaded(child) for child in begun]

    def _lend(self, number: int, played: bool) -> list[Child]:
        """Takes idle children; those that have played are ended, of every pool, where they are not wanted."""
        with _LOCK:
            if not played:
                for child in [child for child, has_played in _IDLE.items() if has_played]:
                    child.close()
            standing = [child for child in self._idle if not child.closed]
            lent, self._idle[:] = standing[:number], standing[number:]
            for child in lent:
                _IDLE.pop(child, None)
        return lent

    def _rest(self, child: Child, played: bool) -> None:
        """Keeps a child that stands still until it is lent."""
        with _LOCK:
            _IDLE[child] = played
            self._idle.append(child)

    @property
    def _idle(self) -> list[Child]:
        """Children that stand still."""
        if not hasattr(self._of_thread, "idle"):
            self._of_thread.idle = []
        idle: list[Child] = self._of_thread.idle
        return idle

    def _start(self) -> Child:
        package = self.code.package()
        name = f"player {self.code.path!r}"
        if package is None:
            child = _Member(_MODULE, self._sandbox, name=name)
        else:
            package_name, file, folders = package
            child = _Member(
                _MODULE,
                self._sandbox,
                readable=[place for folder in folders for place in code_files(folder)] or [file],
                listable=folders,
                packages={package_name: (file, folders)},
                name=name,
            )
        with _LOCK:
            _CHILDREN.add(child)
        return child

    def _loaded(self, child: Child) -> Mapping[str, Any]:
        """Waits until a child has loaded the code, and stops it; gives what it says of the code."""
        message = child.receive()
        fail_if_failed(message)
        child.pause()
        return message.says


def fail_if_failed(message: Message) -> None:
    """Raises what a child says went wrong.

    Raises:
        SandboxError: it says so.
    """
    if "failed" in message.says:
        raise SandboxError(printable(message.says["failed"]))


def printable(text: Any) -> str:
    """Makes text of a child safe to show: no control characters, and not too much of it."""
    if not isinstance(text, str):
        return f"(a {type(text).__name__} instead of a message)"
    kept = "".join(c if c.isprintable() or c == "\n" else "�" for c in text[-LONGEST_FAILURE:])
    return "\n".join(kept.splitlines()[-12:])


def place(dataset: ProbeDataset, question: int, row: int) -> str:
    """Says which episode it is."""
    cell = dataset.cells[int(dataset.matrix.cell[question])]
    return f"question {dataset.questions[question].index} of {printable(cell.name)}, seed {row}"
