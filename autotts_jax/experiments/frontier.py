"""Controllers compared on equal terms: at the same accuracy, at the same cost, and over a whole frontier.

The more settings a controller is swept over, the finer its frontier and the more chances to be lucky: sweep
what is compared over about as many.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from autotts_jax.core.costs import CostName, Spent
from autotts_jax.errors import InputError
from autotts_jax.experiments.summary import ALL_MODELS, Objective, Row
from autotts_jax.policies.player import Play
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.resampling import resampled

REFERENCE = "cmc"
"""The controller that the others are compared with, where it is among them."""

REFERENCE_BRANCHES = 64
"""Areas reach to the tokens of self-consistency with so many branches."""


class Frontier(NamedTuple):
    """The accuracy that is reached with some number of tokens: points in order, each better than the last.

    A copy of the point before it stands in for a setting that another one dominates, so that a batch of
    frontiers ``...`` (one for each resample, say) is one array.

    Attributes:
        tokens: mean tokens per episode. Shape (..., K).
        accuracy: in 0 … 1. Shape (..., K).
    """

    tokens: np.ndarray
    accuracy: np.ndarray


def frontier_of(tokens: np.ndarray, accuracy: np.ndarray) -> Frontier:
    """Computes the monotone upper envelope of K settings, of one controller or of a set of them.

    Args:
        tokens: mean tokens per episode of each setting, in any order. Shape (..., K).
        accuracy: its accuracy, in 0 … 1. Shape (..., K).

    Raises:
        InputError: there is no setting, shapes differ, or a figure is not a number.
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
    reach the accuracy counts as infinite cost, and one in which the cost is too low for it as an accuracy of
    minus infinity. The cost is in tokens unless the objective has another that is not intervals.

    Attributes:
        model: the model, or `ALL_MODELS`.
        benchmark: the benchmark.
        controller: the controller's name; the reference is compared with itself, too.
        reference: the reference's name.
        value: β, γ or number of branches of the reference's setting.
        cost_name: what the cost is: ``tokens``, or another kind of `autotts_jax.core.CostModel`.
        accuracy: of that setting.
        cost: of that setting, mean of an episode.
        cost_at_accuracy: of the controller's frontier at that accuracy.
        cost_ratio: it over that of the reference's frontier; NaN where the accuracy is not reached.
        ratio_low: lower end of its interval.
        ratio_high: upper end of it.
        accuracy_at_cost: of the controller's frontier at the setting's cost.
        accuracy_gain: it minus that of the reference's frontier; NaN where the cost is too low.
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
        reference_cost: C0, mean cost of self-consistency with `REFERENCE_BRANCHES` over branch orders.
    """

    model: str
    benchmark: str
    controller: str
    reference: str
    value: float | None
    cost_name: CostName
    accuracy: float
    cost: float
    cost_at_accuracy: float
    cost_ratio: float
    ratio_low: float
    ratio_high: float
    accuracy_at_cost: float
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
    reference_cost: float


def compare(
    dataset: ProbeDataset, plays: Sequence[Play], rows: Sequence[Row], objective: Objective
) -> Iterator[Comparison]:
    """Compares every swept controller with every setting of the reference, for every model and benchmark.

    A controller is swept if it was played at two values or more. The reference is `REFERENCE` if that is
    swept, else the first that is; regret is against all that are.

    Args:
        dataset: the questions.
        plays: the episodes of each player.
        rows: their summary.
        objective: its cost is compared; tokens where that is in intervals.

    Yields:
        Comparisons in the order of ``rows``, then by controller, the reference first, then by the cost of
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
    if objective.model.kind == "intervals":
        objective = Objective(unit="tokens")
    by_question = {name: _by_question(dataset, plays, objective) for name, plays in swept.items()}
    reference_cost = objective.cost_of(_self_consistency(dataset), dataset)
    values = [value for play in swept[reference] for value in play.player.values]
    for model, benchmark in dict.fromkeys((row.model, row.benchmark) for row in rows):
        yield from _compare_on(
            dataset, by_question, values, reference_cost, model, benchmark, objective.model.kind
        )


