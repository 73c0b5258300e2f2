"""Runs of a trainer that can be stopped, resumed bit for bit, watched and reproduced.

A run's folder holds

- ``manifest.json``: what the run is made of, how it ended and how long it took;
- ``best.npz``: the policy with the best validation objective so far;
- ``metrics.jsonl``: one line an update, with its metrics as ``train/…`` and ``validation/…``;
- ``tensorboard/``: the same as TensorBoard event files, one for each start of the run with this logger;
- ``checkpoints/<update>/``: the newest checkpoints of the train state, the best policy and the `RunState`.

The processes of ``jax.distributed`` make a run together: each calls `run` in the same way, process 0 writes,
and all read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from autotts_jax.core.hosts import largest, together
from autotts_jax.errors import InputError
from autotts_jax.files import locked
from autotts_jax.loggers import Logger
from autotts_jax.policies.neural.policy_file import BEST
from autotts_jax.training.checkpoints import Checkpoints, newest_checkpoint
from autotts_jax.training.manifest import check_shared, close_manifest, open_folder
from autotts_jax.training.metrics import MetricsLog
from autotts_jax.training.run_state import RunSettings, RunState
from autotts_jax.training.trainer import OnUpdate, Trainer
from autotts_jax.typing import Array


@dataclasses.dataclass(frozen=True)
class RunEnd:
    """How a run ended.

    Attributes:
        state: where it ended.
        stopped_by: the signal that stopped it before its end; None if it came to its end.
    """

    state: RunState
    stopped_by: signal.Signals | None


def run(
    trainer: Trainer,
    settings: RunSettings,
    folder: Path,
    *,
    validate: Callable[[Any], Mapping[str, Any]],
    save_policy: Callable[[Path, Any], None],
    manifest: Mapping[str, Any],
    resume: bool = False,
    loggers: Sequence[str | Logger] = ("tensorboard",),
    on_update: OnUpdate | None = None,
) -> RunEnd:
    """Trains to the end, or until SIGTERM or Ctrl-C; call it from the main thread.

    The start is update 0, validated and kept like any other. From then on the first signal lets the update
    under way finish and writes a checkpoint, and a second one acts at once. Of several processes, a signal to
    one ends all after the same update.

    Args:
        trainer: the trainer.
        settings: length and seed of the run.
        folder: the run's folder; made for a new run.
        validate: measures a policy on questions that it is not trained on, with the same result for the same
            policy every time. Its ``objective`` is maximised.
        save_policy: writes a policy to a file whose name ends in ``.npz``.
        manifest: what is needed to reproduce the run, as a JSON object. A run is only resumed with the same
            ``config`` and ``data``.
        resume: continue from the newest checkpoint.
        loggers: where metrics go besides ``metrics.jsonl``, as `train` takes them.
        on_update: called after every update.

    Returns:
        How the run ended.

    Raises:
        InputError: the folder already holds a run, or none to resume, or another process trains into it; the
            configuration or the data differs; a checkpoint is damaged or does not fit; training has diverged,
            or is not called from the main thread; a file cannot be written; another process has failed, sees
            another folder or has another configuration.
    """
    if threading.current_thread() is not threading.main_thread():
        raise InputError("training waits for signals, which the main thread alone can do; call it from there")
    writes = jax.process_index() == 0
    try:
        with contextlib.ExitStack() as opened:
            with together():
                if writes:
                    if folder.exists() or not resume:
                        opened.enter_context(locked(folder))
                    open_folder(folder, manifest, resume=resume)
            check_shared(folder, manifest)
            with together():
                checkpoints = opened.enter_context(Checkpoints(folder, writes=writes))
            training = _Training(trainer, settings, folder, checkpoints, validate, save_policy)
            received = opened.enter_context(_signals_kept())
            with together():
                log = opened.enter_context(MetricsLog(folder, training.first, loggers)) if writes else None
            training.record(log, training.started, checkpoint=True)
            while not training.state.ends(settings) and not received():
                metrics = training.update()
                due = training.state.update % settings.checkpoint_every == 0
                training.record(log, metrics, checkpoint=due)
                if on_update is not None:
                    on_update(training.state.update, metrics)
            training.record(log, {}, checkpoint=True)
            state = training.state
            stopped_by = None if state.ends(settings) else signal.Signals(received())
            with together():
                if writes:
                    close_manifest(folder, state, _ended(state, settings, stopped_by))
            return RunEnd(state, stopped_by)
    except OSError as error:
        raise InputError(
            f"writing the run to {folder} failed: {error.strerror or error}; check the disk, and resume it"
        ) from error


class _Training:
    """What a run holds in memory: the train state, the best policy and the run's state.

    Attributes:
        state: the run's state.
        started: the metrics of the start; empty if the run continues from a checkpoint.
    """

    def __init__(
        self,
        trainer: Trainer,
        settings: RunSettings,
        folder: Path,
        checkpoints: Checkpoints,
        validate: Callable[[Any], Mapping[str, Any]],
        save_policy: Callable[[Path, Any], None],
    ):
        self._trainer = trainer
        self._settings = settings
        self._folder = folder
        self._checkpoints = checkpoints
        self._validate = validate
        self._save_policy = save_policy
        self._train_state = trainer.init(jax.random.key(settings.seed))
        self._best = self._policy()
        self._written: Any = None  # the file that is there may be of a later update
        self.started: dict[str, float] = {}
        with together():
            stored = checkpoints.load((self._train_state, self._best))
        if stored is not None:
            self.state, (self._train_state, self._best) = stored
        else:
            # The start counts: a warm one may be better than what training makes of it.
            self.started = _floats("validation", validate(self._best))
            _check_finite(folder, 0, self.started)
            self.state = RunState().validated(self.started["validation/objective"])
        self._began = time.monotonic() - self.state.seconds

    @property
    def first(self) -> int:
        """The first update whose metrics are still to come."""
        return 0 if self.started else self.state.update + 1

    def update(self) -> dict[str, float]:
        """Makes one update, validates it where that is due, and returns the metrics."""
        settings = self._settings
        self._train_state, measured = self._trainer.update(self._train_state)
        update = self.state.update + 1
        policy = self._policy()
        metrics = _floats("train", jax.device_get(measured))
        _check_finite(self._folder, update, metrics, policy)
        state = dataclasses.replace(self.state, update=update)
        if update % settings.validate_every == 0 or update == settings.updates:
            validated = _floats("validation", self._validate(policy))
            _check_finite(self._folder, update, validated)
            metrics |= validated
            state = state.validated(metrics["validation/objective"])
            if state.best_update == update:
                self._best = policy
        self.state = dataclasses.replace(state, seconds=time.monotonic() - self._began)
        return metrics

    def record(self, log: MetricsLog | None, metrics: dict[str, float], *, checkpoint: bool) -> None:
        """Writes the best policy if it is new, the metrics if there are any, and a checkpoint."""
        tree = jax.tree.map(_whole, (self._train_state, self._best)) if checkpoint else None
        with together():
            if log is None:
                return
            if self._written is not self._best:
                self._write_best()
            if metrics:
                log.write(self.state.update, metrics)
            if checkpoint:
                self._checkpoints.save(self.state, tree)

    def _policy(self) -> Any:
        """Returns the policy on the host: the next update may reuse the memory of the train state."""
        return jax.device_get(self._trainer.policy(self._train_state))

    def _write_best(self) -> None:
        partial = self._folder / f".partial-{BEST}"
        self._save_policy(partial, self._best)
        partial.replace(self._folder / BEST)
        self._written = self._best


@contextlib.contextmanager
def _signals_kept() -> Iterator[Callable[[], int]]:
    """Keeps the first SIGINT or SIGTERM; the next one of the kind acts as ever.

    Yields:
        A function that returns the signal that any of the processes has received, 0 for none; all processes
        have to call it.
    """
    received: list[int] = []

    def keep(number: int, _frame: object) -> None:
        received.append(number)
        signal.signal(number, before[signal.Signals(number)])

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        signal.signal(number, keep)
    try:
        yield lambda: largest(max(received, default=0))
    finally:
        for number in numbers:
            signal.signal(number, before[number])


def _ended(state: RunState, settings: RunSettings, stopped_by: signal.Signals | None) -> str:
    if stopped_by:
        return stopped_by.name
    return "early stopping" if state.stops_early(settings) else "all updates made"


def _floats(kind: str, metrics: Mapping[str, Any]) -> dict[str, float]:
    return {f"{kind}/{name}": float(value) for name, value in metrics.items()}


def _check_finite(folder: Path, update: int, metrics: dict[str, float], policy: Any = None) -> None:
    """Raises an `InputError` where a loss, the validation objective or a parameter is not finite."""
    # Other metrics may be undefined, as the explained variance of returns that do not vary.
    judged = ("loss", "validation/objective")
    wrong = [
        f"{name} is {value}"
        for name, value in metrics.items()
        if name.endswith(judged) and not math.isfinite(value)
    ]
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(policy)]
    if not all(np.isfinite(leaf).all() for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.inexact)):
        wrong.append("the policy has parameters that are not finite")
    if wrong:
        kept = [path for path in (newest_checkpoint(folder), folder / BEST) if path and path.exists()]
        raise InputError(
            f"training has diverged at update {update}: {' and '.join(wrong)}. "
            f"Kept from before it: {' and '.join(map(str, kept)) or 'nothing'}. Resuming would end the same "
            "way; start a new run with other settings, such as a lower learning rate"
        )


def _whole(leaf: Array) -> Array:
    """Puts together an array that is shared with other processes, which have to call it as well."""
    if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable or leaf.is_fully_replicated:
        return leaf
    return multihost_utils.process_allgather(leaf, tiled=True)
