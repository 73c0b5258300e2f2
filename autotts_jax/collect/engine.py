"""What collection and live control ask of a language model: tokens for tokens, many requests at a time."""

from __future__ import annotations

import dataclasses
import enum
import threading
from collections.abc import Sequence
from typing import Protocol

from autotts_jax.errors import InputError

Tokens = tuple[int, ...]

CANCEL_SECONDS = 0.05
"""How often one who waits looks whether he is still wanted."""


class Finish(enum.StrEnum):
    """Why the model wrote no further."""

    stop = "stop"
    """It ended its text itself, or wrote a stop string."""
    length = "length"
    """It had written as many tokens as it was allowed."""


@dataclasses.dataclass(frozen=True)
class Request:
    """A text to be continued.

    Attributes:
        prompt: its tokens.
        max_tokens: tokens to write at most.
        temperature: of sampling; 0 takes the most likely token.
        top_p: the smallest set of tokens with this much probability is sampled from.
        seed: the same request with the same seed is continued in the same way, whatever runs beside it.
        stop: strings after which to stop; they are kept.
        logprobs: give the mean log-probability.
    """

    prompt: Tokens
    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    stop: tuple[str, ...] = ()
    logprobs: bool = False


@dataclasses.dataclass(frozen=True)
class Completion:
    """What the model wrote.

    Attributes:
        tokens: its tokens, with the one that ends a text.
        text: the same as text, without the one that ends it.
        finish: why it ends.
        mean_logprob: mean log-probability of a token; None where that was not asked for.
        cached: tokens of the prompt that the engine had in its prefix cache.
    """

    tokens: Tokens
    text: str
    finish: Finish
    mean_logprob: float | None = None
    cached: int = 0


class Tokenizer(Protocol):
    """Text to tokens and back."""

    thinks: bool
    """Whether replies begin with thinking that ``</think>`` ends."""

    def chat(self, question: str, system: str | None) -> Tokens:
        """A question in the model's chat format, up to where its reply begins."""

    def encode(self, text: str) -> Tokens:
        """A text without any tokens around it."""

    def decode(self, tokens: Sequence[int]) -> str:
        """A text without the tokens that end it."""


class EngineError(InputError):
    """The engine cannot go on; the message says why and what to do."""


class Cancelled(Exception):  # noqa: N818
    """The one who asked has gone; the engine has dropped the requests."""


class Engine(Protocol):
    """A language model. Requests may come from many threads at once and run as one batch."""

    model: str
    """Name of the model."""

    max_model_len: int
    """Tokens that a prompt and its continuation may have together."""

    @property
    def tokenizer(self) -> Tokenizer:
        """Of the model."""

    def generate(
        self, requests: Sequence[Request], cancel: threading.Event | None = None
    ) -> list[Completion]:
        """Continues texts, one completion a request.

        Args:
            requests: what to continue.
            cancel: when it is set, the requests are dropped from the engine.

        Raises:
            Cancelled: it was.
            EngineError: the engine cannot go on.
        """

    @property
    def running(self) -> int:
        """Requests that the engine works on."""

    def close(self) -> None:
        """Ends the engine; whoever waits for it gets an `EngineError`."""
