"""A server whose upstream fails in all the ways that servers do, and whose clients leave."""

import contextlib
import dataclasses
import itertools
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pytest
from completions_server import drop, half, running_server, say, trickle
from serving import KEY, SETTINGS, Engine, ask, client, counted, get, health, post, served, until, user

from autotts_jax.collect import EngineError, ServerEngine
from autotts_jax.collect.simulated import ByteTokenizer
from autotts_jax.live import readiness, service
from autotts_jax.live.structured import read_form

HEADERS = {"authorization": f"Bearer {KEY}"}
QUICK = {"attempts": 2, "pause": 0.01}
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]


def hang(handler):
    handler.close_connection = True
    time.sleep(2)


@pytest.fixture(scope="module")
def behind():
    """An upstream, and the address of a server in front of it."""
    with running_server() as server, contextlib.closing(engine(server)) as opened, served(opened) as address:
        yield server, address


def engine(server, **options):
    options = {"tokenizer": ByteTokenizer(), "max_connections": 16, "timeout": 1.0} | QUICK | options
    return ServerEngine(server.url, "digits", **options)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(readiness, "FIRST_PAUSE", 0.05)
    monkeypatch.setattr(readiness, "MAX_PAUSE", 0.1)


@pytest.fixture(autouse=True)
def mended(behind):
    """What a test broke works again."""
    yield
    server, address = behind
    server.troubles.clear()
    until(lambda: health(address)["status"] == "ok" and health(address)["requests"] == 0)


def metrics(address):
    return counted(get(f"{address}/metrics", headers=HEADERS).text)


def events(text):
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


# --- errors of requests, and of the engine -----------------------------------------------------------------

MODELS = ("sim:sc@4", "sim:plain")
REFUSALS = {
    "400": (400, {"error": {"message": "no such thing"}}, 400, None),
    "422": (422, {"error": "no such thing"}, 400, None),
    "context": (
        400,
        {"error": {"message": "it exceeds the available context size", "type": "exceed_context_size_error"}},
        400,
        "context_length_exceeded",
    ),
    "429": (429, {"error": {"message": "slow down"}}, 429, "rate_limit_exceeded"),
}


@pytest.mark.parametrize(
    ("status", "content", "shown", "code", "model"),
    [
        pytest.param(*refusal, model, id=f"{name}-{model}", marks=[pytest.mark.slow] * (model != quick))
        for (name, refusal), quick in zip(REFUSALS.items(), itertools.cycle(MODELS), strict=False)
        for model in MODELS
    ],
)
def test_what_is_about_a_request_is_its_client_s_and_leaves_the_server_ready(
    behind, status, content, shown, code, model
):
    server, address = behind
    asked = {"model": model, "messages": user("2 + 2")}
    server.troubles = [say(status, content, Retry_After="0")] * 40
    reply = post(address, asked)
    assert (reply.status_code, reply.json()["error"]["code"]) == (shown, code)
    assert ("retry-after" in reply.headers) == (shown == 429)
    assert server.url not in reply.text
    told = events(post(address, asked | {"stream": True}).text)
    assert told[-1]["error"]["code"] == code
    assert get(f"{address}/health").status_code == 200


FAILURES = {
    "401": say(401, {"error": "no"}),
    "500": say(500, {"error": "out of memory"}),
    "dropped": drop,
    "half a reply": half,
    "404": say(404, {"error": {"message": "model 'digits' not found", "type": "not_found_error"}}),
    "hangs": hang,
    "drips": trickle,
}


@pytest.mark.parametrize(
    ("failure", "model", "stream"),
    [
        pytest.param(failure, model, stream, id=f"{name}-{model}", marks=[pytest.mark.slow] * slow)
        for (name, failure), quick in zip(FAILURES.items(), itertools.cycle(MODELS), strict=False)
        for model, stream in zip(MODELS, (False, True), strict=True)
        for slow in [model != quick]
    ],
)
def test_one_failure_is_told_to_its_client_alone(behind, failure, model, stream):
    server, address = behind
    server.troubles = [failure] * 2 * 4
    reply = post(address, {"model": model, "messages": user("2 + 2"), "stream": stream})
    error = events(reply.text)[-1]["error"] if stream else reply.json()["error"]
    assert (reply.status_code, error["code"]) == (200 if stream else 503, "engine_failed")
    server.troubles.clear()
    until(lambda: get(f"{address}/health").status_code == 200)
    assert ask(address, "2 + 2", "sim:sc@4").choices[0].message.content


