"""Runs of a trainer that can be stopped, resumed bit for bit, watched and reproduced.

A run's folder holds

- ``manifest.json``: what the run is made of, how it ended and how long it took;
- ``best.npz``: the policy with the best validation objective so far;
- ``metrics.jsonl``: one line an update, with its metrics as ``train/…`` and ``validation/…``;
- ``tensorboard/``: the same as TensorBoard event files, one for each time the run was started;
- ``checkpoints/<update>/``: the newest checkpoints. ``arrays/`` is an orbax checkpoint of the train state and
  the best policy, ``progress.json`` has the rest and a hash of it all.

The processes of ``jax.distributed`` make a run together: each calls `run` in the same way, process 0 writes,
and all read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from autotts_jax.core.hosts import largest, together
from autotts_jax.errors import InputError
from autotts_jax.files import write_atomically
from autotts_jax.training.trainer import Trainer
from autotts_jax.typing import Array

KEPT_CHECKPOINTS = 3

Figures = dict[str, float]
"""What was measured, by name."""


@dataclasses.dataclass(frozen=True)
class RunSettings:
    """How long a run is, and when it looks up from its updates.

    Attributes:
        updates: updates of a run that is not stopped early; 0 keeps the policy that it starts with.
        validate_every: updates between two validations; the last update is always validated.
        checkpoint_every: updates between two checkpoints; a run that ends writes one too.
        patience: validations in a row without a better objective that end the run; None for never.
        seed: what the trainer's first key is made of.
    """

    updates: int
    validate_every: int = 10
    checkpoint_every: int = 10
    patience: int | None = None
    seed: int = 0

    def __post_init__(self):
        for name in ("updates", "validate_every", "checkpoint_every", "patience"):
            value, least = getattr(self, name), 0 if name == "updates" else 1
            if value is not None and value < least:
                raise InputError(f"{name} is {value}, but it must be at least {least}")
        if not 0 <= self.seed < 2**32:
            raise InputError(f"seed is {self.seed}, but it must be in 0 … {2**32 - 1}")


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far a run is.

    Attributes:
        update: updates made.
        best_objective: the best validation objective; None before the first validation.
        best_update: the update that reached it.
        validations_since_best: validations after that one.
        seconds: wall time, of all the times that the run was started.
    """

    update: int = 0
    best_objective: float | None = None
    best_update: int | None = None
    validations_since_best: int = 0
    seconds: float = 0.0

    def validated(self, objective: float) -> Progress:
        """After a validation."""
        if self.best_objective is None or objective > self.best_objective:
            return dataclasses.replace(
                self, best_objective=objective, best_update=self.update, validations_since_best=0
            )
        return dataclasses.replace(self, validations_since_best=self.validations_since_best + 1)

    def stops_early(self, settings: RunSettings) -> bool:
        """Whether the patience is used up."""
        return settings.patience is not None and self.validations_since_best >= settings.patience

    def ends(self, settings: RunSettings) -> bool:
        """Whether nothing is left to do."""
        return self.update >= settings.updates or self.stops_early(settings)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        progress: how far it came.
        stopped_by: the signal that stopped it before its end; None if it came to its end.
    """

    progress: Progress
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
    on_progress: Callable[[int, Figures], None] | None = None,
) -> Outcome:
    """Trains to the end, or until SIGTERM or Ctrl-C; call it from the main thread.

    What the trainer starts with is update 0, validated and kept like any other. From then on the first signal
    lets the update under way finish and writes a checkpoint, and a second one acts at once. Of several
    processes, a signal to one ends all after the same update.

    Args:
        trainer: what is trained.
        settings: how long, and with which seed.
        folder: where the run's files are, made if need be.
        validate: measures a policy on questions that it is not trained on; the same policy always gives the
            same figures. Its ``objective`` is the larger the better.
        save_policy: writes a policy to a file whose name ends in ``.npz``.
        manifest: what reproduces the run, as JSON can hold it. A run is resumed only where ``config`` and
            ``data`` in it are what they were.
        resume: go on from the newest checkpoint.
        on_progress: told of every update, and what was measured at it.

    Raises:
        InputError: a fresh run in a folder that holds one; nothing to resume, or another configuration, or a
            checkpoint that is damaged or does not fit; training has diverged; the files cannot be written;
            another process has failed, sees another folder or has another configuration.
    """
    writes = jax.process_index() == 0
    try:
        with together():
            if writes:
                _open_folder(folder, manifest, resume)
        _check_shared(folder, manifest)
        training = _Training(trainer, settings, folder, validate, save_policy)
        with _signals_kept() as received:
            with together():
                opened = _Log(folder, training.first) if writes else contextlib.nullcontext()
            with opened as log:
                training.record(log, training.started, checkpoint=True)
                while not training.progress.ends(settings) and not received():
                    figures = training.update()
                    due = training.progress.update % settings.checkpoint_every == 0
                    training.record(log, figures, checkpoint=due)
                    if on_progress is not None:
                        on_progress(training.progress.update, figures)
                training.record(log, {}, checkpoint=True)
            progress = training.progress
            outcome = Outcome(progress, None if progress.ends(settings) else signal.Signals(received()))
            with together():
                if writes:
                    _close_manifest(folder, settings, outcome)
            return outcome
    except OSError as error:
        raise InputError(f"writing the run to {folder} failed: {error.strerror or error}") from error


class _Training:
    """What a run holds in memory: the train state, the best policy and how far it is.

    Attributes:
        progress: how far it is.
        started: what was measured at the start; empty if it goes on from a checkpoint.
    """

    def __init__(self, trainer, settings: RunSettings, folder: Path, validate, save_policy):
        self._trainer = trainer
        self._settings = settings
        self._folder = folder
        self._validate = validate
        self._save_policy = save_policy
        self._state = trainer.init(jax.random.key(settings.seed))
        self._best = self._policy()
        self._written: Any = None  # the file that is there may be of a later update
        self.progress = Progress()
        self.started: Figures = {}
        with together():
            newest = newest_checkpoint(folder)
            if newest is not None:
                self.progress, (self._state, self._best) = load_checkpoint(newest, (self._state, self._best))
        if newest is None:
            # The start counts: a warm one may be better than what training makes of it.
            self.started = _figures("validation", validate(self._best))
            _check_finite(folder, 0, self.started)
            self.progress = self.progress.validated(self.started["validation/objective"])
        self._began = time.monotonic() - self.progress.seconds

    @property
    def first(self) -> int:
        """The first update whose figures are still to come."""
        return 0 if self.started else self.progress.update + 1

    def update(self) -> Figures:
        """Makes one update, validates it where that is due, and gives what was measured."""
        settings = self._settings
        self._state, metrics = self._trainer.update(self._state)
        update = self.progress.update + 1
        policy = self._policy()
        figures = _figures("train", jax.device_get(metrics))
        _check_finite(self._folder, update, figures, policy)
        progress = dataclasses.replace(self.progress, update=update)
        if update % settings.validate_every == 0 or update == settings.updates:
            validated = _figures("validation", self._validate(policy))
            _check_finite(self._folder, update, validated)
            figures |= validated
            progress = progress.validated(figures["validation/objective"])
            if progress.best_update == update:
                self._best = policy
        self.progress = dataclasses.replace(progress, seconds=time.monotonic() - self._began)
        return figures

    def record(self, log: _Log | None, figures: Figures, *, checkpoint: bool) -> None:
        """Writes the best policy if it is new, what was measured if anything was, and a checkpoint.

        Args:
            log: where to; None in the processes that do not write.
            figures: what was measured.
            checkpoint: whether to write one.
        """
        tree = jax.tree.map(_whole, (self._state, self._best)) if checkpoint else None
        with together():
            if log is None:
                return
            if self._written is not self._best:
                self._write_best()
            if figures:
                log.write(self.progress.update, figures)
            if checkpoint:
                log.flush()
                save_checkpoint(self._folder, self.progress, tree)

    def _policy(self) -> Any:
        """On the host: the train state's own arrays may be given away to the next update."""
        return jax.device_get(self._trainer.policy(self._state))

    def _write_best(self) -> None:
        partial = self._folder / ".partial-best.npz"
        self._save_policy(partial, self._best)
        partial.replace(self._folder / "best.npz")
        self._written = self._best


