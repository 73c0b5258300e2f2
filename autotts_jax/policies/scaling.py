"""Controllers with other constants: numbers among their fields, each times a factor."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax
import numpy as np

from autotts_jax.core.controller import Controller, limits_of

Made = TypeVar("Made", bound=Controller)


def constants(controller: Controller) -> tuple[str, ...]:
    """Names the constants of a controller: those of its leaves that are single numbers, but for booleans.

    Returns:
        Names, as ``patience`` for a field and ``rule.patience`` for a field of a field.
    """
    leaves, _ = jax.tree_util.tree_flatten_with_path(controller)
    return tuple(_name(path) for path, leaf in leaves if _is_number(leaf))


def scaled(controller: Made, factors: Mapping[str, float]) -> Made:
    """Multiplies constants of a controller; whole numbers are rounded, half to even.

    They keep to the least and the largest number that `within` declares, and whole ones to those of int32.

    Returns:
        A controller of the same class; what plays the one plays the other without another compilation.
    """
    limits = limits_of(controller)

    def scale(path: Any, leaf: Any) -> Any:
        name = _name(path)
        if name not in factors or not _is_number(leaf):
            return leaf
        least, most = limits.get(name, (-np.inf, np.inf))
        product = min(max(float(leaf) * factors[name], least), most)
        kind = np.dtype(np.int32) if isinstance(leaf, int) else np.asarray(leaf).dtype
        if np.issubdtype(kind, np.integer):
            product = min(max(round(product), np.iinfo(kind).min), np.iinfo(kind).max)
        return type(leaf)(product) if isinstance(leaf, int | float) else np.asarray(product, kind)

    return jax.tree_util.tree_map_with_path(scale, controller)


def tuned(make: Callable[[float], Made], factors: Mapping[str, float]) -> Callable[[float], Made]:
    """Tunes a family of controllers: multiplies constants by the same factors at every value.

    Args:
        make: makes the controller at a value, such as β.
        factors: a factor for each constant that changes, by the name that `constants` gives it.

    Returns:
        A function that makes the tuned controller at a value.

    Example:
        >>> from autotts_jax.policies import CMC, tuned
        >>> tuned(CMC.of_beta, {"max_use": 0.5})(1.0).max_use
        32
    """
    return functools.partial(_tuned, make, factors)


def _tuned(make: Callable[[float], Made], factors: Mapping[str, float], value: float) -> Made:
    return scaled(make(value), factors)


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _is_number(leaf: Any) -> bool:
    kind = np.asarray(leaf).dtype
    return np.ndim(leaf) == 0 and (np.issubdtype(kind, np.integer) or jax.numpy.issubdtype(kind, np.floating))
