"""A short run of the harness; `make fuzz` makes a long one."""

import subprocess
import sys
from pathlib import Path

import pytest
import run

pytestmark = pytest.mark.slow


def test_no_changed_file_escapes():
    counts = run.fuzz(inputs=1500, seed=0, processes=1, timeout=600)
    assert len(counts) == 16
    assert sum(counts.values()) >= 1450


ESCAPES = {
    "open('../outside', 'w')": "which is not in",
    "os.open('../outside', os.O_CREAT)": "which is not in",
    "os.mkdir('../outside')": "which is not in",
    "os.rename('a', '../outside')": "which is not in",
    "bytearray(2**31)": "MemoryError",
    "child.read_many(reader, 50, 0)": "ZeroDivisionError",
    "signal.raise_signal(signal.SIGALRM)": "took more than",
}

CHECK = f"""
import os, signal, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import child, mutations
from readers import Reader
reader = Reader([b'abc'], mutations.damaged, lambda content: 1 // (len(content) - 4), 1)
open('a', 'w').close()
signal.signal(signal.SIGALRM, child.hang)
child.confine(child.Path.cwd())
child.limit_memory()
for code in {list(ESCAPES)!r}:
    try:
        exec(code)
    except BaseException as error:
        print(repr(error))
    else:
        print("nothing")
"""


def test_the_harness_would_catch_an_escape(tmp_path):
    (tmp_path / "given").mkdir()
    ended = subprocess.run(
        [sys.executable, "-B", "-c", CHECK],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path / "given",
    )
    lines = ended.stdout.splitlines()
    assert len(lines) == len(ESCAPES), ended.stderr
    for line, words in zip(lines, ESCAPES.values(), strict=True):
        assert words in line
    assert [path.name for path in tmp_path.iterdir()] == ["given"]
