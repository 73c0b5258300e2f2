"""Checks of arguments that come from outside."""

from __future__ import annotations

from typing import Any

import numpy as np

from autotts_jax.errors import InputError


def whole(name: str, value: Any, least: int | None = 0, most: int | None = None) -> int:
    """Checks that an argument is a whole number.

    Args:
        name: what the argument is called, for the message.
        value: the argument.
        least: the least number allowed; None for no such limit.
        most: the largest number allowed; None for no such limit.

    Returns:
        The number as a Python integer.

    Raises:
        InputError: it is not an integer, or out of range.
    """
    if not isinstance(value, int | np.integer) or isinstance(value, bool):
        raise InputError(f"{name} is {value!r}, but it must be a whole number")
    if (least is not None and value < least) or (most is not None and value > most):
        limits = f"at least {least}" if most is None else f"between {least} and {most}"
        raise InputError(f"{name} is {value}, but it must be {limits}")
    return int(value)
