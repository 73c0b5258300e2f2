"""lm-eval on a running server whose engine is a real vLLM."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

for needed in ("vllm", "lm_eval"):
    pytest.importorskip(needed, reason=f"{needed} is not installed; make test-collect has it")

import openai  # noqa: E402
from lm_eval_task import ASKED, run_lm_eval  # noqa: E402

QUESTIONS = [f"What is {n} + {n % 3}?" for n in range(20)]
UNTIL = (".", "\n")
"""What the noise of the model has in most of its texts."""


@pytest.fixture(scope="module")
def address(model, tmp_path_factory):
    log = tmp_path_factory.mktemp("server") / "log"
    code = "from autotts_jax.cli.main import main; main()"
    engine = ["--engine", "vllm", "--model", model, "--engine-option", "max_model_len=1024", "--name", "tiny"]
    limits = ["--interval", "16", "--max-tokens", "160", "--probe-tokens", "8", "--max-branches", "8"]
    command = [sys.executable, "-c", code, "serve", *engine, *limits, "--port", "0"]
    with log.open("w") as told, subprocess.Popen(command, stdout=told, stderr=told) as server:
        try:
            while not (begun := [line for line in log.read_text().splitlines() if "serving at" in line]):
                assert server.poll() is None, log.read_text()
                time.sleep(0.2)
            yield begun[0].split()[-1]
        finally:
            server.terminate()


@pytest.mark.parametrize("name", ["tiny", "tiny:sc@4", "tiny:plain"])
def test_a_generate_task_of_lm_eval(address, tmp_path, name):
    samples = run_lm_eval(address, name, QUESTIONS, tmp_path, UNTIL)
    assert list(samples) == QUESTIONS
    replies = {question: sample["resps"][0][0] for question, sample in samples.items()}
    assert len(set(replies.values())) > 10
    with openai.OpenAI(base_url=address, api_key="none") as client:
        for question in QUESTIONS[::5]:
            messages = [{"role": "user", "content": question}]
            again = client.chat.completions.create(model=name, messages=messages, stop=[*UNTIL], **ASKED)
            assert replies[question] == again.choices[0].message.content
            assert name == "tiny:plain" or again.autotts["branches"] > 1
    if name == "tiny:plain":
        assert not any(stop in reply for reply in replies.values() for stop in UNTIL)
