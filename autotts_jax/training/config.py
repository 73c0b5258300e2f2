"""Training from a configuration file: what is in it, and the run that it makes."""

from __future__ import annotations

import dataclasses
import math
import platform
import tomllib
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
from jaxtyping import Int, PRNGKeyArray

from autotts_jax.core.rollout import Episodes, rollout
from autotts_jax.envs.difficulty import vary_difficulty
from autotts_jax.envs.params import EnvParams
from autotts_jax.envs.targets import poll
from autotts_jax.errors import InputError
from autotts_jax.policies.neural import policy_file
from autotts_jax.policies.neural.actions import HEADS
from autotts_jax.policies.neural.policy import NeuralPolicy, initial_parameters
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.replay.matrix import NONE
from autotts_jax.training.evolution import Evolution, EvolutionSettings
from autotts_jax.training.imitation import CloningSettings, warm_start
from autotts_jax.training.loop import Figures, Outcome, RunSettings, newest_checkpoint, run
from autotts_jax.training.ppo import PPO, PPOSettings
from autotts_jax.training.trainer import Metrics, Trainer, TrainState

PACKAGES = ("autotts-jax", "flax", "jax", "jaxlib", "numpy", "optax", "orbax-checkpoint")

SECTIONS = ("data", "network", "objective", "warm_start", "trainer", "run")
"""Sections of a configuration file."""

TRAINERS: dict[str, tuple[type, Callable[..., Trainer]]] = {
    "evolution": (EvolutionSettings, Evolution),
    "ppo": (PPOSettings, PPO),
}
"""Trainers and their settings by the ``kind`` that names them in ``[trainer]``."""

FOLD_SEED = 0
"""The folds do not depend on the run's seed, so that runs with different seeds have the same ones."""

VALIDATION_SEED = 2**31 - 1
"""Of the branch orders of validation: the same in all runs, and no seed that a run is likely to have."""

VALIDATION_ORDERS = 16
"""Branch orders that a question is validated in."""

VALIDATION_PRICES = 8
"""Values of γ that each of them is played at."""


@dataclasses.dataclass(frozen=True)
class DataSettings:
    """What is trained and validated on.

    Attributes:
        paths: names, files, folders and globs, as ``--data`` takes them; None for the synthetic data.
        encoding: when two answers are equal.
        folds: parts that the distinct questions are dealt into.
        fold: the part that is held out of training and validated on; None to train on all questions, and
            validate on the same ones.
    """

    paths: tuple[str, ...] | None = None
    encoding: Literal["exact", "equiv"] = "exact"
    folds: int = 5
    fold: int | None = None

    def __post_init__(self):
        if self.paths == ():
            raise InputError("paths is empty; name at least one, or leave it out for the synthetic data")
        if self.folds < 2:
            raise InputError(f"folds is {self.folds}, but it must be at least 2")
        if self.fold is not None and not 0 <= self.fold < self.folds:
            raise InputError(f"fold is {self.fold}, but it must be in 0 … {self.folds - 1}")


@dataclasses.dataclass(frozen=True)
class NetworkSettings:
    """The policy.

    Attributes:
        hidden: width of the network's layers.
        actions: what it decides, a key of `HEADS`: all that is done in a round, or one atomic action.
    """

    hidden: int = 16
    actions: Literal["rounds", "atomic"] = "rounds"

    def __post_init__(self):
        if self.hidden < 1:
            raise InputError(f"hidden is {self.hidden}, but it must be at least 1")


