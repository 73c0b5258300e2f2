"""The chat endpoint, asked by OpenAI's own client."""

import contextlib
import dataclasses
import json
import logging.config
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import openai
import pytest
from serving import (
    KEY,
    SAMPLING,
    SETTINGS,
    Engine,
    ask,
    client,
    counted,
    free_port,
    get,
    health,
    post,
    served,
    until,
    user,
)

from autotts_jax import live
from autotts_jax.cli import main as cli
from autotts_jax.cli.options import EngineOptions
from autotts_jax.collect import Cancelled, MathGrader, Sampling, SimulatedEngine
from autotts_jax.collect.engine import Finish
from autotts_jax.collect.simulated import ByteTokenizer
from autotts_jax.collect.thinking import CHANNELS, TAGS
from autotts_jax.collect.tokenizer import HubTokenizer
from autotts_jax.core.rollout import MAX_TOKENS
from autotts_jax.core.stepping import Decision
from autotts_jax.errors import InputError
from autotts_jax.live import compiling, connections, service
from autotts_jax.live import server as serving
from autotts_jax.live.chat import Reply
from autotts_jax.live.metrics import tokens_saved
from autotts_jax.live.published import PUBLISHED, published
from autotts_jax.live.server import create_app, serve
from autotts_jax.live.settings import ServerSettings

GUIDE = Path(__file__).parents[1] / "docs" / "how-to" / "serve.md"

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture(scope="module")
def engine():
    return Engine()


@pytest.fixture(scope="module")
def address(engine):
    with served(engine) as address:
        yield address


@pytest.fixture(autouse=True)
def logging_as_it_is(monkeypatch):
    """Uvicorn's would close the handlers there are, and with absl's the file that pytest captures into."""
    monkeypatch.setattr(logging.config, "dictConfig", lambda _: None)


@pytest.fixture
def nothing_left(engine, address):
    """Soon after a test nothing is under way."""
    yield
    until(lambda: idle(engine, address))


@pytest.fixture
def compiled(address):  # noqa: ARG001
    """The server of this module compiles nothing any more."""
    until(lambda: not any(thread.name == "compile" for thread in threading.enumerate()))


@contextlib.contextmanager
def stream(address, question, **parameters):
    with client(address) as asking:
        messages = user(question)
        parts = asking.chat.completions.create(
            model="sim:cmc@0.2", messages=messages, stream=True, **parameters
        )
        with parts:
            yield parts


def told(address, question):
    with stream(address, question) as parts:
        return list(parts)


def idle(engine, address):
    return health(address)["requests"] == engine.running == 0


@pytest.fixture(scope="module")
def directly():
    """Answers of the same controllers without a server."""
    with MathGrader(workers=1) as grader:

        def answer(question, spec="cmc@0.2", sampling=SAMPLING, budget=MAX_TOKENS, **settings):
            return live.answer(
                SimulatedEngine(mean_tokens=80),
                question,
                spec,
                grader=grader,
                sampling=sampling,
                max_branches=8,
                budget=budget,
                **settings,
            )

        yield answer


# --- answers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "budget"), [("cmc@0.2", MAX_TOKENS), pytest.param("sc@4", None, marks=pytest.mark.slow)]
)
def test_a_reply_is_the_answer_of_the_controller(address, directly, spec, budget):
    reply = ask(address, "2 + 2", f"sim:{spec}")
    answer = directly("2 + 2", spec, budget=budget)
    written = answer.usage.generated + answer.usage.forced
    assert answer.answer
    assert reply.model == f"sim:{spec}"
    assert reply.choices[0].message.content == answer.text
    assert reply.choices[0].finish_reason == "stop"
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (answer.usage.prompted, written)
    assert reply.usage.total_tokens == answer.usage.prompted + written
    assert reply.autotts == {
        "answer": answer.answer,
        "votes": [dataclasses.asdict(votes) for votes in answer.votes],
        "confidence": pytest.approx(answer.confidence, abs=1e-6),
        "tokens": answer.tokens,
        "sequential_tokens": answer.sequential_tokens,
        "branches": len(answer.texts),
        "probes": answer.usage.probes,
        "rounds": answer.rounds,
        "stop_reason": answer.stop_reason.name.lower(),
        "ignored": [],
    }


def test_a_stream_tells_the_decisions_and_then_the_answer(address, directly):
    with stream(address, "3 + 4", stream_options={"include_usage": True}) as told:
        *parts, last = told
    answer = directly("3 + 4")
    deltas = [part.choices[0].delta for part in parts]
    reasoning = [delta.reasoning_content for delta in deltas if hasattr(delta, "reasoning_content")]
    assert [line.split()[0] for line in reasoning] == [decision.action for decision in answer.decisions]
    assert f"({answer.decisions[-1].tokens:,} tokens)\n" in reasoning[-1]
    assert "".join(delta.content or "" for delta in deltas) == answer.text
    assert deltas[-2].content == answer.text, "the answer comes after all decisions"
    assert [part.choices[0].finish_reason for part in parts[-2:]] == [None, "stop"]
    assert parts[-1].autotts["tokens"] == answer.tokens
    assert last.usage.completion_tokens == answer.usage.generated + answer.usage.forced
    assert len({part.id for part in [*parts, last]}) == 1


