"""Decisions, and the masked distributions over them that the network's outputs stand for.

There is a kind for each environment. Of `Rounds` a decision has W + 2 parts: whether to answer, how many
branches to open, and what to do with each branch. Given the state they are independent; the parts other than
the answer count where there is none. Of `Atomic` it is one of the atomic actions.
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int32, PRNGKeyArray

from autotts_jax.core.pool import BranchPool, ReplayPool
from autotts_jax.envs.width_depth import Environment, WidthDepth, WidthDepthRounds
from autotts_jax.policies.neural.network import Outputs
from autotts_jax.typing import Array

IMPOSSIBLE = -1e9
"""Logit of what is not admissible."""


class Decisions(abc.ABC):
    """A kind of decisions. What heads, options and decisions are is its own affair: pytrees of arrays."""

    branch_outputs: ClassVar[int]
    """Numbers that the network has to say of each branch."""

    @abc.abstractmethod
    def environment(self, width: int) -> Environment:
        """The environment whose actions the decisions are."""

    @abc.abstractmethod
    def options(self, pool: ReplayPool) -> Any:
        """What is admissible."""

    @abc.abstractmethod
    def heads(self, outputs: Outputs) -> Any:
        """The logits that the network's outputs stand for."""

    @abc.abstractmethod
    def mask(self, heads: Any, allowed: Any) -> Any:
        """The heads with `IMPOSSIBLE` where something is not admissible."""

    @abc.abstractmethod
    def greedy(self, heads: Any) -> Any:
        """The most likely decision of masked heads."""

    @abc.abstractmethod
    def sample(self, key: PRNGKeyArray, heads: Any) -> Any:
        """A decision drawn from masked heads."""

    @abc.abstractmethod
    def log_prob(self, heads: Any, decision: Any) -> Float[Array, ""]:
        """Log-probability of a decision under masked heads."""

    @abc.abstractmethod
    def entropy(self, heads: Any) -> Float[Array, ""]:
        """Entropy of the decision under masked heads, in nats."""

    @abc.abstractmethod
    def action(self, decision: Any) -> Int32[Array, "..."]:
        """A decision as an action of the environment."""


# --- rounds ---------------------------------------------------------------------------------------------

