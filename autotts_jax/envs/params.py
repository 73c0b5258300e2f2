"""What an environment is played with, how that is made of settings, and the state of an episode in it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int, Int16, Int32, PRNGKeyArray

from autotts_jax.checks import check_choice, check_int
from autotts_jax.core.costs import MOST_GAMMA, CostModel, EpisodeCost, as_cost
from autotts_jax.core.pool import ReplayPool
from autotts_jax.envs.observations import History, Tracker
from autotts_jax.envs.rewards import Reward
from autotts_jax.errors import InputError
from autotts_jax.replay.matrix import ProbeMatrix
from autotts_jax.replay.orders import BranchOrders
from autotts_jax.terminal import brief
from autotts_jax.typing import Array

ORDERS = 1024
"""Branch orders that episodes draw from."""


class Replaceable:
    """A dataclass of which copies with other values can be made, as of flax's."""

    def replace(self, **changes: Any) -> Self:
        """Replaces some values."""
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)  # arrays cannot say whether they are equal
class EnvParams(Replaceable):
    """The parameters of an environment. Every leaf is traced, and all but the data can be batched.

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
        cost: what an episode costs, see `EpisodeCost.in_intervals`; None for intervals themselves.
        max_branches: W of the environment that they were made for (static).
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
    cost: EpisodeCost | None
    max_branches: int = dataclasses.field(metadata={"static": True})

    __repr__ = brief


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class EnvState(Replaceable):
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
        critical_path: tokens on the critical path so far, each step a round; None where the cost does not
            depend on them. Shape ().
    """

    pool: ReplayPool
    tracker: Tracker
    history: History | None
    question: Int32[Array, ""]
    target: Int32[Array, ""]
    answer: Int32[Array, ""]
    gamma: Float[Array, ""]
    time: Int32[Array, ""]
    critical_path: Int32[Array, ""] | None


@functools.cache
def register_with_flax(kind: type) -> None:
    """Lets `flax.serialization` write and read such states; called before there is any, for it is slow."""
    from flax import serialization

    def to_dict(state: Any) -> dict[str, Array]:
        leaves, _ = jax.tree_util.tree_flatten_with_path(state)
        return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}

    def from_dict(state: Any, values: dict[str, Array]) -> Any:
        names = to_dict(state)
        if names.keys() != values.keys():
            raise InputError(
                "this is not a state of the same environment: it has "
                f"{', '.join(sorted(names.keys() ^ values.keys())):.200} more or fewer"
            )
        return jax.tree.unflatten(jax.tree.structure(state), [values[name] for name in names])

    serialization.register_serialization_state(kind, to_dict, from_dict)


def with_own_buffers(state: EnvState) -> EnvState:
    """Copies what leaves may share with one another or with parameters, so that a state can be donated."""
    seen = set()

    def own(leaf: Array) -> Array:
        shared = id(leaf) in seen or not isinstance(leaf, jax.core.Tracer)
        seen.add(id(leaf))
        return jnp.copy(leaf) if shared else leaf

    return jax.tree.map(own, state)


def gamma_range(gamma: float | Sequence[float]) -> tuple[float, float]:
    """Finds the least and the largest γ.

    Raises:
        InputError: it is something else, or negative.
    """
    try:
        given = np.asarray(gamma)
    except ValueError:  # lists of several lengths
        given = np.asarray(None)
    if given.shape not in ((), (2,)) or given.dtype.kind not in "iuf":
        raise InputError(f"gamma is {gamma!r:.60}, but it must be a number or a range (low, high) of two")
    low, high = np.broadcast_to(given, 2).clip(-1, 2 * MOST_GAMMA).astype(np.float32)
    if not (0 <= low <= high <= MOST_GAMMA) or (low == 0 and high > 0):
        raise InputError(
            f"gamma is {gamma!r:.60}, but it must be a number of at least 0, or a range of positive numbers, "
            f"that float32 can hold, and at most {MOST_GAMMA:g}"
        )
    return float(low), float(high)


def different_branches(order: Int[np.ndarray, "*E W"], recorded: Any) -> Bool[np.ndarray, "*E"]:
    """Tells whether orders name branches that there are, each once."""
    in_order = np.sort(order)
    known = (in_order[..., 0] >= 0) & (in_order[..., -1] < recorded)
    return np.asarray(known & (np.diff(in_order) > 0).all(-1))


def reward_mode(name: str | Reward) -> Reward:
    """Finds a reward mode by name.

    Raises:
        InputError: there is none of this name.
    """
    if isinstance(name, Reward):
        return name
    return Reward[check_choice("reward", name, [mode.name.lower() for mode in Reward]).upper()]


def cost_of_models(cost: str | CostModel, models: Sequence[str]) -> EpisodeCost | None:
    """Makes what an episode of an environment costs.

    Args:
        cost: the cost's name or model.
        models: the model of each cell.

    Returns:
        The cost; None for intervals.

    Raises:
        InputError: the cost is unknown, or a model has no profile, no price or no room in memory.
    """
    model = as_cost(cost)
    if model.kind == "intervals":
        return None
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), model.of_models(models))


def branches_of_cells(matrix: ProbeMatrix) -> np.ndarray:
    """Counts the recorded branches of each cell's questions; what is beyond is padding.

    Returns:
        The numbers of branches. Shape (C,).
    """
    recorded = np.sum(np.asarray(matrix.lengths) > 0, axis=1)
    cell = np.asarray(matrix.cell)
    return np.array(
        [recorded[cell == index].min(initial=matrix.num_branches) for index in range(cell.max() + 1)]
    )


def draw_orders(matrix: ProbeMatrix, branches: Int[np.ndarray, " C"], seed: int) -> BranchOrders:
    """Draws the branch orders that episodes draw from, of the `branches_of_cells`.

    Raises:
        InputError: the seed is not in 0 … 2³² - 1.
    """
    key = jax.random.key(check_int("seed", seed, 0, 2**32 - 1))
    drawn = _draw_orders(key, jnp.asarray(branches), matrix.num_branches)
    return BranchOrders(drawn, jnp.asarray(matrix.cell))


@jax.jit(static_argnums=2)
def _draw_orders(key: PRNGKeyArray, branches: Int[Array, " C"], most: int) -> Int16[Array, "C R N"]:
    """Random orders of each cell's branches, of which there are at most ``most``; the padding comes last."""
    rank = jax.random.uniform(key, (branches.shape[0], ORDERS, most))
    rank = jnp.where(jnp.arange(most) < branches[:, None, None], rank, jnp.inf)
    return jnp.argsort(rank, axis=-1).astype(jnp.int16)
