"""autotts_jax: a replay environment for test-time scaling controllers on JAX."""
