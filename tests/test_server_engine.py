"""A model behind HTTP: a real server on this machine that behaves in all the ways that servers do."""

import asyncio
import contextlib
import datetime
import gzip
import select
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from email.utils import format_datetime

import pytest
from completions_server import PATIENCE, drop, half, running_server, say, trickle

from autotts_jax.collect import (
    BusyError,
    Cancelled,
    EngineError,
    Finish,
    RefusedError,
    Request,
    ServerEngine,
    upstream,
)
from autotts_jax.collect.simulated import END, ByteTokenizer
from autotts_jax.errors import InputError, InputWarning
from autotts_jax.testing import check_engine

httpx = pytest.importorskip("httpx")

PROMPT = tuple(b"\nHow many?\n")
KEY = "sk-SECRET-7"
QUICK = {"attempts": 3, "pause": 0.01}


def hang(handler):
    """Says nothing until the client has gone."""
    handler.close_connection = True
    select.select([handler.connection], [], [], PATIENCE)
    if handler.connection.recv(1, socket.MSG_PEEK) == b"":
        handler.server.gone.set()


def say_packed(status, content):
    def trouble(handler):
        packed = gzip.compress(content)
        handler.send_response(status)
        handler.send_header("Content-Encoding", "gzip")
        handler.send_header("Content-Length", str(len(packed)))
        handler.end_headers()
        handler.wfile.write(packed)

    return trouble


def endless(handler):
    """Sends without an end, until the client has gone."""
    handler.close_connection = True
    handler.send_response(200)
    handler.end_headers()
    handler.wfile.flush()
    end = time.monotonic() + PATIENCE
    with contextlib.suppress(OSError):
        while time.monotonic() < end:
            handler.connection.sendall(b" " * 5000)


def choice(**fields):
    return say(200, {"choices": [fields]})


def one_token(logprobs="[-1.0]", cached="0"):
    return say(
        200,
        b'{"choices": [{"text": "1", "finish_reason": "stop", "token_ids": [49], "logprobs": '
        b'{"token_logprobs": %s}}], "usage": {"prompt_tokens_details": {"cached_tokens": %s}}}'
        % (logprobs.encode(), cached.encode()),
    )


DEEP = b"[" * 100_000
SLOW = (hang, trickle)
TROUBLES = {
    "connection dropped": drop,
    "half a reply": half,
    "no reply in time": hang,
    "500": say(500, {"error": {"message": "out of memory"}}),
    "503 of a proxy": say(503, b"<html>Service Unavailable</html>"),
    "429": say(429, {"message": "slow down"}),
    "no JSON": say(200, b"{broken"),
    "JSON, but no completion": say(200, {"choices": []}),
    "a byte now and then": trickle,
    "no tokens": choice(text="", finish_reason="length", token_ids=[]),
    "no tokens, and yet an end": choice(text="12", finish_reason="stop", token_ids=[]),
    "too few tokens": choice(text="12", finish_reason="length", token_ids=[49, 50]),
    "too many tokens": choice(text="1" * 201, finish_reason="stop", token_ids=[49] * 201),
    "negative tokens": choice(text="12", finish_reason="stop", token_ids=[49, -50]),
    "tokens that are none": choice(text="12", finish_reason="stop", token_ids=[49, 300]),
    "tokens that overflow": choice(text="12", finish_reason="stop", token_ids=[49, 10**30]),
    "cached tokens that are not a number": one_token(cached='"x"'),
    "fewer than no cached tokens": one_token(cached="-1"),
    "more cached tokens than the prompt has": one_token(cached="1" + "0" * 400),
    "infinite log-probabilities": one_token(logprobs="[1e999, -1e999]"),
    "log-probabilities that overflow": one_token(logprobs="[1e308, 1e308]"),
    "no log-probability": one_token(logprobs="[NaN]"),
    "deep JSON": say(200, b'{"choices":' + DEEP),
    "500 of deep JSON": say(500, b'{"error":' + DEEP),
    "aborted": choice(text="12", finish_reason="abort", token_ids=[49, 50]),
}


