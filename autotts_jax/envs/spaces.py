"""Spaces of Gymnasium that also sample by keys, as gymnax's do, and whose reprs are one line."""

from __future__ import annotations

from typing import Any, cast

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from jaxtyping import PRNGKeyArray

Space = gymnasium.Space[Any]


class _Keyed(gymnasium.Space[Any]):
    """A space that takes keys and arrays of JAX."""

    def sample(self, mask: Any = None, probability: Any = None) -> Any:
        """Samples an element.

        Args:
            mask: a key, which may be traced; or as in Gymnasium.
            probability: as in Gymnasium.
        """
        return self.draw(mask) if _is_key(mask) else super().sample(mask, probability)

    def draw(self, key: PRNGKeyArray) -> Any:
        """Samples an element by a key."""
        raise NotImplementedError

    def contains(self, x: Any) -> bool:
        """Decides whether something is an element."""
        return super().contains(jax.tree.map(lambda leaf: np.asarray(leaf) if _is_device(leaf) else leaf, x))


def _is_device(given: Any) -> bool:
    return isinstance(given, jax.Array)


def _is_key(given: Any) -> bool:
    """Whether an argument of `sample` is a key, one of two words included; masks are int8 and in NumPy."""
    if not _is_device(given):
        return False
    words = given.dtype == jnp.uint32 and given.shape == (2,)
    return words or jnp.issubdtype(given.dtype, jax.dtypes.prng_key)


class Discrete(_Keyed, spaces.Discrete):
    """Numbers 0 … n - 1."""

    def draw(self, key: PRNGKeyArray) -> Any:
        """Samples a number; see `Space.sample`."""
        return jax.random.randint(key, (), 0, int(self.n))


class MultiDiscrete(_Keyed, spaces.MultiDiscrete):
    """A number for each entry."""

    def draw(self, key: PRNGKeyArray) -> Any:
        """Samples numbers; see `Space.sample`."""
        return jax.random.randint(key, self.nvec.shape, 0, jnp.asarray(self.nvec, jnp.int32))

    def __repr__(self) -> str:
        numbers = np.array2string(self.nvec.reshape(-1), threshold=8, max_line_width=1_000)
        return f"MultiDiscrete({numbers})"


class Box(_Keyed, spaces.Box):
    """Arrays between two bounds."""

    def draw(self, key: PRNGKeyArray) -> Any:
        """Samples an array; see `Space.sample`."""
        if np.issubdtype(self.dtype, np.floating):
            return jax.random.uniform(key, self.shape, self.dtype, self.low, self.high)
        low, high = (jnp.asarray(bound, jnp.int32) for bound in (self.low, self.high))
        return jax.random.randint(key, self.shape, low, high + 1).astype(self.dtype)

    def __repr__(self) -> str:
        low, high = self.low.min().item(), self.high.max().item()
        return f"Box({low:g}, {high:g}, {self.shape}, {self.dtype})"


class Dict(_Keyed, spaces.Dict):
    """Parts by name."""

    def draw(self, key: PRNGKeyArray) -> Any:
        """Samples each part; see `Space.sample`."""
        keys = jax.random.split(key, len(self.spaces))
        return {name: part.sample(own) for own, (name, part) in zip(keys, self.spaces.items(), strict=True)}


def _batch(space: Space, n: int = 1) -> Space:
    """Batches as Gymnasium does; the result has a repr of one line, too."""
    of_gymnasium = next(kind for kind in type(space).__mro__ if kind.__module__.startswith("gymnasium."))
    batched = batch_space.dispatch(of_gymnasium)(space, n)
    seed: Any = batched.np_random
    if isinstance(batched, spaces.MultiDiscrete):
        return MultiDiscrete(batched.nvec, dtype=batched.dtype, seed=seed)
    box = cast(spaces.Box, batched)
    return Box(box.low, box.high, dtype=cast(Any, box.dtype), seed=seed)


for _kind in (Discrete, MultiDiscrete, Box):
    batch_space.register(_kind, _batch)