def test_it_is_ready_again_by_itself_when_the_server_behind_it_is_back():
    with running_server() as server:
        port, opened = server.server_address[1], engine(server)
        with contextlib.closing(opened), served(opened) as address:
            server.troubles = [drop] * 1000
            with pytest.raises(openai.InternalServerError):
                ask(address, "2 + 2", "sim:sc@4")
            until(lambda: get(f"{address}/health").status_code == 503)
            assert health(address)["status"] == "engine failed"
            assert get(f"{address}/live").status_code == 200
            server.shutdown()
            server.server_close()
            time.sleep(0.3)
            with running_server(port):
                began = time.monotonic()
                until(lambda: get(f"{address}/health").status_code == 200)
                assert time.monotonic() - began < 15


def test_who_asks_after_a_long_silence_has_the_engine_asked(behind, monkeypatch):
    server, address = behind
    monkeypatch.setattr(readiness, "QUIET_SECONDS", 0.0)
    server.troubles = [drop] * 1000
    until(lambda: get(f"{address}/health").status_code == 503)
    server.troubles.clear()
    until(lambda: get(f"{address}/health").status_code == 200)


class Stuck(Engine):
    """Does not answer while it is stuck, and does not mind being cancelled."""

    stuck = False

    def generate(self, requests, cancel=None):
        while self.stuck:
            time.sleep(0.01)
            if cancel is not None and cancel.is_set() and len(requests[0].prompt) > 1:
                raise EngineError("it was closed")
        return super().generate(requests, cancel)


def test_an_engine_that_hangs_is_not_ready(monkeypatch):
    monkeypatch.setattr(readiness, "ASK_SECONDS", 0.1)
    opened = Stuck()
    with served(opened, dataclasses.replace(SETTINGS, timeout=0.3)) as address:
        opened.stuck = True
        assert post(address, {"model": "sim:sc@4", "messages": user("2 + 2")}).status_code == 504
        until(lambda: get(f"{address}/health").status_code == 503)
        opened.stuck = False
        until(lambda: get(f"{address}/health").status_code == 200)


# --- streams ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def proxy(address, seconds):
    """A proxy that cuts connections on which nothing came for so long; gives its own address."""
    host, port = address.removeprefix("http://").split(":")
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        with contextlib.suppress(OSError):
            while True:
                ours, _ = listener.accept()
                threading.Thread(target=passed, args=(ours,)).start()

    def passed(ours):
        with ours, socket.create_connection((host, int(port))) as theirs, contextlib.suppress(OSError):
            threading.Thread(target=copy, args=(ours, theirs)).start()
            theirs.settimeout(seconds)
            while part := theirs.recv(1 << 16):
                ours.sendall(part)

    def copy(ours, theirs):
        with contextlib.suppress(OSError):
            while part := ours.recv(1 << 16):
                theirs.sendall(part)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


@pytest.mark.parametrize("model", [pytest.param("sim:sc@4", marks=pytest.mark.slow), "sim:plain"])
def test_a_stream_goes_through_a_proxy_that_cuts_silent_connections(behind, monkeypatch, model):
    server, address = behind
    monkeypatch.setattr(service, "ALIVE_SECONDS", 0.1)
    monkeypatch.setattr(server, "delay", 0.8)
    with proxy(address, 0.5) as between, client(between) as asking:
        parts = list(asking.chat.completions.create(model=model, messages=user("2 + 2"), stream=True))
    assert parts[-1].choices[0].finish_reason


def test_a_stream_begins_before_anything_is_known():
    opened = Stuck()
    opened.stuck = True
    asked = {"model": "sim:sc@4", "messages": user("2 + 2"), "stream": True}
    with (
        served(opened) as address,
        httpx.stream("POST", f"{address}/v1/chat/completions", json=asked, headers=HEADERS) as reply,
    ):
        assert reply.headers["content-type"].startswith("text/event-stream")
        lines = reply.iter_lines()
        assert next(lines).startswith(":")
        opened.stuck = False
        assert list(lines)[-2:] == ["data: [DONE]", ""]


