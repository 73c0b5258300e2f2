"""The command line: ``autotts-jax``."""

from __future__ import annotations

import gc
import io
import re
import sys
import warnings
from typing import Any, TextIO

from autotts_jax.cli.ending import INTERRUPTED, give_up, orderly, tell
from autotts_jax.errors import InputError, InputWarning
from autotts_jax.terminal import printable

_NO_BACKEND = "Unable to initialize backend"
"""What JAX says where the environment names a backend that it does not have."""

_NO_MEMORY = "RESOURCE_EXHAUSTED"
"""What JAX says where an array does not fit into memory."""

GC_THRESHOLD = 100_000, 50, 100
"""When Python's garbage collector looks through all objects.

Tracing makes millions of objects that stay. By default 8 % of the time of an evaluation go into looking
through them again and again.
"""


def main() -> None:
    """Runs the command line, and ends the process.

    A user's error, or what the operating system refuses, is one message on stderr and exit status 2. Ctrl-C
    ends a command with status 130, and SIGTERM with 143.
    """
    gc.set_threshold(*GC_THRESHOLD)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # of an encoding that may lack letters which tables have
            stream.reconfigure(errors="replace")
    with warnings.catch_warnings(), orderly():
        warnings.simplefilter("default", InputWarning)  # once each, however often a server answers
        warnings.showwarning = _show_warning
        try:
            # Importing the commands, and JAX with them, takes a second, in which a signal may come.
            from autotts_jax.cli.app import app

            try:
                app()
            finally:
                if sys.stdout is not None:  # as it is where a command is started without one
                    sys.stdout.flush()  # or the interpreter would find out at its end that it cannot write
        except InputError as error:
            tell(f"error: {_by_options(str(error))}")
            sys.exit(2)
        except (MemoryError, RuntimeError) as error:
            if isinstance(error, MemoryError) or _NO_MEMORY in str(error):
                tell(f"error: there is too little memory ({error}); give less data, seeds, branches or width")
            elif _NO_BACKEND in str(error):
                tell(f"error: JAX cannot start: {error}; correct JAX_PLATFORMS, or unset it")
            else:
                raise
            sys.exit(2)
        except KeyboardInterrupt:
            tell("interrupted")
            sys.exit(INTERRUPTED)
        except OSError as error:
            give_up(sys.stdout)
            if isinstance(error, BrokenPipeError):
                sys.exit(1)  # as typer does: whoever reads has read enough, as in `| head`
            tell(f"error: {error.filename or 'the output'}: {error.strerror or error}")
            sys.exit(2)


def _by_options(message: str) -> str:
    """Names the options of the command in a message that has the arguments which they stand for."""
    from typer.main import get_command

    from autotts_jax.cli.app import app

    command: Any = get_command(app)
    for word in sys.argv[1:]:
        command = getattr(command, "commands", {}).get(word, command)
    options = {one.name: one.opts[0] for one in command.params if one.name and "_" in one.name}
    names = "|".join(map(re.escape, options))
    # Not in paths and quotes; a parenthesis follows where an option or a value is named already.
    found = rf"(?<![\w./'-])(?:{names})(?![\w./'-]| \()" if names else r"(?!)"
    return re.sub(found, lambda match: options[match[0]], message)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,  # noqa: ARG001  # the standard library's signature
    line: str | None = None,
) -> None:
    """Prints an `InputWarning` as one line, and any other warning as Python does."""
    if issubclass(category, InputWarning):
        tell(f"warning: {_by_options(str(message))}")
    else:
        shown = printable(warnings.formatwarning(message, category, filename, lineno, line), lines=True)
        sys.stderr.write(shown)


if __name__ == "__main__":
    main()
