"""Optional packages, which come with the extras of ``pip install 'autotts-jax[…]'``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from autotts_jax.errors import InputError


@contextlib.contextmanager
def needs(extra: str, what: str) -> Iterator[None]:
    """Turns the failure of an import in its block into a message that names the extra to install.

    Raises:
        InputError: a package is missing.

    Example:
        >>> from autotts_jax.extras import needs
        >>> with needs("plot", "a picture"):
        ...     from matplotlib.figure import Figure
    """
    try:
        yield
    except ImportError as error:
        package = (error.name or "a package").partition(".")[0]
        raise InputError(f"{what} needs {package}: pip install 'autotts-jax[{extra}]'") from error
