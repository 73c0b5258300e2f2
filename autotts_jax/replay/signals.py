"""Signals: numbers that a branch shows beside its answers, one for each depth that can be read."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from autotts_jax.errors import InputError
from autotts_jax.replay.matrix import ProbeMatrix

DTYPE = np.dtype(np.float16)

SIGNALS = (
    *("conf_mean", "conf_low", "conf_tail", "logprob_mean"),
    *("probe_p_mean", "probe_p_geo", "probe_hedge", "eat"),
)
"""The signals that the published controllers read: those of DeepConf (arXiv 2508.15260), CISC (2502.06233),
DEER (2504.15895), Dynasor-CoT (2412.20993) and EAT (2509.26522). A model tells them."""

SCORE = "score"
"""The signal of a verifier or a reward model, of which the final depth counts. No model tells it itself."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


def bad_name(names: Iterable[object]) -> str | None:
    """Finds a name that no signal can have.

    Returns:
        What is wrong with the first one, and what to do; None if nothing is.
    """
    for name in names:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            return (
                f"a signal cannot be named {name!r:.60}; use at most 40 lower-case letters, digits and "
                "underscores, a letter first"
            )
    return None


def signal_names(names: object) -> tuple[str, ...]:
    """Checks the names of signals that a user asks for.

    Raises:
        InputError: they are something else, or a name comes twice or cannot be a signal's.
    """
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise InputError(f"signals is {names!r:.60}, but it must be a sequence of names, as ('conf_low',)")
    if problem := bad_name(names):
        raise InputError(f"signals is {names!r:.60}, but {problem}")
    if len(set(names)) < len(names):
        raise InputError(f"signals is {names!r:.60}; name each signal once")
    return tuple(names)


class Gap(NamedTuple):
    """Where a signal has no finite value, though the depth can be read.

    Attributes:
        question: index of the question.
        branch: index of the branch.
        problem: what is wrong, and what to do.
    """

    question: int
    branch: int
    problem: str


def readable(matrix: ProbeMatrix) -> np.ndarray:
    """Finds the depths that can be read, the others being padding.

    Returns:
        A mask. Shape (Q, N, K).
    """
    lengths = np.asarray(matrix.lengths)[..., None]
    return (np.arange(matrix.max_depth) <= lengths) & (lengths > 0)


def first_gap(matrix: ProbeMatrix) -> Gap | None:
    """Finds the first gap in the signals of a matrix.

    Returns:
        The gap; None if every signal has a finite value at every depth that can be read.
    """
    for name, values in matrix.signals.items():
        missing = readable(matrix) & ~np.isfinite(np.asarray(values))
        if missing.any():
            question, branch, k = np.argwhere(missing)[0].tolist()
            value = np.asarray(values)[question, branch, k]
            problem = (
                f"the signal {name} is {value} at depth {k + 1}; give every depth a finite number, at most "
                f"{np.finfo(DTYPE).max:g}, which is the largest of float16"
            )
            return Gap(question, branch, problem)
    return None


def keep_signals(matrix: ProbeMatrix, names: Iterable[str], reader: str) -> ProbeMatrix:
    """Leaves out all signals but some.

    Returns:
        The matrix with these signals.

    Raises:
        InputError: the matrix lacks one of them, or has it in another dtype or shape than the answers'.
    """
    names, kept = tuple(names), {}
    check_signals(names, matrix.signals, reader, "the data has")
    for name in names:
        kept[name] = values = matrix.signals[name]
        if (values.dtype, values.shape) != (DTYPE, matrix.answers.shape):
            raise InputError(
                f"the signal {name} is {values.dtype} of shape {values.shape}; make it {DTYPE} of shape "
                f"{matrix.answers.shape}, as ProbeDataset.with_signals checks"
            )
    return dataclasses.replace(matrix, signals=kept)


def check_signals(names: Iterable[str], shown: Collection[str], reader: str, place: str) -> None:
    """Checks that signals are shown.

    Raises:
        InputError: one is not shown.
    """
    for name in names:
        if name not in shown:
            meant = meant_instead(name, shown)
            raise InputError(
                f"{reader} reads the signal {name}, and {place} {listed(shown)}; {meant}"
                f"{'If not, ' if meant else ''}use data that was recorded with it, as smollm2-signals (of "
                "several datasets, all), or give it by ProbeDataset.with_signals"
            )


def meant_instead(name: object, known: Collection[str]) -> str:
    """Asks in a message whether another signal was meant.

    Returns:
        The question and a space; nothing where no name is like it.
    """
    return "".join(
        f"did you mean {close}? " for close in difflib.get_close_matches(str(name), known, 1, 0.65)
    )


def listed(names: Iterable[str]) -> str:
    """Names signals in a message."""
    return ", ".join(sorted(names)) or "none"
