"""Records of others' files, streamed: JSON, JSON lines, YAML, CSV, Parquet and Arrow, also compressed.

Suffixes tell YAML and CSV from JSON; everything else is told by the content.
"""

from __future__ import annotations

import ast
import contextlib
import csv
import functools
import glob
import gzip
import io
import itertools
import json
import re
import reprlib
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from autotts_jax.errors import DataError, InputError
from autotts_jax.extras import needs
from autotts_jax.files import exists, files_below, opened
from autotts_jax.parsing import MAX_DEPTH, MAX_JSON, MAX_VALUES, parse_json, parse_next
from autotts_jax.terminal import quoted

SUFFIXES = (".jsonl", ".json", ".ndjson", ".parquet", ".yaml", ".yml", ".csv", ".tsv", ".arrow")
"""The files of a folder that are read, also with one of `COMPRESSED` behind."""
COMPRESSED = (".gz", ".zst")

_BESIDE_ARROW = {"state.json", "dataset_info.json", "dataset_dict.json"}
"""What the library `datasets` writes beside the tables that it saves."""

_GZIP, _ZSTD, _PARQUET = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1"
_ARROW_FILE, _ARROW_STREAM = b"ARROW1", b"\xff\xff\xff\xff"
_NOT_READ = {b"PK\x03\x04": "a zip archive", b"\xfd7zXZ": "compressed by xz", b"BZh": "compressed by bzip2"}
_LFS_POINTER = b"version https://git-lfs"
_CHUNK = 2**20
_BATCH = 16
"""Rows of Parquet that are decompressed at a time: what a file holds once may stand in millions of rows."""

_BETWEEN = re.compile(r"[ \t\r\n,]*")
_AGAIN = "fix it, or get the file again"

OnProgress = Callable[[str, int, int], None]
"""Called with what is running, how many bytes are read, and how many there are."""


class Numeral(str):
    """A number of JSON as it is written, for 5.0 is to stay 5.0."""

    __slots__ = ()


class FileRecord(NamedTuple):
    """One record of a file.

    Attributes:
        file: the file.
        place: where it stands, as "line 3".
        value: its named values.
        part: the part of the file that holds it, where its records were found inside of others.
    """

    file: Path
    place: str
    value: Mapping[str, Any]
    part: str = ""


def find_sources(sources: str | Path | Sequence[str | Path]) -> list[Path]:
    """Finds the files that names, folders and glob patterns stand for.

    Args:
        sources: one or several of them.

    Returns:
        The files in the order in which they are named; those of a folder or a pattern by the numbers in their
        names, 2 before 10. Each once.

    Raises:
        InputError: one matches no file, or a folder cannot be listed.
    """
    named = [sources] if isinstance(sources, str | Path) else sources
    found: dict[Path, None] = {}
    for source in named:
        if not isinstance(source, str | Path):
            raise InputError(f"a file is {source!r:.60}, but it must be a path")
        places = [source] if exists(source) else glob.glob(str(source), recursive=True)  # noqa: PTH207
        files: list[Path] = []
        for place in map(Path, places):
            files += (
                [file for file in files_below(place) if is_record_file(file)] if place.is_dir() else [place]
            )
        if not files:
            raise InputError(
                f"nothing found at {str(source)!r:.200}; name a file, a pattern that matches some, or a "
                f"folder with {', '.join(SUFFIXES)} files, plain or {' or '.join(COMPRESSED)}"
            )
        found |= dict.fromkeys(sorted(files, key=_by_number))
    return list(found)


def inner_records(records: Sequence[FileRecord]) -> list[list[FileRecord]]:
    """Takes the records out of a file's only object, or of its few.

    Args:
        records: the objects.

    Returns:
        Lists of records that they may hold, each of those at one path: the longest first.
    """
    held: dict[tuple[str, ...], list[FileRecord]] = {}
    for record in records:
        for path, rows in _inside(record.value, ()):
            part = ", ".join(filter(None, (record.place, ".".join(path))))
            inner = [FileRecord(record.file, f"{part}, {place}", {**one}, part) for place, one in rows]
            held.setdefault(path, []).extend(inner)
    return sorted(filter(None, held.values()), key=len, reverse=True)


