"""The lines that say how far a command is, which a slow machine prints more of."""

import re

_LINES = re.compile(r"autotts-jax: \d+:\d\d:\d\d  .*\n")


def without_progress(stderr):
    return _LINES.sub("", stderr)
