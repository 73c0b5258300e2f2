"""OpenAI's chat format: what a client may ask, and how it is replied to."""

from __future__ import annotations

import dataclasses
import json
import time
import uuid
from collections.abc import Iterable
from typing import Any, ClassVar, Literal, Self

from autotts_jax.collect.engine import ChatMessage, Finish
from autotts_jax.collect.thinking import TAGS, Thinking
from autotts_jax.collect.trajectories import cut
from autotts_jax.core.stepping import Decision
from autotts_jax.errors import InputError
from autotts_jax.live.answering import Answer
from autotts_jax.live.settings import ReplyForm
from autotts_jax.live.structured import JsonForm, read_form
from autotts_jax.parsing import parse_json
from autotts_jax.terminal import quoted

try:
    from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
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
    "echo": (False,),
    "background": (False,),
    "include": ([], ["reasoning.encrypted_content"]),
    "reasoning": ({}, {"effort": None}),
    "text": ({}, {"format": None}, {"format": {"type": "text"}}),
    "truncation": ("disabled",),
    "suffix": ("",),
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

ALIVE = ": alive\n\n"
"""A comment in a stream, so that nothing between the server and its client takes them for silent."""

NO_ANSWER = "no answer was found that the schema allows"

MOST_PARTS = 2048
"""Messages and parts of messages at most: while they are checked, the server answers nobody."""

MOST_CHOICES = 128
"""Choices that a client can ask for, as in OpenAI's API."""

_LARGEST_SEED = 2**63 - 1


class RequestError(Exception):
    """What a client is told instead of an answer.

    Attributes:
        status: HTTP status.
        body: the error as OpenAI's clients read it.
        headers: of the reply.
    """

    def __init__(
        self,
        status: int,
        message: str,
        code: str | None = None,
        headers: dict[str, str] | None = None,
        param: str | None = None,
    ):
        super().__init__(message)
        kinds = {429: "rate_limit_error"}
        kind = kinds.get(status, "server_error" if status >= 500 else "invalid_request_error")
        self.status = status
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": code}}
        self.headers = headers


def read_object(body: bytes) -> dict[str, Any]:
    """Reads the body of a request.

    Returns:
        The JSON object that it consists of.

    Raises:
        RequestError: it is none.
    """
    try:
        given = parse_json(body)
    except ValueError as error:
        raise RequestError(400, f"the body is not JSON: {quoted(error)}") from None
    if not isinstance(given, dict):
        raise RequestError(400, "the body is not a JSON object")
    return given


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class TextPart(_Strict):
    """A part of a message."""

    kinds: ClassVar[tuple[str, ...]] = ("text",)
    type: str
    text: str

    @model_validator(mode="before")
    @classmethod
    def _text_alone(cls, given: Any) -> Any:
        kind = given.get("type") if isinstance(given, dict) else None
        if isinstance(kind, str) and kind not in cls.kinds:
            raise ValueError(f"parts of the type {kind!r:.40} are not supported, only {', '.join(cls.kinds)}")
        return given


