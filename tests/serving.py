"""A server in a thread with a simulated engine, and clients of it."""

import contextlib
import functools
import socket
import threading
import time

import httpx
import openai
import pytest
import uvicorn
from prometheus_client.parser import text_string_to_metric_families

from autotts_jax.collect import Cancelled, EngineError, Sampling, SimulatedEngine
from autotts_jax.errors import InputError
from autotts_jax.live import compiling
from autotts_jax.live.published import published
from autotts_jax.live.server import create_app
from autotts_jax.live.settings import ServerSettings

KEY = "secret"
SAMPLING = Sampling(interval=20, max_tokens=160)
SETTINGS = ServerSettings("sim", SAMPLING, max_branches=8, api_key=KEY)


# Nothing here is encrypted, and to read the certificates of a machine takes each client 30 ms.
get = functools.partial(httpx.get, verify=False)


class Engine(SimulatedEngine):
    """Counts what it works on; a question that says "wait" is not continued for long."""

    max_model_len = 1000

    def __init__(self):
        super().__init__(mean_tokens=80)
        self._lock = threading.Lock()
        self._running = 0
        self.cancelled = 0
        self.most = 0
        self.broken = False
        self.prompts = []

    @property
    def running(self):
        return self._running

    def generate(self, requests, cancel=None):
        if self.broken:
            raise EngineError("the engine ran out of memory at 0xdeadbeef")
        self.prompts += map(self._text, requests)
        with self._counted(len(requests)):
            time.sleep(0.01)
            if any(r.temperature and len(r.prompt) > 40 and "wait" in self._text(r) for r in requests):
                assert cancel.wait(60), "nobody cancelled what waits"
            return super().generate(requests, cancel)

    def _text(self, request):
        return self.tokenizer.decode(request.prompt)

    @contextlib.contextmanager
    def _counted(self, count):
        with self._lock:
            self._running += count
            self.most = max(self.most, self._running)
        try:
            yield
        except Cancelled:
            with self._lock:
                self.cancelled += 1
            raise
        finally:
            with self._lock:
                self._running -= count


def compiled_at_start(name, most):
    """The controllers that most tests ask; others are compiled when they are asked for."""
    if name not in ("sc", "cmc", "single", "plain"):
        raise InputError(name)
    return published(name, most)


@contextlib.contextmanager
def served(engine, settings=SETTINGS, published=compiled_at_start):
    """The address of a server in a thread."""
    app = create_app(engine, settings)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, access_log=False))
    thread = threading.Thread(target=server.run)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(compiling, "published", published)
        thread.start()
        try:
            until(lambda: server.started or not thread.is_alive())
            port = server.servers[0].sockets[0].getsockname()[1]
            yield f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = True
            thread.join()


def until(holds, seconds=120):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.01)


def client(address, key=KEY, **options):
    connection = httpx.Client(verify=False)
    return openai.OpenAI(
        base_url=f"{address}/v1", api_key=key, max_retries=0, http_client=connection, **options
    )


def ask(address, question, model="sim:cmc@0.2", **parameters):
    with client(address) as asking:
        return asking.chat.completions.create(model=model, messages=user(question), **parameters)


def user(question):
    return [{"role": "user", "content": question}]


def health(address):
    return get(f"{address}/health").json()


def post(address, body, **headers):
    headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json", **headers}
    content = body if isinstance(body, bytes) else httpx.Request("POST", address, json=body).read()
    return httpx.post(f"{address}/v1/chat/completions", content=content, headers=headers, verify=False)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def counted(text):
    """What Prometheus would read, by the name without the package's and the values of the labels."""
    return {
        (sample.name.removeprefix("autotts_"), *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
