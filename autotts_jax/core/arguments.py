"""What methods of a view and parts of an action are given: their types, and messages about wrong ones."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autotts_jax.errors import InputError


def type_of(value: Any) -> jax.core.ShapedArray | None:
    """Finds the type that a value has under ``jit``.

    Returns:
        Its dtype and shape; None for what cannot be traced.
    """
    if is_too_large(value):
        return None
    try:
        return jax.typeof(value)
    except TypeError:
        return None


def is_too_large(value: Any) -> bool:
    """Tells whether a value holds whole numbers that JAX has no room for; NumPy's it would wrap around."""
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.kind not in "iu":
            return False
        return bool(np.any(value.astype(jax.dtypes.canonicalize_dtype(value.dtype)) != value))
    held = np.iinfo(jax.dtypes.canonicalize_dtype(int))
    return isinstance(value, int) and not held.min <= value <= held.max


def is_array(value: Any, kind: Any, *shape: int) -> bool:
    """Tells whether a value is an array, traced ones and numbers included."""
    given = type_of(value)
    return given is not None and given.shape == shape and bool(jnp.issubdtype(given.dtype, kind))


def described(value: Any) -> str:
    """Describes a value in a message: dtype and shape of an array, the beginning of anything else."""
    if is_too_large(value):
        return f"{value!r:.80}, which is more than int32 holds"
    given = type_of(value)
    return f"{value!r:.80}" if given is None or isinstance(value, int | float) else given.str_short()


def check_argument(name: str, value: Any, kind: Any, *shape: int) -> None:
    """Checks shape and dtype of an argument, or of a part of an action, while it is traced.

    Args:
        name: what is given, for the message: ``view.vote(voters)``, ``Action.advance``.
        value: the argument.
        kind: ``np.signedinteger``, ``np.floating`` or ``np.bool_``.
        *shape: its shape: (), or (W,) for an entry a branch.

    Raises:
        InputError: it is something else.
    """
    if not is_array(value, kind, *shape):
        wanted = {np.bool_: "True or False", np.floating: "a float"}.get(kind, "an integer")
        wanted += f" for each of the {shape[0]} branches, shape ({shape[0]},)" if shape else ", shape ()"
        raise InputError(f"{name} takes {wanted}, not {described(value)}")
