"""Checkpoints of a run, written by orbax: each is there whole or not at all, and the newest ones are kept."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pydantic

from autotts_jax.errors import InputError
from autotts_jax.files import read_bytes
from autotts_jax.training.run_state import RunState
from autotts_jax.typing import Array

KEPT = 3
"""Checkpoints that a run keeps."""

DIGITS = 8
"""Digits of the update in a checkpoint's name."""

CHECKSUM = "sha256"
"""The file with the checksum of a checkpoint's other files."""


def newest_checkpoint(folder: Path) -> Path | None:
    """Finds the newest complete checkpoint of a run.

    Args:
        folder: the run's folder.

    Returns:
        The checkpoint, or None if there is none.
    """
    return max(_complete(folder / "checkpoints"), default=None)


class Checkpoints:
    """The checkpoints in a run's folder, ``checkpoints/<update>/``.

    A checkpoint holds a pytree of arrays and, as its metadata, the run's state. In a run of several processes
    each opens the folder for itself, and one of them writes.

    Args:
        folder: the run's folder, with ``checkpoints`` in it.
        writes: whether this process writes. What an interrupted write has left is then removed.

    Raises:
        InputError: there is something that could be taken for a checkpoint.
    """

    def __init__(self, folder: Path, *, writes: bool = True):
        self._folder = (folder / "checkpoints").absolute()
        foreign = set(self._folder.glob("[0-9]*")) - set(_complete(self._folder))
        for path in sorted(foreign):
            if "orbax-checkpoint-tmp" not in path.name:
                raise InputError(f"{path} is no checkpoint of this run; move it elsewhere and resume again")
        own = jax.process_index()
        alone = ocp.options.MultiprocessingOptions(
            primary_host=own, active_processes={own}, barrier_sync_key_prefix=f"process {own}"
        )
        self._manager = ocp.CheckpointManager(
            self._folder,
            item_handlers=_Handler(multiprocessing_options=alone),
            options=ocp.CheckpointManagerOptions(
                max_to_keep=KEPT,
                step_format_fixed_length=DIGITS,
                create=False,
                cleanup_tmp_directories=writes,
                enable_async_checkpointing=False,
                multiprocessing_options=alone,
            ),
        )

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, *_: object) -> None:
        self._manager.close()

    def save(self, state: RunState, tree: Any) -> None:
        """Writes the checkpoint of an update unless it is there, and removes the oldest ones.

        Args:
            state: the run's state.
            tree: pytree of arrays, none of them shared with other processes.
        """
        if state.update not in self._manager.all_steps():
            arrays = {name: np.asarray(leaf) for name, leaf in _storable(tree).items()}
            self._manager.save(state.update, args=_Save(arrays, custom_metadata=dataclasses.asdict(state)))

    def load(self, like: Any) -> tuple[RunState, Any] | None:
        """Reads the newest checkpoint.

        Args:
            like: a pytree like the stored one, with its structure, its shapes and its placement on devices.

        Returns:
            The run's state and the pytree, or None without a checkpoint.

        Raises:
            InputError: the checkpoint is damaged, or belongs to another network, trainer or version.
        """
        update = self._manager.latest_step()
        if update is None:
            return None
        path = self._folder / f"{update:0{DIGITS}d}"
        # Checked before orbax reads it: it does not notice every damage, and reports others at great length.
        try:
            if read_bytes(path / "default" / CHECKSUM).decode() != checksum(path / "default"):
                raise ValueError("its checksum is not that of its files")
            metadata = self._manager.item_metadata(update)
            told = json.dumps(metadata.custom_metadata)
            state = pydantic.TypeAdapter(RunState).validate_json(told, strict=True)
            there = {name: _form(array) for name, array in metadata.tree.items()}
            if any(math.prod(a.storage.chunk_shape) > math.prod(a.shape) for a in metadata.tree.values()):
                raise ValueError("a part of an array is larger than the array")
        except Exception as error:
            raise InputError(f"{path}: the checkpoint is damaged; {_way_back(path)}") from error
        wanted = _storable(like)
        here = {name: _form(array) for name, array in wanted.items()}
        # Before the arrays are read, which may be of any size.
        differing = [
            f"{name} is {there.get(name, 'nothing')} there and {here.get(name, 'nothing')} here"
            for name in sorted(there | here)
            if there.get(name) != here.get(name)
        ]
        if differing:
            raise InputError(
                f"{path}: the checkpoint belongs to another network, trainer or version: {differing[0]}; "
                "resume with what it was written with, or start a new run"
            )
        try:
            stored = self._manager.restore(update, args=_Restore())
        except Exception as error:
            raise InputError(f"{path}: the checkpoint is damaged; {_way_back(path)}") from error
        return state, jax.tree_util.tree_map_with_path(
            lambda name, leaf: _placed(stored[jax.tree_util.keystr(name)], leaf) if np.size(leaf) else leaf,
            like,
        )


class _Handler(ocp.PyTreeCheckpointHandler):  # type: ignore[misc]  # orbax has no types
    """Writes a checksum beside the arrays."""

    def finalize(self, directory: Any) -> None:
        super().finalize(directory)
        (directory / CHECKSUM).write_text(checksum(Path(directory)))


@ocp.args.register_with_handler(_Handler, for_save=True)
class _Save(ocp.args.PyTreeSave):  # type: ignore[misc]
    pass


@ocp.args.register_with_handler(_Handler, for_restore=True)
class _Restore(ocp.args.PyTreeRestore):  # type: ignore[misc]
    pass


def checksum(folder: Path) -> str:
    """Hashes the arrays and the metadata that orbax has written to a folder, file names included.

    Args:
        folder: the folder.

    Returns:
        The hash; neither `CHECKSUM` nor orbax's mark of a completed write counts.
    """
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        if file.name not in (CHECKSUM, "commit_success.txt"):
            content = read_bytes(file)
            digest.update(f"{file.relative_to(folder).as_posix()}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _complete(checkpoints: Path) -> list[Path]:
    """Lists the complete checkpoints, oldest first; orbax renames a checkpoint when it is complete."""
    return sorted(checkpoints.glob("[0-9]" * DIGITS))


def _way_back(damaged: Path) -> str:
    """Says what to do about a damaged checkpoint."""
    older = [path.name for path in _complete(damaged.parent) if path < damaged]
    if older:
        return f"remove it and resume again, from {older[-1]}, the one before it"
    return "no older one is there; start a new run in another folder"


def _storable(tree: Any) -> dict[str, Array]:
    """Returns the leaves by name, without the empty ones, which orbax does not store."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    arrays = {name: leaf if isinstance(leaf, jax.Array) else np.asarray(leaf) for name, leaf in leaves}
    return {jax.tree_util.keystr(name): array for name, array in arrays.items() if array.size}


def _form(array: Any) -> str:
    return f"{array.dtype}{list(array.shape)}"


def _placed(stored: np.ndarray, leaf: Array) -> Array:
    """Puts an array where another one is: on the host, or on its devices."""
    if not isinstance(leaf, jax.Array):
        return stored
    if not leaf.committed:
        return jnp.asarray(stored)
    return jax.make_array_from_callback(stored.shape, leaf.sharding, lambda part: stored[part])
