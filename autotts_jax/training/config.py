"""Configurations: what to train, on what and how, from a TOML file or from Python."""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pydantic

from autotts_jax.checks import check_int
from autotts_jax.core.costs import CostModel, CostName
from autotts_jax.errors import DataError, InputError
from autotts_jax.files import read_bytes
from autotts_jax.parsing import parse_toml
from autotts_jax.replay.signals import signal_names
from autotts_jax.terminal import quoted
from autotts_jax.training.evolution import EvolutionSettings
from autotts_jax.training.imitation import WarmStartSettings
from autotts_jax.training.ppo import PPOSettings
from autotts_jax.training.run_state import RunSettings
from autotts_jax.training.settings import MAX_SIZE, Settings


@dataclasses.dataclass(frozen=True)
class DataSettings(Settings):
    """The questions to train and to validate on.

    Attributes:
        paths: names, files, folders and globs, as ``--data`` takes them; None for the synthetic data.
        encoding: when two answers are equal.
        folds: parts that the distinct questions are dealt into.
        fold: the part that is held out of training and validated on; None to train and validate on all
            questions.
        split: train on the benchmark's part ``train`` and validate on ``validation``, in place of folds; see
            `autotts_jax.replay.part_of`.
    """

    paths: tuple[str, ...] | None = None
    encoding: Literal["exact", "equiv"] = "exact"
    folds: int = 5
    fold: int | None = None
    split: bool = False

    def __post_init__(self) -> None:
        if self.paths == ():
            raise InputError("paths is empty; name at least one, or leave it out for the synthetic data")
        if self.folds < 2:
            raise InputError(f"folds is {self.folds}, but it must be at least 2")
        if self.fold is not None and not 0 <= self.fold < self.folds:
            raise InputError(f"fold is {self.fold}, but it must be in 0 … {self.folds - 1}")
        if self.split and self.fold is not None:
            raise InputError(
                f"split is true and fold is {self.fold}, but only one of them can hold questions out; leave "
                "the other out"
            )


@dataclasses.dataclass(frozen=True)
class NetworkSettings(Settings):
    """What the policy's network is like.

    Attributes:
        hidden: width of the network's layers.
        actions: what the network decides, a key of `HEADS`: a whole round, or one atomic action.
        signals: names of the signals that the network reads of each branch.
    """

    hidden: int = 16
    actions: Literal["rounds", "atomic"] = "rounds"
    signals: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_int("hidden", self.hidden, 1, MAX_SIZE)
        object.__setattr__(self, "signals", signal_names(self.signals))


@dataclasses.dataclass(frozen=True)
class ObjectiveSettings(Settings):
    """What episodes are like and what they are worth, in training and in validation.

    Attributes:
        gamma: lowest and highest γ, the price of an interval.
        reward: a reward of `WidthDepthRounds.make_params`. Validation counts what is right by ``majority`` if
            that is the reward, and by the gold answers otherwise.
        voters: with ``majority``, branches that vote on the target; 0 for all that are not played. See
            `poll`.
        difficulty_std: standard deviation of the questions' difficulty around the recorded one, in nats of
            log-odds; see `vary_difficulty`.
        cost: what an episode costs, a kind of `autotts_jax.core.CostModel`, in training, warm start and
            validation. Costs other than intervals are counted in that of a lone first interval.
        hardware: the machine; see `autotts_jax.core.CostModel`, as for the following. For ``latency``,
            ``flops``, ``kv`` and ``usd`` alone.
        cost_model: the model whose size counts, or whose price; None for the model that each cell is of.
        batch: sequences that the machine decodes at once.
        prefix_cached: whether prefixes of branches are kept.
    """

    gamma: tuple[float, float] = (1e-5, 1e-3)
    reward: Literal["outcome", "progress", "regret", "majority"] = "outcome"
    voters: int = 0
    difficulty_std: float = 0.0
    cost: CostName = "intervals"
    hardware: str = CostModel.hardware  # type: ignore[assignment]
    cost_model: str | None = None
    batch: int | None = None
    prefix_cached: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.gamma[0] <= self.gamma[1]:
            raise InputError(
                f"gamma is {list(self.gamma)}, but it must be the lowest and the highest γ, both positive"
            )
        try:
            charged = self.cost_charged
        except InputError as error:
            raise InputError(f"cost is {self.cost!r}, but {error}") from error
        if self.cost in ("intervals", "tokens") and charged != CostModel(self.cost):
            raise InputError(
                f"cost is {self.cost!r}, which does not depend on hardware, cost_model, batch or "
                "prefix_cached; leave them out, or choose latency, flops, kv or usd"
            )
        if self.voters < 0:
            raise InputError(f"voters is {self.voters}, but it must be at least 0")
        if self.voters and self.reward != "majority":
            raise InputError(
                f"voters is {self.voters}, but with reward {self.reward!r} no branches vote; leave it out"
            )
        if not 0 <= self.difficulty_std < np.inf:
            raise InputError(
                f"difficulty_std is {self.difficulty_std}, but it must be a finite number of at least 0"
            )
        if self.difficulty_std and self.reward == "majority":
            raise InputError(
                f"difficulty_std is {self.difficulty_std}, which needs gold answers, but reward 'majority' "
                "has none; leave one of them out"
            )

    @property
    def cost_charged(self) -> CostModel:
        """The cost model that the settings describe."""
        return CostModel(self.cost, self.hardware, self.cost_model, self.batch, self.prefix_cached)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """A configuration: what to train, on what and how.

    Attributes:
        trainer: ``[trainer]``, the algorithm; its ``kind`` in a file is ``evolution`` or ``ppo``.
        run: ``[run]``, length of the run, and how often it is validated.
        data: ``[data]``, the questions to train and to validate on.
        network: ``[network]``, the policy.
        objective: ``[objective]``, what it is trained for.
        warm_start: ``[warm_start]``, how it first imitates tuned code controllers; None without the section,
            to start from random parameters.
    """

    trainer: Annotated[EvolutionSettings | PPOSettings, pydantic.Discriminator("kind")]
    run: RunSettings
    data: DataSettings = DataSettings()
    network: NetworkSettings = NetworkSettings()
    objective: ObjectiveSettings = ObjectiveSettings()
    warm_start: WarmStartSettings | None = None

    def __post_init__(self) -> None:
        if self.warm_start is not None and self.network.actions == "atomic":
            raise InputError(
                "warm_start is given, but its teachers decide in rounds, which a policy of atomic actions "
                "cannot imitate; leave the section out, or choose network.actions = 'rounds'"
            )
        if self.warm_start is not None and self.warm_start.until_peak and self.objective.cost != "intervals":
            raise InputError(
                "warm_start.until_peak is true, which weighs intervals, but objective.cost is "
                f"{self.objective.cost!r}; leave one of them out"
            )

    def changed(
        self,
        paths: Sequence[str] | None = None,
        seed: int | None = None,
        fold: int | None = None,
        updates: int | None = None,
    ) -> Config:
        """Returns the configuration with other values where they are given.

        Args:
            paths: other data.
            seed: another seed of the run.
            fold: another fold to hold out.
            updates: another number of updates.

        Raises:
            InputError: a value is out of range.
        """
        return dataclasses.replace(
            self,
            data=_replace(self.data, paths=tuple(paths) if paths else None, fold=fold),
            run=_replace(self.run, seed=seed, updates=updates),
        )