class ChatTurn(_Strict):
    """A turn of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]
    name: str | None = None
    reasoning_content: str | None = None
    """Of an earlier reply, which clients send back as they got it; a model does not see it again."""

    @model_validator(mode="before")
    @classmethod
    def _without_nothing(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        if given.get("tool_calls") or given.get("role") in ("tool", "function"):
            raise ValueError("turns of tools are not supported")
        return {name: value for name, value in given.items() if value is not None and value != []}

    @property
    def text(self) -> str:
        """What it says."""
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class StreamOptions(_Strict):
    """What a stream tells besides."""

    include_usage: bool = False
    include_obfuscation: bool = False


class _Extension(_Strict):
    """What no other server has, in the field ``autotts``."""

    reply: ReplyForm | None = None
    budget: int | None = Field(default=None, ge=0)
    decisions: bool = False
    field: str | None = None
    """The field of `Chat.response_format` that is voted on."""


class Asked(_Strict):
    """A request, without what asks for nothing."""

    model: str
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = Field(None, ge=-1)
    min_p: float | None = Field(None, ge=0, le=1)
    seed: int | None = None
    stop: str | list[str] = []
    user: Any = None

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
    def read(cls, body: bytes, way_out: str) -> Self:
        """Reads the body of a request.

        Raises:
            RequestError: it is not JSON, or asks for something that is not supported.
        """
        read_object(body)
        try:
            return cls.model_validate_json(body)
        except ValidationError as error:
            raise _refusal(error, way_out) from None

    @property
    def sampled(self) -> dict[str, Any]:
        """What it says of how tokens are drawn, by the names of `Sampling`."""
        wanted = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": None if self.top_k is None else max(self.top_k, 0),  # -1 is all tokens, too
            "min_p": self.min_p,
            "seed": self.seed,
        }
        return {name: value for name, value in wanted.items() if value is not None}

    @property
    def stops(self) -> tuple[str, ...]:
        """The strings before which a text ends."""
        return tuple(filter(None, [self.stop] if isinstance(self.stop, str) else self.stop))


def _refusal(error: ValidationError, way_out: str) -> RequestError:
    """What a client is told of a request that is none."""
    errors = error.errors()
    first = next((found for found in errors if found["type"] == "value_error"), errors[0])
    # Of several forms that a field may have, the names of the forms say nothing to a client.
    names = [str(name) for name in first["loc"] if name != "str" and not str(name).startswith("list[")]
    place, problem = ".".join(names), first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        message = f"{place} is not supported" + ("" if names[0] == "autotts" else f"; {way_out}")
        return RequestError(400, message, "unsupported_parameter", param=place)
    if first["type"] == "value_error":
        problem += f"; {way_out}"
    return RequestError(400, f"{place}: {problem}" if place else problem, param=place or None)


class Chat(Asked):
    """A request for a reply to a conversation."""

    turns: ClassVar[str] = "messages"
    limit: ClassVar[str] = "max_tokens"
    """What its clients call the conversation, and the limit of tokens."""

    passed: ClassVar[bool] = True
    """Whether the server behind the engine takes it, too."""
    way_out: ClassVar[str] = "{}"
    """What takes what a controller does not; the braces stand for the model alone."""

    messages: list[ChatTurn] = Field(min_length=1)
    max_tokens: int | None = Field(None, ge=0)
    max_completion_tokens: int | None = Field(None, ge=0)
    seed: int | None = Field(None, ge=-_LARGEST_SEED, le=_LARGEST_SEED)
    autotts: _Extension = _Extension()
    n: int = Field(1, ge=1, le=MOST_CHOICES)
    response_format: dict[str, Any] | None = None
    metadata: Any = None
    store: Any = None
    service_tier: Any = None
    safety_identifier: Any = None
    prompt_cache_key: Any = None
    parallel_tool_calls: Any = None

    @field_validator("messages", mode="before")
    @classmethod
    def _few(cls, given: Any) -> Any:
        if isinstance(given, list):
            parts = [message.get("content") for message in given if isinstance(message, dict)]
            if len(given) + sum(len(part) for part in parts if isinstance(part, list)) > MOST_PARTS:
                raise ValueError(f"it has more than {MOST_PARTS} messages and parts of them")
        return given

    @classmethod
    def read(cls, body: bytes, way_out: str) -> Self:
        """Reads the body of a request, as of `Asked`, for a reply to a user."""
        chat = super().read(body, way_out)
        last = chat.messages[-1]
        if last.role != "user" or not last.text.strip():
            message = f"the last of {cls.turns} has to be a user message with a text"
            raise RequestError(400, message, param=cls.turns)
        return chat

    def form(self, way_out: str) -> JsonForm | None:
        """The JSON that the reply consists of, None where it is text.

        Raises:
            RequestError: no answer of a controller can have the form.
        """
        if self.response_format is None:
            return None
        try:
            return read_form(self.response_format, self.autotts.field)
        except InputError as error:
            message = f"response_format: {error}; {way_out}"
            raise RequestError(400, message, "unsupported_parameter", param="response_format") from None

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

    def ignored(self, several: bool, plain: bool) -> tuple[str, ...]:
        """Names the parameters that it has without effect."""
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
        json: the JSON that it consists of, None for text.
        choices: how many it has, each with another answer.
        usage: whether a stream ends with the usage.
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
    json: JsonForm | None = None
    choices: int = 1
    usage: bool = False
    thinking: Thinking = TAGS
    id: str = dataclasses.field(default_factory=lambda: uuid.uuid4().hex)
    created: int = dataclasses.field(default_factory=lambda: int(time.time()))

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the reply."""
        return {IGNORED_HEADER: ", ".join(self.ignored)} if self.ignored else {}

    def whole(self, answer: Answer) -> dict[str, Any]:
        """Makes the reply that is not streamed."""
        finish = self._finish_reason(answer)
        messages = [
            {"role": "assistant", "content": None, "refusal": None, **said} for said in self._said(answer)
        ]
        return {
            **self._envelope("chat.completion"),
            "choices": [
                {"index": index, "message": message, "logprobs": None, "finish_reason": finish}
                for index, message in enumerate(messages)
            ],
            "usage": usage_of(answer),
            "autotts": self._account(answer),
        }

    def begin(self) -> str:
        """Makes the first part of a stream, which goes out before anything is known."""
        return ALIVE + event(self._chunk({"role": "assistant", "content": ""}))

    def speech(self, begun: bool) -> Speech:
        """Makes what tells the text of a plain branch while it is written."""
        return Speech(self.thinking, self.stops, begun)

    def more(self, deltas: Iterable[tuple[str, str]]) -> str:
        """Tells a further part of the text."""
        return "".join(event(self._chunk({name: text})) for name, text in deltas)

    def progress(self, decision: Decision) -> str:
        """Reports a decision as a line of reasoning: ``advance 0, 2: 12, ERR (1,500 tokens)``.

        Where decisions are told, the chunk has it as ``autotts.decision`` too.
        """
        told = {"autotts": {"decision": dataclasses.asdict(decision)}} if self.decisions else {}
        if self.plain:  # whose text is told as it comes
            return event({**self._chunk({}), **told}) if told else ""
        branches = ", ".join(map(str, decision.branches))
        answers = ", ".join("-" if answer is None else answer for answer in decision.answers)
        line = f"{decision.action} {branches}: {answers} ({decision.tokens:,} tokens)\n"
        return event({**self._chunk({"reasoning_content": line}), **told})

    def end(self, answer: Answer, told: bool = False) -> str:
        """Makes the parts of a stream from the answer on."""
        said = [
            event(self._chunk({name: text}, index=index))
            for index, deltas in enumerate([] if told else self._said(answer))
            for name, text in deltas.items()
        ]
        finish = self._finish_reason(answer)
        ended = [self._chunk({}, finish, index) for index in range(len(self._said(answer)))]
        ended[-1] |= {"autotts": self._account(answer)}
        used = {**self._envelope("chat.completion.chunk"), "choices": [], "usage": usage_of(answer)}
        return "".join([*said, *map(event, ended), event(used) if self.usage else "", DONE])

    def _chunk(
        self, delta: dict[str, str], finish_reason: str | None = None, index: int = 0
    ) -> dict[str, Any]:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        chunk = {**self._envelope("chat.completion.chunk"), "choices": [choice]}
        return {**chunk, "usage": None} if self.usage else chunk

    def _said(self, answer: Answer) -> list[dict[str, str]]:
        """What each choice says: the content, and the thinking before it where there is any."""
        if self.plain and self.form == "branch":
            return [self._told(answer.answer, answer.texts[0])]
        others = [(found.answer, found.text) for found in answer.found if found.answer != answer.answer]
        return [
            self._told(found, text) for found, text in [(answer.answer, answer.text), *others][: self.choices]
        ]

    def _told(self, answer: str | None, text: str) -> dict[str, str]:
        if self.json is not None:
            content = self.json.write(answer, self.thinking.split(text)[1])
            return {"refusal": NO_ANSWER} if content is None else {"content": content}
        if self.form == "answer" and answer is not None:
            return {"content": answer}
        thought, said = self.thinking.split(text)
        content = cut(said, self.stops)
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
        return {"id": f"chatcmpl-{self.id}", "object": kind, "created": self.created, "model": self.model}


