"""The sandbox: its messages, and what a confined process cannot do."""

import contextlib
import json
import platform
import struct
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from autotts_jax.errors import InputError
from autotts_jax.sandbox import Sandbox, SandboxError, confine, process
from autotts_jax.sandbox.messages import DTYPES, MAX_BYTES, MAX_HEADER, MAX_SAID, Frames, MessageError, encode
from autotts_jax.sandbox.process import PACKAGE, Child, import_path, listable_places, readable_places

# --- messages -------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(max_size=9),
    lambda part: st.lists(part, max_size=3) | st.dictionaries(st.text(max_size=5), part, max_size=3),
    max_leaves=8,
)
SAYS = st.dictionaries(st.text(max_size=5), JSON, max_size=3)
ARRAYS = st.dictionaries(
    st.text(max_size=5),
    st.sampled_from(DTYPES).flatmap(
        lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=0, min_side=0, max_side=4))
    ),
    max_size=3,
)


@given(st.lists(st.tuples(SAYS, ARRAYS), max_size=3), st.integers(1, 100))
def test_messages_arrive_as_they_were_sent(messages, chunk):
    stream = b"".join(encode(*message) for message in messages)
    frames, received = Frames(), []
    for first in range(0, len(stream), chunk):
        frames.feed(stream[first : first + chunk])
        while not frames.wanted():
            received.append(frames.take())
    assert [message.says for message in received] == [says for says, _ in messages]
    for message, (_, sent) in zip(received, messages, strict=True):
        assert message.arrays.keys() == sent.keys()
        for name, array in sent.items():
            assert message.arrays[name].dtype == array.dtype
            np.testing.assert_array_equal(message.arrays[name], array)


def taken(stream):
    """The message that a stream begins with, or None where it is not complete."""
    frames = Frames()
    frames.feed(stream)
    return None if frames.wanted() else frames.take()


def framed(text, body=b""):
    return struct.pack("<II", len(text), len(body)) + text + body


@given(st.binary(max_size=200), st.binary(max_size=50))
def test_bytes_that_are_no_message_give_one_kind_of_error(text, body):
    for stream in (text, framed(text, body), framed(b"[{}, " + text + b"]", body)):
        with contextlib.suppress(MessageError):
            taken(stream)


@pytest.mark.parametrize(
    ("text", "body"),
    [
        (b"[]", b""),
        (b"{}", b""),
        (b"[[], []]", b""),
        (b"[{}, 1]", b""),
        (b"[{}, [1]]", b""),
        (b"[{}, []]", b"more"),
        (b'[{}, [["a", "int32", -1]]]', b"1234"),
        (b'[{}, [["a", "int32", true]]]', b"1234"),
        (b'[{}, [["a", "int32", 2]]]', b"1234"),
        (b'[{}, [["a", "object", 1]]]', b"12345678"),
        (b'[{}, [["a", ["int32"], 1]]]', b"1234"),
        (b'[{}, [["a", "int64", %d]]]' % 2**63, b"1234"),
        (b'[{}, [["a", "int8", 0, %d, %d]]]' % (2**62, 2**62), b""),
        (b'[{}, [["a", "int8"%b]]]' % (b", 1" * 100), b"1"),
        (b"[" * 10**5, b""),
        (b"[{}, %b]" % (b"9" * 10**4), b""),
    ],
)
def test_frames_that_hold_no_message(text, body):
    with pytest.raises(MessageError):
        taken(framed(text, body))


@pytest.mark.parametrize("axes", [["9" * 4000] * 3, ["1"] * 100, ["268435457", "0"]])
def test_axes_that_are_long_or_many_are_not_multiplied(axes):
    with pytest.raises(MessageError, match=rf"an array of 'int8' and {len(axes)} axes"):
        taken(framed(f'[{{}}, [["a", "int8", {", ".join(axes)}]]]'.encode(), b"1"))


@pytest.mark.parametrize("sizes", [(MAX_HEADER + 1, 0), (0, MAX_BYTES + 1), (2**32 - 1, 2**32 - 1)])
def test_frames_that_are_too_large_are_noticed_by_their_first_bytes(sizes):
    with pytest.raises(MessageError, match="too large"):
        taken(struct.pack("<II", *sizes))


@pytest.mark.parametrize(("says", "sent", "most"), [("x" * MAX_SAID, 0, 0), ("x", 2, 7)])
def test_messages_that_are_larger_than_they_can_be_are_noticed_by_their_first_bytes(says, sent, most):
    frames = Frames()
    frames.feed(encode({"text": says}, {"a": np.zeros(sent, np.int32)})[:8])
    assert frames.wanted() > 0
    with pytest.raises(MessageError, match="too large"):
        frames.wanted(MAX_SAID, most)


