"""Records of others' files, streamed: JSON, JSON lines, YAML, CSV and Parquet, also compressed.

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

SUFFIXES = (".jsonl", ".json", ".ndjson", ".parquet", ".yaml", ".yml", ".csv", ".tsv")
"""The files of a folder that are read, also with one of `COMPRESSED` behind."""
COMPRESSED = (".gz", ".zst")

_GZIP, _ZSTD, _PARQUET = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1"
_LFS_POINTER = b"version https://git-lfs"
_CHUNK = 2**20
_BATCH = 16
"""Rows of Parquet that are unpacked at a time: what a file holds once may stand in millions of rows."""

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
    """

    file: Path
    place: str
    value: Mapping[str, Any]


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


def inner_records(record: FileRecord) -> list[FileRecord]:
    """Takes the records out of the list that a file's only object holds them in.

    Args:
        record: the object.

    Returns:
        The records, those of the longest list of objects; none if there is no such list.
    """
    found = max(_inside(record.value), key=len, default=[])
    return [FileRecord(record.file, place, {**one}) for place, one in found]


def _inside(value: Mapping[str, Any]) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """Lists of objects, objects by a key each, and lists by columns, at whatever depth of an object."""
    for one in value.values():
        if type(one) is dict:
            unwrapped = list(_unwrapped(one))
            if len(unwrapped) > 1:
                yield unwrapped
            yield from _inside(one)
        elif type(one) is list and one and all(type(inner) is dict for inner in one):
            yield [(f"row {n}", inner) for n, inner in enumerate(one, 1)]
    lists = {name: one for name, one in value.items() if type(one) is list}
    if len(lists) > 1 and len(set(map(len, lists.values()))) == 1:
        yield list(_unwrapped(lists))


def read_records(files: Sequence[Path], on_progress: OnProgress | None = None) -> Iterator[FileRecord]:
    """Reads the records of files one by one, so that no file has to fit into memory.

    A file is JSON, with a record a line, a list of records or one record; YAML or CSV, by its suffix; or
    Parquet. A JSON object may also hold its records by a key each, in one list, or as a list for each column,
    or lists of completions by ids or questions.

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
    if head.startswith(_PARQUET):
        yield from _parquet_rows(file, stream)
        return
    try:
        content = _unpacked(head, stream)
        yield from _readers(file)(file, content)
    # What gzip, zlib and Arrow raise where a file is cut off or damaged.
    except (gzip.BadGzipFile, EOFError, zlib.error, OSError) as error:
        raise DataError(file, f"is not a complete compressed file: {quoted(error)}; get it again") from error


def _unpacked(head: bytes, stream: BinaryIO) -> BinaryIO:
    if head.startswith(_GZIP):
        return gzip.GzipFile(fileobj=stream)  # type: ignore[return-value]
    if head.startswith(_ZSTD):
        import pyarrow as pa

        return io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(stream, "r"), "zstd"), _CHUNK)
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
    return not file.name.startswith(".") and _suffix(file) in SUFFIXES


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


def _unwrapped(value: Any, place: str = "the object") -> Iterator[tuple[str, Any]]:
    """The records of a file that is one object: by a key each, by columns, or itself."""
    if type(value) is dict and _is_table(value):
        value = [dict(zip(value["columns"], row, strict=True)) for row in value["data"]]
        yield from ((f"row {n}", row) for n, row in enumerate(value, 1))
        return
    inner = list(value.values()) if type(value) is dict else []
    if len(inner) == 1 and type(inner[0]) is dict:  # by a model's name, say
        by_key = list(_unwrapped(inner[0]))
        if len(by_key) > 1 and by_key[0][0].startswith("entry"):
            yield from by_key
            return
    numbered = inner and all(type(one) is dict and one and all(map(str.isdecimal, one)) for one in inner)
    if numbered and len(inner) > 1 and len({*map(frozenset, inner)}) == 1 and not any(map(_is_id, value)):
        value = {name: [one[n] for n in sorted(one, key=int)] for name, one in value.items()}
        inner = list(value.values())
    alike = inner and all(type(one) is dict for one in inner) and set.intersection(*map(set, inner))
    if alike and (len(inner) > 1 or next(iter(value)).isdecimal()):
        for key, one in value.items():
            name = "question" if re.search(r"\s", key) else "key"  # no identifier is of several words
            named = {"completions": one} if numbered else one
            yield f"entry {key!r:.60}", {name: key, **named}
        return
    lists = [one for one in inner if type(one) is list]
    if len(lists) == len(inner) > 1 and all(map(_is_id, value)):
        for key, one in value.items():
            name = "question" if re.search(r"\s", key) else "key"
            yield f"entry {key!r:.60}", {name: key, "completions": one}
        return
    if len(lists) == len(inner) > 1 and len({len(one) for one in lists}) == 1:
        for n, row in enumerate(zip(*lists, strict=True), 1):
            yield f"row {n}", dict(zip(value, row, strict=True))
        return
    yield place, value


def _is_id(key: str) -> bool:
    """Whether a key is an id or a question, and no name of a column: with a number, or of many words."""
    return re.search(r"\d|(\s.*){3}", key) is not None


def _is_table(value: Mapping[str, Any]) -> bool:
    """Whether an object holds rows of values beside the names of their columns."""
    names, rows = value.get("columns"), value.get("data")
    return (
        type(names) is list
        and type(rows) is list
        and all(type(name) is str for name in names)
        and all(type(row) is list and len(row) == len(names) for row in rows)
    )


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
        value = yaml.load(content, loader)
    except DataError:
        raise
    except (yaml.YAMLError, ValueError) as error:
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