@pytest.mark.parametrize("thinks", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_text_of_plain_comes_while_it_is_written(monkeypatch, thinks):
    opened = Engine()
    if thinks:
        monkeypatch.setattr(ByteTokenizer, "decode", _thinking(ByteTokenizer.decode))
    asked = {"model": "sim:plain", "messages": user("4 + 4")}
    with served(opened) as address:
        whole = post(address, asked).json()["choices"][0]["message"]
        parts = events(
            post(address, asked | {"stream": True, "stream_options": {"include_usage": True}}).text
        )
    *parts, last = parts
    deltas = [part["choices"][0]["delta"] for part in parts]
    for name in ("reasoning_content", "content"):
        assert "".join(delta.get(name) or "" for delta in deltas) == (whole.get(name) or "")
    assert sum("content" in delta or "reasoning_content" in delta for delta in deltas) > 3
    assert {part["usage"] for part in parts} == {None}
    assert last["usage"]["completion_tokens"] > 0


def _thinking(decode):
    """Texts that begin with a thinking part of 30 letters."""

    def decoded(self, tokens):
        text = decode(self, tokens)
        if text.endswith("\n"):
            return text
        return f"<think>\n{text[:30]}" + (f"\n</think>\n\n{text[30:]}" if len(text) > 30 else "")

    return decoded


def test_stop_strings_end_the_writing_of_plain():
    opened = Engine()
    with served(opened) as address:
        whole = ask(address, "4 + 4", "sim:plain")
        text = whole.choices[0].message.content
        stop = text[22:26]
        cut = ask(address, "4 + 4", "sim:plain", stop=stop)
        told = post(
            address, {"model": "sim:plain", "messages": user("4 + 4"), "stop": stop, "stream": True}
        ).text
    assert cut.choices[0].message.content == text[: text.index(stop)]
    assert cut.autotts["answer"] == text[: text.index(stop)].split()[-1]
    assert cut.usage.completion_tokens < whole.usage.completion_tokens
    said = "".join(part["choices"][0]["delta"].get("content", "") for part in events(told))
    assert said == cut.choices[0].message.content


# --- what is passed on --------------------------------------------------------------------------------------


def test_plain_is_passed_on_to_the_server_behind(behind):
    server, address = behind
    reply = ask(address, "2 + 2", "sim:plain", tools=TOOLS, response_format={"type": "json_object"}, n=2)
    assert reply.model == "sim:plain"
    assert reply.choices[0].message.tool_calls[0].function.name == "add"
    assert reply.usage.completion_tokens > 0
    sent = server.asked[-1]
    assert (sent["model"], sent["tools"], sent["n"]) == ("digits", TOOLS, 2)
    assert (sent["temperature"], sent["max_tokens"]) == (0.7, 160)
    assert "autotts" not in sent
    turns = [*user("2 + 2"), reply.choices[0].message.model_dump(), {"role": "tool", "content": None}]
    assert post(address, {"model": "sim:plain", "messages": turns}).status_code == 200
    refused = post(address, {"model": "sim:sc@4", "messages": user("2 + 2"), "tools": TOOLS}).json()["error"]
    assert refused["message"].endswith("ask sim:plain, which passes it on to the model's server")
    assert refused["param"] == "tools"


def test_a_stream_is_passed_on_as_it_comes(behind):
    server, address = behind
    before = metrics(address)
    with client(address) as asking:
        asked = {"model": "sim:plain", "messages": user("2 + 2"), "stream": True}
        parts = list(asking.chat.completions.create(**asked))
    whole = server.chat({**server.asked[-1]})["choices"][0]["message"]["content"]
    assert "".join(part.choices[0].delta.content or "" for part in parts) == whole
    assert {part.model for part in parts} == {"sim:plain"}
    name = ("tokens_charged_total", "plain")
    charged = parts[-1].usage.completion_tokens
    until(lambda: metrics(address).get(name, 0) - before.get(name, 0) == charged)  # once it is closed


def break_off(handler):
    handler.close_connection = True
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream")
    handler.end_headers()
    handler.wfile.write(b'data: {"choices": [], "model": "digits"}\n\n: still here\r\n\r\n')


def test_a_stream_that_is_broken_off_is_not_taken_for_whole(behind):
    server, address = behind
    server.troubles = [break_off]
    told = post(address, {"model": "sim:plain", "messages": user("2 + 2"), "stream": True}).text
    assert events(told)[-1]["error"]["code"] == "engine_failed"
    assert "[DONE]" not in told


@pytest.mark.parametrize("passed", [False, True])
def test_completions_are_for_plain(behind, passed):
    server, address = behind
    server.knows_vllm = not passed
    try:
        with (
            contextlib.nullcontext(address) if passed else served(Engine()) as there,
            client(there) as asking,
        ):
            prompt = list(b"What is 2 + 2?") if passed else "What is 2 + 2?"
            asked = {"model": "sim:plain", "prompt": prompt, "max_tokens": 40, "top_p": 1.0, "seed": 1}
            reply = asking.completions.create(temperature=0.7, **asked)
            assert reply.model == "sim:plain"
            assert reply.choices[0].text
            if not passed:
                listed = asking.completions.create(temperature=0.7, **asked | {"prompt": [prompt]})
                assert listed.choices[0].text == reply.choices[0].text
                assert asking.completions.create(**asked | {"prompt": "one line"}).choices[0].text
                (part,) = asking.completions.create(
                    temperature=0.7, stream=True, stream_options={"include_usage": True}, **asked
                )
                assert part.choices[0].text == reply.choices[0].text
                text = reply.choices[0].text
                cut = asking.completions.create(temperature=0.7, stop=text[5:8], **asked)
                assert cut.choices[0].text == text[: text.index(text[5:8])]
                with pytest.raises(openai.BadRequestError, match="takes 1000"):
                    asking.completions.create(**asked | {"max_tokens": 1000})
            with pytest.raises(openai.BadRequestError, match="ask sim:plain"):
                asking.completions.create(**asked | {"model": "sim:sc@4"})
    finally:
        server.knows_vllm = True


# --- the Responses API --------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [pytest.param("sim:cmc@0.2", marks=pytest.mark.slow), *MODELS])
def test_a_response_says_what_a_chat_does(behind, model):
    _, address = behind
    turns = [{"role": "system", "content": "Be brief."}, *user("2 + 2")]
    asked = {"model": model, "input": [turns[0], *user([{"type": "input_text", "text": "2 + 2"}])]}
    with client(address) as asking:
        whole = asking.responses.create(**asked)
        if model != "sim:plain":  # which the server behind answers in a chat
            same = asking.chat.completions.create(model=model, messages=turns)
            assert whole.output_text == same.choices[0].message.content
            assert whole.usage.output_tokens == same.usage.completion_tokens
        instructed = asking.responses.create(
            model=model, input="2 + 2", instructions="Be brief.", store=False
        )
        assert instructed.output_text == whole.output_text
        events = list(asking.responses.create(**asked, stream=True))
        with asking.responses.stream(**asked) as stream:
            stream.until_done()
            assert stream.get_final_response().output_text == whole.output_text
        later = [*asked["input"], *(item.model_dump() for item in whole.output), *user("And twice that?")]
        assert asking.responses.create(model=model, input=later).output_text
        short = asking.responses.create(**asked, max_output_tokens=10)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    told = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert told == events[-1].response.output_text == whole.output_text
    assert (events[-1].type, whole.status) == ("response.completed", "completed")
    assert (short.status, short.incomplete_details.reason) == ("incomplete", "max_output_tokens")


REFUSED_OF_RESPONSES = {
    "previous_response_id": "resp_1",
    "conversation": "conv_1",
    "tools": [{"type": "function", "name": "add", "parameters": {}}],
    "text": {"format": {"type": "json_schema", "name": "sum", "schema": {}}},
    "store": True,
    "background": True,
    "n": 2,
    "max_output_tokens": 0,
    "instructions": ["Be brief."],
    "input": [],
    "input.0": [{"type": "function_call_output", "call_id": "1", "output": "4"}],
    "input.0.content.0": user([{"type": "input_image", "image_url": "x"}]),
}


@pytest.mark.parametrize("named", REFUSED_OF_RESPONSES)
def test_what_a_response_cannot_have_is_named(behind, named):
    _, address = behind
    asked = {"model": "sim:sc@4", "input": "2 + 2", named.split(".")[0]: REFUSED_OF_RESPONSES[named]}
    reply = httpx.post(f"{address}/v1/responses", json=asked, headers=HEADERS)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, named)


