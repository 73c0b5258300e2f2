"""First finishers as a policy for ``WidthDepthRounds``, which decides from features alone.

``docs/reference/controllers.md`` explains it; ``my_controller.py`` is the same idea as a controller.
"""

from __future__ import annotations

import jax.numpy as jnp

from autotts_jax.envs import BRANCH_FEATURES, GAMMA_DECADES, GLOBAL_FEATURES, WidthDepthRounds
from autotts_jax.policies import EnvPolicy

PATIENCE = 8
"""Consecutive rounds in which a branch may disagree with the finished ones."""


class MyPolicy(EnvPolicy):
    """Reads branches in parallel, prunes those that disagree, and answers once enough finished ones agree.

    With a smaller γ it opens more branches and needs more of them to agree. Its memory counts, for each
    branch, the consecutive rounds in which it disagreed.
    """

    env = WidthDepthRounds(32)

    def start(self):
        return jnp.zeros(self.env.max_branches, jnp.int32)

    def act(self, observation, memory):
        branch = dict(zip((f.name for f in BRANCH_FEATURES), observation["branches"].T, strict=True))
        episode = dict(zip((f.name for f in GLOBAL_FEATURES), observation["globals"], strict=True))
        width = self.env.max_branches
        decades = GAMMA_DECADES * episode["gamma"]  # -log10 γ
        branches = jnp.clip(jnp.round(4 * decades), 1, width)
        quorum = jnp.clip(jnp.round(decades), 1, branches)

        unread = episode["opened"] == 0
        enough = ~unread & ((episode["finals_top1"] * width >= quorum) | (episode["live"] == 0))
        live = (branch["active"] == 1) & (branch["finished"] == 0)
        agrees = (branch["with_finals"] == 1) | (episode["finals_voters"] == 0)
        disagreement = jnp.where(agrees, 0, memory + 1)
        prune_or_read = jnp.where(disagreement >= PATIENCE, 1, 2)
        action = [enough[None], jnp.where(unread, branches, 0)[None], jnp.where(live, prune_or_read, 0)]
        return jnp.concatenate([part.astype(jnp.int32) for part in action]), disagreement
