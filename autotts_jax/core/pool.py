"""The branch pool: all that a controller sees of an episode, and all that it can do in it.

A controller is written against the protocol `BranchPool` and runs unchanged on every pool: on `ReplayPool`,
over a probe matrix, under ``jit`` and ``vmap``; on `autotts_jax.core.stepping.SteppedPool`, whose operations
are carried out one at a time, by a replay, a running model, or an environment.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Float32, Int, Int32, UInt32

from autotts_jax.core import mdp, votes
from autotts_jax.core.mdp import Admissible
from autotts_jax.core.votes import Vote
from autotts_jax.errors import InputError
from autotts_jax.replay.matrix import NONE, ProbeMatrix
from autotts_jax.replay.signals import listed, meant_instead
from autotts_jax.typing import Array, Scalar, checked

NEVER = jnp.iinfo(jnp.int32).max
"""Label of an answer that was not revealed yet."""

UNREVEALED = -2
"""Key of an answer that was not revealed yet, in `BranchPool.revealed_keys`."""

READS = 8
"""Branches that `ReplayPool.read_until` reads at most at once."""


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


class BranchPool(Protocol):
    """What a controller sees and does: the contract between controllers and those who play them.

    Arrays have one entry a branch, in opening order; shape (W,). Methods that act return a new pool and
    ignore inadmissible parts of the request; an argument of another shape or dtype raises an `InputError`.
    Everything is traceable under ``jit`` and ``vmap``.
    """

    # --- the episode ---------------------------------------------------------------------------------------

    @property
    def width(self) -> int:
        """W, the largest number of branches (static)."""

    @property
    def max_depth(self) -> int:
        """K, an upper bound of the readable depths L + 1 of any branch (static)."""

    @property
    def interval(self) -> Int32[Array, ""]:
        """Δ, tokens between two probes."""

    @property
    def budget(self) -> Scalar | None:
        """B, the token budget of the episode; None without one."""

    # --- branches ------------------------------------------------------------------------------------------

    @property
    def opened(self) -> Int32[Array, ""]:
        """m, the number of opened branches."""

    @property
    def depth(self) -> Int32[Array, " W"]:
        """Intervals read of each branch: 0 where unopened, L + 1 once finished."""

    @property
    def active(self) -> Bool[Array, " W"]:
        """Branches that were opened and not pruned, finished ones included."""

    @property
    def finished(self) -> Bool[Array, " W"]:
        """Branches that were read to the end."""

    @property
    def live(self) -> Bool[Array, " W"]:
        """Branches that are active and not finished: those that can advance."""

    @property
    def admissible(self) -> Admissible:
        """The admissible atomic actions."""

    # --- answers -------------------------------------------------------------------------------------------

    @property
    def revealed_depth(self) -> Int32[Array, " W"]:
        """The deepest depth of each branch whose answer was revealed, 0 where none was."""

    @property
    def labels(self) -> Int32[Array, " W"]:
        """Label of the latest revealed answer of each branch; ``NONE`` where there is none.

        Answers have the labels 0, 1, … in the order in which they were first revealed; among those of one
        operation the order is by branch, then by depth.
        """

    @property
    def answer_keys(self) -> Int[Array, " W"]:
        """Key of the latest revealed answer of each branch; ``NONE`` where there is none.

        Equal answers have equal keys throughout an episode, in 0 … `num_keys` - 1. Unlike labels, keys have
        no order: compare them for equality only. They cost less than labels.
        """

    def answer_key(self, branch: Scalar) -> Int[Array, ""]:
        """Looks up the entry of `answer_keys` of one branch.

        Args:
            branch: position of the branch in opening order.

        Returns:
            The key; ``NONE`` for branch ``NONE``.
        """

    @property
    def num_keys(self) -> int:
        """An upper bound of the keys (static)."""

    @property
    def revealed_keys(self) -> Int[Array, "W K"]:
        """Key of the answer at each depth, depth 1 first; `UNREVEALED` where it was not revealed."""

    @property
    def signals(self) -> tuple[str, ...]:
        """Names of the signals that the pool shows, in alphabetical order (static)."""

    def signal(self, name: str) -> Float32[Array, " W"]:
        """Looks up a signal: what each branch shows besides its latest revealed answer.

        Args:
            name: the signal, which the controller names in `autotts_jax.Controller.signals` (static).

        Returns:
            Its value at `revealed_depth`; NaN where nothing was revealed.

        Raises:
            InputError: the pool does not show it.
        """

    def agrees(self, branch: Scalar) -> Bool[Array, " W"]:
        """Finds the branches whose latest answer is that of ``branch``.

        Args:
            branch: position of the branch.

        Returns:
            A mask of the branches; no branch agrees with one that has no answer, or with ``NONE``.
        """

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

    # --- costs ---------------------------------------------------------------------------------------------

    @property
    def intervals(self) -> Int32[Array, ""]:
        """Σ l_i, the number of intervals read."""

    @property
    def probes(self) -> Int32[Array, ""]:
        """|Ω|, the number of revealed answers."""

    @property
    def branch_tokens(self) -> Int32[Array, " W"]:
        """Tokens charged for each branch."""

    @property
    def tokens(self) -> Int32[Array, ""]:
        """Tokens charged so far."""

    @property
    def budget_spent(self) -> Bool[Array, ""]:
        """Whether the budget, and nothing else, forbids every BRANCH and CONTINUE."""

    # --- operations ----------------------------------------------------------------------------------------

    def open(self, count: Scalar, probe: bool = True) -> Self:
        """Opens fresh branches at depth 1.

        Args:
            count: number of branches.
            probe: reveal their answers (static).

        Returns:
            The pool after it; no more branches are opened than width and budget admit.
        """

    def advance(self, count: Int[Array, " W"], probe: bool = True) -> Self:
        """Reads live branches further, each to its end at most.

        Args:
            count: intervals to read of each branch.
            probe: reveal the answer at each depth that is passed (static).

        Returns:
            The pool after it.
        """

    def advance_rounds(
        self,
        count: Int[Array, " W"],
        rounds: Scalar,
        opening: Scalar = 0,
        most: Scalar | None = None,
        wait: Scalar = 0,
    ) -> tuple[Self, Int32[Array, ""]]:
        """Advances round after round until a branch ends: rounds of which it is known what is done in them.

        Each round advances live branches by ``count``, as `advance` does with its answers revealed. Between
        two rounds fresh branches are opened, and read from then on. The round in which the first branch ends
        is the last, and the first one is if no branch can end.

        A pool may play fewer rounds than that, but one at least: in a round of a compiled rollout all are
        played, in pools that are stepped, live, watched or under a budget one is. So a controller counts the
        rounds that were played, and asked again after each it must do the same as in all at once.

        Args:
            count: intervals to read of each branch in a round, of those that are opened on the way too.
            rounds: rounds to play at most, at least 1.
            opening: branches to open between two rounds.
            most: branches opened at most; W by default.
            wait: rounds before the first after which branches are opened.

        Returns:
            The pool after the last round, and how many rounds were played.
        """

    def probe(self, mask: Bool[Array, " W"]) -> Self:
        """Reveals the answers at the current depth of branches that were opened or advanced without a probe.

        Args:
            mask: the branches; those that are not active are left alone.

        Returns:
            The pool after it.
        """

    def prune(self, mask: Bool[Array, " W"]) -> Self:
        """Gives up active branches; what they revealed stays.

        Args:
            mask: the branches.

        Returns:
            The pool after it.
        """

    def read(self, count: Scalar) -> Self:
        """Opens fresh branches and reads each to its end in one call, at T tokens each.

        Args:
            count: number of branches.

        Returns:
            The pool after it.
        """

    def read_until(self, rule: VoteRule, count: Scalar) -> tuple[Self, Bool[Array, ""]]:
        """Reads fresh branches as `read` does, one after another, until a rule says to stop.

        A pool may read fewer than that, but one at least where it can: in a round of a compiled rollout
        several are read at once, in pools that are stepped, live, watched or under a budget one is. So a
        controller asks for this in each round until the rule is met or no branch was read, does nothing else
        in such a round, and remembers no number of rounds.

        Args:
            rule: asked after each branch, from the vote on the final answers of all finished branches and the
                number of opened branches, whether to stop; a pure function of these.
            count: branches to read at most.

        Returns:
            The pool after the last branch, and whether the rule was met after it; False where none was read.
        """


VoteRule = Callable[[Vote, Int32[Array, ""]], Bool[Array, ""]]
"""From a vote and the number of opened branches, whether to stop."""

Pool = TypeVar("Pool", bound=BranchPool)
"""Any pool; an operation on one returns one of the same kind."""


def winner(pool: BranchPool, vote: Vote) -> Int[Array, ""]:
    """Looks up the key of a vote's winning answer.

    Args:
        pool: the pool whose branches voted.
        vote: the vote.

    Returns:
        The key; ``NONE`` without votes.
    """
    return pool.answer_key(vote.leader)


def type_of(value: Any) -> jax.core.ShapedArray | None:
    """Finds the type that a value has under ``jit``.

    Args:
        value: anything.

    Returns:
        Its dtype and shape; None for what cannot be traced.
    """
    if is_too_large(value):
        return None
    try:
        return jax.typeof(value)
    except TypeError:
        return None


def is_too_large(value: Any) -> bool:
    """Tells whether a value holds whole numbers that JAX has no room for; NumPy's it would wrap around.

    Args:
        value: anything.
    """
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.kind not in "iu":
            return False
        return bool(np.any(value.astype(jax.dtypes.canonicalize_dtype(value.dtype)) != value))
    held = np.iinfo(jax.dtypes.canonicalize_dtype(int))
    return isinstance(value, int) and not held.min <= value <= held.max


def is_array(value: Any, kind: Any, *shape: int) -> bool:
    """Tells whether a value is an array, traced ones and numbers included.

    Args:
        value: anything.
        kind: a kind of dtypes, such as ``np.integer``; a Python bool is no integer.
        *shape: the shape.
    """
    given = type_of(value)
    return given is not None and given.shape == shape and bool(jnp.issubdtype(given.dtype, kind))


def described(value: Any) -> str:
    """Describes a value in a message: dtype and shape of an array, the beginning of anything else.

    Args:
        value: anything.
    """
    if is_too_large(value):
        return f"{value!r:.80}, which is more than int32 holds"
    given = type_of(value)
    return f"{value!r:.80}" if given is None or isinstance(value, int | float) else given.str_short()


def check_argument(call: str, value: Any, kind: Any, *shape: int) -> None:
    """Checks shape and dtype of what a method of a pool is given, while it is traced.

    Args:
        call: the method, for the message, and the argument where it has several.
        value: the argument.
        kind: ``np.signedinteger``, ``np.floating`` or ``np.bool_``.
        *shape: its shape: (), or (W,) for an entry a branch.

    Raises:
        InputError: it is something else.
    """
    if not is_array(value, kind, *shape):
        wanted = {np.bool_: "True or False", np.floating: "a float"}.get(kind, "an integer")
        wanted += f" for each of the {shape[0]} branches, shape ({shape[0]},)" if shape else ", shape ()"
        raise InputError(f"pool.{call} takes {wanted}, not {described(value)}")


def check_probe(call: str, probe: object) -> None:
    """Checks the argument of a pool's method that says whether to probe.

    Args:
        call: the method, for the message.
        probe: the argument.

    Raises:
        InputError: it is no Python bool.
    """
    if not isinstance(probe, bool):
        raise InputError(
            f"pool.{call} takes probe=True or probe=False, which is static, not {described(probe)}"
        )


def check_rounds(width: int, count: Any, rounds: Any, opening: Any, most: Any, wait: Any) -> None:
    """Checks the arguments of `BranchPool.advance_rounds`.

    Args:
        width: W.
        count: intervals to read of each branch in a round.
        rounds: rounds at most.
        opening: branches to open between two rounds.
        most: branches opened at most; None for W.
        wait: rounds before the first after which branches are opened.

    Raises:
        InputError: one has another shape or dtype.
    """
    check_argument("advance_rounds(count)", count, np.signedinteger, width)
    numbers = {"rounds": rounds, "opening": opening, "most": 0 if most is None else most, "wait": wait}
    for name, value in numbers.items():
        check_argument(f"advance_rounds({name})", value, np.signedinteger)


def check_vote(call: str, width: int, voters: Any, rank: Any, weights: Any) -> None:
    """Checks the arguments of a vote.

    Args:
        call: the method, for the message.
        width: W.
        voters: the branches that vote.
        rank: their order; None for branch order.
        weights: what their votes weigh; None where all weigh the same.

    Raises:
        InputError: one has another shape or dtype.
    """
    check_argument(f"{call}(voters)", voters, np.bool_, width)
    if rank is not None:
        check_argument(f"{call}(rank)", rank, np.signedinteger, width)
    if weights is not None:
        check_argument(f"{call}(weights)", weights, np.floating, width)


def check_shown(pool: BranchPool, name: object) -> None:
    """Checks that a pool shows a signal.

    Args:
        pool: the pool.
        name: name of the signal.

    Raises:
        InputError: it does not.
    """
    if name not in pool.signals:
        raise InputError(
            f"pool.signal({name!r:.60}): the pool shows {listed(pool.signals)}; "
            f"{meant_instead(name, pool.signals)}a controller names what it "
            "reads in its attribute `signals`, and plays where that is recorded"
        )


def check_read_until(rule: Any, count: Any) -> None:
    """Checks the arguments of `BranchPool.read_until`.

    Args:
        rule: whether to stop.
        count: branches to read at most.

    Raises:
        InputError: one is something else.
    """
    if not callable(rule):
        raise InputError(
            f"pool.read_until(rule) takes a function of a vote and the number of opened branches, "
            f"not {described(rule)}"
        )
    check_argument("read_until(count)", count, np.signedinteger)


def read_one(pool: Pool, rule: VoteRule, count: Scalar) -> tuple[Pool, Bool[Array, ""]]:
    """Carries out `BranchPool.read_until` by a single branch.

    Args:
        pool: the pool.
        rule: whether to stop.
        count: branches to read at most.
    """
    after = pool.read(jnp.minimum(count, 1))
    return after, (after.opened > pool.opened) & is_met(rule, after.vote_finals(), after.opened)


def is_met(rule: VoteRule, vote: Vote, opened: Int32[Array, ""]) -> Bool[Array, ""]:
    """Tells whether the rule of `BranchPool.read_until` says to stop.

    Args:
        rule: the rule.
        vote: the vote on all finals.
        opened: number of opened branches.

    Raises:
        InputError: it returned something else than a truth value.
    """
    met = rule(vote, opened)
    if not is_array(met, np.bool_):
        raise InputError(
            f"pool.read_until takes a rule that returns True or False, shape (), not {described(met)}"
        )
    return jnp.asarray(met)


class NotKeptError(Exception):
    """A pool was begun without something that it is asked for; ``args[0]`` names the argument of `begin`."""


if TYPE_CHECKING:
    _Protocol = BranchPool
else:
    _Protocol = object  # the protocol's properties would stand in the way of a dataclass's fields


class LatestAnswers(_Protocol):
    """What a pool that knows the keys of the latest answers computes of them alone."""

    def agrees(self, branch: Scalar) -> Bool[Array, " W"]:
        check_argument("agrees", branch, np.signedinteger)
        keys = self.answer_keys
        return (keys == keys[branch]) & (keys != NONE) & (branch != NONE)

    def vote(
        self,
        voters: Bool[Array, " W"],
        rank: Int[Array, " W"] | None = None,
        weights: Float[Array, " W"] | None = None,
    ) -> Vote:
        check_vote("vote", self.width, voters, rank, weights)
        # In 16 bits where these hold all keys, as a matrix's: votes on them are faster.
        fits = self.num_keys <= jnp.iinfo(jnp.int16).max
        keys = self.answer_keys.astype(jnp.int16) if fits else self.answer_keys
        return votes.vote(keys, voters, rank, weights)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ReplayPool(LatestAnswers, BranchPool):
    """A `BranchPool` over a probe matrix. Its keys are the matrix's answer ids.

    Controllers see the protocol only. `begin` and what follows the operations are for
    the owner of the episode: rollouts, environments, critics.
    """

    _matrix: ProbeMatrix
    _episode: mdp.Episode
    _state: mdp.State
    _equivalence: UInt32[Array, "W words"] | None
    _labels: Int32[Array, " V"] | None
    _labelled: Int32[Array, ""]
    _budget: Scalar | None
    _skipped: Int32[Array, ""]
    _at_once: Scalar | None

    @classmethod
    @checked
    def begin(
        cls,
        matrix: ProbeMatrix,
        question: Scalar,
        order: Int[Array, " W"],
        budget: Scalar | None = None,
        labels: bool = True,
        revealed: bool = True,
        unprobed: bool = True,
        equivalence: bool = True,
        finals: Int[Array, "Q N"] | None = None,
        at_once: Scalar | None = None,
    ) -> ReplayPool:
        """Begins an episode: a pool in which nothing is opened.

        Args:
            matrix: the probe matrix.
            question: index of the question.
            order: the order in which branches are opened; its length is W.
            budget: B in tokens; None for no limit.
            labels: keep the table behind `labels` (static). Controllers that never look at labels run faster
                without.
            revealed: keep which depths were probed, for `revealed_keys` (static).
            unprobed: keep what was read without a probe, for operations with ``probe=False`` (static).
            equivalence: find out once which branches share a final answer (static). It makes `vote_finals`
                faster, and beginning slower.
            finals: `ProbeMatrix.finals`, where many pools begin over one matrix.
            at_once: rounds that `advance_rounds` and `read_until` may play at once; None for one.
        """
        episode, state = mdp.begin(matrix, question, order, revealed, unprobed)
        finals = matrix.finals() if finals is None else finals
        masks = votes.equivalence_masks(jnp.asarray(finals)[question][order]) if equivalence else None
        return cls(
            _matrix=matrix,
            _episode=episode,
            _state=state,
            _equivalence=masks,
            _labels=jnp.full(matrix.vocabulary, NEVER, jnp.int32) if labels else None,
            _labelled=jnp.int32(0),
            _budget=budget,
            _skipped=jnp.int32(0),
            _at_once=at_once,
        )

    # --- the episode ---------------------------------------------------------------------------------------

    @property
    def width(self) -> int:
        return self._state.depth.shape[0]

    @property
    def max_depth(self) -> int:
        return self._matrix.max_depth

    @property
    def interval(self) -> Int32[Array, ""]:
        return self._episode.interval

    @property
    def budget(self) -> Scalar | None:
        return self._budget

    # --- branches ------------------------------------------------------------------------------------------

    @property
    def opened(self) -> Int32[Array, ""]:
        return self._state.opened

    @property
    def depth(self) -> Int32[Array, " W"]:
        return self._state.depth

    @property
    def active(self) -> Bool[Array, " W"]:
        return self._state.active

    @property
    def finished(self) -> Bool[Array, " W"]:
        return mdp.finished(self._episode, self._state)

    @property
    def live(self) -> Bool[Array, " W"]:
        return self.active & ~self.finished

    @property
    def admissible(self) -> Admissible:
        return mdp.admissible(self._episode, self._state, self._budget)

    # --- answers -------------------------------------------------------------------------------------------

    @property
    def revealed_depth(self) -> Int32[Array, " W"]:
        return mdp.deepest_probed(self._state)

    @property
    def probed(self) -> Int32[Array, " W"]:
        """How many depths of each branch were probed."""
        return mdp.probed_depths(self._state)

    @property
    def labels(self) -> Int32[Array, " W"]:
        if self._labels is None:
            raise NotKeptError("labels")
        ids = self.answer_keys
        return jnp.where(ids == NONE, NONE, self._labels[ids])

    @property
    def answer_keys(self) -> Int32[Array, " W"]:
        return mdp.answers(self._matrix, self._episode, self._state)

    def answer_key(self, branch: Scalar) -> Int32[Array, ""]:
        check_argument("answer_key", branch, np.signedinteger)
        found = mdp.answer(self._matrix, self._episode, self._state, branch)
        return jnp.where(jnp.asarray(branch) == NONE, NONE, found)

    @property
    def num_keys(self) -> int:
        return self._matrix.vocabulary

    @property
    def revealed_keys(self) -> Int32[Array, "W K"]:
        words = self._state.revealed
        if words is None:
            raise NotKeptError("revealed")
        depth = jnp.arange(self.max_depth, dtype=jnp.uint32)
        revealed = (words[:, depth // mdp.WORD] >> (depth % mdp.WORD)) & 1 == 1
        return jnp.where(revealed, self._ids, UNREVEALED)

    @property
    def _ids(self) -> Int32[Array, "W K"]:
        """Answer ids at all depths, revealed or not."""
        at = self._episode.start[:, None] + jnp.arange(self.max_depth)
        return jnp.asarray(self._matrix.answers).reshape(-1)[at].astype(jnp.int32)

    @property
    def signals(self) -> tuple[str, ...]:
        return tuple(sorted(self._matrix.signals))

    def signal(self, name: str) -> Float32[Array, " W"]:
        check_shown(self, name)
        return mdp.signal(self._matrix, self._episode, self._state, name)

    @property
    def _shows_final(self) -> Bool[Array, " W"]:
        return self.revealed_depth > self._episode.length

    def vote_finals(
        self,
        voters: Bool[Array, " W"] | None = None,
        rank: Int[Array, " W"] | None = None,
        weights: Float[Array, " W"] | None = None,
    ) -> Vote:
        shown = self._shows_final
        check_vote("vote_finals", self.width, shown if voters is None else voters, rank, weights)
        voters = shown if voters is None else shown & voters
        if self._equivalence is None or weights is not None:
            return self.vote(voters, rank, weights)
        return votes.vote_by_masks(self._equivalence, voters, rank)

    # --- costs ---------------------------------------------------------------------------------------------

    @property
    def intervals(self) -> Int32[Array, ""]:
        return mdp.intervals(self._state)

    @property
    def probes(self) -> Int32[Array, ""]:
        return mdp.probes(self._state)

    @property
    def branch_tokens(self) -> Int32[Array, " W"]:
        return mdp.branch_tokens(self._episode, self._state)

    @property
    def tokens(self) -> Int32[Array, ""]:
        return mdp.tokens(self._episode, self._state)

    @property
    def budget_spent(self) -> Bool[Array, ""]:
        return mdp.budget_spent(self._episode, self._state, self._budget)

    # --- operations ----------------------------------------------------------------------------------------

    def open(self, count: Scalar, probe: bool = True) -> ReplayPool:
        check_argument("open", count, np.signedinteger)
        self._check_probe("open", probe)
        opened = mdp.open_branches(self._episode, self._state, jnp.asarray(count), self._budget)
        fresh = opened.active & (self.depth == 0)
        return self._then(mdp.reveal(opened, fresh) if probe else opened)

    def advance(self, count: Int[Array, " W"], probe: bool = True) -> ReplayPool:
        check_argument("advance", count, np.signedinteger, self.width)
        self._check_probe("advance", probe)
        state = mdp.advance(self._episode, self._state, count, self._budget, probe)
        return self._then(state, every_depth=probe)

    def advance_rounds(
        self,
        count: Int[Array, " W"],
        rounds: Scalar,
        opening: Scalar = 0,
        most: Scalar | None = None,
        wait: Scalar = 0,
    ) -> tuple[ReplayPool, Int32[Array, ""]]:
        check_rounds(self.width, count, rounds, opening, most, wait)
        # Labels are in the order of single rounds, and a budget may end any of them early.
        if self._at_once is None or self._budget is not None or self._labels is not None:
            return self.advance(count), jnp.int32(1)
        given = (jnp.minimum(rounds, self._at_once), opening, self.width if most is None else most, wait)
        state, played = mdp.advance_rounds(self._episode, self._state, count, *map(jnp.asarray, given))
        return dataclasses.replace(self, _state=state, _skipped=self._skipped + played - 1), played

    def probe(self, mask: Bool[Array, " W"]) -> ReplayPool:
        check_argument("probe", mask, np.bool_, self.width)
        return self._then(mdp.reveal(self._state, mask))

    def prune(self, mask: Bool[Array, " W"]) -> ReplayPool:
        check_argument("prune", mask, np.bool_, self.width)
        return dataclasses.replace(self, _state=mdp.prune(self._state, mask))

    def read(self, count: Scalar) -> ReplayPool:
        check_argument("read", count, np.signedinteger)
        return self._then(mdp.read_full(self._episode, self._state, jnp.asarray(count), self._budget))

    def read_until(self, rule: VoteRule, count: Scalar) -> tuple[ReplayPool, Bool[Array, ""]]:
        check_read_until(rule, count)
        # A budget may end the episode after any branch.
        if self._at_once is None or self._budget is not None or self._equivalence is None:
            return read_one(self, rule, count)
        most = jnp.minimum(jnp.minimum(count, self._at_once), self.width - self.opened)
        shown, reads, met = Vote.nobody(self.width), jnp.int32(0), jnp.bool_(False)
        turns = votes.votes_in_turn(self._equivalence, self._shows_final, self.opened, READS)
        for number, vote in enumerate(turns, 1):
            going = ~met & (number <= most)
            reads += going
            # The rule is never shown the vote of a branch that is not read.
            shown = jax.tree.map(functools.partial(jnp.where, going), vote, shown)
            met |= going & is_met(rule, shown, self.opened + reads)
        skipped = self._skipped + jnp.maximum(reads - 1, 0)
        return dataclasses.replace(self.read(reads), _skipped=skipped), met

    def _check_probe(self, call: str, probe: object) -> None:
        check_probe(call, probe)
        if not probe and self._state.shown is None:
            raise NotKeptError("unprobed")

    def _then(self, state: mdp.State, every_depth: bool = False) -> ReplayPool:
        """Returns the pool after an action, with the answers that it revealed for the first time labelled.

        Args:
            state: the state after the action.
            every_depth: whether it may have revealed several answers of a branch, and then those at all
                depths that were passed.
        """
        if self._labels is None:
            return dataclasses.replace(self, _state=state)
        if every_depth:
            ids, depth = self._ids, jnp.arange(self.max_depth)
            fresh = (self.depth[:, None] <= depth) & (depth < state.depth[:, None])
        else:
            ids = mdp.answers(self._matrix, self._episode, state)
            fresh = mdp.deepest_probed(state) > self.revealed_depth
        known = jnp.asarray(self._labels)
        new = fresh & (ids != NONE) & (known[ids] == NEVER)
        place = jnp.arange(ids.size, dtype=jnp.int32).reshape(ids.shape)
        first = jnp.full_like(known, ids.size).at[jnp.where(new, ids, known.size)].min(place, mode="drop")
        leads = new & (first[ids] == place)
        label = self._labelled + (jnp.cumsum(leads.reshape(-1), dtype=jnp.int32) - 1).reshape(ids.shape)
        return dataclasses.replace(
            self,
            _state=state,
            _labels=known.at[jnp.where(leads, ids, known.size)].set(label, mode="drop"),
            _labelled=self._labelled + jnp.sum(leads, dtype=jnp.int32),
        )

    # --- for the owner of the episode ----------------------------------------------------------------------

    @property
    def hidden(self) -> mdp.Episode:
        """What is fixed in the episode and hidden from controllers."""
        return self._episode

    @property
    def state(self) -> mdp.State:
        """The state after the operations so far."""
        return self._state

    @property
    def skipped(self) -> Int32[Array, ""]:
        """Rounds that were played at once with others, beyond one at a time."""
        return self._skipped

    def without_matrix(self) -> ReplayPool:
        """Drops what pools of a batch share, so that it holds no copies of it."""
        return dataclasses.replace(self, _matrix=cast(Any, None), _at_once=None)

    def with_matrix(self, matrix: ProbeMatrix, at_once: Scalar | None = None) -> ReplayPool:
        """Puts the matrix back.

        Args:
            matrix: the matrix that the pool was begun with.
            at_once: as for `begin`.
        """
        return dataclasses.replace(self, _matrix=matrix, _at_once=at_once)

    def with_longer_matrix(self, matrix: ProbeMatrix) -> ReplayPool:
        """Continues over a matrix in which more of the branches is known.

        Args:
            matrix: the pool's matrix with further answers, and the lengths and tokens of branches that ended.
        """
        row = self._episode.start // matrix.max_depth
        episode = dataclasses.replace(
            self._episode, length=matrix.lengths.reshape(-1)[row], tokens=matrix.tokens.reshape(-1)[row]
        )
        return dataclasses.replace(self, _matrix=matrix, _episode=episode)

    def with_budget(self, budget: Scalar) -> ReplayPool:
        """Continues with another budget.

        Args:
            budget: B in tokens.
        """
        return dataclasses.replace(self, _budget=budget)

    def unopened(self, matrix: ProbeMatrix) -> ReplayPool:
        """Makes a pool of the same shape and interval in which nothing is opened, of no particular episode.

        Args:
            matrix: the matrix.
        """
        zeros = jnp.zeros(self.width, jnp.int32)
        kept = (self._state.revealed is not None, self._state.shown is not None)
        episode, state = mdp.begin(matrix, 0, zeros, *kept)
        episode = dataclasses.replace(episode, interval=self._episode.interval)
        return dataclasses.replace(self, _matrix=matrix, _episode=episode, _state=state)
