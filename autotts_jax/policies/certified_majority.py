"""Certified majority: read one by one until bets on the leader have paid enough (arXiv 2510.17472)."""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int32

from autotts_jax.core.controller import Controller, Family, within
from autotts_jax.core.view import Action, View
from autotts_jax.core.votes import Vote
from autotts_jax.policies.one_by_one import read_next
from autotts_jax.replay.matrix import NONE
from autotts_jax.typing import Array


class Bets(NamedTuple):
    """How the bets on the leader went; each is on the branch after those that the leader was found by.

    Attributes:
        opened: branches opened at the last look. Shape ().
        leader: key of the answer that leads, ``NONE`` before there is one. Shape ().
        second: key of the runner-up, likewise. Shape ().
        won: branches that gave the answer that led before them. Shape ().
        lost: branches that gave the runner-up of then. Shape ().
        others: branches that gave any third answer. Shape ().
    """

    opened: Int32[Array, ""]
    leader: Int32[Array, ""]
    second: Int32[Array, ""]
    won: Int32[Array, ""]
    lost: Int32[Array, ""]
    others: Int32[Array, ""]

    def settle(self, view: View) -> Bets:
        """Settles the bet on the branch that was read last, if there is one, and places the next."""
        last = jnp.where(view.opened > self.opened, view.opened - 1, NONE)
        key = view.answer_key(last).astype(jnp.int32)
        bet = (self.leader != NONE) & (key != NONE)
        won, lost = key == self.leader, key == self.second
        leader = view.vote_finals().leader
        second = view.vote_finals(~view.agrees(leader)).leader
        return Bets(
            view.opened,
            view.answer_key(leader).astype(jnp.int32),
            view.answer_key(second).astype(jnp.int32),
            self.won + (bet & won),
            self.lost + (bet & lost),
            self.others + (bet & ~won & ~lost),
        )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class CertifiedMajority(Controller):
    """Stops when two e-processes reach 1/ε: for the leader against the runner-up, and against all others.

    The leader is bet on before each branch is read. If it is not given more often than the runner-up, then
    the bets multiply a unit by 1/ε or more with a probability of at most ε, however many there are; and so
    for all other answers together. The share to bet is mixed uniformly over (½, 1].

    Attributes:
        branches: n, branches to read at most.
        epsilon: ε, the probability of stopping at an answer that is not the most frequent one.
    """

    branches: int = within(1)
    epsilon: float = within(most=1, above=0, default=0.05)

    def init(self, view: View) -> Bets:  # noqa: ARG002
        none, zero = jnp.int32(NONE), jnp.int32(0)
        return Bets(none, none, none, zero, zero, zero)

    def act(self, memory: Bets, view: View) -> tuple[Bets, Action]:
        bets = memory.settle(view)
        paid = jnp.asarray(log_e_values(view.width), jnp.float32)[bets.won]
        sure = jnp.minimum(paid[bets.lost], paid[bets.others]) >= -jnp.log(self.epsilon)
        return bets, read_next(view, memory.opened, self.branches, sure)

    def answer(self, memory: Bets, view: View) -> Vote:  # noqa: ARG002
        return view.vote_finals()


@functools.lru_cache
def log_e_values(width: int) -> Float[np.ndarray, "W+1 W+1"]:
    """Tabulates the logarithm of what bets on one of two answers have paid, by how many were won and lost.

    It is that of the mean of (2θ)^won (2 - 2θ)^lost over θ in (½, 1].
    """
    import scipy.special  # here, as few need it and each sealed process would import it

    won, lost = np.arange(width + 1)[:, None], np.arange(width + 1)
    above_half = scipy.special.betainc(lost + 1, won + 1, 0.5)
    return (won + lost + 1) * np.log(2) + scipy.special.betaln(won + 1, lost + 1) + np.log(above_half)


FAMILY = Family.over_branches("certified-majority", CertifiedMajority)
"""The family over n, the number of branches."""
