"""What a controller sees of an episode, and what it can do: observation in, action out.

A `View` holds what the episode has revealed, and nothing else. An `Action` says everything that is to be done
before the controller looks again; the kernel carries it out.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Float32, Int, Int32

from autotts_jax.core import votes
from autotts_jax.core.arguments import check_argument, described, is_array
from autotts_jax.core.mdp import Admissible
from autotts_jax.core.votes import Vote
from autotts_jax.errors import InputError
from autotts_jax.replay.matrix import NONE
from autotts_jax.replay.signals import listed, meant_instead
from autotts_jax.typing import Array, Scalar

UNREVEALED = -2
"""Key of an answer that was not revealed yet, in `View.revealed_keys`."""


class StopReason(enum.IntEnum):
    """Why an episode ended; `RUNNING` while it has not."""

    RUNNING = 0
    DECIDED = 1
    """The controller's stopping rule was met."""
    EXHAUSTED = 2
    """Nothing was left to read."""
    STEP_LIMIT = 3
    """The controller's own limit of rounds or branches was reached."""
    BUDGET = 4
    """The token budget admits no further BRANCH or CONTINUE, or not all branches that were to be read."""
    ROUND_LIMIT = 5
    """The rollout's limit of rounds was reached."""


class Action(NamedTuple):
    """What to do before the next look; parts that are left out do nothing.

    The order is fixed: prune, open, advance, read, probe. What is not admissible is ignored, part by part:
    counts are limited by the width, by the end of each branch, and by the budget.

    Attributes:
        stop: a `StopReason` to answer; the rest is then not carried out. `RUNNING` to go on. Shape ().
        prune: branches to give up; what they revealed stays. Shape (W,).
        open: branches to open at depth 1. Shape ().
        advance: intervals to read of each live branch, the ones just opened included. Shape (W,).
        read: branches to open and read to their ends in one call, at T tokens each. Shape ().
        probe: None to reveal every depth that is passed; or the branches whose answer at the depth that they
            have reached is revealed, and nothing else is. A full read reveals its final answer anyway.
            Shape (W,).
        repeat: how many times in a row the controller is sure to return this action, as long as none of the
            branches that it reads step by step ends. A compiled rollout carries it out so many times at once;
            elsewhere, and under a budget, the controller is asked again after each. Shape ().
    """

    stop: Scalar = StopReason.RUNNING
    prune: Bool[Array, " W"] | None = None
    open: Scalar = 0
    advance: Int[Array, " W"] | None = None
    read: Scalar = 0
    probe: Bool[Array, " W"] | None = None
    repeat: Scalar = 1


def is_left_out(count: Any) -> bool:
    """Tells whether a count of an action is known to be 0 when it is traced."""
    return isinstance(count, int) and not isinstance(count, bool) and count == 0


def check_action(method: str, action: Any, width: int) -> None:
    """Checks the parts of an action while it is traced.

    Raises:
        InputError: it is no `Action`, or a part of it is of another shape or dtype.
    """
    if not isinstance(action, Action):
        raise InputError(f"{method} must return (memory, Action), not {described(action)} as the action")
    if not is_array(action.stop, np.integer) or (
        isinstance(action.stop, int) and action.stop not in set(StopReason)
    ):
        raise InputError(
            f"{method} returned the stop reason {described(action.stop)}; return a StopReason, as first_of "
            "does"
        )
    try:
        for name in ("open", "read", "repeat"):
            check_argument(f"Action.{name}", getattr(action, name), np.signedinteger)
        for name, kind in (("prune", np.bool_), ("advance", np.signedinteger), ("probe", np.bool_)):
            if getattr(action, name) is not None:
                check_argument(f"Action.{name}", getattr(action, name), kind, width)
    except InputError as error:
        raise InputError(f"{method}: {error}") from None


