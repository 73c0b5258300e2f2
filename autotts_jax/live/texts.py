"""OpenAI's completions of a prompt, by a model in this process."""

from __future__ import annotations

import threading
import time
import uuid
from typing import Any

from pydantic import Field, field_validator

from autotts_jax.collect.engine import Engine, Request
from autotts_jax.collect.trajectories import MAX_SEED, Sampling, cut
from autotts_jax.live.chat import Asked, RequestError


class Text(Asked):
    """A request to continue a prompt."""

    prompt: str | list[int] = Field(min_length=1)
    max_tokens: int = Field(16, ge=1)
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)

    @field_validator("prompt", mode="before")
    @classmethod
    def _one_text(cls, given: Any) -> Any:
        """LangChain sends a list of texts, whatever their number."""
        return given[0] if isinstance(given, list) and len(given) == 1 and type(given[0]) is str else given


def complete(
    engine: Engine, asked: Text, sampling: Sampling, budget: int | None, cancel: threading.Event
) -> dict[str, Any]:
    """Continues a prompt as it is.

    Returns:
        The reply, which is the only part of a stream too.

    Raises:
        RequestError: the prompt does not fit into the model's context.
        Cancelled: ``cancel`` was set.
        EngineError: the engine failed.
    """
    prompt = engine.tokenizer.encode(asked.prompt) if isinstance(asked.prompt, str) else tuple(asked.prompt)
    if not prompt or not all(0 <= token < engine.tokenizer.vocab_size for token in prompt):
        raise RequestError(
            400, "prompt: it has no tokens, or some that are none of the model's", param="prompt"
        )
    most = min(asked.max_tokens, asked.max_tokens if budget is None else max(budget, 1))
    if len(prompt) + most > engine.max_model_len:
        message = (
            f"the prompt has {len(prompt)} tokens, which makes {len(prompt) + most} with max_tokens, and "
            f"{engine.model} takes {engine.max_model_len}"
        )
        raise RequestError(400, message, "context_length_exceeded", param="prompt")
    names = ("temperature", "top_p", "top_k", "min_p", "seed")
    drawn: dict[str, Any] = {name: getattr(sampling, name) for name in names} | asked.sampled
    drawn["seed"] &= MAX_SEED
    (written,) = engine.generate([Request(prompt, most, stop=asked.stops, **drawn)], cancel)
    count = len(written.tokens)
    text, finish = cut(written.text, asked.stops), written.finish.value
    return {
        "id": f"cmpl-{uuid.uuid4().hex}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": asked.model,
        "choices": [{"index": 0, "text": text, "logprobs": None, "finish_reason": finish}],
        "usage": {
            "prompt_tokens": len(prompt),
            "completion_tokens": count,
            "total_tokens": len(prompt) + count,
        },
    }
