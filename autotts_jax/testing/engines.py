"""A conformance check for engines: what collection and live control rely on, tried with a few requests."""

from __future__ import annotations

import dataclasses
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from autotts_jax.collect.engine import (
    CANCEL_SECONDS,
    Cancelled,
    ChatMessage,
    Completion,
    Engine,
    EngineError,
    Finish,
    Request,
    check_is_engine,
)
from autotts_jax.collect.thinking import Thinking

PATIENCE = 60.0
"""Seconds until an engine has dropped cancelled requests."""


def check_engine(
    engine: Engine, *, question: str = "What is 2 + 2?", max_tokens: int = 16, close: bool = True
) -> None:
    """Makes requests of an engine and checks its answers against the contract of `Engine`.

    Checked are: the tokenizer; the number, the order and the parts of completions; that a completion depends
    on its request alone, and on the seed if the request samples; continuation from a completion; stop
    strings; cancellation, which leaves other callers alone; and the end of the engine.

    Args:
        engine: the engine, which no one else uses meanwhile.
        question: what to ask.
        max_tokens: tokens of a completion; the check makes about 50 requests of this length.
        close: whether to close the engine at the end and check that as well.

    Raises:
        AssertionError: the engine breaks the contract; the message says how.
        InputError: it is not an engine.

    Example:
        >>> from autotts_jax.collect import SimulatedEngine
        >>> from autotts_jax.testing import check_engine
        >>> check_engine(SimulatedEngine())
    """
    check_is_engine(engine)
    _require(isinstance(engine.model, str), "model is a name")
    _require(engine.running == 0, "an idle engine has no running requests")
    prompt = engine.tokenizer.chat([ChatMessage("user", question)])
    _check_tokenizer(engine, prompt)
    _require(len(prompt) + max_tokens <= engine.max_model_len, "the question does not fit; use another")

    sampled = [Request(prompt, max_tokens, temperature=1.0, seed=seed) for seed in range(8)]
    completions = _check_completions(engine, sampled)
    _check_reproducible(engine, sampled, completions)
    _check_continuations(engine, sampled, completions)
    _check_greedy(engine, Request(prompt, max_tokens))
    _check_stop(engine, Request(prompt, max_tokens, stop=("1", "e", " ")))
    _check_logprobs(engine, sampled[0])
    _check_cancel(engine, sampled, completions)
    if close:
        _check_close(engine, sampled)


def _require(holds: bool, message: str) -> None:
    """Raises an `AssertionError`; ``assert`` would check nothing under ``python -O``."""
    if not holds:
        raise AssertionError(message)


def _check_tokenizer(engine: Engine, prompt: tuple[int, ...]) -> None:
    tokenizer = engine.tokenizer
    _require(isinstance(tokenizer.thinking, Thinking | None), "thinking is a Thinking or None")
    _require(len(prompt) > 0, "a chat has tokens")
    _require(all(isinstance(token, int) for token in prompt), "tokens are integers")
    _require(0 <= min(prompt) <= max(prompt) < tokenizer.vocab_size, "tokens are from 0 to vocab_size - 1")
    _require(tokenizer.end is None or not tokenizer.decode([tokenizer.end]), "the end of a text is not text")
    text = "The final answer is \\boxed{12}"
    _require(tokenizer.decode(tokenizer.encode(text)) == text, "decode returns the text that was encoded")


def _check_completions(engine: Engine, requests: list[Request]) -> list[Completion]:
    _require(engine.generate([]) == [], "no requests have no completions")
    completions = engine.generate(requests)
    _require(len(completions) == len(requests), "each request has a completion")
    for request, completion in zip(requests, completions, strict=True):
        _require(1 <= len(completion.tokens) <= request.max_tokens, "a completion has 1 to max_tokens tokens")
        _require(isinstance(completion.finish, Finish), "finish is a Finish")
        _require(
            completion.finish is Finish.stop or len(completion.tokens) == request.max_tokens,
            "Finish.length means that max_tokens were generated",
        )
        _require(completion.text == engine.tokenizer.decode(completion.tokens), "text is that of the tokens")
        _require(0 <= completion.cached <= len(request.prompt), "cached counts tokens of the prompt")
    _require(engine.running == 0, "finished requests do not run")
    return completions


def _check_reproducible(engine: Engine, requests: list[Request], completions: list[Completion]) -> None:
    tokens = [completion.tokens for completion in completions]
    _require(len(set(tokens)) > 1, "sampled completions depend on the seed")
    for request, expected in zip(requests, tokens, strict=True):
        (alone,) = engine.generate([request])
        _require(alone.tokens == expected, "a completion does not depend on what runs beside it")
    with ThreadPoolExecutor(4) as threads:
        for again in threads.map(engine.generate, [requests[::-1]] * 4):
            _require(
                [completion.tokens for completion in again] == tokens[::-1],
                "completions are in the order of their requests, whoever makes them",
            )


def _check_continuations(engine: Engine, requests: list[Request], completions: list[Completion]) -> None:
    longer = [
        dataclasses.replace(request, prompt=request.prompt + completion.tokens)
        for request, completion in zip(requests, completions, strict=True)
        if completion.finish is Finish.length
    ]
    room = engine.max_model_len
    _check_completions(engine, [r for r in longer if len(r.prompt) + r.max_tokens <= room])


def _check_greedy(engine: Engine, request: Request) -> None:
    first, second = engine.generate([request, dataclasses.replace(request, seed=1)])
    _require(first.tokens == second.tokens, "at temperature 0 the seed has no effect")


def _check_stop(engine: Engine, request: Request) -> None:
    (completion,) = engine.generate([request])
    for stop in request.stop:
        place = completion.text.find(stop)
        _require(
            place in (-1, len(completion.text) - len(stop)), "generation ends after the first stop string"
        )
        _require(place == -1 or completion.finish is Finish.stop, "a stop string ends with Finish.stop")


def _check_logprobs(engine: Engine, request: Request) -> None:
    asking = dataclasses.replace(request, logprobs=True)
    silent, asked, top = engine.generate([request, asking, dataclasses.replace(asking, top_logprobs=True)])
    _require(silent.logprobs is None, "logprobs is None unless the request asks for it")
    _require(asked.confidences is asked.entropies is None, "confidences are None unless asked for")
    _require(silent.tokens == asked.tokens == top.tokens, "log-probabilities do not change the completion")
    for told in (asked.logprobs, top.logprobs, top.confidences, top.entropies):
        _require(told is None or len(told) == len(silent.tokens), "each token has its log-probability")
    _require(max(asked.logprobs or (0,)) <= 0, "a log-probability is not positive")
    _require(
        min(top.confidences or (0,)) >= 0 <= min(top.entropies or (0,)),
        "confidences and entropies are not negative",
    )


def _check_cancel(engine: Engine, requests: list[Request], completions: list[Completion]) -> None:
    cancel = threading.Event()
    cancel.set()
    try:
        engine.generate(requests, cancel)
    except Cancelled:
        pass
    else:
        raise AssertionError("generate raises Cancelled once cancel is set")
    end = time.monotonic() + PATIENCE
    while engine.running and time.monotonic() < end:
        time.sleep(CANCEL_SECONDS)
    _require(engine.running == 0, "cancelled requests are dropped")
    again = engine.generate(requests, threading.Event())
    _require([c.tokens for c in again] == [c.tokens for c in completions], "other requests are not affected")


def _check_close(engine: Engine, requests: list[Request]) -> None:
    engine.close()
    engine.close()
    try:
        engine.generate(requests)
    except EngineError:
        return
    raise AssertionError("a closed engine raises EngineError")