@pytest.mark.parametrize("stream", [pytest.param(False, marks=pytest.mark.slow), True])
def test_the_answer_alone_and_the_decisions_by_request(address, directly, stream):
    options = {"reply": "answer", "decisions": True}
    asked = {"model": "sim:cmc@0.2", "messages": user("2 + 2"), "autotts": options, "stream": stream}
    reply, answer = post(address, asked), directly("2 + 2")
    if stream:
        *parts, said, ended = (json.loads(part) for part in reply.text.split("data: ")[1:-1])
        content = said["choices"][0]["delta"]["content"]
        told = [part["autotts"]["decision"] for part in parts if "autotts" in part]
        assert told == ended["autotts"]["decisions"], "each is told when it is taken, and all at the end"
    else:
        ended = reply.json()
        content = ended["choices"][0]["message"]["content"]
    assert content == answer.answer == ended["autotts"]["answer"]
    assert ended["autotts"]["decisions"] == [dataclasses.asdict(decision) for decision in answer.decisions]


def test_a_question_without_a_short_answer_gets_a_branch(directly):
    settings = dataclasses.replace(SETTINGS, answers="regex:nobody says this", reply="answer")
    with served(Engine(), settings) as address:
        reply = ask(address, "6 + 6")
    found = directly("6 + 6", "cmc@0.2", answers="regex:nobody says this", fall_back=True)
    assert reply.choices[0].message.content == found.text in found.texts
    assert (reply.autotts["answer"], reply.autotts["confidence"]) == (None, 0)
    assert [votes["answer"] for votes in reply.autotts["votes"]] == [None]


def test_plain_is_a_branch_as_the_model_writes_it(address, directly):
    whole = directly("4 + 4", "sc@1").texts[0]
    assert len(whole) > 60
    reply = ask(address, "4 + 4", "sim:plain")
    assert (reply.model, reply.choices[0].message.content) == ("sim:plain", whole)
    assert (reply.choices[0].finish_reason, reply.autotts["branches"]) == ("stop", 1)
    short = ask(address, "4 + 4", "sim:plain", max_tokens=40).choices[0]
    assert (short.message.content, short.finish_reason) == (whole[:40], "length")
    stop = whole[50:53]
    ended = ask(address, "4 + 4", "sim:plain", stop=["", "none", stop])
    assert ended.choices[0].message.content == whole[: whole.index(stop)]
    greedy = ask(address, "4 + 4", "sim:plain", temperature=0)
    assert greedy.choices[0].message.content == "4}", "what the engine says at temperature 0"
    assert ended.autotts["ignored"] == greedy.autotts["ignored"] == []
    alone = ask(address, "4 + 4", "sim:plain", extra_body={"autotts": {"reply": "answer"}})
    assert alone.choices[0].message.content == alone.autotts["answer"]


@pytest.mark.slow
def test_a_plain_branch_that_the_server_cuts_off_has_not_stopped():
    with served(
        Engine(), dataclasses.replace(SETTINGS, sampling=Sampling(interval=20, max_tokens=60))
    ) as address:
        (choice,) = ask(address, "6 + 6", "sim:plain").choices
    assert (len(choice.message.content), choice.finish_reason) == (60, "length")


def test_single_stops_a_branch_early(address):
    reply = ask(address, "6 + 6", "sim:single@2")
    plain = ask(address, "6 + 6", "sim:plain")
    said = reply.choices[0].message.content
    read, _, forced = said.partition("\n\nThe final answer is \\boxed{")
    assert plain.choices[0].message.content.startswith(read)
    assert forced == reply.autotts["answer"] + "}"
    assert len(read) == reply.autotts["tokens"] < plain.autotts["tokens"]
    assert (reply.autotts["branches"], reply.autotts["stop_reason"]) == (1, "decided")
    assert ask(address, "6 + 6", "sim:single@2", temperature=0).autotts["ignored"] == []