def test_a_response_without_an_engine_is_an_error(behind):
    server, address = behind
    for stream in (False, True):
        server.troubles = [drop] * 1000
        with client(address) as asking, pytest.raises(openai.APIError, match="the engine failed"):
            list(asking.responses.create(model="sim:sc@4", input="2 + 2", stream=stream))


# --- choices, and replies in JSON ---------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_choices_are_the_most_voted_answers(behind, stream):
    _, address = behind
    asked = {"model": "sim:sc@8", "messages": user("2 + 2"), "n": 3, "stream": stream}
    asked["autotts"] = {"reply": "answer"}
    reply = post(address, asked)
    if stream:
        parts = events(reply.text)
        told = {part["choices"][0]["index"]: "" for part in parts if part["choices"]}
        for part in parts:
            told[part["choices"][0]["index"]] += part["choices"][0]["delta"].get("content", "")
        said, votes = list(told.values()), parts[-1]["autotts"]["votes"]
        ends = [part["choices"][0]["index"] for part in parts if part["choices"][0]["finish_reason"]]
        assert ends == list(range(len(said)))
    else:
        choices = reply.json()["choices"]
        said, votes = [choice["message"]["content"] for choice in choices], reply.json()["autotts"]["votes"]
        assert [choice["index"] for choice in choices] == list(range(len(said)))
    voted = [vote["answer"] for vote in votes if vote["answer"] is not None]
    assert len(voted) > 1
    assert sorted(said) == sorted(voted[:3])


