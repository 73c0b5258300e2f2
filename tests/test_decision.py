"""Decisions of a round: one distribution over all that is admissible, whatever the numbering of branches."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matrices import WIDTH, random_matrix

from autotts_jax.envs import pool as branch_pool
from autotts_jax.envs.width_depth import WidthDepthRounds
from autotts_jax.policies.neural import decision
from autotts_jax.policies.neural.decision import Decision, Options
from autotts_jax.policies.neural.network import (
    BRANCH_INPUTS,
    CHOICES,
    GLOBAL_INPUTS,
    MAX_ADVANCE,
    Heads,
    View,
)
from autotts_jax.policies.neural.network import OPENINGS as COUNTS
from autotts_jax.policies.neural.policy import apply_network, initial_parameters

pytestmark = pytest.mark.usefixtures("compile_fast")

OPENINGS, BRANCHES = len(COUNTS), 2

seeds = st.integers(0, 2**32 - 1)
mask = jax.jit(decision.mask)
log_prob = jax.jit(decision.log_prob)
log_probs = jax.jit(jax.vmap(decision.log_prob, (None, 0)))
entropy = jax.jit(decision.entropy)
samples = jax.jit(jax.vmap(decision.sample, (0, None)))
network = jax.jit(apply_network)


def heads_of(rng, scale: float) -> Heads:
    """Logits of two branches."""
    answer, opening, choice = (
        scale * rng.normal(size=shape) for shape in ((), OPENINGS, (CHOICES, BRANCHES))
    )
    return Heads(*map(jnp.float32, (answer, opening, choice)))


def options_of(rng) -> Options:
    """At least one option for each part; it can go on, answer, or both."""
    opening = rng.random(OPENINGS) < 0.6
    choice = rng.random((CHOICES, BRANCHES)) < 0.6
    opening[rng.integers(OPENINGS)] = True
    choice[rng.integers(CHOICES, size=BRANCHES), np.arange(BRANCHES)] = True
    answer, go_on = ((True, True), (True, False), (False, True))[rng.integers(3)]
    return Options(*map(jnp.asarray, (answer, go_on, opening, choice)))


def all_decisions() -> tuple[Decision, np.ndarray]:
    """Every decision once, with all branches: that which answers comes first, its other parts being idle."""
    parts = itertools.product(range(OPENINGS), *[range(CHOICES)] * BRANCHES)
    rows = np.array([(1, *[0] * (1 + BRANCHES)), *((0, *row) for row in parts)])
    return Decision(jnp.asarray(rows[:, 0] == 1), *map(jnp.int32, (rows[:, 1], rows[:, 2:]))), rows


def admissible(allowed: Options, rows: np.ndarray) -> np.ndarray:
    goes_on = [
        allowed.go_on & allowed.opening[opening] & allowed.choice[choice, np.arange(BRANCHES)].all()
        for _, opening, *choice in rows[1:]
    ]
    return np.array([allowed.answer, *goes_on], bool)


@settings(max_examples=15, deadline=None)
@given(seeds, st.sampled_from([0.0, 1.0, 8.0]))
def test_probabilities_of_all_decisions(seed, scale):
    rng = np.random.default_rng(seed)
    allowed = jax.tree.map(np.asarray, options_of(rng))
    heads = mask(heads_of(rng, scale), allowed)
    every, rows = all_decisions()
    log = np.asarray(log_probs(heads, every), np.float64)
    p = np.exp(log)
    possible = admissible(allowed, rows)
    assert np.all(p[~possible] == 0)
    assert np.all(np.isfinite(log[possible]))
    assert p.sum() == pytest.approx(1, abs=1e-5)
    assert entropy(heads) == pytest.approx(-np.sum(p[possible] * log[possible]), abs=1e-4, rel=1e-4)


def test_probability_of_a_decision_by_hand():
    choice = np.log([[0.1, 0.5], [0.2, 0.5], [0.3, 1.0], [0.4, 1.0]])
    allowed = Options(True, True, np.arange(OPENINGS) < 2, np.array([[1, 1], [1, 1], [1, 0], [1, 0]], bool))
    heads = Heads(np.log(0.2 / 0.8), np.r_[np.log([0.25, 0.75]), np.ones(OPENINGS - 2)], choice)
    heads = mask(jax.tree.map(jnp.float32, heads), allowed)

    def p(answer, opening, *choice):
        return np.exp(log_prob(heads, Decision(jnp.bool_(answer), jnp.int32(opening), jnp.int32(choice))))

    assert p(True, 0, 0, 0) == pytest.approx(0.2)
    assert p(True, 1, 3, 1) == pytest.approx(0.2)  # nothing else is done
    assert p(False, 1, 2, 0) == pytest.approx(0.8 * 0.75 * 0.3 * 0.5)
    assert p(False, 1, 2, 2) == 0
    assert p(False, 2, 2, 0) == 0


@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_samples_follow_the_probabilities(scale):
    rng = np.random.default_rng(1)
    allowed = options_of(rng)._replace(answer=jnp.bool_(True), go_on=jnp.bool_(True))
    heads = mask(heads_of(rng, scale), allowed)
    drawn = samples(jax.random.split(jax.random.key(0), 4000), heads)
    log = np.asarray(log_probs(heads, drawn))
    # Nothing impossible, and on average the surprise that the entropy says.
    assert log.min() > -100
    assert -log.mean() == pytest.approx(float(entropy(heads)), abs=4 * log.std() / np.sqrt(len(log)) + 1e-4)
    share = np.mean(drawn.answer)
    p = 1 / (1 + np.exp(-float(heads.answer)))
    assert share == pytest.approx(p, abs=4 * np.sqrt(p * (1 - p) / len(log)))


def test_the_greedy_decision_is_the_likeliest_of_each_part():
    rng = np.random.default_rng(2)
    for _ in range(5):
        allowed = options_of(rng)._replace(answer=jnp.bool_(True), go_on=jnp.bool_(True))
        heads = mask(heads_of(rng, 2.0), allowed)
        greedy = decision.greedy(heads)
        every, rows = all_decisions()
        log = np.asarray(log_probs(heads, every))
        going_on = rows[1:][log[1:].argmax()]
        assert bool(greedy.answer) == (float(heads.answer) > 0)
        assert [int(greedy.opening), *greedy.choice.tolist()] == going_on[1:].tolist()


@pytest.mark.parametrize("answer", [False, True])
def test_gradients_are_finite_where_parts_are_impossible(answer):
    """Beside certain and impossible parts, and far from anything likely."""
    rng = np.random.default_rng(3)
    allowed = options_of(rng)._replace(answer=jnp.bool_(answer), go_on=jnp.bool_(not answer))
    heads = heads_of(rng, 50.0)

    def figures(heads):
        masked = decision.mask(heads, allowed)
        return decision.entropy(masked) + decision.log_prob(masked, decision.greedy(masked))

    gradient = jax.jit(jax.grad(figures))(heads)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
    assert np.all(np.asarray(gradient.opening)[~np.asarray(allowed.opening)] == 0)
    assert np.all(np.asarray(gradient.choice)[~np.asarray(allowed.choice)] == 0)


@pytest.fixture(scope="module")
def parameters():
    return jax.tree.map(lambda leaf: 3 * leaf, initial_parameters(4, jax.random.key(0)))


@settings(max_examples=10, deadline=None)
@given(seeds)
def test_numbering_of_branches_makes_no_difference(parameters, seed):
    """The heads of the branches move with them, and all else stays, the decision's probability too."""
    rng = np.random.default_rng(seed)
    width = 6
    features = rng.uniform(size=(len(BRANCH_INPUTS), width))
    features[BRANCH_INPUTS.index("active")] = rng.random(width) < 0.7
    seen = View(jnp.float32(features), jnp.float32(rng.uniform(size=len(GLOBAL_INPUTS))))
    order = rng.permutation(width)
    heads = network(parameters, seen)
    moved = network(parameters, seen._replace(branches=seen.branches[:, order]))
    expected = heads._replace(choice=heads.choice[:, order])
    for ours, theirs in zip(moved, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    # Were the branches all alike to it, this would show nothing.
    assert np.ptp(np.asarray(heads.choice), axis=1).max() > 1e-3
    decided = Decision(jnp.bool_(False), jnp.int32(1), jnp.int32(rng.integers(CHOICES, size=width)))
    before = log_prob(heads, decided)
    after = log_prob(moved, decided._replace(choice=decided.choice[order]))
    assert after == pytest.approx(float(before), rel=1e-4)
    assert entropy(moved) == pytest.approx(float(entropy(heads)), rel=1e-4)


def test_what_is_admissible_the_environment_does():
    """Whatever is sampled, no part of it is inadmissible there; and an action says what was decided."""
    environment = WidthDepthRounds(WIDTH, max_advance=MAX_ADVANCE)
    params = environment.make_params(random_matrix(0))
    heads = Heads(jnp.float32(-3), jnp.zeros(OPENINGS), jnp.zeros((CHOICES, WIDTH)))

    @jax.jit
    @jax.vmap
    def play(key):
        def step(state, key):
            pool = branch_pool.attach(state.pool, params.matrix)
            decided = decision.sample(key, decision.mask(heads, decision.options(pool)))
            action = decision.action(decided)
            _, state, _, _, _, info = environment.step(key, state, action, params)
            return state, (decided, action, info["invalid_action"])

        return jax.lax.scan(step, environment.reset(key, params)[1], jax.random.split(key, 60))[1]

    decided, action, invalid = play(jax.random.split(jax.random.key(0), 16))
    assert not np.any(invalid)
    assert np.array_equal(action[..., 0], decided.answer)
    assert np.array_equal(action[..., 1], np.array(COUNTS)[decided.opening])
    assert np.array_equal(action[..., 2:], decided.choice)
    # All that can be done is done: openings that fit, and all choices.
    assert set(np.unique(action[..., 1])) == {0, 1, 2, 3, 4}
    assert set(np.unique(decided.choice)) == set(range(CHOICES))
