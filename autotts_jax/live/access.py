"""Who may use a server: keys, and the hosts that requests are made to."""

from __future__ import annotations

import hmac
import ipaddress
import re

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from autotts_jax.live.chat import RequestError
from autotts_jax.live.settings import ServerSettings

_VERSIONS = ("1.0", "1.1", "2", "3")
"""Versions of HTTP, as servers that can run the application call them."""

_HOST = re.compile(r"(?:\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[a-z0-9_.-]+))(?::[0-9]*)?", re.IGNORECASE)


class WellFormed:
    """Middleware that refuses requests of another version of HTTP, or of which two headers give the length.

    A proxy that goes by the other header than this server would take a part of one client's request for that
    of another.
    """

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, or replies and closes the connection."""
        names = {name for name, _ in scope.get("headers", ())}
        if scope.get("http_version", "1.1") not in _VERSIONS:
            error = RequestError(505, f"the server speaks HTTP/1.1, not HTTP/{scope['http_version']}")
        elif names >= {b"content-length", b"transfer-encoding"}:
            error = RequestError(400, "give either a content-length or a transfer-encoding")
        else:
            await self._app(scope, receive, send)
            return
        await JSONResponse(error.body, error.status, {"connection": "close"})(scope, receive, send)


def check_access(request: Request, settings: ServerSettings) -> None:
    """Raises an error if a request may not use the model.

    Raises:
        RequestError: the key is wrong or missing; or there is none, and the request was made to another host.
    """
    check_host(request, settings)
    key = settings.api_key
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    known = key is not None and hmac.compare_digest(given.strip().encode(), key.encode())
    if key is not None and not (known and scheme.lower() == "bearer"):
        raise RequestError(401, "the API key is wrong or missing", "invalid_api_key")


def check_host(request: Request, settings: ServerSettings) -> None:
    """Raises an error if there is no key, and a request was made to a host by whose name nobody may come.

    Raises:
        RequestError: that is so.
    """
    if settings.api_key is None and not _is_allowed(request, settings.allowed_hosts):
        host = request.headers.get("host", "")
        raise RequestError(
            403, f"host name {host!r:.80} is not allowed; restart with --allow-host, or set a key"
        )


def _is_allowed(request: Request, names: tuple[str, ...]) -> bool:
    """Whether a request was made to an address, to this machine, or to one of the names."""
    # Not request.url, which has the server's own address where the header is of another form; and
    # urllib takes what only begins with an address for one.
    host = _HOST.fullmatch(request.headers.get("host", ""))
    if host is None:
        return False
    if host["name"] and host["name"].lower() in ("localhost", *map(str.lower, names)):
        return True
    try:
        ipaddress.IPv6Address(host["v6"]) if host["v6"] else ipaddress.IPv4Address(host["name"])
    except ValueError:
        return False
    return True