@dataclasses.dataclass(frozen=True)
class ObjectiveSettings:
    """What episodes are like, and what they are worth, in training and validation.

    Attributes:
        gamma: lowest and highest γ, the price of an interval.
        reward: a reward of `WidthDepthRounds.make_params`. With ``majority``, validation does without gold
            answers too; with the others it counts what ``outcome`` does.
        voters: branches that vote on what is right with ``majority``; all that are not played when 0. See
            `poll`.
        difficulty_std: how much easier and harder than recorded the questions are, in nats of log-odds; see
            `vary_difficulty`.
    """

    gamma: tuple[float, ...] = (1e-5, 1e-3)
    reward: Literal["outcome", "progress", "regret", "majority"] = "outcome"
    voters: int = 0
    difficulty_std: float = 0.0

    def __post_init__(self):
        if not 0 <= self.difficulty_std < np.inf:
            raise InputError(
                f"difficulty_std is {self.difficulty_std}, but it must be a finite number of at least 0"
            )
        if self.voters < 0:
            raise InputError(f"voters is {self.voters}, but it must be at least 0")
        if self.voters and self.reward != "majority":
            raise InputError(
                f"voters is {self.voters}, but with reward {self.reward!r} nobody votes; leave it out"
            )
        if self.difficulty_std and self.reward == "majority":
            raise InputError(
                f"difficulty_std is {self.difficulty_std}, which takes gold answers to "
                "know the right branches, but reward 'majority' does without; leave one of them out"
            )
        if len(self.gamma) != 2 or not 0 < self.gamma[0] <= self.gamma[1]:
            raise InputError(
                f"gamma is {list(self.gamma)}, but it must be the lowest and the highest price, both positive"
            )


@dataclasses.dataclass(frozen=True)
class Config:
    """What a configuration file says.

    Attributes:
        kind: a key of `TRAINERS`; the file has it in ``[trainer]``.
        data: ``[data]``, what is trained and validated on.
        network: ``[network]``, the policy.
        objective: ``[objective]``, what it is trained for.
        warm_start: ``[warm_start]``, the teachers that it imitates first; None without that section.
        trainer: the rest of ``[trainer]``.
        run: ``[run]``, how long, and how often it is validated.
    """

    kind: str
    data: DataSettings
    network: NetworkSettings
    objective: ObjectiveSettings
    warm_start: CloningSettings | None
    trainer: Any
    run: RunSettings

    def changed(
        self,
        paths: Sequence[str] | None = None,
        seed: int | None = None,
        fold: int | None = None,
        updates: int | None = None,
    ) -> Config:
        """With other data, another seed, fold or number of updates, where they are given.

        Raises:
            InputError: there is no such fold.
        """
        return dataclasses.replace(
            self,
            data=_replace(self.data, paths=tuple(paths) if paths else None, fold=fold),
            run=_replace(self.run, seed=seed, updates=updates),
        )


def _replace(settings: Any, **changes: Any) -> Any:
    """The settings with the changes that are not None."""
    return dataclasses.replace(settings, **{key: v for key, v in changes.items() if v is not None})


def read_config(path: Path) -> Config:
    """Reads a configuration file.

    Raises:
        InputError: the file cannot be read, is not TOML, or has a section, a key or a value that is unknown.
    """
    try:
        sections = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{path}: not TOML: {error}") from None
    for name, section in sections.items():
        if name not in SECTIONS or not isinstance(section, dict):
            known = ", ".join(f"[{section}]" for section in SECTIONS)
            raise InputError(f"{path}: {name} is no section; there are {known}")
    trainer = dict(sections.get("trainer", {}))
    kind = trainer.pop("kind", None)
    if kind not in tuple(TRAINERS):
        raise InputError(
            f"{path}, [trainer]: kind is {kind!r}, but it must be one of {', '.join(map(repr, TRAINERS))}"
        )
    kinds = {
        "data": DataSettings,
        "network": NetworkSettings,
        "objective": ObjectiveSettings,
        "warm_start": CloningSettings,
        "trainer": TRAINERS[kind][0],
        "run": RunSettings,
    }
    tables = {name: sections.get(name, {}) for name in SECTIONS} | {"trainer": trainer}
    made = {name: _settings(f"{path}, [{name}]", kinds[name], tables[name]) for name in SECTIONS}
    if "warm_start" in sections and made["network"].actions == "atomic":
        raise InputError(
            f"{path}, [warm_start]: its teachers decide in rounds, which a policy of atomic actions cannot "
            "imitate; leave the section out, or choose actions = 'rounds' in [network]"
        )
    return Config(kind, **made | ({} if "warm_start" in sections else {"warm_start": None}))


