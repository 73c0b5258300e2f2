"""One semantics: atomic primitives, round primitives and the released interface agree."""

import dataclasses
from collections import Counter
from itertools import groupby

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ledgers import question_of
from matrices import BRANCHES, QUESTIONS, WIDTH, as_dataset, matrices, orders, random_matrix

from autotts_jax.core import UNREVEALED, Action, NotKeptError, ReplayExecutor, ReplayPool, mdp, votes
from autotts_jax.core.scrambling import Revealed, scramble
from autotts_jax.core.stepping import apply_action, parts
from autotts_jax.envs import WidthDepth
from autotts_jax.policies.sealed.question import BranchError
from autotts_jax.replay import ProbeMatrix
from autotts_jax.replay.matrix import NONE

INDEX = np.arange(WIDTH)
BIG = 10**6

begin = jax.jit(mdp.begin)
open_branches = jax.jit(mdp.open_branches)
advance = jax.jit(mdp.advance, static_argnames="probe")
reveal = jax.jit(mdp.reveal)
prune = jax.jit(mdp.prune)
read_full = jax.jit(mdp.read_full)
admissible = jax.jit(mdp.admissible)
begin_pool = jax.jit(ReplayPool.begin, static_argnames=("labels", "revealed", "unprobed"))
view = jax.jit(ReplayPool.view, static_argnames="detached")
read_at_once = jax.jit(lambda pool, repeat: pool.step(Action(read=1, repeat=repeat)))


@jax.jit
def act(pool, action):
    return pool.step(WidthDepth(WIDTH, fused=True).decode(pool.view(), action)[0])


@jax.jit
def ledger(matrix, episode, state):
    return {
        "answers": mdp.answers(matrix, episode, state),
        "branch_tokens": mdp.branch_tokens(episode, state),
        "tokens": mdp.tokens(episode, state),
        "intervals": mdp.intervals(state),
        "probes": mdp.probes(state),
        "finished": mdp.finished(episode, state),
    }


@jax.jit
def face(pool):
    """What a view shows of its episode, the majority's answer, and the vote of the finals, fast and slow."""
    view = pool.view()
    return {
        "figures": {
            "answers": view.answer_keys,
            "branch_tokens": view.branch_tokens,
            "tokens": view.tokens,
            "intervals": view.intervals,
            "probes": view.probes,
            "finished": view.finished,
        },
        "answer": view.answer_key(view.vote(view.active).leader),
        "finals": [looked.vote_finals(view.active) for looked in (view, pool.view(detached=True))],
    }


def atomic(episode, state, action, branch, budget):
    """One atomic action of the decision process, through the primitives."""
    here = np.equal(INDEX, branch)
    if action == "branch":
        return open_branches(episode, state, 1, budget)
    if action == "continue":
        return advance(episode, state, here.astype(np.int32), budget)
    if action == "probe":
        return reveal(state, here)
    if action == "prune":
        return prune(state, here)
    return read_full(episode, state, 1, budget)


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (one, other)), strict=True))


ATOMIC = st.tuples(st.sampled_from(["branch", "continue", "probe", "prune", "full"]), st.integers(-1, WIDTH))
# What the released interface can do, and PRUNE, which its programs express by dropping a branch.
FUSED = st.tuples(
    st.sampled_from(["new", "more", "more", "more", "full", "prune"]), st.integers(0, WIDTH - 1)
)
BUDGETS = st.just(BIG) | st.integers(0, 400)


