"""The text subset of OpenAI's Responses API, answered as chats are."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from autotts_jax.core.stepping import Decision
from autotts_jax.live.answering import Answer
from autotts_jax.live.chat import ALIVE, Chat, ChatTurn, Reply, TextPart, usage_of


class _Part(TextPart):
    kinds: ClassVar[tuple[str, ...]] = ("input_text", "output_text")
    annotations: Any = None
    logprobs: Any = None


class _Item(ChatTurn):
    type: Literal["message"] = "message"
    content: str | list[_Part]  # type: ignore[assignment]  # nobody changes it
    id: Any = None
    status: Any = None
    phase: Any = None

    @model_validator(mode="before")
    @classmethod
    def _message_alone(cls, given: Any) -> Any:
        kind = given.get("type", "message") if isinstance(given, dict) else "message"
        if kind != "message":
            raise ValueError(f"items of the type {kind!r:.40} are not supported, only messages")
        return given


class ResponsesChat(Chat):
    """A request for a response."""

    turns: ClassVar[str] = "input"
    limit: ClassVar[str] = "max_output_tokens"
    passed: ClassVar[bool] = False
    way_out: ClassVar[str] = "send the whole conversation as input. At /v1/chat/completions {}"

    messages: list[_Item] = Field(alias="input", min_length=1)  # type: ignore[assignment]  # nobody changes it
    max_completion_tokens: int | None = Field(None, alias="max_output_tokens", ge=0)
    instructions: str | None = None
    n: Literal[1] = 1
    response_format: None = None
    store: Literal[False] = False

    @field_validator("messages", mode="before")
    @classmethod
    def _turns(cls, given: Any) -> Any:
        return [{"role": "user", "content": given}] if isinstance(given, str) else given

    @property
    def system(self) -> str | None:
        """The instructions, and the text of the system messages that the input begins with."""
        return "\n\n".join(filter(None, [self.instructions, super().system])) or None


@dataclasses.dataclass(frozen=True)
class ResponsesReply(Reply):
    """A response, whole or in the events of a stream, without thinking."""

    _numbers: Iterator[int] = dataclasses.field(default_factory=itertools.count)

    def whole(self, answer: Answer) -> dict[str, Any]:
        """Makes the response that is not streamed."""
        used, text, status = usage_of(answer), *self._end(answer)
        usage = {
            "input_tokens": used["prompt_tokens"],
            "input_tokens_details": {**used["prompt_tokens_details"], "cache_write_tokens": 0},
            "output_tokens": used["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},  # they are not counted apart
            "total_tokens": used["total_tokens"],
        }
        return {
            **self._response(status, [self._message(status, [_part(text)])]),
            "usage": usage,
            "autotts": self._account(answer),
        }

    def begin(self) -> str:
        """Makes the first events of a stream."""
        return (
            ALIVE
            + self._event("created", response=self._response("in_progress", []))
            + self._event("output_item.added", output_index=0, item=self._message("in_progress", []))
            + self._event("content_part.added", **self._place, part=_part(""))
        )

    def more(self, deltas: Iterable[tuple[str, str]]) -> str:
        """Tells a further part of the text."""
        said = "".join(text for name, text in deltas if name == "content")
        return self._event("output_text.delta", **self._place, delta=said, logprobs=[]) if said else ""

    def progress(self, _decision: Decision) -> str:
        """Says that the stream is alive."""
        return ALIVE

    def end(self, answer: Answer, told: bool = False) -> str:
        """Makes the events from the answer on."""
        text, status = self._end(answer)
        return (
            ("" if told else self.more([("content", text)]))
            + self._event("output_text.done", **self._place, text=text, logprobs=[])
            + self._event("content_part.done", **self._place, part=_part(text))
            + self._event("output_item.done", output_index=0, item=self._message(status, [_part(text)]))
            + self._event(status, response=self.whole(answer))
        )

    @property
    def _place(self) -> dict[str, Any]:
        return {"item_id": f"msg_{self.id}", "output_index": 0, "content_index": 0}

    def _end(self, answer: Answer) -> tuple[str, str]:
        status = "incomplete" if self._finish_reason(answer) == "length" else "completed"
        return self._said(answer)[0]["content"], status

    def _response(self, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": f"resp_{self.id}",
            "object": "response",
            "created_at": self.created,
            "model": self.model,
            "status": status,
            "output": output,
            "error": None,
            "incomplete_details": {"reason": ResponsesChat.limit} if status == "incomplete" else None,
            "parallel_tool_calls": False,
            "tools": [],
            "tool_choice": "none",
            "store": False,
        }

    def _message(self, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
        kind = {"id": f"msg_{self.id}", "type": "message", "role": "assistant"}
        return {**kind, "status": status, "content": content}

    def _event(self, kind: str, **data: Any) -> str:
        name = f"response.{kind}"
        told = {"type": name, "sequence_number": next(self._numbers), **data}
        return f"event: {name}\ndata: {json.dumps(told)}\n\n"


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
