"""Action heads: one distribution over all that is admissible, whatever the numbering of branches."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from matrices import WIDTH, random_matrix

from autotts_jax.policies.neural.actions import (
    CHOICES,
    HEADS,
    OPENING_SPREAD,
    RoundAction,
    RoundLogits,
    RoundMask,
)
from autotts_jax.policies.neural.actions import OPENINGS as COUNTS
from autotts_jax.policies.neural.network import BRANCH_INPUTS, GLOBAL_INPUTS, Inputs, Outputs
from autotts_jax.policies.neural.policy import apply_network, initial_parameters

OPENINGS, BRANCHES = len(COUNTS), 2
ACTIONS = 2 + 3 * BRANCHES

seeds = st.integers(0, 2**32 - 1)
network = jax.jit(apply_network)


class Case:
    """An action head, compiled."""

    name: str

    def __init__(self):
        head = self.head = HEADS[self.name]
        self.logits = jax.jit(head.logits)
        self.log_prob = jax.jit(head.log_prob)
        self.log_probs = jax.jit(jax.vmap(head.log_prob, (None, 0)))
        self.entropy = jax.jit(head.entropy)
        self.samples = jax.jit(jax.vmap(head.sample, (0, None)))

    def outputs(self, rng, scale: float) -> Outputs:
        """Outputs of a network for two branches."""
        episode = scale * rng.normal(size=2)
        branches = scale * rng.normal(size=(self.head.branch_outputs, BRANCHES))
        return Outputs(jnp.float32(episode), jnp.float32(branches))

    @functools.cached_property
    def parameters(self):
        """Of a network that reads a signal."""
        return jax.tree.map(lambda leaf: 3 * leaf, initial_parameters(4, jax.random.key(0), self.name, 1))


class Rounds(Case):
    """Two branches, and what can be done in a round."""

    name = "rounds"

    def outputs(self, rng, scale: float) -> Outputs:
        outputs = super().outputs(rng, scale)
        # Around the openings that there are, so that several of them are likely.
        return outputs._replace(episode=outputs.episode.at[1].multiply(0.1).at[1].add(1.5))

    def mask(self, rng, answer: bool, go_on: bool) -> RoundMask:
        """At least one option for each part."""
        opening = rng.random(OPENINGS) < 0.6
        choice = rng.random((CHOICES, BRANCHES)) < 0.6
        opening[rng.integers(OPENINGS)] = True
        choice[rng.integers(CHOICES, size=BRANCHES), np.arange(BRANCHES)] = True
        return RoundMask(*map(jnp.asarray, (answer, go_on, opening, choice)))

    def all_admissible(self, width: int) -> RoundMask:
        return RoundMask(
            jnp.bool_(True), jnp.bool_(True), jnp.ones(OPENINGS, bool), jnp.ones((CHOICES, width), bool)
        )

    def every(self) -> RoundAction:
        """Every action once; the one that answers comes first, its other parts being idle."""
        parts = itertools.product(range(OPENINGS), *[range(CHOICES)] * BRANCHES)
        rows = np.array([(1, *[0] * (1 + BRANCHES)), *((0, *row) for row in parts)])
        return RoundAction(jnp.asarray(rows[:, 0] == 1), *map(jnp.int32, (rows[:, 1], rows[:, 2:])))

    def admissible(self, mask: RoundMask) -> np.ndarray:
        """Which of them are admissible."""
        mask, every = jax.tree.map(np.asarray, (mask, self.every()))
        opens = mask.opening[every.opening]
        does = mask.choice[every.choice, np.arange(BRANCHES)].all(axis=1)
        return np.where(every.answer, mask.answer, mask.go_on & opens & does)

    def masked(self, mask: RoundMask) -> Outputs:
        """Which outputs only concern what is certain or impossible."""
        return Outputs(jnp.stack([~(mask.answer & mask.go_on), jnp.bool_(False)]), ~mask.choice)

    def answers(self, action: RoundAction) -> jax.Array:
        return action.answer

    def of_branches(self, logits: RoundLogits) -> jax.Array:
        return logits.choice

    def moved(self, logits: RoundLogits, order: np.ndarray) -> RoundLogits:
        """With the branches in another order."""
        return logits._replace(choice=logits.choice[:, order])

    def actions(self, rng, order: np.ndarray) -> tuple[RoundAction, RoundAction]:
        """An action, and the same with the branches in another order."""
        choice = jnp.int32(rng.integers(CHOICES, size=len(order)))
        action = RoundAction(jnp.bool_(False), jnp.int32(1), choice)
        return action, action._replace(choice=choice[order])


class Atomic(Case):
    """Two branches, and their atomic actions."""

    name = "atomic"

    def mask(self, rng, answer: bool, go_on: bool) -> jax.Array:
        mask = (rng.random(ACTIONS) < 0.6) & go_on
        mask[rng.integers(2, ACTIONS)] = go_on
        mask[1] = answer
        return jnp.asarray(mask)

    def all_admissible(self, width: int) -> jax.Array:
        return jnp.ones(2 + 3 * width, bool)

    def every(self) -> jax.Array:
        return jnp.arange(ACTIONS)

    def admissible(self, mask: jax.Array) -> np.ndarray:
        return np.asarray(mask)

    def masked(self, mask: jax.Array) -> Outputs:
        return Outputs(~mask[:2], ~self.of_branches(mask))

    def answers(self, action: jax.Array) -> jax.Array:
        return action == 1

    def of_branches(self, logits: jax.Array) -> jax.Array:
        return logits[2:].reshape(3, -1)

    def moved(self, logits: jax.Array, order: np.ndarray) -> jax.Array:
        return jnp.concatenate([logits[:2], self.of_branches(logits)[:, order].reshape(-1)])

    def actions(self, rng, order: np.ndarray) -> tuple[jax.Array, jax.Array]:
        kind, branch = rng.integers(3), rng.integers(len(order))
        first = 2 + kind * len(order)
        return jnp.int32(first + order[branch]), jnp.int32(first + branch)


ROUNDS, ATOMIC = Rounds(), Atomic()
both_heads = pytest.mark.parametrize("case", [ROUNDS, ATOMIC], ids=("rounds", "atomic"))
ENDS = ((True, True), (True, False), (False, True))
"""Whether it can answer and go on."""


@both_heads
@settings(max_examples=15, deadline=None)
@given(seeds, st.sampled_from([0.0, 1.0, 8.0]))
def test_probabilities_of_all_actions(case, seed, scale):
    rng = np.random.default_rng(seed)
    mask = case.mask(rng, *ENDS[rng.integers(3)])
    logits = case.logits(case.outputs(rng, scale), mask)
    log = np.asarray(case.log_probs(logits, case.every()), np.float64)
    p = np.exp(log)
    possible = case.admissible(mask)
    assert np.all(p[~possible] == 0)
    assert np.all(np.isfinite(log[possible]))
    assert p.sum() == pytest.approx(1, abs=1e-5)
    assert case.entropy(logits) == pytest.approx(-np.sum(p[possible] * log[possible]), abs=1e-4, rel=1e-4)


def test_probability_of_a_round_by_hand():
    """The openings' logits are those of a bell curve, of which two are given by hand."""
    choice = np.log([[0.1, 0.5], [0.2, 0.5], [0.3, 1.0], [0.4, 1.0]])
    mask = RoundMask(True, True, np.arange(OPENINGS) < 2, np.array([[1, 1], [1, 1], [1, 0], [1, 0]], bool))
    outputs = Outputs(jnp.float32([np.log(0.2 / 0.8), 0]), jnp.float32(choice))
    logits = ROUNDS.logits(outputs, jax.tree.map(jnp.asarray, mask))
    logits = logits._replace(opening=logits.opening.at[:2].set(jnp.log(jnp.array([0.25, 0.75]))))

    def p(answer, opening, *choice):
        action = RoundAction(jnp.bool_(answer), jnp.int32(opening), jnp.int32(choice))
        return np.exp(ROUNDS.log_prob(logits, action))

    assert p(True, 0, 0, 0) == pytest.approx(0.2)
    assert p(True, 1, 3, 1) == pytest.approx(0.2)  # nothing else is done
    assert p(False, 1, 2, 0) == pytest.approx(0.8 * 0.75 * 0.3 * 0.5)
    assert p(False, 1, 2, 2) == 0
    assert p(False, 2, 2, 0) == 0


