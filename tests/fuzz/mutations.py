"""Valid files, changed as files are changed: by damage, by hand, and by somebody who means harm."""

from __future__ import annotations

import copy
import io
import json
import tomllib
import zipfile
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

DEEP, DIGITS = "@deep@", "@digits@"
"""What stands for a value that is nested deep, and for a number of many digits."""

VALUES = [
    *(None, True, False, 0, 1, -1, 7, 2**15, 2**31, -(2**31), 2**63, 10**30, 0.5, -0.0, 1e300),
    *(float("nan"), float("inf"), "", " ", "7", "ERR", "x" * 300, "\ud800", "\x1b[2J", "\u202e", "../x"),
    *([], {}, [[]], [None], {"": None}, ["7"] * 50, DEEP, DIGITS),
]
"""Values in the place of others."""


def to_json(value) -> bytes:
    """The JSON of a value, in which some values stand for what Python does not write."""
    text = json.dumps(value)
    text = text.replace(json.dumps(DEEP), "[" * 5000 + "]" * 5000)
    return text.replace(json.dumps(DIGITS), "9" * 5000).encode()


def damaged(content: bytes, draw: Random) -> bytes:
    """Bytes, some of which are lost, added, repeated or changed."""
    changed = bytearray(content)
    for _ in range(draw.randint(1, 3)):
        at = draw.randint(0, len(changed))
        length = draw.choice((1, 1, 2, 4, 8, 100))
        kind = draw.choice(("change", "flip", "cut", "lose", "add", "repeat", "head"))
        if kind == "change":
            changed[at : at + length] = draw.randbytes(length)
        elif kind == "flip" and at < len(changed):
            changed[at] ^= 1 << draw.randint(0, 7)
        elif kind == "cut":
            del changed[at:]
        elif kind == "lose":
            del changed[at : at + length]
        elif kind == "add":
            changed[at:at] = draw.randbytes(length)
        elif kind == "repeat":
            changed[at:at] = changed[at : at + length] * draw.choice((1, 2, 50))
        elif kind == "head":
            del changed[:at]
    return bytes(changed)


def _nodes(value, found=None) -> list[tuple]:
    """The containers and keys of all values in a value."""
    found = [] if found is None else found
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            found.append((value, key))
            _nodes(inner, found)
    return found


def changed_value(value, draw: Random):
    """A JSON value, some parts of which are others, lost, added or swapped."""
    value = copy.deepcopy(value)
    for _ in range(draw.randint(1, 3)):
        nodes = _nodes(value)
        if not nodes:
            return copy.deepcopy(draw.choice(VALUES))
        container, key = draw.choice(nodes)
        kind = draw.choice(("value", "value", "value", "lose", "repeat", "another", "name", "whole"))
        if kind == "value":
            container[key] = copy.deepcopy(draw.choice(VALUES))
        elif kind == "lose":
            del container[key]
        elif kind == "repeat" and isinstance(container, list):
            container[key:key] = [container[key]] * draw.choice((1, 2, 40))
        elif kind == "another":
            other, place = draw.choice(nodes)
            container[key] = copy.deepcopy(other[place])
        elif kind == "name" and isinstance(container, dict):
            container[draw.choice(("", "x", "index", "text", "\ud800", "é" * 3))] = container.pop(key)
        elif kind == "whole" and draw.randint(0, 9) == 0:
            return copy.deepcopy(draw.choice(VALUES))
    return value


def changed_json(content: bytes, draw: Random) -> bytes:
    """A JSON file, or one of JSON lines, changed in its values or its text."""
    if draw.randint(0, 3) == 0:
        return damaged(content, draw)
    try:
        value, lines = json.loads(content), False
    except ValueError:
        value, lines = [json.loads(line) for line in content.splitlines()], True
    value = changed_value(value, draw)
    if lines and isinstance(value, list):
        return b"\n".join(to_json(line) for line in value)
    text = to_json(value)
    if draw.randint(0, 9) == 0 and text[:1] == b"{" and len(text) > 2:
        text = text[:-1] + b"," + text[1:]  # all names twice
    return text


_FORMS = [
    "<i2",
    "<i4",
    "<i8",
    "<u1",
    "<f4",
    "<f8",
    "<c8",
    "|b1",
    "<U7",
    "|S3",
    "|O",
    ">i2",
    "<M8[s]",
    "<i3",
    "V",
]
_SHAPES = [(), (0,), (1,), (3,), (2, 2), (10**10,), (2**40, 2**40), (-5, -10), (-1,), (1,) * 40, "x", None]


