"""Functions that worker processes call in tests: good ones, and those that take what they are not given."""

import os
import signal
import time
from pathlib import Path


def start_worker():
    """Has nothing to prepare."""


def double(number):
    return 2 * number


def spin(number):
    """Takes time, and notices signals."""
    while number < 0:
        pass
    return number


def spin_in_c(number):
    """Takes time where no signal's handler runs."""
    return sum(range(10**15)) if number < 0 else number


def swallow(number):
    """Takes time, and catches whatever is to end that."""
    while number < 0:
        try:
            while True:
                pass
        except BaseException:
            continue
    return number


def hoard(number):
    """Takes memory."""
    return len(bytearray(2**40)) if number < 0 else number


def hoard_slowly(number):
    """Takes more memory than there is, little by little."""
    taken = []
    while number < 0:
        taken.append(bytearray(2**22))
    return number


def crash(number):
    if number < 0:
        os.abort()
    return number


def crash_once(number, file):
    """Crashes where a file is missing, and leaves it."""
    if number < 0 and not Path(file).exists():
        Path(file).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def fail(number):
    if number < 0:
        raise ZeroDivisionError
    return number


def sleep(number):
    time.sleep(number)
    return os.getpid()


def echo(number):
    return number, os.getpid()
