"""Policies in files: one ``.npz`` with the parameters and a header that says what network they belong to."""

from __future__ import annotations

import dataclasses
import functools
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from autotts_jax.checks import check_float, check_int
from autotts_jax.errors import DataError, InputError
from autotts_jax.files import destination, exists, write_atomically
from autotts_jax.npz import Form, Npz
from autotts_jax.parsing import parse_json
from autotts_jax.policies.neural import actions, network
from autotts_jax.policies.neural.network import SignalInput
from autotts_jax.policies.neural.policy import NeuralPolicy, Parameters, head_of, initial_parameters
from autotts_jax.replay.scale import Scale
from autotts_jax.replay.signals import signal_names
from autotts_jax.terminal import quoted

FORMAT = "autotts_jax neural policy"
VERSION = 1
BEST = "best.npz"
"""The file in a run's folder that holds its best policy."""
MAX_HIDDEN = 4096
"""The widest network that is read from a file."""
SHIPPED = Path(__file__).with_name("shipped.npz")
"""The policy that comes with the package."""


def _architecture(parameters: Parameters, signal_inputs: Sequence[SignalInput]) -> dict[str, Any]:
    """What a file's network has in common with this version's, or is of no use to it."""
    common: dict[str, Any] = {
        "hidden": int(parameters["trunk"]["bias"].shape[-1]),
        "branch_inputs": list(network.BRANCH_INPUTS),
        "global_inputs": list(network.GLOBAL_INPUTS),
        "vote_inputs": list(network.VOTE_INPUTS),
    }
    if signal_inputs:
        common["signals"] = [signal._asdict() for signal in signal_inputs]
    if head_of(parameters) is actions.HEADS["atomic"]:
        return common | {"actions": "atomic"}
    # Files from before there were two kinds hold rounds, and do not say so.
    return common | {"openings": list(actions.OPENINGS), "max_advance": actions.MAX_ADVANCE}


def save_policy(path: str | Path, policy: NeuralPolicy, card: Mapping[str, Any] | None = None) -> None:
    """Writes a policy to a file, whole or not at all.

    Args:
        path: the file, ``.npz``.
        policy: the policy.
        card: what should be known about it: data, command, seeds, figures; anything that JSON holds.

    Raises:
        InputError: the file cannot be written.
    """
    header = {
        "format": FORMAT,
        "version": VERSION,
        "architecture": _architecture(policy.parameters, policy.signal_inputs),
        "gamma": float(policy.gamma),
        "trained_on": policy.trained_on and dataclasses.asdict(policy.trained_on),
        "card": dict(card or {}),
    }
    arrays: dict[str, Any] = {
        name: np.asarray(leaf, np.float32)
        for name, leaf in flatten_dict(dict(policy.parameters), sep="/").items()
    }
    content = io.BytesIO()
    np.savez(content, header=np.array(json.dumps(header, ensure_ascii=False)), **arrays)
    write_atomically(path, content.getvalue())


def load_policy(path: str | Path) -> tuple[NeuralPolicy, dict[str, Any]]:
    """Reads a policy and its card from a file, or from a run's folder with a `BEST` in it.

    Args:
        path: the file or the folder.

    Returns:
        The policy, and the card that it was saved with.

    Raises:
        InputError: there is none, it is damaged, or it was made for another network.
    """
    path = destination(path, "the policy's path")
    file = path / BEST if exists(path) and path.is_dir() else path
    if not exists(file):
        raise InputError(
            f"{file}: there is no such file; train a policy with autotts-jax train, or give a run's folder"
        )
    archive = Npz(file, "write it again")
    header, signal_inputs = _read_header(file, archive)
    forms = {name: form for name, form in archive.forms.items() if name != "header"}
    if not forms or forms != _expected(header["architecture"], signal_inputs):
        raise DataError(file, "a policy for another network than this package's; train it again")
    arrays = {name: archive.read(name) for name in forms}
    if not all(np.isfinite(leaf).all() for leaf in arrays.values()):
        raise DataError(file, "its parameters are not all finite; train the policy again")
    trained_on = Scale(**header["trained_on"]) if header.get("trained_on") else None
    parameters, gamma = unflatten_dict(arrays, sep="/"), float(header["gamma"])
    return NeuralPolicy(parameters, gamma, trained_on, signal_inputs), header["card"]


def _read_header(file: Path, archive: Npz) -> tuple[dict[str, Any], tuple[SignalInput, ...]]:
    """The header, its fields checked but for the architecture, and the signals in that."""
    try:
        if archive.forms["header"].dtype.kind != "U":
            raise ValueError("its header is not text")
        header = parse_json(str(archive.read("header")))
        if header["format"] != FORMAT:
            raise ValueError(f"its format is {header['format']!r:.60}")
        if check_int("its version", header["version"], None) != VERSION:
            raise DataError(
                file,
                f"a policy of version {header['version']!r:.60}, but this package reads {VERSION}",
            )
        check_float("its γ", header["gamma"], 0)
        if not isinstance(header["architecture"], dict) or not isinstance(header["card"], dict):
            raise TypeError("its architecture or its card is not an object")
        signal_inputs = _signal_inputs(header["architecture"])
        if (trained_on := header.get("trained_on")) is not None:
            for name, value in dataclasses.asdict(Scale(**trained_on)).items():
                check_int(f"its {name}", value, 1)
    except DataError:
        raise
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            file, f"not a policy, or damaged ({type(error).__name__}: {quoted(error)}); write it again"
        ) from error
    return header, signal_inputs


def _signal_inputs(architecture: Mapping[str, Any]) -> tuple[SignalInput, ...]:
    """The signals that a file's network reads, checked."""
    signals = [SignalInput(**signal) for signal in architecture.get("signals", [])]
    signal_names([signal.name for signal in signals])
    return tuple(
        SignalInput(
            name, check_float(f"the mean of {name}", mean), check_float(f"the std of {name}", std, above=0)
        )
        for name, mean, std in signals
    )


def _expected(architecture: Mapping[str, Any], signal_inputs: tuple[SignalInput, ...]) -> dict[str, Form]:
    """The parameters of an architecture; none if this version does not know it."""
    hidden, kind = architecture.get("hidden"), architecture.get("actions", "rounds")
    if type(hidden) is not int or not 1 <= hidden <= MAX_HIDDEN or kind not in list(actions.HEADS):
        return {}
    described, forms = _network(hidden, kind, signal_inputs)
    # As JSON, of which true is not 1.
    same = json.dumps(described, sort_keys=True) == json.dumps(architecture, sort_keys=True)
    return forms if same else {}


@functools.lru_cache(maxsize=8)
def _network(
    hidden: int, kind: str, signal_inputs: tuple[SignalInput, ...]
) -> tuple[dict[str, Any], dict[str, Form]]:
    """The architecture of a network and the forms of its parameters."""
    signals = len(signal_inputs)
    parameters = jax.eval_shape(lambda: initial_parameters(hidden, jax.random.key(0), kind, signals))
    leaves = flatten_dict(parameters, sep="/")
    return _architecture(parameters, signal_inputs), {
        name: Form(np.dtype(np.float32), leaf.shape) for name, leaf in leaves.items()
    }
