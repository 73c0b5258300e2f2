"""Random words as `jax.random` makes them, without its loop.

On a CPU JAX compiles Threefry (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) as a loop
of small operations, which in small batches take as long as the rest of an environment's step. Here the rounds
are unrolled, so that XLA makes one operation of them.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray, UInt32

from autotts_jax.errors import InputError
from autotts_jax.typing import Array

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def fold_in(key: PRNGKeyArray, data: int) -> PRNGKeyArray:
    """Makes the key that ``jax.random.fold_in`` makes, which for 0 and 1 are those of ``jax.random.split``.

    Args:
        key: the key, of any kind.
        data: a number below 2³².
    """
    if not _is_threefry(key):
        return jax.random.fold_in(key, data)
    words = _threefry(jax.random.key_data(key), jnp.uint32(0), jnp.uint32(data))
    return jax.random.wrap_key_data(jnp.stack(words), impl=jax.random.key_impl(key))


def bits(key: PRNGKeyArray, count: int) -> UInt32[Array, " n"]:
    """Draws the words that ``jax.random.bits`` draws."""
    if not _is_threefry(key):
        return jax.random.bits(key, (count,), jnp.uint32)
    first, second = _threefry(jax.random.key_data(key), jnp.uint32(0), jnp.arange(count, dtype=jnp.uint32))
    return first ^ second


def _is_threefry(key: PRNGKeyArray) -> bool:
    """Whether a key is typed and JAX would draw from it as here; an `InputError` for what is not a key."""
    if not isinstance(key, jax.Array):
        raise InputError(f"the key is {key!r:.60}, but it must be a random key, as jax.random.key(0)")
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        return False
    partitionable = jax.config.jax_threefry_partitionable  # type: ignore[attr-defined]
    return bool(partitionable) and jax.random.key_impl(key) == "threefry2x32"


@jax.jit
def _threefry(
    key: UInt32[Array, " 2"], first: UInt32[Array, "..."], second: UInt32[Array, "..."]
) -> tuple[UInt32[Array, "..."], UInt32[Array, "..."]]:
    """Threefry-2x32 with 20 rounds."""
    keys = (key[0], key[1], key[0] ^ key[1] ^ _PARITY)
    first, second = first + keys[0], second + keys[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            first += second
            second = (second << rotation | second >> (32 - rotation)) ^ first
        first += keys[(group + 1) % 3]
        second += keys[(group + 2) % 3] + jnp.uint32(group + 1)
    return first, second
