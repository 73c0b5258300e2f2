"""What vLLM is started with, and what its messages say of our options; vLLM itself is a stand-in here."""

import importlib.machinery
import json
import os
import re
import sys
import types

import pytest

from autotts_jax.cli.options import EngineOptions, SamplingOptions
from autotts_jax.collect import (
    LocalWorkers,
    Plan,
    Problem,
    Sampling,
    SimulatedEngine,
    VLLMEngine,
    collect,
    context_length,
    fitting_tokens,
)
from autotts_jax.collect.remedies import remedy
from autotts_jax.errors import InputError
from autotts_jax.live import answer
from autotts_jax.terminal import quoted

pytest.importorskip("transformers")

# As vLLM 0.32, PyTorch and the hub say it.
MESSAGES = {
    "max_model_len=6400, or more memory": (
        "To serve at least one request with the model's max seq len (8192), (0.35 GiB KV cache is needed, "
        "which is larger than the available KV cache memory (0.28 GiB). Based on the available memory, the "
        "estimated maximum model length is 6400. Try increasing `gpu_memory_utilization`"
    ),
    "max_model_len=N, or more memory": (
        "(0.35 GiB KV cache is needed, which is larger than the available KV cache memory (0.00 GiB). "
    ),
    "a prefix cache: give more by": "No available memory for the cache blocks. Try increasing `gpu_memory",
    "too little memory is free": (
        "Free memory on device cuda:0 (3.1/23.6 GiB) on startup is less than desired GPU memory utilization "
        "(0.92, 21.7 GiB). Decrease GPU memory utilization"
    ),
    "end what else uses it": (
        "Available memory on node 0 (21.48/23.54 GiB) on startup is less than desired CPU memory utilization "
        "(0.92, 21.66 GiB)."
    ),
    "max_num_seqs=64": "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total",
    "max_model_len=8192 at most": (
        "User-specified max_model_len (99999) is greater than the derived max_model_len "
        "(max_position_embeddings=8192 or model_max_length=None in model's config.json)."
    ),
    "lower --max-tokens": "The decoder prompt (length 9000) is longer than the maximum model length of 8192",
    "autotts-jax\\[collect-cpu\\]": "Failed to infer device type, please set the environment variable",
    "divides the attention heads": (
        "Total number of attention heads (9) must be divisible by tensor parallel size (2)."
    ),
    "give a smaller N": "Tensor parallel size (8) exceeds available GPUs (4).",
    "dtype=half": "Bfloat16 is only supported on GPUs with compute capability of at least 8.0.",
    "trust_remote_code=true": "consider setting `trust_remote_code=True` in LLM",
    "set HF_TOKEN": "nowhere is not a local folder and is not a valid model identifier listed on the hub",
    "the folder of a model as --model": "We couldn't connect to 'https://huggingface.co' to load the files",
    "pip uninstall torchvision": "libcudart.so.12: cannot open shared object file: No such file or directory",
}


@pytest.mark.parametrize(("says", "message"), MESSAGES.items(), ids=MESSAGES)
@pytest.mark.parametrize("on_cpu", [False, True])
def test_a_message_of_vllm_is_told_with_our_options(says, message, on_cpu):
    told = remedy(message, on_cpu)
    assert re.search(says, told)
    assert told.endswith(f"(vLLM: {quoted(message)})")
    assert ("gpu_memory_utilization=X" in told) <= (not on_cpu)
    assert remedy("something new") == "something new"


class FakeVLLM(types.ModuleType):
    """Notes what a model is loaded with."""

    def __init__(self, on_cpu):
        super().__init__("vllm")
        self.__spec__ = importlib.machinery.ModuleSpec("vllm", None)
        self.platforms = types.ModuleType("vllm.platforms")
        self.platforms.current_platform = types.SimpleNamespace(is_cpu=lambda: on_cpu)
        self.loaded = None
        self.problem = None

    def LLM(self, **options):  # noqa: N802
        if self.problem:
            raise self.problem
        self.loaded = options
        config = types.SimpleNamespace(max_model_len=options.get("max_model_len"))
        engine = types.SimpleNamespace(model_config=config, abort_request=lambda _: None)
        tokenizer = types.SimpleNamespace(
            chat_template="{{ x }}", all_special_ids=[], added_tokens_decoder={}
        )
        return types.SimpleNamespace(llm_engine=engine, get_tokenizer=lambda: tokenizer)


