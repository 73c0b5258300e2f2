"""Teachers, and the arena in which their constants are compared."""

import dataclasses
import importlib
from pathlib import Path

import jax
import numpy as np
import pytest

from autotts_jax.envs import WidthDepthRounds
from autotts_jax.policies import CMC
from autotts_jax.replay import SYNTHETIC_MODELS, synthetic
from autotts_jax.training import Arena, read_config, teacher, tune
from autotts_jax.training.teachers import LINKS, published

ROOT = Path(__file__).parents[1]
RANGE = (1e-5, 1e-3)


@pytest.fixture(scope="module")
def matrix():
    return synthetic(seed=1, models=SYNTHETIC_MODELS[1:2], questions=6, branches=32).matrix


def test_links_are_inverse_within_their_ranges():
    for name, link in LINKS.items():
        for share in (0.1, 0.5, 0.9):
            value = link.value(float(np.log(share / (1 - share))))
            assert link.low <= value <= link.high, name
            assert link.value(link.real(value)) == pytest.approx(value), name


def test_the_published_constants_are_where_tuning_starts():
    coefficients = published()
    dear, cheap = (teacher(coefficients, gamma, RANGE) for gamma in reversed(RANGE))
    assert (cheap.n_init, cheap.patience, cheap.min_complete) == (8, 12, 5)
    assert (dear.n_init, dear.patience) == (3, 4)
    assert dear.max_use < cheap.max_use


@pytest.mark.slow
def test_tuning_raises_the_objective(matrix):
    dear = (1e-3, 1e-2)  # CMC reads more than pays here
    arena = Arena(WidthDepthRounds(8).make_params(matrix, gamma=dear), 8)
    told = []
    coefficients = tune(
        arena,
        jax.random.key(0),
        generations=12,
        population=12,
        on_generation=lambda *generation: told.append(generation),
    )
    assert [generation for generation, _ in told] == list(range(1, 13))

    def objective(coefficients):
        scores = arena.play(lambda _, gamma: teacher(coefficients, gamma, dear), 1, 64, jax.random.key(7))
        return float(scores.objective[0])

    assert objective(coefficients) > objective(published())


def test_all_members_of_an_arena_play_the_same_episodes(matrix):
    arena = Arena(WidthDepthRounds(8).make_params(matrix, gamma=RANGE), 8)
    scores = arena.play(lambda *_: CMC.of_beta(0.3), 3, 4, jax.random.key(0))
    assert scores.right.shape == (3, 4, 6)
    for column in (scores.right, scores.costs, scores.tokens):
        np.testing.assert_array_equal(column, column[:1].repeat(3, axis=0))
    assert (np.diff(scores.gammas) > 0).all()
    assert RANGE[0] <= scores.gammas[0] <= scores.gammas[-1] <= RANGE[1]
    worth = scores.right - scores.gammas[:, None] * scores.costs
    np.testing.assert_allclose(scores.objective, worth.mean(axis=(1, 2)))


@pytest.mark.slow
def test_a_family_of_tuned_cmcs_has_the_constants_of_its_mean_fit(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    script = importlib.import_module("tuned_cmc")
    settings = read_config(ROOT / "examples" / "train_aime24.toml")
    short = dataclasses.replace(settings.warm_start, generations=2, population=4)
    narrow = dataclasses.replace(settings.trainer, max_branches=8)
    settings = dataclasses.replace(settings, warm_start=short, trainer=narrow)
    questions = synthetic(models=SYNTHETIC_MODELS[:1], questions=6, branches=16)
    family = script.tuned(settings, questions, 0)
    cheap, *_, dear = family.values
    assert (cheap, dear) == pytest.approx((2e-4, 4e-6))
    found, start = family.make(dear), teacher(published(), dear, settings.objective.gamma)
    assert type(found) is CMC
    assert found == script.tuned(settings, questions, 0).make(dear)
    assert found != start
    assert found != script.tuned(settings, questions, 1).make(dear)
