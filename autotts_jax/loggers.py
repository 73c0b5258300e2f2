"""Loggers: where the numbers of a run of training or discovery are shown while it goes on."""

from __future__ import annotations

import contextlib
import importlib
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from autotts_jax.errors import InputError, InputWarning
from autotts_jax.extras import needs
from autotts_jax.terminal import quoted

Log = Callable[[int, Mapping[str, float]], None]
"""Called with a step and numbers by name."""


@runtime_checkable
class Logger(Protocol):
    """Takes the numbers of a run. Whatever it raises is a warning, and it is not told more."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Takes the numbers of a step.

        Args:
            step: the update or the round.
            metrics: numbers by name; some may be NaN or infinite.
        """

    def close(self) -> None:
        """Ends the log, with the run."""


class TensorBoard:
    """Writes event files for TensorBoard, which outlast a killed process.

    Raises:
        InputError: tensorboardX is missing.
    """

    def __init__(self, folder: Path, first: int):
        _installed("tensorboard")
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog

        (folder / "tensorboard").mkdir(exist_ok=True)
        # Not a SummaryWriter: events that wait in its queue are lost when the process is killed.
        self._events = EventsWriter(str(folder / "tensorboard" / "events"), f".{first:08d}")
        start = SessionLog(status=SessionLog.START)
        self._events.write_event(Event(wall_time=time.time(), step=first, session_log=start))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Writes the numbers of a step to the file."""
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary

        summary = Summary(value=[Summary.Value(tag=name, simple_value=of) for name, of in metrics.items()])
        self._events.write_event(Event(wall_time=time.time(), step=step, summary=summary))
        self._events.flush()

    def close(self) -> None:
        """Closes the file."""
        self._events.close()


class Wandb:
    """Logs to Weights & Biases or to trackio, which have the same interface.

    Each start of a run is a run of its own there, of the project ``autotts-jax``.

    Raises:
        InputError: the package is missing.
    """

    def __init__(self, package: str, folder: Path):
        self._wandb = _installed(package)
        self._wandb.init(project="autotts-jax", name=folder.resolve().name)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Logs the finite numbers of a step."""
        self._wandb.log(_finite(metrics), step=step)

    def close(self) -> None:
        """Ends the run there."""
        self._wandb.finish()


class MLflow:
    """Logs to MLflow, where its own settings say; each start of a run is a run of its own there.

    Raises:
        InputError: MLflow is missing.
    """

    def __init__(self, folder: Path):
        self._mlflow = _installed("mlflow")
        self._mlflow.start_run(run_name=folder.resolve().name)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Logs the finite numbers of a step."""
        self._mlflow.log_metrics(_finite(metrics), step=step)

    def close(self) -> None:
        """Ends the run there."""
        self._mlflow.end_run()


LOGGERS: dict[str, Callable[[Path, int], Logger]] = {
    "tensorboard": TensorBoard,
    "wandb": lambda folder, _: Wandb("wandb", folder),
    "mlflow": lambda folder, _: MLflow(folder),
    "trackio": lambda folder, _: Wandb("trackio", folder),
}
"""Loggers that have a name, made from the run's folder and its first step to come."""


def check_loggers(loggers: Any) -> tuple[str | Logger, ...]:
    """Checks the loggers of a run.

    Raises:
        InputError: they are not a list, one is neither, or what one needs is not installed.
    """
    if isinstance(loggers, str | bytes) or not isinstance(loggers, Sequence):
        raise InputError(f"loggers is {loggers!r:.60}, but it must be a list, as ['tensorboard']")
    for logger in loggers:
        known = logger in LOGGERS if isinstance(logger, str) else isinstance(logger, Logger)
        if not known or isinstance(logger, type):
            raise InputError(
                f"a logger is {logger!r:.60}, but it must be one of {', '.join(LOGGERS)}, or have "
                "the methods log and close"
            )
        if isinstance(logger, str):
            _installed(logger)
    return tuple(loggers)


@contextlib.contextmanager
def opened(loggers: Sequence[str | Logger], folder: Path, first: int) -> Iterator[Log]:
    """Opens the loggers of a run, and closes them at the end of the block.

    Yields:
        A function that logs to all of them.

    Raises:
        InputError: what a logger needs is missing.
    """
    with contextlib.ExitStack() as stack:
        made: list[Logger] = []
        for logger in loggers:
            made.append(LOGGERS[logger](folder, first) if isinstance(logger, str) else logger)
            stack.callback(_close, made[-1])

        def log(step: int, metrics: Mapping[str, float]) -> None:
            for logger in list(made):
                try:
                    logger.log(step, dict(metrics))  # what one does to it, no other sees
                except Exception as error:
                    made.remove(logger)
                    _warn(logger, "failed, and is told no more", error)

        yield log


def _close(logger: Logger) -> None:
    """Closes a logger; the run has ended, and what comes after it does not depend on its log."""
    try:
        logger.close()
    except Exception as error:
        _warn(logger, "could not be closed", error)


def _warn(logger: Logger, what: str, error: Exception) -> None:
    """Warns of a logger, on which no run depends."""
    message = f"the logger {type(logger).__name__} {what}: {quoted(error) or type(error).__name__}"
    warnings.warn(message, InputWarning, stacklevel=3)


def _installed(package: str) -> Any:
    """The package of a logger that has a name; TensorBoard's comes with an extra of ours."""
    if package == "tensorboard":
        with needs("tensorboard", "a log for TensorBoard"):
            return importlib.import_module("tensorboardX")
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise InputError(f"a log for {package} needs it: pip install {package}") from error


def _finite(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if math.isfinite(value)}