@contextlib.contextmanager
def _signals_kept() -> Iterator[Callable[[], int]]:
    """Keeps the first SIGINT or SIGTERM; the next one of the kind acts as ever.

    Yields what gives the signal that any of the processes has received, 0 for none; all have to ask.
    """
    received: list[int] = []

    def keep(number, _frame):
        received.append(number)
        signal.signal(number, before[number])

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        signal.signal(number, keep)
    try:
        yield lambda: largest(max(received, default=0))
    finally:
        for number in numbers:
            signal.signal(number, before[number])


def _figures(kind: str, metrics: Mapping[str, Any]) -> Figures:
    return {f"{kind}/{name}": float(value) for name, value in metrics.items()}


def _check_finite(folder: Path, update: int, figures: Figures, policy: Any = None) -> None:
    """Raises an `InputError` where a loss, the validation's objective or a parameter is not finite."""
    # Other metrics may be undefined, as the explained variance of returns that do not vary.
    judged = ("loss", "validation/objective")
    wrong = [
        f"{name} is {value}"
        for name, value in figures.items()
        if name.endswith(judged) and not math.isfinite(value)
    ]
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(policy)]
    if not all(np.isfinite(leaf).all() for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.inexact)):
        wrong.append("the policy has parameters that are not finite")
    if wrong:
        kept = [path for path in (newest_checkpoint(folder), folder / "best.npz") if path and path.exists()]
        raise InputError(
            f"training has diverged at update {update}: {' and '.join(wrong)}. "
            f"Kept from before it: {' and '.join(map(str, kept)) or 'nothing'}. Resuming would end the same "
            "way; start a new run with other settings, such as a lower learning rate"
        )


