"""An engine without a model, to try the pipeline and to test it."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import random
import threading
from collections import Counter
from collections.abc import Sequence

import numpy as np

from autotts_jax.checks import check_int
from autotts_jax.collect.engine import (
    Cancelled,
    ChatMessage,
    Completion,
    EngineError,
    Finish,
    Request,
    Tokens,
)
from autotts_jax.collect.signals import TOP, reduce_top
from autotts_jax.collect.thinking import Thinking

END = 256
"""The token that ends a text; all others are bytes."""

DIGITS = b"0123456789"
SPACE = ord(" ")
_ELSE = 0.01
"""Probability of all tokens together that are never sampled."""


class ByteTokenizer:
    """A tokenizer with one token for each byte."""

    thinking: Thinking | None = None
    end = END
    vocab_size = END + 1

    def chat(self, messages: Sequence[ChatMessage]) -> Tokens:
        *before, last = (message.content for message in messages)
        return self.encode(f"{' '.join(before)}\n{last}\n")

    def encode(self, text: str) -> Tokens:
        return tuple(text.encode())

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(token for token in tokens if token != END).decode(errors="replace")


class SimulatedEngine:
    """Generates digits and answers with the digit that it generated most.

    Each question makes some digits more likely than others, so answers scatter at first and then settle, as a
    model's do. A completion depends on the request alone.

    Args:
        mean_tokens: approximate mean length of a text.

    Raises:
        InputError: that is not a whole number from 1 on.
    """

    model = "simulated"
    max_model_len = 1 << 20
    running = 0

    def __init__(self, mean_tokens: int = 200):
        self.tokenizer = ByteTokenizer()
        self._mean_tokens = check_int("mean_tokens", mean_tokens, 1)
        self._closed = False

    def generate(
        self, requests: Sequence[Request], cancel: threading.Event | None = None
    ) -> list[Completion]:
        if self._closed:
            raise EngineError("the engine was closed")
        if cancel is not None and cancel.is_set():
            raise Cancelled
        return [self.complete(request) for request in requests]

    def close(self) -> None:
        self._closed = True

    def complete(self, request: Request) -> Completion:
        """Continues one prompt.

        Args:
            request: what to continue.

        Returns:
            Digits if the request samples, else the final digit and a closing brace.
        """
        tokens = self._think(request) if request.temperature else self._answer(request)
        text = self.tokenizer.decode(tokens)
        stops = [text.index(stop) + len(stop) for stop in request.stop if stop in text]
        if stops:
            tokens, text = tokens[: min(stops)], text[: min(stops)]
        ended = stops or tokens[-1] == END or len(tokens) < request.max_tokens
        written = Completion(tokens, text, Finish.stop if ended else Finish.length)
        return self._with_probabilities(request, written) if request.logprobs else written

    def _with_probabilities(self, request: Request, written: Completion) -> Completion:
        """Log-probabilities by the weights of the digits; all other tokens are almost certain."""
        weights = self._weights(request)
        places = []
        for token in written.tokens:
            digit = DIGITS.find(token) if token != END else -1
            known = weights if digit >= 0 else [1]
            others = TOP - sum(map(bool, known))
            top = [math.log((1 - _ELSE) * weight / sum(known)) for weight in known if weight]
            top += [math.log(_ELSE / others)] * others
            sampled = known[digit] if digit >= 0 else 1
            # The digit that ends a text may be one that is not sampled.
            chosen = math.log((1 - _ELSE) * sampled / sum(known)) if sampled else top[-1]
            places.append([chosen, *top])
        values = np.array(places)
        written = dataclasses.replace(written, logprobs=tuple(values[:, 0].tolist()))
        if not request.top_logprobs:
            return written
        confidences, entropies = reduce_top(values[:, 1:])
        return dataclasses.replace(written, confidences=confidences, entropies=entropies)

    def _weights(self, request: Request) -> list[int]:
        lines = self.tokenizer.decode(request.prompt).split("\n")
        question = lines[min(1, len(lines) - 1)]  # a prompt need not be a chat
        return _restricted(request, random.Random(question).choices([1, 2, 3, 8], k=len(DIGITS)))

    def _think(self, request: Request) -> Tokens:
        weights = self._weights(request)
        draw = random.Random(hashlib.blake2b(repr((request.seed, request.prompt)).encode()).digest())
        tokens: list[int] = []
        while len(tokens) + 4 <= request.max_tokens:  # a digit, and room for the end
            tokens += [*draw.choices(DIGITS, weights), SPACE]
            if draw.random() < 2 / self._mean_tokens:
                return (*tokens, _most_frequent((*request.prompt, *tokens)), END)
        return (*tokens, *[SPACE] * (request.max_tokens - len(tokens)))

    def _answer(self, request: Request) -> Tokens:
        return (_most_frequent(request.prompt), *b"}")[: request.max_tokens]


def _restricted(request: Request, weights: list[int]) -> list[int]:
    """The weights of the tokens that may be sampled, 0 for the others."""
    ranked = sorted(range(len(weights)), key=lambda token: -weights[token])
    least = request.min_p * max(weights)
    kept = {token for token in ranked[: request.top_k or None] if weights[token] >= least}
    return [weight if token in kept else 0 for token, weight in enumerate(weights)]


def _most_frequent(tokens: Tokens) -> int:
    digits = Counter(token for token in tokens if token in DIGITS)
    return digits.most_common(1)[0][0] if digits else DIGITS[0]
