"""Cheats that use up time or memory of whoever runs them."""

import mmap
import time

import numpy as np

BYTES, SECONDS = "@BYTES@", "@SECONDS@"


def think_too_long():
    time.sleep(float(SECONDS))


def loop():
    end = time.monotonic() + float(SECONDS)
    while time.monotonic() < end:
        pass


def hoard():
    return np.ones(int(BYTES), np.uint8)


def hoard_shared():
    with mmap.mmap(-1, int(BYTES)) as memory:
        for first in range(0, int(BYTES), 4096):
            memory[first] = 1
        time.sleep(float(SECONDS))
