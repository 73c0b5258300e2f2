"""An engine behind HTTP: vLLM's server, or another whose ``/v1/completions`` takes tokens as a prompt."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import math
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError
from typing import Any

import numpy as np

from autotts_jax.checks import check_float, check_int, check_text
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
from autotts_jax.collect.schema import SchemaError, parse_as
from autotts_jax.collect.signals import TOP, reduce_top
from autotts_jax.collect.tokenizer import HubTokenizer
from autotts_jax.commands import without_secrets
from autotts_jax.errors import InputError
from autotts_jax.extras import needs
from autotts_jax.keys import checked_key, hidden
from autotts_jax.parsing import parse_json
from autotts_jax.terminal import quoted

CONNECT_SECONDS = 10.0

MAX_REPLY = 1 << 26
"""Bytes of a reply at most, decompressed."""

VLLM_FIELDS: Mapping[str, Any] = {
    "return_token_ids": True,
    "include_stop_str_in_output": True,
    "return_tokens_as_token_ids": True,  # different tokens may have the same text
    # vLLM takes what is not given from the model's generation_config.json.
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
}

MAX_TOKEN = 2**31 - 1
"""The largest id that a token may have."""

_RETRIED = (408, 425, 429)

_REMEDIES = {
    401: "; give the right API key",
    403: "; give the right API key",
    404: "; check the address and the name of the model",
}


class _LostError(Exception):
    """A call got no usable reply; another attempt may get one."""


class _RefusedError(EngineError):
    """The server does not accept the request, however often it is sent."""


# --- replies, as far as they are read


@dataclasses.dataclass(frozen=True)
class _Model:
    id: str
    max_model_len: int | None = None


@dataclasses.dataclass(frozen=True)
class _ModelList:
    data: list[_Model]


@dataclasses.dataclass(frozen=True)
class _Logprobs:
    token_logprobs: list[float] | None = None
    top_logprobs: list[dict[str, float]] | None = None


@dataclasses.dataclass(frozen=True)
class _Choice:
    text: str
    finish_reason: Finish
    token_ids: tuple[int, ...] | None = None
    stop_reason: str | int | None = ""
    """The stop string or token, None if the text ended without one; "" if the server does not tell."""
    logprobs: _Logprobs | None = None


@dataclasses.dataclass(frozen=True)
class _PromptDetails:
    cached_tokens: int | None = None


@dataclasses.dataclass(frozen=True)
class _Usage:
    prompt_tokens_details: _PromptDetails | None = None


@dataclasses.dataclass(frozen=True)
class _Reply:
    choices: tuple[_Choice]
    usage: _Usage | None = None


class ServerEngine:
    """A model behind HTTP, with one call for each request.

    A call that is lost, or that meets an overloaded or restarting server, is repeated unchanged: completions
    do not depend on it. If the server returns text without tokens, the tokens are those that encode the text;
    the model may have chosen others, and the token that ends a text is not among them.

    Args:
        base_url: the server, e.g. ``http://127.0.0.1:8000/v1``.
        model: the name under which the server serves the model.
        tokenizer: the model's tokenizer, or its folder or Hugging Face id; by default ``model``.
        chat_kwargs: arguments of the chat template of a tokenizer that is named, as of `HubTokenizer`.
        think_end: the text that ends the thinking part of replies, as of `HubTokenizer`.
        api_key: the server's API key, if it needs one.
        timeout: seconds that a call may take up to the end of its reply, the server's queue included.
        max_connections: calls at a time; further requests wait here.
        max_model_len: tokens of a prompt and its completion together, if the server does not tell.
        attempts: how often a call is made until its loss is an error.
        pause: seconds to wait before the second attempt; doubles before each further one. The wait is a
            random time between half of it and all of it.

    Raises:
        InputError: there is no such server, model or tokenizer, the key cannot be sent, an argument is out
            of range, or a package is missing.
        EngineError: the server fails, needs another key, or does not accept tokens as a prompt.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        tokenizer: Tokenizer | str | None = None,
        *,
        chat_kwargs: Mapping[str, Any] | None = None,
        think_end: str | None = None,
        api_key: str | None = None,
        timeout: float = 600.0,
        max_connections: int = 256,
        max_model_len: int = 32_768,
        attempts: int = 7,
        pause: float = 1.0,
    ):
        with needs("collecting", "the engine server"):
            import anyio.from_thread
            import httpx
            import tenacity
        self.model = check_text("the model", model)
        for name, count in (("attempts", attempts), ("max_connections", max_connections)):
            check_int(name, count, 1)
        check_int("max_model_len", max_model_len, 1)
        check_float("timeout", timeout, above=0)
        check_float("pause", pause, 0)
        if not (tokenizer is None or isinstance(tokenizer, str) or hasattr(tokenizer, "chat")):
            raise InputError(f"tokenizer is {tokenizer!r:.60}, but it must be a folder or a Hugging Face id")
        address = check_text("base_url", base_url).rstrip("/").removesuffix("/v1") + "/v1"
        self._key = checked_key(api_key or "", "the server's API key")
        (shown,) = without_secrets([address])
        self._url = hidden(shown, self._key)
        self._lost = httpx.RequestError
        self._attempts = attempts
        self._timeout = timeout
        self._complete = tenacity.retry(
            retry=tenacity.retry_if_exception_type(_LostError),
            stop=tenacity.stop_after_attempt(attempts),
            wait=tenacity.wait_exponential(pause / 2) + tenacity.wait_random_exponential(pause / 2),
            reraise=True,
        )(self._complete_once)
        self._calls: set[asyncio.Task[Completion]] = set()
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
                raise InputError(f"{self._url} is not the address of a server: {error}") from error
            self._clients.put_nowait(client)
        with contextlib.ExitStack() as stack:
            self._portal = stack.enter_context(anyio.from_thread.start_blocking_portal())
            stack.callback(self._portal.call, self._end)
            self.max_model_len: int = self._portal.call(self._find_model) or max_model_len
            named = model if tokenizer is None else tokenizer
            self.tokenizer: Tokenizer = (
                HubTokenizer.from_pretrained(named, chat_kwargs, think_end)
                if isinstance(named, str)
                else named
            )
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
        """The model's context length, if the server tells."""
        try:
            lengths = read_models(await self._send("GET", "/models"))
        except (_LostError, SchemaError) as error:
            problem = self._quoted(str(error))
            raise InputError(
                f"no OpenAI-compatible server at {self._url}: {problem}; start one, e.g. with "
                f"`vllm serve {self.model}`, or give its address"
            ) from error
        if self.model not in lengths:
            known = self._quoted(", ".join(lengths))
            raise InputError(f"{self._url} has no model {self.model}; it has: {known}")
        return lengths[self.model]

    async def _known_fields(self) -> Mapping[str, Any]:
        """The fields to send in addition to OpenAI's: some servers refuse fields that they do not know."""
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
        try:
            return await self._complete(request, fields)
        except _LostError as error:
            raise EngineError(
                f"{self._url} failed {self._attempts} times, the last time with: {error}; what was collected "
                "is kept: check the server, and start the same command again to resume"
            ) from error

    async def _complete_once(self, request: Request, fields: Mapping[str, Any]) -> Completion:
        body = {
            "model": self.model,
            "prompt": request.prompt,
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "top_p": request.top_p,
            "seed": request.seed,
            **({"stop": request.stop} if request.stop else {}),
            **({"logprobs": TOP if request.top_logprobs else 1} if request.logprobs else {}),
            **fields,
            # A server that does not know them refuses the request, rather than sample from other tokens.
            **({"top_k": request.top_k} if request.top_k else {}),
            **({"min_p": request.min_p} if request.min_p else {}),
        }
        content = await self._send("POST", "/completions", body)
        try:
            return read_completion(request, content, self.tokenizer)
        except SchemaError as error:
            shown = self._quoted(content.decode(errors="replace"))
            problem = self._quoted(str(error))
            raise _LostError(f"its reply is not a completion ({problem}): {shown}") from error

    async def _send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> bytes:
        client = await self._clients.get()
        try:
            # httpx limits each read: a server that sends a byte now and then would never be given up.
            async with (
                asyncio.timeout(self._timeout),
                client.stream(method, path, json=body) as response,
            ):
                content = bytearray()
                async for part in response.aiter_bytes():
                    content += part
                    if len(content) > MAX_REPLY:
                        raise _LostError(f"its reply has more than {MAX_REPLY} bytes")
        except TimeoutError as error:
            raise _LostError(f"there was no whole reply within {self._timeout:g} s") from error
        except self._lost as error:
            raise _LostError(self._quoted(f"{type(error).__name__} {error}".strip())) from error
        finally:
            self._clients.put_nowait(client)
        if response.is_success:
            return bytes(content)
        problem = f"HTTP {response.status_code}: {self._quoted(read_problem(bytes(content)))}"
        if response.status_code in _RETRIED or response.is_server_error:
            raise _LostError(problem)
        remedy = _REMEDIES.get(response.status_code, "")
        raise _RefusedError(f"{self._url}{path} refuses a request: {problem}{remedy}")

    def _quoted(self, text: str) -> str:
        """The beginning of what a server says, without the key, which it may repeat."""
        return quoted(hidden(text, self._key))


