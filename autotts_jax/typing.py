"""Shape-checked types at public borders."""

from __future__ import annotations

import jax
import numpy as np
from beartype import beartype
from jaxtyping import jaxtyped

Array = jax.Array | np.ndarray
"""What functions of arrays take: JAX's arrays, traced ones included, and NumPy's."""

checked = jaxtyped(typechecker=beartype)
"""Checks shapes and dtypes of a function's arguments and result; under ``jit`` only while tracing."""
