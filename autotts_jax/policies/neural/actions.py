"""Action heads: masked distributions over a policy's actions, from the network's outputs.

There is a head for each environment. An action of `RoundsHead` has W + 2 independent parts: whether to
answer, how many branches to open, and what to do with each branch; where it answers, the other parts do not
count. An action of `AtomicHead` is one of the atomic actions.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int32, PRNGKeyArray

from autotts_jax.core.view import View
from autotts_jax.envs.environment import Environment
from autotts_jax.envs.rounds import WidthDepthRounds
from autotts_jax.envs.width_depth import WidthDepth
from autotts_jax.policies.neural.network import Outputs
from autotts_jax.typing import Array

IMPOSSIBLE = -1e9
"""Logit of an inadmissible action."""


class ActionHead(abc.ABC):
    """A distribution over actions. Logits, masks and actions are pytrees that it alone interprets."""

    branch_outputs: ClassVar[int]
    """B, outputs of the network for each branch."""

    @abc.abstractmethod
    def environment(self, width: int, signals: Sequence[str] = ()) -> Environment:
        """Makes the environment whose actions these are."""

    @abc.abstractmethod
    def mask(self, view: View) -> Any:
        """Finds the admissible actions."""

    @abc.abstractmethod
    def logits(self, outputs: Outputs, mask: Any) -> Any:
        """Turns the network's outputs into logits, `IMPOSSIBLE` for what is not admissible."""

    @abc.abstractmethod
    def greedy(self, logits: Any) -> Any:
        """Returns the most likely action."""

    @abc.abstractmethod
    def sample(self, key: PRNGKeyArray, logits: Any) -> Any:
        """Draws an action."""

    @abc.abstractmethod
    def log_prob(self, logits: Any, action: Any) -> Float[Array, ""]:
        """Computes the log-probability of an action."""

    @abc.abstractmethod
    def entropy(self, logits: Any) -> Float[Array, ""]:
        """Computes the entropy in nats."""

    @abc.abstractmethod
    def for_environment(self, action: Any) -> Int32[Array, "..."]:
        """Converts an action to the environment's encoding."""


# --- rounds ---------------------------------------------------------------------------------------------

OPENINGS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Numbers of branches that a policy can open in a round."""

OPENING_SPREAD = 0.15
"""Standard deviation of log(1 + openings) around the network's output."""

MAX_ADVANCE = 2
"""The most intervals that a policy reads of a branch in a round."""

CHOICES = 2 + MAX_ADVANCE
"""What can be done with a branch in a round: hold it, prune it, or read 1 … `MAX_ADVANCE` intervals."""


class RoundLogits(NamedTuple):
    """Logits of a round's action.

    Attributes:
        answer: logit of answering now. Shape ().
        opening: logits of `OPENINGS`. Shape (O,).
        choice: logits of the `CHOICES` for each branch. Shape (C, W).
    """

    answer: Float[Array, ""]
    opening: Float[Array, " O"]
    choice: Float[Array, "C W"]


class RoundAction(NamedTuple):
    """What to do in a round.

    Attributes:
        answer: whether to answer. Shape ().
        opening: index in `OPENINGS`. Shape ().
        choice: of each branch, 0 to hold it, 1 to prune it, 1 + k to read k intervals. Shape (W,).
    """

    answer: Bool[Array, ""]
    opening: Int32[Array, ""]
    choice: Int32[Array, " W"]


class RoundMask(NamedTuple):
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