@pytest.mark.parametrize(
    ("thinking", "text"),
    [
        (TAGS, "<think>\nFirst 4.\n</think>\n\nThe answer is 4."),
        (TAGS, "First 4.\n</think>\n\nThe answer is 4."),
        (CHANNELS, f"<|channel|>analysis<|message|>First 4.{CHANNELS.close}The answer is 4."),
    ],
)
def test_thinking_is_apart_from_the_content(directly, thinking, text):
    answer = dataclasses.replace(directly("2 + 2"), text=text)
    message = Reply("sim", "branch", thinking=thinking).whole(answer)["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("First 4.", "The answer is 4.")
    parts = Reply("sim", "branch", thinking=thinking).end(answer).split("data: ")[1:3]
    deltas = [json.loads(part)["choices"][0]["delta"] for part in parts]
    assert deltas == [{name: message[name]} for name in ("reasoning_content", "content")]


def test_the_name_alone_is_cmc_at_a_half(address):
    assert ask(address, "2 + 2", "sim").model == "sim:cmc@0.5"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:neural was trained on 500 tokens between two probes")
def test_every_model_that_is_listed_answers(address):
    with client(address) as asking:
        names = [model.id for model in asking.models.list()]
    assert names[:2] == ["sim", "sim:sc"]
    assert "sim:cmc" in names
    assert "sim:esc" not in names, "it opens 16 branches at least"
    for name in names:
        assert ask(address, "2 + 2", name).choices[0].message.content


def test_a_model_that_can_be_asked_is_retrieved(address):
    with client(address) as asking:
        for name in ("sim", "sim:sc", "sim:cmc@0.2"):
            assert asking.models.retrieve(name).id == name
        with pytest.raises(openai.NotFoundError) as refusal:
            asking.models.retrieve("sim:esc")
        assert refusal.value.code == "model_not_found"
    with client(address, "wrong") as asking, pytest.raises(openai.AuthenticationError):
        asking.models.retrieve("sim")


@pytest.mark.parametrize("others", [{}, pytest.param({"top_k": 1}, marks=pytest.mark.slow), {"min_p": 0.9}])
def test_parameters_of_sampling_are_heeded(address, directly, others):
    reply = ask(address, "5 + 5", seed=7, temperature=0.9, top_p=0.5, extra_body=others)
    sampling = Sampling(20, 160, temperature=0.9, top_p=0.5, seed=7, **others)
    answer = directly("5 + 5", sampling=sampling)
    assert reply.autotts["tokens"] == answer.tokens
    assert reply.autotts["votes"] == [dataclasses.asdict(votes) for votes in answer.votes]
    assert not reply.autotts["ignored"]


@pytest.mark.slow
def test_seeds_make_the_difference_between_replies(address):
    assert len({ask(address, "5 + 5", seed=seed).autotts["tokens"] for seed in range(4)}) > 1
    assert ask(address, "5 + 5").autotts == ask(address, "5 + 5").autotts


def test_system_messages_and_parts_of_text_are_read(address):
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "5 "}, {"type": "text", "text": "+ 5"}]},
    ]
    with client(address) as asking:
        reply = asking.chat.completions.create(model="sim:sc@4", messages=messages)
    plain = ask(address, "5 + 5", "sim:sc@4")
    assert reply.usage.prompt_tokens > plain.usage.prompt_tokens


def test_the_model_sees_the_whole_conversation(engine, address):
    """Whatever a client sends back of an earlier reply, null fields included."""
    with client(address) as asking:
        first = asking.chat.completions.create(model="sim:sc@4", messages=user("5 + 5"))
        said = first.choices[0].message.model_dump()
        assert said["tool_calls"] is None
        messages = [
            {"role": "developer", "content": "Be brief."},
            *user("5 + 5"),
            said,
            {"role": "system", "content": "Be kind."},
            *user("and 6?"),
        ]
        engine.prompts.clear()
        second = asking.chat.completions.create(model="sim:sc@4", messages=messages)
        again = asking.chat.completions.create(model="sim:sc@4", messages=messages)
    begun = f"Be brief. 5 + 5 {said['content']} Be kind.\nand 6?\n"
    assert {prompt[: len(begun)] for prompt in engine.prompts} == {begun}
    assert again.autotts == second.autotts != first.autotts


@pytest.mark.parametrize(
    "limits",
    [
        {"max_completion_tokens": 100},
        {"max_tokens": 150, "extra_body": {"autotts": {"budget": 100}}},
    ],
)
def test_max_tokens_is_a_budget(address, directly, limits):
    reply = ask(address, "6 + 6", **limits)
    answer = directly("6 + 6", budget=100)
    assert reply.choices[0].finish_reason == "length"
    assert reply.autotts["tokens"] == answer.tokens <= 100


@pytest.mark.parametrize(
    ("spec", "stream"),
    [
        ("cmc@0.2", True),
        ("sc@4", False),
        pytest.param("cmc@0.2", False, marks=pytest.mark.slow),
        pytest.param("sc@4", True, marks=pytest.mark.slow),
    ],
)
def test_no_reply_is_without_a_branch(address, spec, stream):
    with pytest.raises(openai.BadRequestError, match="give 1 at least, as max_tokens") as refusal:
        ask(address, "6 + 6", f"sim:{spec}", max_tokens=0, stream=stream)
    assert refusal.value.code == "budget_too_small"
    for budget in (1, 100, 160):
        reply = ask(address, "6 + 6", f"sim:{spec}", max_tokens=budget)
        assert reply.choices[0].message.content
        assert reply.choices[0].finish_reason == "length"
        assert 0 < reply.autotts["tokens"] <= budget


IGNORED = {
    "user": "someone",
    "metadata": {"for": "a test"},
    "store": False,
    "temperature": 0,
    "stop": ["Question:"],
}
NEUTRAL = {
    "n": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0.0,
    "response_format": {"type": "text"},
    "tools": [],
    "logprobs": False,
    "top_logprobs": 0,
    "stop": None,
    "top_k": -1,
    "min_p": 0.0,
}


