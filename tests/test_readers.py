"""What others wrote is read within limits: nothing in a file makes a reader hang, grow or fall over."""

import io
import json
import os
import struct
import subprocess
import sys
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from matrices import spelled_dataset

from autotts_jax import replay
from autotts_jax.cli import main as cli
from autotts_jax.collect import Store
from autotts_jax.commands import without_secrets
from autotts_jax.discovery.programs.rules import Program
from autotts_jax.errors import DataError, InputError, TooLargeError
from autotts_jax.files import read_bytes
from autotts_jax.live.chat import Chat, RequestError
from autotts_jax.parsing import MAX_DEPTH, MAX_JSON, MAX_VALUES, parse_json, parse_toml
from autotts_jax.policies import load_policy
from autotts_jax.policies.neural.policy_file import SHIPPED
from autotts_jax.replay import read_compact, read_files, read_json, reading, write_compact, write_json
from autotts_jax.replay.embedded import SMOLLM2
from autotts_jax.replay.matrix import MAX_ENTRIES
from autotts_jax.replay.reading import COLLECTION, find_files
from autotts_jax.training.checkpoints import Checkpoints
from autotts_jax.training.config import read_config
from autotts_jax.training.manifest import MANIFEST, check_manifest
from autotts_jax.training.metrics import METRICS, MetricsLog
from autotts_jax.training.run_state import RunState

# --- JSON and TOML


def nested(depth):
    return b"[" * depth + b"1" + b"]" * depth


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (nested(100_000), "deep"),
        (nested(MAX_DEPTH + 1), "deep"),
        (b'{"a":' * 500 + b"1" + b"}" * 500, "deep"),
        (b'[{"a": 1, "b": 2, "a": 1}]', "an object has 'a' twice"),
        (b'"\xff"', "utf-8"),
        ('"x"'.encode("utf-16"), "utf-8"),
        (b"1" * 5000, "digits"),
        (b"[1", "delimiter"),
    ],
)
def test_json_that_is_refused(content, problem):
    with pytest.raises(ValueError, match=problem):
        parse_json(content)


def test_a_repeat_among_many_names_is_found_in_one_pass():
    """Comparing each name with each other takes many minutes, so the deadline leaves room for any machine."""
    found = """if True:
        from autotts_jax.parsing import parse_json
        try:
            parse_json("{" + ",".join(f'"{name}":0' for name in [*range(300_000), 299_999]) + "}")
        except ValueError as error:
            print(error)
    """
    child = subprocess.run([sys.executable, "-c", found], capture_output=True, text=True, timeout=60)
    assert child.stdout == "an object has '299999' twice\n", child.stderr


def test_json_that_is_read():
    assert parse_json(b"\xef\xbb\xbf" + nested(MAX_DEPTH))
    assert parse_json('{"a": [1, 2.5, null, "x"]}') == {"a": [1, 2.5, None, "x"]}


@pytest.mark.parametrize(
    "content", [b"a = " + nested(100_000), b"a = " + nested(MAX_DEPTH), b".".join([b"a"] * 500) + b" = 1"]
)
def test_toml_that_is_refused(content):
    with pytest.raises(ValueError, match="deep"):
        parse_toml(content)


@pytest.mark.parametrize("part", ["a", "'a'", r'"\""', " a "])
def test_a_key_of_many_parts_is_refused_before_it_takes_hours(part):
    """What is below would take tomllib hours, so the deadline leaves room for any machine."""
    found = f"""if True:
        from autotts_jax.parsing import parse_toml
        try:
            parse_toml((".".join([{part!r}] * (2**20 // {len(part) + 1})) + " = 1").encode())
        except ValueError as error:
            print(error)
    """
    child = subprocess.run([sys.executable, "-c", found], capture_output=True, text=True, timeout=60)
    assert child.stdout == "it is nested more than 64 deep\n", child.stderr


@pytest.mark.parametrize("text", ['"' + r"\"" * 2**19, "'" * 2**20, "a" * 2**20, "a." * 63 + "x " * 2**19])
def test_text_that_is_no_deep_key_is_looked_at_in_one_pass(text):
    with pytest.raises(ValueError, match=r"\(at "):
        parse_toml(text.encode())


def test_a_configuration_with_a_number_too_long_to_be_written_is_refused(tmp_path):
    (tmp_path / "train.toml").write_text(f"[run]\nupdates = 0x{'f' * 5000}\n")
    with pytest.raises(DataError, match="not TOML: Exceeds the limit"):
        read_config(tmp_path / "train.toml")