def _compare_on(
    dataset: ProbeDataset,
    by_question: Mapping[str, tuple[np.ndarray, np.ndarray]],
    values: Sequence[float | None],
    reference_costs: np.ndarray,
    model: str,
    benchmark: str,
    cost_name: CostName,
) -> Iterator[Comparison]:
    """The comparisons on one model, or on the mean of them; the first controller is the reference."""
    reference = next(iter(by_question))
    questions, weights = _question_weights(dataset, model, benchmark)
    settings = {name: _settings(*of, questions, weights) for name, of in by_question.items()}
    frontiers = {name: frontier_of(*figures) for name, figures in settings.items()}
    reference_cost = float(weights[0] @ reference_costs[questions])
    areas = _areas(frontiers, reference, reference_cost)
    cost, accuracy = settings[reference]
    for name, frontier in frontiers.items():
        for setting in np.argsort(cost[0], kind="stable"):
            yield Comparison(
                model,
                benchmark,
                name,
                reference,
                values[setting],
                cost_name,
                accuracy=float(accuracy[0, setting]),
                cost=float(cost[0, setting]),
                **_at_accuracy(frontier, frontiers[reference], accuracy[:, setting]),
                **_at_cost(frontier, frontiers[reference], cost[:, setting]),
                **areas[name],
                envelope=", ".join(frontiers),
                reference_cost=reference_cost,
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


def _by_question(
    dataset: ProbeDataset, plays: Sequence[Play], objective: Objective
) -> tuple[np.ndarray, np.ndarray]:
    """Cost and accuracy of every setting of a controller, means over seeds. Shape (V, Q) each."""
    cost = [objective.cost(play, dataset).mean(axis=1) for play in plays]
    return np.concatenate(cost), np.concatenate([play.correct.mean(axis=1) for play in plays])


def _settings(
    cost: np.ndarray, correct: np.ndarray, questions: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Cost and accuracy of every setting of a controller. Shape (1 + RESAMPLES, V) each."""

    def means(by_question: np.ndarray, digits: int) -> np.ndarray:
        figures = weights @ by_question[:, questions].T
        # Rounded, for what is equal is to be matched whatever the order of the sums.
        return np.round(figures, digits - math.ceil(math.log10(figures.max() or 1)))

    return means(cost, 12), np.round(weights @ correct[:, questions].T, 12)


def _self_consistency(dataset: ProbeDataset) -> Spent:
    """What `REFERENCE_BRANCHES` whole branches spend, mean over branch orders. Shape (Q,).

    As many tokens one after another as the longest branch of a question has.
    """
    matrix = dataset.matrix
    branches = np.array([cell.num_branches for cell in dataset.cells])[np.asarray(matrix.cell)]
    recorded, interval = np.asarray(matrix.tokens), np.asarray(matrix.interval)
    tokens = REFERENCE_BRANCHES * recorded.sum(axis=1) / branches
    intervals = REFERENCE_BRANCHES * (np.asarray(matrix.lengths) + 1).sum(axis=1) / branches
    return Spent(
        tokens=tokens,
        sequential_tokens=recorded.max(axis=1),
        intervals=intervals,
        probes=REFERENCE_BRANCHES,
        branches=REFERENCE_BRANCHES,
        interval=interval,
        longest=interval * matrix.max_depth,
    )


def _areas(
    frontiers: Mapping[str, Frontier], reference: str, reference_cost: float
) -> dict[str, dict[str, float]]:
    """Hypervolume of each controller, against that of the reference, and regret."""
    areas = {name: hypervolume(of, reference_cost) for name, of in frontiers.items()}
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
            "regret": controller_regret(of, best, reference_cost),
        }
        for name, of in played.items()
    }


def _at_accuracy(frontier: Frontier, reference: Frontier, accuracy: np.ndarray) -> dict[str, float]:
    """Cost at matched accuracy (1 + RESAMPLES,), against that of the reference."""
    cost = tokens_at(frontier, accuracy)
    with np.errstate(invalid="ignore", divide="ignore"):  # a budget may leave no tokens at all
        ratio = cost / tokens_at(reference, accuracy)
    low, high = _interval(np.nan_to_num(ratio[1:], nan=np.inf))
    return {
        "cost_at_accuracy": float(cost[0]),
        "cost_ratio": float(ratio[0]),
        "ratio_low": low,
        "ratio_high": high,
    }


def _at_cost(frontier: Frontier, reference: Frontier, cost: np.ndarray) -> dict[str, float]:
    """Accuracy at matched cost (1 + RESAMPLES,), against that of the reference."""
    accuracy = accuracy_at(frontier, cost)
    gain = accuracy - accuracy_at(reference, cost)
    low, high = _interval(np.nan_to_num(gain[1:], nan=-np.inf))
    return {
        "accuracy_at_cost": float(accuracy[0]),
        "accuracy_gain": float(gain[0]),
        "gain_low": low,
        "gain_high": high,
    }


def _interval(resampled: np.ndarray) -> tuple[float, float]:
    """The middle 95 %; the quantiles are resamples themselves, because infinities have no mean."""
    low, high = np.quantile(resampled, (0.025, 0.975), method="inverted_cdf")
    return float(low), float(high)
