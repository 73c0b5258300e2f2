"""WidthDepthRounds, the environment with one decision a round for all branches."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int, Int32

from autotts_jax.checks import check_int
from autotts_jax.core.view import Action, StopReason, View
from autotts_jax.envs.aggregates import Aggregate
from autotts_jax.envs.environment import Environment
from autotts_jax.envs.params import EnvParams
from autotts_jax.envs.spaces import MultiDiscrete
from autotts_jax.typing import Array


class InRounds(Environment):
    """An environment whose steps are rounds of all branches."""

    def __init__(
        self,
        max_branches: int = 64,
        *,
        max_advance: int = 4,
        obs: str = "features",
        aggregate: str | Aggregate = "majority",
        mask_in_obs: bool = False,
        signals: Sequence[str] = (),
    ):
        super().__init__(max_branches, obs=obs, aggregate=aggregate, mask_in_obs=mask_in_obs, signals=signals)
        self.max_advance = check_int("max_advance", max_advance, 1, np.iinfo(np.int16).max)

    def default_max_steps(self, max_depth: int) -> int:
        """As many rounds as reading one branch takes, one interval each, and some slack."""
        return max(max_depth + 16, 100)


class WidthDepthRounds(InRounds):
    """One decision a round for all branches: what code controllers do, in about 100 steps instead of 2,000.

    **Action**: ``int (2 + W,)``, in Gymnasium ``MultiDiscrete([2, W + 1] + [2 + max_advance] * W)``.

    ========  ==========================================================================================
    entry     meaning
    ========  ==========================================================================================
    0         1 to answer; the rest is then ignored
    1         branches to open, at depth 1 and probed
    2 + i     branch i: 0 holds it, 1 prunes it, 1 + k reads k more intervals, each probed, to its end at most
    ========  ==========================================================================================

    Pruning comes first, then opening, then reading; a branch is read on from the round after the one that
    opens it. An inadmissible entry does nothing and leaves the others alone. Entries are masked one by one;
    under a token budget branches are served in opening order until it is spent.

    Args:
        max_branches: W.
        max_advance: the most intervals that a round reads of a branch.
        obs: see `Environment`.
        aggregate: see `Environment`.
        mask_in_obs: see `Environment`.
        signals: see `Environment`.
    """

    @property
    def num_actions(self) -> int:
        """Entries of an action, 2 + W."""
        return 2 + self.max_branches

    def action_space(self, params: EnvParams | None = None) -> MultiDiscrete:  # noqa: ARG002
        """``MultiDiscrete([2, W + 1] + [2 + max_advance] * W)``."""
        width = self.max_branches
        return MultiDiscrete(np.array([2, width + 1] + [2 + self.max_advance] * width))

    def decode(self, view: View, action: Int[Array, " 2+W"]) -> tuple[Action, Bool[Array, ""]]:
        """Decodes a round."""
        answered = action[0] == 1
        allowed = view.admissible
        opening, choice = action[1], action[2:]
        advance = choice - 1
        wants_prune, wants_advance = choice == 1, choice > 1
        opens = (opening >= 0) & (opening <= capacity(view))
        reads = wants_advance & allowed.advance & (advance <= self.max_advance)
        prunes = wants_prune & allowed.prune
        invalid = (
            ~opens
            | jnp.any(wants_advance & ~reads)
            | jnp.any(wants_prune & ~prunes)
            | jnp.any(choice < 0)
            | ((action[0] != 0) & ~answered)
        )
        goes_on = ~answered
        decoded = Action(
            jnp.where(answered, StopReason.DECIDED, StopReason.RUNNING),
            prune=prunes & goes_on,
            open=jnp.where(opens & goes_on, opening, 0).astype(jnp.int32),
            advance=jnp.where(reads & goes_on, advance, 0).astype(jnp.int32),
        )
        return decoded, goes_on & invalid

    def action_mask(self, view: View) -> Bool[Array, " A"]:
        """Which options of each entry are admissible, entry after entry."""
        allowed = view.admissible
        opening = jnp.arange(view.width + 1) <= capacity(view)
        one = jnp.ones(view.width, bool)
        choice = jnp.stack([one, allowed.prune] + [allowed.advance] * self.max_advance, axis=1)
        return jnp.concatenate([jnp.ones(2, bool), opening, choice.reshape(-1)])


def capacity(view: View) -> Int32[Array, ""]:
    """Counts the branches that could be opened now, within width and budget."""
    free = view.width - view.opened
    if view.budget is None:
        return free
    affordable = (view.budget - view.tokens) // view.interval
    return jnp.clip(affordable, 0, free).astype(jnp.int32)
