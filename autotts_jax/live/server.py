"""Controllers behind an OpenAI-compatible chat endpoint.

A request names a controller as its model, ``<name>:<controller>[@value]``. The controller answers the
question in a thread, as `live.answer` does, and all questions share the engine's batch. When a client goes
away, when its time is up and when the server ends, its branches are dropped from the engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import signal
import socket
import sys

from autotts_jax.collect.engine import Engine
from autotts_jax.errors import InputError
from autotts_jax.live.chat import IGNORED_HEADER, RequestError
from autotts_jax.live.settings import ServerSettings

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.middleware import Middleware
    from starlette.middleware.cors import CORSMiddleware
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route
except ImportError as error:
    raise InputError("serving needs Starlette and uvicorn: pip install 'autotts-jax[serve]'") from error

from autotts_jax.live.access import WellFormed
from autotts_jax.live.connections import BACKLOG, Connections, ReadRefused, most_connections
from autotts_jax.live.metrics import CountedReplies
from autotts_jax.live.service import Service

GRACE_SECONDS = 10
"""What clients get to read their replies when the server ends."""

SWITCH_SECONDS = 0.0005
"""How long a thread may keep others from running."""

_LOG = logging.getLogger("uvicorn.error")
_ACCESS_LOG = logging.getLogger("uvicorn.access")


def serve(engine: Engine, settings: ServerSettings, host: str = "127.0.0.1", port: int = 8000) -> None:
    """Serves until Ctrl-C or SIGTERM, and then returns; call it in the main thread. The engine stays open.

    The address is logged, and a warning if others can reach it without a key.

    Args:
        engine: the model.
        settings: what is served.
        host: address to listen on.
        port: port to listen on, 0 for any that is free.

    Raises:
        InputError: nothing can listen there, or no question fits into the model's context.
    """
    if not host:
        raise InputError(
            "the host is empty, which would be every address; give 127.0.0.1, or 0.0.0.0 for all"
        )
    app = create_app(engine, settings)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        host.encode("idna")  # which is a TypeError of create_server's, and leaves a socket open
        listener = socket.create_server((host, port), family=family)
    except (OSError, UnicodeError) as error:
        problem = getattr(error, "strerror", None) or error
        raise InputError(f"cannot listen on {host}, port {port}: {problem}") from error
    config = uvicorn.Config(
        app,
        http=Connections(most_connections()).protocol,  # type: ignore[arg-type]  # called, as a class would be
        ws="none",
        loop="asyncio",
        backlog=BACKLOG,
        timeout_graceful_shutdown=2 * GRACE_SECONDS,
    )
    _ACCESS_LOG.addFilter(_without_query)
    if settings.api_key is None and not ipaddress.ip_address(listener.getsockname()[0]).is_loopback:
        _LOG.warning(
            "%s can be reached from other machines and there is no API key, so everybody who reaches it can "
            "use the model",
            host,
        )
    # uvicorn ends in order, and then raises the signal that it was sent once more.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    # With Python's 5 ms, /health would wait half a second for as many threads as answer and compile.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        with listener, contextlib.suppress(KeyboardInterrupt):
            _Server(config, app.state.service).run([listener])
    finally:
        sys.setswitchinterval(interval)
        signal.signal(signal.SIGTERM, before)


def create_app(engine: Engine, settings: ServerSettings) -> Starlette:
    """Makes the web application, to be run by your own server, in a process of its own, with its lifespan.

    Args:
        engine: the model.
        settings: what is served.

    Raises:
        InputError: no question fits into the model's context, or a setting is wrong.
    """
    service = Service(engine, settings)
    app = Starlette(
        routes=[
            Route("/v1/chat/completions", service.chat, methods=["POST"]),
            Route("/v1/responses", service.responses, methods=["POST"]),
            Route("/v1/completions", service.completions, methods=["POST"]),
            Route("/v1/models", service.models),
            Route("/v1/models/{name:path}", service.model),
            Route("/live", service.live),
            Route("/health", service.health),
            Route("/metrics", service.metrics),
            Route("/", service.page),
        ],
        middleware=_middleware(service, settings),
        lifespan=service.lifespan,
        exception_handlers={RequestError: _reply, HTTPException: _reply_http, Exception: _reply_unexpected},
    )
    app.state.service = service
    app.router.redirect_slashes = False  # to a host that the request names
    return app


def _middleware(service: Service, settings: ServerSettings) -> list[Middleware]:
    always = [Middleware(CountedReplies, service.counts), Middleware(ReadRefused), Middleware(WellFormed)]
    if not settings.allowed_origins:
        return always
    shared = Middleware(
        CORSMiddleware,
        allow_origins=settings.allowed_origins,
        allow_methods=["GET", "POST"],
        allow_headers=["*"],  # OpenAI's client sends many of its own
        expose_headers=["Retry-After", IGNORED_HEADER],
    )
    return [*always, shared]


class _Server(uvicorn.Server):
    """A server that logs its address, and drops the questions under way when it is told to end."""

    def __init__(self, config: uvicorn.Config, service: Service):
        super().__init__(config)
        self._service = service

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(socket.SOMAXCONN)  # asyncio has no more wait than it accepts at a time
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        _LOG.info("serving at http://%s:%d/v1", shown, port)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.stop()
        # Uvicorn would cancel the tasks of clients that do not read, each with a traceback.
        abort = asyncio.get_running_loop().call_later(GRACE_SECONDS, self._abort)
        await super().shutdown(sockets)
        abort.cancel()

    def _abort(self) -> None:
        for connection in self.server_state.connections:
            connection.transport.abort()


def _without_query(record: logging.LogRecord) -> bool:
    """Takes the query, in which a client may have put a secret, out of a line of the log."""
    if isinstance(record.args, tuple):
        record.args = tuple(
            argument.partition("?")[0] if isinstance(argument, str) else argument for argument in record.args
        )
    return True


async def _reply(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return JSONResponse(error.body, error.status, error.headers)


async def _reply_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return await _reply(
        request, RequestError(error.status_code, error.detail, headers=dict(error.headers or {}))
    )


async def _reply_unexpected(request: Request, _error: Exception) -> Response:
    return await _reply(request, RequestError(500, "the request failed; the server's log says why"))
