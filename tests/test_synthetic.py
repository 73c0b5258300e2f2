"""The synthetic dataset: reproducible, well formed, and statistically like the recorded cells."""

import dataclasses

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotts_jax.errors import InputError
from autotts_jax.replay import SYNTHETIC_MODELS, load, part_of, synthetic
from autotts_jax.replay.embedded import LADDER
from autotts_jax.replay.generator import FITTED_MODELS
from autotts_jax.replay.matrix import NONE

NAMES = [model.name for model in SYNTHETIC_MODELS]


@pytest.fixture(scope="module")
def dataset():
    return synthetic()


@pytest.fixture(scope="module")
def cells(dataset):
    """The cells of the default dataset, one dataset each."""
    return [dataset.select(dataset.cell_questions(cell)) for cell in range(len(dataset.cells))]


def finals(matrix):
    return np.take_along_axis(matrix.answers, matrix.lengths[..., None], axis=2)[..., 0]


def right(matrix):
    return finals(matrix) == matrix.gold[:, None]


def probed(matrix):
    """Which positions of the answers are probes."""
    return np.arange(matrix.max_depth) < matrix.lengths[..., None]


def of_all(statistic, cells):
    return np.array([statistic(cell.matrix) for cell in cells])


def assert_well_formed(dataset):
    matrix = dataset.matrix
    depth = np.arange(matrix.max_depth)
    read = depth <= matrix.lengths[..., None]
    vocabularies = np.array([len(question.vocabulary) for question in dataset.questions])
    assert np.all(matrix.answers[~read] == NONE)
    assert np.all((matrix.answers >= 0) == read)
    assert np.all(matrix.answers < vocabularies[:, None, None])
    assert np.all((matrix.gold >= 0) & (matrix.gold < vocabularies))
    assert matrix.vocabulary == vocabularies.max()
    assert np.all((matrix.lengths >= 3) & (matrix.lengths <= 80))
    beyond = matrix.tokens - 500 * matrix.lengths
    assert np.all((beyond >= -400) & (beyond <= 4200))
    last = np.take_along_axis(matrix.answers, matrix.lengths[..., None] - 1, axis=2)[..., 0]
    np.testing.assert_array_equal(finals(matrix), last)
    for row, question in enumerate(dataset.questions):
        assert question.gold == question.answer(int(matrix.gold[row]))
        assert len(set(question.vocabulary)) == len(question.vocabulary)
        assert set(np.unique(matrix.answers[row][read[row]])) | {matrix.gold[row]} == set(
            range(len(question.vocabulary))
        )


def test_default_shape(dataset):
    matrix = dataset.matrix
    assert [cell.name for cell in dataset.cells] == [f"{name}/synthetic" for name in NAMES]
    assert len(dataset) == 120
    assert matrix.answers.shape == (120, 128, matrix.lengths.max() + 1)
    assert matrix.answers.dtype == matrix.gold.dtype == np.int16
    assert {matrix.lengths.dtype, matrix.tokens.dtype, matrix.interval.dtype, matrix.cell.dtype} == {
        np.dtype(np.int32)
    }
    assert np.all(matrix.interval == 500)
    assert dataset.encoding == "exact"
    assert dataset.questions[7].text == "Synthetic question 7"
    assert all(cell.num_branches == 128 for cell in dataset.cells)


def test_default_is_well_formed(dataset):
    assert_well_formed(dataset)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**64), questions=st.integers(1, 4), branches=st.integers(1, 9))
def test_any_seed_and_size_is_well_formed(seed, questions, branches):
    dataset = synthetic(seed, SYNTHETIC_MODELS[:2], questions, branches)
    assert dataset.matrix.lengths.shape == (2 * questions, branches)
    assert_well_formed(dataset)


def test_same_seed_same_dataset(dataset):
    again = synthetic(0)
    jax.tree.map(np.testing.assert_array_equal, dataset.matrix, again.matrix)
    assert (dataset.questions, dataset.cells) == (again.questions, again.cells)


def test_other_seed_other_dataset():
    one, other = (synthetic(seed, questions=5, branches=8) for seed in (0, 1))
    assert not np.array_equal(one.matrix.lengths, other.matrix.lengths)
    assert {cell.sha256 for cell in one.cells}.isdisjoint(cell.sha256 for cell in other.cells)


def test_a_cell_does_not_depend_on_the_other_models(cells):
    alone = synthetic(models=SYNTHETIC_MODELS[2:3])
    assert alone.cells == cells[2].cells
    assert alone.questions == cells[2].questions
    np.testing.assert_array_equal(alone.matrix.tokens, cells[2].matrix.tokens)


def test_models_answer_the_same_questions(cells):
    for cell in cells[1:]:
        assert [(q.text, q.gold) for q in cell.questions] == [(q.text, q.gold) for q in cells[0].questions]
    hardness = [right(cell.matrix).mean(axis=1) for cell in cells]
    assert np.all(np.corrcoef(hardness[1:])[np.triu_indices(3, 1)] > 0.5)


@pytest.mark.parametrize("wrong", [{"seed": -1}, {"questions": 0}, {"branches": 0}, {"models": ()}])
def test_bad_arguments(wrong):
    with pytest.raises(InputError):
        synthetic(**wrong)


def test_models_need_different_names():
    twice = (SYNTHETIC_MODELS[0], dataclasses.replace(SYNTHETIC_MODELS[1], name=NAMES[0]))
    with pytest.raises(InputError, match="occurs twice"):
        synthetic(models=twice, questions=1, branches=1)


