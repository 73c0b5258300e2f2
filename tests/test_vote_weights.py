"""Weights of votes, and the episodes that they are fitted to."""

import dataclasses

import jax
import numpy as np
import pytest
from last_states import last_states

from autotts_jax.envs import WidthDepthRounds, observations
from autotts_jax.policies import NeuralPolicy, SignalInput
from autotts_jax.policies.neural.network import VOTE_INPUTS, vote_inputs
from autotts_jax.policies.neural.policy import initial_parameters
from autotts_jax.replay import NONE, SYNTHETIC_MODELS, synthetic
from autotts_jax.training import Arena, draw_log_uniform, vote_weights
from autotts_jax.training.vote_weights import fit

RANGE = (1e-5, 1e-3)


@pytest.fixture(scope="module")
def matrix():
    return synthetic(seed=1, models=SYNTHETIC_MODELS[1:2], questions=6, branches=32, signals=True).matrix


def thorough() -> NeuralPolicy:
    """A policy that prunes nothing, answers when there is nothing left to read, and reads a signal."""
    parameters = initial_parameters(4, jax.random.key(3), signals=1)
    parameters = jax.tree.map(lambda leaf: 3 * np.asarray(leaf), parameters)
    never = {"of_episode": [-50, 1], "of_branch": [0, -50, 0, 0]}
    patient = {name: {**parameters[name], "bias": np.array(bias, np.float32)} for name, bias in never.items()}
    signal = SignalInput("conf_low", 12.0, 1.5)
    return NeuralPolicy({**parameters, **patient}, 1e-4, signal_inputs=(signal,))


def test_what_votes_weigh_is_the_most_likely():
    """Two votes against one are right twice as often, so a power of 1; and a vote that came ten intervals
    earlier than the other three times as often, so a coefficient of -log 3."""
    inputs = len(VOTE_INPUTS) + 1  # with a signal
    known, answers, targets = np.zeros((70, inputs, 3), np.float32), np.full((70, 3), -1), np.zeros(70, int)
    answers[:30] = 0, 0, 1
    targets[:30] = np.repeat([0, 1], (20, 10))
    answers[30:, :2] = 0, 1
    known[30:, 0, 1] = 1
    targets[30:] = np.repeat([0, 1], (30, 10))
    silent = known[:5] + 7, np.zeros((5, 3), int), np.arange(5) % 2  # all agree: these say nothing
    fitted = fit(*(np.concatenate(parts) for parts in zip((known, answers, targets), silent, strict=True)))
    np.testing.assert_allclose(fitted, [-np.log(3), 0, 0, 0], atol=0.07)  # less the penalty of a coefficient
    np.testing.assert_array_equal(fit(*silent), np.zeros(inputs))


def test_votes_that_speak_against_their_answer_weigh_the_same():
    """Two votes against one are wrong five times in six: no weights make the heaviest answer likely."""
    inputs = len(VOTE_INPUTS)
    known, answers = np.zeros((90, inputs, 3), np.float32), np.full((90, 3), -1)
    answers[:60] = 0, 0, 1
    answers[60:, :2] = 0, 1
    known[60:, 0, 1] = 1
    targets = np.repeat([0, 1, 0, 1], (10, 50, 22, 8))
    assert not fit(known, answers, targets).any()


@pytest.mark.slow
def test_votes_are_learned_from_episodes_of_the_policy(matrix, monkeypatch):
    plain = thorough()
    arena = Arena(WidthDepthRounds(8, signals=plain.signals).make_params(matrix, gamma=RANGE), 8)
    fitted, drawn, fit, draw_rows = [], [], vote_weights.fit, arena.draw_rows

    def note(store, function):
        def noted(*args):
            store.append((args, function(*args)))
            return store[-1][1]

        return noted

    monkeypatch.setattr(vote_weights, "fit", note(fitted, fit))
    monkeypatch.setattr(arena, "draw_rows", note(drawn, draw_rows))
    given = plain.parameters, arena, jax.random.key(0), plain.signal_inputs
    learned, again = (vote_weights.learn_vote_weights(*given) for _ in range(2))
    jax.tree.map(np.testing.assert_array_equal, learned, again)
    [((columns, answers, targets), _), _] = fitted
    of_gamma = vote_weights.NUM_ORDERS * 6
    assert len(targets) == vote_weights.NUM_GAMMAS * of_gamma
    (questions, _), rows = drawn[0]
    np.testing.assert_array_equal(targets, matrix.gold[questions])
    rng = np.random.default_rng(np.asarray(jax.random.key_data(jax.random.key(0))))
    gammas = draw_log_uniform(*RANGE, vote_weights.NUM_GAMMAS, rng)
    for setting in (0, 9):
        some = np.arange(setting * of_gamma, (setting + 1) * of_gamma, 7)
        assert set(questions[some]) == set(range(6))
        of_these = dataclasses.replace(plain, gamma=float(gammas[setting]))
        states = last_states(of_these, matrix, arena.orders.of(questions[some], rows[some]), questions[some])
        for (memory, view), read, answered in zip(states, columns[some], answers[some], strict=True):
            tracker = memory.state.tracker
            np.testing.assert_array_equal(read, vote_inputs(view, tracker, plain.signal_inputs))
            counts = observations.vote_counts(view, tracker)
            np.testing.assert_array_equal(answered, np.where(counts.final, counts.keys, NONE))
    kernel = learned["of_vote"]["kernel"]
    assert kernel.shape == plain.parameters["of_vote"]["kernel"].shape
    assert np.isfinite(kernel).all()
    assert kernel.any()
    others = {name: leaf for name, leaf in learned.items() if name != "of_vote"}
    jax.tree.map(np.testing.assert_array_equal, others, {name: plain.parameters[name] for name in others})


def test_of_equally_wide_strata_each_has_a_draw():
    drawn = draw_log_uniform(*RANGE, 8, np.random.default_rng(0))
    assert np.floor(8 * np.log(drawn / RANGE[0]) / np.log(RANGE[1] / RANGE[0])).tolist() == list(range(8))
