"""A replay environment for test-time scaling controllers of language models, on JAX.

    >>> import autotts_jax as at
    >>> data = at.load("smollm2")
    >>> result = at.evaluate(data, ["sc@8", "cmc@0.5"], seeds=5)

``result.table()`` shows accuracy and cost, ``result.summary()`` and ``result.episodes()`` are Arrow tables,
and ``result.save("runs/first")`` writes them all. Importing this package registers the environments
``WidthDepth-v0`` and ``WidthDepthRounds-v0`` with Gymnasium. The names below are imported when they are first
used, and JAX with them.
"""

import importlib.metadata

import gymnasium
import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = importlib.metadata.version("autotts-jax")

for _name in ("WidthDepth", "WidthDepthRounds"):
    # Gymnasium warns where an id is registered twice, as a reload would.
    if f"{_name}-v0" not in gymnasium.registry:
        gymnasium.register(
            id=f"{_name}-v0",
            entry_point=f"autotts_jax.envs.gym:{_name}Env",
            vector_entry_point=f"autotts_jax.envs.gym_vector:{_name}VectorEnv",
        )
