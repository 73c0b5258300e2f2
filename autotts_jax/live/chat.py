"""OpenAI's chat format: what a client may ask, and how it is replied to."""

from __future__ import annotations

import dataclasses
import json
import time
import uuid
from typing import Any, Literal

from autotts_jax.core.pool import StopReason
from autotts_jax.core.stepping import Decision
from autotts_jax.errors import InputError
from autotts_jax.live.answering import Answer

try:
    from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
except ImportError as error:
    raise InputError("serving needs pydantic: pip install 'autotts-jax[serve]'") from error

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "logprobs": (False,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "stop": ([],),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
}
"""Parameters that are not supported, and the values of them that ask for nothing."""

DONE = "data: [DONE]\n\n"
"""The end of a stream."""

_LARGEST_SEED = 2**63 - 1


class RequestError(Exception):
    """What a client is told instead of an answer.

    Attributes:
        status: HTTP status.
        body: the error as OpenAI's clients read it.
        headers: of the reply.
    """

    def __init__(
        self, status: int, message: str, code: str | None = None, headers: dict[str, str] | None = None
    ):
        super().__init__(message)
        kinds = {429: "rate_limit_error"}
        kind = kinds.get(status, "server_error" if status >= 500 else "invalid_request_error")
        self.status = status
        self.body = {"error": {"message": message, "type": kind, "param": None, "code": code}}
        self.headers = headers


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Part(_Strict):
    type: Literal["text"]
    text: str


class _Message(_Strict):
    role: str
    content: str | list[_Part]
    name: str | None = None

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class _StreamOptions(_Strict):
    include_usage: bool = False
    include_obfuscation: bool = False


class Chat(_Strict):
    """A request; what has no effect here is accepted and left unread."""

    model: str
    messages: list[_Message] = Field(min_length=1)
    stream: bool = False
    stream_options: _StreamOptions = _StreamOptions()
    max_tokens: int | None = Field(None, ge=0)
    max_completion_tokens: int | None = Field(None, ge=0)
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = Field(None, ge=-_LARGEST_SEED, le=_LARGEST_SEED)
    user: Any = None
    metadata: Any = None
    store: Any = None
    service_tier: Any = None
    safety_identifier: Any = None
    prompt_cache_key: Any = None
    parallel_tool_calls: Any = None

    @model_validator(mode="before")
    @classmethod
    def _without_neutral(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        return {
            name: value
            for name, value in given.items()
            if value is not None and value not in NEUTRAL.get(name, ())
        }

    @classmethod
    def read(cls, body: bytes) -> Chat:
        """Reads the body of a request.

        Args:
            body: the body, JSON.

        Raises:
            RequestError: it is not JSON, or asks for something that is not supported.
        """
        try:
            chat = cls.model_validate_json(body)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            if first["type"] == "extra_forbidden":
                raise RequestError(400, f"{place} is not supported", "unsupported_parameter") from None
            raise RequestError(400, f"{place}: {first['msg']}" if place else first["msg"]) from None
        *before, last = chat.messages
        if last.role != "user" or any(message.role not in ("system", "developer") for message in before):
            raise RequestError(
                400,
                "messages has to be one user message, with system messages before it or none; "
                "earlier turns of a conversation are not supported",
            )
        return chat

    @property
    def question(self) -> str:
        """The user's message."""
        return self.messages[-1].text

    @property
    def system(self) -> str | None:
        """The system's messages, None where there is none."""
        return "\n\n".join(message.text for message in self.messages[:-1]) or None


@dataclasses.dataclass(frozen=True)
class Reply:
    """A reply, whole or in the parts of a stream.

    Attributes:
        model: what answers.
        id: of the reply.
        created: time in seconds.
    """

    model: str
    id: str = dataclasses.field(default_factory=lambda: f"chatcmpl-{uuid.uuid4().hex}")
    created: int = dataclasses.field(default_factory=lambda: int(time.time()))

    def whole(self, answer: Answer) -> dict[str, Any]:
        """Makes the reply that is not streamed.

        Args:
            answer: the answer.
        """
        message = {"role": "assistant", "content": answer.answer or "", "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish_reason(answer)}
        return {
            **self._envelope("chat.completion"),
            "choices": [choice],
            "usage": _usage(answer),
            "autotts": _account(answer),
        }

    def begin(self) -> str:
        """Makes the first part of a stream."""
        return event(self._chunk({"role": "assistant", "content": ""}))

    def progress(self, decision: Decision) -> str:
        """Reports a decision as a line of reasoning: ``advance 0, 2: 12, ERR (1,500 tokens)``.

        Args:
            decision: the decision.
        """
        branches = ", ".join(map(str, decision.branches))
        answers = ", ".join("-" if answer is None else answer for answer in decision.answers)
        line = f"{decision.action} {branches}: {answers} ({decision.tokens:,} tokens)\n"
        return event(self._chunk({"reasoning_content": line}))

    def end(self, answer: Answer, usage: bool) -> str:
        """Makes the parts of a stream from the answer on.

        Args:
            answer: the answer.
            usage: whether the client asked for the usage.
        """
        said = self._chunk({"content": answer.answer or ""})
        ended = {**self._chunk({}, _finish_reason(answer)), "autotts": _account(answer)}
        used = {**self._envelope("chat.completion.chunk"), "choices": [], "usage": _usage(answer)}
        return event(said) + event(ended) + (event(used) if usage else "") + DONE

    def _chunk(self, delta: dict[str, str], finish_reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return {**self._envelope("chat.completion.chunk"), "choices": [choice]}

    def _envelope(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


def event(data: dict[str, Any]) -> str:
    """Encodes a server-sent event.

    Args:
        data: its content.
    """
    return f"data: {json.dumps(data)}\n\n"


def _finish_reason(answer: Answer) -> str:
    return "length" if answer.stop is StopReason.BUDGET else "stop"


def _usage(answer: Answer) -> dict[str, Any]:
    """What the engine read and wrote, forced answers included."""
    prompted, written = answer.usage.prompted, answer.usage.generated + answer.usage.forced
    return {
        "prompt_tokens": prompted,
        "completion_tokens": written,
        "total_tokens": prompted + written,
        "prompt_tokens_details": {"cached_tokens": answer.usage.cached},
    }


def _account(answer: Answer) -> dict[str, Any]:
    """What the controller was charged, and why it ended."""
    return {
        "tokens": answer.tokens,
        "sequential_tokens": answer.sequential_tokens,
        "branches": len(answer.texts),
        "probes": answer.usage.probes,
        "rounds": answer.rounds,
        "stop": answer.stop.name.lower(),
    }
