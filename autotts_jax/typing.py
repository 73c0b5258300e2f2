"""Shape-checked types at public borders."""

from __future__ import annotations

from beartype import beartype
from jaxtyping import jaxtyped

checked = jaxtyped(typechecker=beartype)
"""Checks shapes and dtypes of a function's arguments and result; under ``jit`` only while tracing."""
