"""Training a policy from a configuration, in one call."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
from jaxtyping import PRNGKeyArray

from autotts_jax.checks import check_bool, check_callback
from autotts_jax.collect.loading import load
from autotts_jax.core.forks import refuse_forks
from autotts_jax.core.hosts import together
from autotts_jax.errors import InputError
from autotts_jax.files import destination, write_atomically
from autotts_jax.loggers import Logger, check_loggers
from autotts_jax.pages import rendering
from autotts_jax.policies.neural import policy_file
from autotts_jax.policies.neural.policy import NeuralPolicy, Parameters, initial_parameters
from autotts_jax.replay import ProbeDataset
from autotts_jax.replay.scale import Scale
from autotts_jax.training.checkpoints import newest_checkpoint
from autotts_jax.training.config import Config, read_config
from autotts_jax.training.data import make_params, measure_signals, split_questions
from autotts_jax.training.evolution import Evolution, EvolutionSettings
from autotts_jax.training.imitation import warm_start
from autotts_jax.training.loop import run
from autotts_jax.training.manifest import build_manifest
from autotts_jax.training.metrics import read_metrics
from autotts_jax.training.ppo import PPO, PPOSettings
from autotts_jax.training.report import REPORT, training_report
from autotts_jax.training.run_state import RunState
from autotts_jax.training.trainer import Metrics, OnUpdate, Trainer, TrainState
from autotts_jax.training.validation import Validation

TRAINERS: dict[type, Callable[..., Trainer]] = {EvolutionSettings: Evolution, PPOSettings: PPO}
"""Trainers by the class of their settings."""


@dataclasses.dataclass(frozen=True)
class TrainingRun:
    """A run that has ended, or was stopped.

    Attributes:
        folder: the run's folder: ``best.npz``, ``manifest.json``, ``metrics.jsonl``, checkpoints and logs.
        policy: the best policy.
        metrics: its validation metrics, ``objective``, ``accuracy`` and ``tokens``.
        state: where the run stands.
        stopped_by: the signal that stopped the run before its end; None if it came to its end.
    """

    folder: Path
    policy: NeuralPolicy
    metrics: dict[str, float]
    state: RunState
    stopped_by: signal.Signals | None


def train(
    config: Config | str | Path,
    data: ProbeDataset | str | Path | Sequence[str | Path] | None = None,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    seed: int | None = None,
    updates: int | None = None,
    fold: int | None = None,
    loggers: Sequence[str | Logger] = ("tensorboard",),
    on_update: OnUpdate | None = None,
) -> TrainingRun:
    """Trains a policy and keeps the best one of the run; call it from the main thread.

    Ctrl-C or SIGTERM ends the run after the update under way; the same call with ``resume=True`` continues it
    bit for bit. In a run of several processes (`autotts_jax.core.initialize`) each makes the same call.

    A run that ends or is stopped writes ``report.html`` where Altair is installed: its learning curves, and
    how its best policy differs from published controllers, on a page that needs no network.

    Args:
        config: the configuration, or its TOML file.
        data: the questions to train and to validate on: a dataset, or names, files, folders and globs, as
            `autotts_jax.load` takes them. By default those that the configuration names.
        out: the run's folder; ``runs/<name of the file>`` by default.
        resume: continue from the newest checkpoint in the folder.
        seed: seed of the run, in place of the configuration's.
        updates: updates to make, in place of the configuration's.
        fold: fold to hold out for validation, in place of the configuration's.
        loggers: where metrics go besides ``metrics.jsonl``: ``tensorboard``, ``wandb``, ``mlflow``,
            ``trackio``, or objects of your own with ``log(step, metrics)`` and ``close()``.
        on_update: called after every update; and after every generation of the warm start's teachers, as
            update 0 with the metrics ``train/generation`` and ``train/objective``.

    Returns:
        The run.

    Raises:
        InputError: the configuration or the data is wrong; see also `autotts_jax.training.run`.

    Example:
        >>> import autotts_jax as at
        >>> from autotts_jax.training import Config, EvolutionSettings, RunSettings
        >>> config = Config(trainer=EvolutionSettings(max_branches=8), run=RunSettings(updates=3))
        >>> run = at.train(config, "smollm2", out="runs/mine")
        >>> run.state.update, run.stopped_by is None
        (3, True)
        >>> policy, objective = run.policy, run.metrics["objective"]
    """
    refuse_forks()
    if not isinstance(config, Config | str | Path):
        raise InputError(f"config is {config!r:.60}, but it must be a path")
    if out is None:
        if isinstance(config, Config):
            raise InputError("out is missing; give the run's folder, or the configuration as a file")
        out = Path("runs") / Path(config).stem
    folder = destination(out)
    resume = check_bool("resume", resume)
    with together():
        loggers = check_loggers(loggers)
        check_callback("on_update", on_update, "the number of the update", "its metrics")
        settings = config if isinstance(config, Config) else read_config(config)
        paths = None if data is None or isinstance(data, ProbeDataset) else _as_paths(data)
        settings = settings.changed(paths, seed, fold, updates)
        if not isinstance(data, ProbeDataset):
            data = load(settings.data.paths or "synthetic", settings.data.encoding)
        training, held_out = split_questions(data, settings.data)
    manifest = build_manifest(settings, data)
    card = {key: manifest[key] for key in ("config", "data", "versions")}
    validate = Validation(settings, held_out)
    end = run(
        _FromConfig(settings, training, folder, on_update),
        settings.run,
        folder,
        validate=validate,
        save_policy=lambda path, policy: policy_file.save_policy(
            path, dataclasses.replace(policy, trained_on=Scale.of(training.matrix)), card
        ),
        manifest=manifest,
        resume=resume,
        loggers=loggers,
        on_update=on_update,
    )
    policy, _ = policy_file.load_policy(folder)
    metrics = _validation_metrics(folder, end.state)
    if metrics is None:  # the line was damaged and deleted
        metrics = {name: float(value) for name, value in validate(policy).items()}
    with together():
        if jax.process_index() == 0 and rendering.available():
            write_atomically(folder / REPORT, training_report(folder, validate.compare(policy)).encode())
    return TrainingRun(folder, policy, metrics, end.state, end.stopped_by)


class _FromConfig:
    """The configured trainer, made once the run has its folder: a resumed run needs no warm start."""

    def __init__(self, config: Config, dataset: ProbeDataset, folder: Path, on_update: OnUpdate | None):
        self._config, self._folder, self._on_update = config, folder, on_update
        self._params = make_params(config, dataset, config.run.seed)
        self._signal_inputs = measure_signals(dataset.matrix, config.network.signals)
        self._check_memory()

    def init(self, key: PRNGKeyArray) -> TrainState:
        """Starts from the warm start, or from random parameters."""
        own, key = jax.random.split(key)
        config, network, signals = self._config, self._config.network, self._signal_inputs
        if config.warm_start is None or newest_checkpoint(self._folder):
            start = self._random(own)
        else:
            width = config.trainer.max_branches
            start = warm_start(
                config.warm_start, self._params, width, network.hidden, own, self._on_generation, signals
            )
        trainer = TRAINERS[type(config.trainer)]
        self._trainer = trainer(config.trainer, self._params, start, signal_inputs=signals)
        return self._trainer.init(key)

    def _random(self, key: PRNGKeyArray) -> Parameters:
        network = self._config.network
        return initial_parameters(network.hidden, key, network.actions, len(self._signal_inputs))

    def _check_memory(self) -> None:
        """Refuses networks that the machine's memory does not hold, for which XLA would abort."""
        arrays = jax.tree.leaves(jax.eval_shape(self._random, jax.random.key(0)))
        networks = getattr(self._config.trainer, "population", 1)
        needed = networks * sum(array.size * array.dtype.itemsize for array in arrays)
        if needed > (memory := os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")):
            raise InputError(
                f"networks of this size take {needed >> 30} GiB, more than the {memory >> 30} GiB of this "
                "machine; choose a smaller network.hidden or population"
            )

    def update(self, state: TrainState) -> tuple[TrainState, Metrics]:
        return self._trainer.update(state)

    def policy(self, state: TrainState) -> NeuralPolicy:
        return self._trainer.policy(state)

    def _on_generation(self, generation: int, objective: float) -> None:
        if self._on_update:
            self._on_update(0, {"train/generation": generation, "train/objective": objective})


def _as_paths(data: str | Path | Sequence[str | Path]) -> list[str]:
    return [str(data)] if isinstance(data, str | Path) else [str(path) for path in data]


def _validation_metrics(folder: Path, state: RunState) -> dict[str, float] | None:
    """Returns the validation metrics of the best policy; None if ``metrics.jsonl`` lacks them."""
    best = next((line for line in read_metrics(folder) if line["update"] == state.best_update), None)
    if best is None:
        return None
    name = "validation/"
    return {key.removeprefix(name): value for key, value in best.items() if key.startswith(name)}