def _settings(place: str, kind: type, table: Mapping[str, Any]) -> Any:
    """A section as the dataclass that describes it."""
    hints = typing.get_type_hints(kind)
    unknown = [key for key in table if key not in hints]
    if unknown:
        raise InputError(f"{place}: there is no key {unknown[0]}; there are {', '.join(hints) or 'none'}")
    for field in dataclasses.fields(kind):
        if field.name not in table and field.default is field.default_factory is dataclasses.MISSING:
            raise InputError(f"{place}: {field.name} is missing; it must be {_words(hints[field.name])}")
    values = {}
    for key, value in table.items():
        try:
            values[key] = _value(value, hints[key])
        except TypeError:
            raise InputError(f"{place}: {key} is {value!r}, but it must be {_words(hints[key])}") from None
    try:
        return kind(**values)
    except InputError as error:
        raise InputError(f"{place}: {error}") from None


def _value(value: Any, hint: Any) -> Any:
    """A TOML value as a field of this type holds it; a TypeError where it does not fit."""
    hint = _without_none(hint)
    if typing.get_origin(hint) is tuple and isinstance(value, list):
        return tuple(_value(item, typing.get_args(hint)[0]) for item in value)
    if typing.get_origin(hint) is Literal and value in typing.get_args(hint):
        return value
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint or (hint is float and not math.isfinite(value)):
        raise TypeError
    return value


def _words(hint: Any) -> str:
    """What a value of this type is called in a message."""
    hint = _without_none(hint)
    if typing.get_origin(hint) is tuple:
        return f"a list, each of it {_words(typing.get_args(hint)[0])}"
    if typing.get_origin(hint) is Literal:
        return f"one of {', '.join(map(repr, typing.get_args(hint)))}"
    return {int: "a whole number", float: "a finite number", bool: "true or false", str: "a string"}[hint]


def _without_none(hint: Any) -> Any:
    """TOML has no None: a key that is left out stands for it."""
    if isinstance(hint, types.UnionType):
        (hint,) = (part for part in typing.get_args(hint) if part is not types.NoneType)
    return hint


def split_folds(dataset: ProbeDataset, folds: int, fold: int | None) -> tuple[ProbeDataset, ProbeDataset]:
    """The questions to train on, and those to validate on.

    Args:
        dataset: at least as many distinct questions as folds.
        folds: number of parts.
        fold: the part that is held out; None to hold out none, and validate on all.

    Raises:
        InputError: a fold would be empty.
    """
    if fold is None:
        return dataset, dataset
    inside = fold_of(dataset, folds) == fold
    return dataset.select(np.flatnonzero(~inside)), dataset.select(np.flatnonzero(inside))


def fold_of(dataset: ProbeDataset, folds: int) -> Int[np.ndarray, " Q"]:
    """The fold of each question, in 0 … folds - 1.

    All copies of a question, one for each model that answered it, are in the same fold. The folds depend on
    the questions' texts alone: not on their order, nor on a run's seed.

    Raises:
        InputError: a fold would be empty.
    """
    texts, text = np.unique([question.text for question in dataset.questions], return_inverse=True)
    if len(texts) < folds:
        raise InputError(
            f"{len(texts)} distinct questions cannot be dealt into {folds} folds; choose at most as many "
            "folds as there are questions, or leave out fold to train on all of them"
        )
    order = np.random.default_rng(FOLD_SEED).permutation(len(texts))
    fold = np.empty(len(texts), int)
    fold[order] = np.arange(len(texts)) % folds
    return fold[text]


def train(
    config: Config,
    dataset: ProbeDataset,
    folder: Path,
    *,
    command: Sequence[str],
    resume: bool = False,
    on_progress: Callable[[int, Figures], None] | None = None,
) -> Outcome:
    """Makes the run that a configuration describes.

    Args:
        config: what to train, on what and how.
        dataset: the questions that its ``[data]`` names.
        folder: the run's folder; see `autotts_jax.training.loop`.
        command: the command line, for the manifest.
        resume: go on from the newest checkpoint.
        on_progress: told of every generation of the warm start's teachers, as update 0, and of every update;
            and what was measured at it.

    Raises:
        InputError: see `run`.
    """
    training, held_out = split_folds(dataset, config.data.folds, config.data.fold)
    manifest = build_manifest(config, dataset, command)
    card = {key: manifest[key] for key in ("config", "data", "versions")}
    return run(
        _Started(config, training, folder, on_progress),
        config.run,
        folder,
        validate=make_validation(config, held_out),
        save_policy=lambda path, policy: policy_file.save_policy(path, policy, card),
        manifest=manifest,
        resume=resume,
        on_progress=on_progress,
    )


