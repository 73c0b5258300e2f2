"""A pool of what an episode has shown; the rest is held elsewhere."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Float32, Int, Int32

from autotts_jax.core import votes
from autotts_jax.core.mdp import Admissible
from autotts_jax.core.pool import UNREVEALED, LatestAnswers, check_argument, check_shown, check_vote
from autotts_jax.core.votes import Vote
from autotts_jax.replay.matrix import NONE
from autotts_jax.typing import Array, Scalar


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ObservedPool(LatestAnswers):
    """What has been shown of an episode, as a `BranchPool` without operations but pruning.

    Its keys are labels: answers are numbered in the order in which they were revealed.
    """

    depth: Int32[Array, " W"]
    active: Bool[Array, " W"]
    finished: Bool[Array, " W"]
    revealed_keys: Int32[Array, "W K"]
    admissible: Admissible
    interval: Int32[Array, ""]
    budget: Int32[Array, ""] | None
    intervals: Int32[Array, ""]
    probes: Int32[Array, ""]
    branch_tokens: Int32[Array, " W"]
    tokens: Int32[Array, ""]
    latest_signals: Mapping[str, Float32[Array, " W"]] = dataclasses.field(default_factory=dict)

    @property
    def width(self) -> int:
        return self.revealed_keys.shape[0]

    @property
    def max_depth(self) -> int:
        return self.revealed_keys.shape[1]

    @property
    def num_keys(self) -> int:
        return self.width * self.max_depth

    @property
    def opened(self) -> Int32[Array, ""]:
        return jnp.sum(self.depth > 0, dtype=jnp.int32)

    @property
    def live(self) -> Bool[Array, " W"]:
        return self.active & ~self.finished

    @property
    def revealed_depth(self) -> Int32[Array, " W"]:
        depths = jnp.arange(1, self.max_depth + 1, dtype=jnp.int32)
        return jnp.max(jnp.where(self.revealed_keys == UNREVEALED, 0, depths), axis=1)

    @property
    def answer_keys(self) -> Int32[Array, " W"]:
        depth = self.revealed_depth
        latest = jnp.take_along_axis(self.revealed_keys, jnp.maximum(depth - 1, 0)[:, None], axis=1)[:, 0]
        return jnp.where(depth > 0, latest, NONE)

    @property
    def labels(self) -> Int32[Array, " W"]:
        """The keys."""
        return self.answer_keys

    @property
    def budget_spent(self) -> Bool[Array, ""]:
        could = (self.opened < self.width) | jnp.any(self.live)
        return could & ~(self.admissible.branch | jnp.any(self.admissible.advance))

    def answer_key(self, branch: Scalar) -> Int32[Array, ""]:
        check_argument("answer_key", branch, np.signedinteger)
        return jnp.where(jnp.asarray(branch) == NONE, NONE, self.answer_keys[branch])

    @property
    def signals(self) -> tuple[str, ...]:
        return tuple(sorted(self.latest_signals))

    def signal(self, name: str) -> Float32[Array, " W"]:
        check_shown(self, name)
        return self.latest_signals[name]

    def vote_finals(
        self,
        voters: Bool[Array, " W"] | None = None,
        rank: Int[Array, " W"] | None = None,
        weights: Float[Array, " W"] | None = None,
    ) -> Vote:
        finals = self.finished & (self.revealed_depth == self.depth)
        check_vote("vote_finals", self.width, finals if voters is None else voters, rank, weights)
        return votes.vote(self.answer_keys, finals if voters is None else finals & voters, rank, weights)

    def prune(self, mask: Bool[Array, " W"]) -> ObservedPool:
        check_argument("prune", mask, np.bool_, self.width)
        allowed = self.admissible
        left = Admissible(
            allowed.branch, allowed.advance & ~mask, allowed.probe & ~mask, allowed.prune & ~mask
        )
        return dataclasses.replace(self, active=self.active & ~mask, admissible=left)