@pytest.mark.parametrize(
    ("parameters", "ignored", "stream"),
    [
        (IGNORED, sorted(IGNORED), True),
        (NEUTRAL, [], False),
        pytest.param(IGNORED, sorted(IGNORED), False, marks=pytest.mark.slow),
        pytest.param(NEUTRAL, [], True, marks=pytest.mark.slow),
    ],
)
def test_parameters_without_effect_are_accepted_and_named(address, parameters, ignored, stream):
    asked = {"model": "sim:sc@4", "messages": user("2 + 2")}
    reply = post(address, asked | parameters | {"stream": stream})
    assert reply.status_code == 200
    assert reply.headers.get("x-autotts-ignored", "") == ", ".join(ignored)
    told = json.loads(reply.text.split("data: ")[-2]) if stream else reply.json()
    plain = post(address, asked).json()
    assert told["autotts"] == plain["autotts"] | {"ignored": ignored}


# --- what is refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"n": 0}, "n: "),
        ({"n": 2, "model": "sim:single"}, "single branch"),
        ({"logprobs": True}, "logprobs is not supported; sim:plain passes it on where"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"stop": 3}, "stop"),
        ({"autotts": {"reply": "all"}}, "autotts.reply"),
        ({"autotts": {"budget": -1}}, "autotts.budget"),
        ({"autotts": {"beta": 1}}, "autotts.beta is not supported"),
        ({"frequency_penalty": 0.5}, "frequency_penalty"),
        ({"reasoning_effort": "low"}, "reasoning_effort"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": 3}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"min_p": 1.5}, "min_p"),
        ({"seed": 2**63}, "seed"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"stream": "yes"}, "stream"),
        ({"messages": []}, "messages"),
        ({"messages": "2 + 2"}, "messages"),
        ({"messages": 2049 * user("2 + 2")}, "more than 2048 messages"),
        ({"messages": [{"role": "user", "content": 2048 * [{"type": "text", "text": "2"}]}]}, "parts"),
        ({"messages": [{"role": "user", "content": 4}]}, "content"),
        ({"messages": [*user("2 + 2"), {"role": "assistant", "content": "4"}]}, "user message"),
        ({"messages": [{"role": "system", "content": "2 + 2"}]}, "user message"),
        ({"messages": user(" ")}, "with a text"),
        ({"messages": [{"role": "tool", "content": "4"}, *user("why?")]}, "messages.0: turns of tools"),
        (
            {"messages": [{"role": "assistant", "content": "", "tool_calls": [{}]}, *user("?")]},
            "turns of tools",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "'image_url' are not",
        ),
        ({"messages": [{"role": "tool", "content": None}, *user("why?")]}, "messages.0: turns of tools"),
        ({"model": None}, "model"),
        ({"messages": user("9" * 900)}, "902 tokens"),
    ],
)
def test_what_cannot_be_done_is_refused(address, parameters, named):
    reply = post(address, {"model": "sim:sc@4", "messages": user("2 + 2"), **parameters})
    error = reply.json()["error"]
    assert reply.status_code == 400
    assert error["type"] == "invalid_request_error"
    assert named in error["message"]
    if error["message"].startswith(tuple(parameters)):
        assert error["param"].startswith(tuple(parameters))


def test_what_the_chat_template_refuses_is_the_client_s_to_change(address, engine, monkeypatch):
    def refuse(_messages):
        raise InputError("the model's chat template refuses the messages: roles must alternate")

    monkeypatch.setattr(engine.tokenizer, "chat", refuse)
    with pytest.raises(openai.BadRequestError, match="roles must alternate") as refusal:
        ask(address, "2 + 2")
    assert refusal.value.code is None


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"model": "\xff"}', b'{"model": "\\ud800"}'])
def test_what_is_no_request_is_refused(address, body):
    reply = post(address, body)
    assert reply.status_code == 400
    assert reply.json()["error"]["message"]


@pytest.mark.parametrize(
    "model",
    [
        "gpt-4o",
        "simple",
        "sim:best",
        "sim:cmc@2",
        "sim:cmc@x",
        "sim:cmc@nan",
        "sim:sc@9",
        "sim:sc@1e99",
        "sim:os:path@1",
        f"sim:{__file__}:Engine",
        "sim:neural:/etc/passwd",
        "x" * 100_000,
        "sim:cmc@0.5" + "0" * 100_000,  # as a name it would be kept
    ],
)
def test_an_unknown_model_is_not_found(address, model):
    with pytest.raises(openai.NotFoundError) as refusal:
        ask(address, "2 + 2", model)
    assert refusal.value.code == "model_not_found"
    assert len(str(refusal.value)) < 1000


@pytest.mark.parametrize("allowed", ["https://chat.example", pytest.param("*", marks=pytest.mark.slow)])
def test_pages_of_an_allowed_origin_may_use_the_server(allowed):
    settings = dataclasses.replace(SETTINGS, allowed_origins=(allowed,))
    asks = {
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,x-stainless-os",
    }
    with served(Engine(), settings) as address:
        for origin in ("https://chat.example", "https://evil.example"):
            told = httpx.options(f"{address}/v1/chat/completions", headers={"origin": origin, **asks})
            permitted = allowed in ("*", origin)
            assert told.is_success == permitted
            assert (told.headers.get("access-control-allow-origin") in (allowed, origin)) == permitted
    assert "access-control-allow-credentials" not in told.headers