class _Started:
    """The configured trainer, made when the run has its folder: a run that goes on needs no warm start."""

    def __init__(self, config: Config, dataset: ProbeDataset, folder: Path, on_progress):
        self._config, self._folder, self._on_progress = config, folder, on_progress
        self._params = _episodes(config, dataset, config.run.seed)

    def init(self, key: PRNGKeyArray) -> TrainState:
        """Starts from the warm start, or from random parameters."""
        own, key = jax.random.split(key)
        config = self._config
        if config.warm_start is None or newest_checkpoint(self._folder):
            start = initial_parameters(config.network.hidden, own, config.network.actions)
        else:
            width = config.trainer.max_branches
            start = warm_start(
                config.warm_start, self._params, width, config.network.hidden, own, self._on_generation
            )
        _, trainer = TRAINERS[config.kind]
        self._trainer: Trainer = trainer(config.trainer, self._params, start)
        return self._trainer.init(key)

    def update(self, state: TrainState) -> tuple[TrainState, Metrics]:
        return self._trainer.update(state)

    def policy(self, state: TrainState) -> Any:
        return self._trainer.policy(state)

    def _on_generation(self, generation: int, objective: float) -> None:
        if self._on_progress:
            self._on_progress(0, {"train/generation": generation, "train/objective": objective})


def make_validation(config: Config, dataset: ProbeDataset) -> Callable[[NeuralPolicy], Figures]:
    """What measures a policy on some questions: its mean over branch orders and prices, always the same."""
    params = _episodes(config, dataset, VALIDATION_SEED)
    orders = params.orders.first(config.trainer.max_branches)
    low, high = config.objective.gamma
    prices = np.geomspace(low, high, VALIDATION_PRICES)
    price, order, question = (
        axis.reshape(-1) for axis in np.indices((len(prices), VALIDATION_ORDERS, len(dataset)))
    )
    targets = dataset.matrix.gold[:, None] if params.targets is None else np.asarray(params.targets)
    target = np.broadcast_to(targets, (len(dataset), orders.num_rows))[question, order]

    def validate(policy: NeuralPolicy) -> Figures:
        policies = [dataclasses.replace(policy, gamma=float(price)) for price in prices]
        episodes = Episodes(question, order, price)
        played = rollout(policies, dataset.matrix, orders, episodes)
        correct = (played.answer == target) & (played.answer != NONE)
        return {
            "objective": float(np.mean(correct - prices[price] * played.intervals)),
            "accuracy": float(correct.mean()),
            "tokens": float(played.tokens.mean()),
        }

    return validate


def _episodes(config: Config, dataset: ProbeDataset, seed: int) -> EnvParams:
    """Episodes over some questions: branch orders, prices, and what counts as right."""
    objective = config.objective
    played = HEADS[config.network.actions].environment(config.trainer.max_branches)
    params = played.make_params(dataset.matrix, gamma=objective.gamma, reward=objective.reward, seed=seed)
    if objective.voters:
        params = poll(params, objective.voters, config.trainer.max_branches)
    return vary_difficulty(params, objective.difficulty_std, seed) if objective.difficulty_std else params


def build_manifest(config: Config, dataset: ProbeDataset, command: Sequence[str]) -> dict[str, Any]:
    """What reproduces a run, and on what it ran."""
    return {
        "command": list(command),
        "config": dataclasses.asdict(config),
        "data": {cell.name: {"source": cell.source, "sha256": cell.sha256} for cell in dataset.cells},
        "versions": {"python": platform.python_version()}
        | {package: metadata.version(package) for package in PACKAGES},
        "devices": [str(device.device_kind) for device in jax.devices()],
    }