@pytest.fixture
def server():
    with running_server() as server:
        yield server


@pytest.fixture(scope="module")
def certificates():
    return httpx.create_ssl_context()


@pytest.fixture
def connect(server, certificates, monkeypatch):
    monkeypatch.setattr(httpx, "create_ssl_context", lambda: certificates)  # reading them takes long
    engines = []

    def connect(**options):
        defaults = {"model": "digits", "tokenizer": ByteTokenizer(), "max_connections": 64, **QUICK}
        options = defaults | options
        engines.append(ServerEngine(options.pop("base_url", server.url), **options))
        server.calls = 0
        return engines[-1]

    yield connect
    for engine in engines:
        engine.close()


def thought(seed, **fields):
    return Request(PROMPT, max_tokens=200, temperature=0.7, seed=seed, **fields)


def forced(digits):
    return Request(PROMPT + tuple(digits.encode()), max_tokens=8, stop=("}",))


def within_patience(condition):
    end = time.monotonic() + PATIENCE
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


# --- what is written -------------------------------------------------------------------------------------


def test_writes_what_the_engine_behind_it_writes_for_many_threads(server, connect):
    engine = connect()
    assert engine.max_model_len == 4096
    lists = [[thought(100 * k + i) for i in range(40)] + [forced(str(k))] for k in range(8)]
    with ThreadPoolExecutor(len(lists)) as pool:
        written = list(pool.map(engine.generate, lists))
    for requests, completions in zip(lists, written, strict=True):
        assert [(c.tokens, c.text, c.finish) for c in completions] == [
            (c.tokens, c.text, c.finish) for c in server.engine.generate(requests)
        ]
    assert {c.cached for c in written[0]} == {7}
    assert engine.running == 0


def test_it_keeps_the_contract_of_engines(connect):
    check_engine(connect())


@pytest.mark.parametrize("refuses_unknown", [True, False])
def test_a_restriction_of_sampling_reaches_the_server_or_is_refused(server, connect, refuses_unknown):
    server.knows_vllm = not refuses_unknown
    server.refuses_unknown = refuses_unknown
    engine = connect()
    restricted = [thought(1, top_k=2), thought(1, min_p=0.5)]
    if refuses_unknown:
        for request, name in zip(restricted, ("top_k", "min_p"), strict=True):
            with pytest.raises(EngineError, match=f"unknown: .*{name}"):
                engine.generate([request])
        return
    written = engine.generate(restricted)
    assert [c.tokens for c in written] == [c.tokens for c in server.engine.generate(restricted)]
    assert all(c.tokens != server.engine.complete(thought(1)).tokens for c in written)


@pytest.mark.parametrize("refuses_unknown", [True, False])
def test_a_server_that_is_not_vllm(server, connect, refuses_unknown):
    """It gives text alone, without the stop string, and may refuse what it does not know."""
    server.knows_vllm = False
    server.refuses_unknown = refuses_unknown
    requests = [*map(thought, range(20)), *map(forced, "0123")]
    written = connect().generate(requests)
    for completion, real in zip(written, server.engine.generate(requests), strict=True):
        assert completion.text == real.text
        assert completion.finish is real.finish
        assert completion.tokens == tuple(token for token in real.tokens if token != END)
    assert server.calls == len(requests), "what the server knows is found out once"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"text": "7"}, "7}"),
        ({"text": "7", "stop_reason": "}"}, "7}"),
        ({"text": "7", "stop_reason": None}, "7"),
        ({"text": "7", "stop_reason": 256}, "7"),
        ({"text": "7", "finish_reason": "length"}, "7"),
        ({"text": "7}", "stop_reason": "}"}, "7}"),
        ({"text": "7", "stop_reason": "\n"}, "7\n"),
    ],
)
def test_a_stop_string_is_put_back_where_it_was_met(server, connect, given, text):
    engine = connect()
    server.troubles = [choice(**{"finish_reason": "stop"} | given)]
    (written,) = engine.generate([Request(PROMPT, max_tokens=8, stop=("}", "\n"))])
    assert (written.text, written.tokens) == (text, tuple(text.encode()))


