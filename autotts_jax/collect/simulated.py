"""An engine without a model, to try the pipeline and to test it."""

from __future__ import annotations

import hashlib
import random
import threading
from collections import Counter
from collections.abc import Sequence

from autotts_jax.collect.engine import Cancelled, Completion, Finish, Request, Tokens

END = 256
"""The token that ends a text; all others are bytes."""

DIGITS = b"0123456789"
SPACE = ord(" ")


class ByteTokenizer:
    """A token for each byte."""

    thinks = False

    def chat(self, question: str, system: str | None) -> Tokens:
        return self.encode(f"{system or ''}\n{question}\n")

    def encode(self, text: str) -> Tokens:
        return tuple(text.encode())

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(token for token in tokens if token != END).decode(errors="replace")


class SimulatedEngine:
    """Writes digits, some more often than others by question, and answers with the one that it wrote most.

    So its answers scatter at first and then settle, as a model's do. A continuation depends on the request
    alone.

    Args:
        mean_tokens: about the mean length of a text.
    """

    model = "simulated"
    max_model_len = 1 << 20
    running = 0

    def __init__(self, mean_tokens: int = 200):
        self.tokenizer = ByteTokenizer()
        self._mean_tokens = mean_tokens

    def generate(
        self, requests: Sequence[Request], cancel: threading.Event | None = None
    ) -> list[Completion]:
        if cancel is not None and cancel.is_set():
            raise Cancelled
        return [self._write(request) for request in requests]

    def close(self) -> None:
        pass

    def _write(self, request: Request) -> Completion:
        tokens = self._think(request) if request.temperature else self._answer(request)
        text = self.tokenizer.decode(tokens)
        ended = tokens[-1] == END or any(stop in text for stop in request.stop)
        return Completion(tokens, text, Finish.stop if ended else Finish.length)

    def _think(self, request: Request) -> Tokens:
        question = self.tokenizer.decode(request.prompt).split("\n")[1]
        weights = random.Random(question).choices([1, 2, 3, 8], k=len(DIGITS))
        draw = random.Random(hashlib.blake2b(repr((request.seed, request.prompt)).encode()).digest())
        tokens: list[int] = []
        while len(tokens) + 4 <= request.max_tokens:  # a digit, and room for the end
            tokens += [*draw.choices(DIGITS, weights), SPACE]
            if draw.random() < 2 / self._mean_tokens:
                return (*tokens, _most_written((*request.prompt, *tokens)), END)
        return (*tokens, *[SPACE] * (request.max_tokens - len(tokens)))

    def _answer(self, request: Request) -> Tokens:
        return (_most_written(request.prompt), *b"}")[: request.max_tokens]


def _most_written(tokens: Tokens) -> int:
    written = Counter(token for token in tokens if token in DIGITS)
    return written.most_common(1)[0][0] if written else DIGITS[0]
