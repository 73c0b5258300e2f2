"""Controllers that read branches side by side and leave each as soon as a rule says that it is settled."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Bool, Int32

from autotts_jax.core.controller import Controller, first_of, within
from autotts_jax.core.view import Action, StopReason, View
from autotts_jax.core.votes import Vote
from autotts_jax.typing import Array


class Followed(NamedTuple):
    """What is known of the branches.

    Attributes:
        state: what the rule remembers.
        settled: the branches that it has settled. Shape (W,).
        seen: depth that it has looked at. Shape (W,).
    """

    state: Any
    settled: Bool[Array, " W"]
    seen: Int32[Array, " W"]


@dataclasses.dataclass(frozen=True)
class EarlyExit(Controller):
    """Reads n branches side by side, each to its end or until it is settled, and answers their majority.

    A branch that is settled is read no further, and votes with its latest answer. A subclass says when it is.

    Attributes:
        branches: n, branches to open.
    """

    branches: int = within(1)

    @abc.abstractmethod
    def begin(self, view: View) -> Any:
        """Gives what the rule remembers before any branch is read."""

    @abc.abstractmethod
    def follow(self, state: Any, view: View, fresh: Bool[Array, " W"]) -> tuple[Any, Bool[Array, " W"]]:
        """Looks at the next probe of some branches.

        Returns:
            What it remembers then, and the branches that are settled.
        """

    def init(self, view: View) -> tuple[Followed, Action]:
        nothing = jnp.zeros(view.width, jnp.int32)
        return Followed(self.begin(view), view.live, nothing), Action(open=self.branches)

    def act(self, memory: Followed, view: View) -> tuple[Followed, Action]:
        state, settled = self.follow(memory.state, view, view.revealed_depth > memory.seen)
        settled = memory.settled | settled
        live = view.live & ~settled
        stop = first_of(((view.rounds > 0) & ~jnp.any(live), StopReason.DECIDED))
        action = Action(stop, prune=settled & view.live, advance=jnp.where(live, 1, 0))
        return Followed(state, settled, view.revealed_depth), action

    def answer(self, memory: Followed, view: View) -> Vote:
        """Branches that are settled or finished vote; where a budget has ended the episode before, all do."""
        return view.vote(memory.settled | view.finished).or_else(view.vote(view.active & ~memory.settled))