def _inside(
    value: Mapping[str, Any], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], list[tuple[str, Any]]]]:
    """Lists of objects, and what `_shaped` finds, at whatever depth of an object and beside other values."""
    found = _shaped(value) if path else []  # the whole file is read by it already
    lists = {name: one for name, one in value.items() if type(one) is list}
    by_id = {name: one for name, one in value.items() if type(one) is dict and _is_id(name)}
    yield path, found if len(found) > 1 else _shaped(lists) or _shaped(by_id)
    for name, one in value.items():
        if type(one) is dict:
            yield from _inside(one, (*path, name))
        elif type(one) is list and one and all(type(inner) is dict for inner in one):
            yield (*path, name), _numbered(one)


def read_records(files: Sequence[Path], on_progress: OnProgress | None = None) -> Iterator[FileRecord]:
    """Reads the records of files one by one, so that no file has to fit into memory.

    A file is JSON, with a record a line, a list of records or one record; YAML or CSV, by its suffix; or
    Parquet or Arrow. `_SHAPES` are those in which one object of JSON or YAML holds many records.

    Args:
        files: the files.
        on_progress: called now and then.

    Yields:
        The records.

    Raises:
        DataError: a file cannot be read, is damaged, or has something else than named values.
        InputError: PyYAML is needed and missing.
    """
    report = on_progress or (lambda *_: None)
    total = sum(file.stat().st_size for file in files if file.is_file())
    before = 0
    for file in files:
        with opened(file) as stream:
            for number, (place, value) in enumerate(_values(file, stream)):
                if type(value) is not dict:
                    raise DataError(
                        file,
                        f"{place} is {reprlib.repr(value)}, and a record has named values; make it an object",
                    )
                if number % 100 == 0 and not stream.closed:
                    report("reading", before + stream.tell(), total)
                yield FileRecord(file, place, {name: _listed_text(one) for name, one in value.items()})
        before += file.stat().st_size


def _listed_text(value: Any) -> Any:
    """A list of texts or objects that a cell holds as text, as tables often do."""
    if isinstance(value, str) and value[:2] in ('["', "['", "[{") and value.endswith("]"):
        for parse in (functools.partial(parse_json, parse_number=Numeral), ast.literal_eval):
            with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError):
                return parse(value)
    return value


def _values(file: Path, stream: BinaryIO) -> Iterator[tuple[str, Any]]:
    head = stream.read(len(_LFS_POINTER))
    stream.seek(0)
    if head == _LFS_POINTER:
        raise DataError(file, "is a Git LFS pointer; run git lfs pull in its checkout")
    if other := next((what for mark, what in _NOT_READ.items() if head.startswith(mark)), None):
        raise DataError(file, f"is {other}, which is not read; decompress it")
    if head.startswith(_PARQUET):
        yield from _parquet_rows(file, stream)
        return
    if head.startswith((_ARROW_FILE, _ARROW_STREAM)):
        yield from _arrow_table(file, stream, head.startswith(_ARROW_FILE))
        return
    try:
        content = _decompressed(file, head, stream)
        yield from _readers(file)(file, content)
    # What gzip, zlib and Arrow raise where a file is cut off or damaged.
    except (gzip.BadGzipFile, EOFError, zlib.error, OSError) as error:
        raise DataError(file, f"is not a complete compressed file: {quoted(error)}; get it again") from error


def _decompressed(file: Path, head: bytes, stream: BinaryIO) -> BinaryIO:
    if head.startswith(_GZIP):
        return gzip.GzipFile(fileobj=stream)  # type: ignore[return-value]
    if head.startswith(_ZSTD):
        import pyarrow as pa

        return io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(stream, "r"), "zstd"), _CHUNK)
    if b"\0" in head:
        raise DataError(file, "is UTF-16 or no text at all; save it as UTF-8 text")
    return stream


def _readers(file: Path) -> Callable[[Path, BinaryIO], Iterator[tuple[str, Any]]]:
    return {".yaml": _yaml_records, ".yml": _yaml_records, ".csv": _csv_rows, ".tsv": _csv_rows}.get(
        _suffix(file), _json_records
    )


def _suffix(file: Path) -> str:
    """The suffix that tells the format."""
    path = Path(file.stem) if file.suffix.lower() in COMPRESSED else file
    return path.suffix.lower()