def test_pages_of_other_origins_may_not(address):
    asks = {"origin": "https://chat.example", "access-control-request-method": "POST"}
    assert httpx.options(f"{address}/v1/chat/completions", headers=asks).status_code == 405
    assert "access-control-allow-origin" not in get(f"{address}/health", headers=asks).headers


def test_the_page_runs_and_reaches_nothing_else(address):
    page = get(f"{address}/")
    policy = dict(part.strip().split(" ", 1) for part in page.headers["content-security-policy"].split(";"))
    assert page.headers["content-type"].startswith("text/html")
    assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert all(policy[name].startswith("'sha256-") for name in ("script-src", "style-src"))
    assert "://" not in page.text.replace("autotts-jax", ""), "nothing from elsewhere"


def test_metrics_count_what_was_done():
    with served(Engine()) as address:
        sums = {"charged": 0, "branches": 0}
        for number in range(3):
            reply = ask(address, f"{number} + 2")
            sums["charged"] += reply.autotts["tokens"]
            sums["branches"] += reply.autotts["branches"]
        with pytest.raises(openai.BadRequestError):
            ask(address, "2 + 2", max_tokens=0)
        with pytest.raises(openai.NotFoundError):
            ask(address, "2 + 2", "sim:best")
        assert get(f"{address}/metrics").status_code == 401
        assert get(f"{address}/nowhere").status_code == 404
        told = get(f"{address}/metrics", headers={"authorization": f"Bearer {KEY}"})
    assert told.headers["content-type"].startswith("text/plain")
    found = counted(told.text)
    assert found["requests_total", "200", "chat"] == 3
    assert found["requests_total", "400", "chat"] == found["requests_total", "404", "chat"] == 1
    assert found["requests_total", "401", "metrics"] == found["requests_total", "404", "none"] == 1
    assert found["questions_total", "answered", "cmc"] == 3
    assert found["questions_total", "cmc", "refused"] == 1
    assert found["tokens_charged_total", "cmc"] == sums["charged"]
    assert found["branches_total", "cmc"] == sums["branches"]
    assert found["engine_tokens_total", "generated"] > 0
    assert sum(value for (name, *_), value in found.items() if name == "stops_total") == 3
    assert found["questions_under_way",] == found["engine_requests",] == 0


def test_tokens_saved_are_those_of_branches_that_are_taken_to_be_as_long_as_others(directly):
    answer = directly("2 + 2")
    decisions = [
        Decision(0, "open", [0, 1, 2], [1, 1, 1], ["4"] * 3, 60),
        Decision(1, "advance", [0, 1], [3, 5], ["4"] * 2, 220),
    ]
    ends = [Finish.stop, Finish.length, None]
    assert tokens_saved(dataclasses.replace(answer, decisions=decisions, ends=ends), 20) == 20 * (5 - 1)
    assert tokens_saved(dataclasses.replace(answer, decisions=decisions, ends=[None] * 3), 20) == 0


@pytest.mark.parametrize("key", ["wrong", f"{KEY}x", "schlüssel"])
def test_a_wrong_key_is_refused(address, key):
    headers = {"authorization": f"Bearer {key}".encode()}
    for path in ("models", "chat/completions"):
        method = "GET" if path == "models" else "POST"
        reply = httpx.request(method, f"{address}/v1/{path}", headers=headers)
        assert reply.status_code == 401
        assert reply.json()["error"]["code"] == "invalid_api_key"


@pytest.mark.parametrize("scheme", ["bearer", "BEARER", "Bearer "])
def test_the_scheme_of_a_key_may_be_written_in_any_case(address, scheme):
    reply = get(f"{address}/v1/models", headers={"authorization": f"{scheme} {KEY}"})
    assert reply.status_code == 200


@pytest.mark.parametrize("header", [KEY, f"Basic {KEY}", f"Bearer{KEY}", "Bearer", ""])
def test_a_key_of_another_scheme_is_refused(address, header):
    assert get(f"{address}/v1/models", headers={"authorization": header}).status_code == 401


@pytest.mark.slow
def test_a_name_that_leads_here_is_no_way_in_without_a_key():
    settings = dataclasses.replace(SETTINGS, api_key=None, allowed_hosts=("model.lan",))
    with served(Engine(), settings) as address:
        port = address.rpartition(":")[2]
        allowed = dict.fromkeys(("localhost", "127.0.0.1", "[::1]", "model.lan", "Model.lan"), 200)
        others = ("[", "", "e_vil.example", "127.0.0.1.evil.example", "x")
        malformed = ("[::1].evil.example", "[::1]x", "x@localhost", "localhost#", "localhost/", "[localhost]")
        hosts = allowed | dict.fromkeys((*others, *malformed, "::1", "127.0.0.1:1", "[model.lan]"), 403)
        for host, status in hosts.items():
            for path in ("/", "/metrics", "/v1/models"):
                reply = get(f"{address}{path}", headers={"host": f"{host}:{port}"})
                assert reply.status_code == status, host
        for host in ("x", "localhost"):  # no redirect to a host that is named
            assert get(f"{address}/metrics/", headers={"host": host}).status_code == 404
    assert "--allow-host" in reply.json()["error"]["message"]