def test_a_checkpoint_whose_metadata_are_others_is_named(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    with Checkpoints(tmp_path) as kept:
        kept.save(RunState(update=1), {"w": np.zeros(3)})
    path = tmp_path / "checkpoints" / "00000001" / "_CHECKPOINT_METADATA"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"metrics": "x"}))
    with pytest.raises(InputError, match=r"a checkpoint there is damaged .*remove it"):
        Checkpoints(tmp_path)


def text_of(file, change):
    """The archive of a file with another text in it."""
    with np.load(file) as archive:
        arrays = dict(archive)
    name = "text" if "text" in arrays else "header"
    told = json.dumps(change) if not isinstance(change, bytes) else change.decode()
    arrays[name] = np.frombuffer(told.encode(), np.uint8) if name == "text" else np.array(told)
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


def read_metrics_again(path):
    MetricsLog(path.parent, 0)


READERS = {
    "data.jsonl": read_json,
    "data.npz": read_compact,
    "policy.npz": load_policy,
    "train.toml": read_config,
    COLLECTION: lambda path: Store(path.parent),
    "program.json": lambda path: Program.from_json(path.read_text()),
    MANIFEST: lambda path: check_manifest(path.parent, {}),
    METRICS: read_metrics_again,
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("content", [nested(100_000), nested(300), b'{"a": 1, "a": 2}'])
def test_every_reader_refuses_json_that_is_deep_or_says_things_twice(tmp_path, name, content):
    path = tmp_path / name
    if name.endswith(".npz"):
        path.write_bytes(text_of({"data.npz": SMOLLM2, "policy.npz": SHIPPED}[name], content))
    else:
        path.write_bytes(
            (b"a = " if name.endswith(".toml") and content[0] == ord("[") else b"") + content + b"\n"
        )
    with pytest.raises(InputError):
        READERS[name](path)


@pytest.mark.parametrize("content", [nested(100_000), nested(300), b'{"model": "a", "model": "b"}'])
def test_a_request_may_not_be_deep_or_say_things_twice(content):
    with pytest.raises(RequestError) as error:
        Chat.read(content, "ask for plain")
    assert error.value.status == 400


# --- files


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    pipe = tmp_path / "x.json"
    os.mkfifo(pipe)
    for read in (read_json, read_compact, load_policy, read_config):
        with pytest.raises(InputError, match=r"x\.json.*is a pipe or a device; write its content to a file"):
            read(pipe)
    with pytest.raises(InputError, match="nothing found"):
        find_files(tmp_path)


def test_a_file_that_is_too_large_is_refused_before_it_is_read(tmp_path):
    sparse = tmp_path / "x.json"
    sparse.touch()
    os.truncate(sparse, 2**40)
    with pytest.raises(DataError, match=r"has 1,099,511,627,776 bytes, more than 1,073,741,824"):
        read_json(sparse)
    (tmp_path / "y").write_bytes(b"abc")
    with pytest.raises(DataError, match="has 3 bytes, more than 2"):
        read_bytes(tmp_path / "y", 2)


def test_folders_that_cannot_be_listed_are_named(tmp_path, monkeypatch):
    secret = tmp_path / "model" / "secret"
    secret.mkdir(parents=True)
    (tmp_path / "model" / "x.json").write_text("[]")
    listed = os.scandir

    def refuse(path):
        if os.fspath(path) == str(secret):
            raise PermissionError(13, "Permission denied", str(secret))
        return listed(path)

    monkeypatch.setattr(os, "scandir", refuse)  # root may list everything
    with pytest.raises(InputError, match=rf"{secret}: cannot be listed: Permission denied"):
        find_files(tmp_path)


def test_files_that_cannot_be_looked_at_are_named(tmp_path, monkeypatch):
    (tmp_path / "x.json").write_text("[]")
    looked = Path.is_file

    def refuse(path):
        if path.name == "x.json":
            raise PermissionError(13, "Permission denied", str(path))
        return looked(path)

    monkeypatch.setattr(Path, "is_file", refuse)  # root may look at everything
    with pytest.raises(InputError, match=r"x\.json: cannot be looked at: Permission denied; allow it"):
        find_files(tmp_path)


@pytest.mark.parametrize("path", ["", "x" * 5000])
def test_paths_that_nothing_can_have(path):
    with pytest.raises(InputError):
        find_files(path)
    with pytest.raises(InputError):
        replay.load(path)


def test_names_that_are_not_utf8(tmp_path):
    content = json.dumps(
        [
            {
                "question": "?",
                "gold_answer": "7",
                "probe_freq": 5,
                "each_branch": [[["7"], 5, "7"]],
                "final_answers_trace": ["7"],
            }
        ]
    )
    named = tmp_path / os.fsdecode(b"mod\xff") / "x.json"
    above = tmp_path / os.fsdecode(b"\xff") / "model" / "x.json"
    for path in (named, above):
        path.parent.mkdir(parents=True)
        path.write_text(content)
    with pytest.raises(DataError, match="a name that is not UTF-8; rename it"):
        read_json(named)
    assert read_json(above).cells[0].source == str(tmp_path / "\ufffd" / "model" / "x.json")


# --- archives


@pytest.fixture
def memory():
    """Tells the most bytes that were allocated at a time since `tracemalloc.reset_peak`."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


LIMIT = 100 * 2**20


def padded_to(branches, depths, model="m"):
    """A small file whose matrix is large: one long branch, and many short ones."""
    lengths = np.ones(branches, np.int32)
    lengths[0] = depths - 1
    text = {
        "format": "autotts_jax probe matrix",
        "version": 1,
        "encoding": "exact",
        "cells": [{"model": model, "benchmark": "b", "num_branches": branches, "source": "", "sha256": ""}],
        "questions": [{"index": 0, "text": "?", "gold": "7", "vocabulary": ["7"]}],
    }
    content = io.BytesIO()
    np.savez_compressed(
        content,
        answers=np.zeros(lengths.sum() + branches, np.int16),
        lengths=lengths,
        tokens=np.ones(branches, np.int32),
        gold=np.zeros(1, np.int16),
        interval=np.ones(1, np.int32),
        cell=np.zeros(1, np.int32),
        text=np.frombuffer(json.dumps(text).encode(), np.uint8),
    )
    return content.getvalue()


def header_of(shape, dtype="<i2"):
    """An archive whose header tells of more than there is."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive, archive.open("answers.npy", "w") as entry:
        told = {"descr": dtype, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(entry, told)
        entry.write(b"\0" * 100)
    return content.getvalue()


def bomb(size):
    """A small archive that unpacks to much."""
    content = io.BytesIO()
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = packer.compress(b"\0" * 2**20) + packer.flush()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("answers.npy", packed)
    raw = bytearray(content.getvalue())
    # In the local header and the directory: deflated, and as large as told.
    directory = raw.rindex(b"PK\1\2")
    for method, told in ((8, 22), (directory + 10, directory + 24)):
        struct.pack_into("<H", raw, method, zipfile.ZIP_DEFLATED)
        struct.pack_into("<I", raw, told, size)
    return bytes(raw)


HUGE = {
    "padding": (lambda: padded_to(20_000, 20_000), "are more than 268,435,456; split it"),
    "a long array": (lambda: header_of((2 * 10**10,)), "in 100 bytes"),
    "axes that overflow": (lambda: header_of((2**40, 2**40)), "in 100 bytes"),
    "negative axes": (lambda: header_of((-5, -10)), "in 100 bytes"),
    "pickles": (lambda: header_of((10,), "|O"), "in 100 bytes"),
    "a bomb": (lambda: bomb(2**31), "unpacks to 2,147,483,648 bytes, more than"),
    "a bomb that lies": (lambda: bomb(2**16), "not a complete"),
}


@pytest.mark.parametrize(("content", "problem"), HUGE.values(), ids=HUGE)
def test_archives_that_are_huge_are_refused_before_memory_is_taken(tmp_path, memory, content, problem):
    path = tmp_path / "x.npz"
    path.write_bytes(content())
    assert path.stat().st_size < 100_000
    tracemalloc.reset_peak()
    with pytest.raises(DataError, match=problem):
        read_compact(path)
    if "padding" not in problem:
        with pytest.raises(DataError):
            load_policy(path)
    assert memory() < LIMIT


def headed(header):
    """An archive whose array has any text as its header."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr(
            "answers.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(99)
        )
    return content.getvalue()


@pytest.mark.parametrize(
    "header",
    [b"", b"{", b"nonsense", b"{'descr': 'no dtype', 'fortran_order': 0, 'shape': ()}", b" " * 20_000],
)
def test_a_header_that_numpy_does_not_read_is_said_in_own_words(tmp_path, header):
    path = tmp_path / "x.npz"
    path.write_bytes(headed(header))
    with pytest.raises(DataError) as refused:
        read_compact(path)
    said = "not a complete .npz archive ('answers.npy' has a header that numpy does not read)"
    assert str(refused.value).startswith(f"{path}: {said}; ")


@pytest.mark.filterwarnings("ignore:.* have tokens that their probes contradict")  # made up
def test_datasets_that_are_huge_together_are_refused(tmp_path, memory):
    for name, branches, depths in (("a", 20_000, 2), ("b", 1, 20_000)):
        (tmp_path / f"{name}.npz").write_bytes(padded_to(branches, depths, name))
    tracemalloc.reset_peak()
    with pytest.raises(InputError, match="2 questions × 20,000 branches × 20,000 depths"):
        read_files(tmp_path)
    assert memory() < LIMIT
    assert MAX_ENTRIES < 20_000 * 20_000


def test_more_branches_than_can_be_numbered(tmp_path):
    (tmp_path / "x.npz").write_bytes(padded_to(32_768, 2))
    with pytest.raises(DataError, match="has 32,768 branches; leave out all but 32,767"):
        read_compact(tmp_path / "x.npz")


# --- commands

LONG = "x" * 5000
COLLECT = ["collect", "--engine", "simulated", "--branches", "2", "--questions"]


def ends_with(line, status, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["autotts-jax", *line])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert (end.value.code or 0) == status


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (["data", "info", ""], "an empty path names nothing"),
        (["data", "validate", ""], "an empty path names nothing"),
        (["data", "info", LONG], "File name too long"),
        (["data", "validate", LONG], "File name too long"),
        (["data", "import", LONG, "--out", "out"], "File name too long"),
        (["evaluate", "--data", LONG], "File name too long"),
        (["evaluate", "--out", ""], "an empty path names nothing"),
        (["trace", "--out="], "an empty path names nothing"),
        (["train", "--config", "train.toml", "--out", ""], "an empty path names nothing"),
        ([*COLLECT, "arithmetic:1", "--out", ""], "an empty path names nothing"),
        (["data", "convert", "smollm2", "--out", ""], "an empty path names nothing"),
        (["discover", "--out", ""], "an empty path names nothing"),
        (["discover", "show", ""], "an empty path names nothing"),
        (["evaluate", "--out", os.fsdecode(b"L/\xff")], "it is not UTF-8"),
        ([*COLLECT, "arithmetic:1", "--out", "out", "--system", os.fsdecode(b"\xff")], "it is not UTF-8"),
        (
            [*COLLECT, "arithmetic:1", "--out", "out", "--probe-suffix", os.fsdecode(b"\xff")],
            "it is not UTF-8",
        ),
        (
            [*COLLECT, "arithmetic:1", "--out", "out", "--answers", os.fsdecode(b"regex:\xff")],
            "it is not UTF-8",
        ),
        ([*COLLECT, "arithmetic:1", "--out", "out", "--model", os.fsdecode(b"\xff/a")], "it is not UTF-8"),
        (
            [*COLLECT, "arithmetic:1", "--out", "out", "--engine-option", os.fsdecode(b"a=\xff")],
            "it is not UTF-8",
        ),
        (
            ["evaluate", "--data", "smollm2", "--controllers", "sc@2", "--seeds", "1000000000"],
            "number of seeds",
        ),
        (["evaluate", "--controller", f"{LONG}.py:X"], "File name too long"),
        (["evaluate", "--controller", f"neural:{LONG}"], "File name too long"),
        ([*COLLECT, LONG, "--out", "out"], "File name too long"),
        ([*COLLECT, "arithmetic:1", "--out", LONG], "File name too long"),
        ([*COLLECT, "arithmetic:1", "--out", "file"], "cannot be made"),
        (["train", "--config", LONG, "--out", "out"], "File name too long"),
        (["discover", "show", LONG], "File name too long"),
    ],
)
def test_commands_refuse_what_cannot_be_in_one_line(tmp_path, monkeypatch, capsys, line, problem):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    ends_with(line, 2, monkeypatch)
    said = capsys.readouterr().err
    assert problem in said
    assert "Traceback" not in said
    assert len(said) < 6000


@pytest.mark.parametrize("content", [b"[%s0]", b"[1]\n%s"], ids=["a value", "lines"])
def test_json_of_too_many_values_is_refused_before_memory_is_taken(tmp_path, memory, content):
    path = tmp_path / "x.json"
    path.write_bytes(content % (b"[],\n" * (MAX_VALUES // 2)))
    tracemalloc.reset_peak()
    with pytest.raises(DataError, match=r"x\.json: it has up to 16,777,21\d values, more than 16,777,216; s"):
        read_json(path)
    assert memory() < LIMIT


def test_json_that_is_too_long_is_refused(memory):
    content = b" " * (MAX_JSON + 1)
    tracemalloc.reset_peak()
    with pytest.raises(ValueError, match="it has 268,435,457 bytes, more than 268,435,456; split it"):
        parse_json(content)
    assert memory() < MAX_JSON + LIMIT


VALUES = {"names": '"%d":0', "objects": '{"":%d}', "lists": "[%d]", "text": '"%d"', "numbers": "%d.5"}


@pytest.mark.parametrize("name", VALUES)
def test_no_value_takes_more_memory_than_it_is_counted_with(memory, name):
    content = ",".join(VALUES[name] % number for number in range(2**15 * 2 // 3 + 1))
    content = f"{{{content}}}" if name == "names" else f"[{content}]"
    tracemalloc.reset_peak()
    parse_json(content)
    assert memory() < 130 * sum(map(content.count, ",:[{"))


def test_one_bad_file_does_not_end_the_validation_of_the_others(tmp_path, monkeypatch, capsys):
    (tmp_path / "a.npz").write_bytes(padded_to(20_000, 20_000))
    (tmp_path / "b.npz").write_bytes(SMOLLM2.read_bytes())
    os.mkfifo(tmp_path / "c.json")
    (tmp_path / "d.json").write_bytes(nested(100_000))
    ends_with(["data", "validate", *map(str, sorted(tmp_path.iterdir()))], 2, monkeypatch)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["bad", "good", "bad", "bad"]


def test_a_file_for_which_there_is_no_memory_is_bad(tmp_path, monkeypatch, capsys):
    def exhausted(_):
        raise MemoryError

    monkeypatch.setattr(reading, "read_json", exhausted)
    (tmp_path / "a.json").touch()
    ends_with(["data", "validate", str(tmp_path)], 2, monkeypatch)
    assert "a.json: needs more memory than there is" in capsys.readouterr().out


def test_a_command_is_stored_without_what_is_not_utf8():
    assert without_secrets([os.fsdecode(b"run\xff")]) == ["run?"]


DATASET = spelled_dataset(([["7", "8"], ["9", "7"]], [90, 70], "7", 50))
"""One cell."""


@pytest.mark.parametrize(
    ("limited", "limit"), [("parsing.MAX_VALUES", 8), ("parsing.MAX_JSON", 99), ("npz.MAX_UNPACKED", 500)]
)
@pytest.mark.parametrize("name", ["x.json", "x.npz"])
def test_what_would_not_be_read_is_not_written(tmp_path, monkeypatch, limited, limit, name):
    write, read = (write_json, read_json) if name == "x.json" else (write_compact, read_compact)
    path = tmp_path / name
    write(DATASET, path)
    monkeypatch.setattr(f"autotts_jax.{limited}", limit)
    if (limited, name) == ("npz.MAX_UNPACKED", "x.json"):
        assert len(read(path)) == len(DATASET)
        return
    with pytest.raises(DataError, match="split it"):
        read(path)
    with pytest.raises(TooLargeError, match=rf"{name}: .*; split it"):
        write(DATASET, tmp_path / f"again-{name}")
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_an_archive_of_the_largest_size_is_written_and_read(tmp_path, monkeypatch):
    path = tmp_path / "x.npz"
    write_compact(DATASET, path)
    with zipfile.ZipFile(path) as archive:
        size = sum(entry.file_size for entry in archive.infolist())
    monkeypatch.setattr("autotts_jax.npz.MAX_UNPACKED", size)
    write_compact(DATASET, path)
    assert len(read_compact(path)) == len(DATASET)
    monkeypatch.setattr("autotts_jax.npz.MAX_UNPACKED", size - 1)
    with pytest.raises(TooLargeError, match=f"unpacks to {size:,} bytes"):
        write_compact(DATASET, path)
