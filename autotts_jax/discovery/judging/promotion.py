"""Promotion: whether what a search finds is better on questions that it has not used.

For each price the setting is chosen on the questions of the search, for the candidate and for the incumbent
alike, and what they gain is counted on the others; so no maximum is taken over what is counted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.stats
from jaxtyping import Bool, Float, Int

from autotts_jax.discovery.judging.judge import Outcome, price
from autotts_jax.experiments.frontier import accuracy_at, frontier_of, tokens_at
from autotts_jax.intervals import Questions, Uncertain

NUM_PRICES = 16
"""Prices at which candidate and incumbent are compared."""

ERROR_RATE = 0.05
"""The chance that a run promotes what is no better, over all of its tests."""

LATER = 0.2
"""Share of the error rate that is kept for the tests after the next, because few runs are continued."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The result of a test.

    Attributes:
        gain: mean objective of the candidates minus that of the incumbent, on questions that were left out.
        low: lower bound of the gain over questions; minus infinity where they are too few.
        level: the probability that a candidate without a gain has a lower bound above 0.
        falls: values of β from which the final candidate's mean tokens fall to the next by more than chance.
        tokens: its mean tokens at each β.
        tokens_se: their standard errors over questions.
        gains: gain on each question, by the candidate of the search that left it out.
        matched_tokens: see `matched`; None where the accuracy is not reached.
        matched_accuracy: see `matched`; None where all settings cost more.
    """

    gain: float
    low: float
    level: float
    falls: tuple[float, ...]
    tokens: tuple[float, ...]
    tokens_se: tuple[float, ...]
    gains: tuple[float, ...]
    matched_tokens: tuple[float | None, ...]
    matched_accuracy: tuple[float | None, ...]

    @property
    def promotes(self) -> bool:
        """Whether the candidate takes the incumbent's place."""
        return self.low > 0 and not self.falls

    def to_json(self) -> dict[str, Any]:
        """Returns the verdict as a JSON object."""
        return {**dataclasses.asdict(self), "promotes": self.promotes}


def level_of(test: int) -> float:
    """Returns the error rate of one test; those of a run add up to at most `ERROR_RATE`."""
    return ERROR_RATE * (1 - LATER) * LATER ** (test - 1)


def objectives(outcome: Outcome, used: Bool[np.ndarray, " Q"]) -> Float[np.ndarray, "P unused"]:
    """Computes a candidate's objective at each price on questions that its search has not used.

    Returns:
        Its objective on the other questions in order, at `NUM_PRICES` prices.
    """
    prices = price(np.linspace(0, 1, NUM_PRICES))
    objective = outcome.accuracy[0] - prices[:, None, None] * outcome.cost[0]
    setting = objective[:, :, used].mean(axis=2).argmax(axis=1)
    return np.take_along_axis(objective, setting[:, None, None], axis=1)[:, 0, ~used]


def gains(
    candidate: Outcome, incumbent: Outcome, used: Bool[np.ndarray, " Q"]
) -> Float[np.ndarray, " unused"]:
    """Computes what a candidate gains on each question that its search has not used.

    Args:
        candidate: one candidate's outcome on all Q questions.
        incumbent: the incumbent's.
        used: the questions that the search has used.

    Returns:
        Gains in the objective, means over prices, of the other questions in order.
    """
    return (objectives(candidate, used) - objectives(incumbent, used)).mean(axis=0)


def gain_over(gain: Float[np.ndarray, "*S Q"], group: Int[np.ndarray, " Q"]) -> Uncertain:
    """Infers a mean gain over questions."""
    return Questions(np.ones(len(group)), [f"{number:09}" for number in group]).gain(gain)


def falls(cost: Float[np.ndarray, "B Q"], betas: Sequence[float]) -> tuple[float, ...]:
    """Finds where mean tokens fall though β rises, by more than chance.

    Returns:
        The values of β from which to the next they fall.
    """
    rises = np.diff(cost, axis=0)
    error = rises.std(axis=1, ddof=1) / np.sqrt(rises.shape[1]) if rises.shape[1] > 1 else 0 * rises[:, 0]
    z = scipy.stats.norm.ppf(1 - ERROR_RATE)
    steps = zip(betas, rises.mean(axis=1), error, strict=False)
    return tuple(beta for beta, rise, se in steps if rise < -z * se)


class LeftOut(NamedTuple):
    """What the search that leaves out a fold has found.

    Attributes:
        outcome: its best candidate's, on all Q questions.
        used: the questions that it has used. Shape (Q,).
        group: the same number for the same question asked of several models. Shape (Q,).
    """

    outcome: Outcome
    used: Bool[np.ndarray, " Q"]
    group: Int[np.ndarray, " Q"]


def mean_objective(outcomes: Sequence[Outcome], left_out: Sequence[LeftOut]) -> float:
    """Computes a mean objective on the questions that searches left out; see `objectives`."""
    reached = [objectives(outcome, of.used) for outcome, of in zip(outcomes, left_out, strict=True)]
    return float(np.concatenate(reached, axis=1).mean())


def matched(
    left_out: Sequence[LeftOut], incumbent: Outcome
) -> tuple[Float[np.ndarray, " S"], Float[np.ndarray, " S"]]:
    """Compares what searches have found with the incumbent at its accuracies and at its tokens.

    Each question is counted once, with the candidate of the search that left it out.

    Returns:
        Tokens at the accuracy of each of the incumbent's settings, as a share of its own, NaN where that
        accuracy is not reached; and accuracy at its tokens less its own, NaN where all settings cost more.
    """
    accuracy, cost = (
        np.concatenate([getattr(of.outcome, name)[0][:, ~of.used] for of in left_out], axis=1).mean(axis=1)
        for name in ("accuracy", "cost")
    )
    found = frontier_of(cost, accuracy)
    theirs = incumbent.accuracy[0].mean(axis=1), incumbent.cost[0].mean(axis=1)
    shares = [float(tokens_at(found, accuracy)) / cost for accuracy, cost in zip(*theirs, strict=True)]
    more = [float(accuracy_at(found, cost)) - accuracy for accuracy, cost in zip(*theirs, strict=True)]
    return np.array(shares), np.array(more)


def judge(
    left_out: Sequence[LeftOut],
    incumbent: Outcome,
    final: Outcome,
    betas: Sequence[float],
    unit: float,
    test: int,
) -> Verdict:
    """Gives the verdict of a test."""
    level = level_of(test)
    cost = final.cost[0]
    parts = [gains(of.outcome, incumbent, of.used) for of in left_out]
    gain = np.concatenate(parts)
    group = np.concatenate([of.group[~of.used] for of in left_out])
    by_question = np.zeros(len(gain))
    for of, part in zip(left_out, parts, strict=True):
        by_question[~of.used] = part
    shares, more = (_numbers(of) for of in matched(left_out, incumbent))
    return Verdict(
        gain=float(gain.mean()),
        low=gain_over(gain, group).lower(level),
        level=level,
        falls=falls(cost, betas),
        tokens=tuple(map(float, cost.mean(axis=1) * unit)),
        tokens_se=tuple(map(float, cost.std(axis=1, ddof=1) * unit / np.sqrt(cost.shape[1]))),
        gains=tuple(round(float(of), 6) for of in by_question),
        matched_tokens=shares,
        matched_accuracy=more,
    )


def _numbers(values: Float[np.ndarray, " S"]) -> tuple[float | None, ...]:
    """The values for JSON, which has no NaN."""
    return tuple(None if np.isnan(value) else round(float(value), 4) for value in values)
