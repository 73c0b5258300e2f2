"""What the sections of a configuration have in common."""

from __future__ import annotations

from typing import Any, ClassVar

MAX_SIZE = 2**14
"""The largest width or population. XLA does not say that memory is missing: it aborts, or waits for ever."""


class Settings:
    """Base class of the frozen dataclasses that describe a section of a configuration.

    They are plain dataclasses in Python. When `autotts_jax.training.read_config` fills them from a file,
    pydantic checks the types. ``__post_init__`` checks the values; its messages begin with the field's name.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {
        "extra": "forbid",
        "strict": True,
        "allow_inf_nan": False,
    }