def test_openings_spread_around_the_networks_number():
    mask = ROUNDS.all_admissible(BRANCHES)
    for count in COUNTS:
        outputs = Outputs(jnp.float32([0, np.log1p(count)]), jnp.zeros((CHOICES, BRANCHES)))
        logits = ROUNDS.logits(outputs, mask)
        expected = scipy.stats.norm.logpdf(np.log1p(COUNTS), np.log1p(count), OPENING_SPREAD)
        np.testing.assert_allclose(logits.opening, expected - expected.max(), rtol=1e-4, atol=1e-4)
        assert COUNTS[int(ROUNDS.head.greedy(logits).opening)] == count


def test_probability_of_an_atomic_action_by_hand():
    """Of BRANCH, ANSWER, CONTINUE(1) and PRUNE(0), all else being inadmissible."""
    outputs = Outputs(
        jnp.log(jnp.array([1.0, 2.0])), jnp.log(jnp.array([[9.0, 3.0], [9.0, 9.0], [4.0, 9.0]]))
    )
    logits = ATOMIC.logits(outputs, jnp.array([1, 1, 0, 1, 0, 0, 1, 0], bool))
    p = np.exp(ATOMIC.log_probs(logits, jnp.arange(ACTIONS)))
    np.testing.assert_allclose(p, [0.1, 0.2, 0, 0.3, 0, 0, 0.4, 0], rtol=1e-5)
    assert ATOMIC.head.greedy(logits) == 6


