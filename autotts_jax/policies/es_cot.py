"""ES-CoT: leave a branch once the run of its equal probes jumps in length (arXiv 2509.14004)."""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int32

from autotts_jax.core.controller import Family, within
from autotts_jax.core.lanes import choose
from autotts_jax.core.view import UNREVEALED, View
from autotts_jax.policies.early_exit import EarlyExit
from autotts_jax.policies.single_branch import check_patience
from autotts_jax.replay.matrix import NONE
from autotts_jax.typing import Array

SIGNIFICANCE = 0.05
"""Level of the t-test."""


class Runs(NamedTuple):
    """The runs of equal answers of each branch, the last of which goes on. Shape (W,) each.

    Attributes:
        key: key of the latest answer.
        length: probes in the run.
        before: probes in the run before it, 0 where it is the first.
        jumps: how many runs are over; each jumped by its length less that of the run before it.
        total: sum of those jumps.
        squares: sum of their squares.
    """

    key: Int32[Array, " W"]
    length: Int32[Array, " W"]
    before: Int32[Array, " W"]
    jumps: Int32[Array, " W"]
    total: Int32[Array, " W"]
    squares: Int32[Array, " W"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ESCoT(EarlyExit):
    """Settles a branch when its latest run of equal answers is longer than the one before it by a jump.

    The jump has to be large, and by a t-test larger than those before. The first run counts as a jump from 0,
    and where fewer than two jumps came before, the test is left out. The paper asks for an answer at each
    step of the thinking; here an interval lies between two probes.

    Attributes:
        branches: n, branches to open.
        jump: d_min, by how many probes the run has to be longer; 10 in the paper.
    """

    jump: int = within(1, default=10)

    def begin(self, view: View) -> Runs:
        zeros = jnp.zeros(view.width, jnp.int32)
        return Runs(jnp.full(view.width, UNREVEALED, jnp.int32), zeros, zeros, zeros, zeros, zeros)

    def follow(self, state: Runs, view: View, fresh: Bool[Array, " W"]) -> tuple[Runs, Bool[Array, " W"]]:
        key = jnp.asarray(view.answer_keys, jnp.int32)
        goes_on, over = key == state.key, state.length - state.before
        ended = ~goes_on & (state.length > 0)
        following = Runs(
            key,
            jnp.where(goes_on, state.length + 1, 1),
            jnp.where(goes_on, state.before, state.length),
            state.jumps + ended,
            state.total + jnp.where(ended, over, 0),
            state.squares + jnp.where(ended, over**2, 0),
        )
        runs = choose(fresh, following, state)
        jump = runs.length - runs.before
        return runs, (runs.key != NONE) & (jump >= self.jump) & _is_larger(jump, runs, view.max_depth)


def _is_larger(jump: Int32[Array, " W"], runs: Runs, most: int) -> Bool[Array, " W"]:
    """Whether a one-sided t-test finds the jumps before smaller on average; true where there are too few."""
    number = jnp.maximum(runs.jumps, 1)
    mean = runs.total / number
    deviation = jnp.sqrt((runs.squares - mean * runs.total) / jnp.maximum(number - 1, 1))
    critical = jnp.asarray(_critical_values(most), jnp.float32)[runs.jumps]
    return (runs.jumps < 2) | ((jump - mean) * jnp.sqrt(number) > critical * deviation)


@functools.lru_cache
def _critical_values(most: int) -> Float[np.ndarray, " most+1"]:
    """Quantiles of Student's t by the number of observations, at least two."""
    import scipy.special  # here, as few need it and each sealed process would import it

    return scipy.special.stdtrit(np.maximum(np.arange(most + 1) - 1, 1), 1 - SIGNIFICANCE)


def _of_jump(jump: float) -> ESCoT:
    return ESCoT(1, check_patience(jump))


FAMILY = Family("es-cot", (2, 4, 6, 8, 10), _of_jump, "probes")
"""The family over the jump, in probes, with a single branch."""