class RoundsHead(ActionHead):
    """Actions of `WidthDepthRounds`: `RoundLogits`, `RoundMask` and `RoundAction`."""

    branch_outputs = CHOICES

    def environment(self, width: int, signals: Sequence[str] = ()) -> WidthDepthRounds:
        return WidthDepthRounds(width, max_advance=MAX_ADVANCE, signals=signals)

    def mask(self, view: View) -> RoundMask:
        """Finds the admissible actions: live branches are pruned or read, all others are held.

        So that every round makes progress, the first opens branches, and one without live branches answers.
        """
        count, live = jnp.array(OPENINGS), view.live
        began = view.opened > 0
        return RoundMask(
            answer=began,
            go_on=~began | jnp.any(live),
            opening=(count <= view.width - view.opened) & ((count > 0) | began),
            choice=jnp.stack([~live] + [live] * (1 + MAX_ADVANCE)),
        )

    def logits(self, outputs: Outputs, mask: RoundMask) -> RoundLogits:
        answer, opening = outputs.episode
        # Openings are ordered: one number says around which of them the policy is.
        distance = (jnp.log1p(jnp.array(OPENINGS)) - opening) / OPENING_SPREAD
        return RoundLogits(
            answer=jnp.where(mask.answer, jnp.where(mask.go_on, answer, -IMPOSSIBLE), IMPOSSIBLE),
            opening=jnp.where(mask.opening, -0.5 * distance**2, IMPOSSIBLE),
            choice=jnp.where(mask.choice, outputs.branches, IMPOSSIBLE),
        )

    def greedy(self, logits: RoundLogits) -> RoundAction:
        return RoundAction(
            logits.answer > 0,
            jnp.argmax(logits.opening).astype(jnp.int32),
            jnp.argmax(logits.choice, axis=0).astype(jnp.int32),
        )

    def sample(self, key: PRNGKeyArray, logits: RoundLogits) -> RoundAction:
        answer, opening, choice = jax.random.split(key, 3)
        return RoundAction(
            jax.random.bernoulli(answer, jax.nn.sigmoid(logits.answer)),
            jax.random.categorical(opening, logits.opening).astype(jnp.int32),
            jax.random.categorical(choice, logits.choice, axis=0).astype(jnp.int32),
        )

    def log_prob(self, logits: RoundLogits, action: RoundAction) -> Float[Array, ""]:
        opening = jax.nn.log_softmax(logits.opening)[action.opening]
        choice = jnp.take_along_axis(jax.nn.log_softmax(logits.choice, axis=0), action.choice[None], axis=0)
        goes_on = jax.nn.log_sigmoid(-logits.answer) + opening + jnp.sum(choice)
        return jnp.where(action.answer, jax.nn.log_sigmoid(logits.answer), goes_on)

    def entropy(self, logits: RoundLogits) -> Float[Array, ""]:
        p = jax.nn.sigmoid(logits.answer)
        answer = -(p * jax.nn.log_sigmoid(logits.answer) + (1 - p) * jax.nn.log_sigmoid(-logits.answer))
        return answer + (1 - p) * (_entropy(logits.opening) + jnp.sum(_entropy(logits.choice)))

    def for_environment(self, action: RoundAction) -> Int32[Array, " 2+W"]:
        opened = jnp.array(OPENINGS, jnp.int32)[action.opening]
        return jnp.concatenate([jnp.stack([action.answer.astype(jnp.int32), opened]), action.choice])


# --- atomic actions -------------------------------------------------------------------------------------


class AtomicHead(ActionHead):
    """Actions of `WidthDepth`: one distribution over its actions, in the order in which it numbers them.

    Logits and the mask have shape (A,).
    """

    branch_outputs = 3
    """CONTINUE(i), PROBE(i) and PRUNE(i); the outputs for the episode are BRANCH and ANSWER."""

    def environment(self, width: int, signals: Sequence[str] = ()) -> WidthDepth:
        return WidthDepth(width, signals=signals)

    def mask(self, view: View) -> Bool[Array, " A"]:
        return self.environment(view.width).action_mask(view)

    def logits(self, outputs: Outputs, mask: Bool[Array, " A"]) -> Float[Array, " A"]:
        logits = jnp.concatenate([outputs.episode, outputs.branches.reshape(-1)])
        return jnp.where(mask, logits, IMPOSSIBLE)

    def greedy(self, logits: Float[Array, " A"]) -> Int32[Array, ""]:
        return jnp.argmax(logits).astype(jnp.int32)

    def sample(self, key: PRNGKeyArray, logits: Float[Array, " A"]) -> Int32[Array, ""]:
        return jax.random.categorical(key, logits).astype(jnp.int32)

    def log_prob(self, logits: Float[Array, " A"], action: Int32[Array, ""]) -> Float[Array, ""]:
        return jax.nn.log_softmax(logits)[action]

    def entropy(self, logits: Float[Array, " A"]) -> Float[Array, ""]:
        return _entropy(logits)

    def for_environment(self, action: Int32[Array, ""]) -> Int32[Array, ""]:
        return action


def _entropy(logits: Float[Array, "N ..."]) -> Float[Array, "..."]:
    log = jax.nn.log_softmax(logits, axis=0)
    return -jnp.sum(jnp.exp(log) * log, axis=0)


HEADS: dict[str, ActionHead] = {"rounds": RoundsHead(), "atomic": AtomicHead()}
"""The action logits by their names in a configuration."""
