"""Reading files of any format: finding them, telling their format, and bringing them to one encoding."""

from __future__ import annotations

import glob
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from autotts_jax.errors import DataError, InputError
from autotts_jax.files import exists, files_below
from autotts_jax.replay.autotts_json import read_json
from autotts_jax.replay.compact import read_compact
from autotts_jax.replay.dataset import EQUIV, EXACT, ProbeDataset, check_encoding, stack
from autotts_jax.replay.encoding import merge_equivalent
from autotts_jax.replay.hub import HUB, hub_files
from autotts_jax.replay.parquet import read_parquet
from autotts_jax.replay.released import RELEASED, released_files

SUFFIXES = (".json", ".jsonl", ".npz", ".parquet")
"""The files of a folder that are read."""

COLLECTION, COLLECTED = "collection.json", "matrix.npz"
"""The file that marks the folder of a collection, and its matrix, its only file that is read as data."""


_READERS: Mapping[str, Callable[[Path], ProbeDataset]] = {".npz": read_compact, ".parquet": read_parquet}


def read_files(paths: str | Path | Sequence[str | Path], encoding: str = EXACT) -> ProbeDataset:
    """Reads files of any format, folders of them and glob patterns, as one dataset.

    Args:
        paths: one or several files, folders (searched with their subfolders for `SUFFIXES`; what is hidden is
            left out), patterns, or addresses of datasets on the Hugging Face Hub, ``hf://ORG/NAME``. A file
            that is named twice is read once; files are read in the order of their paths.
        encoding: `EXACT` or `EQUIV`. A compact file in `EXACT` is converted, one in `EQUIV` cannot be.

    Returns:
        The dataset, one cell for each pair of model and benchmark.

    Raises:
        InputError: a path matches no file, a dataset cannot be downloaded, the encoding is unknown, one cell
            is in two files, or a compact file is in `EQUIV` and `EXACT` is asked for.
        DataError: a file is wrong.
    """
    check_encoding(encoding)
    patterns = [paths] if isinstance(paths, str | Path) else paths
    files = sorted({file for pattern in patterns for file in find_files(pattern)})
    datasets = [_read_encoded(file, encoding) for file in files]
    place: dict[str, Path] = {}
    for file, dataset in zip(files, datasets, strict=True):
        for cell in dataset.cells:
            if place.setdefault(cell.name, file) != file:
                raise InputError(
                    f"cell {cell.name} is in {place[cell.name]} and in {file}; "
                    "give each (model, benchmark) once"
                )
    return stack(datasets)


def read_file(path: Path) -> ProbeDataset:
    """Reads one file; its suffix tells the format.

    Args:
        path: a compact file (``.npz``), Parquet (``.parquet``), AutoTTS JSON or Parallel-Probe JSONL (any
            other suffix).

    Returns:
        The dataset, in the encoding of the file.

    Raises:
        DataError: the file is wrong.
    """
    try:
        return _READERS.get(path.suffix, read_json)(path)
    except MemoryError as error:
        raise DataError(path, "needs more memory than there is; split it") from error


def find_files(pattern: str | Path) -> list[Path]:
    """Finds the files that a file name, a folder, a glob pattern or an address on the Hub stands for.

    Args:
        pattern: the name, the pattern or the address, or that of the released matrices, ``autotts`` or
            ``autotts:FOLDER``; what is not in a cache is downloaded.

    Returns:
        The files, at least one, in no particular order.

    Raises:
        InputError: there is no such file, a folder cannot be listed, or a dataset cannot be downloaded.
    """
    if isinstance(pattern, str) and pattern.startswith(HUB):
        return hub_files(pattern)
    if isinstance(pattern, str) and pattern.partition(":")[0] == RELEASED:
        return released_files(pattern)
    files: list[Path] = []
    found = [pattern] if exists(pattern) else glob.glob(str(pattern), recursive=True)  # noqa: PTH207
    for place in map(Path, found):
        if place.is_dir():
            files += [file for file in files_below(place) if _is_data(file, place)]
        else:
            files.append(place)
    if not files:
        raise InputError(
            f"nothing found at {str(pattern)!r}; name a file, a folder with {', '.join(SUFFIXES)} files, "
            "or a pattern that matches some"
        )
    return files


def _is_data(file: Path, folder: Path) -> bool:
    """Whether this may be data: no hidden file, and none that a collection keeps beside its matrix."""
    hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
    if hidden or file.suffix not in SUFFIXES:
        return False
    in_collection = any((folder / COLLECTION).is_file() for folder in (file.parent, file.parent.parent))
    return file.name == COLLECTED or not in_collection


def _read_encoded(file: Path, encoding: str) -> ProbeDataset:
    dataset = read_file(file)
    if dataset.encoding == encoding:
        return dataset
    if encoding == EXACT:
        raise InputError(
            f"{file}: its answers are merged ({EQUIV!r}), which cannot be undone; ask for {EQUIV!r}, or read "
            "the file that it was made from"
        )
    return merge_equivalent(dataset)
