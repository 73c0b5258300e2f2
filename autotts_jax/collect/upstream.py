"""Calls to a server with OpenAI's API: its connections, repeated attempts, and what its errors mean."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import email.utils
import re
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from autotts_jax.checks import check_float, check_int, check_text
from autotts_jax.collect.engine import CANCEL_SECONDS, BusyError, Cancelled, EngineError, RefusedError
from autotts_jax.commands import without_secrets
from autotts_jax.errors import InputError
from autotts_jax.extras import needs
from autotts_jax.keys import all_hidden, checked_key, password_of
from autotts_jax.parsing import parse_json
from autotts_jax.terminal import counted, quoted

T = TypeVar("T")

CONNECT_SECONDS = 10.0

MAX_REPLY = 1 << 26
"""Bytes of a reply at most, decompressed."""

MAX_RETRY_AFTER = 60.0
"""Seconds that an attempt waits at most because the server says so; a longer wait is an error at once."""

START_ATTEMPTS = 3
"""Attempts at most of a call that is made while an engine opens."""

_TOO_MANY = 429
_LOST = (408, 424, 425, _TOO_MANY)
"""Statuses below 500 after which the same request may succeed; TGI says 424 where generation failed."""

_REFUSED = (400, 413, 414, 422, 431)
"""Statuses that are about the request; TGI says 422."""

_REMEDIES = {
    401: "; give the right API key",
    403: "; give the right API key",
    404: "; check the address and the name of the model",
}

_TOO_LONG = re.compile(
    r"context[ _](length|size|window)|context_length_exceeded|exceed_context_size|longer than the model|"
    r"max_new_tokens`? must be|maximum (input|sequence) length|prompt is too long",
    re.IGNORECASE,
)
"""What vLLM, SGLang, llama.cpp, TGI, Ollama and OpenAI say of a request that their context does not take."""


class LostError(Exception):
    """A call got no usable reply; another attempt may get one.

    Attributes:
        status: the HTTP status, None if there was no reply.
        retry_after: seconds that the server asks to wait, None if it does not.
    """

    def __init__(self, problem: str, status: int | None = None, retry_after: float | None = None):
        super().__init__(problem)
        self.status = status
        self.retry_after = retry_after


class Upstream:
    """A server with OpenAI's API, called from many threads; the calls run in an event loop of its own.

    Args:
        base_url: the server, e.g. ``http://127.0.0.1:8000/v1``.
        api_key: the server's API key, None if it needs none.
        timeout: seconds that a call may take up to the end of its reply, the server's queue included.
        max_connections: calls at a time; further ones wait here.
        attempts: how often a call is made until its loss is an error.
        pause: seconds to wait before the second attempt, as of `ServerEngine`.

    Attributes:
        url: the address as messages show it, without secrets.

    Raises:
        InputError: the key cannot be sent, an argument is out of range, or a package is missing.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None,
        *,
        timeout: float,
        max_connections: int,
        attempts: int,
        pause: float,
    ):
        with needs("collecting", "an engine behind HTTP"):
            import anyio.from_thread
            import httpx
        for name, count in (("attempts", attempts), ("max_connections", max_connections)):
            check_int(name, count, 1)
        check_float("timeout", timeout, above=0)
        check_float("pause", pause, 0)
        address = check_text("base_url", base_url).rstrip("/").removesuffix("/v1")
        self._key = checked_key(api_key or "", "the server's API key")
        (shown,) = without_secrets([f"{address}/v1"])
        self._secrets = [self._key, *password_of(address)]
        self.url = all_hidden(shown, self._secrets)
        self._failures = httpx.RequestError
        self._timeout = timeout
        self._attempts = attempts
        self._pause = pause
        self._calls: set[asyncio.Task[Any]] = set()
        self._closed = False
        self._clients = asyncio.LifoQueue[httpx.AsyncClient](max_connections)
        # A client for each connection: a shared one takes ten times as long to find a free connection.
        tls = httpx.create_ssl_context()
        for _ in range(max_connections):
            try:
                client = httpx.AsyncClient(
                    base_url=address,
                    headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
                    timeout=httpx.Timeout(timeout, connect=CONNECT_SECONDS),
                    verify=tls,
                )
            except httpx.InvalidURL as error:
                raise InputError(f"{self.url} is not the address of a server: {error}") from error
            self._clients.put_nowait(client)
        with contextlib.ExitStack() as stack:
            self._portal = stack.enter_context(anyio.from_thread.start_blocking_portal())
            stack.callback(self._portal.call, self._end)
            self._closing = stack.pop_all()

    @property
    def running(self) -> int:
        """Number of calls under way, of those that `call_all` makes."""
        return len(self._calls)

    def run(self, function: Callable[[], Awaitable[T]]) -> T:
        """Runs a function in the event loop, and waits for it.

        Args:
            function: the function.
        """
        return self._portal.call(function)

    def call_all(
        self, calls: Sequence[Callable[[], Awaitable[T]]], cancel: threading.Event | None = None
    ) -> list[T]:
        """Makes calls at the same time; the failure of one ends the others.

        Args:
            calls: what to call; each is made again while it is lost.
            cancel: once this is set, all calls are dropped.

        Returns:
            What each returns, in the order of the calls.

        Raises:
            Cancelled: ``cancel`` was set.
            EngineError: one failed, or the engine was closed.
        """
        if self._closed:
            raise EngineError("the engine was closed")
        try:
            return self._portal.call(self._gather, calls, cancel)
        except CancelledError as error:
            raise EngineError("the engine was closed") from error

    def pass_on(
        self,
        path: str,
        body: Mapping[str, Any],
        tell: Callable[[bytes], None] | None,
        cancel: threading.Event | None = None,
    ) -> bytes:
        """Makes one call, again while it is lost and nothing of its reply was told.

        Args:
            path: the path below the address.
            body: what is sent as JSON.
            tell: called, in the event loop's thread, with each part of the reply as it comes; None to be
                given the whole.
            cancel: once this is set, the call is dropped.

        Returns:
            The reply; empty if it was told.

        Raises:
            Cancelled: ``cancel`` was set.
            EngineError: the call failed.
        """
        begun = False

        def begin(part: bytes) -> None:
            nonlocal begun
            begun = True
            assert tell is not None
            tell(part)

        async def call() -> bytes:
            if tell is None:
                return await self.send("POST", path, body)
            try:
                await self.receive("POST", path, body, begin)
            except LostError as error:
                if begun:
                    raise EngineError(f"{self.url} broke its reply off: {error}") from error
                raise
            return b""

        (content,) = self.call_all([call], cancel)
        return content

    def close(self) -> None:
        """Ends the calls under way and closes all connections; may be called twice."""
        self._closed = True
        self._closing.close()

    # --- in the event loop's thread ------------------------------------------------------------------

    async def repeat(self, call: Callable[[], Awaitable[T]], attempts: int | None = None) -> T:
        """Makes a call, again while it is lost.

        Args:
            call: makes it once, and raises a `LostError` if it is lost.
            attempts: how often at most; None for as often as the engine is to.

        Raises:
            BusyError: the server said to the last that it has too much to do.
            EngineError: no attempt succeeded.
        """
        import tenacity

        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception(_worth_repeating),
            stop=tenacity.stop_after_attempt(min(attempts or self._attempts, self._attempts)),
            wait=_Wait(self._pause),
            reraise=True,
        )
        try:
            return await retrying(call)
        except LostError as error:
            made = counted(retrying.statistics["attempt_number"], "time", "times")
            message = (
                f"{self.url} failed {made}, the last time with: {error}; what was collected is kept: check "
                "the server, and start the same command again to resume"
            )
            if error.status == _TOO_MANY:
                raise BusyError(message, error.retry_after) from error
            raise EngineError(message) from error

    async def send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> bytes:
        """Makes a call once.

        Args:
            method: the HTTP method.
            path: the path below the address, with ``/v1`` where it has that.
            body: what is sent as JSON.

        Returns:
            The content of a reply that is no error.

        Raises:
            LostError: there was no such reply, but may be for another attempt.
            RefusedError: the server does not accept the request.
            EngineError: the server accepts none, as with another key.
        """
        content = bytearray()

        def keep(part: bytes) -> None:
            content.extend(part)
            if len(content) > MAX_REPLY:
                raise LostError(f"its reply has more than {MAX_REPLY} bytes")

        await self.receive(method, path, body, keep)
        return bytes(content)

    async def receive(
        self, method: str, path: str, body: Mapping[str, Any] | None, tell: Callable[[bytes], None]
    ) -> None:
        """Makes a call once, and tells the content of its reply as it comes; errors are as of `send`.

        Args:
            method: the HTTP method.
            path: the path below the address.
            body: what is sent as JSON.
            tell: called with each part of a reply that is no error.
        """
        client = await self._clients.get()
        problem = bytearray()
        try:
            # httpx limits each read: a server that sends a byte now and then would never be given up.
            async with (
                asyncio.timeout(self._timeout),
                client.stream(method, path, json=body) as response,
            ):
                async for part in response.aiter_bytes():
                    if response.is_success:
                        tell(part)
                        continue
                    problem += part
                    if len(problem) > MAX_REPLY:
                        raise LostError(f"its reply has more than {MAX_REPLY} bytes")
        except TimeoutError as error:
            raise LostError(f"there was no whole reply within {self._timeout:g} s") from error
        except self._failures as error:
            raise LostError(self.quoted(f"{type(error).__name__} {error}".strip())) from error
        finally:
            self._clients.put_nowait(client)
        if not response.is_success:
            after = read_retry_after(response.headers.get("retry-after", ""))
            self._fail(path, response.status_code, bytes(problem), after)

    def quoted(self, text: str) -> str:
        """Quotes the beginning of what a server says, without the secrets that it may repeat.

        Args:
            text: what it says.
        """
        return quoted(all_hidden(text, self._secrets))

    def _fail(self, path: str, status: int, content: bytes, retry_after: float | None) -> None:
        """Raises what the status of a reply means."""
        said = read_problem(content)
        problem = f"HTTP {status}: {self.quoted(said)}"
        # llama.cpp said 500 of a prompt that is too long, and some that are built on it still do.
        too_long = _TOO_LONG.search(content.decode(errors="replace")) is not None
        if status in _REFUSED or (status >= 500 and too_long):
            raise RefusedError(
                f"{self.url} refuses a request of {path}: {problem}", self.quoted(said), too_long
            )
        if status in _LOST or status >= 500:
            raise LostError(problem, status, retry_after)
        remedy = _REMEDIES.get(status, "")
        raise EngineError(f"{self.url} refuses a request of {path}: {problem}{remedy}")

    async def _gather(
        self, calls: Sequence[Callable[[], Awaitable[T]]], cancel: threading.Event | None
    ) -> list[T]:
        tasks = [asyncio.ensure_future(self.repeat(call)) for call in calls]
        for task in tasks:
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)
        waiting = set(tasks)
        try:
            while waiting:
                if cancel is not None and cancel.is_set():
                    raise Cancelled
                done, waiting = await asyncio.wait(
                    waiting, timeout=CANCEL_SECONDS, return_when=asyncio.FIRST_EXCEPTION
                )
                for failure in [task.exception() for task in done]:
                    if failure is not None:
                        raise failure
            return [task.result() for task in tasks]
        finally:
            for task in tasks:
                task.cancel()

    async def _end(self) -> None:
        calls = list(self._calls)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        while not self._clients.empty():
            await self._clients.get_nowait().aclose()


