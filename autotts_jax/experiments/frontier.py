"""Controllers compared on equal terms: at the same accuracy, at the same cost, and over a whole frontier.

The more settings a controller is swept over, the finer its frontier and the more chances to be lucky: sweep
what is compared over about as many.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from autotts_jax.core.costs import CostName, Spent
from autotts_jax.errors import InputError
from autotts_jax.experiments.summary import Objective, Setting, groups, questions_at, settings_of
from autotts_jax.intervals import Questions, reach
from autotts_jax.policies.player import Play
from autotts_jax.replay.dataset import ProbeDataset

REFERENCE = "cmc"
"""The controller that the others are compared with, where it is among them."""

BOUNDS = {(False, False): "", (True, False): "at most", (False, True): "at least", (True, True): "none"}
"""What a ratio bounds, by whether the controller and the reference are too accurate at their cheapest."""

Interval = Callable[[np.ndarray], tuple[float, float]]
"""Gives the ends of an interval of a figure from it and its draws."""

REFERENCE_BRANCHES = 64
"""Areas reach to the tokens of self-consistency with so many branches, or with all that there are."""


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

    Intervals hold 95 % and are over questions, each with its recorded branches (`Questions`): both frontiers
    and the setting's figures are made again from the same weights of questions. A draw in which the
    controller does not reach the accuracy counts as infinite cost, and one in which the cost is too low for
    it as an accuracy of minus infinity. With too few questions they are NaN. The cost is in tokens unless the
    objective has another that is not intervals.

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
        ratio_bound: ``at most`` where even the controller's cheapest setting is more accurate, so that a
            cheaper one, which was not played, might do; ``at least`` where that is so of the reference's;
            ``none`` where of both, and the ratio says nothing; else empty, and it is the ratio itself.
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
        reference_cost: C0, mean cost of self-consistency with ``reference_branches`` over branch orders.
        reference_branches: `REFERENCE_BRANCHES`, or as many as a question has, where these are fewer.
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
    ratio_bound: str
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
    reference_branches: int


def compare(
    dataset: ProbeDataset, plays: Sequence[Play], objective: Objective, probe_tokens: int = 0
) -> Iterator[Comparison]:
    """Compares every swept controller with every setting of the reference, for every model and benchmark.

    A controller is swept if it was played at two values or more. The reference is `REFERENCE` if that is
    swept, else the first that is; regret is against all that are.

    Yields:
        Comparisons in the order of `groups`, then by controller, the reference first, then by the cost of its
        setting; none where fewer than two controllers are swept.
    """
    if objective.model.kind == "intervals":
        objective = Objective(unit="tokens")
    by_name: dict[str, list[Setting]] = {}
    for setting in settings_of(dataset, plays, objective, probe_tokens):
        by_name.setdefault(setting.controller, []).append(setting)
    swept = {name: of for name, of in by_name.items() if len(of) > 1}
    if len(swept) < 2:
        return
    reference = REFERENCE if REFERENCE in swept else next(iter(swept))
    swept = {reference: swept.pop(reference)} | swept
    by_question = {
        name: Sweep(*(np.stack([getattr(one, of).mean(axis=0) for one in settings]) for of in Sweep._fields))
        for name, settings in swept.items()
    }
    branches = np.array([min(cell.num_branches, REFERENCE_BRANCHES) for cell in dataset.cells])[
        np.asarray(dataset.matrix.cell)
    ]
    reference_cost = objective.cost_of(_self_consistency(dataset, branches, probe_tokens), dataset)
    values = [setting.value for setting in swept[reference]]
    for benchmark, model, positions in groups(dataset):
        questions = questions_at(dataset, positions)
        played = {
            name: Sweep(*(questions.means(figures[:, positions]) for figures in of))
            for name, of in by_question.items()
        }
        yield from _compare_on(
            questions,
            played,
            values,
            float(questions.weight @ reference_cost[positions]),
            int(branches[positions].max()),
            model,
            benchmark,
            objective.model.kind,
        )


class Sweep(NamedTuple):
    """Means over seeds of every setting of a controller.

    Attributes:
        cost: cost of an episode. Shape (V, J) by question, (..., V) over questions.
        correct: accuracy. The same shape.
    """

    cost: np.ndarray
    correct: np.ndarray


def _compare_on(
    questions: Questions,
    by_question: Mapping[str, Sweep],
    values: Sequence[float | None],
    reference_cost: float,
    reference_branches: int,
    model: str,
    benchmark: str,
    cost_name: CostName,
) -> Iterator[Comparison]:
    """The comparisons on one model, or on the mean of them; the first controller is the reference."""
    reference, its_sweep = next(iter(by_question.items()))
    own = {name: _drawn(questions, sweep, (0, 1), (1, 1)) for name, sweep in by_question.items()}
    played = {name: frontier_of(sweep.cost[0], sweep.correct[0]) for name, sweep in own.items()}
    best = frontier_of(*(np.concatenate(figures) for figures in zip(*played.values(), strict=True)))
    interval = _unknown if questions.few else _interval
    for name, sweep in by_question.items():
        if name == reference:
            mine = its = own[name]
        else:
            far = reach(sweep.correct.mean(axis=0) - its_sweep.correct.mean(axis=0)) / 2
            mine = _drawn(questions, sweep, (0.5 - far, 0.5 + far), _ends_of_cost(sweep, its_sweep))
            its = _drawn(questions, its_sweep, (0.5 + far, 0.5 - far), (1, 1))
        frontier, its_frontier = frontier_of(*mine), frontier_of(*its)
        area = hypervolume(frontier_of(*own[name]), reference_cost)
        gain = hypervolume(frontier, reference_cost) - hypervolume(its_frontier, reference_cost)
        low, high = interval(area)
        gain_low, gain_high = interval(gain)
        for setting in np.argsort(its.cost[0], kind="stable"):
            yield Comparison(
                model,
                benchmark,
                name,
                reference,
                values[setting],
                cost_name,
                accuracy=float(its.correct[0, setting]),
                cost=float(its.cost[0, setting]),
                **_at_accuracy(frontier, its_frontier, its.correct[:, setting], interval),
                **_at_cost(frontier, its_frontier, its.cost[:, setting], interval),
                hypervolume=float(area[0]),
                hypervolume_low=low,
                hypervolume_high=high,
                hypervolume_gain=float(gain[0]),
                hypervolume_gain_low=gain_low,
                hypervolume_gain_high=gain_high,
                regret=controller_regret(played[name], best, reference_cost),
                envelope=", ".join(by_question),
                reference_cost=reference_cost,
                reference_branches=reference_branches,
            )


def _ends_of_cost(sweep: Sweep, reference: Sweep) -> tuple[float, float]:
    """The worst and the best that a question costs, against the reference and as a multiple of the mean."""
    mine, its = sweep.cost.mean(axis=0), reference.cost.mean(axis=0)
    if not its.all() or not mine.any():
        return 1.0, 1.0  # a budget may leave no tokens at all
    ratio = mine / its / (mine.mean() / its.mean())
    return float(ratio.max()), float(ratio.min())


def _drawn(
    questions: Questions, sweep: Sweep, correct: tuple[float, float], cost: tuple[float, float]
) -> Sweep:
    """Cost and accuracy of every setting under each draw, the questions as they are first."""

    def means(of: np.ndarray, unseen: np.ndarray) -> np.ndarray:
        return questions.weights @ np.hstack([of, unseen]).T

    costs = means(sweep.cost, sweep.cost.mean(axis=1, keepdims=True) * cost)
    accuracy = means(sweep.correct, np.broadcast_to(correct, (len(sweep.correct), 2)))
    # Rounded, for what is equal is to be matched whatever the order of the sums.
    digits = 12 - math.ceil(math.log10(costs.max() or 1))
    return Sweep(np.round(costs, digits), np.round(accuracy, 12))


def _self_consistency(dataset: ProbeDataset, branches: np.ndarray, probe_tokens: int) -> Spent:
    """What so many whole branches spend, mean over branch orders. Shape (Q,).

    As many tokens one after another as the longest branch of a question has.
    """
    matrix = dataset.matrix
    there = np.array([cell.num_branches for cell in dataset.cells])[np.asarray(matrix.cell)]
    recorded, interval = np.asarray(matrix.tokens), np.asarray(matrix.interval)
    tokens = branches * (recorded.sum(axis=1) / there + probe_tokens)
    intervals = branches * (np.asarray(matrix.lengths) + 1).sum(axis=1) / there
    return Spent(
        tokens=tokens,
        sequential_tokens=recorded.max(axis=1),
        intervals=intervals,
        probes=branches,
        branches=branches,
        interval=interval,
        longest=interval * matrix.max_depth,
    )


def _at_accuracy(
    frontier: Frontier, reference: Frontier, accuracy: np.ndarray, interval: Interval
) -> dict[str, Any]:
    """Cost at matched accuracy (1 + R,), against that of the reference."""
    cost = tokens_at(frontier, accuracy)
    with np.errstate(invalid="ignore", divide="ignore"):  # a budget may leave no tokens at all
        ratio = cost / tokens_at(reference, accuracy)
    low, high = interval(np.nan_to_num(ratio, nan=np.inf))
    beyond = bool(accuracy[0] < frontier.accuracy[0, 0]), bool(accuracy[0] < reference.accuracy[0, 0])
    return {
        "cost_at_accuracy": float(cost[0]),
        "cost_ratio": float(ratio[0]),
        "ratio_bound": BOUNDS[beyond],
        "ratio_low": low,
        "ratio_high": high,
    }


def _at_cost(frontier: Frontier, reference: Frontier, cost: np.ndarray, interval: Interval) -> dict[str, Any]:
    """Accuracy at matched cost (1 + R,), against that of the reference."""
    accuracy = accuracy_at(frontier, cost)
    gain = accuracy - accuracy_at(reference, cost)
    low, high = interval(np.nan_to_num(gain, nan=-np.inf))
    return {
        "accuracy_at_cost": float(accuracy[0]),
        "accuracy_gain": float(gain[0]),
        "gain_low": low,
        "gain_high": high,
    }


def _interval(draws: np.ndarray) -> tuple[float, float]:
    """The middle 95 %, and the figure itself, which comes first.

    The quantiles are draws themselves, because infinities have no mean.
    """
    low, high = np.quantile(draws[1:], (0.025, 0.975), method="inverted_cdf")
    return float(min(low, draws[0])), float(max(high, draws[0]))


def _unknown(_: np.ndarray) -> tuple[float, float]:
    """What the interval is where there are too few questions to claim anything."""
    return math.nan, math.nan