def schema(properties, **more):
    described = {"type": "object", "properties": properties, "required": list(properties), **more}
    return {"type": "json_schema", "json_schema": {"name": "reply", "schema": described, "strict": True}}


DOUBLED = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(40)} | {"a40": {}}
"""A schema that refers 2⁴⁰ times to its end."""


@pytest.mark.parametrize("stream", [False, True])
def test_a_reply_in_json_has_the_answer_that_was_voted_for(behind, stream):
    _, address = behind
    form = schema(
        {"reasoning": {"type": "string"}, "answer": {"type": "integer"}}, additionalProperties=False
    )
    asked = {"model": "sim:sc@4", "messages": user("2 + 2"), "response_format": form, "stream": stream}
    reply = post(address, asked)
    if stream:
        parts = events(reply.text)
        content = "".join(part["choices"][0]["delta"].get("content", "") for part in parts)
        answer = parts[-1]["autotts"]["answer"]
    else:
        content = reply.json()["choices"][0]["message"]["content"]
        answer = reply.json()["autotts"]["answer"]
    told = json.loads(content)
    assert list(told) == ["reasoning", "answer"]
    assert told["answer"] == int(answer)
    assert told["reasoning"]


def test_an_answer_that_the_schema_does_not_allow_is_a_refusal(behind):
    _, address = behind
    form = schema({"color": {"type": "string", "enum": ["red", "blue"]}})
    asked = {"model": "sim:sc@4", "messages": user("2 + 2"), "response_format": form}
    message = post(address, asked).json()["choices"][0]["message"]
    assert message["content"] is None
    assert "no answer" in message["refusal"]


def test_each_reply_may_take_as_many_steps_to_check():
    slow = schema({"answer": {"$ref": "#/$defs/a30"}}, **{"$defs": DOUBLED})
    form = read_form(slow, None)
    assert [form.write("4", "") for _ in range(6)] == ['{"answer": 4}'] * 6


