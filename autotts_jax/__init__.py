"""autotts_jax: a replay environment for test-time scaling controllers on JAX.

Importing it registers ``WidthDepth-v0`` and ``WidthDepthRounds-v0`` with Gymnasium.
"""

import gymnasium

for _name in ("WidthDepth", "WidthDepthRounds"):
    # Gymnasium warns where an id is registered twice, as a reload would.
    if f"{_name}-v0" not in gymnasium.registry:
        gymnasium.register(
            id=f"{_name}-v0",
            entry_point=f"autotts_jax.envs.gym:{_name}Env",
            vector_entry_point=f"autotts_jax.envs.gym:{_name}VectorEnv",
        )
