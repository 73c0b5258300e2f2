"""Python functions refuse what they could not write, before they do anything."""

import dataclasses
import os

import pytest

import autotts_jax as at
from autotts_jax.collect import (
    ChatMessage,
    EngineSpec,
    LocalWorkers,
    Plan,
    Problem,
    Sampling,
    SimulatedEngine,
    collect,
    import_release,
    open_engine,
)
from autotts_jax.collect.server_engine import ServerEngine
from autotts_jax.collect.simulated import ByteTokenizer
from autotts_jax.discovery import OpenAIProposer, ablate
from autotts_jax.errors import InputError
from autotts_jax.experiments.files import results_folder
from autotts_jax.live import ServerSettings
from autotts_jax.policies import SelfConsistency
from autotts_jax.replay import write_compact, write_json

PLAN = Plan("m", "b", (Problem("1 + 1?", "2"),), num_branches=2, sampling=Sampling(20, 40))


def save_results(folder):
    with results_folder(folder, ()):
        pass


WRITERS = {
    "discover": lambda out: at.discover("smollm2", out=out, candidates=1),
    "ablate": lambda out: ablate("smollm2", out=out, candidates=1),
    "collect": lambda out: collect(PLAN, out, LocalWorkers(SimulatedEngine())),
    "train": lambda out: at.train("train.toml", out=out),
    "results": save_results,
    "import_release": lambda out: import_release(".", out),
    "write_json": lambda out: write_json(at.load("smollm2"), out),
    "write_compact": lambda out: write_compact(at.load("smollm2"), out),
}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize(
    ("out", "problem"),
    [
        ("", "empty path"),
        (os.fsdecode(b"a/\xff"), "UTF-8"),
        (b"x", "must be a path"),
        ("x" * 5000, "too long"),
        ("a\0", "no path has a NUL in it"),
    ],
)
def test_paths_that_nothing_can_be_written_to_are_refused(tmp_path, monkeypatch, name, out, problem):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=problem):
        WRITERS[name](out)
    assert list(tmp_path.iterdir()) == []


TEXTS = {
    "the system prompt": lambda text: Sampling(system=text),
    "the suffix": lambda text: Sampling(suffix=text),
    "the model": lambda text: dataclasses.replace(PLAN, model=text),
    "the benchmark": lambda text: dataclasses.replace(PLAN, benchmark=text),
    "a question": lambda text: dataclasses.replace(PLAN, questions=(Problem(text, "1"),)),
    "a reference answer": lambda text: dataclasses.replace(PLAN, questions=(Problem("?", text),)),
    "the rule": lambda text: dataclasses.replace(PLAN, answers=text),
    "the engine": lambda text: EngineSpec(text),
    "the engine's model": lambda text: EngineSpec("vllm", text),
    "an option": lambda text: EngineSpec("vllm", "m", {"a": [{"b": text}]}),
    "an option's name": lambda text: EngineSpec("vllm", "m", {text: 1}),
    "a message": lambda text: ChatMessage("user", text),
    "a live question": lambda text: at.answer(SimulatedEngine(), text, "sc@1"),
    "a server's model": lambda text: ServerEngine("http://127.0.0.1:9/v1", text, ByteTokenizer()),
    "a server's address": lambda text: ServerEngine(f"http://{text}", "m", ByteTokenizer()),
    "a served name": ServerSettings,
    "a proposer": OpenAIProposer,
    "a player": lambda text: at.evaluate(
        "smollm2", at.Family(text, (1,), lambda value: SelfConsistency(int(value)), "branches"), seeds=1
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_text_that_utf8_cannot_write_is_refused(name):
    with pytest.raises(InputError, match="UTF-8 cannot write: it holds half of a surrogate pair"):
        TEXTS[name]("half \ud800")


def test_options_that_are_no_json_are_refused():
    with pytest.raises(InputError, match="options are not JSON"):
        EngineSpec("vllm", "m", {"a": object()})


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"interval": 5.5}, "interval is 5.5, but it must be a whole number"),
        ({"interval": True}, "interval is True, but it must be a whole number"),
        ({"max_tokens": "x"}, "max_tokens is 'x', but it must be a whole number"),
        ({"seed": 0.5}, "seed is 0.5, but it must be a whole number"),
        ({"temperature": "hot"}, "temperature is 'hot', but it must be a finite number"),
        ({"top_p": None}, "top_p is None"),
    ],
)
def test_sampling_checks_types(settings, problem):
    with pytest.raises(InputError, match=problem):
        Sampling(**settings)


@pytest.mark.parametrize(
    ("engine", "options", "problem"),
    [
        ("simulated", {"mean_tokens": 0}, "mean_tokens is 0, but it must be at least 1"),
        ("simulated", {"mean_tokens": -5}, "mean_tokens is -5, but it must be at least 1"),
        ("simulated", {"mean_tokens": "x"}, "mean_tokens is 'x', but it must be a whole number"),
        ("simulated", {"mean_tokens": True}, "mean_tokens is True, but it must be a whole number"),
        ("simulated", {"mean": 5}, "does not know an option: .*'mean'"),
        ("server", {"max_connections": 0}, "max_connections is 0, but it must be at least 1"),
        ("server", {"attempts": "3"}, "attempts is '3', but it must be a whole number"),
        ("server", {"max_model_len": -5}, "max_model_len is -5, but it must be at least 1"),
        ("server", {"timeout": 0}, "timeout is 0, but it must be a finite number above 0"),
        ("server", {"pause": -1}, "pause is -1, but it must be a finite number of at least 0"),
        ("server", {"tokenizer": 5}, "tokenizer is 5, but it must be a folder"),
        ("server", {"base_url": 5}, "base_url is 5, but it must be text"),
        ("server", {"speed": 5}, "does not know an option: .*'speed'"),
    ],
)
def test_options_of_engines_are_checked(engine, options, problem):
    with pytest.raises(InputError, match=problem):
        open_engine(engine, "m", options, "http://127.0.0.1:9/v1")
