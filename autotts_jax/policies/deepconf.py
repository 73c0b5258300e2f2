"""DeepConf: keep the branches of which the model was sure, and weigh their votes by it (arXiv 2508.15260)."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float32, Int32

from autotts_jax.core.controller import Controller, Family, first_of, within
from autotts_jax.core.view import Action, StopReason, View
from autotts_jax.core.votes import Vote
from autotts_jax.policies.self_consistency import SelfConsistency
from autotts_jax.replay.matrix import NONE
from autotts_jax.typing import Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class DeepConfOffline(SelfConsistency):
    """Reads n branches in full; the η % with the highest confidence at their end vote, weighed by it.

    Attributes:
        branches: n, branches to read.
        keep: η, percent of the branches with an answer that vote: 10 or 90 in the paper.
    """

    keep: float = within(0, 100, default=10.0)

    signals = ("conf_tail",)

    def answer(self, memory: None, view: View) -> Vote:  # noqa: ARG002
        score = view.signal("conf_tail")
        bar = bar_of(score, view.finished & (view.answer_keys != NONE), self.keep)
        return view.vote_finals(score >= bar, weights=score)


class Confidence(NamedTuple):
    """What is known of the branches.

    Attributes:
        least: the lowest confidence of each so far, infinite where none is known. Shape (W,).
        bar: s, the confidence below which a branch is given up; NaN while the first branches are read.
        seen: depth whose confidence is in it. Shape (W,).
    """

    least: Float32[Array, " W"]
    bar: Float32[Array, ""]
    seen: Int32[Array, " W"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class DeepConf(Controller):
    """Reads some branches to their ends, and the others only while their confidence is as high.

    The bar is the (100 - η)th percentile of the lowest confidences of the first branches. Branches that never
    were below it vote, each weighed by its lowest confidence, the first branches included. Confidence is
    known once an interval, so a branch is given up at the end of an interval.

    Attributes:
        branches: n, branches to read.
        keep: η, percent of the first branches that reach the bar: 10 or 90 in the paper.
        warm_up: branches that are read first.
    """

    branches: int = within(1)
    keep: float = within(0, 100, default=10.0)
    warm_up: int = within(1, default=16)

    signals = ("conf_low",)

    def init(self, view: View) -> tuple[Confidence, Action]:
        nothing = jnp.zeros(view.width, jnp.int32)
        memory = Confidence(jnp.full(view.width, jnp.inf), jnp.float32(jnp.nan), nothing)
        return memory, Action(open=jnp.minimum(self.warm_up, self.branches))

    def act(self, memory: Confidence, view: View) -> tuple[Confidence, Action]:
        fresh = view.revealed_depth > memory.seen
        least = jnp.minimum(memory.least, jnp.where(fresh, view.signal("conf_low"), jnp.inf))
        read, most = view.rounds > 0, jnp.minimum(self.branches, view.width)
        first_read = read & jnp.isnan(memory.bar) & ~jnp.any(view.live)
        bar = jnp.where(first_read, bar_of(least, view.finished, self.keep), memory.bar)
        opening = jnp.where(first_read & view.admissible.branch, most - view.opened, 0)
        prune = view.live & (jnp.arange(view.width) >= self.warm_up) & (least < bar)
        live = view.live & ~prune
        stop = first_of((read & ~jnp.any(live) & (opening <= 0), StopReason.DECIDED))
        action = Action(stop, prune=prune, open=opening, advance=jnp.where(live, 1, 0))
        return Confidence(least, bar, view.revealed_depth), action

    def answer(self, memory: Confidence, view: View) -> Vote:
        """Where a budget has ended the episode before there is a bar, all finished branches vote, or all."""
        weights = memory.least
        sure = view.vote_finals(weights >= memory.bar, weights=weights)
        return sure.or_else(view.vote_finals(weights=weights)).or_else(view.vote(view.active))


def bar_of(score: Float32[Array, " W"], branches: Bool[Array, " W"], keep: float) -> Float32[Array, ""]:
    """Computes the score that a share of some branches reaches.

    Returns:
        The (100 - η)th percentile of their scores, interpolated linearly; NaN if there are none.
    """
    return jnp.nanpercentile(jnp.where(branches, score, jnp.nan), 100 - jnp.asarray(keep, jnp.float32))


OFFLINE = Family.over_branches("deepconf-offline", DeepConfOffline)
"""The family of the offline variant over n, the number of branches, with η = 10."""

FAMILY = Family.over_branches("deepconf", DeepConf, (24, 32, 48, 64))
"""The family over n, the number of branches, with η = 10 and 16 first branches."""
