"""Controllers compared on equal terms: at the same accuracy, at the same tokens, and over a whole frontier.

The more settings a controller is swept over, the finer its frontier and the more chances to be lucky: sweep
what is compared over about as many.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from autotts_jax.errors import InputError
from autotts_jax.experiments.summary import ALL_MODELS, Row, resampled
from autotts_jax.policies.player import Play
from autotts_jax.replay.dataset import ProbeDataset

REFERENCE = "cmc"
"""The controller that the others are compared with, where it is among them."""

REFERENCE_BRANCHES = 64
"""Areas reach to the tokens of self-consistency with so many branches."""


class Frontier(NamedTuple):
    """The accuracy that is reached with some number of tokens: points in order, each better than the last.

    A copy of the point before it stands in for a setting that another one dominates, so that a batch of
    frontiers ``...`` (one for each resample, say) is one array.

    Attributes:
        tokens: mean tokens an episode. Shape (..., K).
        accuracy: in 0 … 1. Shape (..., K).
    """

    tokens: np.ndarray
    accuracy: np.ndarray


def frontier_of(tokens: np.ndarray, accuracy: np.ndarray) -> Frontier:
    """Computes the monotone upper envelope of K settings, of one controller or of a set of them.

    Args:
        tokens: mean tokens an episode of each setting, in any order. Shape (..., K).
        accuracy: its accuracy, in 0 … 1. Shape (..., K).

    Raises:
        InputError: there is no setting, shapes differ, or a figure is no number.
    """
    tokens, accuracy = np.asarray(tokens, float), np.asarray(accuracy, float)
    if tokens.shape != accuracy.shape or not tokens.ndim or not tokens.shape[-1]:
        raise InputError(
            f"tokens of shape {tokens.shape} and accuracies of shape {accuracy.shape} make no frontier; give "
            "one of each for every setting, and at least one setting"
        )
    for name, figures, most in (("tokens", tokens, np.inf), ("accuracy", accuracy, 1 + 1e-9)):
        if not (np.isfinite(figures) & (figures >= 0) & (figures <= most)).all():
            raise InputError(
                f"a frontier's {name} must be finite and at least 0, and accuracies at most 1; got {figures}"
            )
    order = np.lexsort((-accuracy, tokens))
    tokens, accuracy = (np.take_along_axis(figures, order, -1) for figures in (tokens, accuracy))
    best_before = np.maximum.accumulate(accuracy, -1)[..., :-1]
    first = np.ones_like(accuracy[..., :1], bool)
    kept = np.concatenate([first, accuracy[..., 1:] > best_before], -1)
    point = np.maximum.accumulate(np.where(kept, np.arange(kept.shape[-1]), 0), -1)
    return Frontier(np.take_along_axis(tokens, point, -1), np.take_along_axis(accuracy, point, -1))


def tokens_at(frontier: Frontier, accuracy: np.ndarray | float) -> np.ndarray:
    """Computes the tokens at matched accuracy, interpolated linearly between settings.

    Args:
        frontier: a batch of frontiers.
        accuracy: the accuracy to reach. Shape (...).

    Returns:
        The tokens, shape (...): NaN beyond the frontier's best accuracy, and the tokens of its first point
        where even that is more accurate, because nothing cheaper was played.
    """
    found = _interpolate(frontier.accuracy, frontier.tokens, accuracy)
    return np.where(np.asarray(accuracy) <= frontier.accuracy[..., -1], found, np.nan)


def accuracy_at(frontier: Frontier, tokens: np.ndarray | float) -> np.ndarray:
    """Computes the accuracy at matched tokens, interpolated linearly between settings.

    Args:
        frontier: a batch of frontiers.
        tokens: the tokens to spend. Shape (...).

    Returns:
        The accuracy, shape (...): NaN below the frontier's fewest tokens, and its best accuracy beyond its
        most, because tokens need not be spent.
    """
    found = _interpolate(frontier.tokens, frontier.accuracy, tokens)
    return np.where(np.asarray(tokens) >= frontier.tokens[..., 0], found, np.nan)


def _interpolate(x: np.ndarray, y: np.ndarray, at: np.ndarray | float) -> np.ndarray:
    """Linear in x, the first or the last y outside; x and y (..., K) ascend together."""
    x, y, at = np.broadcast_arrays(x, y, np.asarray(at, float)[..., None])
    at = at[..., :1]
    above = np.minimum((x < at).sum(-1, keepdims=True), x.shape[-1] - 1)
    below = np.maximum(above - 1, 0)
    x0, x1, y0, y1 = (np.take_along_axis(of, index, -1) for of in (x, y) for index in (below, above))
    share = np.clip(np.where(x1 > x0, (at - x0) / np.where(x1 > x0, x1 - x0, 1), 0), 0, 1)
    return ((1 - share) * y0 + share * y1)[..., 0]


def hypervolume(frontier: Frontier, tokens: float) -> np.ndarray:
    """Computes the area between a frontier and the point (``tokens``, 0), as a share of 1 · ``tokens``.

    The frontier is a step function here, as in `controller_regret`: c tokens reach what the best setting of
    at most c tokens reached, and nothing below the first. So a setting that is added never takes area away.

    Args:
        frontier: a batch of frontiers.
        tokens: of the reference point; settings that need more do not count.

    Returns:
        Shape (...), in 0 … 1.
    """
    _check_reference(tokens)
    ends = np.append(frontier.tokens, np.full_like(frontier.tokens[..., :1], tokens), axis=-1)
    widths = np.diff(np.minimum(ends, tokens), axis=-1)
    return (widths * frontier.accuracy).sum(-1) / tokens


def controller_regret(frontier: Frontier, best: Frontier, tokens: float) -> float:
    """Computes the regret of a controller π, (1/C0)·∫ max(0, J*(C) - J_π(C)) dC over C from 0 to C0.

    It is the accuracy that a user of π misses. J* and J_π are step functions, as in `hypervolume`. The
    definition is MRT's cumulative regret, against code controllers in place of an oracle.

    Args:
        frontier: of the controller π. Shape (K,).
        best: J*, `frontier_of` all settings of a named set of controllers on the same seeds. Shape (M,).
        tokens: C0.
    """
    _check_reference(tokens)
    ends = np.unique(np.minimum([0.0, *frontier.tokens, *best.tokens, tokens], tokens))

    def reached(by: Frontier) -> np.ndarray:
        return np.append(0, by.accuracy)[np.searchsorted(by.tokens, ends[:-1], side="right")]

    missed = np.maximum(0, reached(best) - reached(frontier))
    return float(missed @ np.diff(ends) / tokens)


def _check_reference(tokens: float) -> None:
    if not 0 < tokens < np.inf:
        raise InputError(f"the reference tokens are {tokens}, but they must be a finite number above 0")


# --- the controllers of an evaluation -------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A swept controller against a setting of the reference controller, on a model and benchmark.

    Intervals hold 95 % of the resamples of a paired bootstrap over questions: both frontiers and the
    setting's figures are made again from the same questions. A resample in which the controller does not
    reach the accuracy counts as infinite tokens, and one in which the tokens are too few for
    it as an accuracy of minus infinity.

    Attributes:
        model: the model, or `ALL_MODELS`.
        benchmark: the benchmark.
        controller: the controller's name; the reference is compared with itself, too.
        reference: the reference's name.
        value: β, γ or number of branches of the reference's setting.
        accuracy: of that setting.
        tokens: of that setting, mean of an episode.
        tokens_at_accuracy: of the controller's frontier at that accuracy.
        tokens_ratio: these over those of the reference's frontier; NaN where the accuracy is not reached.
        ratio_low: lower end of its interval.
        ratio_high: upper end of it.
        accuracy_at_tokens: of the controller's frontier at the setting's tokens.
        accuracy_gain: it minus that of the reference's frontier; NaN with too few tokens.
        gain_low: lower end of its interval.
        gain_high: upper end of it.
        hypervolume: of the controller's frontier against (C0, 0), in 0 … 1.
        hypervolume_low: lower end of its interval.
        hypervolume_high: upper end of it.
        hypervolume_gain: it minus that of the reference's frontier.
        hypervolume_gain_low: lower end of its interval.
        hypervolume_gain_high: upper end of it.
        regret: of the controller against ``envelope``, in 0 … 1.
        envelope: the controllers whose settings make J*.
        reference_tokens: C0, mean tokens of self-consistency with `REFERENCE_BRANCHES` over branch orders.
    """

    model: str
    benchmark: str
    controller: str
    reference: str
    value: float | None
    accuracy: float
    tokens: float
    tokens_at_accuracy: float
    tokens_ratio: float
    ratio_low: float
    ratio_high: float
    accuracy_at_tokens: float
    accuracy_gain: float
    gain_low: float
    gain_high: float
    hypervolume: float
    hypervolume_low: float
    hypervolume_high: float
    hypervolume_gain: float
    hypervolume_gain_low: float
    hypervolume_gain_high: float
    regret: float
    envelope: str
    reference_tokens: float


