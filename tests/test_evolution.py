"""Evolution: that it raises its objective, repeats itself, and needs no gold answers."""

import dataclasses

import jax
import numpy as np
import pytest

from autotts_jax.envs import WidthDepth, WidthDepthRounds
from autotts_jax.errors import InputError
from autotts_jax.policies.neural.actions import HEADS
from autotts_jax.policies.neural.policy import head_of, initial_parameters
from autotts_jax.replay import SYNTHETIC_MODELS, synthetic
from autotts_jax.training import Evolution, EvolutionSettings, measure_signals

HIDDEN = 4


@pytest.fixture(scope="module")
def matrix():
    return synthetic(seed=1, models=SYNTHETIC_MODELS[1:2], questions=6, branches=32, signals=True).matrix


@pytest.fixture(scope="module")
def evolution(matrix):
    """Of a policy that reads a signal."""
    params = WidthDepthRounds(8, signals=("eat",)).make_params(matrix, gamma=(1e-4, 1e-2))
    settings = EvolutionSettings(population=8, std=0.3, learning_rate=0.1, num_gammas=2, max_branches=8)
    start = initial_parameters(HIDDEN, jax.random.key(0), signals=1)
    return Evolution(settings, params, start, signal_inputs=measure_signals(matrix, ["eat"]))


@pytest.mark.slow
def test_evolution_raises_its_objective(evolution):
    state = evolution.init(jax.random.key(0))
    objectives = []
    for _ in range(15):
        state, metrics = evolution.update(state)
        objectives.append(float(metrics["objective"]))
    assert np.mean(objectives[-3:]) > np.mean(objectives[:3]) + 0.05
    evolved = evolution.policy(state)
    assert evolved.gamma == pytest.approx(1e-3, rel=1e-4)
    assert np.all(evolved.parameters["of_vote"]["kernel"] != 0)


def test_evolution_repeats_itself_from_a_state(evolution):
    state, _ = evolution.update(evolution.init(jax.random.key(1)))
    assert evolution.policy(state).signals == ("eat",)
    once, twice = evolution.update(state), evolution.update(jax.tree.map(np.asarray, state))
    jax.tree.map(np.testing.assert_array_equal, once, twice)


@pytest.mark.slow
def test_evolution_of_a_policy_of_atomic_actions(matrix):
    params = WidthDepth(4).make_params(matrix, gamma=1e-3)
    settings = EvolutionSettings(population=4, std=0.3, num_gammas=1, max_branches=4)
    start = initial_parameters(HIDDEN, jax.random.key(0), "atomic")
    trainer = Evolution(settings, params, start)
    state, metrics = trainer.update(trainer.init(jax.random.key(0)))
    assert metrics["objective_spread"] > 0
    parameters = trainer.policy(state).parameters
    assert head_of(parameters) is HEADS["atomic"]
    assert not np.array_equal(parameters["trunk"]["kernel"], start["trunk"]["kernel"])


@pytest.mark.slow
def test_majority_targets_need_no_gold(matrix):
    env = WidthDepthRounds(4)
    settings = EvolutionSettings(population=2, num_gammas=1, max_branches=4)
    start = initial_parameters(HIDDEN, jax.random.key(0))
    metrics = []
    for gold in (matrix.gold, np.zeros_like(matrix.gold)):
        params = env.make_params(dataclasses.replace(matrix, gold=gold), gamma=1e-4, reward="majority")
        trainer = Evolution(settings, params, start)
        metrics.append(trainer.update(trainer.init(jax.random.key(0)))[1])
    assert metrics[0] == metrics[1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"population": 3}, "even number"), ({"std": 0.0}, "positive"), ({"num_gammas": -1}, "positive")],
)
def test_settings_of_evolution_are_checked(settings, message):
    with pytest.raises(InputError, match=message):
        EvolutionSettings(**settings)
