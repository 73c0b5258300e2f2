"""An engine behind HTTP: vLLM's server, or another whose ``/v1/completions`` takes tokens as a prompt."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from autotts_jax.collect.engine import (
    Completion,
    EngineError,
    Finish,
    RefusedError,
    Request,
    Tokenizer,
    Tokens,
)
from autotts_jax.collect.http_engine import HttpEngine
from autotts_jax.collect.schema import SchemaError, parse_as
from autotts_jax.collect.signals import TOP, reduce_top
from autotts_jax.collect.tokenizer import HubTokenizer
from autotts_jax.collect.upstream import START_ATTEMPTS, LostError
from autotts_jax.errors import InputError

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

# --- replies, as far as they are read


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


class ServerEngine(HttpEngine):
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
        max_model_len: tokens of a prompt and its completion together; None for what the server tells, or
            32,768 with a warning where it does not tell.
        attempts: how often a call is made until its loss is an error.
        pause: seconds to wait before the second attempt; doubles before each further one. The wait is a
            random time between half of it and all of it, but no shorter than the server asks for by
            ``Retry-After``; where it asks for more than a minute, that is an error at once.

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
        max_model_len: int | None = None,
        attempts: int = 7,
        pause: float = 1.0,
    ):
        if not (tokenizer is None or isinstance(tokenizer, str) or hasattr(tokenizer, "chat")):
            raise InputError(f"tokenizer is {tokenizer!r:.60}, but it must be a folder or a Hugging Face id")
        super().__init__(
            base_url,
            model,
            api_key,
            timeout=timeout,
            max_connections=max_connections,
            max_model_len=max_model_len,
            attempts=attempts,
            pause=pause,
        )
        with contextlib.ExitStack() as stack:
            stack.callback(self.close)
            named = model if tokenizer is None else tokenizer
            self.tokenizer: Tokenizer = (
                HubTokenizer.from_pretrained(named, chat_kwargs, think_end)
                if isinstance(named, str)
                else named
            )
            self._fields = self.upstream.run(self._known_fields)
            stack.pop_all()

    # --- in the event loop's thread ------------------------------------------------------------------

    async def _known_fields(self) -> Mapping[str, Any]:
        """The fields to send in addition to OpenAI's: some servers refuse fields that they do not know."""
        probe = Request(self.tokenizer.encode("1"), max_tokens=1)
        call = functools.partial(self._complete_with, probe)
        try:
            try:
                await self.upstream.repeat(functools.partial(call, VLLM_FIELDS), START_ATTEMPTS)
            except RefusedError:
                await self.upstream.repeat(functools.partial(call, {}), START_ATTEMPTS)
                return {}
        except RefusedError as error:
            raise EngineError(
                f"{error}; the engine server needs completions of token ids. --engine chat needs none: it "
                "has whole branches written by chat completions, for controllers that do not probe"
            ) from error
        return VLLM_FIELDS

    async def _complete(self, request: Request) -> Completion:
        return await self._complete_with(request, self._fields)

    async def _complete_with(self, request: Request, fields: Mapping[str, Any]) -> Completion:
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
        content = await self.upstream.send("POST", "/v1/completions", body)
        try:
            return read_completion(request, content, self.tokenizer)
        except SchemaError as error:
            shown = self.upstream.quoted(content.decode(errors="replace"))
            problem = self.upstream.quoted(str(error))
            raise LostError(f"its reply is not a completion ({problem}): {shown}") from error


# --- reading replies ----------------------------------------------------------------------------------------


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