def changed_npz(content: bytes, draw: Random) -> bytes:
    """An archive, changed in its bytes, its entries, their headers, their values or the text in it."""
    if draw.randint(0, 3) == 0:
        return damaged(content, draw)
    with np.load(io.BytesIO(content)) as archive:
        arrays = {name: archive[name] for name in archive.files}
    texts = [name for name in ("text", "header") if name in arrays]
    headers: dict[str, bytes] = {}
    for _ in range(draw.randint(1, 2)):
        if not arrays:
            break
        name = draw.choice(sorted(arrays))
        kinds = ("text", "text", "value", "value", "size", "form", "lose", "rename", "header", "raw")
        kind = draw.choice(kinds)
        if kind == "text" and texts and texts[0] in arrays:
            name = texts[0]
            array = arrays[name]
            told = bytes(array) if array.dtype == np.uint8 else str(array).encode()
            told = (changed_json if _is_json(told) else damaged)(told, draw)
            if array.dtype == np.uint8:
                arrays[name] = np.frombuffer(told, np.uint8)
            else:
                arrays[name] = np.array(told.decode("utf-8", "replace").replace("\0", ""))
        elif kind == "value" and arrays[name].size and arrays[name].dtype.kind in "iuf":
            array = arrays[name].copy().reshape(-1)
            limit = np.iinfo(array.dtype) if array.dtype.kind in "iu" else np.finfo(array.dtype)
            value = draw.choice((limit.min, limit.max, 0, 1, 2, 3))
            index = draw.randint(0, array.size - 1)
            array[index : index + draw.choice((1, 1, 3, array.size))] = value
            arrays[name] = array.reshape(arrays[name].shape)
        elif kind == "size":
            arrays[name] = np.resize(arrays[name], draw.choice((0, 1, 2, 5, 100, 3000)))
        elif kind == "form" and arrays[name].dtype.kind in "iuf":
            form = draw.choice((bool, np.int8, np.int64, np.float32, complex, str, bytes))
            arrays[name] = arrays[name].astype(form)
        elif kind == "lose":
            del arrays[name]
        elif kind == "rename":
            arrays[draw.choice(("x", "../x", "/x", "text", "gold", "", "a" * 300))] = arrays.pop(name)
        elif kind == "header":
            told = {
                "descr": draw.choice(_FORMS),
                "fortran_order": draw.random() < 0.5,
                "shape": draw.choice(_SHAPES),
            }
            headers[name] = repr(told).encode()
        elif kind == "raw":
            headers[name] = draw.choice(
                [b"{" * 500, b"(" * 9000, b"-" * 9000 + b"1", b"x" * 20000, b"", b"\xff" * 99]
            )
    methods = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED] * 20 + [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
    method = draw.choice(methods)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as archive:
        for name, array in arrays.items():
            stream = io.BytesIO()
            if name in headers:
                length = len(headers[name]).to_bytes(2, "little")
                stream.write(b"\x93NUMPY\1\0" + length + headers[name] + array.tobytes()[:100])
            else:
                np.save(stream, array)
            archive.writestr(f"{name}.npy", stream.getvalue())
        if draw.randint(0, 19) == 0:
            archive.writestr(draw.choice(("readme.txt", "../../out.npy", "x/")), b"hello")
    return packed.getvalue()


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def changed_parquet(content: bytes, draw: Random) -> bytes:
    """A Parquet file, changed in its values, in their types or in its bytes."""
    if draw.randint(0, 3) == 0:
        return damaged(content, draw)
    rows = changed_value(pq.read_table(io.BytesIO(content)).to_pylist(), draw)
    try:
        table = pa.Table.from_pylist(rows)
        if draw.randint(0, 3):  # as the numbers and lists were, where they still can be
            columns = {field.name: field.type for field in pq.read_schema(io.BytesIO(content))}
            fields = [pa.field(field.name, columns.get(field.name, field.type)) for field in table.schema]
            table = table.cast(pa.schema(fields))
    except Exception:  # of many kinds: values of several types in a column, or no rows
        return damaged(content, draw)
    packed = io.BytesIO()
    pq.write_table(
        table, packed, row_group_size=draw.choice((1, 2, 1000)), use_dictionary=draw.random() < 0.5
    )
    whole = packed.getvalue()
    return damaged(whole, draw) if draw.randint(0, 3) == 0 else whole  # without checksums


_TOML = [
    *(
        "1",
        "-1",
        "0",
        "0.5",
        "nan",
        "inf",
        "1e400",
        "true",
        '""',
        '"x"',
        "[]",
        "{}",
        "[1, 'a']",
        "'''",
        "1979-05-27",
    ),
    *(
        "0x" + "f" * 5000,
        "[" * 3000 + "]" * 3000,
        "9" * 5000,
        '"\\ud800"',
        '"\\u202e"',
        "12:00:00",
        "[[1]]",
        "{a = 1}",
    ),
]


def changed_toml(content: bytes, draw: Random) -> bytes:
    """A configuration, changed in its text, its values or its keys."""
    if draw.randint(0, 3) == 0:
        return damaged(content, draw)
    tomllib.loads(content.decode())
    lines = content.decode().splitlines()
    for _ in range(draw.randint(1, 3)):
        at = draw.randint(0, len(lines) - 1)
        kind = draw.choice(("value", "value", "value", "lose", "repeat", "key", "section", "deep"))
        if kind == "value" and "=" in lines[at]:
            lines[at] = f"{lines[at].split('=')[0]}= {draw.choice(_TOML)}"
        elif kind == "lose" and len(lines) > 1:
            del lines[at]
        elif kind == "repeat":
            lines.insert(at, lines[at])
        elif kind == "key":
            key = draw.choice(("seed", "kind", "x", '""', "a.b", "updates", "gamma", "paths"))
            lines.insert(at, f"{key} = {draw.choice(_TOML)}")
        elif kind == "section":
            lines.insert(at, draw.choice(("[run]", "[trainer]", "[x]", "[[data]]", "[data.paths]", "[")))
        elif kind == "deep":
            lines.insert(at, ".".join(["a"] * draw.choice((2, 70, 2000))) + " = 1")
    return "\n".join(lines).encode("utf-8", "replace")