def test_messages_that_are_too_large_are_not_sent():
    with pytest.raises(MessageError, match="too large"):
        encode({"text": "x" * MAX_HEADER})


def test_a_byte_that_is_neither_true_nor_false_is_true():
    assert taken(framed(b'[{}, [["a", "bool", 2]]]', b"\x00\x07")).arrays["a"].tolist() == [False, True]


@pytest.mark.parametrize(
    "settings",
    [
        {"level": "best"},
        {"level": None},
        {"seconds": 0},
        {"memory": -1},
        {"seconds": float("nan")},
        {"wall_seconds": 0},
    ],
)
def test_a_sandbox_has_sensible_limits(settings):
    with pytest.raises(InputError):
        Sandbox(**settings)


# --- confinement ----------------------------------------------------------------------------------------

CONFINED = """
import ctypes, importlib.util, json, os, signal, socket, sys, threading
job = json.loads(sys.stdin.read())
spec = importlib.util.spec_from_file_location("confine", job["confine"])
confine = importlib.util.module_from_spec(spec)
spec.loader.exec_module(confine)
libc = ctypes.CDLL(None, use_errno=True)
before, parent = os.open("/etc", os.O_RDONLY), os.getppid()

def call(number, *arguments):
    if libc.syscall(ctypes.c_long(number), *(ctypes.c_ulong(a) for a in arguments)) < 0:
        raise OSError(ctypes.get_errno(), "")

def resource_limit():
    import resource
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

def vfork():
    os.posix_spawn("/bin/true", ["true"], {})

confine.limit(1 << 32, None)
real = confine._call

def older(number, *arguments):
    result = real(number, *arguments)
    return min(result, job["landlock"]) if (number, arguments[0]) == (444, None) else result

confine._call = older
try:
    confine.confine(job["readable"], [])
except confine.ConfinementError as error:
    print(json.dumps(str(error)))
    sys.exit()
done = []
for name, source in job["probes"].items():
    try:
        eval(source)
        done.append(name)
    except (OSError, ImportError, ValueError):
        pass
started = []
thread = threading.Thread(target=started.append, args=(1,))
thread.start()
thread.join()
sys.path[:] = job["path"]
exec(job["works"])
print(json.dumps([done, started]))
"""
PROBES = {
    "read a file": "open('/etc/passwd')",
    "read a file next to an open folder": "os.open('passwd', os.O_RDONLY, dir_fd=before)",
    "list a folder": "os.listdir('/')",
    "write here": "open('x', 'w')",
    "write elsewhere": "open('/tmp/x', 'w')",
    "shared memory": "open('/dev/shm/x', 'w')",
    "look into itself": "open('/proc/self/maps')",
    "write to itself": "open('/proc/self/mem', 'r+b')",
    "look at the parent's variables": "open(f'/proc/{parent}/environ')",
    "look at the parent's files": "os.listdir(f'/proc/{parent}/fd')",
    "follow the parent's files": "os.readlink(f'/proc/{parent}/fd/0')",
    "socket": "socket.socket()",
    "local socket": "socket.socket(socket.AF_UNIX)",
    "socket pair": "socket.socketpair()",
    "fork": "os.fork() or os._exit(0)",
    "spawn": "vfork()",
    "exec": "os.execv('/bin/true', ['true'])",
    "exec a descriptor": "os.execve(before, ['true'], {})",
    "signal the parent": "os.kill(parent, 0)",
    "signal the group": "os.killpg(0, signal.SIGCONT)",
    "signal all": "os.kill(-1, 0)",
    "limits": "resource_limit()",
    "priority": "os.setpriority(os.PRIO_PROCESS, 0, 5)",
    "affinity": "os.sched_setaffinity(0, {0})",
    "mode": "os.chmod('/tmp', 0o777)",
    "owner": "os.chown('/tmp', 0, 0)",
    "unlink": "os.unlink('/tmp/x')",
    "make a folder": "os.mkdir('x')",
    "link": "os.symlink('/etc/passwd', 'x')",
    "make a pipe with a name": "os.mkfifo('x')",
    "rename": "os.rename('/tmp', '/x')",
    "truncate": "os.truncate('/tmp/x', 0)",
    "times": "os.utime('/tmp')",
    "session": "os.setsid()",
    "user": "os.setuid(0)",
    "root": "os.chroot('/')",
    "memory file": "os.memfd_create('x')",
    "process descriptor": "os.pidfd_open(parent)",
}
NUMBERS = {  # of x86-64
    "look into processes": (101, 16, 1),
    "read another's memory": (310, 1, 0, 0, 0, 0, 0),
    "rings of input and output": (425, 1, 0),
    "name spaces": (272, 0x10000000),
    "enter a name space": (308, 3, 0),
    "mount": (165, 0, 0, 0, 0, 0),
    "programs in the kernel": (321, 0, 0, 0),
    "performance events": (298, 0, 0, 0, 0, 0),
    "page faults": (323, 0),
    "keys": (250, 0, 0),
    "files by handle": (303, -100 % 2**64, 0, 0, 0, 0),
    "shared memory of System V": (29, 0, 4096, 0o1600),
    "a new user by clone": (56, 0x10000000 | 17, 0, 0, 0, 0),
    "another filter": (317, 1, 0, 0),
    "shared memory": (9, 0, 4096, 3, 0x21, 2**64 - 1, 0),
    "shared memory, checked": (9, 0, 4096, 3, 0x23, 2**64 - 1, 0),
    "survive the parent": (157, 1, 0, 0, 0, 0),
    "be dumped": (157, 4, 1, 0, 0, 0),
    "signals by files": (72, 3, 8, 1),
    "type into a terminal": (16, 0, 0x5412, 0),
    "signal a thread of the parent": (234, 1, 1, 0),
    "notice files": (253,),
}


