"""The chat endpoint under load, with a real vLLM."""

from __future__ import annotations

import contextlib
import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

pytest.importorskip("vllm", reason="vLLM is not installed; make test-collect has an environment with it")
pytestmark = pytest.mark.filterwarnings("ignore")  # of vLLM

import openai  # noqa: E402
import psutil  # noqa: E402
import uvicorn  # noqa: E402

from autotts_jax.collect import Cancelled, EngineError, MathGrader, Sampling  # noqa: E402
from autotts_jax.core.rollout import MAX_TOKENS  # noqa: E402
from autotts_jax.live import ServerSettings, answer, create_app  # noqa: E402

CLIENTS = 32
CONTROLLER = "cmc@0.3"
SAMPLING = Sampling(interval=16, max_tokens=160, probe_tokens=8)
SETTINGS = ServerSettings("tiny", SAMPLING, max_branches=16, max_requests=CLIENTS)
MEMORY = 96 * 2**20
"""Bytes by which the process may grow from one wave of clients to the next."""


class Watched:
    """An engine, and how often it was left."""

    def __init__(self, engine):
        self._engine = engine
        self._lock = threading.Lock()
        self.left = 0
        self.most = 0

    def __getattr__(self, name):
        return getattr(self._engine, name)

    def generate(self, requests, cancel=None):
        try:
            return self._engine.generate(requests, cancel)
        except Cancelled:
            with self._lock:
                self.left += 1
            raise
        finally:
            self.most = max(self.most, self._engine.running)


@pytest.fixture(scope="module")
def watched(engine):
    return Watched(engine)


@pytest.fixture(scope="module")
def address(watched):
    server = uvicorn.Server(
        uvicorn.Config(create_app(watched, SETTINGS), port=0, log_config=None, access_log=False)
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until(lambda: server.started or not thread.is_alive())
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        assert not [left.name for left in threading.enumerate() if left.name.startswith("answer")]


def until(holds, seconds=120):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.01)


def visit(address, number):
    """A client; every third leaves half-way, tired of waiting or with a stream that it closes."""
    messages = [{"role": "user", "content": question(number)}]
    asked = {"model": f"tiny:{CONTROLLER}", "messages": messages}
    with openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client:
        if number % 3:
            return client.chat.completions.create(**asked)
        if number % 2:
            with contextlib.closing(client.chat.completions.create(**asked, stream=True)) as parts:
                next(part for part in parts if hasattr(part.choices[0].delta, "reasoning_content"))
        else:
            with pytest.raises(openai.APITimeoutError):
                client.chat.completions.create(**asked, timeout=0.3)
    return None


def directly(engine, numbers):
    """The answers without a server, by number."""
    with MathGrader(1) as grader, ThreadPoolExecutor(4) as threads:

        def ask(number):
            return answer(
                engine,
                question(number),
                CONTROLLER,
                grader=grader,
                sampling=SAMPLING,
                max_branches=SETTINGS.max_branches,
                budget=MAX_TOKENS,
                fall_back=True,
            )

        return dict(zip(numbers, threads.map(ask, numbers), strict=True))


def question(number):
    return f"What is {number} + {number}?"


def wave(address, engine):
    """The replies of 32 clients at once, once nothing of them is left in the engine; and the memory then."""
    with ThreadPoolExecutor(CLIENTS) as clients:
        replies = list(clients.map(lambda number: visit(address, number), range(CLIENTS)))
    until(lambda: httpx.get(f"{address}/health").json()["requests"] == 0)
    assert httpx.get(f"{address}/health").json()["engine_requests"] == engine.running == 0
    gc.collect()
    return replies, psutil.Process().memory_info().rss


def test_32_clients_of_which_a_third_leave(address, watched, engine):
    first, before = wave(address, engine)
    second, after = wave(address, engine)
    assert watched.left == 2 * 11
    assert watched.most > CLIENTS, "they ran side by side"
    assert after - before < MEMORY
    alone = directly(engine, [number for number in range(CLIENTS) if number % 3])
    for number in range(CLIENTS):
        for reply in (first[number], second[number]):
            if number % 3 == 0:
                assert reply is None
                continue
            assert reply.choices[0].message.content == alone[number].text
            assert reply.autotts["tokens"] == alone[number].tokens
            assert reply.usage.completion_tokens == alone[number].usage.generated + alone[number].usage.forced


def test_a_long_question_is_refused_by_the_model_s_context(address):
    messages = [{"role": "user", "content": "9" * 900}]
    with (
        openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client,
        pytest.raises(openai.BadRequestError) as refusal,
    ):
        client.chat.completions.create(model="tiny:sc@4", messages=messages)
    assert refusal.value.code == "context_length_exceeded"


def test_an_engine_that_fails_shows_in_the_health(address, watched, monkeypatch):
    def fail(*_):
        raise EngineError("vLLM failed: out of memory")

    monkeypatch.setattr(watched, "generate", fail)
    with pytest.raises(openai.InternalServerError, match="engine failed"):
        visit(address, 1)
    assert httpx.get(f"{address}/health").status_code == 503
    monkeypatch.undo()
    visit(address, 1)
    assert httpx.get(f"{address}/health").status_code == 200
