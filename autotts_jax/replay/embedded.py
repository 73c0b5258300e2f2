"""The datasets that come with the package, and loading data by name or from files."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import jax

from autotts_jax.checks import nearest
from autotts_jax.errors import InputError
from autotts_jax.files import exists
from autotts_jax.replay.dataset import EXACT, ProbeDataset, check_encoding, stack
from autotts_jax.replay.reading import read_files
from autotts_jax.replay.released import RELEASED

SMOLLM2 = Path(__file__).with_name("smollm2.npz")
SMOLLM2_SIGNALS = Path(__file__).with_name("smollm2-signals.npz")
"""The same model and questions, recorded again with signals; its card is ``smollm2-signals.md`` beside it."""

LADDER: Mapping[str, tuple[str, ...]] = {
    "synthetic-easy": ("math500-gpt-oss-20b", "math500-Phi-4-reasoning"),
    "synthetic-medium": ("aime2024-gpt-oss-20b", "Qwen3-8B-aime24"),
    "synthetic-hard": ("Qwen3-1.7B-aime24", "Qwen3-1.7B-aime25"),
}
"""The data of the benchmark's generated tasks, and the fitted models that answer its questions."""

LADDER_SEED, LADDER_QUESTIONS, LADDER_BRANCHES = 54, 1250, 64
"""Seed of that data, questions of each model, and branches of each question."""


def smollm2(encoding: str = EXACT) -> ProbeDataset:
    """Loads what SmolLM2-135M-Instruct answered to 40 arithmetic questions, 128 branches each, Δ = 8 tokens.

    Its card, ``smollm2.md`` beside this module, says how it was recorded, what it contains, and its licence.

    Args:
        encoding: `EXACT` or `EQUIV`.

    Returns:
        The dataset.

    Raises:
        InputError: the encoding is unknown, or is `EQUIV` and latex2sympy2_extended is not installed.
    """
    return read_files(SMOLLM2, encoding)


def _synthetic(encoding: str, name: str = "synthetic") -> ProbeDataset:
    if encoding != EXACT:
        raise InputError(f"the {name} data has only the {EXACT} encoding; name other data for {encoding}")
    dataset = _generated(name)
    # What is written to the dict of signals of one does not get into others.
    return dataclasses.replace(dataset, matrix=jax.tree.map(lambda leaf: leaf, dataset.matrix))


@functools.cache  # generated once: every environment without data of its own replays it
def _generated(name: str) -> ProbeDataset:
    from autotts_jax.replay import generator  # SciPy takes a while to import.

    if name in LADDER:
        models = [generator.FITTED_MODELS[model] for model in LADDER[name]]
        dataset = generator.synthetic(LADDER_SEED, models, LADDER_QUESTIONS, LADDER_BRANCHES)
    else:
        dataset = generator.synthetic(signals=name == "synthetic-signals")
    for leaf in jax.tree.leaves(dataset.matrix):
        leaf.flags.writeable = False
    return dataset


EMBEDDED: Mapping[str, Callable[[str], ProbeDataset]] = {
    "synthetic": _synthetic,
    **{name: functools.partial(_synthetic, name=name) for name in ("synthetic-signals", *LADDER)},
    "smollm2": smollm2,
    "smollm2-signals": functools.partial(read_files, SMOLLM2_SIGNALS),
}
"""The embedded datasets: a function of the encoding for each name."""


def load(data: str | Path | Sequence[str | Path], encoding: str = EXACT) -> ProbeDataset:
    """Loads data by name or from files, as `autotts_jax.load` does; of collections, the finished ones alone.

    Args:
        data: names of embedded datasets, files, folders, glob patterns and addresses on the Hugging Face Hub,
            as there.
        encoding: ``"exact"`` compares answers as strings, ``"equiv"`` by their canonical forms.

    Returns:
        The embedded datasets in the order in which they were named, each once; then the files in the order of
        their paths.

    Raises:
        InputError: the data is not named by text or paths, a path matches no file, a dataset cannot be
            downloaded, the encoding is unknown or not available for the data, or one cell is in two files.
        DataError: a file is wrong.
    """
    check_encoding(encoding)
    named = places(data)
    names = dict.fromkeys(str(place) for place in named if place in EMBEDDED)
    files = [place for place in named if place not in EMBEDDED]
    datasets = [EMBEDDED[name](encoding) for name in names]
    if files:
        datasets.append(read_files(files, encoding))
    return stack(datasets)


def places(data: str | Path | Sequence[str | Path]) -> Sequence[str | Path]:
    """Lists the names and paths that data is given as.

    Args:
        data: what `load` takes.

    Returns:
        One name or path, or several.

    Raises:
        InputError: it is something else, or names nothing.
    """
    named = [data] if isinstance(data, str | Path) else data
    if not isinstance(named, Sequence) or not all(isinstance(place, str | Path) for place in named):
        raise InputError(
            f"data is {data!r:.60}, but it must be a name, a path, or several of them; a dataset is loaded "
            "already, and replay.stack joins several"
        )
    if not named or "" in named:
        raise InputError(f"data is {data!r}, which names nothing; give a name, a path, or several of them")
    for place in named:
        if not exists(place) and place not in (*EMBEDDED, RELEASED) and re.fullmatch(r"[\w-]+", str(place)):
            if isinstance(place, Path) and str(place) in EMBEDDED:
                raise InputError(
                    f"nothing found at {place!r}; the data of this name is {str(place)!r}, as text"
                )
            raise InputError(
                f"nothing found at {str(place)!r}; {nearest(place, (*EMBEDDED, RELEASED))}, files and folders"
            )
    return named