@both_heads
@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_samples_follow_the_probabilities(case, scale):
    rng = np.random.default_rng(1)
    logits = case.logits(case.outputs(rng, scale), case.mask(rng, answer=True, go_on=True))
    drawn = case.samples(jax.random.split(jax.random.key(0), 4000), logits)
    log = np.asarray(case.log_probs(logits, drawn))
    # Nothing impossible, and the mean of the negative log-probability is the entropy.
    assert log.min() > -100
    assert -log.mean() == pytest.approx(
        float(case.entropy(logits)), abs=4 * log.std() / np.sqrt(len(log)) + 1e-4
    )
    share, every = np.mean(case.answers(drawn)), case.every()
    p = float(jnp.sum(jnp.exp(case.log_probs(logits, every)), where=case.answers(every)))
    assert share == pytest.approx(p, abs=4 * np.sqrt(p * (1 - p) / len(log)))


def test_the_greedy_round_is_the_likeliest_of_each_part():
    rng = np.random.default_rng(2)
    for _ in range(5):
        logits = ROUNDS.logits(ROUNDS.outputs(rng, 2.0), ROUNDS.mask(rng, answer=True, go_on=True))
        greedy, every = ROUNDS.head.greedy(logits), ROUNDS.every()
        going_on = 1 + np.asarray(ROUNDS.log_probs(logits, every))[1:].argmax()
        assert bool(greedy.answer) == (float(logits.answer) > 0)
        assert int(greedy.opening) == every.opening[going_on]
        assert greedy.choice.tolist() == every.choice[going_on].tolist()


def test_the_greedy_action_is_the_likeliest_of_all():
    rng = np.random.default_rng(2)
    seen = set()
    for _ in range(20):
        logits = ATOMIC.logits(ATOMIC.outputs(rng, 2.0), ATOMIC.mask(rng, answer=True, go_on=True))
        greedy = int(ATOMIC.head.greedy(logits))
        assert greedy == np.argmax(ATOMIC.log_probs(logits, ATOMIC.every()))
        seen.add(greedy)
    assert len(seen) > 3


