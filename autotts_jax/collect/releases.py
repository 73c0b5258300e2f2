"""Released probe matrices as compact files: all cells of a checkout or of a Hugging Face dataset."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path

from autotts_jax import files
from autotts_jax.errors import DataError, InputError
from autotts_jax.replay.autotts_json import read_json
from autotts_jax.replay.compact import write_compact

ENDINGS = (".json", ".jsonl")
_MATRIX_KEYS = {"each_branch", "probe_matrix_mxn"}
"""What only a question with its branches has: as AutoTTS and as Parallel-Probe record it."""

_UNTELLING = {"data", "train", "test"}
_PARALLEL_PROBE = re.compile(r"(?P<model>.+?)__(?P<benchmark>.+?)__br\d+__.+")
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"

_Tell = Callable[[str], None]


def import_release(source: str, out: Path, on_progress: _Tell | None = None) -> list[Path]:
    """Writes ``<out>/<model>/<benchmark>.npz`` for every cell of a release, over what is there.

    The last two parts of a file's path name its cell, ``<model>/<benchmark>.json``; a last part ``data``,
    ``train`` or ``test`` says nothing and is passed over. A file of the Parallel-Probe datasets has both in
    its own name, ``<model>__<benchmark>__br128__….jsonl``. Where a release holds copies of a file for one
    cell, the first is read.

    Files are read in the order of their paths, and each is written whole or not at all. If one of them is
    wrong, those written before it stay.

    Args:
        source: a folder, searched with all its subfolders, or ``org/name``, a dataset of the Hugging Face
            hub.
        out: a folder, made if it is not there.
        on_progress: told, a line each, what is written and what is left out and why.

    Returns:
        The files written.

    Raises:
        InputError: no such folder or dataset, no probe matrix in it, two different files for one cell
            (nothing is written then), or a file that cannot be written.
        DataError: a probe matrix in it cannot be read or is wrong.
    """
    tell = on_progress or (lambda _: None)
    folder, name = _find(source)
    written = []
    for (model, benchmark), file in _cells(folder, name, tell).items():
        dataset = read_json(file, model=model, benchmark=benchmark)
        target = out / model / f"{benchmark}.npz"
        files.make_folder(target.parent)
        write_compact(dataset, target)
        tell(f"wrote {target}: {len(dataset)} questions, {dataset.cells[0].num_branches} branches each")
        written.append(target)
    return written


def _find(source: str) -> tuple[Path, str]:
    """The folder of a release, and the name that stands for it in the names of cells."""
    folder = Path(source)
    if folder.is_dir():
        return folder, folder.resolve().name
    if folder.exists():
        raise InputError(f"{source} is a file; name the folder of a release, or use autotts-jax data convert")
    if not _HUB_ID.fullmatch(source):
        raise InputError(f"no folder {source!r}; name a checkout of a release, or a dataset as org/name")
    return _download(source), folder.name


def _download(dataset: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise InputError(
            f"no folder {dataset!r}, and to download a dataset of this name the library huggingface_hub is "
            "needed; run pip install 'autotts-jax[collect]'"
        ) from error
    try:
        patterns = [f"*{ending}" for ending in ENDINGS]
        return Path(snapshot_download(dataset, repo_type="dataset", allow_patterns=patterns))
    # Whatever the library, the network or the disk may raise.
    except Exception as error:
        raise InputError(
            f"no folder {dataset!r}, and the dataset of this name cannot be downloaded: {error}; "
            "check the name and the connection"
        ) from error


def _cells(folder: Path, name: str, tell: _Tell) -> dict[tuple[str, str], Path]:
    """The file of each cell, by model and benchmark."""
    cells: dict[tuple[str, str], Path] = {}
    hashes: dict[Path, bytes] = {}
    others = []
    for file in sorted(file for file in folder.rglob("*") if file.suffix in ENDINGS and file.is_file()):
        try:
            content = file.read_bytes()
        except OSError as error:
            raise DataError(file, f"cannot be read: {error.strerror}; make it readable") from error
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
            tell(f"left out {file}: a copy of {first}")
    if others:
        shown = ", ".join(map(str, others[:5])) + (", …" if len(others) > 5 else "")
        tell(f"left out {len(others)} JSON files without a probe matrix: {shown}")
    if not cells:
        raise InputError(
            f"no probe matrix in {folder}, among {len(others)} {' and '.join(ENDINGS)} files; "
            "name the folder that holds the released data"
        )
    return cells


def _holds_matrix(file: Path, content: bytes) -> bool:
    """Whether the first record is a question with its branches, or breaks off as one."""
    if content.startswith(_LFS_POINTER):
        raise DataError(file, "only stands for a file in Git LFS; run git lfs pull in its checkout")
    if not any(f'"{key}"'.encode() in content for key in (*_MATRIX_KEYS, "final_answers_trace")):
        return False
    text = content.decode("utf-8-sig", errors="replace").lstrip(" \t\r\n[")
    try:
        record, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return True
    return type(record) is dict and not _MATRIX_KEYS.isdisjoint(record)


def _cell_name(path: Path) -> tuple[str, str]:
    """Model and benchmark of a file, by its path from the release's name on."""
    if names := _PARALLEL_PROBE.fullmatch(path.stem):
        return names["model"], names["benchmark"]
    *folders, last = path.with_suffix("").parts
    if last in _UNTELLING and len(folders) > 1:
        *folders, last = folders
    return folders[-1], last
