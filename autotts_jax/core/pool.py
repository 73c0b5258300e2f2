"""An episode over a probe matrix: the one place where actions are carried out and views are made.

A `ReplayPool` belongs to whoever owns the episode: a rollout, an environment, an executor. A controller is
shown a `View` of it and returns an `Action`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, cast

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Int, Int32, UInt32

from autotts_jax.core import mdp, votes
from autotts_jax.core.view import UNREVEALED, Action, Lookups, NotKeptError, View, is_left_out
from autotts_jax.core.votes import Vote
from autotts_jax.replay.matrix import NONE, ProbeMatrix
from autotts_jax.typing import Array, Scalar, checked

NEVER = jnp.iinfo(jnp.int32).max
"""Label of an answer that was not revealed yet."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ReplayPool:
    """The branches of an episode over a probe matrix: what was read of them, and what is hidden."""

    _matrix: ProbeMatrix
    _episode: mdp.Episode
    _state: mdp.State
    _equivalence: UInt32[Array, "W words"] | None
    _labels: Int32[Array, " V"] | None
    _labelled: Int32[Array, ""]
    _starts: UInt32[Array, " words"] | None
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
        batches: bool = True,
        finals: Int[Array, "Q N"] | None = None,
        at_once: Scalar | None = None,
    ) -> ReplayPool:
        """Begins an episode: a pool in which nothing is opened.

        Args:
            matrix: the probe matrix.
            question: index of the question.
            order: the order in which branches are opened; its length is W.
            budget: B in tokens; None for no limit.
            labels: keep the table behind `View.labels` (static). Controllers that never look at labels run
                faster without.
            revealed: keep which depths were probed, for `View.revealed_keys` (static).
            unprobed: keep what was read without a probe, for actions that say what is probed (static).
            equivalence: find out once which branches share a final answer (static). It makes
                `View.vote_finals` faster, and beginning slower.
            batches: keep what `sequential_tokens` needs (static).
            finals: `ProbeMatrix.finals`, where many pools begin over one matrix.
            at_once: rounds that an action may be repeated at once; None for one.
        """
        episode, state = mdp.begin(matrix, question, order, revealed or labels, unprobed)
        finals = matrix.finals() if finals is None else finals
        masks = votes.equivalence_masks(jnp.asarray(finals)[question][order]) if equivalence else None
        return cls(
            _matrix=matrix,
            _episode=episode,
            _state=state,
            _equivalence=masks,
            _labels=jnp.full(matrix.vocabulary, NEVER, jnp.int32) if labels else None,
            _labelled=jnp.int32(0),
            _starts=jnp.zeros(-(-order.shape[0] // mdp.WORD), jnp.uint32) if batches else None,
            _budget=budget,
            _skipped=jnp.int32(0),
            _at_once=at_once,
        )

    # --- observation in, action out ------------------------------------------------------------------------

    def view(self, rounds: Scalar = 0, *, detached: bool = False) -> View:
        """Shows what the episode has revealed.

        Args:
            rounds: rounds played one by one; those that were played at once with others are added.
            detached: whether the view leaves the function that is being traced (static). Within it, votes of
                finals and single keys are found faster.
        """
        matrix, episode, state = self._matrix, self._episode, self._state
        shown = mdp.deepest_probed(state)

        def elect(voters: Bool[Array, " W"], rank: Int[Array, " W"] | None) -> Vote:
            assert self._equivalence is not None
            # Again those whose final is revealed alone, whatever the voters are.
            return votes.vote_by_masks(self._equivalence, voters & (shown > episode.length), rank)

        def key(branch: Scalar) -> Int32[Array, ""]:
            return mdp.answer(matrix, episode, state, branch)

        return View(
            rounds=jnp.asarray(rounds, jnp.int32) + self._skipped,
            interval=episode.interval,
            budget=self._budget,
            opened=state.opened,
            depth=state.depth,
            active=state.active,
            finished=mdp.finished(episode, state),
            revealed_depth=shown,
            answer_keys=self.answer_keys,
            probes=mdp.probes(state),
            branch_tokens=mdp.branch_tokens(episode, state),
            admissible=mdp.admissible(episode, state, self._budget),
            budget_spent=mdp.budget_spent(episode, state, self._budget),
            _labels=None if self._labels is None else self._label_of(self.answer_keys),
            _revealed_keys=None if state.revealed is None else self._revealed(self._ids),
            _signals={name: mdp.signal(matrix, episode, state, name) for name in matrix.signals},
            max_depth=matrix.max_depth,
            num_keys=matrix.vocabulary,
            _lookups=None if detached else Lookups(key, None if self._equivalence is None else elect),
        )

    def step(self, action: Action) -> ReplayPool:
        """Carries out an action that does not stop the episode: prune, open, advance, read, probe.

        Args:
            action: the action.

        Returns:
            The pool after it.

        Raises:
            NotKeptError: it says what is probed, and the pool keeps nothing that was read without a probe.
        """
        return self.carry_out(action).labelled(self._state)

    def carry_out(self, action: Action) -> ReplayPool:
        """Carries out an action, or a part of one, without labelling what it reveals: see `labelled`.

        Args:
            action: the action.

        Returns:
            The pool after it.

        Raises:
            NotKeptError: see `step`.
        """
        if action.probe is not None and self._state.shown is None:
            raise NotKeptError("unprobed")
        episode, budget, before = self._episode, self._budget, self._state
        dense = action.probe is None
        opening, reading = (
            None if is_left_out(count) else jnp.asarray(count, jnp.int32)
            for count in (action.open, action.read)
        )
        advance = None if action.advance is None else jnp.asarray(action.advance, jnp.int32)
        repeats = self._repeats(action)
        state, played = before, jnp.int32(1)
        if action.prune is not None:
            state = mdp.prune(state, action.prune)
            if repeats is not None and not (opening is None and reading is None):
                # Another time it would give up branches that were opened in between.
                repeats = jnp.where(jnp.any(action.prune & ~before.active), 1, repeats)
        live = state.active & ~mdp.finished(episode, state)
        if repeats is not None and advance is not None:
            state, played = mdp.widen_and_deepen(episode, state, opening, advance, repeats)
        else:
            if opening is not None:
                opened = mdp.open_branches(episode, state, opening, budget)
                fresh = opened.active & (state.depth == 0)
                state = mdp.reveal(opened, fresh) if dense else opened
            if advance is not None:
                state = mdp.advance(episode, state, advance, budget, dense)
        deepened = state
        if reading is not None:
            if repeats is not None and advance is None:
                played = jnp.clip(jnp.minimum(repeats, self.width - state.opened), 1)
                reading = reading * played
            state = mdp.read_full(episode, state, reading, budget)
        if action.probe is not None:
            state = mdp.reveal(state, action.probe)
        starts = self._starts
        if starts is not None and opening is not None:
            alone = ~jnp.any(live)
            starts = starts | mdp.bit(
                starts.shape[0], before.opened, alone & (deepened.opened > before.opened)
            )
        if starts is not None and reading is not None:
            # Branches that are read by one action are read side by side, by one that is repeated in turn.
            last = state.opened if repeats is not None else jnp.minimum(state.opened, deepened.opened + 1)
            starts = starts | mdp.bits_between(starts.shape[0], deepened.opened, last)
        skipped = self._skipped + played - 1
        return dataclasses.replace(self, _state=state, _starts=starts, _skipped=skipped)

    def _repeats(self, action: Action) -> Array | None:
        """How often an action may be carried out at once; None where once alone."""
        once = isinstance(action.repeat, int) and action.repeat == 1
        # Labels are in the order of single rounds, and a budget may end any of them early.
        if once or self._at_once is None or self._budget is not None or self._labels is not None:
            return None
        if action.probe is not None or (action.advance is None and not is_left_out(action.open)):
            return None
        if action.advance is not None and not is_left_out(action.read):
            return None
        if action.advance is None and not (isinstance(action.read, int) and action.read == 1):
            return None
        return jnp.clip(jnp.asarray(action.repeat, jnp.int32), 1, self._at_once)

    def labelled(self, before: mdp.State) -> ReplayPool:
        """Labels the answers that an action has revealed for the first time, by branch, then by depth.

        Args:
            before: the state before the action.

        Returns:
            The pool with these labels; the same where it keeps none.
        """
        if self._labels is None:
            return self
        ids = self._ids
        fresh = (self._revealed(ids) != UNREVEALED) & (self._revealed(ids, before) == UNREVEALED)
        known = jnp.asarray(self._labels)
        new = fresh & (ids != NONE) & (known[ids] == NEVER)
        place = jnp.arange(ids.size, dtype=jnp.int32).reshape(ids.shape)
        first = jnp.full_like(known, ids.size).at[jnp.where(new, ids, known.size)].min(place, mode="drop")
        leads = new & (first[ids] == place)
        label = self._labelled + (jnp.cumsum(leads.reshape(-1), dtype=jnp.int32) - 1).reshape(ids.shape)
        return dataclasses.replace(
            self,
            _labels=known.at[jnp.where(leads, ids, known.size)].set(label, mode="drop"),
            _labelled=self._labelled + jnp.sum(leads, dtype=jnp.int32),
        )

    def _label_of(self, ids: Int32[Array, "..."]) -> Int32[Array, "..."]:
        return jnp.where(ids == NONE, NONE, jnp.asarray(self._labels)[ids])

    @property
    def _ids(self) -> Int32[Array, "W K"]:
        """Answer ids at all depths, revealed or not."""
        at = self._episode.start[:, None] + jnp.arange(self.max_depth)
        return jnp.asarray(self._matrix.answers).reshape(-1)[at].astype(jnp.int32)

    def _revealed(self, ids: Int32[Array, "W K"], state: mdp.State | None = None) -> Int32[Array, "W K"]:
        """The ids at depths that a state has revealed, `UNREVEALED` elsewhere."""
        words = (state or self._state).revealed
        assert words is not None
        depth = jnp.arange(self.max_depth, dtype=jnp.uint32)
        revealed = (words[:, depth // mdp.WORD] >> (depth % mdp.WORD)) & 1 == 1
        return jnp.where(revealed, ids, UNREVEALED)

    # --- what has been read and charged -----------------------------------------------------------------

    @property
    def width(self) -> int:
        """W, the largest number of branches (static)."""
        return self._state.depth.shape[0]

    @property
    def max_depth(self) -> int:
        """K, an upper bound of the readable depths of any branch (static)."""
        return self._matrix.max_depth

    @property
    def interval(self) -> Int32[Array, ""]:
        """Δ, tokens between two probes."""
        return self._episode.interval

    @property
    def opened(self) -> Int32[Array, ""]:
        """m, the number of opened branches."""
        return self._state.opened

    @property
    def depth(self) -> Int32[Array, " W"]:
        """Intervals read of each branch."""
        return self._state.depth

    @property
    def active(self) -> Bool[Array, " W"]:
        """Branches that were opened and not pruned."""
        return self._state.active

    @property
    def finished(self) -> Bool[Array, " W"]:
        """Branches that were read to the end."""
        return mdp.finished(self._episode, self._state)

    @property
    def live(self) -> Bool[Array, " W"]:
        """Branches that are active and not finished."""
        return self.active & ~self.finished

    @property
    def revealed_depth(self) -> Int32[Array, " W"]:
        """The deepest depth of each branch whose answer was revealed."""
        return mdp.deepest_probed(self._state)

    @property
    def probed(self) -> Int32[Array, " W"]:
        """How many depths of each branch were probed."""
        return mdp.probed_depths(self._state)

    @property
    def answer_keys(self) -> Int32[Array, " W"]:
        """Id of the latest revealed answer of each branch."""
        return mdp.answers(self._matrix, self._episode, self._state)

    @property
    def intervals(self) -> Int32[Array, ""]:
        """Σ l_i."""
        return mdp.intervals(self._state)

    @property
    def probes(self) -> Int32[Array, ""]:
        """The number of revealed answers."""
        return mdp.probes(self._state)

    @property
    def branch_tokens(self) -> Int32[Array, " W"]:
        """Tokens charged for each branch."""
        return mdp.branch_tokens(self._episode, self._state)

    @property
    def tokens(self) -> Int32[Array, ""]:
        """Tokens charged so far."""
        return mdp.tokens(self._episode, self._state)

    @property
    def sequential_tokens(self) -> Int32[Array, ""]:
        """Tokens that have to be generated one after another, see `mdp.sequential_tokens`."""
        return mdp.sequential_tokens(self.branch_tokens, jnp.asarray(self._starts))

    @property
    def hidden(self) -> mdp.Episode:
        """What is fixed in the episode and hidden from controllers."""
        return self._episode

    @property
    def state(self) -> mdp.State:
        """The state after the actions so far."""
        return self._state

    @property
    def skipped(self) -> Int32[Array, ""]:
        """Rounds that were played at once with others, beyond one at a time."""
        return self._skipped

    # --- over another matrix ----------------------------------------------------------------------------

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
