"""The manifest of a run: what it is made of, so that it can be reproduced, and resumed with nothing else."""

from __future__ import annotations

import dataclasses
import json
import platform
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

from autotts_jax.commands import without_secrets
from autotts_jax.core.hosts import largest, together
from autotts_jax.errors import DataError, InputError
from autotts_jax.files import read_bytes, write_atomically
from autotts_jax.parsing import parse_json
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.terminal import quoted
from autotts_jax.training.checkpoints import newest_checkpoint
from autotts_jax.training.run_state import RunState

MANIFEST = "manifest.json"
"""The manifest's file in a run's folder."""

PACKAGES = ("autotts-jax", "evosax", "flax", "jax", "jaxlib", "numpy", "optax", "orbax-checkpoint")


def build_manifest(config: Any, dataset: ProbeDataset) -> dict[str, Any]:
    """Collects what reproduces a run, and what it runs on.

    Returns:
        The manifest: the ``command`` of this process, ``config``, ``data``, ``versions`` and ``devices``.
    """
    return {
        "command": [Path(sys.argv[0]).name, *without_secrets(sys.argv[1:])],
        "config": dataclasses.asdict(config),
        "data": {cell.name: {"source": cell.source, "sha256": cell.sha256} for cell in dataset.cells},
        "versions": {"python": platform.python_version()}
        | {package: metadata.version(package) for package in PACKAGES},
        "devices": [str(device.device_kind) for device in jax.devices()],
    }


def open_folder(folder: Path, manifest: Mapping[str, Any], *, resume: bool) -> None:
    """Prepares the folder of a new run, or checks that it holds the run to resume.

    Raises:
        InputError: the folder holds another run, or none to resume.
    """
    path = folder / MANIFEST
    if resume:
        if not path.exists():
            raise InputError(
                f"{folder} holds no run to resume; start one without resume, or give the folder of a run"
            )
        check_manifest(folder, manifest)
        return
    if path.exists() or newest_checkpoint(folder):
        raise InputError(
            f"{folder} already holds a run; resume it (--resume, or resume=True), or give another folder"
        )
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    _write(path, manifest)


def check_shared(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Checks that all processes see the run that process 0 has opened, and continue it alike.

    All processes call it.

    Raises:
        InputError: a process sees another folder, or has another configuration.
    """
    newest = newest_checkpoint(folder)
    update = int(newest.name) if newest else -1
    latest = largest(update)
    with together():
        if update < latest or not (folder / MANIFEST).exists():
            raise InputError(
                f"process {jax.process_index()} does not see in {folder} what other processes see there; "
                "give a folder that all hosts share"
            )
        check_manifest(folder, manifest)


def check_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Checks that the run in a folder has the same ``config`` and ``data``.

    Raises:
        InputError: something differs, or the file is damaged.
    """
    there = read_manifest(folder)
    differing = [
        f"{name} is {_shown(before)} there and {_shown(now)} here"
        for key in ("config", "data")
        for name, before, now in _differences(key, there.get(key), _as_read(manifest.get(key)))
    ]
    if differing:
        raise InputError(
            f"the run in {folder} cannot be resumed with another configuration: {'; '.join(differing)}. "
            "Give what it was started with, or start a new run in another folder"
        )


def close_manifest(folder: Path, state: RunState, ended: str) -> None:
    """Adds to the manifest how the run ended, as ``result``."""
    result = dataclasses.asdict(state) | {"ended": ended}
    _write(folder / MANIFEST, read_manifest(folder) | {"result": result})


def _differences(name: str, before: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yields the dotted name and both values of each difference between two JSON values."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in before | now:
            yield from _differences(f"{name}.{key}", before.get(key), now.get(key))
    elif before != now:
        yield name, before, now


def _shown(value: Any) -> str:
    return "nothing" if value is None else json.dumps(value, ensure_ascii=False)


def _as_read(value: Any) -> Any:
    """Returns a value as it comes back from JSON."""
    return parse_json(json.dumps(value))


def _write(path: Path, value: Any) -> None:
    write_atomically(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def read_manifest(folder: Path) -> dict[str, Any]:
    """Reads the manifest of a run.

    Raises:
        DataError: the file is damaged.
    """
    path = folder / MANIFEST
    content = read_bytes(path)
    try:
        value = parse_json(content)
        if not isinstance(value, dict):
            raise TypeError("it is not an object")
    except (ValueError, TypeError) as error:
        raise DataError(
            path, f"the file is damaged: {quoted(error)}; start a new run in another folder"
        ) from None
    return value
