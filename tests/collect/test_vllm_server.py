"""Signals from a real vLLM behind HTTP."""

from __future__ import annotations

import contextlib
import re
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import numpy as np
import openai
import pytest
from live_signals import assert_live_shows
from serving import KEY, ask, client, served, user

from autotts_jax.collect import LocalWorkers, Plan, Problem, Sampling, ServerEngine, collect
from autotts_jax.live import ServerSettings
from autotts_jax.replay import SIGNALS
from autotts_jax.testing import check_engine

pytest.importorskip("vllm", reason="vLLM is not installed; make test-collect has an environment with it")
pytestmark = pytest.mark.filterwarnings("ignore")  # of vLLM

PLAN = Plan(
    "tiny-qwen3",
    "sums",
    tuple(Problem(f"What is {n} + {n}?", str(2 * n)) for n in (1, 2)),
    num_branches=4,
    sampling=Sampling(interval=16, max_tokens=80, seed=5, probe_tokens=8, probe_tail=8, signals=SIGNALS),
)
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "collect.md"
MODULE = "python -m vllm.entrypoints.openai.api_server"


def documented(model):
    """The command of the page, with the model, and a context that the model has."""
    (line,) = re.findall(rf"^{re.escape(MODULE)} .*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    command = line.replace("MODEL", str(model)).replace("8192", "1024")
    return [sys.executable, *shlex.split(command)[1:]]


@pytest.fixture(scope="module")
def server(model):
    """vLLM's own server of the tiny model, and the engine that calls it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--host", "127.0.0.1", "--port", str(port)]
    address = f"http://127.0.0.1:{port}"
    with subprocess.Popen([*documented(model), *options]) as process:
        try:
            until_healthy(address, process)
            with contextlib.closing(ServerEngine(f"{address}/v1", str(model))) as engine:
                yield engine
        finally:
            process.terminate()


def until_healthy(address, process, seconds=300):
    end = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < end:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{address}/health").is_success:
                return
        time.sleep(0.5)
    pytest.fail("the server did not start")


def test_it_keeps_the_contract_of_engines(server):
    check_engine(server, close=False)


def test_a_server_tells_all_signals_live_as_in_a_collection(server, tmp_path):
    data = collect(PLAN, tmp_path / "collected", LocalWorkers(server))
    assert set(data.matrix.signals) == set(SIGNALS)
    assert_live_shows(server, PLAN, data, whole=False)


def test_a_server_tells_what_the_engine_in_this_process_tells(server, engine, tmp_path):
    there = collect(PLAN, tmp_path / "there", LocalWorkers(server))
    here = collect(PLAN, tmp_path / "here", LocalWorkers(engine))
    np.testing.assert_array_equal(there.matrix.answers, here.matrix.answers)
    np.testing.assert_array_equal(there.matrix.tokens, here.matrix.tokens)
    for name in SIGNALS:
        np.testing.assert_allclose(
            there.matrix.signals[name], here.matrix.signals[name], rtol=2e-3, atol=2e-3, err_msg=name
        )


def test_a_server_in_front_of_it(server):
    settings = ServerSettings("tiny", Sampling(interval=16, max_tokens=80), max_branches=4, api_key=KEY)
    asked = {"model": "tiny:plain", "messages": user("What is 3 + 4?"), "max_tokens": 8}
    with served(server, settings) as address, client(address) as asking:
        for model in ("tiny:cmc@0.5", "tiny:sc@4"):
            assert ask(address, "What is 3 + 4?", model).usage.completion_tokens
        *_, last = asking.chat.completions.create(**asked, stream=True)
        assert last.choices[0].finish_reason
        assert asking.responses.create(model="tiny:plain", input="What is 3 + 4?").usage.output_tokens
        with pytest.raises(openai.BadRequestError) as refused:
            ask(address, "word " * 3000, "tiny:plain")
        assert refused.value.code == "context_length_exceeded"
        assert httpx.get(f"{address}/health").status_code == 200
