"""A user's own code, named by import path or by file."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from autotts_jax.errors import InputError

TRACEBACK_LINES = 8
"""Lines of a traceback that a message shows."""


def import_place(kind: str, path: str) -> tuple[ModuleType, str, str]:
    """Imports the module of ``module.name:Name`` or ``path/to/file.py:Name``.

    Args:
        kind: what the path names, for messages: ``class``, ``policy``, ``function``.
        path: an import path or a file, a colon, and a name in it.

    Returns:
        The module, the part of the path before the colon, and the name.

    Raises:
        InputError: the file or module is missing, or importing it fails.
    """
    place, _, name = path.rpartition(":")
    if not place or not name:
        raise InputError(
            f"{kind} {path!r}: give it as path/to/file.py:{kind.title()} or module.name:{kind.title()}"
        )
    file = Path(place) if place.endswith(".py") else None
    if file and not file.is_file():
        raise InputError(f"{kind} {path!r}: there is no file {place}")
    try:
        return _import_file(file) if file else importlib.import_module(place), place, name
    except (Exception, SystemExit) as error:
        raise InputError(f"{kind} {path!r}: importing {place} failed:\n{last_lines(error)}") from error


def load_class(path: str) -> type:
    """Imports a class.

    Args:
        path: ``module.name:Class`` or ``path/to/file.py:Class``.

    Returns:
        The class.

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


def load_object(path: str) -> Any:
    """Imports what ``module.name:Name`` or ``path/to/file.py:Name`` names.

    Args:
        path: import path or file, a colon, and the name in it.

    Raises:
        InputError: the file, module or name is missing, or importing fails.
    """
    module, place, name = import_place("class", path)
    if not hasattr(module, name):
        classes = [key for key, value in vars(module).items() if isinstance(value, type)]
        raise InputError(
            f"class {path!r}: {place} has no class {name}; it has {', '.join(classes) or 'none'}"
        )
    return getattr(module, name)


def load_policy(path: str) -> Any:
    """Imports a policy.

    Args:
        path: ``module.name:Name`` or ``path/to/file.py:Name``.

    Returns:
        The object of this name; if it is a class or a function, what a call without arguments returns.

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


def last_lines(error: BaseException) -> str:
    """Formats the end of an exception's traceback.

    Args:
        error: the exception.

    Returns:
        The last `TRACEBACK_LINES` lines.
    """
    lines = "".join(traceback.format_exception(error)).splitlines()
    return "\n".join(lines[-TRACEBACK_LINES:])


def _import_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"autotts_jax_user_{path.stem}", path)
    assert spec is not None  # for the type checker: a .py file has a loader
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up while it is being executed.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
