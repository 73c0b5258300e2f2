"""An OpenAI-compatible server: vLLM's own, or another whose ``/v1/completions`` takes tokens as a prompt."""

from __future__ import annotations

import asyncio
import contextlib
import random
import statistics
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError
from typing import Any

from autotts_jax.collect.engine import (
    CANCEL_SECONDS,
    Cancelled,
    Completion,
    EngineError,
    Finish,
    Request,
    Tokenizer,
    Tokens,
)
from autotts_jax.collect.tokenizer import HubTokenizer
from autotts_jax.errors import InputError

PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Seconds to wait before each further try: between half of it and all."""

CONNECT_SECONDS = 10.0

SHOWN = 300
"""Characters of a server's reply that a message quotes."""

VLLM_FIELDS: Mapping[str, Any] = {
    "return_token_ids": True,
    "include_stop_str_in_output": True,
    # What is not given, vLLM takes from the model's generation_config.json.
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
}

_ANOTHER_TRY = (408, 425, 429)

_REMEDIES = {
    401: "; give the right API key",
    403: "; give the right API key",
    404: "; look at the address and the name of the model",
}


class _LostError(Exception):
    """A call got no reply, or none that is of use; the next one may."""


class _RefusedError(EngineError):
    """The server does not take the request, however often it is sent."""


