"""A user's own code, named by import path or by file."""

from __future__ import annotations

import importlib
import importlib.util
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


def load_object(path: str, kind: str = "class") -> Any:
    """Imports an object.

    Args:
        path: ``module.name:Name`` or ``path/to/file.py:Name``.
        kind: what the path names, for messages.

    Returns:
        The object.

    Raises:
        InputError: the file, module or name is missing, or importing it fails.
    """
    module, place, name = import_place(kind, path)
    if not hasattr(module, name):
        raise _missing(kind, path, module, place, name)
    return getattr(module, name)


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
        raise _missing("class", path, module, place, name)
    return found


def _missing(kind: str, path: str, module: ModuleType, place: str, name: str) -> InputError:
    names = [
        key
        for key, value in vars(module).items()
        if not key.startswith("_") and (kind != "class" or isinstance(value, type))
    ]
    return InputError(f"{kind} {path!r}: {place} has no {kind} {name}; it has {', '.join(names) or 'none'}")


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
