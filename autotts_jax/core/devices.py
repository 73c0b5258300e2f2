"""Process-wide JAX settings that the command line makes; a library user keeps their own."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import jax
import platformdirs

from autotts_jax.core.compiling import XLA_FLAGS

XLA_THREAD = "tf_XLAEigen"
"""How XLA names the threads that CPU devices run on."""


def configure(compilation_cache: bool = True) -> None:
    """Makes every core a CPU device, and keeps compiled programs between runs. Call it before JAX is used.

    What the environment says through JAX's and XLA's own variables stays as it is.
    """
    if not compilation_cache:
        jax.config.update("jax_enable_compilation_cache", False)
    elif "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(cache_folder()))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_backend_extra_options" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {XLA_FLAGS}".strip()
    forced = "xla_force_host_platform_device_count" in flags
    if not forced and "JAX_NUM_CPU_DEVICES" not in os.environ:
        jax.config.update("jax_num_cpu_devices", usable_cores())
        # Devices that are cores need no threads besides: XLA would hand tiny operations back and forth.
        os.environ.setdefault("PJRT_NPROC", "1")


def pin_devices() -> None:
    """Keeps the thread of each CPU device on a core of its own, where every core is one; starts JAX.

    Linux often wakes two of them on one core, and parts them only at its next balancing, some milliseconds
    later; a short rollout has ended by then. Nothing is done where the threads cannot be told apart or the
    system forbids it: only speed depends on it.
    """
    tasks = Path("/proc/self/task")
    if jax.default_backend() != "cpu" or not tasks.is_dir():
        return
    with contextlib.suppress(OSError):  # threads may end meanwhile
        names = {int(task.name): (task / "comm").read_text().strip() for task in tasks.iterdir()}
        threads = sorted(thread for thread, name in names.items() if name == XLA_THREAD)
        cores = sorted(os.sched_getaffinity(0))
        if len(threads) == len(cores):
            for thread, core in zip(threads, cores, strict=True):
                os.sched_setaffinity(thread, {core})


def usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cache_folder() -> Path:
    """Where compiled programs are kept."""
    return Path(platformdirs.user_cache_dir("autotts_jax")) / "xla"
