"""Parquet: a row for each branch, as data frames, viewers and the Hugging Face Hub show it.

`COLUMNS` are the columns; besides, a column ``signal_NAME`` for each signal. Rows may be in any order:
questions are read in the order of their first rows, branches in that of their numbers. Other columns are left
out.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import reprlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autotts_jax.errors import DataError, InputError, TooLargeError
from autotts_jax.files import read_bytes, write_folder
from autotts_jax.npz import MAX_UNPACKED
from autotts_jax.replay.card import card
from autotts_jax.replay.dataset import EXACT, Cell, ProbeDataset, Question
from autotts_jax.replay.encoding import encode_exact
from autotts_jax.replay.flat import MAX_BRANCHES, MAX_TOKENS, FlatMatrix, flatten, to_dataset
from autotts_jax.replay.matrix import MAX_ENTRIES, NONE
from autotts_jax.replay.signals import DTYPE, bad_name
from autotts_jax.terminal import quoted

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

COLUMNS = {
    "model": ("string", "model that generated the branch"),
    "benchmark": ("string", "benchmark that the question belongs to"),
    "question_index": ("int32", "position of the question in the file that it came from"),
    "question": ("string", "text of the question"),
    "gold_answer": ("string", "reference answer"),
    "interval": ("int32", "tokens between two probes"),
    "branch": ("int32", "number of the branch of its question, from 0"),
    "tokens": ("int32", "tokens of the branch"),
    "probe_answers": ("list of string", "answer of each probe"),
    "final_answer": ("string", "answer at the end of the branch"),
}
"""Type and content of each column."""

_SIGNAL = "signal_"
_OF_SIGNAL = "list of float32"
_SIGNALS = {
    "conf_mean": "confidence in the tokens of the interval, mean of −log p over the 20 most likely ones",
    "conf_low": "lowest mean confidence in 2,048 tokens in a row that end within the interval",
    "conf_tail": "mean confidence in the last 2,048 tokens",
    "logprob_mean": "mean log-probability of the sampled tokens of the interval, in nats",
    "probe_p_mean": "arithmetic mean of the probabilities of the answer's tokens",
    "probe_p_geo": "geometric mean of the probabilities of the answer's tokens",
    "probe_hedge": "1 where the text after the answer hedges, as in wait or but, else 0",
    "eat": "entropy of the next token after the end of the thinking, in nats",
}
"""What the signals are that a collection can keep."""

_FILES = "data/*/*.parquet"
_DELTA = {"DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"}
_RANGES = {
    "question_index": (0, MAX_TOKENS),
    "branch": (0, MAX_BRANCHES - 1),
    "interval": (1, MAX_TOKENS),
    "tokens": (1, MAX_TOKENS),
}


def write_parquet(dataset: ProbeDataset, folder: str | Path, licence: str | None = None) -> None:
    """Writes a dataset as a folder for the Hugging Face Hub, completely or not at all.

    The folder has a file ``data/<model>/<benchmark>.parquet`` for each cell, with a row for each branch, and
    ``README.md``, the card that the Hub shows: what the columns hold, and statistics.

    Args:
        dataset: a dataset of any number of cells, in encoding `EXACT`.
        folder: the folder to write; there is none, or an empty one.
        licence: the licence of the data, by an identifier of the Hub such as ``apache-2.0``; by default the
            card names none.

    Raises:
        TooLargeError: a file would be larger than `read_parquet` reads.
        InputError: the dataset has another encoding or an answer `NONE`, two cells would be one file, the
            licence is not an identifier, or the folder has files or cannot be written.
    """
    named = isinstance(licence, str) and re.fullmatch(r"[a-z0-9][a-z0-9.+-]*", licence)
    if licence is not None and not named:
        raise InputError(
            f"licence is {licence!r:.60}, but it must be an identifier of the Hub, such as apache-2.0, "
            "cc-by-4.0 or other"
        )
    if dataset.encoding != EXACT:
        raise InputError(
            f"{folder}: Parquet holds answers as they were given, in encoding {EXACT!r}, and the dataset is "
            f"in {dataset.encoding!r}; write the data that it was made from, or write .npz instead"
        )
    contents: dict[str, bytes] = {}
    for number, cell in enumerate(dataset.cells):
        name = f"data/{_file_name(cell.model)}/{_file_name(cell.benchmark)}.parquet"
        if name in contents:
            raise InputError(f"{folder}: the cell {cell.name} and another would both be {name}; rename one")
        contents[name] = _to_file(folder, dataset.select(dataset.cell_questions(number)))
    columns = dict(COLUMNS)
    for name in dataset.matrix.signals:
        meaning = f"{_SIGNALS.get(name, 'a signal')}; for each probe, then for the final answer"
        columns[f"{_SIGNAL}{name}"] = (_OF_SIGNAL, meaning)
    write_folder(folder, contents | {"README.md": card(dataset, columns, _FILES, licence).encode()})


def read_parquet(path: str | Path) -> ProbeDataset:
    """Reads a Parquet file with a row for each branch.

    Args:
        path: a file of a folder that `write_parquet` wrote, or another one with its columns.

    Returns:
        The dataset, in encoding `EXACT`. Answers have ids in order of first appearance.

    Raises:
        DataError: the file cannot be read, or is not a complete, consistent probe matrix.
    """
    content = read_bytes(path)
    table = _read_table(path, content)
    known: dict[str, int] = {}
    columns = {
        name: _numbers(path, table[name], name) if name in _RANGES else _codes(path, table[name], known)
        for name, (kind, _) in COLUMNS.items()
        if not kind.startswith("list")
    }
    lengths = _lengths(table["probe_answers"])
    _check(path, lengths >= 1, "no probes; leave the branch out")
    probes = _codes(path, _probes(path, table["probe_answers"], lengths), known)
    signals = {
        name.removeprefix(_SIGNAL): _signal(path, table[name], name, lengths)
        for name in table.column_names
        if name.startswith(_SIGNAL)
    }
    keys = np.stack([columns[name] for name in ("model", "benchmark", "question_index")], axis=1)
    _, first, of_row = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    question = np.argsort(np.argsort(first))[of_row.reshape(-1)]  # numbered in the order of their first rows

    # From here on by question and branch; ``rows`` are their places in the file.
    rows = np.lexsort((columns["branch"], question))
    depths = lengths[rows] + 1
    ends = np.cumsum(depths)
    place = np.repeat(np.cumsum(lengths + 1)[rows] - ends, depths) + np.arange(ends[-1])
    answers = np.insert(probes, np.cumsum(lengths), columns["final_answer"])[place]
    question, columns = question[rows], {name: values[rows] for name, values in columns.items()}
    first = np.flatnonzero(np.diff(question, prepend=-1))
    _check_branches(path, rows, first[question], columns)

    texts = list(known)
    of_question = {name: values[first] for name, values in columns.items()}
    origin = os.fsencode(path).decode(errors="replace"), hashlib.sha256(content).hexdigest()
    cell, cells = _cells(path, of_question, np.diff(first, append=len(rows)), texts, origin)
    golds = [texts[code] for code in of_question["gold_answer"]]
    encoded = [
        encode_exact([texts[code] for code in part.tolist()], gold, path, q)
        for q, (part, gold) in enumerate(zip(np.split(answers, ends[first[1:] - 1]), golds, strict=True))
    ]
    asked = zip(of_question["question_index"], of_question["question"], golds, encoded, strict=True)
    questions = [
        Question(int(index), texts[text], gold, codes.vocabulary) for index, text, gold, codes in asked
    ]
    flat = FlatMatrix(
        answers=np.concatenate([codes.ids for codes in encoded]),
        lengths=lengths[rows].astype(np.int32),
        tokens=columns["tokens"].astype(np.int32),
        gold=np.array([codes.gold for codes in encoded], np.int16),
        interval=of_question["interval"].astype(np.int32),
        cell=cell,
        signals={name: values[place] for name, values in signals.items()},
    )
    return to_dataset(path, flat, cells, questions, EXACT)


# --- writing


def _file_name(name: str) -> str:
    """What the name of a model or a benchmark is called as a file."""
    return re.sub(r"[^\w.-]+", "-", name).lstrip(".") or "-"


def _to_file(folder: str | Path, dataset: ProbeDataset) -> bytes:
    """The Parquet file of a dataset of one cell."""
    import pyarrow.parquet as pq

    flat = flatten(dataset)
    if NONE in flat.answers:
        raise InputError(f"{folder}: Parquet cannot hold an answer without text; write .npz instead")
    sink = io.BytesIO()
    # Readers are not told that the texts were dictionaries here. A checksum finds damage.
    pq.write_table(
        _to_table(dataset, flat),
        sink,
        compression="zstd",
        store_schema=False,
        dictionary_pagesize_limit=MAX_UNPACKED,
        write_page_checksum=True,
    )
    content = sink.getvalue()
    if problem := _too_large(*_size(pq.ParquetFile(sink))):
        raise TooLargeError(f"{folder}: the cell {dataset.cells[0].name}: {problem}, or write .npz instead")
    return content


def _to_table(dataset: ProbeDataset, flat: FlatMatrix) -> pa.Table:
    import pyarrow as pa

    (cell,), questions = dataset.cells, dataset.questions
    question = np.repeat(np.arange(len(questions)), cell.num_branches)
    depths = flat.lengths.astype(np.int64) + 1
    ends = np.cumsum(depths)
    sizes = np.array([len(asked.vocabulary) for asked in questions])
    answers = flat.answers + np.repeat((np.cumsum(sizes) - sizes)[question], depths)
    words = [word for asked in questions for word in asked.vocabulary]

    def lists(lengths: np.ndarray, values: Any) -> pa.Array:
        return pa.ListArray.from_arrays(np.insert(np.cumsum(lengths), 0, 0).astype(np.int32), values)

    columns = {
        "model": _texts([cell.model], np.zeros_like(question)),
        "benchmark": _texts([cell.benchmark], np.zeros_like(question)),
        "question_index": np.array([asked.index for asked in questions], np.int32)[question],
        "question": _texts([asked.text for asked in questions], question),
        "gold_answer": _texts([asked.gold for asked in questions], question),
        "interval": flat.interval[question],
        "branch": np.tile(np.arange(cell.num_branches, dtype=np.int32), len(questions)),
        "tokens": flat.tokens,
        "probe_answers": lists(flat.lengths, _texts(words, np.delete(answers, ends - 1))),
        "final_answer": _texts(words, answers[ends - 1]),
    }
    for name, values in flat.signals.items():
        columns[f"{_SIGNAL}{name}"] = lists(depths, values.astype(np.float32))
    return pa.table(columns)


def _texts(texts: Sequence[str], which: np.ndarray) -> pa.Array:
    """Some texts, each as often as it is named; a text is kept once."""
    import pyarrow as pa

    known: dict[str, int] = {}
    codes = np.array([known.setdefault(text, len(known)) for text in texts], np.int32)
    return pa.DictionaryArray.from_arrays(codes[which], pa.array(list(known), pa.string()))


# --- reading


def _read_table(path: str | Path, content: bytes) -> pa.Table:
    """The columns that are read, of their types and without nulls; texts are kept once."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    source = pa.BufferReader(content)
    with _undamaged(path):
        file = pq.ParquetFile(source, pre_buffer=False)
        names, types = file.schema_arrow.names, file.schema_arrow.types
        leaves = [file.schema.column(number) for number in range(file.metadata.num_columns)]
        texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
    if len(set(names)) < len(names):
        raise DataError(path, "has two columns of one name; rename one")
    if missing := [name for name in COLUMNS if name not in names]:
        raise DataError(
            path,
            f"no probe matrix: it lacks the columns {', '.join(missing)}, and has {reprlib.repr(names)}; "
            "write it again, or if it is something else, move it out of the folder or name the "
            "files to read",
        )
    kinds = {name: kind for name, (kind, _) in COLUMNS.items()}
    signals = [name.removeprefix(_SIGNAL) for name in names if name.startswith(_SIGNAL)]
    if problem := bad_name(signals):
        raise DataError(path, problem)
    kinds |= {f"{_SIGNAL}{name}": _OF_SIGNAL for name in signals}
    found = dict(zip(names, types, strict=True))
    for name, kind in kinds.items():
        if not _is_of(found[name], kind):
            raise DataError(path, f"the column {name} is {quoted(found[name], 60)}; make it {kind}")
    with _undamaged(path):
        size = _size(file)
        differences = {chunk.path_in_schema: _DELTA & {*chunk.encodings} for chunk in _chunks(file)}
    if problem := _too_large(*size):
        raise DataError(path, problem)
    # Arrow cannot keep such texts once, and a short file of them may unpack to any size.
    for name, used in differences.items():
        if used:
            raise DataError(
                path,
                f"the column {name} is encoded as {', '.join(used)}, which is not read; write its texts with "
                "a dictionary, or as PLAIN",
            )
    with _undamaged(path):
        file = pq.ParquetFile(
            source, read_dictionary=texts, pre_buffer=False, page_checksum_verification=True
        )
        # Arrow cannot read lists of dictionaries, which the probes are, from several groups at once.
        tables = [
            file.read_row_group(number, columns=list(kinds), use_threads=False)
            for number in range(file.num_row_groups)
        ]
        table = pa.concat_tables(tables) if tables else file.read(list(kinds), use_threads=False)
        table.validate(full=True)
    if not len(table):
        raise DataError(path, "holds no branches; give it at least one")
    for name in kinds:
        _check(path, ~np.asarray(table[name].is_null()), f"it has no {name}; fill it in")
    return table


