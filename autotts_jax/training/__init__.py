"""How a network learns to decide: imitation, vote weights, evolution, PPO, the run and its checkpoints."""

from importlib.util import find_spec

import lazy_loader

from autotts_jax.errors import InputError

_missing = [name for name in ("evosax", "optax", "orbax", "pydantic") if not find_spec(name)]
if _missing:
    raise InputError(f"training needs {', '.join(_missing)}: pip install 'autotts-jax[train]'")

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
