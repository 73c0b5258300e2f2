"""Labels that are as sure as a question's votes are.

Which of two controllers is better on thirty questions is decided by the few whose votes are contested, and a
controller that is fitted to their gold answers learns these by heart. A conditional logit (McFadden, 1974)
learns three weights from all of them, of all models together: how likely is an answer right that a share s of
the branches end with, these being the first to finish at t = -1 and the last at t = 1?

    P(a) ∝ exp(α·log s_a - β·t_a),    P(no branch's answer) ∝ exp(δ)

Labels that are drawn from it say what can be said of other questions, too.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int16
from scipy.optimize import minimize
from scipy.special import log_softmax
from scipy.stats import rankdata

from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.replay.matrix import NONE
from autotts_jax.replay.statistics import error_ids

PRIOR = (1.0, 0.0, -3.0)
"""Means of α, β and δ before any question is seen, each with a standard deviation of 1."""


def draw_labels(dataset: ProbeDataset, rows: int, seed: int) -> Int16[np.ndarray, "Q R"]:
    """A label for each order of each question's branches, drawn from `likelihoods`.

    It is `NONE` where none that a branch gives is right.

    Args:
        dataset: the questions, with their gold answers.
        rows: R.
        seed: what is drawn with.
    """
    drawn = np.random.default_rng(seed).random((len(dataset), rows))
    up_to = np.cumsum(likelihoods(dataset), axis=1)
    label = np.stack([np.searchsorted(row, of, side="right") for row, of in zip(up_to, drawn, strict=True)])
    return np.where(label < up_to.shape[1], label, NONE).astype(np.int16)


def likelihoods(dataset: ProbeDataset) -> Float[np.ndarray, "Q V"]:
    """How likely each answer of each question is right, as far as votes can tell."""
    traits = _traits(dataset)
    gold = np.asarray(dataset.matrix.gold)
    question = np.arange(len(gold))
    # The last column of likelihoods stands for all that no branch gives.
    right = np.where(np.isfinite(traits[question, gold, 0]) & (gold != NONE), gold, -1)

    def surprise(weights):
        logs = _log_likelihoods(weights, traits)[question, right]
        return 0.5 * np.sum((weights - PRIOR) ** 2) - np.sum(logs)

    return np.exp(_log_likelihoods(minimize(surprise, PRIOR).x, traits))[:, :-1]


def _log_likelihoods(
    weights: Float[np.ndarray, "3"], traits: Float[np.ndarray, "Q V 2"]
) -> Float[np.ndarray, "Q V+1"]:
    share, late, none = weights
    given = np.isfinite(traits[..., 0])
    scores = np.full(given.shape, -np.inf)
    scores[given] = share * traits[given, 0] - late * traits[given, 1]
    return log_softmax(np.pad(scores, ((0, 0), (0, 1)), constant_values=none), axis=1)


def _traits(dataset: ProbeDataset) -> Float[np.ndarray, "Q V 2"]:
    """The log of s, and t, of each answer; the log is -∞ where no branch ends with it."""
    matrix = dataset.matrix
    finals, lengths = np.asarray(matrix.finals()), np.asarray(matrix.lengths)
    errors = error_ids(dataset, np.arange(len(dataset)))
    traits = np.zeros((len(dataset), matrix.vocabulary, 2))
    traits[..., 0] = -np.inf
    for question, (final, length, error) in enumerate(zip(finals, lengths, errors, strict=True)):
        voters = (length > 0) & (final != NONE) & (final != error)
        late = (2 * rankdata(length[voters]) - 1) / max(voters.sum(), 1) - 1
        for answer in np.unique(final[voters]):
            gives = final[voters] == answer
            traits[question, answer] = np.log(gives.mean()), late[gives].mean()
    return traits
