"""Decisions: one distribution over all that is admissible, whatever the numbering of branches."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matrices import WIDTH, random_matrix

from autotts_jax.core import pool as branch_pool
from autotts_jax.policies.neural.actions import CHOICES, KINDS, Decision, Heads, Options
from autotts_jax.policies.neural.actions import OPENINGS as COUNTS
from autotts_jax.policies.neural.network import BRANCH_INPUTS, GLOBAL_INPUTS, Outputs, View
from autotts_jax.policies.neural.policy import apply_network, initial_parameters

pytestmark = pytest.mark.usefixtures("compile_fast")

OPENINGS, BRANCHES = len(COUNTS), 2
ACTIONS = 2 + 3 * BRANCHES

seeds = st.integers(0, 2**32 - 1)
network = jax.jit(apply_network)


class Kind:
    """A kind of decisions, compiled."""

    name: str

    def __init__(self):
        kind = self.kind = KINDS[self.name]
        self.mask = jax.jit(kind.mask)
        self.log_prob = jax.jit(kind.log_prob)
        self.log_probs = jax.jit(jax.vmap(kind.log_prob, (None, 0)))
        self.entropy = jax.jit(kind.entropy)
        self.samples = jax.jit(jax.vmap(kind.sample, (0, None)))

    @functools.cached_property
    def parameters(self):
        return jax.tree.map(lambda leaf: 3 * leaf, initial_parameters(4, jax.random.key(0), self.name))


class OfRounds(Kind):
    """Two branches and what can be decided in a round."""

    name = "rounds"

    def heads(self, rng, scale: float) -> Heads:
        answer, opening, choice = (
            scale * rng.normal(size=shape) for shape in ((), OPENINGS, (CHOICES, BRANCHES))
        )
        return Heads(*map(jnp.float32, (answer, opening, choice)))

    def options(self, rng, answer: bool, go_on: bool) -> Options:
        """At least one option for each part."""
        opening = rng.random(OPENINGS) < 0.6
        choice = rng.random((CHOICES, BRANCHES)) < 0.6
        opening[rng.integers(OPENINGS)] = True
        choice[rng.integers(CHOICES, size=BRANCHES), np.arange(BRANCHES)] = True
        return Options(*map(jnp.asarray, (answer, go_on, opening, choice)))

    def every(self) -> Decision:
        """Every decision once; that which answers comes first, its other parts being idle."""
        parts = itertools.product(range(OPENINGS), *[range(CHOICES)] * BRANCHES)
        rows = np.array([(1, *[0] * (1 + BRANCHES)), *((0, *row) for row in parts)])
        return Decision(jnp.asarray(rows[:, 0] == 1), *map(jnp.int32, (rows[:, 1], rows[:, 2:])))

    def admissible(self, allowed: Options) -> np.ndarray:
        """Which of them are."""
        allowed, every = jax.tree.map(np.asarray, (allowed, self.every()))
        opens = allowed.opening[every.opening]
        does = allowed.choice[every.choice, np.arange(BRANCHES)].all(axis=1)
        return np.where(every.answer, allowed.answer, allowed.go_on & opens & does)

    def answers(self, decided: Decision) -> jax.Array:
        return decided.answer

    def of_branches(self, heads: Heads) -> jax.Array:
        return heads.choice

    def moved(self, heads: Heads, order: np.ndarray) -> Heads:
        """With the branches in another order."""
        return heads._replace(choice=heads.choice[:, order])

    def decided(self, rng, order: np.ndarray) -> tuple[Decision, Decision]:
        """A decision, and the same after that."""
        decided = Decision(jnp.bool_(False), jnp.int32(1), jnp.int32(rng.integers(CHOICES, size=len(order))))
        return decided, decided._replace(choice=decided.choice[order])


class OfAtomic(Kind):
    """The same by atomic actions."""

    name = "atomic"

    def heads(self, rng, scale: float) -> jax.Array:
        return jnp.float32(scale * rng.normal(size=ACTIONS))

    def options(self, rng, answer: bool, go_on: bool) -> jax.Array:
        allowed = (rng.random(ACTIONS) < 0.6) & go_on
        allowed[rng.integers(2, ACTIONS)] = go_on
        allowed[1] = answer
        return jnp.asarray(allowed)

    def every(self) -> jax.Array:
        return jnp.arange(ACTIONS)

    def admissible(self, allowed: jax.Array) -> np.ndarray:
        return np.asarray(allowed)

    def answers(self, decided: jax.Array) -> jax.Array:
        return decided == 1

    def of_branches(self, heads: jax.Array) -> jax.Array:
        return heads[2:].reshape(3, -1)

    def moved(self, heads: jax.Array, order: np.ndarray) -> jax.Array:
        return jnp.concatenate([heads[:2], self.of_branches(heads)[:, order].reshape(-1)])

    def decided(self, rng, order: np.ndarray) -> tuple[jax.Array, jax.Array]:
        kind, branch = rng.integers(3), rng.integers(len(order))
        first = 2 + kind * len(order)
        return jnp.int32(first + order[branch]), jnp.int32(first + branch)


ROUNDS, ATOMIC = OfRounds(), OfAtomic()
both_kinds = pytest.mark.parametrize("case", [ROUNDS, ATOMIC], ids=("rounds", "atomic"))
ENDS = ((True, True), (True, False), (False, True))
"""Whether it can answer and go on."""


@both_kinds
@settings(max_examples=15, deadline=None)
@given(seeds, st.sampled_from([0.0, 1.0, 8.0]))
def test_probabilities_of_all_decisions(case, seed, scale):
    rng = np.random.default_rng(seed)
    allowed = case.options(rng, *ENDS[rng.integers(3)])
    heads = case.mask(case.heads(rng, scale), allowed)
    log = np.asarray(case.log_probs(heads, case.every()), np.float64)
    p = np.exp(log)
    possible = case.admissible(allowed)
    assert np.all(p[~possible] == 0)
    assert np.all(np.isfinite(log[possible]))
    assert p.sum() == pytest.approx(1, abs=1e-5)
    assert case.entropy(heads) == pytest.approx(-np.sum(p[possible] * log[possible]), abs=1e-4, rel=1e-4)


def test_probability_of_a_decision_by_hand():
    choice = np.log([[0.1, 0.5], [0.2, 0.5], [0.3, 1.0], [0.4, 1.0]])
    allowed = Options(True, True, np.arange(OPENINGS) < 2, np.array([[1, 1], [1, 1], [1, 0], [1, 0]], bool))
    heads = Heads(np.log(0.2 / 0.8), np.r_[np.log([0.25, 0.75]), np.ones(OPENINGS - 2)], choice)
    heads = ROUNDS.mask(jax.tree.map(jnp.float32, heads), allowed)

    def p(answer, opening, *choice):
        decided = Decision(jnp.bool_(answer), jnp.int32(opening), jnp.int32(choice))
        return np.exp(ROUNDS.log_prob(heads, decided))

    assert p(True, 0, 0, 0) == pytest.approx(0.2)
    assert p(True, 1, 3, 1) == pytest.approx(0.2)  # nothing else is done
    assert p(False, 1, 2, 0) == pytest.approx(0.8 * 0.75 * 0.3 * 0.5)
    assert p(False, 1, 2, 2) == 0
    assert p(False, 2, 2, 0) == 0


def test_probability_of_an_atomic_action_by_hand():
    """Of BRANCH, ANSWER, CONTINUE(1) and PRUNE(0), all else being inadmissible."""
    outputs = Outputs(
        jnp.log(jnp.array([1.0, 2.0])), jnp.log(jnp.array([[9.0, 3.0], [9.0, 9.0], [4.0, 9.0]]))
    )
    heads = ATOMIC.mask(ATOMIC.kind.heads(outputs), jnp.array([1, 1, 0, 1, 0, 0, 1, 0], bool))
    p = np.exp(ATOMIC.log_probs(heads, jnp.arange(ACTIONS)))
    np.testing.assert_allclose(p, [0.1, 0.2, 0, 0.3, 0, 0, 0.4, 0], rtol=1e-5)
    assert ATOMIC.kind.greedy(heads) == 6


@both_kinds
@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_samples_follow_the_probabilities(case, scale):
    rng = np.random.default_rng(1)
    heads = case.mask(case.heads(rng, scale), case.options(rng, answer=True, go_on=True))
    drawn = case.samples(jax.random.split(jax.random.key(0), 4000), heads)
    log = np.asarray(case.log_probs(heads, drawn))
    # Nothing impossible, and on average the surprise that the entropy says.
    assert log.min() > -100
    assert -log.mean() == pytest.approx(
        float(case.entropy(heads)), abs=4 * log.std() / np.sqrt(len(log)) + 1e-4
    )
    share, every = np.mean(case.answers(drawn)), case.every()
    p = float(jnp.sum(jnp.exp(case.log_probs(heads, every)), where=case.answers(every)))
    assert share == pytest.approx(p, abs=4 * np.sqrt(p * (1 - p) / len(log)))


def test_the_greedy_decision_is_the_likeliest_of_each_part():
    rng = np.random.default_rng(2)
    for _ in range(5):
        heads = ROUNDS.mask(ROUNDS.heads(rng, 2.0), ROUNDS.options(rng, answer=True, go_on=True))
        greedy, every = ROUNDS.kind.greedy(heads), ROUNDS.every()
        going_on = 1 + np.asarray(ROUNDS.log_probs(heads, every))[1:].argmax()
        assert bool(greedy.answer) == (float(heads.answer) > 0)
        assert int(greedy.opening) == every.opening[going_on]
        assert greedy.choice.tolist() == every.choice[going_on].tolist()


def test_the_greedy_action_is_the_likeliest_of_all():
    rng = np.random.default_rng(2)
    seen = set()
    for _ in range(20):
        heads = ATOMIC.mask(ATOMIC.heads(rng, 2.0), ATOMIC.options(rng, answer=True, go_on=True))
        greedy = int(ATOMIC.kind.greedy(heads))
        assert greedy == np.argmax(ATOMIC.log_probs(heads, ATOMIC.every()))
        seen.add(greedy)
    assert len(seen) > 3


@both_kinds
@pytest.mark.parametrize("answer", [False, True])
def test_gradients_are_finite_where_parts_are_impossible(case, answer):
    """Beside certain and impossible parts, and far from anything likely."""
    rng = np.random.default_rng(3)
    allowed = case.options(rng, answer=answer, go_on=not answer)
    heads = case.heads(rng, 50.0)

    def figures(heads):
        masked = case.kind.mask(heads, allowed)
        return case.kind.entropy(masked) + case.kind.log_prob(masked, case.kind.greedy(masked))

    gradient = jax.jit(jax.grad(figures))(heads)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
    possible = case.mask(jax.tree.map(jnp.zeros_like, heads), allowed)
    for slope, logit in zip(jax.tree.leaves(gradient), jax.tree.leaves(possible), strict=True):
        assert np.all(np.asarray(slope)[np.asarray(logit) != 0] == 0)


@both_kinds
@settings(max_examples=10, deadline=None)
@given(seeds)
def test_numbering_of_branches_makes_no_difference(case, seed):
    """The heads of the branches move with them, and all else stays."""
    rng = np.random.default_rng(seed)
    width = 6
    features = rng.uniform(size=(len(BRANCH_INPUTS), width))
    features[BRANCH_INPUTS.index("active")] = rng.random(width) < 0.7
    seen = View(jnp.float32(features), jnp.float32(rng.uniform(size=len(GLOBAL_INPUTS))))
    order = rng.permutation(width)
    heads = network(case.parameters, seen)
    moved = network(case.parameters, seen._replace(branches=seen.branches[:, order]))
    expected = case.moved(heads, order)
    for ours, theirs in zip(jax.tree.leaves(moved), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    # Were the branches all alike to it, this would show nothing.
    assert np.ptp(case.of_branches(heads), axis=1).max() > 1e-3
    decided, the_same = case.decided(rng, order)
    before, after = case.log_prob(heads, decided), case.log_prob(moved, the_same)
    assert after == pytest.approx(float(before), rel=1e-4)
    assert case.entropy(moved) == pytest.approx(float(case.entropy(heads)), rel=1e-4)


def play_at_random(case, heads):
    """Decisions, actions and whether they were inadmissible, of 16 episodes of 60 steps and more."""
    environment = case.kind.environment(WIDTH)
    params = environment.make_params(random_matrix(0))

    @jax.jit
    @jax.vmap
    def play(key):
        def step(state, key):
            pool = branch_pool.attach(state.pool, params.matrix)
            decided = case.kind.sample(key, case.kind.mask(heads, case.kind.options(pool)))
            action = case.kind.action(decided)
            _, state, _, _, _, info = environment.step(key, state, action, params)
            return state, (decided, action, info["invalid_action"])

        return jax.lax.scan(step, environment.reset(key, params)[1], jax.random.split(key, 60))[1]

    return play(jax.random.split(jax.random.key(0), 16))


def test_what_is_admissible_the_environment_does():
    """Whatever is sampled, no part of it is inadmissible there; and an action says what was decided."""
    heads = Heads(jnp.float32(-3), jnp.zeros(OPENINGS), jnp.zeros((CHOICES, WIDTH)))
    decided, action, invalid = play_at_random(ROUNDS, heads)
    assert not np.any(invalid)
    assert np.array_equal(action[..., 0], decided.answer)
    assert np.array_equal(action[..., 1], np.array(COUNTS)[decided.opening])
    assert np.array_equal(action[..., 2:], decided.choice)
    # All that can be done is done: openings that fit, and all choices.
    assert set(np.unique(action[..., 1])) == {0, 1, 2, 3, 4}
    assert set(np.unique(decided.choice)) == set(range(CHOICES))


def test_all_atomic_actions_can_be_chosen_where_they_are_admissible():
    _, action, invalid = play_at_random(ATOMIC, jnp.zeros(2 + 3 * WIDTH).at[1].set(-3.0))
    assert not np.any(invalid)
    assert set(np.unique(action)) == set(range(2 + 3 * WIDTH))
