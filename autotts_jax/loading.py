"""What a user names by import path or by file."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from autotts_jax.errors import InputError

TRACEBACK_LINES = 8


def import_place(kind: str, path: str) -> tuple[ModuleType, str, str]:
    """The module that ``module.name:Name`` or ``path/to/file.py:Name`` leads to, where it is, and the name.

    Args:
        kind: what is looked for, for messages: ``class``, ``policy``, ``function``.
        path: import path or file, a colon, and the name in it.

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


def last_lines(error: BaseException) -> str:
    """The end of an exception's traceback."""
    lines = "".join(traceback.format_exception(error)).splitlines()
    return "\n".join(lines[-TRACEBACK_LINES:])


def _import_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"autotts_jax_user_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up while it is being executed.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
