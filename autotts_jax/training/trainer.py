"""What a trainer is: the contract between the algorithms that fit a policy and the runs that drive them."""

from __future__ import annotations

from typing import Any, Protocol

from jaxtyping import PRNGKeyArray

from autotts_jax.typing import Array

TrainState = Any
"""A pytree of arrays that holds everything: parameters, optimiser, environments, key data, step."""

Metrics = dict[str, Array]
"""Scalars by name."""


class Trainer(Protocol):
    """An algorithm bound to its data and its settings.

    Its methods are pure: the same state gives the same update, so that a run that was stopped goes on from a
    stored state as if nothing had happened. Random keys are in the state as key data.
    """

    def init(self, key: PRNGKeyArray) -> TrainState:
        """The state before the first update."""

    def update(self, state: TrainState) -> tuple[TrainState, Metrics]:
        """One update, and what it measured on the training questions."""

    def policy(self, state: TrainState) -> Any:
        """The policy that the state stands for: a pytree."""