def event(data: dict[str, Any]) -> str:
    """Encodes a server-sent event."""
    return f"data: {json.dumps(data)}\n\n"


class Speech:
    """The text of a branch while it is written, its thinking apart from what is said.

    What may be the beginning of a mark or of a stop string is held back until more is known.
    """

    def __init__(self, thinking: Thinking, stops: tuple[str, ...], begun: bool):
        self._thinking = thinking
        self._stops = stops
        self._begun = begun
        self._text = ""
        self._told = {"reasoning_content": 0, "content": 0}

    def add(self, piece: str, last: bool = False) -> list[tuple[str, str]]:
        """Adds a piece of text.

        Returns:
            The fields, and what is added to each.
        """
        self._text += piece
        thought, said = self._thinking.split(self._text)
        if self._thinks() and self._thinking.end not in self._text and not last:
            begun = self._text.lstrip().removeprefix(self._thinking.start).lstrip()
            return self._further("reasoning_content", begun, self._thinking.close)
        told = self._further("reasoning_content", thought, "")
        held = "" if last else max(self._stops, key=len, default="")
        return told + self._further("content", cut(said, self._stops), held)

    def _thinks(self) -> bool:
        """Whether the text begins with thinking, or may once more of it is there."""
        text, mark = self._text.lstrip(), self._thinking.start
        return self._begun or text.startswith(mark) or mark.startswith(text)

    def _further(self, field: str, text: str, held: str) -> list[tuple[str, str]]:
        until = max(len(text) - max(len(held) - 1, 0), self._told[field])
        more, self._told[field] = text[self._told[field] : until], until
        return [(field, more)] if more else []


def usage_of(answer: Answer) -> dict[str, Any]:
    """Tells what the engine read and wrote, forced answers included."""
    prompted, written = answer.usage.prompted, answer.usage.generated + answer.usage.forced
    return {
        "prompt_tokens": prompted,
        "completion_tokens": written,
        "total_tokens": prompted + written,
        "prompt_tokens_details": {"cached_tokens": answer.usage.cached},
    }
