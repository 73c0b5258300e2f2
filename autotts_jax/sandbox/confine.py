"""What a child process gives up before it runs anybody's code: limits, files, the network, other processes.

The child loads this file by its path before anything else, while it has a single thread, so it imports the
standard library alone. Landlock and seccomp are called by ``ctypes``; neither needs privileges.

Sources: ``landlock(7)``, ``seccomp(2)`` and the numbers in ``asm/unistd.h`` of Linux 6.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Iterable, Sequence

KERNEL, PROCESS, NONE = "kernel", "process", "none"
"""Levels of a sandbox: what the kernel enforces, what a process of its own is worth, and nothing."""


class ConfinementError(OSError):
    """The kernel refused a part of the confinement, or lacks it."""


# --- limits ---------------------------------------------------------------------------------------------


def limit(memory: int, cpu_seconds: int | None) -> None:
    """Limits memory, CPU time, files and core dumps of this process, as far as the system can.

    Args:
        memory: bytes of data that the process may have.
        cpu_seconds: CPU time that it may take; None for no limit.
    """
    try:
        import resource
    except ImportError:  # Windows
        return
    limits = {"RLIMIT_CORE": 0, "RLIMIT_FSIZE": 0, "RLIMIT_NOFILE": 256, "RLIMIT_DATA": memory}
    if cpu_seconds is not None:
        limits["RLIMIT_CPU"] = cpu_seconds + 1
    for name, most in limits.items():
        if hasattr(resource, name):
            kind = getattr(resource, name)
            hard = resource.getrlimit(kind)[1]
            value = most if hard == resource.RLIM_INFINITY else min(most, hard)
            # A second before it is killed it is ended by the signal that says why.
            resource.setrlimit(kind, (value - (name == "RLIMIT_CPU"), value))


def end_with_parent(parent: int) -> None:
    """Has the kernel end this process when its parent ends."""
    if sys.platform == "linux":
        _prctl(_PR_SET_PDEATHSIG, 9)
    if os.getppid() != parent:
        os._exit(1)


# --- the kernel -----------------------------------------------------------------------------------------


def confine(readable: Iterable[str], listable: Iterable[str]) -> None:
    """Takes everything from this process but reading some files and computing; there is no way back.

    Afterwards no file can be opened but those below, none written, no socket made, and no process started,
    signalled or looked into. Threads can be started.

    Raises:
        ConfinementError: the kernel lacks Landlock or seccomp, or refuses them.
    """
    machine = platform.machine()
    if sys.platform != "linux" or machine not in _MACHINES:
        raise ConfinementError(f"no confinement is known for {sys.platform} on {machine}")
    if len(os.listdir("/proc/self/task")) != 1:  # noqa: PTH208
        raise ConfinementError("Landlock confines one thread, but the process has several")
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _restrict_files(readable, listable)
    _drop_capabilities()
    _filter_calls(machine)


_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None

_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_NAME, _PR_GET_NAME, _PR_SET_VMA = 15, 16, 0x53564D41

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every machine

_EXECUTE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 2, 1 << 3
_ACCESS_BY_ABI = {1: 1 << 13, 2: 1 << 14, 3: 1 << 15, 5: 1 << 16}
"""One bit more than the largest right on files that each version of Landlock knows."""
_NETWORK = (1 << 0) | (1 << 1)  # binding and connecting TCP sockets, since version 4
_SCOPES = (1 << 0) | (1 << 1)  # abstract sockets and signals, since version 6


def _succeeded(result: int) -> int:
    """What a function of the C library has returned, if it did not fail."""
    if result < 0:
        code = ctypes.get_errno()
        raise ConfinementError(code, os.strerror(code))
    return result


def _call(number: int, *arguments: object) -> int:
    assert _LIBC is not None
    return _succeeded(_LIBC.syscall(ctypes.c_long(number), *arguments))


def _prctl(option: int, value: int) -> None:
    assert _LIBC is not None
    none = ctypes.c_ulong(0)
    _succeeded(_LIBC.prctl(ctypes.c_int(option), ctypes.c_ulong(value), none, none, none))


def _restrict_files(readable: Iterable[str], listable: Iterable[str]) -> None:
    version = _call(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    files = max(bit for since, bit in _ACCESS_BY_ABI.items() if since <= version) - 1
    attributes = struct.pack("QQQ", files, _NETWORK if version >= 4 else 0, _SCOPES if version >= 6 else 0)
    size = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = _call(_CREATE_RULESET, attributes[:size], ctypes.c_size_t(size), ctypes.c_uint32(0))
    try:
        for path in readable:
            _allow(ruleset, path, _EXECUTE | _READ_FILE | _READ_DIR)
        for path in listable:
            _allow(ruleset, path, _READ_DIR)
        _call(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):  # or what is in an archive
        return
    try:
        if not os.path.isdir(path):  # noqa: PTH112
            access &= ~_READ_DIR
        rule = struct.pack("=Qi", access, place)
        _call(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(1), rule, ctypes.c_uint32(0))
    finally:
        os.close(place)


def _drop_capabilities() -> None:
    assert _LIBC is not None
    header, none = struct.pack("Ii", 0x20080522, 0), bytes(24)
    _succeeded(_LIBC.capset(header, none))


# --- system calls ---------------------------------------------------------------------------------------
# What Python, NumPy and JAX on a CPU were seen to use, and what their libraries fall back to. A call that is
# not listed fails with EPERM, so what a newer kernel adds is forbidden until somebody has looked at it.

_CALLS = {  # name: (x86_64, aarch64)
    "read": (0, 63),
    "write": (1, 64),
    "readv": (19, 65),
    "writev": (20, 66),
    "pread64": (17, 67),
    "close": (3, 57),
    "close_range": (436, 436),
    "lseek": (8, 62),
    "access": (21, None),
    "faccessat": (269, 48),
    "faccessat2": (439, 439),
    "stat": (4, None),
    "lstat": (6, None),
    "fstat": (5, 80),
    "newfstatat": (262, 79),
    "statx": (332, 291),
    "statfs": (137, 43),
    "fstatfs": (138, 44),
    "readlink": (89, None),
    "readlinkat": (267, 78),
    "getdents64": (217, 61),
    "getcwd": (79, 17),
    "chdir": (80, 49),
    "dup": (32, 23),
    "pipe2": (293, 59),
    "poll": (7, None),
    "ppoll": (271, 73),
    "select": (23, None),
    "pselect6": (270, 72),
    "epoll_create1": (291, 20),
    "epoll_ctl": (233, 21),
    "epoll_wait": (232, None),
    "epoll_pwait": (281, 22),
    "eventfd2": (290, 19),
    "munmap": (11, 215),
    "mprotect": (10, 226),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "brk": (12, 214),
    "membarrier": (324, 283),
    "get_mempolicy": (239, 236),
    "mlock": (149, 228),
    "munlock": (150, 229),
    "futex": (202, 98),
    "set_robust_list": (273, 99),
    "get_robust_list": (274, 100),
    "rseq": (334, 293),
    "set_tid_address": (218, 96),
    "arch_prctl": (158, None),
    "gettid": (186, 178),
    "getpid": (39, 172),
    "getppid": (110, 173),
    "getuid": (102, 174),
    "geteuid": (107, 175),
    "getgid": (104, 176),
    "getegid": (108, 177),
    "getpgrp": (111, None),
    "getpgid": (121, 155),
    "getsid": (124, 156),
    "uname": (63, 160),
    "getcpu": (309, 168),
    "getrandom": (318, 278),
    "getrusage": (98, 165),
    "times": (100, 153),
    "sched_yield": (24, 124),
    "sched_getaffinity": (204, 123),
    "sched_getparam": (143, 121),
    "sched_getscheduler": (145, 120),
    "sched_get_priority_max": (146, 125),
    "sched_get_priority_min": (147, 126),
    "time": (201, None),
    "gettimeofday": (96, 169),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115),
    "nanosleep": (35, 101),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "rt_sigsuspend": (130, 133),
    "rt_sigpending": (127, 136),
    "rt_sigtimedwait": (128, 137),
    "sigaltstack": (131, 132),
    "restart_syscall": (219, 128),
    "exit": (60, 93),
    "exit_group": (231, 94),
}

_CLONE, _CLONE3 = (56, 220), (435, 435)
_PRLIMIT, _GETRLIMIT = (302, 261), (97, 163)
_PRCTL, _FCNTL, _IOCTL, _TGKILL = (157, 167), (72, 25), (16, 29), (234, 131)
_CLONE_THREAD = 0x10000
_OPEN, _OPENAT = (2, None), (257, 56)
_WRITES = os.O_ACCMODE | os.O_CREAT | os.O_TRUNC
"""Flags that change files. Before its third version Landlock does not know the right to empty one."""
_MMAP, _MAP_SHARED = (9, 222), 1
_FCNTL_COMMANDS = (0, 1, 2, 3, 1030)
"""Duplicating descriptors, their flags, and reading the flags of files."""
_IOCTL_REQUESTS = (0x5401, 0x5413, 0x5450, 0x5451)
"""Terminal attributes, window size, closing on exec."""

_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Column of the tables and AUDIT_ARCH of each machine."""

