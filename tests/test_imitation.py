"""Imitation: what demonstrations record, the clone that learns from them, and the warm start."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from autotts_jax.core.rollout import Episodes, Hooks, rollout
from autotts_jax.envs import WidthDepthRounds
from autotts_jax.policies import CMC, NeuralPolicy
from autotts_jax.policies.neural.actions import OPENINGS
from autotts_jax.policies.neural.network import GLOBAL_INPUTS, ROUND_SCALE, WIDTH
from autotts_jax.policies.neural.policy import apply_network, initial_parameters
from autotts_jax.replay import SYNTHETIC_MODELS, synthetic
from autotts_jax.replay.orders import BranchOrders
from autotts_jax.training import (
    WarmStartSettings,
    clone,
    demonstrate,
    imitation,
    measure_signals,
    vote_weights,
    warm_start,
)
from autotts_jax.training.imitation import ROUNDS

HIDDEN = 4
RANGE = (1e-5, 1e-3)


@pytest.fixture(scope="module")
def matrix():
    return synthetic(seed=1, models=SYNTHETIC_MODELS[1:2], questions=6, branches=32, signals=True).matrix


ROWS = np.arange(6)
"""Question i is played in the order of row i."""


def orders(width: int) -> BranchOrders:
    table = np.stack([np.random.default_rng(row).permutation(32)[:width] for row in ROWS])
    return BranchOrders(table[None], np.zeros(6, int))


def play(controller, matrix, orders, **options):
    return rollout([controller], matrix, orders, Episodes(ROWS, ROWS, np.zeros(6, int)), **options)


def rounds_of_teacher(_controller, memory, _pool):
    return memory.round


@pytest.mark.slow
def test_demonstrations_are_what_the_teacher_did(matrix):
    teacher, table = CMC.of_beta(0.1), orders(8)
    demos = demonstrate(teacher, 1e-4, matrix, table, ROWS)
    played = play(teacher, matrix, table, hooks=Hooks(at_end=rounds_of_teacher))
    # A decision a round, one to open the first branches, and one to answer.
    assert len(demos.action.answer) == played.ends.sum() + 2 * 6
    assert demos.action.answer.sum() == 6
    goes_on = ~demos.action.answer
    opened = np.array(OPENINGS)[demos.action.opening[goes_on]]
    assert opened.sum() == played.branches.sum()
    allowed = np.take_along_axis(demos.mask.choice, demos.action.choice[:, None], axis=1)
    assert allowed[goes_on].all()


@pytest.mark.slow
def test_openings_are_demonstrated_as_far_as_there_is_room(matrix):
    # 5 branches at first, and later the other 11 of 16: nearest to that many is 12.
    teacher = dataclasses.replace(CMC.of_beta(0.5), n_init=5, max_use=16, widen=11, trend=1.0, threshold=2.0)
    demos = demonstrate(teacher, 1e-4, matrix, orders(16), ROWS)
    goes_on = ~demos.action.answer
    opened = np.array(OPENINGS)[demos.action.opening[goes_on]]
    assert set(opened) == {0, 4, 8}
    allowed = np.take_along_axis(demos.mask.opening, demos.action.opening[:, None], axis=1)
    assert allowed[goes_on].all()


@pytest.mark.slow
def test_demonstrations_until_the_peak_end_right(matrix):
    teacher, table = CMC.of_beta(0.5), orders(8)
    whole = demonstrate(teacher, 1e-4, matrix, table, ROWS)
    gold = np.asarray(matrix.gold, np.int32)
    peaked = demonstrate(teacher, 1e-4, matrix, table, ROWS, gold)
    played = play(teacher, matrix, table)
    assert played.correct.sum() <= peaked.action.answer.sum() <= 6
    assert 0 < len(peaked.action.answer) < len(whole.action.answer)


def test_nothing_is_demonstrated_where_nothing_is_right(matrix):
    gold = np.asarray(matrix.gold, np.int32).copy()
    gold[1:] = -1
    demos = demonstrate(CMC.of_beta(0.1), 1e-4, matrix, orders(4), ROWS, gold)
    assert demos.action.answer.sum() == 1
    demos = demonstrate(CMC.of_beta(0.1), 1e-4, matrix, orders(4), ROWS, np.full(6, -1, np.int32))
    assert len(demos.action.answer) == 0


@pytest.mark.slow
def test_demonstrations_end_after_so_many_rounds(matrix, monkeypatch):
    """The first rounds of each episode are those that it has without the limit."""
    whole = demonstrate(CMC.of_beta(0.1), 1e-4, matrix, orders(8), ROWS)
    monkeypatch.setattr(imitation, "ROUNDS", 7)
    cut = demonstrate(CMC.of_beta(0.1), 1e-4, matrix, orders(8), ROWS)
    time = whole.inputs.episode[:, GLOBAL_INPUTS.index("round")] * ROUND_SCALE
    assert 7 < time.max() < ROUNDS
    jax.tree.map(np.testing.assert_array_equal, cut, jax.tree.map(lambda leaf: leaf[time < 7], whole))


@pytest.mark.slow
def test_demonstrations_where_a_player_came_to_are_its_own_episodes(matrix):
    player = NeuralPolicy(initial_parameters(HIDDEN, jax.random.key(0)), 1e-4)
    teacher, table = CMC.of_beta(0.3), orders(8)
    played = play(player, matrix, table)
    assert 0 < played.rounds.min() <= played.rounds.max() < ROUNDS
    demos = demonstrate(teacher, player.gamma, matrix, table, ROWS, player=player.parameters)
    # The states are the player's, from the first to the one it answers in, …
    opened = GLOBAL_INPUTS.index("opened")
    first = np.flatnonzero(demos.inputs.episode[:, opened] == 0)
    last = np.append(first[1:], len(demos.inputs.episode)) - 1
    assert len(first) == 6
    np.testing.assert_array_equal(last - first, played.rounds)
    np.testing.assert_allclose(demos.inputs.episode[last, opened] * WIDTH, played.branches, rtol=1e-5)
    # … and the decisions the teacher's, who would have begun otherwise.
    began = np.array(OPENINGS)[demos.action.opening[first]]
    assert (began == CMC.of_beta(0.3).n_init).all()
    assert (demos.inputs.episode[first + 1, opened] * WIDTH != began).any()


@pytest.mark.slow
def test_a_clone_decides_as_its_teacher(matrix):
    demos = demonstrate(CMC.of_beta(0.1), 1e-4, matrix, orders(8), ROWS)
    start = initial_parameters(HIDDEN, jax.random.key(0))
    _, before = clone(start, demos, jax.random.key(1), updates=2, batch=64, learning_rate=0.0)
    fitted, after = clone(start, demos, jax.random.key(1), updates=800, batch=64, learning_rate=1e-2)
    assert float(after) < 0.3 * float(before)
    logits = jax.vmap(lambda row: apply_network(fitted, row.inputs, row.mask))(demos)
    first = demos.inputs.episode[:, 0] == 0
    best = np.array(OPENINGS)[np.argmax(logits.opening[first], axis=1)]
    np.testing.assert_allclose(best, CMC.of_beta(0.1).n_init, atol=1)


@pytest.mark.slow
def test_a_warm_start_is_made_of_parameters(matrix, monkeypatch):
    """Of a network that reads a signal."""
    params = WidthDepthRounds(8, signals=("eat",)).make_params(matrix, gamma=RANGE, reward="majority")
    settings = WarmStartSettings(
        generations=1, population=4, dagger_iterations=2, num_gammas=2, updates=5, until_peak=True
    )
    told, voted = [], []

    def learn_vote_weights(*args):
        voted.append(vote_weights.learn_vote_weights(*args))
        return voted[-1]

    monkeypatch.setattr(imitation, "learn_vote_weights", learn_vote_weights)
    parameters = warm_start(
        settings,
        params,
        8,
        HIDDEN,
        jax.random.key(0),
        lambda *generation: told.append(generation),
        measure_signals(matrix, ["eat"]),
    )
    start = initial_parameters(HIDDEN, jax.random.key(0), signals=1)
    assert jax.tree.map(jnp.shape, parameters) == jax.tree.map(jnp.shape, start)
    assert len(told) == 1
    assert voted == [parameters]
