"""OpenAI's chat format: what a client may ask, and how it is replied to."""

from __future__ import annotations

import dataclasses
import json
import time
import uuid
from typing import Any, Literal

from autotts_jax.collect.engine import ChatMessage, Finish
from autotts_jax.collect.thinking import TAGS, Thinking
from autotts_jax.core.stepping import Decision
from autotts_jax.errors import InputError
from autotts_jax.live.answering import Answer
from autotts_jax.live.settings import ReplyForm
from autotts_jax.parsing import parse_json
from autotts_jax.terminal import quoted

try:
    from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
except ImportError as error:
    raise InputError("serving needs pydantic: pip install 'autotts-jax[serve]'") from error

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "stop": ([], ""),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "logit_bias": ({},),
}
"""Values of parameters that ask for nothing."""

IGNORED = (
    "metadata",
    "parallel_tool_calls",
    "prompt_cache_key",
    "safety_identifier",
    "service_tier",
    "stop",
    "store",
    "user",
)
"""Parameters that have no effect, but for ``stop`` on a plain branch. A reply names those of its request."""

IGNORED_HEADER = "x-autotts-ignored"
"""The header of a reply that names the parameters without effect."""

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
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[_Part]
    name: str | None = None
    reasoning_content: str | None = None
    """Of an earlier reply, which clients send back as they got it; a model does not see it again."""

    @model_validator(mode="before")
    @classmethod
    def _without_nothing(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        return {name: value for name, value in given.items() if value is not None and value != []}

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class _StreamOptions(_Strict):
    include_usage: bool = False
    include_obfuscation: bool = False


class _Extension(_Strict):
    """What no other server has, in the field ``autotts``."""

    reply: ReplyForm | None = None
    budget: int | None = Field(default=None, ge=0)
    decisions: bool = False


class Chat(_Strict):
    """A request for a reply to a conversation."""

    model: str
    messages: list[_Message] = Field(min_length=1)
    stream: bool = False
    stream_options: _StreamOptions = _StreamOptions()
    max_tokens: int | None = Field(None, ge=0)
    max_completion_tokens: int | None = Field(None, ge=0)
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = Field(None, ge=-_LARGEST_SEED, le=_LARGEST_SEED)
    stop: str | list[str] = []
    autotts: _Extension = _Extension()
    top_k: int | None = Field(None, ge=-1)
    min_p: float | None = Field(None, ge=0, le=1)
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
            parse_json(body)
        except ValueError as error:
            raise RequestError(400, f"the body is not JSON: {quoted(error)}") from None
        try:
            chat = cls.model_validate_json(body)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            if first["type"] == "extra_forbidden":
                raise RequestError(400, f"{place} is not supported", "unsupported_parameter") from None
            raise RequestError(400, f"{place}: {first['msg']}" if place else first["msg"]) from None
        last = chat.messages[-1]
        if last.role != "user" or not last.text.strip():
            raise RequestError(400, "the last of messages has to be a user message with a text")
        return chat

    @property
    def system(self) -> str | None:
        """The text of the system messages that the conversation begins with, None where there is none."""
        return "\n\n".join(message.text for message in self.messages[: self._begin]) or None

    @property
    def question(self) -> str | tuple[ChatMessage, ...]:
        """The user's message, or the conversation that ends with it, without what is `system`."""
        turns = self.messages[self._begin :]
        if len(turns) == 1:
            return turns[0].text
        # Few chat templates know developers, and those that do treat them as the system.
        return tuple(
            ChatMessage("system" if turn.role == "developer" else turn.role, turn.text) for turn in turns
        )

    @property
    def greedy(self) -> bool:
        """Whether it asks for the most likely tokens, by which all branches would be equal."""
        return self.temperature == 0

    @property
    def stops(self) -> tuple[str, ...]:
        """The strings before which a text ends."""
        return tuple(filter(None, [self.stop] if isinstance(self.stop, str) else self.stop))

    def ignored(self, several: bool, plain: bool) -> tuple[str, ...]:
        """Names the parameters that it has without effect.

        Args:
            several: whether several branches can be opened.
            plain: whether the reply is a branch as the model writes it.
        """
        heeded = {"stop"} if plain else set()
        ignored = [name for name in IGNORED if name in self.model_fields_set - heeded]
        return tuple(sorted(ignored + ["temperature"] * (self.greedy and several)))

    @property
    def _begin(self) -> int:
        """The number of system messages that the conversation begins with."""
        instructs = [message.role in ("system", "developer") for message in self.messages]
        return instructs.index(False)


@dataclasses.dataclass(frozen=True)
class Reply:
    """A reply, whole or in the parts of a stream.

    Attributes:
        model: what answers.
        form: what the reply says.
        decisions: whether it tells the decisions.
        ignored: parameters of the request that have no effect.
        plain: whether it is a single branch as it is, and not one that was chosen for its answer.
        stops: where the text of a plain branch ends.
        thinking: how the thinking that is put apart is marked.
        id: of the reply.
        created: time in seconds.
    """

    model: str
    form: ReplyForm
    decisions: bool = False
    ignored: tuple[str, ...] = ()
    plain: bool = False
    stops: tuple[str, ...] = ()
    thinking: Thinking = TAGS
    id: str = dataclasses.field(default_factory=lambda: f"chatcmpl-{uuid.uuid4().hex}")
    created: int = dataclasses.field(default_factory=lambda: int(time.time()))

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the reply."""
        return {IGNORED_HEADER: ", ".join(self.ignored)} if self.ignored else {}

    def whole(self, answer: Answer) -> dict[str, Any]:
        """Makes the reply that is not streamed.

        Args:
            answer: the answer.
        """
        message = {"role": "assistant", "refusal": None, **self._said(answer)}
        finish = self._finish_reason(answer)
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        return {
            **self._envelope("chat.completion"),
            "choices": [choice],
            "usage": _usage(answer),
            "autotts": self._account(answer),
        }

    def begin(self) -> str:
        """Makes the first part of a stream."""
        return event(self._chunk({"role": "assistant", "content": ""}))

    def progress(self, decision: Decision) -> str:
        """Reports a decision as a line of reasoning: ``advance 0, 2: 12, ERR (1,500 tokens)``.

        Where decisions are told, the chunk has it as ``autotts.decision`` too.

        Args:
            decision: the decision.
        """
        branches = ", ".join(map(str, decision.branches))
        answers = ", ".join("-" if answer is None else answer for answer in decision.answers)
        line = f"{decision.action} {branches}: {answers} ({decision.tokens:,} tokens)\n"
        told = {"autotts": {"decision": dataclasses.asdict(decision)}} if self.decisions else {}
        return event({**self._chunk({"reasoning_content": line}), **told})

    def end(self, answer: Answer, usage: bool) -> str:
        """Makes the parts of a stream from the answer on.

        Args:
            answer: the answer.
            usage: whether the client asked for the usage.
        """
        said = "".join(event(self._chunk({name: text})) for name, text in self._said(answer).items())
        ended = {**self._chunk({}, self._finish_reason(answer)), "autotts": self._account(answer)}
        used = {**self._envelope("chat.completion.chunk"), "choices": [], "usage": _usage(answer)}
        return said + event(ended) + (event(used) if usage else "") + DONE

    def _chunk(self, delta: dict[str, str], finish_reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return {**self._envelope("chat.completion.chunk"), "choices": [choice]}

    def _said(self, answer: Answer) -> dict[str, str]:
        """The content, and the thinking before it where there is any."""
        if self.form == "answer" and answer.answer is not None:
            return {"content": answer.answer}
        text = answer.texts[0] if self.plain else answer.text
        thought, said = self.thinking.split(text)
        content = _cut(said, self.stops)
        return {"reasoning_content": thought, "content": content} if thought else {"content": content}

    def _finish_reason(self, answer: Answer) -> str:
        """Whether tokens were lacking: of the budget, or for the end of a plain branch."""
        if answer.limited or (self.plain and answer.ends[0] is Finish.length):
            return "length"
        return "stop"

    def _account(self, answer: Answer) -> dict[str, Any]:
        """What the controller was charged, and why it ended."""
        decisions = [dataclasses.asdict(decision) for decision in answer.decisions]
        return {
            "answer": answer.answer,
            "votes": [dataclasses.asdict(votes) for votes in answer.votes],
            "confidence": round(answer.confidence, 6),
            "tokens": answer.tokens,
            "sequential_tokens": answer.sequential_tokens,
            "branches": len(answer.texts),
            "probes": answer.usage.probes,
            "rounds": answer.rounds,
            "stop_reason": answer.stop_reason.name.lower(),
            "ignored": list(self.ignored),
            **({"decisions": decisions} if self.decisions else {}),
        }

    def _envelope(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


def event(data: dict[str, Any]) -> str:
    """Encodes a server-sent event.

    Args:
        data: its content.
    """
    return f"data: {json.dumps(data)}\n\n"


def _cut(text: str, stops: tuple[str, ...]) -> str:
    """The text up to the first stop string in it."""
    return text[: min((text.index(stop) for stop in stops if stop in text), default=len(text))]


def _usage(answer: Answer) -> dict[str, Any]:
    """What the engine read and wrote, forced answers included."""
    prompted, written = answer.usage.prompted, answer.usage.generated + answer.usage.forced
    return {
        "prompt_tokens": prompted,
        "completion_tokens": written,
        "total_tokens": prompted + written,
        "prompt_tokens_details": {"cached_tokens": answer.usage.cached},
    }
