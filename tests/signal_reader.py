"""A controller in a file of its own that reads a signal."""

import dataclasses

import jax
import jax.numpy as jnp

import autotts_jax as at


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Reader(at.Controller):
    """Reads branches to their ends, prunes those whose signal is low, and weighs votes by it."""

    signals = ("logprob_mean",)

    def start(self, pool):
        return None, pool.open(4)

    def round(self, memory, pool):
        pool = pool.advance(jnp.where(pool.live, 1, 0))
        pool = pool.prune(pool.signal("logprob_mean") < -1.5).open(1)
        return memory, pool, at.first_of((~jnp.any(pool.live), at.StopReason.EXHAUSTED))

    def vote(self, memory, pool):  # noqa: ARG002
        weights = jnp.exp(pool.signal("logprob_mean"))
        return pool.vote(pool.active, weights=weights).or_else(pool.vote(pool.depth > 0))