@contextlib.contextmanager
def _undamaged(path: str | Path) -> Iterator[None]:
    """Turns the dozen kinds of errors that damaged files raise into one."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        raise DataError(
            path, f"not a complete Parquet file ({quoted(error)}); get or write it again"
        ) from error


def _is_of(found: pa.DataType, kind: str) -> bool:
    """Whether a column is of a kind, whatever the size of its numbers and offsets."""
    from pyarrow import types

    if kind.startswith("list of "):
        is_list = types.is_list(found) or types.is_large_list(found)
        return is_list and _is_of(found.value_type, kind.removeprefix("list of "))
    if kind == "string":
        found = found.value_type if types.is_dictionary(found) else found
        return types.is_string(found) or types.is_large_string(found)
    return types.is_integer(found) if kind == "int32" else types.is_floating(found)


def _size(file: pq.ParquetFile) -> tuple[int, int]:
    """How many values a file says that it has, and how many bytes it says that these unpack to."""
    metadata = file.metadata
    groups = range(metadata.num_row_groups)
    # Opens the columns and reads none of their values. What is wrong with one is an exception here, and ends
    # the process where its numbers are asked for.
    next(file.reader.iter_batches(0, [*groups], _read_columns(file), use_threads=False), None)
    chunks = _chunks(file)
    values = sum(max(chunk.num_values, 0) for chunk in chunks)
    size = sum(max(chunk.total_uncompressed_size, 0) for chunk in chunks)
    rows = max(metadata.num_rows, *(metadata.row_group(number).num_rows for number in groups), 0)
    return max(values, rows), size


def _read_columns(file: pq.ParquetFile) -> list[int]:
    """The columns that are read."""
    return [n for n in range(file.metadata.num_columns) if _is_read(file.schema.column(n).path)]


def _chunks(file: pq.ParquetFile) -> list[pq.ColumnChunkMetaData]:
    """The parts of the columns that are read, one of each in a row group."""
    groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
    return [group.column(number) for group in groups for number in _read_columns(file)]


def _is_read(path: str) -> bool:
    name, _, _ = path.partition(".")
    return name in COLUMNS or name.startswith(_SIGNAL)


def _too_large(values: int, size: int) -> str | None:
    if values > MAX_ENTRIES:
        return f"it has {values:,} values, more than {MAX_ENTRIES:,}; split it"
    if size > MAX_UNPACKED:
        return f"it unpacks to {size:,} bytes, more than {MAX_UNPACKED:,}; split it"
    return None


def _check(path: str | Path, good: np.ndarray, problem: str, rows: np.ndarray | None = None) -> None:
    """Names the first row that is not good, the rows being in the order of the file or as ``rows`` says."""
    if not good.all():
        worst = int(np.argmin(good))
        row = worst if rows is None else rows[worst]
        raise DataError(path, f"row {row + 1}: {problem}")


def _numbers(path: str | Path, column: pa.ChunkedArray, name: str) -> np.ndarray:
    values, (least, most) = column.to_numpy(), _RANGES[name]
    good = (values >= least) & (values <= most)
    value = values[np.argmin(good)]
    _check(path, good, f"{name} is {value}; give a number from {least} to {most}")
    return values.astype(np.int64)


def _codes(path: str | Path, column: pa.ChunkedArray, known: dict[str, int]) -> np.ndarray:
    """A number for each text, the same wherever the text is; new ones are added to the known."""
    codes = [np.zeros(0, np.int32)]
    for chunk in column.chunks:
        coded = chunk.dictionary_encode()  # nothing, where it is
        try:
            texts = coded.dictionary.to_pylist()
        except UnicodeDecodeError as error:
            raise DataError(path, "holds text that is not UTF-8; write it again") from error
        numbers = np.array([known.setdefault(text, len(known)) for text in texts], np.int32)
        codes.append(numbers[coded.indices.to_numpy()])
    return np.concatenate(codes)


def _lengths(column: pa.ChunkedArray) -> np.ndarray:
    """The number of values of each list."""
    return np.concatenate([np.asarray(chunk.value_lengths(), np.int64) for chunk in column.chunks])


def _values(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values of all lists."""
    import pyarrow as pa

    return pa.chunked_array([chunk.flatten() for chunk in column.chunks], column.type.value_type)


