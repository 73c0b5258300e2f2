"""How to have XLA compile programs that play episodes."""

from __future__ import annotations

COMPILER_OPTIONS: dict[str, str | bool] = {
    "xla_disable_hlo_passes": "tree_reduction_rewriter",
    "xla_cpu_prefer_vector_width": "512",
    "xla_cpu_copy_insertion_use_region_analysis": True,
}
"""Options for ``jax.jit(…, compiler_options=COMPILER_OPTIONS)``; they matter on a CPU only.

By default XLA splits each reduction over more than 32 branches into windows, which then are passes of their
own instead of parts of others, uses half of the width of AVX-512's registers, and copies more of what a loop
carries than it has to.
"""

UNSHARED_OPTIONS: dict[str, str | bool] = {
    **COMPILER_OPTIONS,
    "xla_disable_hlo_passes": f"{COMPILER_OPTIONS['xla_disable_hlo_passes']},cpu-parallel-task-assigner",
}
"""`COMPILER_OPTIONS` for few lanes: no pass over them is shared among the threads of a CPU device.

By default XLA shares those that it expects to take long, which for few lanes takes longer than it saves.
"""

XLA_FLAGS = "--xla_backend_extra_options=xla_cpu_use_multi_output_fusion"
"""What XLA takes only from the environment variable of this name, before JAX is used; for a CPU as well.

Passes over the same arrays become one, also where each has a result of its own.
"""