def _replace(settings: Any, **changes: Any) -> Any:
    """Returns the settings with the changes that are not None."""
    return dataclasses.replace(settings, **{key: v for key, v in changes.items() if v is not None})


MAX_BYTES = 2**20
"""The largest configuration file that is read."""

SETTINGS: dict[str, type] = {
    "data": DataSettings,
    "network": NetworkSettings,
    "objective": ObjectiveSettings,
    "warm_start": WarmStartSettings,
    "run": RunSettings,
    "evolution": EvolutionSettings,
    "ppo": PPOSettings,
}
"""Settings by section, and those of ``[trainer]`` by kind."""


def read_config(path: str | Path) -> Config:
    """Reads a configuration file.

    Args:
        path: the file, in TOML.

    Returns:
        The configuration.

    Raises:
        InputError: the file cannot be read, is not TOML, or has an unknown section or key, or a wrong value.
    """
    try:
        # As JSON, where pydantic's strict types do not ask for tuples and dataclasses.
        tables = json.dumps(parse_toml(read_bytes(path, MAX_BYTES)), default=str)
    except DataError:
        raise
    except ValueError as error:
        raise DataError(path, f"not TOML: {quoted(error)}; fix it") from None
    try:
        return pydantic.TypeAdapter(Config).validate_json(tables)
    except pydantic.ValidationError as error:
        wrong = "; ".join(_message(dict(part)) for part in error.errors(include_url=False))
        raise InputError(f"{path}: {quoted(wrong, 2000)}") from None


def _message(error: Mapping[str, Any]) -> str:
    """Says what is wrong with which key, ``section.key``."""
    kind, place = error["type"], [str(part) for part in error["loc"]]
    owner = SETTINGS[place[-2]] if len(place) > 1 and place[-2] in SETTINGS else Config
    # The kind of a trainer is a part of the place, but not of the file.
    name = ".".join(part for part in place if part not in ("evolution", "ppo"))
    if kind == "value_error":
        return f"{name}.{error['ctx']['error']}".removeprefix(".")
    if kind == "missing":
        return f"{name} is missing; add it"
    if kind == "unexpected_keyword_argument":
        known = [field.name for field in dataclasses.fields(owner)]
        nearest = difflib.get_close_matches(place[-1], known, n=1)
        hint = f"did you mean {nearest[0]}" if nearest else f"known are {', '.join(known)}"
        return f"{name} is unknown; {hint}"
    if kind == "union_tag_not_found":
        return f"{name}.kind is missing; add kind = 'evolution' or kind = 'ppo'"
    if kind == "union_tag_invalid":
        return f"{name}.kind is {error['ctx']['tag']!r}, but it must be {error['ctx']['expected_tags']}"
    return f"{name} is {error['input']!r}: {error['msg'][0].lower()}{error['msg'][1:]}"