@both_heads
@pytest.mark.parametrize("answer", [False, True])
def test_gradients_are_finite_where_parts_are_impossible(case, answer):
    """Beside certain and impossible parts, and far from anything likely."""
    rng = np.random.default_rng(3)
    mask = case.mask(rng, answer=answer, go_on=not answer)

    def figures(outputs):
        logits = case.head.logits(outputs, mask)
        return case.head.entropy(logits) + case.head.log_prob(logits, case.head.greedy(logits))

    gradient = jax.jit(jax.grad(figures))(case.outputs(rng, 50.0))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
    for slope, masked in zip(gradient, case.masked(mask), strict=True):
        assert np.all(np.asarray(slope)[np.asarray(masked)] == 0)


@pytest.mark.slow
@both_heads
@settings(max_examples=10, deadline=None)
@given(seeds)
def test_numbering_of_branches_makes_no_difference(case, seed):
    """The logits of the branches move with them, and all else stays."""
    rng = np.random.default_rng(seed)
    width = 6
    mask = case.all_admissible(width)
    features = rng.uniform(size=(len(BRANCH_INPUTS) + 1, width))
    features[BRANCH_INPUTS.index("active")] = rng.random(width) < 0.7
    inputs = Inputs(jnp.float32(features), jnp.float32(rng.uniform(size=len(GLOBAL_INPUTS))))
    order = rng.permutation(width)
    logits = network(case.parameters, inputs, mask)
    moved = network(case.parameters, inputs._replace(branches=inputs.branches[:, order]), mask)
    expected = case.moved(logits, order)
    for ours, theirs in zip(jax.tree.leaves(moved), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    # Were the branches all alike to it, this would show nothing.
    assert np.ptp(case.of_branches(logits), axis=1).max() > 1e-3
    action, the_same = case.actions(rng, order)
    before, after = case.log_prob(logits, action), case.log_prob(moved, the_same)
    assert after == pytest.approx(float(before), rel=1e-4)
    assert case.entropy(moved) == pytest.approx(float(case.entropy(logits)), rel=1e-4)


def play_at_random(case, outputs):
    """Actions, the environment's encoding of them, and whether they were inadmissible.

    Args:
        case: the head.
        outputs: makes the network's outputs from a random key.
    """
    environment = case.head.environment(WIDTH)
    params = environment.make_params(random_matrix(0))

    @jax.jit
    @jax.vmap
    def play(key):
        def step(state, key):
            mask = case.head.mask(state.pool.with_matrix(params.matrix).view())
            action = case.head.sample(key, case.head.logits(outputs(key), mask))
            encoded = case.head.for_environment(action)
            _, state, _, _, _, info = environment.step(key, state, encoded, params)
            return state, (action, encoded, info["invalid_action"])

        return jax.lax.scan(step, environment.reset(key, params)[1], jax.random.split(key, 60))[1]

    return play(jax.random.split(jax.random.key(0), 16))


def test_what_is_admissible_the_environment_does():
    """Whatever is sampled, no part of it is inadmissible there; and the encoding says the same."""

    def outputs(key):
        opening = jax.random.uniform(key, maxval=1.8)
        return Outputs(jnp.stack([jnp.float32(-3), opening]), jnp.zeros((CHOICES, WIDTH)))

    action, encoded, invalid = play_at_random(ROUNDS, outputs)
    assert not np.any(invalid)
    assert np.array_equal(encoded[..., 0], action.answer)
    assert np.array_equal(encoded[..., 1], np.array(COUNTS)[action.opening])
    assert np.array_equal(encoded[..., 2:], action.choice)
    # All that can be done is done: openings that fit, and all choices.
    assert set(np.unique(encoded[..., 1])) == {0, 1, 2, 3, 4}
    assert set(np.unique(action.choice)) == set(range(CHOICES))


def test_all_atomic_actions_can_be_chosen_where_they_are_admissible():
    outputs = Outputs(jnp.float32([0, -3]), jnp.zeros((3, WIDTH)))
    _, encoded, invalid = play_at_random(ATOMIC, lambda _: outputs)
    assert not np.any(invalid)
    assert set(np.unique(encoded)) == set(range(2 + 3 * WIDTH))
