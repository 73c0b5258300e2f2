"""Controllers in an environment: through the observations and actions of ``WidthDepth-v0`` alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int, Int32

from autotts_jax.core import pool as pools
from autotts_jax.core import stepping, votes
from autotts_jax.core.controller import Controller
from autotts_jax.core.mdp import Admissible
from autotts_jax.core.pool import BranchPool
from autotts_jax.core.stepping import Decision, Ended, Executor, Operation
from autotts_jax.core.votes import Vote
from autotts_jax.envs.observations import BRANCH_FEATURES, REVEALED_NONE, UNREVEALED
from autotts_jax.errors import InputError
from autotts_jax.replay.matrix import NONE
from autotts_jax.typing import Array, Scalar

if TYPE_CHECKING:
    _Protocol = BranchPool
else:
    _Protocol = object  # operations are left to the executor

_COLUMN = {feature.name: column for column, feature in enumerate(BRANCH_FEATURES)}
_BRANCH, _ANSWER = 0, 1
_KINDS = ("advance", "probe", "prune")
"""Actions by branch, in the order in which `WidthDepth` numbers them."""


def play_in_environment(
    controller: Controller,
    env: gymnasium.Env,
    *,
    seed: int | None = None,
    options: dict[str, Any] | None = None,
    budget: int | None = None,
    on_decision: Callable[[Decision], None] | None = None,
) -> tuple[Ended, float]:
    """Plays one episode of an environment as a controller would.

    Before it answers it prunes the branches that disagree with the controller's own vote, so that whatever
    aggregate the environment has, its answer is the controller's, if an active branch gives that.

    Args:
        controller: any controller.
        env: ``WidthDepth-v0`` with ``obs="history"``, not fused.
        seed: seed of the episode, for ``env.reset``.
        options: question and order of the episode, for ``env.reset``.
        budget: the token budget that the environment was made with.
        on_decision: called after every operation of the controller that changed something.

    Returns:
        What the episode came to for the controller, and the sum of the environment's rewards.

    Raises:
        InputError: the environment is another one, or its step limit ends the episode before the controller
            answers.
    """
    executor = EnvironmentExecutor(env, seed=seed, options=options, budget=budget)
    ended = stepping.play(controller, executor, on_decision)
    executor.answer_with(ended.leader)
    return ended, executor.total_reward


class EnvironmentExecutor(Executor):
    """Carries out operations as atomic actions of an environment.

    A full read is a branch that is opened, continued to its end and probed there; the environment charges it
    as stepwise reading, and under a token budget one that does not fit is read in part.

    Args:
        env: ``WidthDepth-v0`` with ``obs="history"``, not fused.
        seed: seed of the episode, for ``env.reset``.
        options: question and order of the episode, for ``env.reset``.
        budget: the token budget that the environment was made with.

    Attributes:
        total_reward: sum of the rewards so far.

    Raises:
        InputError: the environment is another one.
    """

    pool: ObservedPool

    def __init__(
        self,
        env: gymnasium.Env,
        *,
        seed: int | None = None,
        options: dict[str, Any] | None = None,
        budget: int | None = None,
    ):
        self._env = env
        self._budget = None if budget is None else np.asarray(budget, np.int32)
        observation, info = env.reset(seed=seed, options=options)
        if not isinstance(observation, Mapping) or "history" not in observation:
            raise InputError("the observation has no history; make the environment with obs='history'")
        width = len(observation["history"])
        if len(info["action_mask"]) != 2 + 3 * width:
            raise InputError(
                "the environment has other actions than WidthDepth-v0's, or is fused; make it anew"
            )
        self.total_reward = 0.0
        self._width = width
        self._depth = np.zeros(width, np.int32)
        self._charged = np.zeros(width, np.int32)
        self._look(observation, info)

    def carry_out(self, operation: Operation) -> None:
        """Carries out an operation action by action."""
        argument = np.asarray(operation.argument)
        if operation.action in ("probe", "prune"):
            for branch in np.flatnonzero(argument).tolist():
                self._act(operation.action, branch)
        elif operation.action == "advance":
            for branch, count in enumerate(argument.tolist()):
                self._advance(branch, count, operation.probe)
        else:
            for _ in range(int(argument)):
                branch = int(self.pool.opened)
                if not self._act("open", branch):
                    return
                if operation.action == "read":
                    self._advance(branch, self.pool.max_depth, probe=False)
                if operation.probe or operation.action == "read":
                    self._act("probe", branch)

    def answers(self, branches: Sequence[int]) -> list[str | None]:
        """Names the latest answers by their numbers in the history, as the environment shows no text."""
        keys = np.asarray(self.pool.answer_keys)[list(branches)]
        return [None if key == NONE else str(key) for key in keys.tolist()]

    def answer_with(self, leader: int) -> None:
        """Ends the episode with the answer of a branch.

        Args:
            leader: the branch; ``NONE`` for no answer.
        """
        disagrees = np.asarray(self.pool.active) & ~np.asarray(self.pool.agrees(leader))
        self.carry_out(Operation("prune", disagrees))
        self._take(_ANSWER)

    def _advance(self, branch: int, count: int, probe: bool) -> None:
        for _ in range(count):
            if not self._act("advance", branch):
                return
            if probe:
                self._act("probe", branch)

    def _act(self, action: str, branch: int) -> bool:
        """Takes an action if it is admissible, and says whether it was."""
        number = _BRANCH if action == "open" else _ANSWER + 1 + _KINDS.index(action) * self._width + branch
        if not self._mask[number]:
            return False
        self._depth[branch] += action in ("open", "advance")
        self._take(number, branch)
        return True

    def _take(self, action: int, branch: int = 0) -> None:
        observation, reward, _, truncated, info = self._env.step(action)
        if truncated:
            raise InputError(
                "the environment's step limit ended the episode before the controller answered; make it with "
                "a larger max_steps"
            )
        self.total_reward += float(reward)
        self._charged[branch] += info["tokens"] - int(self.pool.tokens)
        self._look(observation, info)

    def _look(self, observation: Mapping[str, Any], info: Mapping[str, Any]) -> None:
        history, branches = np.asarray(observation["history"], np.int32), np.asarray(observation["branches"])
        self._mask = np.asarray(info["action_mask"]).astype(bool)
        advance, probe, prune = self._mask[_ANSWER + 1 :].reshape(3, self._width)
        self.pool = ObservedPool(  # type: ignore[abstract]
            depth=self._depth.copy(),
            active=branches[:, _COLUMN["active"]] == 1,
            finished=branches[:, _COLUMN["finished"]] == 1,
            # The environment's numbers of answers are keys; it marks the rest the other way round.
            revealed_keys=np.select(
                [history == UNREVEALED, history == REVEALED_NONE], [pools.UNREVEALED, NONE], history
            ).astype(np.int32),
            admissible=Admissible(self._mask[_BRANCH], advance, probe, prune),
            interval=np.asarray(info["interval"], np.int32),
            budget=self._budget,
            intervals=np.asarray(info["intervals"], np.int32),
            probes=np.asarray(info["probes"], np.int32),
            branch_tokens=self._charged.copy(),
            tokens=np.asarray(info["tokens"], np.int32),
        )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ObservedPool(_Protocol):
    """What an environment has shown of an episode, as a `BranchPool` without operations but pruning."""

    depth: Int32[Array, " W"]
    active: Bool[Array, " W"]
    finished: Bool[Array, " W"]
    revealed_keys: Int32[Array, "W K"]
    admissible: Admissible
    interval: Int32[Array, ""]
    budget: Int32[Array, ""] | None
    intervals: Int32[Array, ""]
    probes: Int32[Array, ""]
    branch_tokens: Int32[Array, " W"]
    tokens: Int32[Array, ""]

    @property
    def width(self) -> int:
        return self.revealed_keys.shape[0]

    @property
    def max_depth(self) -> int:
        return self.revealed_keys.shape[1]

    @property
    def num_keys(self) -> int:
        return self.width * self.max_depth

    @property
    def opened(self) -> Int32[Array, ""]:
        return jnp.sum(self.depth > 0, dtype=jnp.int32)

    @property
    def live(self) -> Bool[Array, " W"]:
        return self.active & ~self.finished

    @property
    def revealed_depth(self) -> Int32[Array, " W"]:
        depths = jnp.arange(1, self.max_depth + 1, dtype=jnp.int32)
        return jnp.max(jnp.where(self.revealed_keys == pools.UNREVEALED, 0, depths), axis=1)

    @property
    def answer_keys(self) -> Int32[Array, " W"]:
        depth = self.revealed_depth
        latest = jnp.take_along_axis(self.revealed_keys, jnp.maximum(depth - 1, 0)[:, None], axis=1)[:, 0]
        return jnp.where(depth > 0, latest, NONE)

    @property
    def labels(self) -> Int32[Array, " W"]:
        """The keys: the environment numbers answers in the order in which they were revealed."""
        return self.answer_keys

    @property
    def budget_spent(self) -> Bool[Array, ""]:
        could = (self.opened < self.width) | jnp.any(self.live)
        return could & ~(self.admissible.branch | jnp.any(self.admissible.advance))

    def answer_key(self, branch: Scalar) -> Int32[Array, ""]:
        return jnp.where(jnp.asarray(branch) == NONE, NONE, self.answer_keys[branch])

    def agrees(self, branch: Scalar) -> Bool[Array, " W"]:
        keys = self.answer_keys
        return (keys == keys[branch]) & (keys != NONE) & (branch != NONE)

    def vote(self, voters: Bool[Array, " W"], rank: Int[Array, " W"] | None = None) -> Vote:
        return votes.vote(self.answer_keys, voters, rank)

    def vote_finals(
        self, voters: Bool[Array, " W"] | None = None, rank: Int[Array, " W"] | None = None
    ) -> Vote:
        finals = self.finished & (self.revealed_depth == self.depth)
        return self.vote(finals if voters is None else finals & voters, rank)

    def prune(self, mask: Bool[Array, " W"]) -> ObservedPool:
        allowed = self.admissible
        left = Admissible(
            allowed.branch, allowed.advance & ~mask, allowed.probe & ~mask, allowed.prune & ~mask
        )
        return dataclasses.replace(self, active=self.active & ~mask, admissible=left)
