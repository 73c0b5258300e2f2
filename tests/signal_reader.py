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

    def init(self, view):  # noqa: ARG002
        return None, at.Action(open=4)

    def act(self, memory, view):
        low = view.signal("logprob_mean") < -1.5
        reads = view.live & ~low
        stop = at.first_of((~jnp.any(reads), at.StopReason.EXHAUSTED))
        return memory, at.Action(stop, prune=low, open=1, advance=reads.astype(jnp.int32))

    def answer(self, memory, view):  # noqa: ARG002
        weights = jnp.exp(view.signal("logprob_mean"))
        return view.vote(view.active, weights=weights).or_else(view.vote(view.depth > 0))
