"""Controllers on a server that offers nothing but chat completions."""

import contextlib

import pytest
from completions_server import running_server, say
from serving import KEY, get, health, post, served, until, user

from autotts_jax import live
from autotts_jax.collect import (
    ChatEngine,
    LocalWorkers,
    Plan,
    Problem,
    Request,
    Sampling,
    ServerEngine,
    collect,
)
from autotts_jax.collect.engine import EngineError, Finish
from autotts_jax.collect.simulated import ByteTokenizer
from autotts_jax.errors import InputError

SAMPLING = Sampling(interval=20, max_tokens=160)


@pytest.fixture(scope="module")
def server():
    with running_server() as server:
        server.refuses_tokens = True
        yield server


@pytest.fixture(scope="module")
def engine(server):
    with contextlib.closing(ChatEngine(server.url, "digits", attempts=2, pause=0.01)) as engine:
        yield engine


def reply(text, tokens, finish="stop", **more):
    message = {"role": "assistant", "content": text, **more}
    content = {"choices": [{"index": 0, "message": message, "finish_reason": finish}]}
    return content if tokens is None else content | {"usage": {"completion_tokens": tokens}}


def test_a_branch_is_one_call_and_as_long_as_the_server_says(server, engine):
    server.asked.clear()
    found = live.answer(engine, "2 + 2", "sc@4", sampling=SAMPLING, max_branches=4)
    assert len(server.asked) == 4
    assert len({sent["seed"] for sent in server.asked}) == 4
    assert {sent["max_tokens"] for sent in server.asked} == {160}
    written = [server.chat(sent)["choices"][0]["message"]["content"] for sent in server.asked]
    lengths = [server.chat(sent)["usage"]["completion_tokens"] for sent in server.asked]
    assert sorted(found.texts) == sorted(written)
    assert found.usage.generated == sum(lengths)
    assert found.tokens == sum(lengths)
    assert found.usage.probes == 0
    assert found.answer is not None


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["asc@8", "esc@16", "sprt@8", "short-m@8"])
def test_controllers_of_whole_branches_run(engine, spec):
    found = live.answer(engine, "3 + 3", spec, sampling=SAMPLING, max_branches=16)
    assert found.answer is not None
    assert found.usage.probes == 0


@pytest.mark.parametrize("spec", ["cmc@0.5", "parallel-probe@1", "single@2", "deer@0.8"])
def test_controllers_that_probe_are_refused_by_name(engine, spec):
    name = spec.partition("@")[0]
    with pytest.raises(InputError, match=f"{name} needs intermediate answers"):
        live.answer(engine, "3 + 3", spec, sampling=SAMPLING, max_branches=8)


@pytest.mark.parametrize(
    ("content", "tokens", "finish", "answer"),
    [
        (reply("The answer is 7", 30), 30, Finish.stop, "7"),
        (reply("The answer is 7", None), 4, Finish.stop, "7"),
        (reply("The answer is 7", 10**9), 160, Finish.stop, "7"),
        (reply("7", 90, reasoning_content="Is it 8?"), 90, Finish.stop, "7"),
        (reply(None, 160, "length", reasoning="Is it 8?"), 160, Finish.length, None),
        (reply("", 0), 1, Finish.stop, None),
        (reply("It is é7\N{GRINNING FACE}", 3), 3, Finish.stop, "7"),
    ],
)
def test_what_servers_reply(server, engine, content, tokens, finish, answer):
    server.troubles = [lambda handler: handler.say(200, content)]
    found = live.answer(engine, "3 + 3", "sc@1", sampling=SAMPLING, max_branches=1)
    assert (found.usage.generated, found.ends, found.answer) == (tokens, [finish], answer)


def test_pieces_are_the_text(engine):
    text = "aé\N{GRINNING FACE}\x00 b" * 9
    for count in (1, 2, 7, 100):
        tokens = engine.tokenizer.cut(text, count)
        assert len(tokens) == count
        assert engine.tokenizer.decode(tokens) == text
    assert engine.tokenizer.decode(engine.tokenizer.encode(text)) == text
    assert engine.tokenizer.encode("") == engine.tokenizer.cut("", 0) == ()


def test_the_server_of_a_chat_model_lists_what_runs(engine):
    headers = {"authorization": f"Bearer {KEY}"}
    with served(engine) as address:
        listed = get(f"{address}/v1/models", headers=headers).json()["data"]
        names = {model["id"] for model in listed}
        assert {"sim:sc", "sim:asc", "sim:sprt", "sim:plain"} <= names
        assert not {"sim:cmc", "sim:parallel-probe", "sim:single"} & names
        refused = post(address, {"model": "sim:cmc", "messages": user("2 + 2")}).json()["error"]
        assert (refused["code"], refused["param"]) == ("unsupported_controller", "model")


@pytest.mark.slow
def test_the_server_of_a_chat_model_answers(engine):
    with served(engine) as address:
        told = post(address, {"model": "sim:sc@4", "messages": user("2 + 2")})
        assert told.json()["autotts"]["answer"]
        assert (
            post(address, {"model": "sim", "messages": user("2 + 2")}).json()["model"].startswith("sim:sc@")
        )
        until(lambda: health(address)["requests"] == 0)


def test_ollama_as_it_answers():
    with running_server() as server:
        server.models = None  # before a model is pulled
        with pytest.raises(InputError, match="has no model qwen3:8b; it has: none"):
            ChatEngine(server.url, "qwen3:8b")
        server.models = [{"id": "qwen3:8b", "object": "model", "created": 1, "owned_by": "library"}]
        server.pages["/api/ps"] = {"models": [{"name": "qwen3:8b", "context_length": 4096}]}
        with pytest.raises(InputError, match="has no model qwen3; it has: qwen3:8b"):
            ChatEngine(server.url, "qwen3")
        busy = {"message": "server busy, please try again", "type": "api_error", "param": None, "code": None}
        gone = {**busy, "message": "model 'qwen3:8b' not found", "type": "not_found_error"}
        with contextlib.closing(ChatEngine(server.url, "qwen3:8b", attempts=2, pause=0.01)) as engine:
            assert engine.max_model_len == 4096
            server.troubles = [say(503, {"error": busy}), say(200, reply("4", 3, reasoning="2 + 2 is 4"))]
            assert live.answer(engine, "2 + 2", "sc@1", sampling=SAMPLING, max_branches=1).answer == "4"
            server.troubles = [say(404, {"error": gone})]
            with pytest.raises(
                EngineError, match="model 'qwen3:8b' not found; check the address and the name"
            ):
                live.answer(engine, "2 + 2", "sc@1", sampling=SAMPLING, max_branches=1)


def test_a_server_of_chats_alone_is_refused_by_the_engine_server_that_names_this_one(server):
    with pytest.raises(EngineError, match="--engine chat"):
        ServerEngine(server.url, "digits", ByteTokenizer(), attempts=2, pause=0.01)


def test_a_collection_needs_more(engine, tmp_path):
    plan = Plan("m", "sums", (Problem("1 + 1?", "2"),), num_branches=2, sampling=SAMPLING)
    with pytest.raises(InputError, match="a collection needs probes"):
        collect(plan, tmp_path / "c", LocalWorkers(engine))


def test_a_prompt_that_is_no_conversation_is_the_user_s(server, engine):
    (written,) = engine.generate([Request(engine.tokenizer.encode("1"), max_tokens=3)])
    assert server.asked[-1]["messages"] == [{"role": "user", "content": "1"}]
    assert len(written.tokens) <= 3
