"""Process-wide JAX settings that the command line makes; a library user keeps their own."""

from __future__ import annotations

import os
from pathlib import Path

import jax
import platformdirs


def configure(compilation_cache: bool = True) -> None:
    """Makes every core a CPU device, and keeps compiled programs between runs. Call it before JAX is used.

    Args:
        compilation_cache: keep compiled programs in a folder of the user's; a folder set through JAX's own
            settings (``JAX_COMPILATION_CACHE_DIR``) is left as it is.
    """
    if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        jax.config.update("jax_num_cpu_devices", usable_cores())
    if not compilation_cache:
        jax.config.update("jax_enable_compilation_cache", False)
    elif jax.config.jax_compilation_cache_dir is None:
        jax.config.update("jax_compilation_cache_dir", str(cache_folder()))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cache_folder() -> Path:
    """Where compiled programs are kept."""
    return Path(platformdirs.user_cache_dir("autotts_jax")) / "xla"