# --- reading replies ----------------------------------------------------------------------------------------


def read_models(content: bytes) -> dict[str, int | None]:
    """Reads the list of a server's models.

    Args:
        content: the reply.

    Returns:
        The context length of each model, None if the server does not tell.

    Raises:
        SchemaError: it is not a list of models.
    """
    listed = parse_as(_ModelList, content, closed=False)
    for model in listed.data:
        if model.max_model_len is not None and model.max_model_len < 1:
            raise SchemaError(f"max_model_len: it is {model.max_model_len}, which no model has")
    return {model.id: model.max_model_len for model in listed.data}


def read_completion(request: Request, content: bytes, tokenizer: Tokenizer) -> Completion:
    """Reads a completion.

    Args:
        request: what was asked for.
        content: the reply.
        tokenizer: encodes a text that came without tokens.

    Returns:
        The completion.

    Raises:
        SchemaError: it is not a completion of the request.
    """
    reply = parse_as(_Reply, content, closed=False)
    (choice,) = reply.choices
    text, finish = _with_stop(request, choice), choice.finish_reason
    if choice.token_ids is None:
        tokens, text, finish = _encoded(request, text, finish, tokenizer)
    else:
        tokens = _checked(request, choice.token_ids, finish)
        # The server's text ends at the stop string, and ours has the marks of thinking.
        text = text if request.stop else _decoded(tokens, tokenizer)
    told = _probabilities(request, choice.logprobs) if choice.logprobs else {}
    details = reply.usage and reply.usage.prompt_tokens_details
    cached = details.cached_tokens or 0 if details else 0
    if not 0 <= cached <= len(request.prompt):
        raise SchemaError(f"cached_tokens: it is not in 0 … {len(request.prompt)}, the tokens of the prompt")
    return Completion(
        tokens=tokens,
        text=text,
        finish=finish,
        cached=cached,
        **told,
    )