# The bounds below hold the recorded cells and leave room for the noise of 30 questions.


def test_accuracy(cells):
    accuracy = of_all(lambda matrix: right(matrix).mean(), cells)
    np.testing.assert_allclose(accuracy, [0.109, 0.459, 0.718, 0.757], atol=0.05)


def test_most_questions_are_hopeless_or_certain(cells):
    ease = np.concatenate([right(cell.matrix).mean(axis=1) for cell in cells])
    assert np.mean((ease < 0.1) | (ease > 0.9)) > 0.5
    assert np.mean((ease > 0.2) & (ease < 0.8)) > 0.08
    passed = of_all(lambda matrix: right(matrix).any(axis=1).mean(), cells)
    assert 0.5 < passed[0] < 0.75
    assert np.all(passed[1:] > 0.75)


def test_lengths(cells):
    assert np.all(np.abs(of_all(lambda matrix: matrix.lengths.mean(), cells) - 30) < 5)
    assert np.all(of_all(lambda matrix: matrix.lengths.min(), cells) <= 5)
    at_cap = of_all(lambda matrix: np.mean(matrix.lengths == 80), cells)
    assert 0 < at_cap.mean() < 0.01
    tokens_of_64 = of_all(lambda matrix: 64 * matrix.tokens.mean(), cells)
    assert np.all((tokens_of_64 > 0.85e6) & (tokens_of_64 < 1.15e6))


def test_tokens_beyond_the_last_probe(cells):
    def negative(matrix):
        return np.mean(matrix.tokens < 500 * matrix.lengths)

    assert np.all((of_all(negative, cells) > 0.08) & (of_all(negative, cells) < 0.25))
    beyond = of_all(lambda matrix: np.quantile(matrix.tokens - 500 * matrix.lengths, (0.5, 0.99)), cells)
    assert np.all((beyond[:, 0] > 150) & (beyond[:, 0] < 500))
    assert np.all((beyond[:, 1] > 1500) & (beyond[:, 1] < 3500))


def test_short_branches_are_more_often_right(cells):
    def correlation(matrix):
        mixed = [
            (length, ok) for length, ok in zip(matrix.lengths, right(matrix), strict=True) if ok.std() > 0
        ]
        return np.mean([np.corrcoef(length, ok)[0, 1] for length, ok in mixed])

    correlations = of_all(correlation, cells)
    assert np.all((correlations > -0.5) & (correlations < -0.1))


def test_hard_questions_are_long(cells):
    def correlation(matrix):
        return np.corrcoef(matrix.lengths.mean(axis=1), right(matrix).mean(axis=1))[0, 1]

    assert np.all(of_all(correlation, cells) < -0.3)


def test_branches_settle(cells):
    """Share of probes that equal the branch's own final answer, by tenth of the branch."""

    def settled(matrix):
        agree = matrix.answers == finals(matrix)[..., None]
        tenth = 10 * np.arange(matrix.max_depth) // matrix.lengths[..., None]
        return [agree[probed(matrix) & (tenth == t)].mean() for t in range(10)]

    shares = of_all(settled, cells).mean(axis=0)
    recorded = [0.05, 0.08, 0.12, 0.17, 0.20, 0.27, 0.35, 0.43, 0.58, 0.82]
    np.testing.assert_allclose(shares, recorded, atol=0.07)


def test_errors_among_probes(cells):
    def errors(cell):
        error = np.array(
            [q.vocabulary.index("ERR") if "ERR" in q.vocabulary else NONE for q in cell.questions]
        )
        return np.mean((cell.matrix.answers == error[:, None, None])[probed(cell.matrix)])

    shares = np.array([errors(cell) for cell in cells])
    assert np.all((shares > 0.02) & (shares < 0.15))


def test_votes(cells):
    def vote(matrix):
        counts = np.array([np.bincount(row, minlength=matrix.vocabulary) for row in finals(matrix)])
        return counts.max(axis=1).mean() / 128, np.mean(counts.argmax(axis=1) == matrix.gold)

    ratio, accuracy = of_all(vote, cells).T
    np.testing.assert_allclose(ratio, [0.27, 0.55, 0.80, 0.83], atol=0.08)
    np.testing.assert_allclose(accuracy, [0.23, 0.65, 0.80, 0.80], atol=0.12)


def test_distinct_answers(cells):
    for cell in cells:
        distinct = [len(question.vocabulary) for question in cell.questions]
        assert 25 < np.median(distinct) < 200
        assert 180 < max(distinct) < 1000


@pytest.mark.slow
def test_a_generated_task_has_a_thousand_questions_to_train_and_to_test_on():
    dataset = load("synthetic-hard")
    assert [cell.model for cell in dataset.cells] == list(LADDER["synthetic-hard"])
    assert np.sum(part_of(dataset) == "train") == np.sum(part_of(dataset) == "test") == 1000
    accuracy = [
        right(dataset.select(dataset.cell_questions(cell)).matrix).mean()
        for cell in range(len(dataset.cells))
    ]
    np.testing.assert_allclose(accuracy, [0.45, 0.36], atol=0.04)


def test_generated_tasks_ask_fitted_models():
    assert {model for models in LADDER.values() for model in models} <= set(FITTED_MODELS)
    assert len(FITTED_MODELS) == 26