class ServerEngine:
    """A model behind HTTP, a call for each request.

    A call that is lost, or meets a server that is overloaded or starting again, is made again as it was: what
    is written does not depend on it. A server that gives no tokens is believed its text: its tokens are those
    that encode the text, which the model may not have chosen, and the one that ends a text is not among them.

    Args:
        base_url: the server, e.g. ``http://127.0.0.1:8000/v1``.
        model: the name under which it serves the model.
        tokenizer: the model's tokenizer, or its folder or hub id; None where that is the name.
        api_key: the key that the server asks for, if it does.
        timeout: seconds that a call may take, with its time in the server's queue.
        max_connections: calls at a time; further requests wait here.
        max_model_len: tokens of a prompt and its continuation together, where the server does not tell.
        pauses: seconds to wait before each further try, as `PAUSES`.

    Raises:
        InputError: there is no such server, model or tokenizer.
        EngineError: the server fails, or wants another key, or takes no tokens.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        tokenizer: Tokenizer | str | None = None,
        *,
        api_key: str | None = None,
        timeout: float = 600.0,
        max_connections: int = 256,
        max_model_len: int = 32_768,
        pauses: Sequence[float] = PAUSES,
    ):
        try:
            import anyio.from_thread
            import httpx
        except ImportError as error:
            raise InputError(
                "the engine server needs httpx: pip install 'autotts-jax[collecting]'"
            ) from error
        self.model = model
        self._url = base_url.rstrip("/").removesuffix("/v1") + "/v1"
        self._lost = httpx.RequestError
        self._pauses = pauses
        self._calls: set[asyncio.Task[Completion]] = set()
        self._closed = False
        self._clients = asyncio.LifoQueue[httpx.AsyncClient](max_connections)
        # A client for each connection: one for all takes ten times as long to find a free connection.
        tls = httpx.create_ssl_context()
        for _ in range(max_connections):
            try:
                client = httpx.AsyncClient(
                    base_url=self._url,
                    headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
                    timeout=httpx.Timeout(timeout, connect=CONNECT_SECONDS),
                    verify=tls,
                )
            except httpx.InvalidURL as error:
                raise InputError(f"{base_url} is no address of a server: {error}") from error
            self._clients.put_nowait(client)
        with contextlib.ExitStack() as stack:
            self._portal = stack.enter_context(anyio.from_thread.start_blocking_portal())
            stack.callback(self._portal.call, self._end)
            self.max_model_len: int = self._portal.call(self._find_model) or max_model_len
            named = model if tokenizer is None else tokenizer
            self.tokenizer: Tokenizer = HubTokenizer.load(named) if isinstance(named, str) else named
            self._fields = self._portal.call(self._known_fields)
            self._closing = stack.pop_all()

    @property
    def running(self) -> int:
        return len(self._calls)

    def generate(
        self, requests: Sequence[Request], cancel: threading.Event | None = None
    ) -> list[Completion]:
        if self._closed:
            raise EngineError("the engine was closed")
        try:
            return self._portal.call(self._call_all, requests, cancel)
        except CancelledError as error:
            raise EngineError("the engine was closed") from error

    def close(self) -> None:
        self._closed = True
        self._closing.close()

    # --- in the event loop's thread ------------------------------------------------------------------

    async def _end(self) -> None:
        calls = list(self._calls)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        while not self._clients.empty():
            await self._clients.get_nowait().aclose()

    async def _find_model(self) -> int | None:
        """The model's context, if the server tells."""
        try:
            listed = (await self._send("GET", "/models"))["data"]
            contexts = {entry["id"]: entry.get("max_model_len") for entry in listed}
        except (_LostError, KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"no OpenAI-compatible server at {self._url}: {error}; start one, e.g. with "
                f"`vllm serve {self.model}`, or give its address"
            ) from error
        if self.model not in contexts:
            raise InputError(f"{self._url} has no model {self.model}; it has: {', '.join(contexts)}")
        return contexts[self.model]

    async def _known_fields(self) -> Mapping[str, Any]:
        """Fields beyond OpenAI's to send: some servers refuse what they do not know."""
        probe = Request(self.tokenizer.encode("1"), max_tokens=1)
        try:
            await self._call(probe, VLLM_FIELDS)
        except _RefusedError:
            await self._call(probe, {})
            return {}
        return VLLM_FIELDS

    async def _call_all(
        self, requests: Sequence[Request], cancel: threading.Event | None
    ) -> list[Completion]:
        calls = [asyncio.create_task(self._call(request, self._fields)) for request in requests]
        for call in calls:
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)
        waiting = set(calls)
        try:
            while waiting:
                if cancel is not None and cancel.is_set():
                    raise Cancelled
                done, waiting = await asyncio.wait(
                    waiting, timeout=CANCEL_SECONDS, return_when=asyncio.FIRST_EXCEPTION
                )
                for failure in [call.exception() for call in done]:
                    if failure is not None:
                        raise failure
            return [call.result() for call in calls]
        finally:
            for call in calls:
                call.cancel()

    async def _call(self, request: Request, fields: Mapping[str, Any]) -> Completion:
        body = {
            "model": self.model,
            "prompt": request.prompt,
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "top_p": request.top_p,
            "seed": request.seed,
            **({"stop": request.stop} if request.stop else {}),
            **({"logprobs": 1} if request.logprobs else {}),
            **fields,
        }
        for pause in (0.0, *self._pauses):
            await asyncio.sleep(pause * random.uniform(0.5, 1))
            try:
                return self._completion(request, await self._send("POST", "/completions", body))
            except _LostError as error:
                failure = error
        raise EngineError(
            f"{self._url} failed {len(self._pauses) + 1} times, the last time so: {failure}; what was "
            "collected is kept: see to the server, and start the same command again to go on"
        ) from failure

    async def _send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        client = await self._clients.get()
        try:
            response = await client.request(method, path, json=body)
        except self._lost as error:
            raise _LostError(f"{type(error).__name__} {error}".strip()) from error
        finally:
            self._clients.put_nowait(client)
        try:
            content = response.json()
        except ValueError:
            content = response.text
        if response.is_success:
            return content
        said = f"HTTP {response.status_code}: {_message(content)}"
        if response.status_code in _ANOTHER_TRY or response.is_server_error:
            raise _LostError(said)
        remedy = _REMEDIES.get(response.status_code, "")
        raise _RefusedError(f"{self._url}{path} refuses a request: {said}{remedy}")

    def _completion(self, request: Request, reply: Any) -> Completion:
        try:
            (choice,) = reply["choices"]
            finish = Finish(choice["finish_reason"])
            text = _with_stop(request, choice)
            if (given := choice.get("token_ids")) is None:
                tokens, text, finish = self._encoded(request, text, finish)
            else:
                tokens = tuple(given)
            logprobs = (choice.get("logprobs") or {}).get("token_logprobs")
            details = (reply.get("usage") or {}).get("prompt_tokens_details") or {}
            return Completion(
                tokens=tokens,
                text=text,
                finish=finish,
                mean_logprob=statistics.fmean(logprobs) if logprobs else None,
                cached=details.get("cached_tokens") or 0,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _LostError(f"its reply is no completion: {str(reply)[:SHOWN]}") from error

    def _encoded(self, request: Request, text: str, finish: Finish) -> tuple[Tokens, str, Finish]:
        """Tokens of a text whose own are not known."""
        tokens = self.tokenizer.encode(text)
        if finish is Finish.stop:
            return tokens, text, finish
        tokens = tokens[: request.max_tokens]
        # Tokens that are no text would be asked for again and again.
        return tokens, self.tokenizer.decode(tokens), Finish.length if tokens else Finish.stop


def _with_stop(request: Request, choice: Mapping[str, Any]) -> str:
    """The text with the stop string that ended it, which many servers cut off.

    Those that do not tell why they stopped, are taken to have met the first one.
    """
    text = choice["text"]
    if choice["finish_reason"] != Finish.stop or not request.stop or text.endswith(request.stop):
        return text
    reason = choice.get("stop_reason", request.stop[0])
    return text + reason if reason in request.stop else text


def _message(content: Any) -> str:
    """What a server says of an error: as ``{"error": {"message": ...}}``, or a part of that."""
    for name in ("error", "message"):
        if isinstance(content, Mapping) and name in content:
            content = content[name]
    return str(content)[:SHOWN]