def test_an_empty_key_in_the_environment_is_refused(monkeypatch, capsys):
    monkeypatch.setenv("AUTOTTS_API_KEY", "")
    monkeypatch.setattr(sys, "argv", ["autotts-jax", "serve", "--engine", "simulated", "--port", "0"])
    monkeypatch.setattr(serving.uvicorn.Server, "run", lambda *_: None)
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 2
    assert "the API key is empty" in capsys.readouterr().err


def test_a_long_prompt_has_openais_code(address):
    with pytest.raises(openai.BadRequestError) as refusal, stream(address, "9" * 900):
        pass
    assert (refusal.value.code, refusal.value.param) == ("context_length_exceeded", "messages")


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (401, {"authorization": "Bearer wrong"}),
        (413, {}),
        (415, {"content-type": "text/plain"}),
    ],
)
def test_clients_that_send_a_large_body_whole_can_read_why_it_is_refused(address, status, headers):
    """As `urllib` does, which asks for the connection to be closed after the reply."""
    headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json", **headers}
    request = urllib.request.Request(
        f"{address}/v1/chat/completions", data=b" " * (8 * service.MAX_BODY), headers=headers
    )
    with pytest.raises(urllib.error.HTTPError, match=str(status)) as refusal:
        urllib.request.urlopen(request)
    assert json.load(refusal.value)["error"]["message"]


def test_other_hosts_are_refused_after_a_large_body(engine):
    with served(engine, dataclasses.replace(SETTINGS, api_key=None)) as address:
        request = urllib.request.Request(
            f"{address}/v1/chat/completions",
            data=b" " * (8 * service.MAX_BODY),
            headers={"host": "example.org", "content-type": "application/json"},
        )
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(request)


def test_a_request_that_does_not_end_is_refused_all_the_same(address):
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as client:
        client.sendall(b"POST /v1/models HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999\r\n\r\n")
        client.sendall(b" " * (connections.MAX_READ + (1 << 20)))
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 405 ")


def test_a_page_that_is_not_there_is_said(address):
    missing = get(f"{address}/v2")
    assert (missing.status_code, missing.json()["error"]["message"]) == (404, "Not Found")


# --- limits, and clients that leave -----------------------------------------------------------------------


def test_over_the_limit_of_requests_and_of_time(engine):
    limited = ServerSettings("sim", SAMPLING, max_branches=8, max_requests=2, timeout=3.0)
    before = engine.cancelled
    with served(engine, limited) as address, ThreadPoolExecutor(2) as threads:
        slow = [threads.submit(ask, address, "wait"), threads.submit(told, address, "wait")]
        until(lambda: health(address)["requests"] == 2)
        with pytest.raises(openai.RateLimitError) as refusal:
            ask(address, "2 + 2")
        assert refusal.value.response.headers["retry-after"] == "1"
        with pytest.raises(openai.InternalServerError) as late:
            slow[0].result()
        assert late.value.status_code == 504
        assert late.value.code == "timeout"
        with pytest.raises(openai.APIError, match="no answer within 3 seconds"):
            slow[1].result()
        until(lambda: idle(engine, address))
        assert engine.cancelled == before + 2
        assert ask(address, "2 + 2").choices[0].message.content


@pytest.mark.slow
def test_32_clients_of_which_a_third_leave(directly):
    engine = Engine()
    before = set(threading.enumerate())
    questions = [f"{'wait' if i % 3 == 0 else 'add'} {i}" for i in range(32)]
    expected = {question: directly(question) for question in questions if "add" in question}

    def visit(number, question):
        """A client that leaves closes its stream after the first decision, or is tired of waiting."""
        if "add" in question:
            return ask(address, question)
        if number % 2:
            with stream(address, question) as parts:
                next(part for part in parts if hasattr(part.choices[0].delta, "reasoning_content"))
        else:
            with pytest.raises(openai.APITimeoutError):
                ask(address, question, timeout=1.0)
        return None

    with served(engine) as address:
        with ThreadPoolExecutor(32) as clients:
            replies = list(clients.map(visit, range(32), questions))
        until(lambda: idle(engine, address))
        assert engine.cancelled == 11
        assert engine.most > 8, "they ran side by side"
        for question, reply in zip(questions, replies, strict=True):
            if reply is not None:
                assert reply.choices[0].message.content == expected[question].text
                assert reply.autotts["tokens"] == expected[question].tokens
    assert set(threading.enumerate()) == before


def test_an_engine_that_failed_shows_in_the_health_until_it_works_again(address, engine):
    """Nobody has to ask a question for it to be found to work."""
    engine.broken = True
    try:
        with pytest.raises(openai.InternalServerError, match="engine failed") as failure:
            ask(address, "2 + 2")
        until(lambda: get(f"{address}/health").status_code == 503)
        assert health(address)["status"] == "engine failed"
        assert get(f"{address}/live").status_code == 200
    finally:
        engine.broken = False
    assert failure.value.status_code == 503
    assert "0xdeadbeef" not in str(failure.value)
    until(lambda: get(f"{address}/health").status_code == 200)
    assert health(address)["status"] == "ok"


