"""Integration with real engines. ``make test-collect`` runs these in an environment with vLLM."""

from __future__ import annotations

import importlib.util
import ipaddress
import os
import socket

import pytest
import tiny_model

if importlib.util.find_spec("vllm"):
    os.environ.update(tiny_model.ENVIRONMENT)  # before anything reads it


@pytest.fixture(scope="session", autouse=True)
def no_network():
    """Nothing but this machine is spoken to."""
    connect = socket.socket.connect

    def guarded(self, address):
        if self.family in (socket.AF_INET, socket.AF_INET6):
            assert ipaddress.ip_address(address[0]).is_loopback, f"a connection to {address}"
        return connect(self, address)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(socket.socket, "connect", guarded)
        yield


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """The folder of a tiny random model."""
    return tiny_model.build(tmp_path_factory.mktemp("model") / "tiny-qwen3")


@pytest.fixture(scope="session")
def engine(model):
    """The one engine of the process."""
    from autotts_jax.collect import VLLMEngine

    engine = VLLMEngine(str(model), {"max_model_len": 1024})
    yield engine
    engine.close()
