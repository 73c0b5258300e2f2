"""What engines behind HTTP share: the server, the model's limit, and calls side by side."""

from __future__ import annotations

import abc
import contextlib
import functools
import threading
from collections.abc import Sequence

from autotts_jax.checks import check_int, check_text
from autotts_jax.collect.engine import Completion, Request
from autotts_jax.collect.limits import find_limit
from autotts_jax.collect.upstream import Upstream


class HttpEngine(abc.ABC):
    """A model behind HTTP, with one call for each request.

    Args:
        base_url: as of `ServerEngine`, like the others.
        model: the name under which the server serves the model.
        api_key: the server's API key, if it needs one.
        timeout: seconds that a call may take.
        max_connections: calls at a time.
        max_model_len: tokens of a prompt and its completion together; None for what the server tells.
        attempts: how often a call is made until its loss is an error.
        pause: seconds to wait before the second attempt.

    Attributes:
        upstream: the server.
        max_model_len: tokens of a prompt and its completion together.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        api_key: str | None,
        *,
        timeout: float,
        max_connections: int,
        max_model_len: int | None,
        attempts: int,
        pause: float,
    ):
        self.model = check_text("the model", model)
        if max_model_len is not None:
            check_int("max_model_len", max_model_len, 1)
        self.upstream = Upstream(
            base_url,
            api_key,
            timeout=timeout,
            max_connections=max_connections,
            attempts=attempts,
            pause=pause,
        )
        with contextlib.ExitStack() as stack:
            stack.callback(self.close)
            self.max_model_len = find_limit(self.upstream, model, max_model_len)
            stack.pop_all()

    @property
    def running(self) -> int:
        return self.upstream.running

    def generate(
        self, requests: Sequence[Request], cancel: threading.Event | None = None
    ) -> list[Completion]:
        calls = [functools.partial(self._complete, request) for request in requests]
        return self.upstream.call_all(calls, cancel)

    def close(self) -> None:
        self.upstream.close()

    @abc.abstractmethod
    async def _complete(self, request: Request) -> Completion:
        """Makes the call for a request, in the event loop's thread."""
