"""Whether an engine answers, found out by asking it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

from autotts_jax.collect.engine import BusyError, Cancelled, Engine, EngineError, RefusedError, Request

ASK_SECONDS = 8.0
"""How long an engine has for a single token."""

FIRST_PAUSE, MAX_PAUSE = 0.5, 4.0
"""Seconds from one failure to the next question, doubled each time up to the second. A server that comes back
is found to within `ASK_SECONDS` and this pause."""

QUIET_SECONDS = 30.0
"""After so long without a word from the engine, whoever wants to know of it has it asked."""

_LOG = logging.getLogger("uvicorn.error")


class Readiness:
    """Whether an engine answers.

    It is asked for a single token when a question failed, and when nobody has heard of it for long; while it
    does not answer, it is asked again and again. A request that it refuses, or that it has no time for, is an
    answer too. All methods belong to the event loop's thread.
    """

    def __init__(self, engine: Engine):
        self._engine = engine
        self._heard = time.monotonic()
        self._doubted = asyncio.Event()
        self._cancel = threading.Event()
        self.ready = True

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Asks the engine as long as the context lasts, where that is called for."""
        with ThreadPoolExecutor(1, "readiness") as thread:
            watch = asyncio.create_task(self._watch(thread))
            try:
                yield
            finally:
                watch.cancel()
                self._cancel.set()

    def heard(self) -> None:
        """Notes that the engine has answered."""
        self._heard = time.monotonic()
        self.ready = True

    def doubt(self) -> None:
        """Has the engine asked, because a question failed."""
        self._doubted.set()

    def look(self) -> bool:
        """Tells whether the engine answered the last time, and has it asked if that is long ago."""
        if time.monotonic() > self._heard + QUIET_SECONDS:
            self._doubted.set()
        return self.ready

    async def _watch(self, thread: ThreadPoolExecutor) -> None:
        while True:
            await self._doubted.wait()
            pause = FIRST_PAUSE
            while not await self._answers(thread):
                self._fail()
                await asyncio.sleep(pause)
                pause = min(2 * pause, MAX_PAUSE)
            if not self.ready:
                _LOG.info("the engine answers again")
            self.heard()
            self._doubted.clear()

    async def _answers(self, thread: ThreadPoolExecutor) -> bool:
        """Asks the engine for a token."""
        self._cancel = threading.Event()
        asked = asyncio.get_running_loop().run_in_executor(thread, self._ask, self._cancel)
        try:
            async with asyncio.timeout(ASK_SECONDS):
                return await asyncio.shield(asked)
        except TimeoutError:
            self._fail()
            self._cancel.set()
            return await asked

    def _fail(self) -> None:
        if self.ready:
            _LOG.warning("the engine does not answer; /health says 503 until it does")
        self.ready = False

    def _ask(self, cancel: threading.Event) -> bool:
        request = Request(self._engine.tokenizer.encode("1"), max_tokens=1)
        try:
            self._engine.generate([request], cancel)
        except (RefusedError, BusyError):
            return True
        except (EngineError, Cancelled):
            return False
        except Exception:
            _LOG.exception("the engine failed in a way that no engine may")
            return False
        return True
