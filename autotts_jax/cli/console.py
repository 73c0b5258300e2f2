"""What the commands share: a progress bar, what a signal leaves, and printing."""

from __future__ import annotations

import contextlib
import datetime
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import typer
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from autotts_jax.cli.ending import INTERRUPTED, tell
from autotts_jax.errors import InputError
from autotts_jax.terminal import printable, styled
from autotts_jax.user_code import last_lines

LOG_SECONDS = 30.0
"""Seconds between two lines that say how far the work is, where no terminal shows a bar."""


class _BarWithNote(Progress):
    """A bar, and a line below it."""

    note = ""

    def get_renderables(self) -> Iterator[RenderableType]:
        yield from super().get_renderables()
        if self.note:
            note = styled(self.note)
            note.no_wrap, note.overflow = True, "ellipsis"
            yield note


@contextlib.contextmanager
def working(left: str = "nothing was written", shown: bool = True) -> Iterator[Callable[..., None]]:
    """Shows the progress of the work on stderr, and ends it with one line at a signal.

    On a terminal the progress is a bar, elsewhere a line every `LOG_SECONDS`.

    Yields:
        The function to report progress to. It takes the phase, how much of it is done and how much there is,
        0 for unknown, and optionally a line to show below the bar.

    Raises:
        InputError: code of the user's has called `sys.exit`.
    """
    screen = Console(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[count]}"),
        TimeElapsedColumn(),
    )
    interactive = screen.is_interactive
    bar = _BarWithNote(*columns, console=screen, transient=True, disable=not (shown and interactive))
    task = bar.add_task("starting", total=None, count="")
    phase = line = "starting"

    def on_progress(what: str, done: int, total: int, note: str = "") -> None:
        nonlocal phase, line
        if what != phase:
            bar.reset(task, description=printable(what))
            phase = what
        bar.note = note
        count = f"{done:,}/{total:,}" if total else ""
        bar.update(task, completed=done, total=total or None, count=count)
        line = "  ".join(part for part in (what, count, note) if part)

    logging = _logged(lambda: line) if shown and not interactive else contextlib.nullcontext()
    try:
        with bar, logging:
            yield on_progress
    except KeyboardInterrupt:
        tell(f"interrupted; {left}")
        raise typer.Exit(INTERRUPTED) from None
    except SystemExit as error:  # ours is raised by typer, outside; with status 0 it would look like success
        raise InputError(
            f"the code that the command was given ended the program:\n{last_lines(error)}"
        ) from error


@contextlib.contextmanager
def _logged(line: Callable[[], str]) -> Iterator[None]:
    """Prints a line every `LOG_SECONDS`, with the time since the beginning."""
    began, ended = time.monotonic(), threading.Event()

    def log() -> None:
        while not ended.wait(LOG_SECONDS):
            tell(f"{datetime.timedelta(seconds=int(time.monotonic() - began))}  {line()}")

    thread = threading.Thread(target=log, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def say(*lines: object, error: bool = False) -> None:
    """Prints lines, which may hold what others wrote."""
    for line in lines:
        print(printable(line), file=sys.stderr if error else sys.stdout)


def console() -> Console:
    """A console that prints text unchanged: answers may look like Rich's markup."""
    shown = Console(markup=False, emoji=False, highlight=False)
    if not shown.width:  # COLUMNS=0: nobody knows how wide it is
        shown.width = 80
    return shown


def check_folder(folder: Path | None, evaluation: bool = False) -> None:
    """Finds out before any work is done whether results can be written to a folder.

    Raises:
        InputError: it cannot be written to, or holds what somebody else has written.
    """
    from autotts_jax.experiments.files import FILES, check_results_folder

    if folder is not None:
        check_results_folder(folder, FILES if evaluation else ())


def print_written(files: Sequence[Path], report: bool = False) -> None:
    """Prints which files were written, and how to get pictures, or a report, if there are none."""
    if files:
        say(f"wrote {', '.join(file.name for file in files)} to {files[0].parent}")
        kinds = {"pictures": ".png"} | ({"a report": ".html"} if report else {})
        missing = [what for what, kind in kinds.items() if kind not in {file.suffix for file in files}]
        if missing:
            say(f"for {' and '.join(missing)} as well: pip install 'autotts-jax[plot]'")
