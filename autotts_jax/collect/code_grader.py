"""The grader of programs: what tests say of them, in a sandbox.

The reference answer of a question is its tests: Python, in which each ``assert`` and each call at the top,
such as ``check(add)``, is a test, which a program passes if it raises nothing. Everything else prepares the
tests and runs in their order. Programs are equal if they pass the same tests; without tests, if they are the
same code but for its layout and comments.
"""

from __future__ import annotations

import ast
import hashlib
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from autotts_jax.collect.grader import Grader
from autotts_jax.errors import InputError
from autotts_jax.replay.spelling import ERROR
from autotts_jax.sandbox.process import Child, Sandbox, SandboxError

LIMITS = Sandbox(seconds=10, memory=1 << 30, wall_seconds=60)
"""A step is the program itself, or one test."""

REMEDY = "if you trust the programs with your files, say --grader code-process"
"""What to do where the kernel does not confine processes."""

_SHOWN = 100
"""Tests of which a form says which are passed; of more, it has a hash of that."""


class CodeGrader(Grader):
    """Runs programs against tests, each in a process of its own.

    A program that takes too long or too much memory, or ends its process, fails the tests that are left. The
    process sees no gold answers but its tests, no files but libraries, and no network.

    Args:
        workers: programs that are run at once; by default one for each core.
        sandbox: limits of a program.

    Raises:
        InputError: ``workers`` is below 1.
        LevelError: the machine does not offer the sandbox, so no program is run.
    """

    def __init__(self, workers: int | None = None, sandbox: Sandbox = LIMITS):
        if workers is not None and workers < 1:
            raise InputError(f"workers is {workers}, but a grader needs 1 or more")
        self._sandbox = sandbox
        with self._child():  # lest the first program come after an expensive collection
            pass
        self._threads = ThreadPoolExecutor(workers or os.cpu_count() or 1, "grader")
        self._known: dict[tuple[str, str], str] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        """Waits for the programs that are running."""
        self._threads.shutdown(cancel_futures=True)

    def forms(self, answers: Sequence[str], gold: str | None = None) -> list[str]:
        """Finds the canonical forms of programs.

        Args:
            answers: S programs.
            gold: the tests; None if there are none.

        Returns:
            Of each program, which tests it passes; without tests its code, without comments.

        Raises:
            InputError: the tests are not Python.
        """
        code = {answer: _canonical(answer) for answer in dict.fromkeys(answers)}
        if gold is None:
            return [code[answer] or answer.strip() for answer in answers]
        steps = read_tests(gold)
        programs = list(dict.fromkeys(code.values()))
        found = self._threads.map(lambda program: self._form(program, gold, steps), programs)
        forms = dict(zip(programs, found, strict=True))
        return [ERROR if answer == ERROR else forms[code[answer]] for answer in answers]

    def reference(self, gold: str) -> str:
        """Gives the form of programs that pass all tests."""
        count = sum(tests for _, tests in read_tests(gold))
        return _form([True] * count)

    def _form(self, program: str | None, gold: str, steps: Sequence[tuple[str, bool]]) -> str:
        """The form of a program, None for one that is not Python."""
        if program is None:
            return _form([False] * sum(test for _, test in steps))
        with self._lock:
            known = self._known.get((program, gold))
        if known is None:
            known = _form(self._passed(program, steps))
            with self._lock:
                self._known[program, gold] = known
        return known

    def _child(self) -> Child:
        """A process that runs a program."""
        return Child(
            "autotts_jax.collect.code_child", self._sandbox, name="the program", remedy=REMEDY
        ).begin()

    def _passed(self, program: str, steps: Sequence[tuple[str, bool]]) -> list[bool]:
        """Which tests a program passes."""
        passed: list[bool] = []
        with self._child() as child:
            try:
                going_on = bool(child.ask({"code": program}).says.get("passed"))
                for code, test in steps:
                    if not going_on:
                        break
                    runs = child.ask({"code": code}).says.get("passed") is True
                    if test:
                        passed.append(runs)
                    else:
                        going_on = runs  # what the tests need is not there
            except SandboxError:
                pass  # it ended, or took too much: what is left is not passed
        return passed + [False] * (sum(test for _, test in steps) - len(passed))


def read_tests(gold: str) -> list[tuple[str, bool]]:
    """Splits tests into their statements.

    Args:
        gold: the tests.

    Returns:
        The code of each statement at the top, and whether it is a test.

    Raises:
        InputError: they are not Python, or there is none.
    """
    try:
        steps = [(ast.unparse(statement), _is_test(statement)) for statement in ast.parse(gold).body]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"the tests {gold!r:.60} are not Python: {error}; correct them") from error
    if not any(test for _, test in steps):
        raise InputError(f"{gold!r:.60} has no tests: write each as an assert, or a call, at the top")
    return steps


def _is_test(statement: ast.stmt) -> bool:
    called = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
    return called or isinstance(statement, ast.Assert)


def _canonical(answer: str) -> str | None:
    """A program without its comments and its layout; None if it is not Python."""
    try:
        return ast.unparse(ast.parse(answer))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _form(passed: Sequence[bool]) -> str:
    if all(passed):
        return f"passes all {len(passed)} tests"
    which = "".join("x" if test else "-" for test in passed)
    if len(passed) > _SHOWN:
        which = hashlib.blake2b(which.encode(), digest_size=8).hexdigest()
    return f"passes {sum(passed)} of {len(passed)} tests: {which}"
