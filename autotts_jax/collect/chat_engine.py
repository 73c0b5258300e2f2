"""An engine behind HTTP that needs chat completions alone, and so writes whole branches."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import json
from collections.abc import Sequence
from typing import Any

from autotts_jax.collect.engine import (
    ChatMessage,
    Completion,
    EngineError,
    Finish,
    RefusedError,
    Request,
    Tokens,
)
from autotts_jax.collect.http_engine import HttpEngine
from autotts_jax.collect.schema import SchemaError, parse_as
from autotts_jax.collect.thinking import TAGS, Thinking
from autotts_jax.collect.upstream import START_ATTEMPTS, LostError
from autotts_jax.parsing import parse_json

LETTERS = 4
"""Letters that a token is taken to have, where a server does not count tokens."""


@dataclasses.dataclass(frozen=True)
class _Message:
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


@dataclasses.dataclass(frozen=True)
class _Choice:
    message: _Message
    finish_reason: str | None = None


@dataclasses.dataclass(frozen=True)
class _Usage:
    completion_tokens: int | None = None


@dataclasses.dataclass(frozen=True)
class _Reply:
    choices: tuple[_Choice]
    usage: _Usage | None = None


class PieceTokenizer:
    """Takes pieces of a text for its tokens, as nobody knows those of a model that only chats."""

    thinking: Thinking | None = TAGS
    end: int | None = None
    vocab_size = 2**31 - 1

    def chat(self, messages: Sequence[ChatMessage]) -> Tokens:
        return self.encode(json.dumps([dataclasses.asdict(message) for message in messages]))

    def encode(self, text: str) -> Tokens:
        return self.cut(text, -(-len(text) // LETTERS))

    def decode(self, tokens: Sequence[int]) -> str:
        return b"".join(token.to_bytes(-(-token.bit_length() // 8))[1:] for token in tokens).decode()

    def cut(self, text: str, count: int) -> Tokens:
        """Cuts a text into pieces.

        Args:
            text: the text.
            count: the number of pieces, about as long as each other.

        Returns:
            A token for each, which holds its letters.
        """
        ends = [len(text) * i // count for i in range(count + 1)] if count else []
        pieces = (text[start:end] for start, end in itertools.pairwise(ends))
        return tuple(int.from_bytes(b"\x01" + piece.encode()) for piece in pieces)


class ChatEngine(HttpEngine):
    """A model behind chat completions, with one call for each branch.

    It continues no text, so branches can neither be stopped nor probed on the way. How long a branch is, the
    server's count of its tokens tells, thinking that the reply does not show included.

    Args:
        base_url: the server, e.g. ``http://127.0.0.1:11434/v1``.
        model: the name under which the server serves the model.
        api_key: the server's API key, if it needs one.
        timeout: as of `ServerEngine`.
        max_connections: as of `ServerEngine`.
        max_model_len: as of `ServerEngine`.
        attempts: as of `ServerEngine`.
        pause: as of `ServerEngine`.

    Raises:
        InputError: there is no such server or model, the key cannot be sent, an argument is out of range, or
            a package is missing.
        EngineError: the server fails, needs another key, or does not accept a request.
    """

    whole_branches = True

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str | None = None,
        timeout: float = 600.0,
        max_connections: int = 256,
        max_model_len: int | None = None,
        attempts: int = 7,
        pause: float = 1.0,
    ):
        self.tokenizer = PieceTokenizer()
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
            first = functools.partial(self._complete, Request(self.tokenizer.encode("1"), max_tokens=1))
            try:
                self.upstream.run(functools.partial(self.upstream.repeat, first, START_ATTEMPTS))
            except RefusedError as error:
                raise EngineError(str(error)) from error
            stack.pop_all()

    async def _complete(self, request: Request) -> Completion:
        body = {
            "model": self.model,
            "messages": _messages(self.tokenizer.decode(request.prompt)),
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "top_p": request.top_p,
            "seed": request.seed,
            **({"top_k": request.top_k} if request.top_k else {}),
            **({"min_p": request.min_p} if request.min_p else {}),
        }
        content = await self.upstream.send("POST", "/v1/chat/completions", body)
        try:
            reply = parse_as(_Reply, content, closed=False)
        except SchemaError as error:
            shown = self.upstream.quoted(content.decode(errors="replace"))
            problem = self.upstream.quoted(str(error))
            raise LostError(f"its reply is not a chat completion ({problem}): {shown}") from error
        (choice,) = reply.choices
        text = _text(choice.message)
        told = reply.usage.completion_tokens if reply.usage else None
        count = -(-len(text) // LETTERS) if told is None else told
        tokens = self.tokenizer.cut(text, min(max(count, 1), request.max_tokens))
        finish = Finish.length if choice.finish_reason == "length" else Finish.stop
        return Completion(tokens, text, finish)


def _messages(prompt: str) -> list[Any]:
    """The conversation that a prompt stands for; a text that is none is the user's."""
    try:
        messages = parse_json(prompt)
    except ValueError:
        messages = None
    return messages if isinstance(messages, list) else [{"role": "user", "content": prompt}]


def _text(message: _Message) -> str:
    """What a model wrote, with the marks of the thinking that the server has put apart."""
    thought, said = message.reasoning_content or message.reasoning, message.content or ""
    return f"{TAGS.start}\n{thought}{TAGS.close}{said}" if thought else said
