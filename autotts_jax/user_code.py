"""A user's own code, named by import path or by file."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.machinery
import importlib.util
import inspect
import linecache
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from autotts_jax.errors import InputError
from autotts_jax.files import exists
from autotts_jax.terminal import QUOTED, quoted

TRACEBACK_LINES = 8
"""Lines of a traceback that a message shows."""

_REMOVED_FRAMES = ("-" * 20, "For simplicity, JAX has removed")
"""How the lines begin by which JAX remarks, below an error, that it left out frames."""


@dataclasses.dataclass(frozen=True)
class UserCode:
    """Somebody's code that was found and not run.

    Attributes:
        path: ``module.name:Name`` or ``path/to/file.py:Name``, as it was given.
        kind: what the path names, for messages: ``class``, ``policy``, ``function``.
        source: the text of the file; None for a module.
    """

    path: str
    kind: str = "class"
    source: str | None = None

    @property
    def place(self) -> str:
        """The file or the module."""
        return self.path.rpartition(":")[0]

    @property
    def name(self) -> str:
        """The name in it."""
        return self.path.rpartition(":")[2]

    def load(self) -> Any:
        """Runs the code.

        Returns:
            What is named.

        Raises:
            InputError: the module or the name is missing, or running it fails.
        """
        try:
            if self.source is None:
                module = importlib.import_module(self.place)
            else:
                module = _run(self.place, self.source)
        except ModuleNotFoundError as error:
            if not f"{self.place}.".startswith(f"{error.name}."):
                message = last_lines(error)
                if Path(self.place).with_name(f"{error.name}.py").exists():
                    message += "\ngive both modules as one package on PYTHONPATH: package.module:NAME"
                raise self._failed(message) from error
            raise self._failed(f"there is no module {error.name}") from None
        except (Exception, SystemExit) as error:
            raise self._failed(last_lines(error)) from error
        if not hasattr(module, self.name):
            own = {key: value for key, value in vars(module).items() if not key.startswith("_")}
            names = [key for key, value in own.items() if not inspect.ismodule(value)]
            raise InputError(
                f"{self.kind} {self.path!r}: {self.place} has no {self.kind} {self.name}; it has "
                f"{quoted(', '.join(names)) or 'none'}"
            )
        return getattr(module, self.name)

    def _failed(self, how: str) -> InputError:
        return InputError(f"{self.kind} {self.path!r}: importing {self.place} failed:\n{how}")

    def package(self) -> tuple[str, str, list[str]] | None:
        """Finds the package or module that has to be imported first, without importing it.

        Returns:
            Its name, its file, and the folders of its modules; None for a file, or where there is none.
        """
        name = self.place.partition(".")[0]
        spec = None if self.source is not None else importlib.machinery.PathFinder.find_spec(name)
        if spec is None or spec.origin is None:
            return None
        return name, spec.origin, list(spec.submodule_search_locations or ())

    def file(self) -> Path | None:
        """Finds the file that the code is in, without running anything.

        Returns:
            The file; None of a module that is in none, or that is not found.
        """
        if self.source is not None:
            return Path(self.place)
        spec, folders = None, None
        parts = self.place.split(".")
        for number in range(len(parts)):
            spec = importlib.machinery.PathFinder.find_spec(".".join(parts[: number + 1]), folders)
            if spec is None:
                return None
            folders = spec.submodule_search_locations
        return Path(spec.origin) if spec and spec.origin and Path(spec.origin).is_file() else None


def find_code(path: str, kind: str = "class") -> UserCode:
    """Finds code, and reads it where it is in a file; nothing of it is run.

    Raises:
        InputError: the path is none of these, or the file is missing or no text.
    """
    place, _, name = path.rpartition(":")
    if not place or not name:
        raise InputError(
            f"{kind} {path!r}: give it as path/to/file.py:{kind.title()} or module.name:{kind.title()}"
        )
    is_file = exists(place) and Path(place).is_file()
    if not place.endswith(".py"):
        if is_file and "." in place:
            raise InputError(f"{kind} {path!r}: {place} is a file, but a file of code ends in .py")
        return UserCode(path, kind)
    if not is_file:
        raise InputError(f"{kind} {path!r}: there is no file {place}")
    try:
        return UserCode(path, kind, Path(place).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{kind} {path!r}: cannot read {place}: {error}") from error


def load_object(path: str, kind: str = "class") -> Any:
    """Imports an object.

    Returns:
        The object.

    Raises:
        InputError: the file, module or name is missing, or importing it fails.
    """
    return find_code(path, kind).load()


def last_lines(error: BaseException) -> str:
    """Formats the end of an exception's traceback.

    Returns:
        Whole entries of the last `TRACEBACK_LINES` lines, each line shortened.
    """
    written = "".join(traceback.format_exception(error)).splitlines()
    lines = [line for line in written if not line.startswith(_REMOVED_FRAMES)][-TRACEBACK_LINES:]
    entries = [at for at, line in enumerate(lines) if line.startswith('  File "')]
    whole = lines[entries[0] :] if entries else lines
    return "\n".join(line if len(line) <= QUOTED else quoted(line) for line in whole)


def _run(file: str, source: str) -> ModuleType:
    """Runs the text of a file as a module."""
    module = ModuleType(f"autotts_jax_user_{Path(file).stem}")
    module.__file__ = file
    # Dataclasses look their module up while it is being run, and tracebacks show lines of it.
    sys.modules[module.__name__] = module
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec"), module.__dict__)
    return module