class Held(SimulatedEngine):
    """What controllers are compiled with: the first, which the server waits for, and no other until then."""

    gate: threading.Event
    made = 0

    def __init__(self, **options):
        super().__init__(**options)
        type(self).made += 1
        self._first = self.made == 1

    def generate(self, requests, cancel=None):
        while not (self._first or self.gate.wait(0.01)):
            if cancel is not None and cancel.is_set():
                raise Cancelled
        return super().generate(requests, cancel)


@pytest.mark.usefixtures("compiled")
def test_what_is_compiled_answers_while_others_are_compiled(monkeypatch):
    monkeypatch.setattr(Held, "gate", threading.Event(), raising=False)
    monkeypatch.setattr(Held, "made", 0)
    monkeypatch.setattr(compiling, "SimulatedEngine", Held)
    with served(Engine()) as address, ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(ask, address, "2 + 2", "sim:sc@4")
        until(lambda: health(address)["requests"] == 1)
        try:
            assert ask(address, "2 + 2", timeout=60).choices[0].message.content
            assert not waiting.done()
        finally:
            Held.gate.set()
        assert waiting.result().choices[0].message.content


@pytest.mark.slow
def test_all_published_controllers_are_compiled(caplog, monkeypatch):
    played = []

    def recorded(player, *settings):
        play_simulated(player, *settings)
        played.append(player.name)

    play_simulated = compiling.play_simulated
    monkeypatch.setattr(compiling, "play_simulated", recorded)
    caplog.set_level("INFO", "uvicorn.error")
    with served(Engine(), published=published):
        until(lambda: not any(thread.name == "compile" for thread in threading.enumerate()))
    assert "all controllers are compiled" in caplog.messages
    assert len(set(played)) > len(PUBLISHED) / 2


@pytest.mark.usefixtures("compiled")
def test_the_server_ends_while_controllers_are_compiled(monkeypatch):
    monkeypatch.setattr(Held, "gate", threading.Event(), raising=False)
    monkeypatch.setattr(Held, "made", 0)
    monkeypatch.setattr(compiling, "SimulatedEngine", Held)
    before = set(threading.enumerate())
    with served(Engine()) as address:
        assert any(thread.name == "compile" for thread in threading.enumerate())
        assert ask(address, "2 + 2").choices[0].message.content
    assert set(threading.enumerate()) == before


def read(address, question, stream):
    """Asks, and reads the reply to its end."""
    with client(address, timeout=10) as asking:
        reply = asking.chat.completions.create(model="sim:sc@4", messages=user(question), stream=stream)
        return list(reply)


UPSTREAM = """
from tests.completions_server import Server
server = Server()
server.delay = 1
print(server.url, flush=True)
server.serve_forever()
"""


@pytest.mark.slow
def test_when_the_server_behind_it_dies_each_client_is_told_within_seconds(monkeypatch):
    monkeypatch.setattr(HubTokenizer, "from_pretrained", lambda *_: ByteTokenizer())
    upstream = subprocess.Popen(
        [sys.executable, "-c", UPSTREAM], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]
    )
    try:
        url = upstream.stdout.readline().strip()
        opened = EngineOptions("digits", "server", url, engine_option=["max_connections=16"])
        with (
            contextlib.closing(opened.opener(waited_for=True)()) as engine,
            served(engine) as address,
            ThreadPoolExecutor(4) as clients,
        ):
            asking = [clients.submit(read, address, f"{i} + {i}", stream=bool(i % 2)) for i in range(4)]
            until(lambda: engine.running == 16)
            upstream.kill()
            for i, asked in enumerate(asking):
                with pytest.raises(openai.APIError, match="the engine failed") as failure:
                    asked.result()
                assert i % 2 or failure.value.status_code == 503
            until(lambda: health(address)["status"] == "engine failed")
    finally:
        upstream.kill()
        upstream.communicate()


# --- the server -------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
def test_a_signal_ends_the_server_and_what_is_under_way(monkeypatch, caplog, number):
    caplog.set_level("INFO", "uvicorn.error")
    engine = Engine()
    address = f"http://127.0.0.1:{free_port()}"
    before = set(threading.enumerate())
    handler = signal.getsignal(signal.SIGTERM)

    def ask_and_end():
        until(lambda: reachable(address))
        half = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        half += f"authorization: Bearer {KEY}\r\ncontent-length: 10\r\n\r\n12345".encode()
        place = ("127.0.0.1", int(address.rpartition(":")[2]))
        with (
            socket.create_connection(place, timeout=60) as unfinished,
            ThreadPoolExecutor(1) as threads,
            contextlib.suppress(ConnectionResetError),
        ):
            unfinished.sendall(half)
            waiting = threads.submit(ask, address, "wait")
            until(lambda: engine.running)
            os.kill(os.getpid(), number)
            with pytest.raises(openai.InternalServerError, match="the server is ending"):
                waiting.result()
            assert unfinished.recv(1) == b"", "the server does not wait for its end"

    # What the server gives clients to read, and what a request may take, ends nothing here.
    monkeypatch.setattr(serving, "GRACE_SECONDS", 3600)
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 3600)
    with ThreadPoolExecutor(1) as threads:
        told = threads.submit(ask_and_end)
        serve(engine, SETTINGS, port=int(address.rpartition(":")[2]))
        told.result()
    assert (engine.running, engine.cancelled) == (0, 1)
    assert "Traceback" not in caplog.text
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    assert f"serving at {address}/v1\n" in caplog.text
    assert signal.getsignal(signal.SIGTERM) is handler
    assert set(threading.enumerate()) == before


