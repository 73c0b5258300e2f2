"""The replay core: the decision process over a probe matrix, written for one episode.

State s = (q, m, I, l, Z, Ω) of AutoTTS (arXiv 2605.08083, section 2) is a handful of arrays of width W. The
functions here are the only ones that change it, and the only ones that say what is admissible and what it
costs; the controllers' branch pool, the rollout engine and every environment call them. All are pure, run
under ``jit``, and are batched with ``vmap``.

An inadmissible action changes nothing: the masks are applied here, not left to the caller.
"""

from __future__ import annotations

import dataclasses

import chex
import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float32, Int, Int32, UInt32

from autotts_jax.replay.matrix import NONE, ProbeMatrix
from autotts_jax.typing import Array, Scalar, checked

_MANY = 2**20
"""More rounds than anything takes."""

WORD = 32
"""Bits in a word of the bit sets below."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Episode:
    """What is fixed in an episode and hidden from a policy: a question under a branch order.

    Attributes:
        question: index of the question in the matrix. Shape ().
        start: flat index into ``matrix.answers`` of each branch's depth 1, in opening order. Shape (W,).
        length: probes L of each branch. Shape (W,).
        tokens: tokens T of each branch. Shape (W,).
        interval: Δ, tokens between two probes. Shape ().
    """

    question: Int32[Array, ""]
    start: Int32[Array, " W"]
    length: Int32[Array, " W"]
    tokens: Int32[Array, " W"]
    interval: Int32[Array, ""]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class State:
    """The state of an episode after its actions so far.

    Attributes:
        opened: m, the number of opened branches. Shape ().
        depth: depth l_i of each branch, 0 where unopened; kept when pruned. Shape (W,).
        active: the active set I: opened and not pruned. Shape (W,).
        full: read by one full read, which is charged T_i. Shape (W,).
        shown: the deepest probed depth of each branch, 0 where none was. Shape (W,). None where it is not
            kept; then every action that reads reveals all it reads, and `deepest_probed` is the depth.
        probed: how many depths of each branch were probed, its part of #Ω. Shape (W,). None likewise.
        revealed: Ω as a bit set: bit k - 1 of branch i is set when depth k was probed. Shape (W, words). None
            where it is not kept; only looking back at past probes needs it.
    """

    opened: Int32[Array, ""]
    depth: Int32[Array, " W"]
    active: Bool[Array, " W"]
    full: Bool[Array, " W"]
    shown: Int32[Array, " W"] | None
    probed: Int32[Array, " W"] | None
    revealed: UInt32[Array, "W words"] | None


@checked
def begin(
    matrix: ProbeMatrix,
    question: Scalar,
    order: Int[Array, " W"],
    revealed: bool = True,
    unprobed: bool = True,
) -> tuple[Episode, State]:
    """Starts an episode: s_0 = (q, 0, {}, {}, {}, {}).

    Args:
        matrix: the probe matrix.
        question: index of the question.
        order: the branches of the question in the order in which BRANCH opens them; its length is W.
        revealed: keep Ω itself, not only its size (static).
        unprobed: keep which depths were read without a probe (static); every action has to probe otherwise.
            With Ω it is kept anyway.

    Returns:
        What is fixed in the episode, and the state in which nothing is opened.
    """
    num_branches, max_depth = matrix.answers.shape[1:]
    order = order.astype(jnp.int32)
    width = order.shape[0]
    row = question * num_branches + order
    episode = Episode(
        question=jnp.asarray(question, jnp.int32),
        start=row * max_depth,
        length=matrix.lengths.reshape(-1)[row],
        tokens=matrix.tokens.reshape(-1)[row],
        interval=matrix.interval[question],
    )
    zeros = jnp.zeros(width, jnp.int32)
    state = State(
        opened=jnp.int32(0),
        depth=zeros,
        active=jnp.zeros(width, bool),
        full=jnp.zeros(width, bool),
        shown=zeros if unprobed or revealed else None,
        probed=zeros if unprobed or revealed else None,
        revealed=jnp.zeros((width, -(-max_depth // WORD)), jnp.uint32) if revealed else None,
    )
    return episode, state


# --- what is known of a state ---------------------------------------------------------------------------


@checked
def finished(episode: Episode, state: State) -> Bool[Array, " W"]:
    """Finds the branches that were read to their end: depth L_i + 1."""
    return state.depth > episode.length


@checked
def deepest_probed(state: State) -> Int32[Array, " W"]:
    """Finds the deepest probed depth of each branch, 0 where none was."""
    return state.depth if state.shown is None else state.shown


@checked
def probed_depths(state: State) -> Int32[Array, " W"]:
    """Counts the probed depths of each branch."""
    # A full read reveals the final answer alone.
    return jnp.where(state.full, 1, state.depth) if state.probed is None else state.probed


@checked
def answers(matrix: ProbeMatrix, episode: Episode, state: State) -> Int32[Array, " W"]:
    """Looks up the latest revealed answer of each branch.

    Returns:
        Answer ids; ``NONE`` where nothing was revealed.
    """
    return _answer(matrix, episode.start, deepest_probed(state))


@checked
def answer(matrix: ProbeMatrix, episode: Episode, state: State, branch: Scalar) -> Int32[Array, ""]:
    """Looks up the latest revealed answer of one branch, by its position in opening order.

    Returns:
        The answer id; ``NONE`` where nothing was revealed.
    """
    return _answer(matrix, episode.start[branch], deepest_probed(state)[branch])


@checked
def signal(matrix: ProbeMatrix, episode: Episode, state: State, name: str) -> Float32[Array, " W"]:
    """Looks up a signal at the deepest revealed depth of each branch.

    Returns:
        The values; NaN where nothing was revealed.
    """
    shown = deepest_probed(state)
    at = episode.start + jnp.maximum(shown - 1, 0)
    values = matrix.signals[name].reshape(-1)[at].astype(jnp.float32)
    return jnp.where(shown > 0, values, jnp.nan)


def _answer(matrix: ProbeMatrix, start: Array, shown: Array) -> Array:
    at = start + jnp.maximum(shown - 1, 0)
    return jnp.where(shown > 0, matrix.answers.reshape(-1)[at].astype(jnp.int32), NONE)


@checked
def branch_tokens(episode: Episode, state: State) -> Int32[Array, " W"]:
    """Counts the tokens charged for each branch.

    Δ·l_i while unfinished; max(Δ·L_i, T_i) once finished step by step; T_i for a full read, even where
    Δ·L_i > T_i (the released evaluator's accounting).
    """
    stepwise = episode.interval * state.depth
    whole = jnp.maximum(episode.interval * episode.length, episode.tokens)
    return jnp.where(state.full, episode.tokens, jnp.where(finished(episode, state), whole, stepwise))


@checked
def tokens(episode: Episode, state: State) -> Int32[Array, ""]:
    """Counts the tokens charged so far."""
    return jnp.sum(branch_tokens(episode, state), dtype=jnp.int32)


def bits_between(words: int, first: Int[Array, "..."], last: Int[Array, "..."]) -> UInt32[Array, "... words"]:
    """Makes the bit set of ``first <= i < last``, or one for each row.

    Args:
        words: words of the set (static).
        first: the first one; rows have a last axis of length 1.
        last: the one after the last, likewise.
    """
    offset = WORD * jnp.arange(words)
    return _low_bits(last - offset) & ~_low_bits(first - offset)


def bit(words: int, branch: Scalar, holds: Bool[Array, ""]) -> UInt32[Array, " words"]:
    """Makes the bit set, of so many words (static), of one branch, or of none."""
    one = jnp.uint32(1) << jnp.asarray(branch % WORD, jnp.uint32)
    return jnp.where(holds & (jnp.arange(words) == branch // WORD), one, jnp.uint32(0))


@jax.custom_batching.custom_vmap
def sequential_tokens(tokens: Int32[Array, " W"], starts: UInt32[Array, " words"]) -> Int32[Array, ""]:
    """Counts the tokens that have to be generated one after another, a proxy for latency.

    Branches that are read side by side are a batch, and the longest branch of each is waited for: a batch
    begins with a branch that was opened while none was live, and with each full read.

    Args:
        tokens: tokens charged for each branch.
        starts: the branches with which a batch begins, as a bit set.
    """
    total = longest = jnp.int32(0)
    # Unrolled over the branches: XLA makes one pass over many episodes of it.
    for branch, own in enumerate(tokens):
        begins = (starts[branch // WORD] >> (branch % WORD)) & 1 == 1
        total = total + jnp.where(begins, longest, 0)
        longest = jnp.where(begins, own, jnp.maximum(longest, own))
    return total + longest


@sequential_tokens.def_vmap
def _sequential_tokens_of_many(
    size: int,
    batched: list[bool],
    tokens: Int32[Array, "E W"],
    starts: UInt32[Array, "E words"],
) -> tuple[Int32[Array, " E"], bool]:
    """Most episodes have a single batch, and then those of all have."""
    tokens, starts = (
        part if own else jnp.broadcast_to(part, (size, *part.shape))
        for part, own in zip((tokens, starts), batched, strict=True)
    )
    several = jnp.sum(jax.lax.population_count(starts), axis=-1) > 1
    counted = jax.lax.cond(
        jnp.any(several),
        lambda: jax.vmap(sequential_tokens.fun)(tokens, starts),
        lambda: jax.lax.platform_dependent(  # see `votes.largest`
            tokens, cpu=lambda own: -jnp.min(-own, axis=-1), default=lambda own: jnp.max(own, axis=-1)
        ),
    )
    return counted, True


@checked
def probes(state: State) -> Int32[Array, ""]:
    """Counts the revealed probes, #Ω."""
    return jnp.sum(probed_depths(state), dtype=jnp.int32)


@checked
def intervals(state: State) -> Int32[Array, ""]:
    """Counts the intervals read, Σ l_i."""
    return jnp.sum(state.depth, dtype=jnp.int32)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Admissible:
    """Which atomic actions are admissible; ANSWER always is.

    Attributes:
        branch: BRANCH. Shape ().
        advance: CONTINUE(i). Shape (W,).
        probe: PROBE(i). Shape (W,).
        prune: PRUNE(i). Shape (W,).
    """

    branch: Bool[Array, ""]
    advance: Bool[Array, " W"]
    probe: Bool[Array, " W"]
    prune: Bool[Array, " W"]


@checked
def admissible(episode: Episode, state: State, budget: Scalar | None = None) -> Admissible:
    """Finds the admissible actions of a state (the table of the paper's section 2).

    Under a token budget, BRANCH and CONTINUE(i) are inadmissible where their cost would exceed it. PROBE
    costs no tokens.
    """
    branch = state.opened < state.depth.shape[0]
    going = state.active & ~finished(episode, state)
    if budget is not None:
        left = budget - tokens(episode, state)
        branch &= episode.interval <= left
        tail = jnp.maximum(episode.tokens - episode.interval * episode.length, 0)
        going &= jnp.where(state.depth == episode.length, tail, episode.interval) <= left
    return Admissible(
        branch=branch,
        advance=going,
        probe=state.active & (deepest_probed(state) < state.depth),
        prune=state.active,
    )


@checked
def budget_spent(episode: Episode, state: State, budget: Scalar | None) -> Bool[Array, ""]:
    """Decides whether the budget, and nothing else, forbids every BRANCH and CONTINUE."""
    if budget is None:
        return jnp.bool_(False)

    def can_go_on(budget: Scalar | None) -> Array:
        allowed = admissible(episode, state, budget)
        return allowed.branch | jnp.any(allowed.advance)

    return can_go_on(None) & ~can_go_on(budget)


# --- the primitives -------------------------------------------------------------------------------------


@checked
def open_branches(episode: Episode, state: State, count: Scalar, budget: Scalar | None = None) -> State:
    """Applies BRANCH ``count`` times: opens as many branches as width and budget allow, at depth 1."""
    width = state.depth.shape[0]
    room = width - state.opened
    if budget is not None:
        room = jnp.minimum(room, (budget - tokens(episode, state)) // episode.interval)
    count = jnp.clip(count, 0, jnp.maximum(room, 0)).astype(jnp.int32)
    fresh = _between(width, state.opened, state.opened + count)
    return dataclasses.replace(
        state,
        opened=state.opened + count,
        depth=jnp.where(fresh, 1, state.depth),
        active=state.active | fresh,
    )


@checked
def advance(
    episode: Episode,
    state: State,
    count: Int[Array, " W"],
    budget: Scalar | None = None,
    probe: bool = False,
) -> State:
    """Applies CONTINUE ``count[i]`` times to each active unfinished branch i; each stops at its end.

    Under a budget the branches are served in opening order, each until its next interval would exceed it.

    With ``probe`` (static) every depth that is passed is revealed, as CONTINUE then PROBE at each would.
    """
    chex.assert_equal_shape([count, state.depth])
    left = jnp.where(state.active, episode.length + 1 - state.depth, 0)
    count = jnp.clip(count, 0, jnp.maximum(left, 0)).astype(jnp.int32)
    if budget is not None:
        count = _affordable(episode, state, count, budget)
    depth = state.depth + count
    moved = dataclasses.replace(state, depth=depth)
    return _reveal_depths(moved, state.depth, depth) if probe else moved


@checked
def widen_and_deepen(
    episode: Episode,
    state: State,
    opening: Scalar | None,
    count: Int[Array, " W"],
    repeat: Scalar,
) -> tuple[State, Int32[Array, ""]]:
    """Applies BRANCH and CONTINUE by turns until a branch ends, without a budget.

    Each time BRANCH is applied ``opening`` times, and then CONTINUE ``count[i]`` times to each active
    unfinished branch i; everything that is passed is revealed. The time at which the first branch ends is the
    last, and the first time is if no branch can end.

    Returns:
        The state after it, and how many times it was applied.
    """
    chex.assert_equal_shape([count, state.depth])
    width, index = state.depth.shape[0], jnp.arange(state.depth.shape[0], dtype=jnp.int32)
    # Bounded by what they can do, so that nothing below overflows.
    count = jnp.clip(count, 0, episode.length + 1).astype(jnp.int32)
    times = jnp.clip(repeat, 1, _MANY)
    going, start = state.active & ~finished(episode, state), state.depth
    since: Array = jnp.int32(0)
    coming: Array = jnp.zeros(width, bool)
    if opening is not None:
        opening = jnp.clip(opening, 0, width).astype(jnp.int32)
        coming = _between(width, state.opened, jnp.minimum(state.opened + opening * times, width))
        # How many times were over when a branch is opened, and the depth at which it is read on from there.
        since = jnp.where(coming, quotient(index - state.opened, opening), 0)
        start = jnp.where(coming, 1, state.depth)
    ends = since + quotient(episode.length + count - start, count)  # rounded up
    never = jnp.iinfo(jnp.int32).max
    first = jnp.min(jnp.where((coming | going) & (count > 0), ends, never))
    times = jnp.where(first == never, 1, jnp.minimum(first, times)).astype(jnp.int32)
    fresh = coming & (since < times)
    upto = jnp.minimum(start + jnp.maximum(times - since, 0) * count, episode.length + 1)
    depth = jnp.where(fresh | going, upto, state.depth).astype(jnp.int32)
    moved = dataclasses.replace(state, depth=depth)
    if opening is not None:
        last = jnp.asarray(jnp.minimum(state.opened + opening * times, width), jnp.int32)
        moved = dataclasses.replace(moved, opened=last, active=state.active | fresh)
    return _reveal_depths(moved, state.depth, depth), times


@checked
def reveal(state: State, mask: Bool[Array, " W"]) -> State:
    """Applies PROBE at the current depth of active branches that were not revealed there yet."""
    chex.assert_equal_shape([mask, state.depth])
    fresh = mask & state.active & (deepest_probed(state) < state.depth)
    return _reveal_depths(state, jnp.where(fresh, state.depth - 1, state.depth), state.depth)


@checked
def prune(state: State, mask: Bool[Array, " W"]) -> State:
    """Applies PRUNE to active branches; their depth and revealed probes stay."""
    chex.assert_equal_shape([mask, state.active])
    return dataclasses.replace(state, active=state.active & ~mask)


@checked
def read_full(episode: Episode, state: State, count: Scalar, budget: Scalar | None = None) -> State:
    """Opens ``count`` fresh branches and runs each to its end in one call (full read).

    Only the final answer is revealed, and each costs T_i.
    """
    width = state.depth.shape[0]
    last = state.opened + jnp.clip(count, 0, width - state.opened).astype(jnp.int32)
    fresh = _between(width, state.opened, last)
    if budget is not None:
        spent = tokens(episode, state) + jnp.cumsum(jnp.where(fresh, episode.tokens, 0), dtype=jnp.int32)
        fresh &= spent <= budget
    end = jnp.where(fresh, episode.length + 1, 0)
    opened = dataclasses.replace(
        state,
        opened=state.opened + jnp.sum(fresh, dtype=jnp.int32),
        depth=jnp.where(fresh, end, state.depth),
        active=state.active | fresh,
        full=state.full | fresh,
    )
    return _reveal_depths(opened, jnp.maximum(end - 1, 0), end)


def _affordable(
    episode: Episode, state: State, count: Int32[Array, " W"], budget: Scalar
) -> Int32[Array, " W"]:
    """The part of ``count`` that fits in the budget when branches are served in opening order."""
    to_end = jnp.maximum(episode.length - state.depth, 0)
    tail = jnp.maximum(episode.tokens - episode.interval * episode.length, 0)

    def serve(left: jax.Array, branch: tuple[Array, Array, Array]) -> tuple[jax.Array, Array]:
        wanted, to_end, tail = branch
        steps = jnp.minimum(jnp.minimum(wanted, to_end), left // episode.interval)
        left -= steps * episode.interval
        ends = (wanted > steps) & (steps == to_end) & (tail <= left)
        return left - jnp.where(ends, tail, 0), steps + ends

    left = jnp.maximum(budget - tokens(episode, state), 0)
    return jax.lax.scan(serve, left, (count, to_end, tail))[1]


def quotient(numerator: Int32[Array, " W"], denominator: Int32[Array, "..."]) -> Int32[Array, " W"]:
    """Divides whole numbers and rounds down, by floats: integers take ten times as long on a CPU.

    Half a unit keeps quotients away from whole numbers, which would not be exact, as XLA may multiply by the
    reciprocal.

    Args:
        numerator: numbers below 2^20.
        denominator: numbers below 2^20; those below 1 count as 1.
    """
    divisor = jnp.maximum(denominator, 1).astype(jnp.float32)
    return jnp.floor((numerator.astype(jnp.float32) + 0.5) / divisor).astype(jnp.int32)


def _between(width: int, first: Scalar, last: Scalar) -> Bool[Array, " W"]:
    index = jnp.arange(width)
    return (index >= first) & (index < last)


def _reveal_depths(state: State, after: Int32[Array, " W"], upto: Int32[Array, " W"]) -> State:
    """Adds depths ``after < k <= upto`` of each branch to Ω; none of them may be in it."""
    fresh = upto > after
    return dataclasses.replace(
        state,
        shown=None if state.shown is None else jnp.where(fresh, upto, state.shown),
        probed=None if state.probed is None else state.probed + jnp.where(fresh, upto - after, 0),
        revealed=None
        if state.revealed is None
        else state.revealed | bits_between(state.revealed.shape[1], after[:, None], upto[:, None]),
    )


def _low_bits(count: Int32[Array, "..."]) -> UInt32[Array, "..."]:
    """A word with the lowest ``count`` bits set; none where negative, all from 32 on."""
    count = jnp.clip(count, 0, WORD)
    # A shift by the full width is undefined, hence the two halves.
    half = jnp.uint32(0xFFFFFFFF) >> jnp.minimum(WORD - count, WORD - 1).astype(jnp.uint32)
    return jnp.where(count > 0, half, jnp.uint32(0))
