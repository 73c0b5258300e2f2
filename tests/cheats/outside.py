"""Cheats that fetch the gold answers from somewhere else: files, processes, the network, memory."""

import ctypes
import json
import mmap
import os
import socket
import struct
import subprocess
import threading
from pathlib import Path

DATA, SHARED = "@DATA@", "@SHARED@"
SOCKET, PORT = "@SOCKET@", "@PORT@"
PID, ADDRESS, SIZE = "@PID@", "@ADDRESS@", "@SIZE@"


def data_file(question, turn, shown):
    return json.loads(Path(DATA).read_text())[turn % 6]


def mapped_data_file(question, turn, shown):
    with open(DATA, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        return json.loads(bytes(mapped))[turn % 6]


def shared_memory(question, turn, shown):
    return json.loads(Path(SHARED).read_text())[turn % 6]


def open_files(question, turn, shown):
    for file in Path("/proc/self/fd").iterdir():
        try:
            if file.is_file():
                return json.loads(file.read_text())[turn % 6]
        except (OSError, ValueError, TypeError):
            continue


def inherited_descriptors(question, turn, shown):
    for descriptor in range(3, 256):
        try:
            return json.loads(os.pread(descriptor, 1 << 16, 0))[turn % 6]
        except (OSError, ValueError, TypeError):
            continue


def environment(question, turn, shown):
    return json.loads(os.environ["TEST_GOLD"])[turn % 6]


def memory_file_of_the_judge(question, turn, shown):
    with open(f"/proc/{PID}/mem", "rb", buffering=0) as memory:
        memory.seek(int(ADDRESS))
        return json.loads(memory.read(int(SIZE)))[turn % 6]


def memory_of_the_judge(question, turn, shown):
    libc, buffer = ctypes.CDLL(None, use_errno=True), ctypes.create_string_buffer(int(SIZE))
    here = struct.pack("PN", ctypes.addressof(buffer), len(buffer))
    there = struct.pack("PN", int(ADDRESS), len(buffer))
    one = ctypes.c_ulong(1)
    got = libc.process_vm_readv(ctypes.c_int(int(PID)), here, one, there, one, ctypes.c_ulong(0))
    return json.loads(buffer.raw)[turn % 6] if got == len(buffer) else None


def network(question, turn, shown):
    with socket.create_connection(("127.0.0.1", int(PORT)), timeout=5) as stream:
        return json.loads(stream.makefile().read())[turn % 6]


def local_socket(question, turn, shown):
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect(SOCKET)
        return json.loads(stream.makefile().read())[turn % 6]


def other_program(question, turn, shown):
    return json.loads(subprocess.run(["cat", DATA], capture_output=True, check=True).stdout)[turn % 6]


def fork(question, turn, shown):
    read, write = os.pipe()
    if not os.fork():
        os.write(write, Path(DATA).read_bytes())
        os._exit(0)
    os.wait()
    return json.loads(os.read(read, 1 << 16))[turn % 6]


def chosen_by_a_thread(question, turn, shown):
    found = []
    thread = threading.Thread(target=lambda: found.append(data_file(question, turn, shown)))
    thread.start()
    thread.join()
    return found[0]
