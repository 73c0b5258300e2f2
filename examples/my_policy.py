"""First finishers as a policy for ``WidthDepthRounds``: what to do, said with features alone.

Explained in ``docs/controllers.md``; ``my_controller.py`` is the same idea as a controller.
"""

from __future__ import annotations

import jax.numpy as jnp

from autotts_jax.envs import WidthDepthRounds
from autotts_jax.envs.observations import BRANCH_FEATURES, GAMMA_DECADES, GLOBAL_FEATURES
from autotts_jax.policies.env_policy import EnvPolicy

PATIENCE = 8
"""Rounds in a row in which a branch may disagree with the finished ones."""


class MyPolicy(EnvPolicy):
    """Reads branches side by side, gives up those that stray, and answers once enough finished ones agree.

    The less an interval costs, the more branches it opens and the more of them have to agree. It remembers
    for how many rounds each branch has disagreed.
    """

    env = WidthDepthRounds(32)

    def start(self):
        return jnp.zeros(self.env.max_branches, jnp.int32)

    def act(self, observation, memory):
        branch = dict(zip((f.name for f in BRANCH_FEATURES), observation["branches"].T, strict=True))
        whole = dict(zip((f.name for f in GLOBAL_FEATURES), observation["globals"], strict=True))
        width = self.env.max_branches
        decades = GAMMA_DECADES * whole["gamma"]  # -log10 γ
        branches = jnp.clip(jnp.round(4 * decades), 1, width)
        quorum = jnp.clip(jnp.round(decades), 1, branches)

        unread = whole["opened"] == 0
        enough = ~unread & ((whole["finals_top1"] * width >= quorum) | (whole["live"] == 0))
        live = (branch["active"] == 1) & (branch["finished"] == 0)
        at_peace = (branch["with_finals"] == 1) | (whole["finals_voters"] == 0)
        strays = jnp.where(at_peace, 0, memory + 1)
        prune_or_read = jnp.where(strays >= PATIENCE, 1, 2)
        action = [enough[None], jnp.where(unread, branches, 0)[None], jnp.where(live, prune_or_read, 0)]
        return jnp.concatenate([part.astype(jnp.int32) for part in action]), strays
