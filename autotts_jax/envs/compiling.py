"""How to have XLA compile programs that play episodes."""

from __future__ import annotations

COMPILER_OPTIONS: dict[str, str | bool] = {
    "xla_disable_hlo_passes": "tree_reduction_rewriter",
    "xla_cpu_prefer_vector_width": "512",
}
"""Options for ``jax.jit(…, compiler_options=COMPILER_OPTIONS)``; they matter on a CPU only.

By default XLA splits each reduction over more than 32 branches into windows, which then are passes of their
own instead of parts of others, and it uses half of the width of AVX-512's registers.
"""