def _probes(path: str | Path, column: pa.ChunkedArray, lengths: np.ndarray) -> pa.ChunkedArray:
    """The answers of all probes."""
    values = _values(column)
    _check_each(path, values, lengths, "a probe has no answer; write ERR where none was found")
    return values


def _check_each(path: str | Path, values: pa.ChunkedArray, lengths: np.ndarray, problem: str) -> None:
    """Names the first row whose list, of those that together have the values, has a null."""
    if values.null_count:
        row = np.searchsorted(np.cumsum(lengths), np.argmax(values.is_null()), side="right")
        raise DataError(path, f"row {row + 1}: {problem}")


def _signal(path: str | Path, column: pa.ChunkedArray, name: str, lengths: np.ndarray) -> np.ndarray:
    """The numbers of a signal."""
    given = _lengths(column)
    good = given == lengths + 1
    row = np.argmin(good)
    problem = (
        f"{name:.60} has {given[row]} numbers, and the branch {lengths[row]} probes and a final answer; give "
        "one for each"
    )
    _check(path, good, problem)
    values = _values(column)
    problem = f"{name:.60} has a null; give a number for each probe and the final answer"
    _check_each(path, values, given, problem)
    with np.errstate(over="ignore"):
        return values.to_numpy().astype(DTYPE)


