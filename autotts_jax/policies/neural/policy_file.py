"""Policies in files: one ``.npz`` with the parameters and a header that says what network they belong to."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from autotts_jax.errors import InputError
from autotts_jax.files import write_atomically
from autotts_jax.policies.neural import actions, network
from autotts_jax.policies.neural.policy import NeuralPolicy, Parameters, head_of, initial_parameters

FORMAT = "autotts_jax neural policy"
VERSION = 1
BEST = "best.npz"
"""The file in a run's folder that holds its best policy."""
SHIPPED = Path(__file__).with_name("shipped.npz")
"""The policy that comes with the package."""


def _architecture(parameters: Parameters) -> dict[str, Any]:
    """What a file's network has in common with this version's, or is of no use to it."""
    common = {
        "hidden": int(parameters["trunk"]["bias"].shape[-1]),
        "branch_inputs": list(network.BRANCH_INPUTS),
        "global_inputs": list(network.GLOBAL_INPUTS),
        "vote_inputs": list(network.VOTE_INPUTS),
    }
    if head_of(parameters) is actions.HEADS["atomic"]:
        return common | {"actions": "atomic"}
    # Files from before there were two kinds hold rounds, and do not say so.
    return common | {"openings": list(actions.OPENINGS), "max_advance": actions.MAX_ADVANCE}


def save_policy(path: Path, policy: NeuralPolicy, card: Mapping[str, Any] | None = None) -> None:
    """Writes a policy to a file, whole or not at all.

    Args:
        path: the file, ``.npz``.
        policy: the policy.
        card: what is to be known of it: data, command, seeds, figures; anything that JSON holds.

    Raises:
        InputError: the file cannot be written.
    """
    header = {
        "format": FORMAT,
        "version": VERSION,
        "architecture": _architecture(policy.parameters),
        "gamma": float(policy.gamma),
        "card": dict(card or {}),
    }
    arrays: dict[str, Any] = {
        name: np.asarray(leaf, np.float32)
        for name, leaf in flatten_dict(dict(policy.parameters), sep="/").items()
    }
    content = io.BytesIO()
    np.savez(content, header=np.array(json.dumps(header, ensure_ascii=False)), **arrays)
    write_atomically(path, content.getvalue())


def load_policy(path: Path) -> tuple[NeuralPolicy, dict[str, Any]]:
    """A policy and its card from a file, or from a run's folder with a `BEST` in it.

    Raises:
        InputError: there is none, it is damaged, or it was made for another network.
    """
    file = path / BEST if path.is_dir() else path
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        header = json.loads(str(arrays.pop("header")))
        if header["format"] != FORMAT:
            raise ValueError(f"its format is {header['format']!r}")
        version, architecture = header["version"], header["architecture"]
        gamma, card = float(header["gamma"]), dict(header["card"])
    except FileNotFoundError:
        raise InputError(
            f"{file}: there is no such file; train a policy with autotts-jax train, or give a run's folder"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(
            f"{file}: not a policy, or damaged ({type(error).__name__}: {error}); write it again"
        ) from error
    if version != VERSION:
        raise InputError(f"{file}: a policy of version {version}, but this package reads version {VERSION}")
    parameters = unflatten_dict(arrays, sep="/")
    _check(file, architecture, parameters)
    return NeuralPolicy(parameters, gamma), card


def _check(file: Path, architecture: Mapping[str, Any], parameters: Parameters) -> None:
    try:
        hidden = int(architecture["hidden"])
        actions = architecture.get("actions", "rounds")
        expected = jax.eval_shape(lambda: initial_parameters(hidden, jax.random.key(0), actions))
        same = _architecture(expected) == dict(architecture)
    except (KeyError, TypeError, ValueError):
        same = False
    shapes = {name: leaf.shape for name, leaf in flatten_dict(parameters, sep="/").items()}
    if not same or shapes != {name: leaf.shape for name, leaf in flatten_dict(expected, sep="/").items()}:
        raise InputError(
            f"{file}: a policy for another network than this package's; train it again with this version"
        )
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(parameters)):
        raise InputError(f"{file}: its parameters are not all finite; train the policy again")
