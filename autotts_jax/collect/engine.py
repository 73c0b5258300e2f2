"""The contract with a language model: prompts in, completions out, many requests at a time.

Collection and live control need nothing of a model but an `Engine` and its `Tokenizer`. To use another model
or another inference library, implement both protocols; `SimulatedEngine` is the shortest example, and
`autotts_jax.testing.check_engine` checks an engine.
"""

from __future__ import annotations

import dataclasses
import enum
import threading
from collections.abc import Sequence
from typing import Literal, Protocol

from autotts_jax.checks import check_text
from autotts_jax.collect.thinking import Thinking
from autotts_jax.errors import InputError

Tokens = tuple[int, ...]
"""Token ids."""

CANCEL_SECONDS = 0.05
"""How often the engines of this package check ``cancel`` while they wait."""


class Finish(enum.StrEnum):
    """Why a completion ends."""

    stop = "stop"
    """The model ended its text, or generated a stop string."""
    length = "length"
    """It reached ``max_tokens``."""


@dataclasses.dataclass(frozen=True)
class Request:
    """A prompt to continue.

    Attributes:
        prompt: its tokens, at least one. ``len(prompt) + max_tokens`` is at most the engine's
            ``max_model_len``.
        max_tokens: tokens to generate at most, at least 1.
        temperature: sampling temperature; 0 takes the most likely token.
        top_p: nucleus sampling: sample from the smallest set of tokens with this probability mass, in (0, 1].
        top_k: sample from this many of the most likely tokens; 0 for all.
        min_p: sample from tokens that are at least this share as likely as the most likely one, in [0, 1].
            No other restriction (such as penalties) applies.
        seed: seed of the sampling, from 0 to 2**31 - 1.
        stop: strings after which to stop.
        logprobs: whether to compute `Completion.logprobs`.
        top_logprobs: whether to compute `Completion.confidences` and `Completion.entropies` as well.
    """

    prompt: Tokens
    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int = 0
    stop: tuple[str, ...] = ()
    logprobs: bool = False
    top_logprobs: bool = False


@dataclasses.dataclass(frozen=True)
class Completion:
    """What the model generated for a request.

    Attributes:
        tokens: the generated tokens, with the end-of-text token if the model generated one; from 1 to
            ``max_tokens`` of them. Only an engine that is given texts without tokens may return none, with
            `Finish.stop`.
        text: these tokens as text, without the end-of-text token and with the stop string that ended it.
        finish: why it ends.
        logprobs: log-probability of each token under the model, in nats, whatever the sampling restricts;
            None unless the request asks for it, or if the engine does not know it.
        confidences: minus the mean log-probability of the 20 most likely tokens in the place of each token,
            None likewise.
        entropies: entropy in the place of each token, in nats: of these 20, and of one more for all others;
            None likewise.
        cached: tokens of the prompt that were in the engine's prefix cache; 0 if unknown.
    """

    tokens: Tokens
    text: str
    finish: Finish
    logprobs: tuple[float, ...] | None = None
    confidences: tuple[float, ...] | None = None
    entropies: tuple[float, ...] | None = None
    cached: int = 0


class EngineError(InputError):
    """The engine cannot continue; the message says why and what to do."""


class RefusedError(EngineError):
    """The engine refuses a request; others are not affected.

    Attributes:
        reason: why, in the words of the engine.
        too_long: whether the prompt and its completion are longer than the model's context.
    """

    def __init__(self, message: str, reason: str = "", too_long: bool = False):
        super().__init__(message)
        self.reason = reason
        self.too_long = too_long


class BusyError(EngineError):
    """The engine has too much to do; it takes the request later.

    Attributes:
        retry_after: seconds after which it may, None if it does not say.
    """

    def __init__(self, message: str, retry_after: float | None = None):
        super().__init__(message)
        self.retry_after = retry_after


class Cancelled(Exception):  # noqa: N818
    """The caller cancelled; the engine has dropped the requests."""


@dataclasses.dataclass(frozen=True)
class ChatMessage:
    """A message of a conversation.

    Attributes:
        role: who says it.
        content: its text.

    Raises:
        InputError: the content is not text that UTF-8 can write.
    """

    role: Literal["system", "user", "assistant"]
    content: str

    def __post_init__(self) -> None:
        check_text("the content of a message", self.content)


class Tokenizer(Protocol):
    """Converts text to tokens and back. Methods may be called from several threads at once."""

    thinking: Thinking | None
    """How the thinking part that replies begin with is marked; None if they have none. Replies to a prompt of
    `chat` that ends with the end of a thinking part have none either."""

    @property
    def end(self) -> int | None:
        """The token with which the model ends a text; None if there is no such token."""

    @property
    def vocab_size(self) -> int:
        """Number of tokens; their ids are below it."""

    def chat(self, messages: Sequence[ChatMessage]) -> Tokens:
        """Formats a conversation, up to where the model's next reply begins.

        Args:
            messages: the messages; the last is the user's.

        Returns:
            The prompt's tokens, special tokens included.

        Raises:
            InputError: the model's chat template refuses the messages.
        """

    def encode(self, text: str) -> Tokens:
        """Encodes a text as it is.

        Args:
            text: any text.

        Returns:
            Its tokens, without special tokens before or after them.
        """

    def decode(self, tokens: Sequence[int]) -> str:
        """Decodes tokens.

        Args:
            tokens: tokens that the model read or generated.

        Returns:
            Their text with the marks of `thinking`, and without other special tokens such as the one that
            ends a text.
        """


def check_is_engine(engine: object) -> None:
    """Checks that an argument is an engine.

    Args:
        engine: the argument.

    Raises:
        InputError: it generates nothing.
    """
    if not callable(getattr(engine, "generate", None)):
        raise InputError(
            f"engine is {engine!r:.60}, but it must be an engine, as autotts_jax.collect.open_engine opens it"
        )


def writes_whole(engine: object) -> bool:
    """Tells whether an engine writes whole branches, and continues none.

    Args:
        engine: the engine. It says so by an attribute ``whole_branches``.
    """
    return getattr(engine, "whole_branches", False) is True


class Engine(Protocol):
    """A language model that continues prompts.

    Threads: `generate` is called from many threads at once, each with a list of requests, and blocks until
    all of them are finished. An engine is fast if it runs the requests of all callers as one batch.

    Reproducibility: the completion of a request depends on the request alone. The same request with the same
    seed has the same completion, whatever runs beside it and whenever it is made. An interrupted collection
    and a controller that runs live rely on this.

    Prefixes: most requests extend a prompt that was seen before by some hundred tokens, so an engine should
    keep a prefix cache.
    """

    model: str
    """Name of the model, for messages."""

    max_model_len: int
    """Tokens that a prompt and its completion may have together."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""

    @property
    def running(self) -> int:
        """Number of requests that the engine is working on, over all callers."""

    def generate(
        self, requests: Sequence[Request], cancel: threading.Event | None = None
    ) -> list[Completion]:
        """Continues prompts.

        Args:
            requests: what to continue; may be empty.
            cancel: once this is set, the engine drops the requests and raises `Cancelled`, within about
                `CANCEL_SECONDS`. The requests of other callers are not affected.

        Returns:
            One completion for each request, in the order of the requests.

        Raises:
            Cancelled: ``cancel`` was set.
            RefusedError: the engine refuses a request.
            BusyError: the engine has too much to do.
            EngineError: the engine cannot continue, or was closed. The message should say that what was
                collected is kept.
        """

    def close(self) -> None:
        """Ends the engine and frees what it holds; may be called twice.

        Callers that wait in `generate`, and those that call it later, get an `EngineError`.
        """