_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_FAIL = 0x00050000
_NUMBER, _ARCHITECTURE = 0, 4

_Instruction = tuple[int, int, int, int]


def _filter_calls(machine: str) -> None:
    program = _program(machine)
    packed = b"".join(struct.pack("HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(packed, len(packed))
    arguments = struct.pack("HxxxxxxP", len(program), ctypes.addressof(buffer))
    # To all threads, though there is one: a filter that cannot be applied to all of them is an error.
    number = 317 if machine == "x86_64" else 277
    _call(number, ctypes.c_uint(1), ctypes.c_uint(1), arguments)


def _program(machine: str) -> list[_Instruction]:
    """The filter, as instructions of the classic Berkeley Packet Filter."""
    column, architecture = _MACHINES[machine]
    program: list[_Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    for numbers in _CALLS.values():
        number = numbers[column]
        if number is not None:
            program += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ALLOW)]
    # glibc starts threads by clone where clone3, whose flags a filter cannot see, does not exist.
    program += [(_EQUAL, 0, 1, _CLONE3[column]), (_RETURN, 0, 0, _FAIL | errno.ENOSYS)]
    program += _where(_CLONE[column], [(_LOAD, 0, 0, _low(0)), (_ANY_BIT, 0, 1, _CLONE_THREAD)])
    for numbers, flags in ((_OPEN, 1), (_OPENAT, 2)):
        number = numbers[column]
        if number is not None:
            program += _where(number, [(_LOAD, 0, 0, _low(flags)), (_ANY_BIT, 1, 0, _WRITES)], errno.EACCES)
    # Shared memory is held when no process maps it, so nobody could watch how much it is.
    program += _where(_MMAP[column], [(_LOAD, 0, 0, _low(3)), (_ANY_BIT, 1, 0, _MAP_SHARED)])
    # Limits can be read; the third argument of prlimit sets them.
    program += _where(
        _PRLIMIT[column],
        [
            (_LOAD, 0, 0, _low(2)),
            (_EQUAL, 0, 3, 0),
            (_LOAD, 0, 0, _low(2) + 4),
            (_EQUAL, 0, 1, 0),
        ],
    )
    program += [(_EQUAL, 0, 1, _GETRLIMIT[column]), (_RETURN, 0, 0, _ALLOW)]
    program += _where_argument(_PRCTL[column], 0, (_PR_SET_NAME, _PR_GET_NAME, _PR_SET_VMA))
    program += _where_argument(_FCNTL[column], 1, _FCNTL_COMMANDS)
    program += _where_argument(_IOCTL[column], 1, _IOCTL_REQUESTS)
    program += _where_argument(_TGKILL[column], 0, (os.getpid(),))  # abort and raise
    return [*program, (_RETURN, 0, 0, _FAIL | errno.EPERM)]


def _low(argument: int) -> int:
    """Offset of the lower half of an argument, on little-endian machines."""
    return 16 + 8 * argument


def _where(number: int, test: Sequence[_Instruction], error: int = errno.EPERM) -> list[_Instruction]:
    """Allows a call where a test, which jumps over one instruction otherwise, holds."""
    body = [*test, (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _FAIL | error)]
    return [(_EQUAL, 0, len(body), number), *body]


def _where_argument(number: int, argument: int, values: Sequence[int]) -> list[_Instruction]:
    """Allows a call whose argument is one of a few values."""
    tests: list[_Instruction] = [(_LOAD, 0, 0, _low(argument))]
    for left, value in zip(reversed(range(len(values))), values, strict=True):
        tests.append((_EQUAL, left, 0 if left else 1, value))
    return _where(number, tests)
