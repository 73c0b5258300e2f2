"""EAT, entropy after </think>: leave a branch once that entropy has settled (arXiv 2509.26522)."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float32, Int32

from autotts_jax.checks import check_float
from autotts_jax.core.controller import Family, within
from autotts_jax.core.view import View
from autotts_jax.policies.early_exit import EarlyExit
from autotts_jax.typing import Array


class Moments(NamedTuple):
    """Exponential moving mean and variance of the entropy of each branch.

    Attributes:
        probes: probes that were followed. Shape (W,).
        mean: the mean, in nats; it begins with the first entropy. Shape (W,).
        variance: the variance; it begins with 0. Shape (W,).
    """

    probes: Int32[Array, " W"]
    mean: Float32[Array, " W"]
    variance: Float32[Array, " W"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class EAT(EarlyExit):
    """Settles a branch when the moving variance of the entropy after its thinking is small.

    Mean and variance are updated as in the released code, which looks at the variance from the 27th entropy
    on. The paper measures more often than once in 500 tokens, so fewer probes are waited for here.

    Attributes:
        branches: n, branches to open.
        threshold: δ, the variance below which a branch is settled, in nats squared.
        rate: weight of a new entropy in mean and variance.
        warm_up: probes after which the variance is looked at.
    """

    threshold: float = within(above=0)
    rate: float = within(most=1, above=0, default=0.2)
    warm_up: int = within(0, default=8)

    signals = ("eat",)

    def begin(self, view: View) -> Moments:
        zeros = jnp.zeros(view.width)
        return Moments(jnp.zeros(view.width, jnp.int32), zeros, zeros)

    def follow(
        self, state: Moments, view: View, fresh: Bool[Array, " W"]
    ) -> tuple[Moments, Bool[Array, " W"]]:
        entropy, first = view.signal("eat"), state.probes == 0
        mean = jnp.where(first, entropy, self.rate * entropy + (1 - self.rate) * state.mean)
        variance = self.rate * (entropy - mean) ** 2 + (1 - self.rate) * state.variance
        state = Moments(
            state.probes + fresh,
            jnp.where(fresh, mean, state.mean),
            jnp.where(fresh, variance, state.variance),
        )
        return state, (state.probes > self.warm_up) & (state.variance < self.threshold)


def _of_delta(delta: float) -> EAT:
    return EAT(1, check_float("δ", delta, above=0))


FAMILY = Family("eat", (0.3, 0.1, 0.03, 0.01), _of_delta, "δ")
"""The family over δ, with a single branch."""
