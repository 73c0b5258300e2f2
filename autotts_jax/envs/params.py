"""What an environment is played with, and the state of an episode in it."""

from __future__ import annotations

import dataclasses
from typing import Any, Self

import jax
from jaxtyping import Float, Int16, Int32

from autotts_jax.core.pool import ReplayPool
from autotts_jax.envs.observations import History, Tracker
from autotts_jax.replay.matrix import ProbeMatrix
from autotts_jax.replay.orders import BranchOrders
from autotts_jax.typing import Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class EnvParams:
    """What an environment is played with. Every leaf is traced, and all but the data can be batched.

    Attributes:
        matrix: the probe matrix.
        orders: branch orders that episodes draw from, of N branches.
        targets: for `Reward.MAJORITY`, the answer id that counts as right for each question and row of its
            orders, by vote of branches that the order does not play; None for the other modes. Shape (Q, R).
        gamma_low: least γ; an episode draws its γ log-uniformly between the two.
        gamma_high: largest γ.
        kappa_probe: κ_probe, intervals charged for a probe.
        budget: token budget B; None for no limit.
        reward: a `Reward`.
        progress_weight: α of `Reward.PROGRESS`.
        regret_budget: C0 of `Reward.REGRET`, in intervals.
        invalid_penalty: taken off the reward of a step with an inadmissible action.
        max_steps_in_episode: steps after which an episode is truncated.
    """

    matrix: ProbeMatrix
    orders: BranchOrders
    targets: Int16[Array, "Q R"] | None
    gamma_low: Float[Array, ""]
    gamma_high: Float[Array, ""]
    kappa_probe: Float[Array, ""]
    budget: Int32[Array, ""] | None
    reward: Int32[Array, ""]
    progress_weight: Float[Array, ""]
    regret_budget: Float[Array, ""]
    invalid_penalty: Float[Array, ""]
    max_steps_in_episode: Int32[Array, ""]

    def replace(self, **changes: Any) -> Self:
        """Replaces some parameters.

        Args:
            changes: new values by name.
        """
        return dataclasses.replace(self, **changes)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class EnvState:
    """An episode under way.

    Attributes:
        pool: its branch pool, without the matrix.
        tracker: what its steps have shown.
        history: everything revealed; None unless it is observed.
        question: index of the question in the matrix. Shape ().
        target: the answer id that counts as right for the reward. Shape ().
        answer: the answer id that would be answered now. Shape ().
        gamma: γ. Shape ().
        time: steps taken. Shape ().
    """

    pool: ReplayPool
    tracker: Tracker
    history: History | None
    question: Int32[Array, ""]
    target: Int32[Array, ""]
    answer: Int32[Array, ""]
    gamma: Float[Array, ""]
    time: Int32[Array, ""]