@pytest.fixture
def fake(monkeypatch, request):
    vllm = FakeVLLM(on_cpu=getattr(request, "param", True))
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    monkeypatch.setitem(sys.modules, "vllm.platforms", vllm.platforms)
    return vllm


@pytest.fixture
def model(tmp_path):
    """Makes the folder of a model with a context."""

    def make(context):
        config = {"model_type": "llama", "max_position_embeddings": context}
        (tmp_path / "config.json").write_text(json.dumps(config))
        return str(tmp_path)

    return make


def loaded_with(fake, model, options=None):
    VLLMEngine(model, options).close()
    return fake.loaded


@pytest.mark.parametrize(("context", "taken"), [(2048, 2048), (131_072, 8192)])
def test_on_a_cpu_the_context_and_the_cache_fit_into_a_laptop(fake, model, context, taken):
    loaded = loaded_with(fake, model(context))
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert (loaded["max_model_len"], loaded["kv_cache_memory_bytes"]) == (taken, memory // 8)
    assert context_length("vllm", model(context)) == taken
    given = {"max_model_len": 4096, "gpu_memory_utilization": 0.3, "dtype": "bfloat16"}
    loaded = loaded_with(fake, model(context), given)
    assert loaded.items() >= given.items()
    assert "kv_cache_memory_bytes" not in loaded
    assert context_length("vllm", model(context), given) == 4096
    assert loaded_with(fake, model(context), {"max_model_len": -1})["max_model_len"] == -1, "as much as fits"


@pytest.mark.parametrize("fake", [False], indirect=True)
def test_on_a_gpu_vllm_finds_the_context_and_the_cache(fake, model):
    assert loaded_with(fake, model(131_072)).keys() == {
        "model",
        "enable_prefix_caching",
        "use_tqdm_on_load",
    }
    assert context_length("vllm", model(131_072)) == 131_072


def test_what_vllm_cannot_load_is_told_with_our_options(fake, model):
    fake.problem = ValueError(MESSAGES["max_model_len=8192 at most"])
    with pytest.raises(
        InputError, match=r"vLLM cannot load .*give --engine-option max_model_len=8192 at most"
    ):
        VLLMEngine(model(8192))


# --- how long branches are ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("fake")
def test_branches_are_as_long_as_the_context_holds(model):
    assert [fitting_tokens(context) for context in (None, 131_072, 40_960, 8192, 1)] == [
        *(32_768, 32_768, 32_768),
        *(6553, 1),
    ]
    assert SamplingOptions().sampling(EngineOptions(model=model(2048))).max_tokens == 1638
    assert SamplingOptions(max_tokens=99).sampling(EngineOptions(model="not looked at")).max_tokens == 99
    assert SamplingOptions().sampling(EngineOptions(engine="simulated")).max_tokens == 32_768


def test_a_collection_goes_on_with_its_length_of_branches(tmp_path):
    sampling = Sampling(interval=20, max_tokens=120)
    plan = Plan("simulated", "sums", (Problem("What is 2 + 2?", "4"),), num_branches=2, sampling=sampling)
    collect(plan, tmp_path / "run", LocalWorkers(SimulatedEngine()))
    nowhere = EngineOptions(engine="server", base_url="http://127.0.0.1:9", model="m")
    assert SamplingOptions().sampling(nowhere, collection=tmp_path / "run").max_tokens == 120


class Small(SimulatedEngine):
    max_model_len = 1000


def test_an_answer_from_python_fits_into_the_context_too():
    assert answer(Small(), "What is 2 + 2?", "single@2", max_branches=1).tokens <= 800