def test_text_alone_never_gives_more_tokens_than_were_asked_for_and_never_none(server, connect):
    engine = connect()
    server.troubles = [choice(text="12345", finish_reason="length"), choice(text="", finish_reason="length")]
    (long,) = engine.generate([Request(PROMPT, max_tokens=3)])
    (none,) = engine.generate([Request(PROMPT, max_tokens=3)])
    assert (long.tokens, long.text, long.finish) == (tuple(b"123"), "123", Finish.length)
    assert (none.tokens, none.finish) == ((), Finish.stop)


def test_log_probabilities(connect):
    asked, not_asked = connect().generate([thought(1, logprobs=True), thought(1)])
    assert set(asked.logprobs) == {-1.5}
    assert len(asked.logprobs) == len(asked.tokens)
    assert not_asked.logprobs is asked.confidences is None


def test_confidences_are_of_the_most_likely_tokens_which_only_their_ids_tell_apart(server, connect):
    asking = thought(1, logprobs=True, top_logprobs=True)
    (told,) = connect().generate([asking])
    assert told.confidences == pytest.approx([0.5 + 19 / 2] * len(told.tokens))
    server.knows_vllm, server.refuses_unknown = False, True
    (other,) = connect().generate([asking])
    assert other.logprobs
    assert other.confidences is None


def test_a_context_that_the_server_does_not_tell(connect):
    assert connect(model="letters", max_model_len=123).max_model_len == 123


@pytest.mark.parametrize(
    ("entry", "pages"),
    [
        ({"max_model_len": 512}, {}),  # vLLM, SGLang
        ({"meta": {"n_ctx": 512, "n_ctx_train": 4096}}, {}),  # llama.cpp
        ({"meta": {"n_ctx_train": 4096}}, {"/props": {"default_generation_settings": {"n_ctx": 512}}}),
        ({"context_length": 512}, {}),
        ({}, {"/info": {"max_total_tokens": 512, "max_input_tokens": 500}}),  # TGI
        ({}, {"/api/ps": {"models": [{"name": "other"}, {"name": "digits", "context_length": 512}]}}),
    ],
)
def test_each_server_tells_its_context_in_its_own_way(server, connect, recwarn, entry, pages):
    server.models = [{"id": "digits", **entry}]
    server.pages = pages
    assert connect().max_model_len == 512
    assert connect(max_model_len=100).max_model_len == 100
    assert not recwarn.list


@pytest.mark.parametrize("page", [b"", b"[]", {"models": 3}, {"max_total_tokens": "1"}, {"models": [3, {}]}])
def test_what_is_assumed_of_the_context_is_said(server, connect, page):
    server.models = [{"id": "digits", "meta": {"n_ctx_train": 4096}}]
    server.pages = dict.fromkeys(("/props", "/info", "/api/ps"), page)
    with pytest.warns(InputWarning, match=r"digits; assuming 32,768 tokens\. .* max_model_len=N"):
        assert connect().max_model_len == 32_768


def test_no_more_calls_at_once_than_allowed(server, connect):
    engine = connect(max_connections=3)
    server.delay = 0.05
    engine.generate([thought(seed) for seed in range(12)])
    assert server.most_at_work == 3


# --- what goes wrong -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("trouble", TROUBLES.values(), ids=TROUBLES)
def test_a_lost_call_is_made_again_and_changes_nothing(server, connect, trouble):
    engine = connect(timeout=0.3 if trouble in SLOW else PATIENCE)
    server.troubles = [trouble, trouble]
    (written,) = engine.generate([thought(5)])
    assert written.tokens == server.engine.generate([thought(5)])[0].tokens
    assert server.calls == 3