def _check_branches(
    path: str | Path, rows: np.ndarray, first: np.ndarray, columns: dict[str, np.ndarray]
) -> None:
    """Checks the rows of each question, which are by question and branch; ``first`` is its first place."""
    branch = columns["branch"]
    places = np.arange(len(rows))
    twice = (places > first) & (branch == np.roll(branch, 1))
    _check(path, ~twice, "its question has the branch in another row as well; keep one", rows)
    good = branch == places - first
    absent = (places - first)[np.argmin(good)]
    _check(path, good, f"its question has no branch {absent}; number the branches from 0", rows)
    for name in ("question", "gold_answer", "interval"):
        good = columns[name] == columns[name][first]
        other = rows[first[np.argmin(good)]] + 1
        _check(path, good, f"its {name} is not that of row {other}, of the same question; correct one", rows)


def _cells(
    path: str | Path,
    columns: dict[str, np.ndarray],
    counts: np.ndarray,
    texts: Sequence[str],
    origin: tuple[str, str],
) -> tuple[np.ndarray, list[Cell]]:
    """The cell of each question, and the cells.

    Args:
        path: the file, for messages.
        columns: the columns, by question.
        counts: the number of branches of each question.
        texts: what the codes in the columns stand for.
        origin: source and hash of the cells.

    Raises:
        DataError: questions of a cell differ in what all must share.
    """
    pairs = list(zip(columns["model"].tolist(), columns["benchmark"].tolist(), strict=True))
    numbers = {pair: number for number, pair in enumerate(dict.fromkeys(pairs))}
    cell = np.array([numbers[pair] for pair in pairs], np.int32)
    of_cell = np.unique(cell, return_index=True)[1]  # the first question of each
    for name, values in {"number of branches": counts, "interval": columns["interval"]}.items():
        others = values[of_cell][cell]
        if (values != others).any():
            q = int(np.argmax(values != others))
            raise DataError(
                path,
                f"its {name} is {values[q]}, and {others[q]} in question {of_cell[cell[q]]} of the same "
                "cell; use one for all",
                q,
            )
    cells = [
        Cell(texts[model], texts[benchmark], int(counts[q]), *origin)
        for (model, benchmark), q in zip(numbers, of_cell, strict=True)
    ]
    return cell, cells
