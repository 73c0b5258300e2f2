"""Aggregations: how the answers of branches become the final answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autotts_jax.checks import check_callback
from autotts_jax.core.view import View
from autotts_jax.core.votes import Vote
from autotts_jax.envs import observations
from autotts_jax.envs.observations import Tracker
from autotts_jax.errors import InputError

Aggregate = Callable[[View, Tracker], Vote]
"""Agg: the vote whose winner is the final answer."""


def majority(view: View, tracker: Tracker) -> Vote:
    """Holds the vote of the active branches' finals; while there is none, of their latest answers.

    Ties go to the final that was revealed first, and among latest answers to the branch opened first.
    """
    counts = observations.vote_counts(view, tracker)
    return counts.finals.or_else(counts.latest)


def latest(view: View, tracker: Tracker) -> Vote:  # noqa: ARG001
    """Holds the vote of the active branches' latest answers, finals or not."""
    return view.vote(view.active)


AGGREGATES: dict[str, Aggregate] = {"majority": majority, "latest": latest}
"""Aggregations of the final answer by name."""


def find_aggregate(aggregate: Any) -> Aggregate:
    """Finds an aggregation by name.

    Raises:
        InputError: it is neither.
    """
    if callable(aggregate):
        check_callback("aggregate", aggregate, "the view", "the tracker")
        return aggregate
    if not isinstance(aggregate, str) or aggregate not in AGGREGATES:
        raise InputError(
            f"unknown aggregation {aggregate!r:.60}; choose one of {', '.join(AGGREGATES)}, or give a "
            "function of the view and the tracker"
        )
    return AGGREGATES[aggregate]