@pytest.mark.parametrize("trouble", TROUBLES.values(), ids=TROUBLES)
def test_a_server_that_keeps_failing_ends_it(server, connect, trouble):
    engine = connect(timeout=0.3 if trouble in SLOW else PATIENCE)
    server.troubles = [trouble] * 3
    why = r"no whole reply within 0\.3 s" if trouble is trickle else ""  # and not that the server ended it
    with pytest.raises(
        EngineError, match=f"{server.url} failed 3 times.*{why}.*start the same command again"
    ):
        engine.generate([thought(5)])
    assert server.calls == 3


def test_each_pause_is_twice_the_one_before_up_to_chance(server, connect, monkeypatch):
    engine = connect(attempts=5, pause=8.0)
    pauses = []

    async def sleep(seconds):
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    server.troubles = [TROUBLES["500"]] * 4
    assert engine.generate([thought(5)])
    assert len(pauses) == 4
    assert all(4 <= pause / 2**n <= 8 for n, pause in enumerate(pauses))


@pytest.mark.parametrize("status", [429, 503])
def test_a_server_that_asks_to_wait_is_waited_for(server, connect, monkeypatch, status):
    engine, pauses = connect(), []

    async def sleep(seconds):
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    soon = format_datetime(datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=40), usegmt=True)
    server.troubles = [say(status, {}, Retry_After=after) for after in ("7", soon)]
    assert engine.generate([thought(5)])[0].tokens
    assert pauses[0] == 7
    assert 30 < pauses[1] <= 40


def test_a_server_that_asks_to_wait_for_long_is_not(server, connect):
    engine = connect()
    server.troubles = [say(429, {"message": "no more today"}, Retry_After="3600")]
    with pytest.raises(BusyError, match=r"failed 1 time, .* no more today") as busy:
        engine.generate([thought(5)])
    assert busy.value.retry_after == 3600
    server.troubles = [say(429, {}, Retry_After="soon")] * 3
    with pytest.raises(BusyError, match="failed 3 times") as busy:
        engine.generate([thought(5)])
    assert busy.value.retry_after is None


CONTEXT = "the request exceeds the available context size. try increasing the context size"
TOO_LONG = {
    "vLLM": (
        400,
        {"error": {"message": "This model's maximum context length is 512 tokens. However", "code": 400}},
    ),
    "SGLang": (
        400,
        {"object": "error", "message": "The input is longer than the model's context"},
    ),
    "llama.cpp": (400, {"error": {"code": 400, "message": CONTEXT, "type": "exceed_context_size_error"}}),
    "llama.cpp of before": (500, {"error": {"code": 500, "message": CONTEXT, "type": "server_error"}}),
    "llama-cpp-python": (500, {"error": {"message": "Requested tokens (600) exceed context window of 512"}}),
    "TGI": (
        422,
        {"error": "`inputs` tokens + `max_new_tokens` must be <= 512. Given: 600"},
    ),
    "OpenAI": (400, {"error": {"message": "Too many", "code": "context_length_exceeded"}}),
}


@pytest.mark.parametrize(("status", "said"), TOO_LONG.values(), ids=TOO_LONG)
def test_a_prompt_that_is_too_long_is_told_from_a_failure(server, connect, status, said):
    engine = connect()
    server.troubles = [say(status, said)]
    with pytest.raises(RefusedError) as refused:
        engine.generate([thought(5)])
    assert refused.value.too_long
    assert server.url not in refused.value.reason
    assert server.calls == 1


@pytest.mark.parametrize(("status", "refused"), [(400, True), (422, True), (401, False), (404, False)])
def test_what_is_about_the_request_is_told_from_what_is_about_the_server(server, connect, status, refused):
    engine = connect()
    server.troubles = [say(status, {"error": {"message": "no"}})]
    with pytest.raises(EngineError) as failure:
        engine.generate([thought(5)])
    assert isinstance(failure.value, RefusedError) == refused
    assert server.calls == 1


