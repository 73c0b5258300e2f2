"""Engines by name; each is imported when it is opened."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import inspect
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autotts_jax.checks import check_choice
from autotts_jax.collect.engine import Engine
from autotts_jax.collect.plan import EngineSpec
from autotts_jax.errors import InputError
from autotts_jax.files import files_below, read_bytes
from autotts_jax.keys import hidden
from autotts_jax.parsing import parse_json

ENGINES = ("vllm", "server", "chat", "simulated")
"""Names of the engines that `open_engine` opens."""

BEHIND_HTTP = ("server", "chat")
"""Engines of these that call a server."""

QUICK_TO_FAIL: Mapping[str, Any] = {"attempts": 3, "pause": 0.5}
"""Options of the engine server under which a server that is gone is an error within two seconds."""

CHAT = ("chat_kwargs", "think_end")
"""Options of engines with a tokenizer of the Hub that are none of ``vllm.LLM``."""

OPERATIONAL = (
    *("attempts", "base_url", "max_connections", "pause", "timeout"),  # of ServerEngine
    *("cpu_offload_gb", "gpu_memory_utilization", "kv_cache_memory_bytes", "max_num_batched_tokens"),
    *("max_num_seqs", "swap_space"),
)
"""Options that say how an engine does its work, and not what it writes."""

CONFIGURES = (".json", ".jinja", ".txt")
"""Suffixes of the files that configure a model and its tokenizer; the others hold its weights."""

MAX_READ = 2**26
"""Bytes of the largest of these files whose content is compared, and not its size alone."""


def engine_spec(
    name: str, model: str | None, options: Mapping[str, Any], api_key: str | None = None
) -> EngineSpec:
    """Describes an engine by what its completions depend on.

    The address of a server is not part of it: a server may move, and what it serves is named by the model.

    Args:
        name: one of `ENGINES`.
        model: the model, as for `open_engine`; of a folder, the whole path is kept.
        options: further arguments of the engine's class. Secrets are left out, and what is in `OPERATIONAL`.
        api_key: the key in use, which is left out wherever it is.

    Returns:
        The description, which holds no secret.

    Raises:
        InputError: an option is not JSON, or a file of a local model cannot be read.
    """
    if name == "vllm" and model is not None and Path(model).is_dir():
        model = str(Path(model).resolve())
    named = [place for place in (model, options.get("tokenizer")) if isinstance(place, str)]
    kept = {key: options[key] for key in sorted(options) if key not in OPERATIONAL}
    spec = EngineSpec(name, model, kept).without_secrets()
    return dataclasses.replace(
        spec,
        options=parse_json(hidden(json.dumps(spec.options), api_key or "")),
        files_sha256=_files_sha256([Path(place) for place in named if Path(place).is_dir()]),
    )


def _files_sha256(folders: Sequence[Path]) -> str | None:
    """Hashes the names and sizes of the files in folders, and what is in those that configure a model."""
    if not folders:
        return None
    held = hashlib.sha256()
    for folder in folders:
        for file in files_below(folder):
            name, size = file.relative_to(folder), file.stat().st_size
            held.update(f"{os.fsencode(name)!r} {size}\n".encode())
            if file.suffix in CONFIGURES and size <= MAX_READ:
                held.update(read_bytes(file))
    return held.hexdigest()


def context_length(
    name: str,
    model: str | None = None,
    options: Mapping[str, Any] | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
) -> int | None:
    """Finds how many tokens a prompt and its completion may have together, without loading a model's weights.

    Args:
        name: one of `ENGINES`.
        model: the model, as for `open_engine`.
        options: further arguments of the engine's class.
        base_url: address of a server.
        api_key: API key of a server.

    Returns:
        The tokens; None if the model's configuration does not tell.

    Raises:
        InputError: there is no such engine, or what it needs is not installed.
        EngineError: a server does not answer.
    """
    if name == "vllm" and model is not None:
        from autotts_jax.collect.vllm_engine import find_context

        return find_context(model, dict(options or {}))
    if name in BEHIND_HTTP:  # nothing is lost by being told at once that it is gone
        options = {**QUICK_TO_FAIL, **(options or {})}
    with contextlib.closing(open_engine(name, model, options, base_url, api_key)) as engine:
        return engine.max_model_len


def open_engine(
    name: str,
    model: str | None = None,
    options: Mapping[str, Any] | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
) -> Engine:
    """Opens an engine by name. Close it after use.

    Args:
        name: one of `ENGINES`.
        model: a folder or Hugging Face id, or the name under which a server serves the model; the simulated
            engine has none.
        options: further arguments of the engine's class.
        base_url: address of a server, up to and including ``/v1``.
        api_key: API key of a server.

    Returns:
        The engine.

    Raises:
        InputError: there is no such engine, it is not installed, or it refuses its arguments.
        EngineError: a server does not answer.
    """
    options = dict(options or {})
    if name == "simulated":
        from autotts_jax.collect.simulated import SimulatedEngine

        return _open(SimulatedEngine, options)
    check_choice("engine", name, ENGINES)
    if model is None:
        raise InputError(f"the engine {name} needs a model; give --model")
    if name == "vllm":
        from autotts_jax.collect.vllm_engine import VLLMEngine

        chat = {name: options.pop(name) for name in CHAT if name in options}
        return VLLMEngine(model, options, **chat)
    if base_url is None:
        raise InputError(f"the engine {name} needs an address; give --base-url http://HOST:PORT/v1")
    if name == "chat":
        from autotts_jax.collect.chat_engine import ChatEngine

        return _open(ChatEngine, {"base_url": base_url, "model": model, "api_key": api_key, **options})
    from autotts_jax.collect.server_engine import ServerEngine

    return _open(ServerEngine, {"base_url": base_url, "model": model, "api_key": api_key, **options})


def _open(engine: Any, options: Mapping[str, Any]) -> Engine:
    try:
        inspect.signature(engine).bind(**options)
    except TypeError as error:
        raise InputError(f"the engine does not know an option: {error}") from error
    return engine(**options)