def is_record_file(file: Path) -> bool:
    """Tells whether a file of a folder is read: by its ending, and not if it is hidden."""
    return not file.name.startswith(".") and file.name not in _BESIDE_ARROW and _suffix(file) in SUFFIXES


def _by_number(file: Path) -> list[tuple[int, int, str]]:
    parts = re.split(r"(\d+)", str(file))
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts]


# --- JSON


def _json_records(file: Path, stream: BinaryIO) -> Iterator[tuple[str, Any]]:
    first = _first_line(stream)
    opening = first.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not opening:
        raise DataError(file, "is empty; name a file with rows")
    if opening.startswith(b"["):
        yield from _listed(file, opening, stream)
        return
    try:
        value = parse_json(first, Numeral)
    except ValueError:
        # One object over many lines, or a damaged first line.
        rest = stream.read(MAX_JSON)
        whole = opening.startswith(b"{") and len(first) + len(rest) < MAX_JSON
        yield from _unwrapped(_parsed(file, first + rest if whole else first, 1))
        return
    lines = enumerate(iter(lambda: stream.readline(MAX_JSON + 1), b""), 2)
    second = next((numbered for numbered in lines if numbered[1].strip()), None)
    if second is None:
        yield from _unwrapped(value, "line 1")
        return
    yield "line 1", value
    for n, line in itertools.chain([second], lines):
        if line.strip():
            yield f"line {n}", _parsed(file, line, n)


def _first_line(stream: BinaryIO) -> bytes:
    for line in iter(lambda: stream.readline(MAX_JSON + 1), b""):
        if line.strip():
            return line
    return b""


def _parsed(file: Path, content: bytes, line: int) -> Any:
    try:
        return parse_json(content, Numeral)
    except UnicodeDecodeError as error:
        at = line + content.count(b"\n", 0, error.start)
        raise DataError(file, f"line {at} is not UTF-8; save the file as UTF-8 text") from error
    except json.JSONDecodeError as error:
        at = line + error.lineno - 1
        raise DataError(
            file, f"line {at}, column {error.colno} is not JSON: {error.msg}; {_AGAIN}"
        ) from error
    except ValueError as error:
        raise DataError(file, f"line {line} is not readable as JSON: {error}; {_AGAIN}") from error


def _listed(file: Path, first: bytes, stream: BinaryIO) -> Iterator[tuple[str, Any]]:
    """The values of a list, which need not fit into memory together."""
    text = io.TextIOWrapper(io.BufferedReader(_Joined(first, stream), _CHUNK), "utf-8")
    buffer, at, n = "", 0, 0
    try:
        buffer, at = text.read(_CHUNK), len("[")
        while True:
            at = _BETWEEN.match(buffer, at).end()  # type: ignore[union-attr]
            if len(buffer) - at < 2 and (more := text.read(_CHUNK)):
                buffer, at = buffer[at:] + more, 0
                continue
            if buffer.startswith("]", at):
                break
            n += 1
            while True:
                try:
                    value, at = parse_next(buffer, at, Numeral)
                    break
                except ValueError as error:
                    more = text.read(max(_CHUNK, len(buffer) - at))
                    if not more or len(buffer) - at > MAX_JSON:
                        reason = getattr(error, "msg", error)
                        raise DataError(
                            file, f"row {n} of its list is not JSON: {reason}; {_AGAIN}"
                        ) from error
                    buffer, at = buffer[at:] + more, 0
            yield f"row {n}", value
        if buffer[at + 1 :].strip() or text.read(_CHUNK).strip():
            raise DataError(file, f"goes on behind the list of {n} rows; {_AGAIN}")
    except UnicodeDecodeError as error:
        raise DataError(file, f"row {n + 1} or a later one is not UTF-8; save it as UTF-8 text") from error


class _Joined(io.RawIOBase):
    """What was read of a stream already, and the rest of it."""

    def __init__(self, first: bytes, stream: BinaryIO):
        self._first, self._stream = first, stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = self._first[: len(buffer)] or self._stream.read(len(buffer))
        self._first = self._first[len(content) :]
        buffer[: len(content)] = content
        return len(content)


# --- one object


def _unwrapped(value: Any, place: str = "the object") -> list[tuple[str, Any]]:
    """The records of a file that is one object, or itself."""
    return (_shaped(value) if type(value) is dict else []) or [(place, value)]


