"""Imports released probe matrices: all cells of a checkout or of a Hugging Face dataset."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path

from autotts_jax import files
from autotts_jax.errors import DataError, InputError
from autotts_jax.extras import needs
from autotts_jax.replay.autotts_json import read_json
from autotts_jax.replay.compact import write_compact
from autotts_jax.terminal import counted, quoted

ENDINGS = (".json", ".jsonl")
MATRIX_FIELDS = {"each_branch", "probe_matrix_mxn"}
"""Fields that only a question with branches has, in AutoTTS JSON and in Parallel-Probe JSONL."""

_GENERIC_NAMES = {"data", "train", "test"}
_PARALLEL_PROBE = re.compile(r"(?P<model>.+?)__(?P<benchmark>.+?)__br\d+__.+")
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"


def import_release(source: str, out: str | Path, on_file: Callable[[str], None] | None = None) -> list[Path]:
    """Writes ``<out>/<model>/<benchmark>.npz`` for every cell of a release; existing files are replaced.

    The last two parts of a file's path name its cell, ``<model>/<benchmark>.json``; a last part ``data``,
    ``train`` or ``test`` is skipped. A file of the Parallel-Probe datasets has both in its own name,
    ``<model>__<benchmark>__br128__….jsonl``. If a release has copies of a file for one cell, the first is
    read.

    Files are read in the order of their paths, and each is written completely or not at all. If one of them
    is wrong, those written before it remain.

    Args:
        source: a folder, searched with all its subfolders, or ``org/name``, a Hugging Face dataset.
        out: the folder to write to, created if it does not exist.
        on_file: called with a line about each file that is written or left out.

    Returns:
        The files that were written.

    Raises:
        InputError: there is no such folder or dataset, it has no probe matrix, there are two different files
            for one cell (nothing is written then), or a file cannot be written.
        DataError: a probe matrix cannot be read or is wrong.
    """
    out = files.destination(out)
    report = on_file or (lambda _: None)
    folder, name = _find(source)
    written = []
    for (model, benchmark), file in _cells(folder, name, report).items():
        dataset = read_json(file, model=model, benchmark=benchmark)
        target = out / model / f"{benchmark}.npz"
        files.make_folder(target.parent)
        write_compact(dataset, target)
        report(
            f"wrote {target}: {counted(len(dataset), 'question', 'questions')}, "
            f"{counted(dataset.cells[0].num_branches, 'branch', 'branches')} each"
        )
        written.append(target)
    return written


def _find(source: str) -> tuple[Path, str]:
    """The folder of a release, and its name for the names of cells."""
    folder = Path(source)
    if files.exists(source) and folder.is_dir():
        return folder, folder.resolve().name
    if folder.exists():
        raise InputError(f"{source} is a file; name the folder of a release, or use autotts-jax data convert")
    if not _HUB_ID.fullmatch(source):
        raise InputError(f"no folder {source!r}; name a checkout of a release, or a dataset as org/name")
    return _download(source), folder.name


def _download(dataset: str) -> Path:
    with needs("collecting", f"no folder {dataset!r}; downloading a dataset of this name"):
        from huggingface_hub import snapshot_download
    try:
        patterns = [f"*{ending}" for ending in ENDINGS]
        return Path(snapshot_download(dataset, repo_type="dataset", allow_patterns=patterns))
    # The library, the network and the disk may raise anything.
    except Exception as error:
        raise InputError(
            f"no folder {dataset!r}, and the dataset of this name cannot be downloaded: {quoted(error)}; "
            "check the name and the connection"
        ) from error


def _cells(folder: Path, name: str, report: Callable[[str], None]) -> dict[tuple[str, str], Path]:
    """The file of each cell, by model and benchmark."""
    cells: dict[tuple[str, str], Path] = {}
    hashes: dict[Path, bytes] = {}
    others = []
    for file in files.files_below(folder):
        if file.suffix not in ENDINGS:
            continue
        content = files.read_bytes(file)
        if not _holds_matrix(file, content):
            others.append(file)
            continue
        cell = _cell_name(Path(name) / file.relative_to(folder))
        hashes[file] = hashlib.sha256(content).digest()
        first = cells.setdefault(cell, file)
        if hashes[first] != hashes[file]:
            raise InputError(
                f"{first} and {file} differ, and both are the cell {'/'.join(cell)}; "
                "import the folder of one of them, or rename one as <model>/<benchmark>.json"
            )
        if first != file:
            report(f"left out {file}: a copy of {first}")
    if others:
        shown = ", ".join(map(str, others[:5])) + (", …" if len(others) > 5 else "")
        report(f"left out {len(others)} JSON files without a probe matrix: {shown}")
    if not cells:
        raise InputError(
            f"no probe matrix in {folder}, among {len(others)} {' and '.join(ENDINGS)} files; "
            "name the folder that holds the released data"
        )
    return cells


def _holds_matrix(file: Path, content: bytes) -> bool:
    """Whether the first record is a question with branches, or looks like one that is cut off."""
    if content.startswith(_LFS_POINTER):
        raise DataError(file, "is a Git LFS pointer; run git lfs pull in its checkout")
    if not any(f'"{key}"'.encode() in content for key in (*MATRIX_FIELDS, "final_answers_trace")):
        return False
    text = content.decode("utf-8-sig", errors="replace").lstrip(" \t\r\n[")
    try:
        record, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return True
    return type(record) is dict and not MATRIX_FIELDS.isdisjoint(record)


def _cell_name(path: Path) -> tuple[str, str]:
    """Model and benchmark of a file, by its path from the release's name on."""
    if names := _PARALLEL_PROBE.fullmatch(path.stem):
        model, benchmark = names["model"], names["benchmark"]
    else:
        *folders, benchmark = path.with_suffix("").parts
        if benchmark in _GENERIC_NAMES and len(folders) > 1:
            *folders, benchmark = folders
        model = folders[-1]
    return files.check_name(model, path), files.check_name(benchmark, path)
