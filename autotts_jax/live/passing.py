"""Requests for the model alone that the server behind the engine answers itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from autotts_jax.collect.engine import EngineError
from autotts_jax.collect.upstream import Upstream
from autotts_jax.live.chat import ALIVE, DONE, RequestError, event
from autotts_jax.live.settings import ServerSettings
from autotts_jax.parsing import parse_json

_LIMITS = ("max_tokens", "max_completion_tokens")


class Passed(NamedTuple):
    """What a server replied.

    Attributes:
        reply: the reply; None if it was told as a stream.
        usage: the usage that it has, empty if it has none.
    """

    reply: dict[str, Any] | None
    usage: Mapping[str, Any]


def body_for(given: dict[str, Any], model: str, settings: ServerSettings) -> dict[str, Any]:
    """Makes the request to the server of the one to this server.

    Raises:
        RequestError: a limit is not a number of tokens.
    """
    sampling = settings.sampling
    body = {name: value for name, value in given.items() if name != "autotts" and value is not None}
    body["model"] = model
    defaults = {"temperature": sampling.temperature, "top_p": sampling.top_p, "seed": sampling.seed}
    restricted = {"top_k": sampling.top_k, "min_p": sampling.min_p}
    defaults |= {name: value for name, value in restricted.items() if value}
    body = defaults | body
    for name in _LIMITS:
        if name in body and (type(body[name]) is not int or body[name] < 0):
            raise RequestError(400, f"{name}: it has to be a number of tokens", param=name)
    limits = {name: body[name] for name in _LIMITS if name in body}
    if "messages" in body:
        limits = limits or {"max_tokens": sampling.max_tokens}
        body["messages"] = _with_system(body["messages"], sampling.system)
    if settings.budget is not None:
        limits = {name: min(limit, settings.budget) for name, limit in (limits or {"max_tokens": 16}).items()}
    return body | limits


def _with_system(messages: Any, system: str | None) -> Any:
    """The conversation after the server's system prompt."""
    return (
        messages
        if system is None or not isinstance(messages, list)
        else [{"role": "system", "content": system}, *messages]
    )


def pass_on(
    upstream: Upstream,
    path: str,
    body: dict[str, Any],
    shown: str,
    tell: Callable[[str], None],
    cancel: threading.Event,
) -> Passed:
    """Has a server answer.

    Args:
        upstream: the server.
        path: what is asked of it.
        body: the request.
        shown: the model as its client knows it.
        tell: called with parts of a stream.
        cancel: once this is set, the request is dropped.

    Returns:
        The reply.

    Raises:
        Cancelled: ``cancel`` was set.
        EngineError: the server failed, or its reply is none.
    """
    if not body.get("stream"):
        content = upstream.pass_on(path, body, None, cancel)
        try:
            reply = parse_json(content)
        except ValueError:
            reply = None
        if not isinstance(reply, dict):
            raise EngineError(
                f"{upstream.url} gave no JSON: {upstream.quoted(content.decode(errors='replace'))}"
            )
        return Passed({**reply, "model": shown}, _usage(reply))
    parts = _Parts(shown, tell)
    upstream.pass_on(path, body, parts.add, cancel)
    if not parts.done:
        raise EngineError(f"{upstream.url} broke its reply off")
    return Passed(None, parts.usage)


class _Parts:
    """A stream of a server as it is passed on, with another name for the model."""

    def __init__(self, shown: str, tell: Callable[[str], None]):
        self._shown = shown
        self._tell = tell
        self._rest = b""
        self.usage: Mapping[str, Any] = {}
        self.done = False

    def add(self, part: bytes) -> None:
        """Tells the events that have come to their ends."""
        *lines, self._rest = (self._rest + part).split(b"\n")
        told = [self._line(line.rstrip(b"\r")) for line in lines]
        if any(told):
            self._tell("".join(told))

    def _line(self, line: bytes) -> str:
        if line.startswith(b":"):
            return ALIVE
        if not line.startswith(b"data:"):
            return ""
        data = line.removeprefix(b"data:").strip()
        if data == b"[DONE]":
            self.done = True
            return DONE
        try:
            chunk = parse_json(data)
        except ValueError:
            chunk = None
        if not isinstance(chunk, dict):
            raise EngineError("a part of the reply is no JSON object")
        self.usage = _usage(chunk) or self.usage
        return event({**chunk, "model": self._shown} if "model" in chunk else chunk)


def _usage(reply: Mapping[str, Any]) -> Mapping[str, Any]:
    usage = reply.get("usage")
    return usage if isinstance(usage, Mapping) else {}