class Lookups(NamedTuple):
    """Faster ways to what a view shows, where the episode is at hand while the controller is traced.

    Attributes:
        key: from a branch, `View.answer_key`.
        elect: from voters and a rank, the vote of those that are finished; None where the episode does not
            know which finals agree.
    """

    key: Callable[[Scalar], Int[Array, ""]]
    elect: Callable[[Bool[Array, " W"], Int[Array, " W"] | None], Vote] | None


class NotKeptError(Exception):
    """An episode was begun without something that a view is asked for; ``args[0]`` names it."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class View:
    """What an episode has revealed so far; arrays have one entry a branch, in opening order.

    Attributes:
        rounds: rounds played, 0 at the first look. Shape ().
        interval: Δ, tokens between two probes. Shape ().
        budget: B, the token budget of the episode; None without one. Shape ().
        opened: m, the number of opened branches. Shape ().
        depth: intervals read of each branch: 0 where unopened, L + 1 once finished. Shape (W,).
        active: branches that were opened and not pruned, finished ones included. Shape (W,).
        finished: branches that were read to the end. Shape (W,).
        revealed_depth: the deepest depth whose answer was revealed, 0 where none was. Shape (W,).
        answer_keys: key of the latest revealed answer, ``NONE`` where there is none. Equal answers have equal
            keys throughout an episode, in 0 … `num_keys` - 1. Compare them for equality only. Shape (W,).
        probes: the number of revealed answers. Shape ().
        branch_tokens: tokens charged for each branch. Shape (W,).
        admissible: the admissible atomic actions.
        budget_spent: whether the budget, and nothing else, forbids every BRANCH and CONTINUE. Shape ().
        max_depth: K, an upper bound of the readable depths L + 1 of any branch (static).
        num_keys: an upper bound of the keys (static).
    """

    rounds: Int32[Array, ""]
    interval: Int32[Array, ""]
    budget: Scalar | None
    opened: Int32[Array, ""]
    depth: Int32[Array, " W"]
    active: Bool[Array, " W"]
    finished: Bool[Array, " W"]
    revealed_depth: Int32[Array, " W"]
    answer_keys: Int[Array, " W"]
    probes: Int32[Array, ""]
    branch_tokens: Int32[Array, " W"]
    admissible: Admissible
    budget_spent: Bool[Array, ""]
    _labels: Int32[Array, " W"] | None
    _revealed_keys: Int[Array, "W K"] | None
    _signals: Mapping[str, Float32[Array, " W"]]
    max_depth: int = dataclasses.field(metadata={"static": True})
    num_keys: int = dataclasses.field(metadata={"static": True})
    _lookups: Lookups | None = dataclasses.field(default=None, metadata={"static": True}, repr=False)

    @property
    def width(self) -> int:
        """W, the largest number of branches (static)."""
        return self.depth.shape[0]

    @property
    def live(self) -> Bool[Array, " W"]:
        """Branches that are active and not finished: those that can advance."""
        return self.active & ~self.finished

    @property
    def intervals(self) -> Int32[Array, ""]:
        """Σ l_i, the number of intervals read."""
        return jnp.sum(self.depth, dtype=jnp.int32)

    @property
    def tokens(self) -> Int32[Array, ""]:
        """Tokens charged so far."""
        return jnp.sum(self.branch_tokens, dtype=jnp.int32)

    @property
    def labels(self) -> Int32[Array, " W"]:
        """Label of the latest revealed answer of each branch; ``NONE`` where there is none.

        Answers have the labels 0, 1, … in the order in which they were first revealed; among those revealed
        together the order is by branch, then by depth.
        """
        if self._labels is None:
            raise NotKeptError("labels")
        return self._labels

    @property
    def revealed_keys(self) -> Int[Array, "W K"]:
        """Key of the answer at each depth, depth 1 first; `UNREVEALED` where it was not revealed."""
        if self._revealed_keys is None:
            raise NotKeptError("revealed")
        return self._revealed_keys

    @property
    def signals(self) -> tuple[str, ...]:
        """Names of the signals that are shown, in alphabetical order (static)."""
        return tuple(sorted(self._signals))

    def signal(self, name: str) -> Float32[Array, " W"]:
        """Looks up a signal: what each branch shows besides its latest revealed answer.

        Args:
            name: the signal, which the controller names in `autotts_jax.Controller.signals` (static).

        Returns:
            Its value at `revealed_depth`; NaN where nothing was revealed.

        Raises:
            InputError: it is not shown.
        """
        if name not in self.signals:
            raise InputError(
                f"view.signal({name!r:.60}): the view shows {listed(self.signals)}; "
                f"{meant_instead(name, self.signals)}a controller names what it "
                "reads in its attribute `signals`, and plays where that is recorded"
            )
        return self._signals[name]

    def answer_key(self, branch: Scalar) -> Int[Array, ""]:
        """Looks up the entry of `answer_keys` of one branch.

        Args:
            branch: position of the branch in opening order.

        Returns:
            The key; ``NONE`` for branch ``NONE``.
        """
        check_argument("view.answer_key(branch)", branch, np.signedinteger)
        key = jnp.asarray(self.answer_keys)[branch] if self._lookups is None else self._lookups.key(branch)
        return jnp.where(jnp.asarray(branch) == NONE, NONE, key)

    def agrees(self, branch: Scalar) -> Bool[Array, " W"]:
        """Finds the branches whose latest answer is that of ``branch``.

        Args:
            branch: position of the branch.

        Returns:
            A mask of the branches; no branch agrees with one that has no answer, or with ``NONE``.
        """
        check_argument("view.agrees(branch)", branch, np.signedinteger)
        keys = jnp.asarray(self.answer_keys)
        return (keys == keys[branch]) & (keys != NONE) & (branch != NONE)

    def vote(
        self,
        voters: Bool[Array, " W"],
        rank: Int[Array, " W"] | None = None,
        weights: Float[Array, " W"] | None = None,
    ) -> Vote:
        """Lets branches vote with their latest answers.

        Args:
            voters: the branches that vote.
            rank: insertion order that decides ties, smaller first; branch order by default.
            weights: what each vote weighs, at least 0, where the heaviest answer is to win; NaN weighs 0. The
                vote's numbers still count branches.

        Returns:
            The vote; its ``leader`` is ``NONE`` where nobody voted.
        """
        self._check_vote("vote", voters, rank, weights)
        # In 16 bits where these hold all keys, as a matrix's: votes on them are faster.
        fits = self.num_keys <= jnp.iinfo(jnp.int16).max
        keys = self.answer_keys.astype(jnp.int16) if fits else self.answer_keys
        return votes.vote(keys, voters, rank, weights)

    def vote_finals(
        self,
        voters: Bool[Array, " W"] | None = None,
        rank: Int[Array, " W"] | None = None,
        weights: Float[Array, " W"] | None = None,
    ) -> Vote:
        """Lets finished branches vote with their final answers; cheaper than `vote`.

        Args:
            voters: the branches that vote if they are finished; all by default.
            rank: insertion order that decides ties, smaller first; branch order by default.
            weights: as in `vote`.

        Returns:
            The vote; its ``leader`` is ``NONE`` where nobody voted.
        """
        shown = self.finished & (self.revealed_depth == self.depth)
        self._check_vote("vote_finals", shown if voters is None else voters, rank, weights)
        voters = shown if voters is None else shown & voters
        elect = self._lookups and self._lookups.elect
        return (
            self.vote(voters, rank, weights) if elect is None or weights is not None else elect(voters, rank)
        )

    def _check_vote(self, call: str, voters: Any, rank: Any, weights: Any) -> None:
        check_argument(f"view.{call}(voters)", voters, np.bool_, self.width)
        if rank is not None:
            check_argument(f"view.{call}(rank)", rank, np.signedinteger, self.width)
        if weights is not None:
            check_argument(f"view.{call}(weights)", weights, np.floating, self.width)
