"""The shipped network as rules: what `autotts-jax discover distill` wrote, but for name, imports and layout.

How it was found, what it costs and where it fails is in docs/how-to/discovery-distill.md.
"""

# Distilled by autotts_jax 0.1.0 from neural, seed 0, at most 64 branches.
# Data: Qwen3-0.6B/aime24, Qwen3-1.7B/aime24, Qwen3-4B/aime24, Qwen3-8B/aime24.
# β = 0 stands for γ = 0.0002, β = 1 for γ = 4e-06; in between tokens grow evenly.

import dataclasses

import jax
import jax.numpy as jnp

from autotts_jax.core.controller import Family, check_beta
from autotts_jax.policies.rule_controller import RuleController, Seen


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class DistilledRules(RuleController):
    """Plays by these rules; numbers that change with β are its fields."""

    open_first_opened: int
    open_first: int
    open_second_opened: int
    open_second: int
    prune_first_disagreement: int
    prune_second_depth: int
    stop_first_ema: float
    stop_first_top2: int
    stop_first_agreeing: int
    stop_first_ema_too: float
    stop_second_ema: float

    @classmethod
    def of_beta(cls, beta: float) -> "DistilledRules":
        """Makes the controller at β in [0, 1]."""
        check_beta(beta)
        return cls(
            initial=round(5 - 3 * beta),
            max_branches=64,
            spare=2,
            alpha=0.5,
            window=4,
            open_first_opened=round(0.0327 + 62.9659 * beta),
            open_first=round(0.3841 + 1.5715 * beta),
            open_second_opened=round(54.9665 + 9.0335 * beta),
            open_second=round(0.0 + 1.1097 * beta),
            prune_first_disagreement=round(19.054 - 7.0518 * beta),
            prune_second_depth=round(20.4658 - 6.2796 * beta),
            stop_first_ema=round(0.9237 + 0.0749 * beta, 4),
            stop_first_top2=round(1.1443 - 1.1443 * beta),
            stop_first_agreeing=round(0.7379 - 0.4394 * beta),
            stop_first_ema_too=round(1.0 - 0.2198 * beta, 4),
            stop_second_ema=round(0.7523 + 0.2461 * beta, 4),
        )

    def open(self, seen: Seen) -> jax.Array:
        """How many branches to open at the end of a round."""
        first = (seen.opened <= self.open_first_opened) & (seen.momentum < 0.0141)
        second = (seen.momentum <= 0.1428) & (seen.opened < self.open_second_opened)
        return jnp.select([first, second], [self.open_first, self.open_second], 0)

    def read(self, seen: Seen) -> jax.Array:
        """How many intervals to read of each live branch."""
        return jnp.where(seen.agrees, 2, 1)

    def prune(self, seen: Seen) -> jax.Array:
        """Which live branches to prune."""
        first = seen.disagreement <= self.prune_first_disagreement
        second = (seen.live >= 4) & (seen.depth >= self.prune_second_depth)
        return jnp.select([first, second], [0, 1], 0) > 0

    def stop(self, seen: Seen) -> jax.Array:
        """Whether to answer."""
        first = (
            (seen.ema <= self.stop_first_ema)
            & (seen.top2 >= self.stop_first_top2)
            & (seen.agreeing >= self.stop_first_agreeing)
            & (seen.ema >= self.stop_first_ema_too)
            & (seen.live > 0)
        )
        second = seen.ema >= self.stop_second_ema
        return jnp.select([first, second], [0, 1], 0) > 0

    def weigh(self, seen: Seen) -> jax.Array:
        """How much each branch's vote counts."""
        return jnp.where(seen.ended, 1.0, 0)

    def weigh_answer(self, seen: Seen) -> jax.Array:
        """How much each branch's vote counts in the answer, as a share of the heaviest."""
        log = 1.5854 * jnp.log(seen.depth) - 0.1191 * seen.depth - 0.0426 * seen.streak
        return jnp.where(seen.ended, jnp.exp(log - jnp.max(log, where=seen.ended, initial=-jnp.inf)), 0)


FAMILY = Family("distilled", tuple(i / 10 for i in range(11)), DistilledRules.of_beta, "β")
"""The family over β."""
