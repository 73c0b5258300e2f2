"""Checkpoints of a run, kept by orbax: each is there whole or not at all, and the newest ones are kept."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pydantic
from flax import serialization

from autotts_jax.errors import InputError
from autotts_jax.files import read_bytes
from autotts_jax.training.run_state import RunState
from autotts_jax.typing import Array

KEPT = 3
"""Checkpoints that a run keeps."""

DIGITS = 8
"""Digits of the update in a checkpoint's name."""

CONTENT = "train_state.msgpack"
"""The file with the run's state and the arrays, as `flax.serialization` writes them."""

CHECKSUM = "sha256"
"""The file with the checksum of the content."""


def newest_checkpoint(folder: Path) -> Path | None:
    """Finds the newest complete checkpoint of a run.

    Returns:
        The checkpoint, or None if there is none.
    """
    return max(_complete(folder / "checkpoints"), default=None)


class Checkpoints:
    """The checkpoints in a run's folder, ``checkpoints/<update>/``.

    A checkpoint holds a pytree of arrays and the run's state. In a run of several processes
    each opens the folder for itself, and one of them writes.

    Args:
        folder: the run's folder, with ``checkpoints`` in it.
        writes: whether this process writes. What an interrupted write has left is then removed.

    Raises:
        InputError: there is something that could be taken for a checkpoint, or one that is damaged.
    """

    def __init__(self, folder: Path, *, writes: bool = True):
        self._folder = (folder / "checkpoints").absolute()
        foreign = set(self._folder.glob("[0-9]*")) - set(_complete(self._folder))
        for path in sorted(foreign):
            if "orbax-checkpoint-tmp" not in path.name:
                raise InputError(f"{path} is not a checkpoint of this run; move it away and resume again")
        own = jax.process_index()
        alone = ocp.options.MultiprocessingOptions(
            primary_host=own, active_processes={own}, barrier_sync_key_prefix=f"process {own}"
        )
        try:
            self._manager = ocp.CheckpointManager(
                self._folder,
                item_handlers=_Handler(),
                options=ocp.CheckpointManagerOptions(
                    max_to_keep=KEPT,
                    step_format_fixed_length=DIGITS,
                    create=False,
                    cleanup_tmp_directories=writes,
                    enable_async_checkpointing=False,
                    # Or the handler might write before its folder is there.
                    async_options=ocp.AsyncOptions(create_directories_asynchronously=False),
                    multiprocessing_options=alone,
                ),
            )
        except Exception as error:  # what orbax says of damaged files is of any kind
            raise InputError(
                f"{self._folder}: a checkpoint there is damaged ({error!s:.200}); remove it and resume again"
            ) from error

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
            content = {"state": dataclasses.asdict(state), "arrays": arrays}
            self._manager.save(state.update, args=_Save(content))

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
        try:
            if read_bytes(path / "default" / CHECKSUM).decode() != checksum(path / "default"):
                raise ValueError("its checksum is not that of its content")
            content = self._manager.restore(update, args=_Restore())
            told = json.dumps(content["state"])
            state = pydantic.TypeAdapter(RunState).validate_json(told, strict=True)
            if state.update != update:
                raise ValueError("it is of another update")
            stored = content["arrays"]
            there = {name: _form(array) for name, array in stored.items()}
        except Exception as error:
            raise InputError(f"{path}: the checkpoint is damaged; {_way_back(path)}") from error
        here = {name: _form(array) for name, array in _storable(like).items()}
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
        return state, jax.tree_util.tree_map_with_path(
            lambda name, leaf: _placed(stored[jax.tree_util.keystr(name)], leaf) if np.size(leaf) else leaf,
            like,
        )


class _Handler(ocp.CheckpointHandler):  # type: ignore[misc]  # orbax has no types
    """Writes everything to one file, and a checksum beside it.

    Orbax writes each array in a thread of its own, and where the disk is full each prints a traceback.
    """

    def save(self, directory: Any, args: _Save) -> None:
        with (Path(directory) / CONTENT).open("wb") as file:
            file.write(serialization.msgpack_serialize(args.content))
            file.flush()
            os.fsync(file.fileno())

    def finalize(self, directory: Any) -> None:
        (directory / CHECKSUM).write_text(checksum(Path(directory)))

    def restore(self, directory: Any, args: _Restore) -> Any:  # noqa: ARG002  # orbax passes both
        return serialization.msgpack_restore(read_bytes(Path(directory) / CONTENT))


@ocp.args.register_with_handler(_Handler, for_save=True)
@dataclasses.dataclass
class _Save(ocp.args.CheckpointArgs):  # type: ignore[misc]
    content: dict[str, Any]


@ocp.args.register_with_handler(_Handler, for_restore=True)
class _Restore(ocp.args.CheckpointArgs):  # type: ignore[misc]
    pass


def checksum(folder: Path) -> str:
    """Hashes the content of a checkpoint.

    Returns:
        The hash.
    """
    return hashlib.sha256(read_bytes(folder / CONTENT)).hexdigest()


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