def confined(probes, works="", readable=(), landlock=99):
    job = {
        "confine": str(PACKAGE / "sandbox" / "confine.py"),
        "readable": [*readable_places(), *map(str, readable)],
        "landlock": landlock,
        "path": import_path(),
        "probes": probes,
        "works": works,
    }
    command = [sys.executable, "-I", "-S", "-B", "-c", CONFINED]
    ran = subprocess.run(
        command, input=json.dumps(job), capture_output=True, text=True, timeout=200, check=False
    )
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    if isinstance(said, str):
        pytest.skip(f"this machine does not confine processes: {said}")
    return said


def test_a_confined_process_can_do_nothing_but_compute():
    numbers = NUMBERS if platform.machine() == "x86_64" else {}
    calls = {name: f"call{tuple(number)}" for name, number in numbers.items()}
    works = "import numpy; assert numpy.linalg.inv(numpy.eye(3) * 2).sum() == 1.5"
    assert confined(PROBES | calls, works) == [[], [1]]


@pytest.mark.parametrize("landlock", [1, 2, 99])
def test_what_may_be_read_is_not_changed_whatever_the_version_of_landlock(tmp_path, landlock):
    file = tmp_path / "module.py"
    file.write_text("x = 1")
    flags = ("O_RDONLY | os.O_TRUNC", "O_WRONLY", "O_RDWR", "O_RDONLY | os.O_CREAT | os.O_TRUNC")
    probes = {flag: f"os.open({str(file)!r}, os.{flag})" for flag in flags}
    assert confined(probes, f"assert open({str(file)!r}).read() == 'x = 1'", [file], landlock) == [[], [1]]


def test_jax_computes_in_a_confined_process():
    works = "import jax; assert jax.jit(lambda x: (x @ x.T).sum())(jax.numpy.ones((50, 50))) == 125_000"
    confined({}, works)


def test_a_package_among_installed_ones_is_found_with_them(monkeypatch, tmp_path):
    """Imports list the folder of installed packages, of which all may be read but this package's data."""
    installed = tmp_path / "lib" / "site-packages"
    (installed / "numpy").mkdir(parents=True)
    package = installed / "autotts_jax"
    package.mkdir()
    monkeypatch.setattr(process, "PACKAGE", package)
    monkeypatch.setattr(
        process.sysconfig, "get_paths", lambda: dict.fromkeys(process.LIBRARIES, str(installed))
    )
    assert {str(package), str(installed)} <= set(listable_places())
    assert str(installed / "numpy") in readable_places()
    assert not {str(package), str(installed)} & set(readable_places())


def test_a_child_that_does_not_start_says_why():
    with pytest.raises(SandboxError, match=r"No module named 'autotts_jax\.nowhere'"):
        Child("autotts_jax.nowhere", Sandbox()).begin().receive()


def test_a_process_with_several_threads_is_not_confined():
    end = threading.Event()
    other = threading.Thread(target=end.wait)
    other.start()
    try:
        with pytest.raises(confine.ConfinementError):
            confine.confine([], [])
    finally:
        end.set()
        other.join()