def test_what_the_server_says_of_its_failure_is_told(server, connect):
    engine = connect()
    server.troubles = [TROUBLES["500"]] * 3
    with pytest.raises(EngineError, match="HTTP 500: out of memory"):
        engine.generate([thought(5)])


def test_what_a_server_says_is_quoted_where_it_makes_no_sense(server, connect):
    engine = connect()
    server.troubles = [TROUBLES["too few tokens"]] * 3
    with pytest.raises(EngineError, match=r'2 tokens reach a length of 200.*: {"choices": .*"text": "12"'):
        engine.generate([thought(5)])
    server.troubles = [say(400, b'{"error":' + DEEP)]
    with pytest.raises(EngineError, match=r"HTTP 400: {\"error\":\[\[\["):
        engine.generate([thought(5)])


@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize("packed", [True, False], ids=["packed", "plain"])
def test_a_reply_that_is_too_large_is_not_read_to_its_end(server, connect, monkeypatch, status, packed):
    """The limit counts bytes of what is unpacked; what is left is a whole completion all the same."""
    monkeypatch.setattr(upstream, "MAX_REPLY", 10_000)
    engine = connect()
    text = b'{"choices": [{"text": "1", "finish_reason": "stop", "token_ids": [49]}]}'
    replies = [text + b" " * (size - len(text)) for size in (10_000, 10_001)]
    fits, large = (say_packed(status, reply) if packed else say(status, reply) for reply in replies)
    server.troubles = [large] * 3
    with pytest.raises(EngineError, match="its reply has more than 10000 bytes"):
        engine.generate([thought(5)])
    server.troubles = [fits]
    with pytest.raises(EngineError, match="HTTP 400") if status == 400 else contextlib.nullcontext():
        assert engine.generate([thought(5)])[0].tokens == (49,)
    server.troubles = [endless] * 3
    with pytest.raises(EngineError, match="its reply has more than 10000 bytes"):
        engine.generate([thought(5)])


def test_a_server_that_has_gone(server, connect):
    engine = connect()
    server.troubles = [drop]
    server.shutdown()
    server.server_close()
    with pytest.raises(EngineError, match="ConnectError"):
        engine.generate([thought(5)])


def test_a_refusal_is_final_and_ends_the_requests_beside_it(server, connect):
    engine = connect()
    server.troubles = [hang] * 3
    with ThreadPoolExecutor(1) as pool:
        beside = pool.submit(engine.generate, [thought(seed) for seed in range(3)])
        assert within_patience(lambda: server.calls == 3)
        server.troubles = [hang]
        too_long = Request(PROMPT, max_tokens=5000)
        with pytest.raises(EngineError, match="HTTP 400: the prompt is too long"):
            engine.generate([thought(1), *[too_long] * 2])
        assert within_patience(lambda: engine.running == 3), "those of other callers go on"
        assert server.gone.wait(PATIENCE)
        engine.close()
        with pytest.raises(EngineError, match="closed"):
            beside.result(PATIENCE)


def test_another_key(server, connect):
    server.key = "sesame"
    connect(api_key="sesame")
    with pytest.raises(InputError, match="HTTP 401: Unauthorized; give the right API key"):
        connect(api_key="mustard")


def test_a_key_is_in_no_message(server, connect):
    server.key = KEY
    engine = connect(api_key=KEY + "\n")
    repeated = b'{"key": "%s"}' % (b" " * 280 + KEY.encode())  # which the end of a quotation may not cut
    twice = b'{"%s": 1, "%s": 2}' % (KEY.encode(), KEY.encode())
    for status, shown in ((401, "give the right"), (500, "failed 3 times"), (200, "not a completion")):
        for content in ({"error": f"wrong: {KEY}"}, {"error": {"code": KEY}}, repeated, twice):
            server.troubles = [say(status, content)] * 3
            with pytest.raises(EngineError, match=shown) as refused:
                engine.generate([thought(5)])
            assert "SECRET" not in str(refused.value)
    server.models = [{"id": KEY}]
    with pytest.raises(InputError, match=r"it has: \[key\]"):
        connect(api_key=KEY)


