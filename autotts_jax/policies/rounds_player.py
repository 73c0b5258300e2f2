"""Controllers as players of ``WidthDepthRounds-v0``: through its observations and actions alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Mapping
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int, Int32

from autotts_jax.core import stepping, votes
from autotts_jax.core.controller import Controller
from autotts_jax.core.mdp import Scalar
from autotts_jax.core.stepping import Advance, Open, Probe, SteppedPool
from autotts_jax.core.votes import Vote
from autotts_jax.envs.observations import BRANCH_FEATURES, REVEALED_NONE, UNREVEALED
from autotts_jax.errors import InputError
from autotts_jax.replay.matrix import NONE
from autotts_jax.typing import Array

Action = Int32[np.ndarray, " 2+W"]

_COLUMN = {feature.name: column for column, feature in enumerate(BRANCH_FEATURES)}
_HOLD, _PRUNE = 0, 1
_TO_THE_END = np.iinfo(np.int32).max


class RoundsPlayer:
    """Plays `WidthDepthRounds` with ``obs="history"`` as a controller would.

    Call `reset` when an episode begins; `act` then says what to do. Where a controller's round takes several
    actions, each is found out when it is known what the one before led to. A round that reads, votes and
    opens takes two steps; reading deeper than ``max_advance`` takes several, and so does a full read, which
    is charged as stepwise reading. Make the environment with a ``max_steps`` that lets the controller end.

    Before it answers it prunes the branches that disagree with the controller's own vote, so that whatever
    aggregate the environment has, its answer is the controller's, if an active branch gives that.

    Some things are not as in the pool of a rollout. `BranchPool.branch_tokens` of branches that end in the
    same step are estimates, which add up to what these were charged. Under a token budget, a read that takes
    several steps serves branches in turn, and a full read that does not fit is read in part.

    Args:
        controller: the controller; its methods must leave the pool out of ``jax.lax`` control flow.
    """

    def __init__(self, controller: Controller):
        self._controller = controller
        self.reset()

    def reset(self) -> None:
        """Forgets the episode under way."""
        self._ledger = _Ledger()
        self._episode = self._play()

    def act(self, observation: Mapping[str, Any], info: Mapping[str, Any]) -> Action:
        """The next action.

        Args:
            observation: of the present state, with its history.
            info: ``tokens`` and ``action_mask`` of the same state, as Gymnasium's ``reset`` and ``step`` give
                them.

        Raises:
            InputError: the observation has no history.
        """
        if not isinstance(observation, Mapping) or "history" not in observation:
            raise InputError("RoundsPlayer looks at the history; make the environment with obs='history'")
        self._view = self._look(observation, info)
        return next(self._episode)

    def _look(self, observation: Mapping[str, Any], info: Mapping[str, Any]) -> _View:
        history, branches = np.asarray(observation["history"]), np.asarray(observation["branches"])
        width = len(history)
        depth = (history != UNREVEALED).sum(axis=1, dtype=np.int32)  # a round reveals whatever it reads
        finished = branches[:, _COLUMN["finished"]] == 1
        latest = history[np.arange(width), np.maximum(depth - 1, 0)].astype(np.int32)
        tokens = int(info["tokens"])
        pool = ObservedPool(
            depth=depth,
            active=branches[:, _COLUMN["active"]] == 1,
            finished=finished,
            answers=np.where((depth > 0) & (latest != REVEALED_NONE), latest, np.int32(NONE)),
            branch_tokens=self._ledger.charge(tokens, depth, finished),
            tokens=np.asarray(tokens, np.int32),
        )
        mask = np.asarray(info["action_mask"]).astype(bool)
        opening, choice = mask[2 : width + 3], mask[width + 3 :].reshape(width, -1)
        return _View(pool, int(opening.sum()) - 1, choice[:, -1], choice.shape[1] - 2)

    # --- an episode: generators that yield an action, after which `self._view` is what it led to ---------

    def _play(self) -> Generator[Action, None, None]:
        game = stepping.play(self._controller, self._view.pool, lambda: self._view.budget_spent)
        try:
            asked = next(game)
            while True:
                after = yield from self._carry_out(asked)
                asked = game.send(after)
        except StopIteration as over:
            ended = over.value
        pool = ended.pool.prune(~np.asarray(ended.pool.agrees(ended.vote.leader)))
        if self._pruned(pool).any():
            yield self._action(pool)
        while True:
            answer = np.zeros(2 + self._view.pool.width, np.int32)
            answer[0] = 1
            yield answer

    def _carry_out(self, asked: stepping.Operation) -> Generator[Action, None, ObservedPool]:
        """Does what the controller asks for, in as many steps as it takes."""
        pool = cast(ObservedPool, asked.pool)
        if isinstance(asked, Open | Advance) and not asked.probe:
            raise InputError(
                "WidthDepthRounds reveals whatever it reads; the controller asks for probe=False"
            )
        if isinstance(asked, Probe):
            return pool  # all was revealed when it was read
        if isinstance(asked, Advance):
            return (yield from self._advance(pool, np.asarray(asked.wanted)))
        after = yield from self._open(pool, int(asked.wanted))
        if isinstance(asked, Open):
            return after
        fresh = (np.asarray(pool.depth) == 0) & (after.depth > 0)
        return (yield from self._advance(after, np.where(fresh, _TO_THE_END, 0)))

    def _open(self, pool: ObservedPool, count: int) -> Generator[Action, None, ObservedPool]:
        """Opens as many as there is room for."""
        count = min(count, self._view.room)
        if count <= 0:
            return pool
        yield self._action(pool, opening=count)
        return self._view.pool

    def _advance(
        self, pool: ObservedPool, count: Int[np.ndarray, " W"]
    ) -> Generator[Action, None, ObservedPool]:
        """Reads on in as many steps as it takes."""
        while True:
            able = np.asarray(pool.active) & self._view.can_advance
            now = np.where(able, np.clip(count, 0, self._view.max_advance), 0)
            if not now.any():
                return pool
            depth = self._view.pool.depth
            yield self._action(pool, advance=now)
            pool = self._view.pool
            count = count - np.asarray(pool.depth - depth)

    def _pruned(self, pool: ObservedPool) -> Bool[np.ndarray, " W"]:
        """Branches that are pruned in ``pool``, and not yet in the environment."""
        return np.asarray(self._view.pool.active & ~np.asarray(pool.active))

    def _action(
        self, pool: ObservedPool, opening: int = 0, advance: Int[np.ndarray, " W"] | int = 0
    ) -> Action:
        choice = np.where(advance, _PRUNE + np.asarray(advance), _HOLD)
        choice = np.where(self._pruned(pool), _PRUNE, choice)
        return np.concatenate([[0, opening], np.broadcast_to(choice, pool.width)]).astype(np.int32)


class _View(NamedTuple):
    """What is seen of the environment.

    Attributes:
        pool: the branches.
        room: how many could be opened.
        can_advance: which could be read on.
        max_advance: by how much at most.
    """

    pool: ObservedPool
    room: int
    can_advance: Bool[np.ndarray, " W"]
    max_advance: int

    @property
    def budget_spent(self) -> bool:
        """Whether the token budget, and nothing else, forbids to open and to read."""
        could = (self.pool.opened < self.pool.width) | self.pool.live.any()
        return bool(could) and self.room == 0 and not self.can_advance.any()


class _Ledger:
    """What each branch was charged, as far as it follows from what all were."""

    def __init__(self) -> None:
        self._interval = 0
        self._charged: Int32[np.ndarray, " W"] | int = 0
        self._finished: Bool[np.ndarray, " W"] | bool = False

    def charge(
        self, tokens: int, depth: Int32[np.ndarray, " W"], finished: Bool[np.ndarray, " W"]
    ) -> Int32[np.ndarray, " W"]:
        """Tokens of each branch after a step; what ended in it shares evenly what the others leave."""
        if not self._interval and depth.any():
            self._interval = tokens // depth.sum()  # nothing ends where it is opened
        ended = finished & np.logical_not(self._finished)
        stepwise = self._interval * (depth - ended)
        charged = np.where(finished & ~ended, self._charged, stepwise).astype(np.int32)
        rest, index = tokens - charged.sum(), np.flatnonzero(ended)
        charged[index] += rest // max(len(index), 1)
        charged[index[:1]] += rest % max(len(index), 1)
        self._charged, self._finished = charged, finished
        return charged


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ObservedPool(SteppedPool):
    """What an observation shows, as a `BranchPool`."""

    depth: Int32[Array, " W"]
    active: Bool[Array, " W"]
    finished: Bool[Array, " W"]
    answers: Int32[Array, " W"]
    branch_tokens: Int32[Array, " W"]
    tokens: Int32[Array, ""]
    later: tuple[ObservedPool, ...] = ()

    @property
    def width(self) -> int:
        return self.depth.shape[0]

    @property
    def opened(self) -> Int32[Array, ""]:
        return (self.depth > 0).sum(dtype=np.int32)

    @property
    def live(self) -> Bool[Array, " W"]:
        return self.active & ~self.finished

    def agrees(self, branch: Scalar) -> Bool[Array, " W"]:
        answers = jnp.asarray(self.answers)
        return (answers == answers[branch]) & (answers != NONE) & (branch != NONE)

    def vote(self, voters: Bool[Array, " W"], key: Int[Array, " W"] | None = None) -> Vote:
        return votes.vote(jnp.asarray(self.answers), voters, key)

    def vote_finals(
        self, voters: Bool[Array, " W"] | None = None, key: Int[Array, " W"] | None = None
    ) -> Vote:
        return self.vote(self.finished if voters is None else self.finished & voters, key)

    def prune(self, mask: Bool[Array, " W"]) -> ObservedPool:
        return dataclasses.replace(self, active=self.active & ~mask)
