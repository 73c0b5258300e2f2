"""Runs of several processes, by ``jax.distributed``. In a single process nothing here waits."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future

import jax
import numpy as np
from jax.experimental import multihost_utils

from autotts_jax.errors import InputError

INITIALIZATION_SECONDS = 120
"""How long the processes wait for each other at the start."""

SHUTDOWN_SECONDS = 30
"""How long a process that has ended waits for the others; after that they are ended too."""


def initialize(coordinator: str | None, processes: int | None, process: int | None) -> None:
    """Joins this process to the others of a run, if a coordinator is given. Call it before JAX is used.

    Args:
        coordinator: address of process 0, as HOST:PORT; ``auto`` to ask the cluster that started the process.
        processes: number of processes; None with ``auto``.
        process: index of this process, in 0 … processes - 1; None with ``auto``.

    Raises:
        InputError: arguments are missing, superfluous or out of range; there is no cluster; the processes do
            not find each other, or have different numbers of devices.
    """
    if coordinator is None:
        if processes is not None or process is not None:
            raise InputError("processes and process need a coordinator; give it, or leave them out")
        return
    if coordinator == "auto":
        if processes is not None or process is not None:
            raise InputError("the coordinator auto asks the cluster; leave out processes and process")
    else:
        host, _, port = coordinator.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
            raise InputError(
                f"the coordinator is {coordinator!r}, but it must be HOST:PORT of process 0, or auto"
            )
        if processes is None or process is None:
            raise InputError("the coordinator needs processes and process; give both, or auto alone")
        if process >= processes:
            raise InputError(f"process is {process}, but it must be in 0 … {processes - 1}")
        if process == 0:
            try:
                socket.create_server(("", int(port))).close()
            except OSError as error:  # JAX may crash on it
                raise InputError(f"coordinator {coordinator}: {error.strerror}; give a free port") from None
    try:
        _connect(None if coordinator == "auto" else coordinator, processes, process)
    except TimeoutError:
        raise InputError(
            f"coordinator {coordinator}: not all processes connected in {INITIALIZATION_SECONDS} seconds; "
            "start all of them, and give an address at which they reach process 0"
        ) from None
    except ValueError:
        raise InputError(
            "coordinator auto: no cluster such as SLURM or Open MPI has started this process; "
            "give HOST:PORT, processes and process"
        ) from None
    devices = Counter(device.process_index for device in jax.devices())
    if len(set(devices.values())) > 1:
        raise InputError(
            f"the processes have {', '.join(map(str, devices.values()))} devices, but all must have "
            "the same number; set JAX_NUM_CPU_DEVICES or CUDA_VISIBLE_DEVICES"
        )


def _connect(coordinator: str | None, processes: int | None, process: int | None) -> None:
    jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM for itself
    connected: Future[None] = Future()

    def connect() -> None:
        try:
            jax.distributed.initialize(
                coordinator,
                processes,
                process,
                cluster_detection_method="deactivate" if coordinator else None,
                initialization_timeout=2 * INITIALIZATION_SECONDS,
                shutdown_timeout_seconds=SHUTDOWN_SECONDS,
            )
            connected.set_result(None)
        except Exception as error:
            connected.set_exception(error)

    # JAX would abort the process when its own timeout is over, and let no Ctrl-C through until then.
    threading.Thread(target=connect, daemon=True).start()
    connected.result(INITIALIZATION_SECONDS)


def largest(number: int) -> int:
    """Returns the largest of the processes' numbers; all of them have to call it."""
    if not jax.distributed.is_initialized():
        return number
    return int(multihost_utils.process_allgather(np.int32(number)).max())


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Waits at its end until all processes are there, and raises in all of them if one has failed.

    What is done inside must not wait for other processes.

    Raises:
        InputError: another process has failed.
    """
    failure = None
    try:
        yield
    except BaseException as error:
        failure = error
    failed = largest(failure is not None)
    if failure is not None:
        raise failure
    if failed:
        raise InputError("another process of the run has failed; fix what it reports, and start all again")