@pytest.mark.parametrize(
    ("form", "named"),
    [
        ({"type": "json_object"}, "json_schema"),
        ({"type": "json_schema"}, "schema"),
        (schema({"a": {"type": "integer"}, "b": {"type": "integer"}}), "no property 'answer'"),
        (schema({"answer": {"type": "integer"}, "b": {"type": "integer"}}), "'b' has to take text"),
        (schema({"answer": {"$ref": "http://127.0.0.1:9/x.json"}}), "another document"),
        (schema({"answer": {"type": "nothing"}}), "schema is none"),
        (schema({}), "properties"),
        (schema({"answer": {"$ref": "#/properties/answer"}}), "cannot be followed"),
        (schema({"answer": {"$ref": "#/nowhere"}}), "cannot be followed"),
        (schema({"answer": {"$ref": "#/$defs/a0"}}, **{"$defs": DOUBLED}), "10,000 steps"),
        (schema({"answer": {"pattern": "^(?:|){99}x"}}), "patterns"),
        (schema({"answer": {"patternProperties": {"^(?:|){99}x": {}}}}), "patterns"),
        (schema({"answer": {"anyOf": [{}] * 2_000}}), "2,000 values"),
        (schema({"answer": {}}, required=["answer"] * 2_000), "2,000 values"),
    ],
)
def test_a_form_that_no_answer_has_is_refused(behind, form, named):
    _, address = behind
    reply = post(address, {"model": "sim:sc@4", "messages": user("2 + 2"), "response_format": form})
    assert reply.status_code == 400
    assert named in reply.json()["error"]["message"]
    assert reply.json()["error"]["param"] == "response_format"


# --- clients that leave -------------------------------------------------------------------------------------


def test_a_client_that_leaves_is_counted_as_one(behind):
    server, address = behind
    before = metrics(address)
    server.delay = 0.4
    try:
        for stream in (False, True):
            with pytest.raises(openai.APIConnectionError):  # of which the timeout is a kind
                list(ask(address, "2 + 2", "sim:sc@4", timeout=0.2, stream=stream) or ())
    finally:
        server.delay = 0.0
    until(lambda: health(address)["requests"] == 0)
    after = metrics(address)

    def grown(*name):
        return after.get(name, 0) - before.get(name, 0)

    assert grown("questions_total", "left", "sc") == 2
    assert grown("requests_total", "499", "chat") == 1
    assert grown("requests_total", "200", "chat") == 1, "the head of a stream goes out at once"
    assert grown("requests_total", "503", "chat") == 0


@pytest.mark.slow
def test_32_clients_of_which_a_quarter_leave_add_up():
    settings = dataclasses.replace(SETTINGS, max_requests=16)
    with served(Engine(), settings) as address:
        ends = time.monotonic() + 10
        told = {"200": 0, "429": 0, "left": 0, "cut": 0}
        lock = threading.Lock()

        def visit(number):
            count = 0
            while time.monotonic() < ends:
                count += 1
                leaves = (number + count) % 4 == 0
                asked = {"model": "sim:cmc@0.2", "messages": user(f"{number} + {count}")}
                asked["stream"] = number % 2 == 0
                outcome = _visit(address, asked, leaves)
                with lock:
                    told[outcome] += 1

        with ThreadPoolExecutor(32) as clients:
            list(clients.map(visit, range(32)))
        until(lambda: health(address)["requests"] == 0)
        found = metrics(address)
    statuses = {
        name[1]: value for name, value in found.items() if name[0] == "requests_total" and "chat" in name
    }
    assert set(statuses) <= {"200", "429", "499"}
    ended = {name[1]: value for name, value in found.items() if name[0] == "questions_total"}
    assert set(ended) <= {"answered", "cmc", "left"}
    questions = {name: value for name, value in found.items() if name[0] == "questions_total"}
    assert sum(questions.values()) == statuses["200"] + statuses.get("499", 0)
    assert statuses["429"] >= told["429"], "who has left does not read why it was refused"
    assert sum(statuses.values()) == sum(told.values())
    assert told["200"] > 0
    assert told["left"] > 0


def _visit(address, asked, leaves):
    """What became of a request; who leaves does so after the head of a stream, or without a reply."""
    with httpx.Client(timeout=60) as asking:
        url = f"{address}/v1/chat/completions"
        try:
            with asking.stream(
                "POST", url, json=asked, headers=HEADERS, timeout=0.05 if leaves else 60
            ) as reply:
                if reply.status_code == 429:
                    return "429"
                if not leaves:
                    reply.read()
        except httpx.TimeoutException:
            return "left"
        return "left" if leaves else "200"