def compare(dataset: ProbeDataset, plays: Sequence[Play], rows: Sequence[Row]) -> Iterator[Comparison]:
    """Compares every swept controller with every setting of the reference, for every model and benchmark.

    A controller is swept if it was played at two values or more. The reference is `REFERENCE` if that is
    swept, else the first that is; regret is against all that are.

    Args:
        dataset: the questions.
        plays: the episodes of each player.
        rows: their summary.

    Yields:
        Comparisons in the order of ``rows``, then by controller, the reference first, then by the tokens of
        its setting; none where fewer than two controllers are swept.
    """
    by_name: dict[str, list[Play]] = {}
    for play in plays:
        by_name.setdefault(play.player.name, []).append(play)
    swept = {name: of for name, of in by_name.items() if sum(len(play.player.values) for play in of) > 1}
    if len(swept) < 2:
        return
    reference = REFERENCE if REFERENCE in swept else next(iter(swept))
    swept = {reference: swept.pop(reference)} | swept
    for model, benchmark in dict.fromkeys((row.model, row.benchmark) for row in rows):
        yield from _compare_on(dataset, swept, model, benchmark)


def _compare_on(
    dataset: ProbeDataset, swept: Mapping[str, Sequence[Play]], model: str, benchmark: str
) -> Iterator[Comparison]:
    """The comparisons on one model, or on the mean of them; the first of ``swept`` is the reference."""
    reference = next(iter(swept))
    questions, weights = _question_weights(dataset, model, benchmark)
    settings = {name: _settings(plays, questions, weights) for name, plays in swept.items()}
    frontiers = {name: frontier_of(*figures) for name, figures in settings.items()}
    reference_tokens = float(weights[0] @ _self_consistency_tokens(dataset)[questions])
    areas = _areas(frontiers, reference, reference_tokens)
    values = [value for play in swept[reference] for value in play.player.values]
    tokens, accuracy = settings[reference]
    for name, frontier in frontiers.items():
        for setting in np.argsort(tokens[0], kind="stable"):
            yield Comparison(
                model,
                benchmark,
                name,
                reference,
                values[setting],
                accuracy=float(accuracy[0, setting]),
                tokens=float(tokens[0, setting]),
                **_at_accuracy(frontier, frontiers[reference], accuracy[:, setting]),
                **_at_tokens(frontier, frontiers[reference], tokens[:, setting]),
                **areas[name],
                envelope=", ".join(frontiers),
                reference_tokens=reference_tokens,
            )