@pytest.mark.slow
def test_the_command_serves_until_it_is_told_to_end():
    code = "from autotts_jax.cli.main import main; main()"
    options = ["--engine", "simulated", "--port", "0", "--interval", "20", "--max-tokens", "100"]
    limits = ["--max-branches", "4", "--require-key", KEY, "--name", "sim"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, "serve", *options, *limits],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        told = next(line for line in process.stderr if "serving at" in line)
        address = told.split()[-1].removesuffix("/v1")
        assert ask(address, "1 + 1", model="sim:sc@2").choices[0].message.content
        assert get(f"{address}/health", params={"api_key": "secret"}).is_success
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        log, _ = process.communicate()
    assert '"GET /health HTTP/1.1" 200' in log
    assert "secret" not in log


@pytest.mark.slow
def test_the_command_writes_nothing_and_minds_no_full_disk(tmp_path):
    """Its log goes to a full disk; it is killed, started again beside itself, and ended."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    code = "from autotts_jax.cli.main import main; main()"
    options = ["--engine", "simulated", "--interval", "20", "--max-tokens", "100", "--max-branches", "4"]
    line = [sys.executable, "-c", code, "serve", *options, "--port", str(port), "--require-key", KEY]
    with Path("/dev/full").open("w") as full, contextlib.ExitStack() as ended:

        def start():
            process = subprocess.Popen(line, cwd=tmp_path, stdout=full, stderr=full)
            ended.callback(process.wait)
            ended.callback(process.kill)
            until(lambda: reachable(address) or process.poll() is not None)
            return process

        killed = start()
        assert ask(address, "1 + 1", model="simulated:sc@2").choices[0].message.content
        killed.kill()
        killed.wait()
        again = start()
        second = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert second.returncode == 2
        assert "cannot listen on 127.0.0.1" in second.stderr
        assert ask(address, "1 + 1", model="simulated:sc@2").choices[0].message.content
        again.send_signal(signal.SIGTERM)
        assert again.wait() == 0
    assert list(tmp_path.iterdir()) == []


def reachable(address):
    with contextlib.suppress(httpx.TransportError):
        return get(f"{address}/health").is_success


@pytest.mark.parametrize(
    ("host", "key", "warns"),
    [("127.0.0.1", None, False), ("0.0.0.0", None, True), ("0.0.0.0", KEY, False)],
)
def test_it_warns_where_others_can_reach_it_without_a_key(monkeypatch, caplog, host, key, warns):
    monkeypatch.setattr(serving.uvicorn.Server, "run", lambda *_: None)
    serve(Engine(), ServerSettings("sim", SAMPLING, api_key=key), host, 0)
    assert ("no API key" in caplog.text) == warns


def test_a_port_that_is_taken_is_an_error_of_the_user():
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(InputError, match=r"cannot listen on .*, port"),
    ):
        serve(Engine(), SETTINGS, port=taken.getsockname()[1])


@pytest.mark.parametrize(
    ("host", "message"),
    [
        ("", "the host is empty"),
        ("nowhere.invalid", "cannot listen"),
        ("ü" * 70, "cannot"),
    ],
)
def test_a_host_that_nothing_can_listen_on_is_an_error_of_the_user(monkeypatch, host, message):
    monkeypatch.setattr(serving.uvicorn.Server, "run", lambda *_: None)
    with pytest.raises(InputError, match=message):
        serve(Engine(), SETTINGS, host, 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"api_key": ""}, "API key"),
        ({"api_key": "a\nb"}, "API key"),
        ({"name": ""}, "name is empty"),
        ({"max_requests": 0}, "max_requests is 0"),
        ({"max_branches": 0}, "max_branches is 0"),
        ({"timeout": 0}, "timeout is 0"),
        ({"reply": "all"}, "unknown reply 'all'"),
        ({"sampling": dataclasses.replace(SAMPLING, temperature=0)}, "temperature is 0"),
        ({"budget": -1}, "budget"),
        ({"allowed_origins": ("*",)}, "without a key"),
        ({"allowed_origins": ("https://chat.example/",)}, "not an origin"),
        ({"allowed_origins": ("chat.example",)}, "not an origin"),
        ({"sampling": Sampling()}, "lower"),
        ({"answers": "best"}, "extractor 'best'"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        create_app(Engine(), ServerSettings(**{"name": "sim", "sampling": SAMPLING, **changes}))


@pytest.mark.slow
def test_the_clients_of_the_guide_work(engine, monkeypatch):
    monkeypatch.setenv("AUTOTTS_API_KEY", KEY)
    settings = ServerSettings("simulated", SAMPLING, max_branches=8, api_key=KEY)
    blocks = re.findall(r"^```py\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert blocks
    with served(engine, settings) as address:
        exec("\n".join(blocks).replace("http://127.0.0.1:8000", address), {"__name__": "guide"})
