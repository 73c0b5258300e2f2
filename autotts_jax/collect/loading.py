"""Loading data, that of unfinished collections included."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

from autotts_jax import replay
from autotts_jax.collect.graders import open_grader
from autotts_jax.collect.store import Store, is_growing
from autotts_jax.errors import InputError, InputWarning
from autotts_jax.replay.dataset import EQUIV, EXACT, ProbeDataset, check_encoding, stack
from autotts_jax.replay.embedded import EMBEDDED, places
from autotts_jax.replay.encoding import merge_equivalent


def load(data: str | Path | Sequence[str | Path], encoding: str = EXACT) -> ProbeDataset:
    """Loads data by name or from files, as one dataset.

    Args:
        data: the name of an embedded dataset (``"smollm2"`` or ``"synthetic"``), a file, a folder, a glob
            pattern, a dataset on the Hugging Face Hub (``"hf://ORG/NAME"``), the released matrices
            (``"autotts"``, or ``"autotts:FOLDER"`` where you have them), or several of these. To read a file
            or folder with such a name, write ``"./smollm2"``. Of the folder of an
            unfinished collection, the questions are loaded that have all their branches, graded, with an
            `InputWarning`.
        encoding: ``"exact"`` compares answers as strings, ``"equiv"`` by their canonical forms.

    Returns:
        The embedded datasets in the order in which they were named, each once; then the files in the order of
        their paths; then the unfinished collections.

    Raises:
        InputError: the data is not named by text or paths, a path matches no file, a dataset cannot be
            downloaded, the encoding is unknown or not available for the data, one cell is in two files, or a
            collection has no complete question.
        DataError: a file is wrong.

    Example:
        >>> import autotts_jax as at
        >>> data = at.load("smollm2")
        >>> len(data)
        40
        >>> data.questions[0].text, data.questions[0].gold
        ('What is 17 + 16?', '33')
    """
    check_encoding(encoding)
    named = places(data)
    growing = {Path(place): None for place in named if place not in EMBEDDED and is_growing(Path(place))}
    rest = [place for place in named if place in EMBEDDED or Path(place) not in growing]
    datasets = [replay.load(rest, encoding)] if rest or not growing else []
    return stack([*datasets, *(_complete(folder, encoding) for folder in growing)])


def loaded(data: ProbeDataset | str | Path | Sequence[str | Path]) -> ProbeDataset:
    """Loads data that is not loaded yet.

    Args:
        data: a dataset, or whatever `load` takes.

    Raises:
        InputError: as `load`.
    """
    return data if isinstance(data, ProbeDataset) else load(data)


def _complete(folder: Path, encoding: str) -> ProbeDataset:
    """The complete questions of an unfinished collection."""
    store = Store(folder)
    if ":" in store.plan.grader:
        raise InputError(
            f"{folder} is unfinished, and its answers are compared by the code {store.plan.grader}, which "
            "loading does not run; finish the collection"
        )
    with open_grader(store.plan.grader) as grader:
        dataset = store.dataset(grader)
    count = len(store.plan.questions)
    if dataset is None:
        raise InputError(
            f"{folder} is unfinished, and none of its {count} questions has all its "
            f"{store.plan.num_branches} branches; collect more of it"
        )
    warnings.warn(
        f"{folder} is unfinished: only its {len(dataset)} complete questions of {count} are used",
        InputWarning,
        stacklevel=3,
    )
    return merge_equivalent(dataset) if encoding == EQUIV else dataset
