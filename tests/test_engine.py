"""`check_engine` passes the simulated engine, and catches whatever breaks the contract."""

import dataclasses
import doctest

import pytest

from autotts_jax.cli.options import EngineOptions
from autotts_jax.collect import (
    QUICK_TO_FAIL,
    Completion,
    EngineError,
    Finish,
    Request,
    SimulatedEngine,
    open_engine,
    server_engine,
    vllm_engine,
)
from autotts_jax.collect import engines as engines_module
from autotts_jax.errors import InputError
from autotts_jax.testing import check_engine, engines


def test_the_simulated_engine_passes():
    check_engine(SimulatedEngine())
    check_engine(SimulatedEngine(mean_tokens=5), question="What is 1 + 1?", max_tokens=64)
    outcome = doctest.testmod(engines)
    assert outcome.attempted
    assert not outcome.failed


class Broken(SimulatedEngine):
    """Changes the completions of the simulated engine."""

    def __init__(self, change):
        super().__init__()
        self._change = change

    def generate(self, requests, cancel=None):
        return self._change(list(requests), super().generate(requests, cancel))


def each(**fields):
    """Replaces fields of every completion, which are functions of the request and the completion."""

    def change(requests, completions):
        return [
            dataclasses.replace(completion, **{name: f(request, completion) for name, f in fields.items()})
            for request, completion in zip(requests, completions, strict=True)
        ]

    return change


def cut(_, completion):
    tokens = completion.tokens[:3]
    return Completion(tokens, bytes(tokens).decode(), Finish.length)


BROKEN = {
    "each request has a completion": lambda _, completions: completions[:-1],
    "in the order of their requests": lambda requests, completions: (
        completions[::-1] if requests and requests[0].seed == 7 else completions
    ),
    "depend on the seed": lambda _, completions: completions[:1] * len(completions),
    "depend on what runs beside it": lambda requests, completions: (
        each(tokens=lambda *_: (49, 32), text=lambda *_: "1 ", finish=lambda *_: Finish.stop)(
            requests, completions
        )
        if len(requests) == 1
        else completions
    ),
    "1 to max_tokens tokens": each(tokens=lambda _, completion: completion.tokens * 9),
    "text is that of the tokens": each(text=lambda _, completion: completion.text + "!"),
    "Finish.length means": lambda requests, completions: [
        *map(cut, requests, completions),
    ],
    "finish is a Finish": each(finish=lambda *_: None),
    "cached counts tokens of the prompt": each(cached=lambda request, _: len(request.prompt) + 1),
    "logprobs is None": each(logprobs=lambda _, completion: (-1.0,) * len(completion.tokens)),
    "each token has its": each(logprobs=lambda request, _: (-1.0,) if request.logprobs else None),
    "not positive": each(
        logprobs=lambda request, completion: (1.0,) * len(completion.tokens) if request.logprobs else None
    ),
    "are not negative": each(
        entropies=lambda request, completion: (
            (-1.0,) * len(completion.tokens) if request.top_logprobs else None
        )
    ),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_completions_that_break_the_contract_are_caught(rule):
    with pytest.raises(AssertionError, match=rule):
        check_engine(Broken(BROKEN[rule]))


class Endless(SimulatedEngine):
    """Ignores stop strings."""

    def complete(self, request):
        return super().complete(dataclasses.replace(request, stop=()))


class Deaf(SimulatedEngine):
    """Ignores cancellation."""

    def generate(self, requests, cancel=None):
        return super().generate(requests, cancel and None)


class Immortal(SimulatedEngine):
    """Cannot be closed."""

    def close(self):
        pass


class Busy(SimulatedEngine):
    running = 1


@pytest.mark.parametrize(
    ("engine", "rule"),
    [
        (Endless(), "generation ends after the first stop string"),
        (Deaf(), "raises Cancelled"),
        (Immortal(), "a closed engine raises EngineError"),
        (Busy(), "no running requests"),
    ],
)
def test_engines_that_break_the_contract_are_caught(engine, rule):
    with pytest.raises(AssertionError, match=rule):
        check_engine(engine, question="What is 1 + 1?")


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"vocab_size": 64}, "tokens are from 0 to vocab_size - 1"),
        ({"end": 49}, "the end of a text is not text"),
    ],
)
def test_tokenizers_that_break_the_contract_are_caught(change, rule):
    engine = SimulatedEngine()
    vars(engine.tokenizer).update(change)
    with pytest.raises(AssertionError, match=rule):
        check_engine(engine)


def test_the_simulated_engine_samples_from_the_tokens_that_are_left():
    engine = SimulatedEngine()
    free = Request(engine.tokenizer.encode("\nWhat is 1 + 1?\n"), 200, temperature=1.0, seed=1)
    (likely,) = {chr(token) for token in written(engine, dataclasses.replace(free, top_k=1))}
    few = written(engine, dataclasses.replace(free, min_p=1.0))
    assert len({*few}) < len({*written(engine, free)})
    assert ord(likely) in few


def written(engine, request):
    return [token for token in engine.complete(request).tokens if token in b"0123456789"]


CHAT = {"chat_kwargs": {"enable_thinking": False}, "think_end": "</think>"}


@pytest.mark.parametrize(
    ("engine", "module", "name"),
    [("vllm", vllm_engine, "VLLMEngine"), ("server", server_engine, "ServerEngine")],
)
def test_options_of_the_chat_reach_the_engine(monkeypatch, engine, module, name):
    opened = []

    def note(model=None, options=None, **given):
        opened.append((model, options, given))

    monkeypatch.setattr(module, name, note)
    options = EngineOptions(
        "m", engine, "http://h", chat_kwargs='{"enable_thinking": false}', think_end="</think>", tokenizer="t"
    )
    options.opener()()
    ((model, named, given),) = opened
    assert model == "m"
    assert {name: given[name] for name in CHAT} == CHAT
    assert (named or given)["tokenizer"] == "t"


@pytest.mark.parametrize(
    ("given", "message"),
    [("{", "--chat-kwargs is not JSON"), ("[1]", r"--chat-kwargs is \[1\]; write an object")],
)
def test_arguments_of_the_chat_template_that_are_no_object_are_refused(given, message):
    with pytest.raises(InputError, match=message):
        EngineOptions(chat_kwargs=given).opener()


def test_a_server_that_is_asked_for_its_context_alone_is_not_waited_for(monkeypatch):
    asked = []

    def note(_name, _model, options, *_):
        asked.append(options)
        return SimulatedEngine()

    monkeypatch.setattr(engines_module, "open_engine", note)
    for options in (None, {"attempts": 9}):
        assert engines_module.context_length("server", "m", options, "http://h") == 1 << 20
    assert asked == [QUICK_TO_FAIL, QUICK_TO_FAIL | {"attempts": 9}]


def test_a_closed_engine_refuses_requests():
    engine = SimulatedEngine()
    engine.close()
    with pytest.raises(EngineError, match="closed"):
        engine.generate([])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "oracle"}, "unknown engine 'oracle'; there are vllm, server, chat, simulated"),
        ({"name": "vllm"}, "the engine vllm needs a model"),
        ({"name": "server", "model": "m"}, "the engine server needs an address"),
        ({"name": "simulated", "options": {"speed": 9}}, "does not know an option: .*'speed'"),
    ],
)
def test_engines_that_cannot_be_opened(arguments, message):
    with pytest.raises(InputError, match=message):
        open_engine(**arguments)
    assert open_engine("simulated", options={"mean_tokens": 5}).model == "simulated"
