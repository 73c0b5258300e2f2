"""Forks of a process that has used JAX, whose threads do not go along: there JAX would wait for ever."""

from __future__ import annotations

import functools
import os

from autotts_jax.errors import InputError

FORKED = "JAX does not run in a process that was forked after JAX had started"


def refuse_forks() -> None:
    """Refuses to use JAX in a fork of a process that has used it by way of this package.

    Raises:
        InputError: this process is such a fork.
    """
    if os.getpid() != _first_process():
        raise InputError(
            f"{FORKED}; play in a spawned process, as multiprocessing.get_context('spawn') starts them"
        )


@functools.cache
def _first_process() -> int:
    """The process that was the first to use JAX, also in forks of it."""
    return os.getpid()