class _Wait:
    """How long to wait before another attempt: as the server says, at least what doubles each time."""

    def __init__(self, pause: float):
        import tenacity

        self._doubling = tenacity.wait_exponential(pause / 2) + tenacity.wait_random_exponential(pause / 2)

    def __call__(self, state: Any) -> float:
        error = state.outcome.exception()
        return max(self._doubling(state), error.retry_after or 0.0)


def _worth_repeating(error: BaseException) -> bool:
    return isinstance(error, LostError) and (error.retry_after or 0.0) <= MAX_RETRY_AFTER


def read_retry_after(header: str) -> float | None:
    """Reads the header ``Retry-After``.

    Args:
        header: seconds, or a date.

    Returns:
        Seconds from now, None if it tells none.
    """
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", header.strip()):
        return float(header)
    try:
        until = email.utils.parsedate_to_datetime(header)
    except (TypeError, ValueError):
        return None
    if until.tzinfo is None:
        until = until.replace(tzinfo=datetime.UTC)
    return max(0.0, (until - datetime.datetime.now(datetime.UTC)).total_seconds())


def read_problem(content: bytes) -> str:
    """Reads a server's error message: ``{"error": {"message": ...}}``, or a part of that, or any text.

    Args:
        content: the reply.

    Returns:
        The message.
    """
    try:
        message = parse_json(content)
        for name in ("error", "message"):
            if isinstance(message, Mapping) and name in message:
                message = message[name]
        return str(message)
    except ValueError:
        return content.decode(errors="replace")
