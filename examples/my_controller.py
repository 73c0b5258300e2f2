"""First finishers: read branches in parallel and answer once enough finished ones agree.

``docs/reference/controllers.md`` explains this controller.
"""

import dataclasses

import jax
import jax.numpy as jnp

import autotts_jax as at


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class FirstFinishers(at.Controller):
    """Reads ``branches`` branches in parallel until ``quorum`` finished ones agree.

    Meanwhile it prunes branches that keep disagreeing with the finished ones. Its memory counts, for each
    branch, the consecutive rounds in which it disagreed.

    Attributes:
        branches: n, branches to open.
        quorum: k, finished branches that must agree.
        patience: consecutive rounds of disagreement after which a branch is pruned.
    """

    branches: int
    quorum: int
    patience: int

    def init(self, view):
        return jnp.zeros(view.width, jnp.int32), at.Action(open=self.branches)

    def act(self, memory, view):
        finals = view.vote_finals()
        stop = at.first_of(
            (finals.top1 >= self.quorum, at.StopReason.DECIDED),
            (~jnp.any(view.live), at.StopReason.EXHAUSTED),
        )
        agrees = view.agrees(finals.leader) | (finals.voters == 0)
        disagreement = jnp.where(agrees, 0, memory + 1)
        prune = view.live & (disagreement >= self.patience)
        return disagreement, at.Action(stop, prune=prune, advance=jnp.where(view.live, 1, 0))


def of_beta(beta):
    """Makes the controller at β in [0, 1]; a larger β spends more."""
    return FirstFinishers(
        branches=round(4 + 28 * beta), quorum=round(2 + 6 * beta), patience=round(4 + 8 * beta)
    )


first_finishers = at.Family("first-finishers", (0.0, 0.25, 0.5, 0.75, 1.0), of_beta, "β")
