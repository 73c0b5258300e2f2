"""WidthDepth, the environment with the paper's atomic actions."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
from jaxtyping import Bool, Int

from autotts_jax.checks import check_bool
from autotts_jax.core.view import Action, StopReason, View
from autotts_jax.envs.aggregates import Aggregate
from autotts_jax.envs.environment import Environment
from autotts_jax.envs.params import EnvParams
from autotts_jax.envs.spaces import Discrete
from autotts_jax.typing import Array


class WidthDepth(Environment):
    """The paper's atomic actions, one branch at a time (AutoTTS, arXiv 2605.08083, section 2).

    **Action**: an integer below ``num_actions``; i counts branches in opening order.

    ======================  ==============  =========================================
    action                  number          effect
    ======================  ==============  =========================================
    BRANCH                  0               opens the next branch, at depth 1
    ANSWER                  1               ends the episode with the aggregated answer
    CONTINUE(i)             2 + i           reads one more interval of branch i
    PROBE(i)                2 + W + i       reveals branch i's answer at its depth
    PRUNE(i)                2 + 2 W + i     gives branch i up
    ======================  ==============  =========================================

    With ``fused`` BRANCH and CONTINUE reveal as they go, there is no PROBE, and PRUNE(i) is 2 + W + i.

    Args:
        max_branches: W.
        fused: read and reveal in one step, as the released interface does.
        obs: see `Environment`.
        aggregate: see `Environment`.
        mask_in_obs: see `Environment`.
        signals: see `Environment`.
    """

    atomic = True

    def __init__(
        self,
        max_branches: int = 64,
        *,
        fused: bool = False,
        obs: str = "features",
        aggregate: str | Aggregate = "majority",
        mask_in_obs: bool = False,
        signals: Sequence[str] = (),
    ):
        super().__init__(max_branches, obs=obs, aggregate=aggregate, mask_in_obs=mask_in_obs, signals=signals)
        self.fused = check_bool("fused", fused)

    @property
    def num_actions(self) -> int:
        """2 + 3 W, or 2 + 2 W when fused."""
        return 2 + (2 if self.fused else 3) * self.max_branches

    def default_max_steps(self, max_depth: int) -> int:
        """As many steps as can change anything, and one to answer."""
        per_interval = 1 if self.fused else 2
        return self.max_branches * (per_interval * max_depth + 1) + 1

    def action_space(self, params: EnvParams | None = None) -> Discrete:  # noqa: ARG002
        """``Discrete(num_actions)``."""
        return Discrete(self.num_actions)

    def decode(self, view: View, action: Int[Array, ""]) -> tuple[Action, Bool[Array, ""]]:
        """Decodes an atomic action."""
        width, fused = view.width, self.fused
        action = jnp.asarray(action, jnp.int32)
        branch = jnp.arange(width, dtype=jnp.int32)
        probe, prune = 2 + width, 2 + (1 if fused else 2) * width
        decoded = Action(
            jnp.where(action == 1, StopReason.DECIDED, StopReason.RUNNING),
            prune=action == prune + branch,
            open=(action == 0).astype(jnp.int32),
            advance=(action == 2 + branch).astype(jnp.int32),
            probe=None if fused else action == probe + branch,
        )
        chosen = jnp.arange(self.num_actions, dtype=jnp.int32) == action
        return decoded, ~jnp.any(chosen & self.action_mask(view))

    def action_mask(self, view: View) -> Bool[Array, " A"]:
        """Which actions are admissible."""
        allowed = view.admissible
        first = jnp.stack([allowed.branch, jnp.bool_(True)])
        middle = () if self.fused else (allowed.probe,)
        return jnp.concatenate([first, allowed.advance, *middle, allowed.prune])