OPENINGS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Numbers of branches that a policy can open in a round."""

OPENING_SPREAD = 0.15
"""Standard deviation of log(1 + openings) around what the network says."""

MAX_ADVANCE = 2
"""The most intervals that a policy reads of a branch in a round."""

CHOICES = 2 + MAX_ADVANCE
"""What can be done with a branch in a round: hold it, prune it, or read 1 … `MAX_ADVANCE` intervals."""


class Heads(NamedTuple):
    """Logits of a round's decision.

    Attributes:
        answer: logit of answering now. Shape ().
        opening: logits of `OPENINGS`. Shape (O,).
        choice: logits of the `CHOICES` for each branch. Shape (C, W).
    """

    answer: Float[Array, ""]
    opening: Float[Array, " O"]
    choice: Float[Array, "C W"]


class Decision(NamedTuple):
    """What to do in a round.

    Attributes:
        answer: whether to answer. Shape ().
        opening: index in `OPENINGS`. Shape ().
        choice: of each branch, 0 to hold it, 1 to prune it, 1 + k to read k intervals. Shape (W,).
    """

    answer: Bool[Array, ""]
    opening: Int32[Array, ""]
    choice: Int32[Array, " W"]


class Options(NamedTuple):
    """What is admissible in a round.

    Attributes:
        answer: whether an answer may be given. Shape ().
        go_on: whether anything else may be done. Shape ().
        opening: which of `OPENINGS` may be opened. Shape (O,).
        choice: which choices each branch has. Shape (C, W).
    """

    answer: Bool[Array, ""]
    go_on: Bool[Array, ""]
    opening: Bool[Array, " O"]
    choice: Bool[Array, "C W"]


class Rounds(Decisions):
    """Decisions of `WidthDepthRounds`: `Heads`, `Options` and `Decision`."""

    branch_outputs = CHOICES

    def environment(self, width: int) -> WidthDepthRounds:
        return WidthDepthRounds(width, max_advance=MAX_ADVANCE)

    def options(self, pool: BranchPool) -> Options:
        """What is admissible: live branches are pruned or read, all others are held.

        So that every round makes progress, the first opens branches, and one without live branches answers.
        """
        count, live = jnp.array(OPENINGS), pool.live
        began = pool.opened > 0
        return Options(
            answer=began,
            go_on=~began | jnp.any(live),
            opening=(count <= pool.width - pool.opened) & ((count > 0) | began),
            choice=jnp.stack([~live] + [live] * (1 + MAX_ADVANCE)),
        )

    def heads(self, outputs: Outputs) -> Heads:
        answer, opening = outputs.episode
        # Openings are ordered: one number says around which of them the policy is.
        distance = (jnp.log1p(jnp.array(OPENINGS)) - opening) / OPENING_SPREAD
        return Heads(answer, -0.5 * distance**2, outputs.branches)

    def mask(self, heads: Heads, allowed: Options) -> Heads:
        return heads._replace(
            answer=jnp.where(
                allowed.answer,
                jnp.where(allowed.go_on, heads.answer, -IMPOSSIBLE),
                IMPOSSIBLE,
            ),
            opening=jnp.where(allowed.opening, heads.opening, IMPOSSIBLE),
            choice=jnp.where(allowed.choice, heads.choice, IMPOSSIBLE),
        )

    def greedy(self, heads: Heads) -> Decision:
        return Decision(
            heads.answer > 0,
            jnp.argmax(heads.opening).astype(jnp.int32),
            jnp.argmax(heads.choice, axis=0).astype(jnp.int32),
        )

    def sample(self, key: PRNGKeyArray, heads: Heads) -> Decision:
        answer, opening, choice = jax.random.split(key, 3)
        return Decision(
            jax.random.bernoulli(answer, jax.nn.sigmoid(heads.answer)),
            jax.random.categorical(opening, heads.opening).astype(jnp.int32),
            jax.random.categorical(choice, heads.choice, axis=0).astype(jnp.int32),
        )

    def log_prob(self, heads: Heads, decision: Decision) -> Float[Array, ""]:
        opening = jax.nn.log_softmax(heads.opening)[decision.opening]
        choice = jnp.take_along_axis(jax.nn.log_softmax(heads.choice, axis=0), decision.choice[None], axis=0)
        goes_on = jax.nn.log_sigmoid(-heads.answer) + opening + jnp.sum(choice)
        return jnp.where(decision.answer, jax.nn.log_sigmoid(heads.answer), goes_on)

    def entropy(self, heads: Heads) -> Float[Array, ""]:
        p = jax.nn.sigmoid(heads.answer)
        answer = -(p * jax.nn.log_sigmoid(heads.answer) + (1 - p) * jax.nn.log_sigmoid(-heads.answer))
        return answer + (1 - p) * (_entropy(heads.opening) + jnp.sum(_entropy(heads.choice)))

    def action(self, decision: Decision) -> Int32[Array, " 2+W"]:
        opened = jnp.array(OPENINGS, jnp.int32)[decision.opening]
        return jnp.concatenate([jnp.stack([decision.answer.astype(jnp.int32), opened]), decision.choice])


# --- atomic actions -------------------------------------------------------------------------------------


class Atomic(Decisions):
    """Decisions of `WidthDepth`: one distribution over its actions, in the order in which it numbers them.

    Heads are logits, options the environment's mask, both of shape (A,); a decision is an action.
    """

    branch_outputs = 3
    """CONTINUE(i), PROBE(i) and PRUNE(i); what the network says of the episode are BRANCH and ANSWER."""

    def environment(self, width: int) -> WidthDepth:
        return WidthDepth(width)

    def options(self, pool: ReplayPool) -> Bool[Array, " A"]:
        return self.environment(pool.width).action_mask(pool)

    def heads(self, outputs: Outputs) -> Float[Array, " A"]:
        return jnp.concatenate([outputs.episode, outputs.branches.reshape(-1)])

    def mask(self, heads: Float[Array, " A"], allowed: Bool[Array, " A"]) -> Float[Array, " A"]:
        return jnp.where(allowed, heads, IMPOSSIBLE)

    def greedy(self, heads: Float[Array, " A"]) -> Int32[Array, ""]:
        return jnp.argmax(heads).astype(jnp.int32)

    def sample(self, key: PRNGKeyArray, heads: Float[Array, " A"]) -> Int32[Array, ""]:
        return jax.random.categorical(key, heads).astype(jnp.int32)

    def log_prob(self, heads: Float[Array, " A"], decision: Int32[Array, ""]) -> Float[Array, ""]:
        return jax.nn.log_softmax(heads)[decision]

    def entropy(self, heads: Float[Array, " A"]) -> Float[Array, ""]:
        return _entropy(heads)

    def action(self, decision: Int32[Array, ""]) -> Int32[Array, ""]:
        return decision


def _entropy(logits: Float[Array, "N ..."]) -> Float[Array, "..."]:
    log = jax.nn.log_softmax(logits, axis=0)
    return -jnp.sum(jnp.exp(log) * log, axis=0)


KINDS: dict[str, Decisions] = {"rounds": Rounds(), "atomic": Atomic()}
"""The kinds by what a configuration calls them."""