# --- files ----------------------------------------------------------------------------------------------


def _open_folder(folder: Path, manifest: Mapping[str, Any], resume: bool) -> None:
    """Checks that the folder holds this run, or none, and leaves it ready to go on from what is in it."""
    path = folder / "manifest.json"
    if not resume:
        if path.exists() or newest_checkpoint(folder):
            raise InputError(f"{folder} already holds a run; resume it with --resume, or give another folder")
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        _write_json(path, manifest)
        return
    if not path.exists():
        raise InputError(f"{folder} holds no run to resume; leave out --resume, or give the run's folder")
    _check_manifest(folder, manifest)
    for partial in list(folder.rglob(".partial-*")):
        shutil.rmtree(partial) if partial.is_dir() else partial.unlink()


def _check_shared(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Checks that all processes see the run that process 0 has opened, and go on with it alike."""
    newest = newest_checkpoint(folder)
    update = int(newest.name) if newest else -1
    latest = largest(update)
    with together():
        if update < latest or not (folder / "manifest.json").exists():
            raise InputError(
                f"process {jax.process_index()} does not see in {folder} what others see there; "
                "give a folder that all hosts share"
            )
        _check_manifest(folder, manifest)


def _check_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Checks that the run in the folder has this configuration and these data."""
    there = _read_json(folder / "manifest.json")
    differing = [
        f"{name} is {_shown(before)} there and {_shown(now)} here"
        for key in ("config", "data")
        for name, before, now in _differences(key, there.get(key), _as_read(manifest.get(key)))
    ]
    if differing:
        raise InputError(
            f"the run in {folder} cannot be resumed with another configuration: {'; '.join(differing)}. "
            "Give what it was started with, or start a new run in another folder"
        )


def _close_manifest(folder: Path, settings: RunSettings, outcome: Outcome) -> None:
    """Adds to the manifest how the run ended."""
    if outcome.stopped_by:
        ended = outcome.stopped_by.name
    else:
        ended = "early stopping" if outcome.progress.stops_early(settings) else "all updates made"
    result = dataclasses.asdict(outcome.progress) | {"ended": ended}
    _write_json(folder / "manifest.json", _read_json(folder / "manifest.json") | {"result": result})


def _differences(name: str, before: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    """Where two JSON values differ: the dotted name and both values."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in before | now:
            yield from _differences(f"{name}.{key}", before.get(key), now.get(key))
    elif before != now:
        yield name, before, now


def _shown(value: Any) -> str:
    return "nothing" if value is None else json.dumps(value, ensure_ascii=False)


def _as_read(value: Any) -> Any:
    """A value as it comes back from JSON."""
    return json.loads(json.dumps(value))


def _write_json(path: Path, value: Any) -> None:
    write_atomically(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise InputError(f"{path}: the file is damaged; start a new run in another folder") from None


class _Log:
    """Metrics before an update, in ``metrics.jsonl`` and as TensorBoard events, and those to come."""

    def __init__(self, folder: Path, first: int):
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import SessionLog

        lines = folder / "metrics.jsonl"
        if lines.exists():
            # A line that was being written when the process was killed has no end, and nothing behind it.
            whole = [line for line in lines.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
            kept = [line for line in whole if json.loads(line)["update"] < first]
            write_atomically(lines, b"".join(kept))
        self._lines = lines.open("a", encoding="utf-8", buffering=1)
        events = folder / "tensorboard"
        events.mkdir(exist_ok=True)
        # Not a SummaryWriter: events that wait in its queue are lost when the process is killed.
        self._events = EventsWriter(str(events / "events"), f".{first:08d}")
        # Makes TensorBoard forget this update and later ones.
        self._add_event(first, session_log=SessionLog(status=SessionLog.START))

    def __enter__(self) -> _Log:
        return self

    def __exit__(self, *_) -> None:
        self._lines.close()
        self._events.close()

    def write(self, update: int, figures: Figures) -> None:
        """Adds an update; what is not finite is null in the lines."""
        from tensorboardX.proto.summary_pb2 import Summary

        known = {name: value if math.isfinite(value) else None for name, value in figures.items()}
        self._lines.write(json.dumps({"update": update} | known) + "\n")
        values = [Summary.Value(tag=name, simple_value=value) for name, value in figures.items()]
        self._add_event(update, summary=Summary(value=values))

    def flush(self) -> None:
        """On return, all that was written is in the files."""
        self._events.flush()

    def _add_event(self, update: int, **content: Any) -> None:
        from tensorboardX.proto.event_pb2 import Event

        self._events.write_event(Event(wall_time=time.time(), step=update, **content))


# --- checkpoints ----------------------------------------------------------------------------------------


def save_checkpoint(folder: Path, progress: Progress, tree: Any) -> None:
    """Writes an update's checkpoint, whole or not at all, unless it is there; removes the oldest ones.

    Args:
        folder: the run's folder.
        progress: how far the run is.
        tree: pytree of arrays, none of them shared with other processes.
    """
    path = folder / "checkpoints" / f"{progress.update:08d}"
    if path.exists():
        return
    partial = path.with_name(f".partial-{path.name}")
    stored = {name: np.asarray(leaf) for name, leaf in _storable(tree).items()}
    with _checkpointer() as checkpointer:
        checkpointer.save((partial / "arrays").absolute(), stored)
    content = {"progress": dataclasses.asdict(progress), "sha256": _hash(partial / "arrays", progress)}
    _write_json(partial / "progress.json", content)
    partial.replace(path)
    for old in _checkpoints(folder)[:-KEPT_CHECKPOINTS]:
        shutil.rmtree(old.replace(old.with_name(f".partial-{old.name}")))


def load_checkpoint(path: Path, like: Any) -> tuple[Progress, Any]:
    """Reads what `save_checkpoint` wrote.

    Args:
        path: the checkpoint.
        like: a pytree as the stored one; it gives the structure, the shapes and the placement on devices.

    Raises:
        InputError: the checkpoint is damaged, or is that of another tree.
    """
    # Hashed before orbax sees it: it would not notice every damage, and reports others at great length.
    try:
        content = json.loads((path / "progress.json").read_text(encoding="utf-8"))
        progress = Progress(**content["progress"])
        whole = content["sha256"] == _hash(path / "arrays", progress)
    except (OSError, ValueError, KeyError, TypeError):
        whole = False
    if not whole:
        raise InputError(f"{path}: the checkpoint is damaged; {_way_back(path)}")
    with _checkpointer() as checkpointer:
        stored = checkpointer.restore((path / "arrays").absolute())
    wanted = _storable(like)
    differing = [
        f"{name} is {_form(stored.get(name))} there and {_form(wanted.get(name))} here"
        for name in sorted(stored | wanted)
        if _form(stored.get(name)) != _form(wanted.get(name))
    ]
    if differing:
        raise InputError(
            f"{path}: the checkpoint is that of another network, trainer or version: {differing[0]}; "
            "resume with what it was written with, or start a new run"
        )
    return progress, jax.tree_util.tree_map_with_path(
        lambda name, leaf: _placed(stored[jax.tree_util.keystr(name)], leaf) if np.size(leaf) else leaf, like
    )


def _checkpointer() -> Any:
    """Orbax, without its waiting for other processes: each reads for itself, and one writes."""
    import orbax.checkpoint as ocp

    own = jax.process_index()
    alone = ocp.options.MultiprocessingOptions(primary_host=own, active_processes={own})
    handler = ocp.PyTreeCheckpointHandler(multiprocessing_options=alone)
    return ocp.Checkpointer(handler, multiprocessing_options=alone)


def _checkpoints(folder: Path) -> list[Path]:
    """The complete checkpoints, oldest first."""
    return sorted((folder / "checkpoints").glob("[0-9]*"))


def newest_checkpoint(folder: Path) -> Path | None:
    """The newest complete checkpoint in a run's folder, if there is one."""
    return max(_checkpoints(folder), default=None)


def _way_back(damaged: Path) -> str:
    """What to do about a damaged checkpoint."""
    older = [path.name for path in _checkpoints(damaged.parent.parent) if path < damaged]
    if older:
        return f"remove it and resume again, from {older[-1]}, the one before it"
    return "no older one is there; start a new run in another folder"


def _whole(leaf: Array) -> Array:
    """An array; one that is shared with other processes is put together, and they have to call it as well."""
    if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable or leaf.is_fully_replicated:
        return leaf
    return multihost_utils.process_allgather(leaf, tiled=True)


def _storable(tree: Any) -> dict[str, Array]:
    """The leaves by name, without the empty ones, which orbax does not store."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    arrays = {name: leaf if isinstance(leaf, jax.Array) else np.asarray(leaf) for name, leaf in leaves}
    return {jax.tree_util.keystr(name): array for name, array in arrays.items() if array.size}


def _form(array: Array | None) -> str:
    return "nothing" if array is None else f"{array.dtype}{list(array.shape)}"


def _placed(stored: np.ndarray, leaf: Array) -> Array:
    """An array where another one is: on the host, or on its devices."""
    if not isinstance(leaf, jax.Array):
        return stored
    if not leaf.committed:
        return jnp.asarray(stored)
    return jax.make_array_from_callback(stored.shape, leaf.sharding, lambda part: stored[part])


def _hash(folder: Path, progress: Progress) -> str:
    """Of the files in a folder, their names included, and of how far the run is."""
    digest = hashlib.sha256(repr(progress).encode())
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = file.read_bytes()
        digest.update(f"{file.relative_to(folder).as_posix()}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()