@pytest.mark.parametrize("key", ["sk-SECRÉT-8", "sk-SE\nCRET-8", "sk-SECRET\x7f8"])
def test_a_key_that_cannot_be_sent_is_refused_and_not_shown(connect, key):
    with pytest.raises(InputError, match="the server's API key holds characters that no key has") as refused:
        connect(api_key=key)
    assert "sk-" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "runes"}, "has no model runes; it has: digits, letters"),
        ({"base_url": "http://127.0.0.1:1/v1"}, "no OpenAI-compatible server at http://127.0.0.1:1/v1"),
        ({"base_url": "127.0.0.1"}, "no OpenAI-compatible server at 127.0.0.1/v1"),
        ({"base_url": "http://127.0.0.1:port"}, "is not the address of a server"),
    ],
)
def test_what_is_not_there(connect, options, message):
    with pytest.raises(InputError, match=message):
        connect(**options)


@pytest.mark.parametrize("length", [-5, 0])
def test_a_length_that_no_model_has_is_no_list_of_models(server, connect, length):
    server.models = [{"id": "digits", "max_model_len": length}]
    with pytest.raises(InputError, match=f"max_model_len: it is {length}, which no model has"):
        connect()


def test_of_what_a_server_says_a_message_quotes_a_part(server, connect):
    server.models = [{"id": f"model-{number}"} for number in range(100_000)]
    with pytest.raises(InputError, match=r"it has: model-0, model-1, .*…") as refused:
        connect()
    assert len(str(refused.value)) < 600
    server.models = [{"id": "digits", "max_model_len": "x" * 10**6}]
    with pytest.raises(InputError, match="no OpenAI-compatible server") as refused:
        connect()
    assert len(str(refused.value)) < 600


def test_an_address_of_something_else(server, connect):
    with pytest.raises(InputError, match=r"HTTP 404: .*check the address"):
        connect(base_url=server.url.replace("/v1", "/other"))
    server.models = "none"
    with pytest.raises(InputError, match="no OpenAI-compatible server"):
        connect()


@pytest.mark.parametrize("status", [400, 422, 500])
def test_a_server_that_does_not_take_tokens(server, connect, status):
    server.troubles = [say(status, {"detail": "prompt must be a string"})] * 6
    with pytest.raises(InputError, match="prompt must be a string"):
        connect(attempts=7)
    assert 2 <= server.calls <= 3, "nobody waits for long to be told"


# --- who asked goes away ---------------------------------------------------------------------------------


def test_who_cancels_is_freed_and_the_server_too(server, connect):
    engine = connect()
    server.troubles = [hang] * 50
    cancel = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(engine.generate, [thought(seed) for seed in range(50)], cancel)
        assert within_patience(lambda: server.calls == 50)
        assert engine.running == 50
        cancel.set()
        with pytest.raises(Cancelled):
            result.result(PATIENCE)
    assert within_patience(lambda: engine.running == 0)
    assert within_patience(lambda: server.at_work == 0)
    assert server.gone.is_set(), "the connections are closed, so that the server ends the requests"
    assert engine.generate([thought(1)])[0].tokens, "others can go on"


def test_closing_frees_who_waits(server, connect):
    engine = connect()
    server.troubles = [hang]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(engine.generate, [thought(1)])
        assert within_patience(lambda: server.calls == 1)
        engine.close()
        with pytest.raises(EngineError, match="closed"):
            waiting.result(PATIENCE)
    with pytest.raises(EngineError, match="closed"):
        engine.generate([thought(1)])
    engine.close()
    assert not [thread for thread in threading.enumerate() if "portal" in thread.name]
