"""What vLLM's messages mean for the options of this package."""

from __future__ import annotations

import re

from autotts_jax.terminal import quoted

_OPTION = "--engine-option"

_REMEDIES = (
    (
        r"is larger than the available KV cache|needed, which is larger",
        "the model's context does not fit into memory: give "
        f"{_OPTION} max_model_len={{fits}}, or more memory by {{memory}}",
    ),
    (
        r"No available memory for the cache blocks",
        f"the model leaves no memory for a prefix cache: give more by {{memory}}, or a smaller model, or "
        f"spread it over GPUs with {_OPTION} tensor_parallel_size=2",
    ),
    (
        r"(?:Available memory on node|Free memory on device).* is less than",
        "too little memory is free: end what else uses it, or take less by {memory}",
    ),
    (
        r"out of memory|OutOfMemory|DefaultCPUAllocator: can't allocate",
        f"memory ran out: give less to the prefix cache by {{memory}}, fewer requests at once by "
        f"{_OPTION} max_num_seqs=64, or spread the model with {_OPTION} tensor_parallel_size=2",
    ),
    (
        r"User-specified max_model_len .* is greater than the derived max_model_len \(\w+=(?P<fits>\d+)",
        f"the model's context is shorter: give {_OPTION} max_model_len={{fits}} at most, or leave it out",
    ),
    (
        r"longer than the maximum model length|maximum context length",
        "the prompt does not fit into the context: lower --max-tokens, or shorten the question",
    ),
    (
        r"Failed to infer device type|No CUDA GPUs are available|Found no NVIDIA driver",
        "vLLM finds no GPU: install its build for CPUs, pip install 'autotts-jax[collect-cpu]'",
    ),
    (
        r"must be divisible by tensor parallel size",
        f"give {_OPTION} tensor_parallel_size=N with an N that divides the attention heads",
    ),
    (
        r"[Ww]orld size.* is larger than|exceeds? available GPUs|enough GPUs|is out of bounds for",
        f"there are fewer GPUs than {_OPTION} tensor_parallel_size=N asks for: give a smaller N",
    ),
    (
        r"Bfloat16 is only supported on GPUs",
        f"this GPU has no bfloat16: give {_OPTION} dtype=half",
    ),
    (
        r"trust_remote_code=True",
        f"if you trust the code that comes with the model, give {_OPTION} trust_remote_code=true",
    ),
    (
        r"gated repo|401 Client Error|Repository Not Found|is not a valid model identifier",
        "there is no such model, or it has to be applied for: check --model, set HF_TOKEN, or give a folder",
    ),
    (
        r"couldn't connect to|LocalEntryNotFoundError|offline mode",
        "the hub cannot be reached: give the folder of a model as --model",
    ),
    (
        r"lib(?:cuda|cudart|c10_cuda|torch_cuda|nvrtc)[\w.]*: cannot open shared object",
        "a package in its build for GPUs is installed beside vLLM's for CPUs: "
        "pip uninstall torchvision torchaudio torchcodec triton",
    ),
)
_ESTIMATE = re.compile(r"estimated maximum model length is (?P<fits>\d+)")
_MEMORY = {
    True: f"{_OPTION} kv_cache_memory_bytes=N",
    False: f"{_OPTION} gpu_memory_utilization=X, a share from 0 to 1",
}


def remedy(message: str, on_cpu: bool = False) -> str:
    """Adds to a message of vLLM what to do about it.

    Args:
        message: the message.
        on_cpu: whether it runs on a CPU.

    Returns:
        What to do, by our options, and the shortened message; that alone if it is unknown.
    """
    for pattern, what in _REMEDIES:
        if found := re.search(pattern, message, re.DOTALL):
            estimate = _ESTIMATE.search(message)
            fits = found.groupdict().get("fits") or (estimate["fits"] if estimate else "N")
            return f"{what.format(fits=fits, memory=_MEMORY[on_cpu])} (vLLM: {quoted(message)})"
    return quoted(message)
