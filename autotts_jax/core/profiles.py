"""What cost models know of machines, models and prices: published facts by name, or your own."""

from __future__ import annotations

import dataclasses
import functools
from importlib import resources
from typing import Any, TypeVar

import jax
from jaxtyping import Float

from autotts_jax.checks import check_float, nearest
from autotts_jax.errors import InputError
from autotts_jax.extras import needs
from autotts_jax.parsing import parse_toml
from autotts_jax.typing import Array

Number = float | Float[Array, "..."]
"""A number, or an array with one for each cell of a dataset."""


LEAST, MOST = 1e-3, 1e18
"""Bounds of a profile's numbers, within which no cost overflows."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Hardware:
    """A machine that runs a model.

    Attributes:
        flops: FLOP a second at its peak.
        bandwidth: bytes a second from its memory.
        memory: bytes of its memory.
        step_seconds: seconds that each step of the engine takes besides, as for scheduling; 0 in the profiles
            of the package, which are peaks.
    """

    flops: Number
    bandwidth: Number
    memory: Number
    step_seconds: Number = 0.0


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ModelSize:
    """The size of a language model, a transformer with grouped queries.

    Attributes:
        parameters: N, all parameters, embeddings included.
        layers: number of layers.
        query_heads: attention heads of a layer.
        kv_heads: heads of a layer with keys and values of their own.
        head_dim: dimension of a head.
        weight_bytes: bytes of a parameter.
        kv_bytes: bytes of an element of a key or a value.
    """

    parameters: Number
    layers: Number
    query_heads: Number
    kv_heads: Number
    head_dim: Number
    weight_bytes: Number = 2.0
    kv_bytes: Number = 2.0

    @property
    def weights(self) -> Number:
        """Bytes of the weights."""
        return self.parameters * self.weight_bytes

    @property
    def kv_of_token(self) -> Number:
        """Bytes of the keys and values of one token."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.kv_bytes

    @property
    def attention_flops(self) -> Number:
        """FLOP of one token's attention to one token before it: two products of 2·d for each head."""
        return 4 * self.layers * self.query_heads * self.head_dim


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Price:
    """US dollars of a token.

    Attributes:
        read: of an input token.
        cached: of an input token that is in the provider's prefix cache.
        written: of an output token.
    """

    read: Number
    cached: Number
    written: Number


Profile = TypeVar("Profile", Hardware, ModelSize)


@functools.cache
def _profiles() -> dict[str, dict[str, dict[str, Any]]]:
    return parse_toml(resources.files(__package__).joinpath("profiles.toml").read_bytes())


def hardware_named(name: str | Hardware) -> Hardware:
    """Finds the profile of a machine.

    Args:
        name: its name in ``profiles.toml``, or a profile itself.

    Raises:
        InputError: there is none of this name, or it has a rate that is out of range.
    """
    return _profile("hardware", Hardware, name)


def model_named(name: str | ModelSize) -> ModelSize:
    """Finds the size of a model.

    Args:
        name: its name in ``profiles.toml``, or a size itself.

    Raises:
        InputError: there is none of this name, or it has a size that is out of range.
    """
    return _profile("model", ModelSize, name)


def _profile(what: str, kind: type[Profile], given: str | Profile) -> Profile:
    if isinstance(given, kind):
        profile = given
    else:
        known = _profiles()[what]
        if given not in tuple(known):
            raise InputError(f"the {what} {given!r} has no profile; {nearest(given, known)}")
        profile = kind(**{name: value for name, value in known[given].items() if name != "source"})
    for field in dataclasses.fields(kind):
        least = 0 if field.name == "step_seconds" else LEAST
        check_float(f"{what}.{field.name}", getattr(profile, field.name), least, most=MOST)
    return profile


@functools.cache
def price_named(name: str) -> Price:
    """Looks up what a provider asks for a model's tokens, by the package genai-prices.

    The price is that of short requests where a provider asks more for the tokens of long ones.

    Returns:
        The price.

    Raises:
        InputError: the model is unpriced, or genai-prices is missing.
    """
    with needs("prices", "a cost in US dollars"):
        from genai_prices import Usage, calc_price
    provider, colon, model = name.partition(":")

    def dollars(**tokens: int) -> float:
        try:
            found = calc_price(
                Usage(**tokens),
                model_ref=model if colon else name,
                provider_id=provider if colon else None,
            )
        except LookupError as error:
            raise InputError(
                f"{name} is unpriced: {error}; name a model that a provider sells, as "
                "openrouter:qwen/qwen3-8b"
            ) from None
        return float(found.total_price)

    # Small counts stay below the limits from which some providers ask more.
    thousand = 1000
    read = dollars(input_tokens=thousand) / thousand
    written = dollars(output_tokens=thousand) / thousand
    cached = dollars(input_tokens=thousand, cache_read_tokens=thousand) / thousand
    if not read or not written:
        raise InputError(f"{name} is unpriced: its provider states no price; name another one")
    return Price(read, cached, written)
