"""Calibrated labels: how sure the votes of a question are."""

import jax.numpy as jnp
import numpy as np
import pytest

from autotts_jax.policies.neural import calibration
from autotts_jax.replay.dataset import EQUIV, EXACT, Cell, ProbeDataset, Question
from autotts_jax.replay.matrix import NONE, ProbeMatrix

BRANCHES = 40
VOCABULARY = ("right", "wrong", "third", "ERR", "unsaid")


def dataset(finals, lengths, gold, encoding=EXACT) -> ProbeDataset:
    """Branches of which only the end matters."""
    finals, lengths = np.asarray(finals, np.int16), np.asarray(lengths, np.int32)
    answers = np.full((*finals.shape, lengths.max() + 1), NONE, np.int16)
    np.put_along_axis(answers, lengths[..., None], finals[..., None], axis=2)
    questions = len(finals)
    matrix = ProbeMatrix(
        answers=jnp.asarray(answers),
        lengths=jnp.asarray(lengths),
        tokens=jnp.asarray(10 * lengths),
        gold=jnp.asarray(gold, jnp.int16),
        interval=jnp.full(questions, 10, jnp.int32),
        cell=jnp.zeros(questions, jnp.int32),
        vocabulary=len(VOCABULARY),
    )
    texts = tuple(Question(q, f"question {q}", VOCABULARY[gold[q]], VOCABULARY) for q in range(questions))
    return ProbeDataset(matrix, texts, (Cell("m", "b", BRANCHES, "made up", ""),), encoding)


def contested(rng: np.random.Generator, questions: int) -> tuple[np.ndarray, np.ndarray]:
    """Finals and lengths of questions with two answers, one of which is given earlier than the other."""
    share = rng.uniform(0.2, 0.8, (questions, 1))
    finals = (rng.random((questions, BRANCHES)) < share).astype(int)
    late = rng.integers(2, size=(questions, 1)) == finals
    return finals, 1 + rng.integers(10, size=finals.shape) + 10 * late


def test_the_weights_that_labels_were_drawn_with_are_found():
    rng = np.random.default_rng(0)
    finals, lengths = contested(rng, 1500)
    shown = dataset(finals, lengths, np.zeros(1500, int))
    traits = calibration._traits(shown)
    truth = np.exp(calibration._log_likelihoods(np.array([1.5, 2.0, -2.0]), traits))
    label = (truth.cumsum(axis=1) < rng.random((1500, 1))).sum(axis=1)
    gold = np.where(label < len(VOCABULARY), label, VOCABULARY.index("unsaid"))
    found = calibration.likelihoods(dataset(finals, lengths, gold))
    np.testing.assert_allclose(found, truth[:, :-1], atol=0.06)
    assert np.ptp(truth[:, 0]) > 0.8  # so that there was something to find


def test_shares_count_and_early_answers_count_more():
    finals = [[0] * 20 + [1] * 20, [0] * 30 + [1] * 10, [0] * 20 + [1] * 20, [1] * 20 + [0] * 20]
    lengths = np.tile(np.arange(1, BRANCHES + 1), (4, 1))
    lengths[2] = 7
    likely = calibration.likelihoods(dataset(finals, lengths, [0, 0, 0, 0]))
    assert likely[1, 0] > likely[2, 0] > likely[1, 1]
    assert likely[0, 0] > likely[3, 0]
    assert likely[2, 0] == pytest.approx(likely[2, 1])


def test_what_no_branch_gives_and_errors_are_never_right():
    finals = [[0] * 10 + [3] * 30, [0] * 30 + [3] * 10]
    lengths = np.full((2, BRANCHES), 5)
    likely = calibration.likelihoods(dataset(finals, lengths, [0, 0]))
    assert (likely[:, 1:] == 0).all()
    # Errors do not vote, so the other answer has all votes in both.
    assert likely[0, 0] == likely[1, 0] < 1
    nothing = dataset(np.full((1, BRANCHES), NONE), lengths[:1], [0], EQUIV)
    assert (calibration.likelihoods(nothing) == 0).all()
    assert (calibration.draw_labels(nothing, 4, 0) == NONE).all()


def test_gold_answers_that_no_branch_gives_make_all_less_likely():
    finals, lengths = contested(np.random.default_rng(1), 30)
    unsaid = VOCABULARY.index("unsaid")
    known = calibration.likelihoods(dataset(finals, lengths, np.zeros(30, int)))
    unknown = calibration.likelihoods(dataset(finals, lengths, np.full(30, unsaid)))
    assert unknown.sum(axis=1).max() < 0.3 < 0.7 < known.sum(axis=1).min()
    assert (unknown[:, unsaid] == 0).all()


def test_labels_are_drawn_as_often_as_they_are_likely():
    finals, lengths = contested(np.random.default_rng(2), 6)
    shown = dataset(finals, lengths, [0, 1, 0, 0, 1, 4])
    labels = calibration.draw_labels(shown, 20_000, 3)
    assert labels.dtype == np.int16
    counted = np.stack([(labels == answer).mean(axis=1) for answer in range(len(VOCABULARY))], axis=1)
    np.testing.assert_allclose(counted, calibration.likelihoods(shown), atol=0.02)
    assert set(np.unique(labels)) == {NONE, 0, 1}
    np.testing.assert_array_equal(labels, calibration.draw_labels(shown, 20_000, 3))
    assert (labels != calibration.draw_labels(shown, 20_000, 4)).any()
