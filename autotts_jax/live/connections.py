"""Connections that keep a server waiting: a deadline, limits, and one line in the log for all of them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import resource
from pathlib import Path
from typing import Any

import h11
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS = 10.0
"""What a request may take to arrive, from when the server is ready for it to its last byte."""

MAX_READ = 1 << 24
"""Bytes that are read of a request that is refused: most clients send all before they read why."""

MAX_CONNECTIONS = 1000
"""Connections that may be open at once, where the process may have descriptors enough."""

MAX_UNFINISHED = 1 << 26
"""Bytes of requests that have not come to their ends, over all connections."""

BACKLOG = 32
"""Connections that the event loop accepts at a time."""

_HEAD_END = re.compile(rb"\n\r?\n")
_BARE_LINE = re.compile(rb"(?<!\r)\n")
_SWEEP_SECONDS = 1.0
_LOG_SECONDS = 60.0
_LOG = logging.getLogger("uvicorn.error")


class ReadRefused:
    """Middleware that reads requests to their ends before it passes an error on, within `MAX_READ`."""

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request and its reply on."""
        ended, size = False, 0

        async def read() -> Message:
            nonlocal ended, size
            message = await receive()
            ended = ended or not message.get("more_body", False)
            size += len(message.get("body", b""))
            return message

        async def reply(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] >= 400:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(REQUEST_SECONDS):
                        while not ended and size <= MAX_READ:
                            await read()
            await send(message)

        await self._app(scope, read, reply)


class Connections:
    """The connections of a server that have sent no request yet, or no other since the last.

    Those that take too long are closed; where too many connections are open, so are those that have waited
    longest, and where their requests take too much memory, those of them that have sent anything.
    """

    def __init__(self, most: int):
        self._most = most
        self._waiting: dict[Connection, float] = {}  # since when, in this order
        self._received: dict[Connection, int] = {}  # bytes of a request that has begun, in this order
        self._late = self._crowded = 0  # closed since that was last logged
        self._logged = -_LOG_SECONDS
        self._sweeping = False

    def protocol(self, *arguments: Any, **options: Any) -> Connection:
        """Makes the protocol of a new connection, with the arguments that uvicorn gives it."""
        return Connection(self, *arguments, **options)

    def wait(self, connection: Connection) -> None:
        """Notes that the server waits for a request from now on."""
        self.done(connection)
        self._waiting[connection] = connection.loop.time()
        if len(connection.connections) > self._most:
            self._crowded += 1
            self._close(next(iter(self._waiting)))
        if not self._sweeping:
            self._sweeping = True
            connection.loop.call_later(_SWEEP_SECONDS, self._sweep, connection.loop)

    def received(self, connection: Connection, count: int) -> None:
        """Notes that so many bytes of a request have come."""
        if connection in self._waiting:
            self._received[connection] = self._received.get(connection, 0) + count
            if sum(self._received.values()) > MAX_UNFINISHED:
                self._crowded += 1
                self._close(next(iter(self._received)))

    def done(self, connection: Connection) -> None:
        """Notes that a request has come, or cannot come any more."""
        self._waiting.pop(connection, None)
        self._received.pop(connection, None)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """Closes what took too long, and logs once a minute how many connections were closed."""
        now = loop.time()
        for connection in [c for c, since in self._waiting.items() if now >= since + REQUEST_SECONDS]:
            self._late += 1
            self._close(connection)
        if self._late + self._crowded and now >= self._logged + _LOG_SECONDS:
            _LOG.warning(
                "closed %d connections on which no request came within %g seconds, and %d early, because "
                "more than %d were open or held more than %d bytes of unfinished requests",
                self._late,
                REQUEST_SECONDS,
                self._crowded,
                self._most,
                MAX_UNFINISHED,
            )
            self._late = self._crowded = 0
            self._logged = now
        self._sweeping = bool(self._waiting or self._late or self._crowded)
        if self._sweeping:
            loop.call_later(_SWEEP_SECONDS, self._sweep, loop)

    def _close(self, connection: Connection) -> None:
        self.done(connection)
        connection.transport.abort()


class Connection(H11Protocol):
    """A connection that tells when the server waits for a request on it."""

    def __init__(self, told: Connections, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self.conn = _StrictConnection(h11.SERVER)
        self._told = told

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begins to wait."""
        super().connection_made(transport)
        self._told.wait(self)

    def data_received(self, data: bytes) -> None:
        """Counts what comes."""
        self._told.received(self, len(data))
        super().data_received(data)

    def eof_received(self) -> None:
        """Tells a client that it gets no reply if it ends its side before there is one.

        Most clients that do so have gone, and nothing tells the others from them.
        """
        if self.cycle is not None and not self.cycle.response_started:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            with contextlib.suppress(h11.LocalProtocolError):  # a reply to HEAD has no content
                self.send_400_response("The client closed its side before there was a reply; keep it open.")

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends waiting."""
        self._told.done(self)
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Ends waiting where the request has come to its end."""
        super().handle_events()
        if self.cycle is not None and not (self.cycle.more_body or self.cycle.response_complete):
            self._told.done(self)

    def on_response_complete(self) -> None:
        """Waits for the next request, which may be there already."""
        self._told.wait(self)
        super().on_response_complete()

    def shutdown(self) -> None:
        """Lets a reply come to its end, but not a request."""
        if self.cycle is not None and self.cycle.more_body:
            self.transport.abort()
        else:
            super().shutdown()


class _StrictConnection(h11.Connection):
    """Refuses lines that end without a carriage return: h11 takes them for lines of a head, not of a chunk.

    Proxies differ in what such lines are to them, and so in where a request ends.
    """

    def next_event(self) -> Any:
        """Reads what has come."""
        begun, _ = self.trailing_data
        if self.their_state is h11.IDLE:
            end = _HEAD_END.search(begun)
            if _BARE_LINE.search(begun, 0, end.end() if end else len(begun)):
                raise h11.RemoteProtocolError("a line ends without a carriage return")
        event = super().next_event()
        # What h11 does not take of a body is a line, of a chunk's size or behind the last one, and what it
        # takes with its end are lines; a line feed before them ends a chunk whose carriage return it took.
        lines = b""
        if event is h11.NEED_DATA and self.their_state is h11.SEND_BODY:
            lines, _ = self.trailing_data
        elif type(event) is h11.EndOfMessage:
            lines = begun[: len(begun) - len(self.trailing_data[0])]
            lines = lines if lines == b"\n" else lines.removeprefix(b"\n")
        if _BARE_LINE.search(lines):
            raise h11.RemoteProtocolError("a line ends without a carriage return")
        return event


def most_connections() -> int:
    """Gives the number of connections that may be open, which leaves descriptors for everything else."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = sum(1 for _ in Path("/dev/fd").iterdir())
    return max(1, min(MAX_CONNECTIONS, (allowed - used) // 2))
