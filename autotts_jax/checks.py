"""Checks of arguments that come from outside."""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from autotts_jax.commands import without_secrets
from autotts_jax.errors import InputError


def check_int(name: str, value: Any, least: int | None = 0, most: int | None = None) -> int:
    """Checks that an argument is a whole number.

    Returns:
        The number as a Python integer.

    Raises:
        InputError: it is not an integer, or out of range.
    """
    if not isinstance(value, int | np.integer) or isinstance(value, bool):
        raise InputError(f"{name} is {value!r:.60}, but it must be a whole number")
    if (least is not None and value < least) or (most is not None and value > most):
        limits = f"at least {least}" if most is None else f"between {least} and {most}"
        raise InputError(f"{name} is {value!s:.60}, but it must be {limits}")
    return int(value)


def check_float(
    name: str,
    value: Any,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
) -> float:
    """Checks that an argument is a finite number.

    Returns:
        The number as a Python float.

    Raises:
        InputError: it is not a finite number, or out of range.
    """
    limit = "" if least is None else f" of at least {least:g}"
    limit += "" if above is None else f" above {above:g}"
    limit += "" if most is None else f"{' and' if limit else ' of'} at most {most:g}"
    real = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    try:
        plain = float(value) if real else math.nan
    except OverflowError:  # of a long integer
        plain = math.inf
    high = (least is None or plain >= least) and (above is None or plain > above)
    if not (math.isfinite(plain) and high and (most is None or plain <= most)):
        raise InputError(f"{name} is {value!r:.60}, but it must be a finite number{limit}")
    return plain + 0.0  # 0 where it is -0


def check_text(name: str, value: Any) -> str:
    """Checks that an argument is text that files and requests, which are UTF-8, can hold.

    Returns:
        The text.

    Raises:
        InputError: it is not text, or holds half of a surrogate pair.
    """
    if not isinstance(value, str):
        raise InputError(f"{name} is {value!r:.60}, but it must be text")
    if any("\ud800" <= char <= "\udfff" for char in value):
        raise InputError(
            f"{name} is {value!r:.60}, which UTF-8 cannot write: it holds half of a surrogate pair; remove it"
        )
    return value


def check_address(name: str, value: Any) -> str:
    """Checks that an argument is the address of a server.

    Returns:
        The address.

    Raises:
        InputError: it is not an address that HTTP can be spoken to. The message leaves secrets out.
    """
    value = check_text(name, value)
    try:
        parts = urlsplit(value)
        named = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of the port, or of brackets
        named = False
    if not named or not value.isprintable() or " " in value:
        (shown,) = without_secrets([value])
        raise InputError(
            f"{name} is {shown!r:.80}, but it must be the address of a server, as http://HOST:PORT/v1"
        )
    return value


def check_label(name: str, value: Any) -> str:
    """Checks that an argument can be shown as a name in tables and files.

    Returns:
        The text.

    Raises:
        InputError: it is not text, empty, too long, or holds what cannot be printed.
    """
    value = check_text(name, value)
    if not (0 < len(value) <= 1000 and value.isprintable()):
        raise InputError(f"{name} is {value!r:.60}, but it must be 1 to 1000 printable characters")
    return value


def check_bool(name: str, value: Any) -> bool:
    """Checks that an argument is True or False.

    Returns:
        The argument as a Python bool.

    Raises:
        InputError: it is something else.
    """
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{name} is {value!r:.60}, but it must be True or False")
    return bool(value)


def check_choice(what: str, value: Any, known: Iterable[str]) -> str:
    """Checks that an argument is one of some names.

    Returns:
        The name.

    Raises:
        InputError: there is none of this name.
    """
    names = tuple(known)
    if not isinstance(value, str) or value not in names:
        raise InputError(f"unknown {what} {value!r:.60}; {nearest(value, names)}")
    return value


def nearest(name: object, known: Iterable[str]) -> str:
    """Says which names there are where one is unknown, and which one was meant."""
    there_are = list(known)
    meant = difflib.get_close_matches(str(name), there_are, 1, 0.5)
    there = "".join(f"did you mean {close!r}? There" for close in meant) or "there"
    return f"{there} are {', '.join(there_are)}"


def check_callback(name: str, function: Callable[..., Any] | None, *given: str) -> None:
    """Checks that an optional function can be called with what it will be given.

    Raises:
        InputError: it is not a function, or takes other arguments.
    """
    if function is None:
        return
    wanted = f"it must be a function of {len(given)} argument{'s' * (len(given) > 1)}: {', '.join(given)}"
    if not callable(function):
        raise InputError(f"{name} is {function!r:.60}, but {wanted}")
    try:
        signature = inspect.signature(function)
    except ValueError:  # some built-in functions have none
        return
    try:
        signature.bind(*given)
    except TypeError as error:
        raise InputError(f"{name} takes {signature}, but {wanted}") from error
