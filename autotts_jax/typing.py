"""Shape-checked types at public borders."""

from __future__ import annotations

import jax
import numpy as np
from beartype import beartype
from jaxtyping import Int, jaxtyped

Array = jax.Array | np.ndarray
"""What functions of arrays take: JAX's arrays, traced ones included, and NumPy's."""

Scalar = int | Int[Array, ""]
"""An integer given as a Python integer or as a traced scalar."""

checked = jaxtyped(typechecker=beartype)
"""Checks shapes and dtypes of a function's arguments and result; under ``jit`` only while tracing."""