@given(st.integers(0, 96), st.integers(0, 96))
def test_a_set_of_branches_holds_those_from_the_first_to_the_last(first, last):
    words = np.asarray(mdp.bits_between(3, first, last)).tolist()
    assert [branch for branch in range(96) if words[branch // 32] >> branch % 32 & 1] == [*range(first, last)]


@given(matrices, orders, st.integers(0, QUESTIONS - 1), st.lists(FUSED, max_size=60), BUDGETS)
def test_all_faces_end_in_the_same_state_cost_and_answer(matrix, order, question, actions, budget):
    episode, start = begin(matrix, question, order)
    state = by_atomic_primitives(episode, start, actions, budget)
    assert same(state, by_round_primitives(episode, start, actions, budget))
    expected = ledger(matrix, episode, state)
    answer = votes.vote(expected["answers"], state.active).winner(expected["answers"])

    empty = begin_pool(matrix, question, order, budget)
    lean = begin_pool(matrix, question, order, budget, labels=False, revealed=False, unprobed=False)
    lean = by_operations(lean, actions)
    assert same(dataclasses.replace(state, shown=None, probed=None, revealed=None), lean.state)
    whole = by_operations(empty, actions), by_environment(empty, actions)
    assert all(same(state, pool.state) for pool in whole)
    for pool in (*whole, lean):
        shown = face(pool)
        assert same(shown["figures"], {name: expected[name] for name in shown["figures"]})
        assert int(shown["answer"]) == int(answer)
        finals = votes.vote(expected["answers"], state.active & expected["finished"])
        assert all(same(held, finals) for held in shown["finals"])

    words = as_dataset(matrix).questions[question]
    released, books, latest, dropped = by_program(matrix, question, order, actions, budget)
    opened = released.opened
    assert int(state.opened) == opened
    assert state.depth[:opened].tolist() == books.depth
    assert expected["branch_tokens"][:opened].tolist() == books.branch_tokens
    assert [words.answer(i) for i in expected["answers"][:opened].tolist()] == latest
    assert np.flatnonzero(~np.asarray(state.active[:opened])).tolist() == sorted(dropped)
    assert int(expected["probes"]) == books.probes
    assert int(expected["intervals"]) == sum(books.depth)
    assert int(expected["tokens"]) == released.get_seq_and_total_tokens()[1]
    voted = Counter(text for branch, text in enumerate(latest) if branch not in dropped).most_common(1)
    assert words.answer(int(answer)) == (voted[0][0] if voted else None)


intervals_a_round = st.integers(-1, 3) | st.integers(4, 45) | st.just(2**31 - 1)
counts = st.lists(intervals_a_round, min_size=WIDTH, max_size=WIDTH).map(lambda n: np.array(n, np.int32))
small = st.integers(-2, 4) | st.just(2**31 - 1)


@given(matrices, orders, st.lists(FUSED, max_size=8), counts, st.integers(0, 50), small)
def test_an_action_repeated_at_once_is_carried_out_one_by_one(matrix, order, actions, count, repeat, opening):
    for keep in ({"revealed": True}, {"revealed": False, "unprobed": False}):
        one, at_once = (
            by_operations(begin_pool(matrix, 0, order, labels=False, at_once=most, **keep), actions)
            for most in (None, BIG)
        )
        action = Action(open=opening, advance=count, repeat=repeat)
        can_end = np.asarray(one.live) | ((opening > 0) & (int(one.opened) <= INDEX))
        can_end &= int(one.opened) + max(opening, 0) * max(repeat, 1) > INDEX
        last = max(repeat, 1) if np.any(can_end & (count > 0)) else 1
        at_once = carry_out(at_once, action)
        for number in range(1, last + 1):  # noqa: B007  # read after the loop
            ended = np.sum(one.finished)
            one = carry_out(one, action)
            assert int(one.skipped) == 0
            if np.sum(one.finished) > ended:
                break
        assert same(one.state, at_once.state)
        assert int(at_once.skipped) == number - 1
        assert int(one.sequential_tokens) == int(at_once.sequential_tokens)


@jax.jit
def _carry_out(pool, count, opening, repeat):
    return pool.step(Action(open=opening, advance=count, repeat=repeat))


def carry_out(pool, action):
    return _carry_out(pool, action.advance, action.open, action.repeat)


@given(
    matrices,
    orders,
    st.lists(FUSED, max_size=8),
    st.integers(-1, WIDTH + 2),
    st.none() | BUDGETS,
    st.sampled_from([1, 3, BIG]),
)
def test_branches_read_at_once_are_read_one_by_one(matrix, order, actions, count, budget, most):
    one, several = (
        by_operations(begin_pool(matrix, 0, order, budget, labels=False, at_once=at_once), actions)
        for at_once in (None, most)
    )
    before = several
    several = read_at_once(several, count)
    read = int(several.opened - before.opened)
    assert int(several.skipped) == max(read, 1) - 1
    for _ in range(max(read, 1)):
        one = read_at_once(one, count)
    assert same(one.state, several.state)
    assert int(one.sequential_tokens) == int(several.sequential_tokens)
    if budget is None:
        assert read == min(max(count, 1), most, WIDTH - int(before.opened))
    else:
        assert read <= 1


def test_branches_that_are_opened_when_the_last_one_is_given_up_are_waited_for():
    step = jax.jit(lambda pool, given_up, opening: pool.step(Action(prune=given_up, open=opening)))
    first = step(begin_pool(random_matrix(0), 0, INDEX.astype(np.int32)), INDEX < 0, 1)
    pool = first
    for branch in range(3):
        pool = step(pool, branch == INDEX, 1)
    assert int(pool.sequential_tokens) == int(pool.tokens)
    beside = step(first, INDEX < 0, 3)
    assert int(beside.sequential_tokens) == int(beside.branch_tokens[0])


def test_what_another_round_would_give_up_is_not_opened_in_this_one():
    start = begin_pool(random_matrix(0), 0, INDEX.astype(np.int32), labels=False, at_once=BIG)
    for action in (Action(open=1, advance=np.ones(WIDTH, np.int32), repeat=3), Action(read=1, repeat=3)):
        step = jax.jit(lambda pool, given_up, action=action: pool.step(action._replace(prune=given_up)))
        assert int(step(start, INDEX % 2 == 1).skipped) == 0
        assert int(step(start, INDEX < 0).skipped) > 0


@pytest.mark.parametrize("kept", [{}, {"budget": BIG, "labels": False}, {"at_once": 1, "labels": False}])
def test_where_rounds_may_differ_or_are_looked_at_one_is_played(kept):
    pool = begin_pool(random_matrix(0), 0, INDEX.astype(np.int32), **{"at_once": BIG} | kept)
    pool = by_operations(pool, [("new", 0)])
    once = Action(open=np.int32(0), advance=np.ones(WIDTH, np.int32))
    after = carry_out(pool, once._replace(repeat=9))
    assert int(after.skipped) == 0
    assert same(after.state, carry_out(pool, once._replace(repeat=1)).state)


def test_actions_take_numbers_of_numpy():
    pool = begin_pool(random_matrix(0), 0, INDEX.astype(np.int32), labels=False, at_once=BIG)
    one = np.int64(1)
    pool = pool.step(Action(open=one, advance=np.ones(WIDTH, np.int32), repeat=np.int8(1)))
    assert int(pool.step(Action(read=one)).opened) == 2


def test_parts_of_an_action_come_in_their_order():
    pool = begin_pool(random_matrix(0), 0, INDEX.astype(np.int32))
    pool = apply_action(pool, Action(open=2))
    whole = Action(prune=INDEX == 0, open=1, advance=np.array([9, 1, 1, 0]), read=1)
    names, steps = [], pool
    for name, part in parts(whole, WIDTH):
        names.append(name)
        steps = apply_action(steps, part)
    assert names == ["prune", "open", "advance", "read"]
    assert same(steps.state, apply_action(pool, whole).state)
    unread = whole._replace(probe=INDEX == 1)
    assert [name for name, _ in parts(unread, WIDTH)] == [*names, "probe"]
    assert int(apply_action(pool, unread).probes) == 2 + 2  # the read's final, and the one that is asked for


def test_what_is_not_kept_is_asked_for():
    pool = begin_pool(
        random_matrix(0), 0, INDEX.astype(np.int32), labels=False, revealed=False, unprobed=False
    )
    for name, ask in {
        "labels": lambda: pool.view().labels,
        "revealed": lambda: pool.view().revealed_keys,
        "unprobed": lambda: pool.step(Action(probe=INDEX == 0)),
    }.items():
        with pytest.raises(NotKeptError) as missing:
            ask()
        assert missing.value.args == (name,)


@given(st.integers(0, 2**32 - 1), orders, st.lists(FUSED, max_size=30), st.integers(0, 2**32 - 1))
def test_a_view_holds_what_is_revealed_and_nothing_else(seed, order, actions, noise):
    """Whatever is hidden may change: no leaf of the view does."""
    matrix = random_matrix(seed, abstain=0.2)
    signal = np.random.default_rng(seed).random(matrix.answers.shape).astype(np.float16)
    matrix = dataclasses.replace(matrix, signals={"sure": signal})
    pool = by_operations(begin_pool(matrix, 0, order), actions)
    seen = view(pool, detached=True)
    assert same(pool.live, seen.live)
    other, ids = scramble(matrix, 0, order, Revealed.of(seen), np.random.default_rng(noise))
    hidden = by_operations(begin_pool(other, 0, order), actions)
    again = view(hidden, detached=True)
    named = np.append(ids, [UNREVEALED, NONE])  # -2 and -1 name themselves
    renamed = dataclasses.replace(
        seen,
        answer_keys=named[np.asarray(seen.answer_keys)],
        _revealed_keys=named[np.asarray(seen.revealed_keys)],
    )
    chex.assert_trees_all_equal(renamed, again)


def test_rounds_are_counted_exactly_where_all_branches_are_read_alike():
    """XLA multiplies by the reciprocal of what all are divided by, and 21 / 7 is then more than 3."""
    numbers, divisors = np.arange(4096, dtype=np.int32), np.arange(1, 200, dtype=np.int32)
    quotients = jax.jit(jax.vmap(mdp.quotient, (None, 0)))(numbers, divisors)
    np.testing.assert_array_equal(quotients, numbers // divisors[:, None])
    for divisor in (7, 41, 47):
        alike = jax.jit(lambda given, by=divisor: mdp.quotient(given, jnp.int32(by)))(numbers)
        np.testing.assert_array_equal(alike, numbers // divisor)


def by_atomic_primitives(episode, state, actions, budget):
    for action, branch in actions:
        if action == "new":
            opened = atomic(episode, state, "branch", branch, budget)
            fresh = int(opened.opened) - 1 if int(opened.opened) > int(state.opened) else -1
            state = atomic(episode, opened, "probe", fresh, budget)
        elif action == "more":
            moved = atomic(episode, state, "continue", branch, budget)
            grown = int(moved.depth[branch]) > int(state.depth[branch])
            state = atomic(episode, moved, "probe", branch if grown else -1, budget)
        else:
            state = atomic(episode, state, action, branch, budget)
    return state


def by_round_primitives(episode, state, actions, budget):
    for kind, branches in in_rounds(actions):
        if kind == "new":
            opened = open_branches(episode, state, len(branches), budget)
            state = reveal(opened, np.asarray(opened.depth) > np.asarray(state.depth))
        elif kind == "more":
            state = advance(episode, state, intervals(branches), budget, probe=True)
        elif kind == "full":
            state = read_full(episode, state, len(branches), budget)
        else:
            state = prune(state, np.isin(INDEX, branches))
    return state


def by_operations(pool, actions):
    """Through parts of actions, as the stepping driver has them carried out."""
    executor = ReplayExecutor(pool, str)
    for kind, branches in in_rounds(actions):
        part = {
            "new": Action(open=len(branches)),
            "more": Action(advance=intervals(branches)),
            "full": Action(read=len(branches)),
            "prune": Action(prune=np.isin(INDEX, branches)),
        }[kind]
        executor.carry_out(kind, part)
        executor.settle()
    return executor.pool


def by_environment(pool, actions):
    """Through the actions of an environment, which has none for a full read."""
    for kind, branch in actions:
        if kind == "full":
            pool = apply_action(pool, Action(read=1))
        else:
            pool = act(pool, {"new": 0, "more": 2 + branch, "prune": 2 + WIDTH + branch}[kind])
    return pool


def by_program(matrix, question, order, actions, budget):
    """Through what a released program is given; also its latest answers, and the branches it gave up."""
    released, books = question_of(as_dataset(matrix), order, question=question, budget=budget)
    latest, dropped = [], set()
    for action, branch in actions:
        try:
            if action == "new":
                latest.append(released.probe_new()[0])
            elif action == "full":
                latest.append(released.get_new_branch_final_answer())
            elif action == "prune":
                dropped |= {branch} if branch < released.opened else set()
            elif branch not in dropped:
                latest[branch] = released.probe_more(branch)[0]
        except IndexError:  # a BranchError, or a branch of `latest` that was never opened
            pass
    return released, books, latest, dropped


def intervals(branches):
    """How often each branch occurs."""
    return np.bincount(branches, minlength=WIDTH).astype(np.int32)


def in_rounds(actions):
    """Joins neighbouring actions of a kind into rounds, while they come in the order that a round serves."""
    for kind, group in groupby(actions, key=lambda action: action[0]):
        branches = [branch for _, branch in group]
        cut = [0] + [i for i in range(1, len(branches)) if kind == "more" and branches[i] < branches[i - 1]]
        for first, last in zip(cut, [*cut[1:], len(branches)], strict=True):
            yield kind, branches[first:last]


@given(matrices, orders, st.lists(ATOMIC, max_size=50), BUDGETS)
def test_masked_actions_change_nothing_and_cost_never_falls(matrix, order, actions, budget):
    episode, state = begin(matrix, 0, order)
    for action, branch in actions:
        allowed = admissible(episode, state, budget)
        known = {"branch": allowed.branch, "continue": allowed.advance, "probe": allowed.probe}
        known["prune"] = allowed.prune
        after = atomic(episode, state, action, branch, budget)
        before, now = ledger(matrix, episode, state), ledger(matrix, episode, after)
        if action != "full":
            mask = np.asarray(known[action])
            allow = bool(mask) if mask.ndim == 0 else 0 <= branch < WIDTH and bool(mask[branch])
            assert same(state, after) != allow
        for figure in ("tokens", "intervals", "probes"):
            assert now[figure] >= before[figure]
        assert int(now["tokens"]) <= budget
        assert int(now["probes"]) == int(np.bitwise_count(np.asarray(after.revealed)).sum())
        state = after


def test_probe_reveals_the_current_depth_alone():
    matrix = random_matrix(1)
    row = int(np.argmax(matrix.lengths[0]))
    order = np.roll(np.arange(BRANCHES), -row)[:WIDTH].astype(np.int32)
    episode, state = begin(matrix, 0, order)
    state = open_branches(episode, state, 1)
    state = advance(episode, state, np.array([3, 0, 0, 0], np.int32))
    assert int(mdp.probes(state)) == 0
    assert mdp.answers(matrix, episode, state).tolist() == [NONE] * WIDTH
    state = reveal(state, INDEX == 0)
    assert int(mdp.probes(state)) == 1
    assert int(state.revealed[0, 0]) == 0b1000
    assert int(mdp.answers(matrix, episode, state)[0]) == matrix.answers[0, row, 3]
    assert same(state, reveal(state, INDEX == 0))
    # All the way, past the first word of the bit set; the last depth shows the final answer.
    state = advance(episode, state, np.full(WIDTH, 99, np.int32), probe=True)
    length = int(matrix.lengths[0, row])
    assert int(mdp.probes(state)) == length + 1 - 3
    assert int(mdp.answers(matrix, episode, state)[0]) == matrix.answers[0, row, length]
    assert bool(mdp.finished(episode, state)[0])


def test_a_signal_is_that_of_the_deepest_revealed_depth():
    matrix, order = random_matrix(4), np.roll(INDEX, 1).astype(np.int32)
    places = np.arange(matrix.answers.size, dtype=np.float16).reshape(matrix.answers.shape)
    pool = begin_pool(dataclasses.replace(matrix, signals={"place": places}), 1, order)
    for depths, actions in (
        ([0, 0, 0, 0], []),
        ([1, 1, 0, 0], [("new", 0), ("new", 0)]),
        ([1, 2, 0, 0], [("more", 1)]),
    ):
        pool = by_operations(pool, actions)
        expected = [
            places[1, b, depth - 1] if depth else np.nan for b, depth in zip(order, depths, strict=True)
        ]
        np.testing.assert_array_equal(view(pool, detached=True).signal("place"), expected)


def test_a_full_read_costs_its_tokens_and_steps_cost_whole_intervals():
    matrix = random_matrix(3)
    matrix.tokens[:] = matrix.lengths * matrix.interval[:, None] - 1
    matrix.tokens[:, 0] += 5
    order = INDEX.astype(np.int32)
    episode, state = begin(matrix, 0, order)
    read = read_full(episode, state, WIDTH)
    assert mdp.branch_tokens(episode, read).tolist() == matrix.tokens[0, :WIDTH].tolist()
    assert int(mdp.probes(read)) == WIDTH
    steps = open_branches(episode, state, WIDTH)
    steps = advance(episode, steps, np.full(WIDTH, 99, np.int32))
    whole = matrix.lengths[0, :WIDTH] * matrix.interval[0]
    whole[0] = matrix.tokens[0, 0]
    assert mdp.branch_tokens(episode, steps).tolist() == whole.tolist()


def test_the_example_of_the_page_of_semantics_costs_what_it_says():
    matrix = ProbeMatrix(
        answers=np.array([[[0, 1, 1, 1], [0, 0, 1, -1]]], np.int16),
        lengths=np.array([[3, 2]], np.int32),
        tokens=np.array([[1800, 900]], np.int32),
        gold=np.array([1], np.int16),
        interval=np.array([500], np.int32),
        cell=np.array([0], np.int32),
        vocabulary=2,
    )
    episode, start = mdp.begin(matrix, 0, np.array([0, 1]))
    state = mdp.open_branches(episode, start, 2)
    for tokens in (1000, 2000, 2500, 2800):
        assert mdp.tokens(episode, state) == tokens
        state = mdp.advance(episode, state, np.array([1, 1]))
    assert mdp.tokens(episode, mdp.read_full(episode, start, 2)) == 2700

    # A at depth 3 and B at depth 2, with 100 tokens left.
    state = mdp.advance(episode, mdp.open_branches(episode, start, 2), np.array([2, 1]))
    assert mdp.admissible(episode, state, budget=2600).advance.tolist() == [False, True]


def test_vmap_equals_a_loop_and_compiles_once():
    matrix = random_matrix(5)
    rng = np.random.default_rng(0)
    batch = 16
    order = np.stack([rng.permutation(BRANCHES)[:WIDTH] for _ in range(batch)]).astype(np.int32)
    question = rng.integers(0, QUESTIONS, batch).astype(np.int32)
    counts = rng.integers(0, 6, (batch, 3, WIDTH)).astype(np.int32)

    def play(matrix, question, order, counts):
        episode, state = mdp.begin(matrix, question, order)
        state = mdp.open_branches(episode, state, 3)
        for count in counts:
            state = mdp.advance(episode, state, count, probe=True)
            state = mdp.prune(state, count > 4)
        return ledger(matrix, episode, mdp.read_full(episode, state, 1))

    chex.clear_trace_counter()
    compiled = jax.jit(jax.vmap(chex.assert_max_traces(play, n=1), in_axes=(None, 0, 0, 0)))
    together = compiled(matrix, question, order, counts)
    compiled(random_matrix(6), question, order, counts)
    single = jax.jit(play)
    alone = [single(matrix, q, o, c) for q, o, c in zip(question, order, counts, strict=True)]
    chex.assert_trees_all_equal(together, jax.tree.map(lambda *leaves: jnp.stack(leaves), *alone))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda e, s: mdp.advance(e, s, np.zeros(WIDTH + 1, np.int32)),
        lambda _, s: mdp.reveal(s, np.ones(1, bool)),
        lambda e, s: mdp.advance(e, s, jnp.zeros(WIDTH)),
        lambda _, s: mdp.prune(s, jnp.zeros(WIDTH, jnp.int32)),
        lambda e, s: mdp.open_branches(e, s, 1.5),
    ],
)
def test_wrong_shapes_and_types_are_refused(wrong):
    episode, state = begin(random_matrix(0), 0, INDEX.astype(np.int32))
    with pytest.raises((TypeError, AssertionError), match=r"Type-check error|assert_equal_shape"):
        wrong(episode, state)


def test_a_full_read_beyond_the_budget_is_left_out():
    matrix = random_matrix(2)
    episode, state = begin(matrix, 0, INDEX.astype(np.int32))
    budget = int(matrix.tokens[0, 0] + matrix.tokens[0, 1])
    assert int(read_full(episode, state, WIDTH, budget).opened) == 2
    assert int(read_full(episode, state, WIDTH, budget - 1).opened) == 1


@pytest.mark.parametrize("interval", [1, 5])
def test_every_budget_is_spent_as_by_a_loop_over_intervals(interval):
    rng = np.random.default_rng(interval)
    lengths = rng.integers(1, 5, (QUESTIONS, BRANCHES)).astype(np.int32)
    tokens = np.maximum(lengths * interval + rng.integers(-3, 4, lengths.shape), 1).astype(np.int32)
    deltas = np.full(QUESTIONS, interval, np.int32)
    matrix = dataclasses.replace(random_matrix(0), interval=deltas, lengths=lengths, tokens=tokens)
    count, order = np.array([2, 9, 3, 0], np.int32), INDEX.astype(np.int32)
    start = jax.jit(
        lambda budget: ReplayPool.begin(matrix, 0, order, budget, labels=False).step(Action(open=3))
    )

    def price(branch, depth):
        """Tokens of the next interval of a branch."""
        length = int(lengths[0, branch])
        if depth > length:
            return np.inf
        return interval if depth < length else max(int(tokens[0, branch]) - interval * length, 0)

    for budget in range(14 * interval + 10):
        pool = apply_action(start(budget), Action(advance=count))
        opened = min(3, budget // interval)
        depth, left = [1] * opened, budget - opened * interval
        for branch in range(opened):
            for _ in range(count[branch]):
                if (next_one := price(branch, depth[branch])) > left:
                    break
                depth[branch] += 1
                left -= next_one
        assert pool.depth.tolist() == depth + [0] * (WIDTH - opened)
        assert int(pool.tokens) == budget - left
        shown = view(pool, detached=True)
        allowed = shown.admissible
        going = [price(branch, reached) <= left for branch, reached in enumerate(depth)]
        assert allowed.advance.tolist() == going + [False] * (WIDTH - opened)
        assert bool(allowed.branch) == (interval <= left)
        assert int(apply_action(pool, Action(open=WIDTH)).opened) == opened + (interval <= left)
        assert bool(shown.budget_spent) == (interval > left and not any(going))


@given(st.integers(0, 2**32 - 1), orders, st.lists(FUSED, min_size=10, max_size=30))
def test_labels_count_the_answers_in_the_order_of_their_reveal(seed, order, actions):
    matrix = random_matrix(seed, abstain=0.2)
    pool = begin_pool(matrix, 0, order)
    number = {}
    for kind, branches in in_rounds([("new", 0), ("new", 0), *actions]):
        before = np.asarray(pool.depth)
        # CONTINUE is doubled, so that operations pass depths.
        times = 2 if kind == "more" else 1
        pool = by_operations(pool, [(kind, branch) for branch in branches for _ in range(times)])
        for i, (old, new) in enumerate(zip(before, np.asarray(pool.depth), strict=True)):
            revealed = matrix.answers[0, order[i]][old:new]
            for found in revealed[-1:] if kind == "full" else revealed:
                if found != NONE:
                    number.setdefault(int(found), len(number))
    keys, labels = (
        np.asarray(pool.answer_keys).tolist(),
        np.asarray(view(pool, detached=True).labels).tolist(),
    )
    assert labels == [number.get(key, NONE) for key in keys]


def test_the_released_interface_refuses_what_is_inadmissible():
    question, _ = question_of(as_dataset(random_matrix(2)), [0])
    question.get_new_branch_final_answer()
    with pytest.raises(BranchError):
        question.probe_new()
