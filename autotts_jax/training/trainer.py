"""The contract between the algorithms that fit a policy and the run that drives them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from jaxtyping import PRNGKeyArray

from autotts_jax.typing import Array

TrainState = Any
"""A pytree of arrays that holds everything: parameters, optimiser, environments, key data, step."""

Metrics = dict[str, Array | float]
"""Scalars by name."""

OnUpdate = Callable[[int, dict[str, float]], None]
"""Called after every update of a run with its number and its metrics, ``train/…`` and ``validation/…``."""


class Trainer(Protocol):
    """An algorithm bound to its data and its settings.

    Its methods are pure: the same state gives the same update, so that a run resumes from a stored state as
    if it had never stopped. Random keys are in the state as key data.
    """

    def init(self, key: PRNGKeyArray) -> TrainState:
        """Makes the state before the first update.

        Args:
            key: the key that everything is drawn with.
        """

    def update(self, state: TrainState) -> tuple[TrainState, Metrics]:
        """Makes one update.

        Args:
            state: the state before it, whose memory the update may reuse.

        Returns:
            The state after it, and what it measured on the training questions.
        """

    def policy(self, state: TrainState) -> Any:
        """Returns the policy of a state, a pytree.

        Args:
            state: the state.
        """
