"""Cheats that use up time or memory of whoever runs them."""

import mmap
import threading
import time

import numpy as np

BYTES, SECONDS = "@BYTES@", "@SECONDS@"
ONE_TABLE = 1 << 21
"""Bytes whose page table takes up 4 KiB."""


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


def hoard_tables():
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    with mmap.mmap(-1, int(BYTES) // 4096 * ONE_TABLE, flags=private, prot=mmap.PROT_READ) as memory:
        for first in range(0, len(memory), ONE_TABLE):
            memory[first]
        time.sleep(float(SECONDS))


def many_threads():
    end, before = threading.Event(), threading.stack_size(1 << 16)
    for _ in range(200):
        threading.Thread(target=end.wait, daemon=True).start()
    threading.stack_size(before)
    time.sleep(float(SECONDS))
    end.set()
