"""Classes and policies of a user's own, by import path or by file."""

from __future__ import annotations

import inspect
from typing import Any

from autotts_jax.errors import InputError
from autotts_jax.loading import import_place, last_lines


def load_class(path: str) -> type:
    """The class that ``module.name:Class`` or ``path/to/file.py:Class`` names.

    Raises:
        InputError: the file, module or class is missing, or importing it fails.
    """
    module, place, name = import_place("class", path)
    found = getattr(module, name, None)
    if not isinstance(found, type):
        classes = [key for key, value in vars(module).items() if isinstance(value, type)]
        raise InputError(
            f"class {path!r}: {place} has no class {name}; it has {', '.join(classes) or 'none'}"
        )
    return found


def load_policy(path: str) -> Any:
    """What ``module.name:Name`` or ``path/to/file.py:Name`` names; a class or a function is called for it.

    Raises:
        InputError: the file, module or name is missing, or importing or calling it fails.
    """
    module, place, name = import_place("policy", path)
    if not hasattr(module, name):
        public = [key for key in vars(module) if not key.startswith("_")]
        raise InputError(f"policy {path!r}: {place} has no {name}; it has {', '.join(public) or 'nothing'}")
    found = getattr(module, name)
    if not isinstance(found, type) and not inspect.isroutine(found):
        return found
    try:
        return found()
    except (Exception, SystemExit) as error:
        raise InputError(f"policy {path!r}: calling {name}() failed:\n{last_lines(error)}") from error
