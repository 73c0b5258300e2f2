"""A replay environment for test-time scaling controllers of language models, on JAX.

    >>> import autotts_jax as at
    >>> data = at.load("smollm2")
    >>> result = at.evaluate(data, ["sc@8", "cmc@0.5"], seeds=5)

``result.table()`` shows accuracy and cost, ``result.summary()`` and ``result.episodes()`` are Arrow tables,
and ``result.save("runs/first")`` writes them all. Importing this package registers the environments
in `autotts_jax.envs.ENVIRONMENTS` with Gymnasium. The names below are imported when they are first used, and
JAX with them.
"""

import importlib.metadata

import lazy_loader

from autotts_jax.envs import registry as _registry

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = importlib.metadata.version("autotts-jax")

_registry.register()
