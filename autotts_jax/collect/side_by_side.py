"""Work on several things at a time, in threads."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def side_by_side(
    work: Callable[[Item, threading.Event], Result], items: Iterable[Item], at_once: int, name: str = ""
) -> Generator[Result, None, None]:
    """Works on items, some at a time. Closing the generator drops what is under way.

    Args:
        work: works on one; it gives up once the event is set.
        items: the items; each is taken when it is begun.
        at_once: how many at a time.
        name: what the names of the threads begin with.

    Yields:
        What each came to, as they are finished.
    """
    waiting, cancel = iter(items), threading.Event()
    with ThreadPoolExecutor(at_once, name) as threads:

        def begin(count: int) -> set[Future[Result]]:
            some = itertools.islice(waiting, count)
            return {threads.submit(work, item, cancel) for item in some}

        try:
            running = begin(at_once)
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                running |= begin(len(done))
                for future in done:
                    yield future.result()
        finally:
            cancel.set()
