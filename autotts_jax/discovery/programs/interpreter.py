"""The interpreter: one controller that plays every program, so that one compilation serves them all.

A clause is a box: the conjunction of its conditions says for each feature from where to where it may lie.
The boxes and values of a program at one β are a handful of arrays, which are traced: candidates, values of β,
questions and branch orders are the lanes of one rollout.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int32

from autotts_jax.core.controller import Family, check_beta
from autotts_jax.discovery.programs.rules import (
    BRANCH_FEATURES,
    DEFAULTS,
    HYPERPARAMETERS,
    MAX_CLAUSES,
    POOL_FEATURES,
    SLOT_VALUES,
    SLOTS,
    Program,
    range_of,
)
from autotts_jax.policies.rule_controller import RuleController, Seen
from autotts_jax.typing import Array

BRANCH_SLOTS = ("read", "prune", "weigh")
"""The slots that are asked of every branch."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class DecisionList(RuleController):
    """Plays a program at one β; made by `decision_list`.

    Attributes:
        pool_low: least value of each feature of the pool, by slot and clause. Shape (5, 3, Fp).
        pool_high: the value that it must be below. Shape (5, 3, Fp).
        branch_low: least value of each feature of a branch, by slot of `BRANCH_SLOTS`. Shape (3, 3, Fb).
        branch_high: the value that it must be below. Shape (3, 3, Fb).
        values: what the clauses say. Shape (5, 3).
    """

    pool_low: Float[Array, "S C Fp"]
    pool_high: Float[Array, "S C Fp"]
    branch_low: Float[Array, "B C Fb"]
    branch_high: Float[Array, "B C Fb"]
    values: Float[Array, "S C"]

    def open(self, seen: Seen) -> Int32[Array, ""]:
        return self._of_pool("open", seen).astype(jnp.int32)

    def read(self, seen: Seen) -> Int32[Array, " W"]:
        return self._of_branches("read", seen).astype(jnp.int32)

    def prune(self, seen: Seen) -> Bool[Array, " W"]:
        return self._of_branches("prune", seen) > 0

    def stop(self, seen: Seen) -> Bool[Array, ""]:
        return self._of_pool("stop", seen) > 0

    def weigh(self, seen: Seen) -> Float[Array, " W"]:
        return self._of_branches("weigh", seen)

    def _pool_holds(self, slot: str, seen: Seen) -> Bool[Array, " C"]:
        at = SLOTS.index(slot)
        return _inside(self.pool_low[at], self.pool_high[at], [getattr(seen, name) for name in POOL_FEATURES])

    def _of_pool(self, slot: str, seen: Seen) -> Float[Array, ""]:
        """What a slot says of the pool."""
        return _first(self._pool_holds(slot, seen), self.values[SLOTS.index(slot)], DEFAULTS[slot])

    def _of_branches(self, slot: str, seen: Seen) -> Float[Array, " W"]:
        """What a slot says of each branch."""
        place = BRANCH_SLOTS.index(slot)
        low, high = self.branch_low[place][:, None], self.branch_high[place][:, None]
        holds = _inside(low, high, [getattr(seen, name) for name in BRANCH_FEATURES])
        if slot != "weigh":
            holds &= self._pool_holds(slot, seen)[:, None]
        return _first(holds, self.values[SLOTS.index(slot)], DEFAULTS[slot])


def _inside(low: Array, high: Array, features: Sequence[Array]) -> Bool[Array, "C ..."]:
    """Whether the features lie in each clause's box; its bounds have the features last."""
    values = [jnp.asarray(feature, jnp.float32) for feature in features]
    inside = [(low[..., at] <= value) & (value < high[..., at]) for at, value in enumerate(values)]
    return functools.reduce(jnp.logical_and, inside)


def _first(holds: Bool[Array, "C ..."], values: Float[Array, " C"], default: float) -> Float[Array, "..."]:
    """The value of the first clause that holds."""
    said = jnp.full(holds.shape[1:], default, jnp.float32)
    for clause in reversed(range(holds.shape[0])):
        said = jnp.where(holds[clause], values[clause], said)
    return said


def decision_list(program: Program, beta: float) -> DecisionList:
    """Makes the controller that a program is at β.

    Args:
        program: the program.
        beta: β in [0, 1].

    Raises:
        InputError: β is out of range.
    """
    beta = check_beta(beta)
    names = [*POOL_FEATURES, *BRANCH_FEATURES]
    # A clause that is not there never holds.
    low = np.full((len(SLOTS), MAX_CLAUSES, len(names)), np.inf, np.float32)
    high = np.full_like(low, np.inf)
    values = np.zeros(low.shape[:2], np.float32)
    for at, slot in enumerate(SLOTS):
        for row, clause in enumerate(program.slot(slot)):
            low[at, row] = -np.inf
            values[at, row] = clause.value.at(beta, SLOT_VALUES[slot])
            for feature, op, number in clause.conditions:
                column, bound = names.index(feature), np.float32(number.at(beta, range_of(feature)))
                if op in ("<=", ">"):
                    bound = _next(bound)
                if op in (">", ">="):
                    low[at, row, column] = max(low[at, row, column], bound)
                else:
                    high[at, row, column] = min(high[at, row, column], bound)
    split = len(POOL_FEATURES)
    branches = [SLOTS.index(slot) for slot in BRANCH_SLOTS]
    hyperparameters: dict[str, Any] = {name: program.hyperparameter(name, beta) for name in HYPERPARAMETERS}
    return DecisionList(
        **hyperparameters,
        pool_low=low[..., :split],
        pool_high=high[..., :split],
        branch_low=low[branches][..., split:],
        branch_high=high[branches][..., split:],
        values=values,
    )


def _next(bound: np.float32) -> np.float32:
    """The next larger number that hardware does not take for zero."""
    above, tiny = np.nextafter(bound, np.float32(np.inf)), np.finfo(np.float32).tiny
    return tiny if -tiny < above < tiny else above


BETAS = tuple(float(beta) for beta in np.arange(11) / 10)
"""The values of β that a sweep plays."""


def family(name: str, program: Program) -> Family:
    """Makes the family of controllers that a program is.

    Args:
        name: its name in results.
        program: the program.
    """
    return Family(name, BETAS, functools.partial(decision_list, program), "β")
