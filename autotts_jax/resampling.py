"""Uncertainty of means over questions: intervals and p-values by bootstrap."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

RESAMPLES = 10_000


def equal_weights(cell: Int[np.ndarray, " Q"]) -> Float[np.ndarray, " Q"]:
    """Weighs questions so that every cell counts the same, however many questions it has.

    Args:
        cell: the cell of each question.

    Returns:
        The weights; they sum to 1.
    """
    _, index, counts = np.unique(cell, return_inverse=True, return_counts=True)
    return 1 / counts[index] / len(counts)


def paired_bootstrap(
    difference: Float[np.ndarray, "*seeds Q"], weight: Float[np.ndarray, " Q"], texts: Sequence[str]
) -> tuple[float, float]:
    """Computes the 95 % interval of a weighted mean difference by resampling questions, and any seeds.

    A question that several models answered is one question: its rows are drawn together. Each axis of seeds
    is resampled independently of the questions and of the other axes, as in the pigeonhole bootstrap (Owen,
    arXiv 0712.1111), so that an episode under another seed never counts as another question.

    Args:
        difference: difference between two controllers on the same episodes, by question, or by seed and
            question.
        weight: what each question counts.
        texts: text of each question, Q of them.
    """
    return interval(resampled_means(difference, weight, texts))


def resampled_means(
    values: Float[np.ndarray, "*seeds Q"], weight: Float[np.ndarray, " Q"], texts: Sequence[str]
) -> Float[np.ndarray, " R"]:
    """Computes the weighted mean of values over each resample of the questions, and of any seeds.

    Args:
        values: values by question, or by seed and question; see `paired_bootstrap`.
        weight: what each question counts.
        texts: text of each question, Q of them.

    Returns:
        `RESAMPLES` means, over the same resamples for the same number of distinct questions.
    """
    distinct, question = np.unique(np.asarray(texts), return_inverse=True)
    *seeds, _ = values.shape
    total = np.zeros((len(distinct), int(np.prod(seeds))))
    np.add.at(total, question, (weight * values).reshape(-1, len(weight)).T)
    mass = np.bincount(question, weights=weight)
    draws = resampled(len(distinct))
    means = (draws @ total / (draws @ mass)[:, None]).reshape(-1, *seeds)
    for axis, count in enumerate(seeds, 1):
        means = np.einsum("rs,rs...->r...", resampled(count, axis) / count, means)
    return means


def interval(means: Float[np.ndarray, " R"]) -> tuple[float, float]:
    """The middle 95 % of resamples."""
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


def p_value(differences: Float[np.ndarray, " R"]) -> float:
    """Computes the two-sided p-value of a mean difference by bootstrap.

    It is below 5 % where the 95 % interval leaves 0 out.

    Args:
        differences: means of resamples.

    Returns:
        Twice the share of resamples on the rarer side of 0, which counts for both, at most 1.
    """
    signs = np.sign(np.round(differences, 12))  # sums in another order differ in their last digits
    rarer = min((signs <= 0).sum(), (signs >= 0).sum())
    return float(min(1.0, 2 * (rarer + 1) / (len(differences) + 1)))


def adjusted_p_values(values: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    """Adjusts p-values for the false discovery rate (Benjamini and Hochberg, 1995).

    As `scipy.stats.false_discovery_control`; importing that takes longer than a small evaluation.

    Args:
        values: the p-values.
    """
    order = np.argsort(-values, kind="stable")
    number = len(values)
    adjusted = np.empty(number)
    adjusted[order] = np.minimum.accumulate(values[order] * number / np.arange(number, 0, -1))
    return np.minimum(adjusted, 1.0)


@functools.lru_cache(maxsize=8)
def resampled(items: int, seed: int = 0) -> Float[np.ndarray, "R N"]:
    """Draws the resamples of a bootstrap over questions or seeds, the same ones every time.

    Args:
        items: N, number of questions or seeds.
        seed: seed of the draws, which differs between what is resampled independently.

    Returns:
        How often each of them is drawn in each of `RESAMPLES` resamples.
    """
    generator = np.random.default_rng(seed)
    return generator.multinomial(items, np.full(items, 1 / items), RESAMPLES).astype(float)
