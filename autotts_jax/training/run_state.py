"""How long a run is, and where it stands."""

from __future__ import annotations

import dataclasses

from autotts_jax.checks import check_float, check_int
from autotts_jax.errors import InputError
from autotts_jax.training.settings import Settings

MAX_SEED = 2**32 - 1


@dataclasses.dataclass(frozen=True)
class RunSettings(Settings):
    """Length of a run, and how often it is validated and saved.

    Attributes:
        updates: updates of a run that is not stopped early; 0 keeps the policy that it starts with.
        validate_every: updates between two validations; the last update is always validated.
        checkpoint_every: updates between two checkpoints; a run that ends writes one too.
        patience: validations in a row without a better objective that end the run; None for never.
        seed: seed of the trainer's first key.
    """

    updates: int
    validate_every: int = 10
    checkpoint_every: int = 10
    patience: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("updates", 0), ("validate_every", 1), ("checkpoint_every", 1), ("patience", 1)):
            value = getattr(self, name)
            if value is not None or name != "patience":
                check_int(name, value, least)
        check_int("seed", self.seed, 0, MAX_SEED)


@dataclasses.dataclass(frozen=True)
class RunState:
    """Where a run stands.

    Attributes:
        update: updates made.
        best_objective: the best validation objective; None before the first validation.
        best_update: the update that reached it; None before the first validation.
        validations_since_best: validations after that one.
        seconds: wall time, over all starts of the run.

    Raises:
        InputError: a value is out of range.
    """

    update: int = 0
    best_objective: float | None = None
    best_update: int | None = None
    validations_since_best: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        check_int("update", self.update)
        check_int("validations_since_best", self.validations_since_best)
        check_float("seconds", self.seconds, 0)
        if (self.best_objective is None) != (self.best_update is None):
            raise InputError("best_objective and best_update are not of one validation")
        if self.best_update is not None:
            check_int("best_update", self.best_update, 0, self.update)

    def validated(self, objective: float) -> RunState:
        """Returns the state after a validation.

        Args:
            objective: the validation objective.
        """
        if self.best_objective is None or objective > self.best_objective:
            return dataclasses.replace(
                self, best_objective=objective, best_update=self.update, validations_since_best=0
            )
        return dataclasses.replace(self, validations_since_best=self.validations_since_best + 1)

    def stops_early(self, settings: RunSettings) -> bool:
        """Tells whether the run's patience is used up.

        Args:
            settings: the run's settings.
        """
        return settings.patience is not None and self.validations_since_best >= settings.patience

    def ends(self, settings: RunSettings) -> bool:
        """Tells whether the run makes no further update.

        Args:
            settings: the run's settings.
        """
        return self.update >= settings.updates or self.stops_early(settings)