def _question_weights(dataset: ProbeDataset, model: str, benchmark: str) -> tuple[np.ndarray, np.ndarray]:
    """The questions of a benchmark, and what they count in a mean: as they are, then in each resample.

    Every model counts the same, and a question that several models answered is drawn for all of them.

    Returns:
        Positions in the data set, shape (Q,), and weights that add up to 1, shape (1 + RESAMPLES, Q).
    """
    columns = [
        dataset.cell_questions(index)
        for index, cell in enumerate(dataset.cells)
        if cell.benchmark == benchmark and model in (cell.model, ALL_MODELS)
    ]
    questions = np.concatenate(columns)
    weight = np.concatenate([np.full(len(column), 1 / len(column)) for column in columns])
    distinct, text = np.unique([dataset.questions[q].text for q in questions], return_inverse=True)
    drawn = np.vstack([np.ones(len(distinct)), resampled(len(distinct))])
    weights = drawn[:, text] * weight
    return questions, weights / weights.sum(-1, keepdims=True)


def _settings(
    plays: Sequence[Play], questions: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and accuracy of every setting of a controller. Shape (1 + RESAMPLES, V) each."""

    def means(name: str, decimals: int) -> np.ndarray:
        by_question = np.concatenate([getattr(play, name).mean(axis=1) for play in plays])
        # Rounded, for what is equal is to be matched whatever the order of the sums.
        return np.round(weights @ by_question[:, questions].T, decimals)

    return means("tokens", 6), means("correct", 12)


def _self_consistency_tokens(dataset: ProbeDataset) -> np.ndarray:
    """Tokens of `REFERENCE_BRANCHES` whole branches, mean over branch orders. Shape (Q,)."""
    branches = np.array([cell.num_branches for cell in dataset.cells])[np.asarray(dataset.matrix.cell)]
    return REFERENCE_BRANCHES * np.asarray(dataset.matrix.tokens).sum(axis=1) / branches


def _areas(
    frontiers: Mapping[str, Frontier], reference: str, reference_tokens: float
) -> dict[str, dict[str, float]]:
    """Hypervolume of each controller, against that of the reference, and regret."""
    areas = {name: hypervolume(of, reference_tokens) for name, of in frontiers.items()}
    gains = {name: area - areas[reference] for name, area in areas.items()}
    intervals = {name: (*_interval(areas[name][1:]), *_interval(gain[1:])) for name, gain in gains.items()}
    played = {name: Frontier(*(figures[0] for figures in of)) for name, of in frontiers.items()}
    best = frontier_of(*(np.concatenate(figures) for figures in zip(*played.values(), strict=True)))
    return {
        name: {
            "hypervolume": float(areas[name][0]),
            "hypervolume_low": intervals[name][0],
            "hypervolume_high": intervals[name][1],
            "hypervolume_gain": float(gains[name][0]),
            "hypervolume_gain_low": intervals[name][2],
            "hypervolume_gain_high": intervals[name][3],
            "regret": controller_regret(of, best, reference_tokens),
        }
        for name, of in played.items()
    }


def _at_accuracy(frontier: Frontier, reference: Frontier, accuracy: np.ndarray) -> dict[str, float]:
    """Tokens at matched accuracy (1 + RESAMPLES,), against those of the reference."""
    tokens = tokens_at(frontier, accuracy)
    with np.errstate(invalid="ignore", divide="ignore"):  # a budget may leave no tokens at all
        ratio = tokens / tokens_at(reference, accuracy)
    low, high = _interval(np.nan_to_num(ratio[1:], nan=np.inf))
    return {
        "tokens_at_accuracy": float(tokens[0]),
        "tokens_ratio": float(ratio[0]),
        "ratio_low": low,
        "ratio_high": high,
    }


def _at_tokens(frontier: Frontier, reference: Frontier, tokens: np.ndarray) -> dict[str, float]:
    """Accuracy at matched tokens (1 + RESAMPLES,), against that of the reference."""
    accuracy = accuracy_at(frontier, tokens)
    gain = accuracy - accuracy_at(reference, tokens)
    low, high = _interval(np.nan_to_num(gain[1:], nan=-np.inf))
    return {
        "accuracy_at_tokens": float(accuracy[0]),
        "accuracy_gain": float(gain[0]),
        "gain_low": low,
        "gain_high": high,
    }


def _interval(resampled: np.ndarray) -> tuple[float, float]:
    """The middle 95 %; the quantiles are resamples themselves, because infinities have no mean."""
    low, high = np.quantile(resampled, (0.025, 0.975), method="inverted_cdf")
    return float(low), float(high)
