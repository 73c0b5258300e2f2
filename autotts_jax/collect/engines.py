"""Engines by name; each is imported when it is opened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotts_jax.collect.engine import Engine
from autotts_jax.errors import InputError

ENGINES = ("vllm", "server", "simulated")


def open_engine(
    name: str,
    model: str | None,
    options: Mapping[str, Any] | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
) -> Engine:
    """Opens an engine.

    Args:
        name: one of `ENGINES`.
        model: a folder or hub id, or the name that a server has for it; the simulated engine has none.
        options: more arguments of the engine.
        base_url: address of a server, up to and with ``/v1``.
        api_key: of a server.

    Raises:
        InputError: there is no such engine, it is not installed, or it refuses its arguments.
        EngineError: a server does not answer.
    """
    options = dict(options or {})
    if name == "simulated":
        from autotts_jax.collect.simulated import SimulatedEngine

        return _called(SimulatedEngine, options)
    if model is None:
        raise InputError(f"the engine {name} needs a model; give --model")
    if name == "vllm":
        from autotts_jax.collect.vllm_engine import VLLMEngine

        return VLLMEngine(model, options)
    if name == "server":
        from autotts_jax.collect.server_engine import ServerEngine

        if base_url is None:
            raise InputError("the engine server needs an address; give --base-url http://HOST:PORT/v1")
        return _called(ServerEngine, {"base_url": base_url, "model": model, "api_key": api_key, **options})
    raise InputError(f"unknown engine {name!r}; choose one of {', '.join(ENGINES)}")


def _called(engine: Any, options: Mapping[str, Any]) -> Engine:
    try:
        return engine(**options)
    except TypeError as error:
        raise InputError(f"the engine does not know an option: {error}") from error
