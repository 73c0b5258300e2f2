"""DEER: leave a branch once the model is sure of the answer that it is forced to give (arXiv 2504.15895)."""

from __future__ import annotations

import dataclasses

import jax
from jaxtyping import Bool

from autotts_jax.core.controller import Family, within
from autotts_jax.core.view import View
from autotts_jax.errors import InputError
from autotts_jax.policies.early_exit import EarlyExit
from autotts_jax.typing import Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class DEER(EarlyExit):
    """Settles a branch whose forced answer has a high probability, the geometric mean over its tokens.

    The paper forces an answer where the model turns to another thought; here it is forced at each probe.

    Attributes:
        branches: n, branches to open.
        threshold: probability above which a branch is settled; 0.95 in the paper.
    """

    threshold: float = within(0, 1, default=0.95)

    signals = ("probe_p_geo",)

    def begin(self, view: View) -> None:
        """Nothing is remembered."""

    def follow(self, state: None, view: View, fresh: Bool[Array, " W"]) -> tuple[None, Bool[Array, " W"]]:
        return state, fresh & (view.signal("probe_p_geo") > self.threshold)


def _of_threshold(threshold: float) -> DEER:
    if not 0 <= threshold < 1:
        raise InputError(f"the probability is {threshold:g}, but it must be at least 0 and below 1")
    return DEER(1, float(threshold))


FAMILY = Family("deer", (0.8, 0.9, 0.95, 0.99), _of_threshold, "probability")
"""The family over the threshold, with a single branch."""
