"""How a command ends: in order, at signals too, and with a last word."""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

from autotts_jax.keys import all_hidden, keys_in_use
from autotts_jax.terminal import LONGEST_LINE, printable, quoted

INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM


def tell(message: str) -> None:
    """Prints a message of the command's on stderr, if that can be written: shortened, without its keys."""
    lines = all_hidden(message, keys_in_use(sys.argv)).split("\n")
    short = (line if len(line) <= LONGEST_LINE else quoted(line, LONGEST_LINE) for line in lines)
    shown = printable("\n  ".join(short), lines=True)
    try:
        sys.stderr.write(f"autotts-jax: {shown}\n")
    except OSError:
        give_up(sys.stderr)


def give_up(stream: TextIO) -> None:
    """Lets a stream that cannot be written drop its text, or the interpreter would complain at its end."""
    with contextlib.suppress(OSError), Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())


@contextlib.contextmanager
def orderly() -> Iterator[None]:
    """Lets SIGTERM end a command as Ctrl-C does, but with status `TERMINATED`, and loses neither.

    Raises:
        SystemExit: the block was ended by a signal.
    """
    terminated = False

    def terminate(_number: int, _frame: object) -> None:
        nonlocal terminated
        terminated = True
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        with _lost_interrupts_raised_again(lambda: signal.SIGTERM if terminated else signal.SIGINT):
            yield
    except SystemExit as end:
        if terminated and end.code == INTERRUPTED:
            sys.exit(TERMINATED)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _lost_interrupts_raised_again(number: Callable[[], int]) -> Iterator[None]:
    """Python drops a signal that falls into a destructor or a garbage-collection callback; JAX has both."""
    previous = sys.unraisablehook

    def hook(unraisable: Any) -> None:
        if unraisable.exc_type is KeyboardInterrupt:
            # When the callback is over; SIGINT is ignored in the background of a script.
            threading.Timer(0.05, _thread.interrupt_main, [number()]).start()
        else:
            previous(unraisable)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = previous
