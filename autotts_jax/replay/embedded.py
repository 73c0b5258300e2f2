"""The datasets that come with the package, and where data in general is named."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from autotts_jax.errors import InputError
from autotts_jax.replay import formats
from autotts_jax.replay.dataset import EXACT, ProbeDataset, stack
from autotts_jax.replay.synthetic import synthetic

SMOLLM2 = Path(__file__).with_name("smollm2.npz")


def smollm2(encoding: str = EXACT) -> ProbeDataset:
    """Recorded data: SmolLM2-135M-Instruct on 40 questions of arithmetic, 128 branches each, Δ = 8 tokens.

    ``smollm2.md`` beside this module is its card: how it was made, its licence, and what is in it.

    Raises:
        InputError: an unknown encoding, or `EQUIV` without math-verify.
    """
    return formats.read(SMOLLM2, encoding)


@functools.lru_cache(maxsize=1)  # drawn once: every environment that is made without data replays it
def _synthetic(encoding: str) -> ProbeDataset:
    if encoding != EXACT:
        raise InputError(f"the synthetic data has only the {EXACT} encoding; name other data for {encoding}")
    return synthetic()


EMBEDDED: Mapping[str, Callable[[str], ProbeDataset]] = {"synthetic": _synthetic, "smollm2": smollm2}
"""The embedded datasets: what makes them, in a given encoding, by name."""


def load(data: str | Path | Sequence[str | Path], encoding: str = EXACT) -> ProbeDataset:
    """Reads data by name and from files, as one dataset.

    Args:
        data: one or several of: a name in `EMBEDDED`, or what `autotts_jax.replay.formats.read` takes. A
            file or folder that is called like an embedded dataset is meant by ``./synthetic``.
        encoding: `EXACT` or `EQUIV`.

    Returns:
        The embedded datasets first, in the order in which they were named, each once.

    Raises:
        InputError: as `autotts_jax.replay.formats.read` does, or the synthetic data is not to be had in
            ``encoding``.
        DataError: a file is wrong.
    """
    places = [data] if isinstance(data, str | Path) else data
    names = dict.fromkeys(str(place) for place in places if place in EMBEDDED)
    files = [place for place in places if place not in EMBEDDED]
    datasets = [EMBEDDED[name](encoding) for name in names]
    if files:
        datasets.append(formats.read(files, encoding))
    return stack(datasets)