def _shaped(value: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The records that an object holds in the first of `_SHAPES` that it has; none where it has none."""
    return next(filter(None, (read(value) for read in _SHAPES if value)), [])


def _table(value: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Rows beside the names of their columns: ``{"columns": ["a", "b"], "data": [[1, 2], [3, 4]]}``."""
    names, rows = value.get("columns"), value.get("data")
    if type(names) is not list or type(rows) is not list or not all(type(name) is str for name in names):
        return []
    if not all(type(row) is list and len(row) == len(names) for row in rows):
        return []
    return _numbered(dict(zip(names, row, strict=True)) for row in rows)


def _below_one_key(value: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Records by a key each below one more, as a model's name: ``{"m": {"q1": {…}, "q2": {…}}}``."""
    inner, *others = value.values()
    if others or type(inner) is not dict or not inner:
        return []
    return next((found for read in _BY_KEY if len(found := read(inner)) > 1), [])


def _columns_by_number(value: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """A numbered object for each column: ``{"a": {"0": 1, "1": 3}, "b": {"0": 2, "1": 4}}``."""
    columns = [*value.values()]
    if len(columns) < 2 or any(map(_is_id, value)) or not all(map(_is_numbered, columns)):
        return []
    if len({*map(frozenset, columns)}) > 1:
        return []
    return _columns({name: [one[n] for n in sorted(one, key=int)] for name, one in value.items()})


def _completions_by_key(value: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Completions by an id or a question each: ``{"q1": ["…"]}``, ``{"q1": "…"}``, ``{"q1": {"0": "…"}}``."""
    listed = (
        len(value) > 1 and all(map(_is_id, value)) and all(type(one) in (str, list) for one in value.values())
    )
    numbered = all(map(_is_numbered, value.values())) and _are_keys(value)
    return _keyed({key: {"completions": one} for key, one in value.items()}) if listed or numbered else []


def _objects_by_key(value: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Objects that share a name by a key each: ``{"q1": {"question": "…"}, "q2": {"question": "…"}}``."""
    objects = all(type(one) is dict for one in value.values()) and set.intersection(*map(set, value.values()))
    return _keyed(value) if objects and _are_keys(value) else []


def _columns(value: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """A list for each column: ``{"a": [1, 3], "b": [2, 4]}``."""
    if len(value) < 2 or not all(type(one) is list for one in value.values()):
        return []
    if len({*map(len, value.values())}) > 1:
        return []
    return _numbered(dict(zip(value, row, strict=True)) for row in zip(*value.values(), strict=True))


_BY_KEY = (_below_one_key, _completions_by_key, _objects_by_key)
_SHAPES = (_table, _below_one_key, _columns_by_number, _completions_by_key, _objects_by_key, _columns)
"""Readers of the shapes that one object with many records may have, in the order in which they are tried."""


def _numbered(rows: Iterable[Any]) -> list[tuple[str, Any]]:
    return [(f"row {n}", row) for n, row in enumerate(rows, 1)]


def _keyed(records: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, Any]]:
    """A record for each key, which is a question where it is of several words."""
    return [
        (f"entry {key!r:.60}", {"question" if re.search(r"\s", key) else "key": key, **one})
        for key, one in records.items()
    ]


def _are_keys(value: Mapping[str, Any]) -> bool:
    """Whether the names of an object may be keys of records rather than names of values."""
    return len(value) > 1 or next(iter(value)).isdecimal()


def _is_numbered(value: Any) -> bool:
    return type(value) is dict and bool(value) and all(map(str.isdecimal, value))


def _is_id(key: str) -> bool:
    """Whether a key is an id or a question, and no name of a column: with a number, or of many words."""
    return re.search(r"\d|(\s.*){3}", key) is not None


# --- YAML, CSV and Parquet


def _yaml_records(file: Path, stream: BinaryIO) -> Iterator[tuple[str, Any]]:
    with needs("collecting", f"{file}: YAML"):
        import yaml
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    content = stream.read(MAX_JSON + 1)
    if len(content) > MAX_JSON:
        raise DataError(
            file, f"has more than {MAX_JSON:,} bytes of YAML; split it, or write it as JSON lines"
        )
    depth = 0
    try:
        for event in yaml.parse(content, loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                raise DataError(file, f"is nested more than {MAX_DEPTH} deep; {_AGAIN}")
            if isinstance(event, yaml.AliasEvent):  # a few may stand for more than memory holds
                raise DataError(file, "has an alias (*name); write its value out")
        value = parse_json(json.dumps(yaml.load(content, loader), default=str, ensure_ascii=False), Numeral)
    except DataError:
        raise
    except (yaml.YAMLError, ValueError, TypeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1} " if mark else ""
        raise DataError(
            file, f"{where}is not YAML: {quoted(getattr(error, 'problem', None) or error)}; {_AGAIN}"
        ) from error
    if type(value) is list:
        yield from ((f"row {n}", one) for n, one in enumerate(value, 1))
    else:
        yield from _unwrapped(value)


def _csv_rows(file: Path, stream: BinaryIO) -> Iterator[tuple[str, Any]]:
    text = io.TextIOWrapper(io.BufferedReader(_Joined(b"", stream), _CHUNK), "utf-8-sig", newline="")
    csv.field_size_limit(MAX_JSON)  # by default 131,072, which long completions exceed
    line = 0
    try:
        head = text.readline()
        separator = max("\t" if _suffix(file) == ".tsv" else ",", "\t", ";", key=head.count)
        reader = csv.DictReader(itertools.chain([head], text), strict=True, delimiter=separator)
        _check_columns(file, reader.fieldnames or ())
        for row in reader:
            line = reader.line_num
            place = f"line {line}"
            if None in row or None in row.values():
                raise DataError(
                    file,
                    f"{place} has not as many values as the header has columns; "
                    f"put values with {quoted(separator)} or line breaks in double quotes",
                )
            yield place, {name: _number(value) for name, value in row.items()}
    except UnicodeDecodeError as error:
        raise DataError(file, f"line {line + 1} or a later one is not UTF-8; save it as UTF-8") from error
    except csv.Error as error:
        line = reader.reader.line_num
        raise DataError(file, f"line {line} is not CSV: {quoted(error)}; {_AGAIN}") from error


def _check_columns(file: Path, names: Sequence[str]) -> None:
    """Checks that no column would hide another one."""
    if repeated := [name for name, times in Counter(names).items() if times > 1]:
        raise DataError(file, f"has the column {repeated[0]!r:.60} twice; rename one")


def _number(value: str) -> str:
    """A value of CSV, which may be a number."""
    return Numeral(value) if re.fullmatch(r"-?\d+(?:\.\d+)?", value) else value


def _parquet_rows(file: Path, stream: BinaryIO) -> Iterator[tuple[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(pa.PythonFile(stream, "r"))
        _check_columns(file, table.schema_arrow.names)
        # A list may hold one value millions of times, and is unpacked whole.
        for group in map(table.metadata.row_group, range(table.num_row_groups)):
            values = sum(group.column(column).num_values for column in range(group.num_columns))
            if values > MAX_VALUES * max(1, group.num_rows / _BATCH):
                raise DataError(file, f"has {values:,} values, more than {MAX_VALUES:,}; split it")
        yield from arrow_rows(file, table.iter_batches(batch_size=_BATCH))
    except (pa.ArrowException, OSError) as error:
        raise DataError(file, f"is not a complete Parquet file: {quoted(error)}; get it again") from error


def _arrow_table(file: Path, stream: BinaryIO, is_file: bool) -> Iterator[tuple[str, Any]]:
    import pyarrow as pa

    try:
        table = pa.ipc.open_file(stream) if is_file else pa.ipc.open_stream(stream)
        _check_columns(file, table.schema.names)
        batches = map(table.get_batch, range(table.num_record_batches)) if is_file else table
        yield from arrow_rows(file, batches)
    except (pa.ArrowException, OSError) as error:
        raise DataError(file, f"is not a complete Arrow file: {quoted(error)}; get it again") from error


def arrow_rows(source: object, batches: Iterable[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Reads the rows of a table.

    Args:
        source: where it comes from, for messages.
        batches: parts of the table, as Arrow has them.

    Yields:
        Where a row stands, as "row 3", and its values by column.

    Raises:
        DataError: a text is not UTF-8.
    """
    try:
        for n, row in enumerate(itertools.chain.from_iterable(batch.to_pylist() for batch in batches), 1):
            yield f"row {n}", row
    except UnicodeDecodeError as error:
        raise DataError(source, "holds text that is not UTF-8; write it again") from error