def _probabilities(request: Request, said: _Logprobs) -> dict[str, tuple[float, ...]]:
    """The log-probabilities of tokens, and what becomes of those of the most likely ones, if told."""
    told: dict[str, tuple[float, ...]] = {}
    if said.token_logprobs:
        told["logprobs"] = tuple(said.token_logprobs)
    places = said.top_logprobs or []
    # By their texts alone, one of two tokens with the same text would be missing.
    by_id = all(name.startswith("token_id:") for place in places for name in place)
    top = [sorted(place.values(), reverse=True)[:TOP] for place in places]
    if request.top_logprobs and top and by_id and all(len(place) == TOP for place in top):
        told["confidences"], told["entropies"] = reduce_top(np.array(top))
    if not all(math.isfinite(x) and x <= 0 for x in told.get("logprobs", ())):
        raise SchemaError("token_logprobs: one is not a log-probability")
    if not all(math.isfinite(x) for values in told.values() for x in values):
        raise SchemaError("top_logprobs: one is not finite")
    return told if request.logprobs else {}


def _encoded(request: Request, text: str, finish: Finish, tokenizer: Tokenizer) -> tuple[Tokens, str, Finish]:
    """Tokens for a text that came without."""
    tokens = tokenizer.encode(text)
    if finish is Finish.stop:
        return tokens, text, finish
    tokens = tokens[: request.max_tokens]
    # A text without tokens would be requested again and again.
    return tokens, tokenizer.decode(tokens), Finish.length if tokens else Finish.stop


def _checked(request: Request, tokens: Tokens, finish: Finish) -> Tokens:
    """The tokens of a reply, unless there are too many or too few, or they cannot be tokens."""
    most = request.max_tokens
    if finish is Finish.length and len(tokens) != most:
        raise SchemaError(f"token_ids: {len(tokens)} tokens reach a length of {most}")
    if not 1 <= len(tokens) <= most:
        raise SchemaError(f"token_ids: {len(tokens)} tokens where 1 to {most} were asked for")
    if not all(0 <= token <= MAX_TOKEN for token in tokens):
        raise SchemaError(f"token_ids: a token is not in 0 … {MAX_TOKEN}")
    return tokens


def _decoded(tokens: Tokens, tokenizer: Tokenizer) -> str:
    try:
        return tokenizer.decode(tokens)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise SchemaError(f"token_ids: one is none of the tokenizer's ({error})") from error


def _with_stop(request: Request, choice: _Choice) -> str:
    """The text with the stop string that ended it, which many servers cut off.

    A server that does not tell why it stopped is assumed to have met the first stop string.
    """
    text = choice.text
    if choice.finish_reason is not Finish.stop or not request.stop or text.endswith(request.stop):
        return text
    reason = request.stop[0] if choice.stop_reason == "" else choice.stop_reason
    return text + str(reason) if reason in request.stop else text


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
