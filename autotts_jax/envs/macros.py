"""WidthDepthMacro, the environment with a few integer actions that each say what all branches do."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int

from autotts_jax.core.view import Action, StopReason, View
from autotts_jax.envs.params import EnvParams
from autotts_jax.envs.rounds import InRounds, capacity
from autotts_jax.envs.spaces import Discrete
from autotts_jax.typing import Array

ANSWER, READ_ALL, READ_AGREEING, READ_DISAGREEING, PRUNE_DISAGREEING = range(1, 6)


class WidthDepthMacro(InRounds):
    """Decisions of `WidthDepthRounds` that code controllers make, each as one integer.

    **Action**: an integer below ``num_actions``.

    ==================  =======  ============================================================
    action              number   effect
    ==================  =======  ============================================================
    OPEN(1)             0        opens a branch, at depth 1 and probed
    ANSWER              1        ends the episode with the aggregated answer
    READ_ALL            2        reads on in every live branch
    READ_AGREEING       3        reads on in the live branches that agree
    READ_DISAGREEING    4        reads on in those that do not
    PRUNE_DISAGREEING   5        gives up the active branches that do not agree
    OPEN(2^k)           5 + k    opens 2, 4, 8 … branches, up to W
    ==================  =======  ============================================================

    A branch agrees if its latest answer leads the vote of the active branches' latest answers; ties go to the
    branch opened first. While nobody has voted, no branch agrees or disagrees. Branches advance by
    ``max_advance`` intervals, to a branch's end at most, and probes each.

    An action that would do nothing is inadmissible, as is opening more branches than there is room for.

    Args:
        max_branches: W.
        max_advance: intervals that an action reads of a branch.
        obs: see `Environment`.
        aggregate: see `Environment`.
        mask_in_obs: see `Environment`.
        signals: see `Environment`.
    """

    @property
    def num_actions(self) -> int:
        """5 + the number of powers of two that are not above W."""
        return PRUNE_DISAGREEING + self.max_branches.bit_length()

    def action_space(self, params: EnvParams | None = None) -> Discrete:  # noqa: ARG002
        """``Discrete(num_actions)``."""
        return Discrete(self.num_actions)

    def decode(self, view: View, action: Int[Array, ""]) -> tuple[Action, Bool[Array, ""]]:
        """Decodes a macro-action."""
        chosen = jnp.arange(self.num_actions) == jnp.asarray(action, jnp.int32)
        does = chosen & self.action_mask(view)
        agreeing, disagreeing = _sides(view)
        reads = (
            does[READ_ALL] | (does[READ_AGREEING] & agreeing) | (does[READ_DISAGREEING] & disagreeing)
        ) & view.admissible.advance
        opens = jnp.sum(jnp.where(does, self._opening(), 0))
        decoded = Action(
            jnp.where(chosen[ANSWER], StopReason.DECIDED, StopReason.RUNNING),
            prune=does[PRUNE_DISAGREEING] & disagreeing,
            open=opens.astype(jnp.int32),
            advance=jnp.where(reads, self.max_advance, 0).astype(jnp.int32),
        )
        return decoded, ~jnp.any(does)

    def action_mask(self, view: View) -> Bool[Array, " A"]:
        """Which actions are admissible."""
        allowed, opening = view.admissible, self._opening()
        agreeing, disagreeing = _sides(view)
        one_by_one = {
            ANSWER: jnp.bool_(True),
            READ_ALL: jnp.any(allowed.advance),
            READ_AGREEING: jnp.any(allowed.advance & agreeing),
            READ_DISAGREEING: jnp.any(allowed.advance & disagreeing),
            PRUNE_DISAGREEING: jnp.any(allowed.prune & disagreeing),
        }
        mask = jnp.asarray(opening) <= capacity(view)
        return mask.at[jnp.array(list(one_by_one))].set(jnp.stack(list(one_by_one.values())))

    def _opening(self) -> Int[np.ndarray, " A"]:
        """Branches that each action opens."""
        powers = 2 ** np.arange(self.num_actions - PRUNE_DISAGREEING)
        return np.concatenate([powers[:1], np.zeros(PRUNE_DISAGREEING, int), powers[1:]])


def _sides(view: View) -> tuple[Bool[Array, " W"], Bool[Array, " W"]]:
    """The active branches that agree with the leading answer, and those that do not."""
    leader = view.vote(view.active).leader
    agrees = view.agrees(leader)
    return view.active & agrees, view.active & ~agrees & (leader >= 0)
