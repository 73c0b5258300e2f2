"""How many tokens a prompt and its completion may have together, in each server's way of telling."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from typing import Any

from autotts_jax.collect.engine import EngineError
from autotts_jax.collect.schema import SchemaError, parse_as
from autotts_jax.collect.upstream import LostError, Upstream
from autotts_jax.errors import InputError, InputWarning
from autotts_jax.parsing import parse_json

ASSUMED = 32_768
"""Tokens that are assumed where a server tells no limit."""

_NAMES = ("max_model_len", "context_length", "context_window", "max_context_length")
"""What servers and hosted APIs call the limit in their lists of models; vLLM and SGLang by the first name."""

_PLACES = (
    ("/props", ("default_generation_settings", "n_ctx")),  # llama.cpp
    ("/info", ("max_total_tokens",)),  # TGI
)


@dataclasses.dataclass(frozen=True)
class _Meta:
    n_ctx: int | None = None
    """llama.cpp's tokens of a slot."""


@dataclasses.dataclass(frozen=True)
class _Model:
    id: str
    max_model_len: int | None = None
    context_length: int | None = None
    context_window: int | None = None
    max_context_length: int | None = None
    meta: _Meta | None = None


@dataclasses.dataclass(frozen=True)
class _ModelList:
    data: list[_Model] | None
    """Ollama has null where it has no model."""


def find_limit(upstream: Upstream, model: str, given: int | None) -> int:
    """Finds the limit of a model, which the server has to have.

    Args:
        upstream: the server.
        model: the name under which the server serves the model.
        given: the limit, if the user knows it.

    Returns:
        The tokens; `ASSUMED`, with a warning, where nobody tells.

    Raises:
        InputError: there is no such server or model.
        EngineError: the server needs another key.
    """
    return upstream.run(functools.partial(_find_limit, upstream, model, given))


async def _find_limit(upstream: Upstream, model: str, given: int | None) -> int:
    try:
        limits = read_models(await upstream.send("GET", "/v1/models"))
    except (LostError, SchemaError) as error:
        problem = upstream.quoted(str(error))
        raise InputError(
            f"no OpenAI-compatible server at {upstream.url}: {problem}; start one, e.g. with "
            f"`vllm serve {model}`, or give its address"
        ) from error
    if model not in limits:
        known = upstream.quoted(", ".join(limits)) if limits else "none"
        raise InputError(f"{upstream.url} has no model {model}; it has: {known}")
    if limit := given or limits[model]:
        return limit
    for path, place in _PLACES:
        if limit := _at(await _json(upstream, path), place):
            return limit
    if limit := _of_ollama(await _json(upstream, "/api/ps"), model):
        return limit
    warnings.warn(
        f"{upstream.url} does not report the context length of {model}; assuming {ASSUMED:,} tokens. "
        "If that is wrong, give --engine-option max_model_len=N",
        InputWarning,
        stacklevel=2,
    )
    return ASSUMED


async def _json(upstream: Upstream, path: str) -> Any:
    """What a server has at a path that only some have, None if this one does not."""
    try:
        return parse_json(await upstream.send("GET", path))
    except (LostError, EngineError, ValueError):
        return None


def _at(value: Any, place: tuple[str, ...]) -> int | None:
    for name in place:
        value = value.get(name) if isinstance(value, dict) else None
    return value if type(value) is int and value >= 1 else None


def _of_ollama(running: Any, model: str) -> int | None:
    """The limit of a model that Ollama has loaded, which need not be that of the model."""
    models = running.get("models") if isinstance(running, dict) else None
    for entry in models if isinstance(models, list) else ():
        if isinstance(entry, dict) and model in (entry.get("name"), entry.get("model")):
            return _at(entry, ("context_length",))
    return None


def read_models(content: bytes) -> dict[str, int | None]:
    """Reads the list of a server's models.

    Args:
        content: the reply.

    Returns:
        The context length of each model, None if the list does not tell.

    Raises:
        SchemaError: it is not a list of models.
    """
    return {model.id: _told(model) for model in parse_as(_ModelList, content, closed=False).data or ()}


def _told(model: _Model) -> int | None:
    told = {name: getattr(model, name) for name in _NAMES} | {"meta.n_ctx": model.meta and model.meta.n_ctx}
    for name, limit in told.items():
        if limit is not None and limit < 1:
            raise SchemaError(f"{name}: it is {limit}, which no model has")
    return next((limit for limit in told.values() if limit is not None), None)
