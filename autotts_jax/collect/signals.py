"""Signals that a model tells: numbers beside answers, from the probabilities of tokens.

They are computed where the engine is, so that a collection keeps a number for each interval and none for each
token, and rounded as matrices are. The sources of each are in `autotts_jax.replay.signals`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from autotts_jax.errors import InputError
from autotts_jax.replay.signals import DTYPE, SIGNALS, listed, meant_instead

TOP = 20
"""The most likely tokens of which confidence and entropy are computed."""

WINDOW = 2048
"""Tokens of the windows of `CONF_LOW` and `CONF_TAIL`."""

CONF_MEAN, CONF_LOW, CONF_TAIL, LOGPROB_MEAN, PROBE_P_MEAN, PROBE_P_GEO, PROBE_HEDGE, EAT = SIGNALS
CONFIDENCES = frozenset({CONF_MEAN, CONF_LOW, CONF_TAIL})
"""Those of the intervals that need the most likely tokens; `LOGPROB_MEAN` needs the sampled ones alone."""
FORCED = frozenset({PROBE_P_MEAN, PROBE_P_GEO, PROBE_HEDGE, EAT})
"""Those of forced answers."""

_HEDGE = re.compile(r"\b(?:wait|hold|but|okay|no|hm+)\b", re.IGNORECASE)


def asked_signals(names: object, probe_tail: int) -> tuple[str, ...]:
    """Checks which signals are asked for.

    Args:
        names: names of `SIGNALS`.
        probe_tail: tokens that are generated after a forced answer.

    Returns:
        The names in the order of `SIGNALS`, each once.

    Raises:
        InputError: there is no such signal, or there is no text in which `PROBE_HEDGE` could be seen.
    """
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise InputError(f"signals is {names!r:.60}, but it must be a tuple of names")
    for name in names:
        if name not in SIGNALS:
            meant = meant_instead(name, SIGNALS)
            raise InputError(f"a model tells no signal {name!r:.60}; {meant}it tells {listed(SIGNALS)}")
    if PROBE_HEDGE in names and not probe_tail:
        raise InputError(
            f"the signal {PROBE_HEDGE} is seen in what follows a forced answer, and probe_tail is 0; make it "
            "16 tokens, for example (--probe-tail 16)"
        )
    return tuple(name for name in SIGNALS if name in names)


def reduce_top(top: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Computes the confidence and the entropy of tokens.

    Args:
        top: log-probabilities of the `TOP` most likely tokens in each place, in nats. Shape (S, TOP).

    Returns:
        For each of the S places, minus the mean of its log-probabilities (DeepConf, arXiv 2508.15260), and
        the entropy in nats, for which all other tokens count as one.
    """
    p = np.exp(top)
    rest = np.maximum(1 - p.sum(axis=1), 0)
    entropies = -(p * top).sum(axis=1) - rest * np.log(np.where(rest > 0, rest, 1))
    return tuple((-top.mean(axis=1)).tolist()), tuple(np.maximum(entropies, 0).tolist())


def rounded(value: float) -> float:
    """Rounds a value as matrices do."""
    return float(DTYPE.type(value))


class Windows:
    """The confidence of a trajectory's tokens, interval by interval."""

    def __init__(self) -> None:
        self._last = np.zeros(0)  # confidences that the next windows may still cover

    def add(self, confidences: Sequence[float]) -> dict[str, float]:
        """Takes notice of the next interval.

        Args:
            confidences: the confidence of each of its tokens, at least one.

        Returns:
            The values of `CONFIDENCES`. While no window of `WINDOW` tokens has ended, the lowest window and
            the last one are all tokens so far.
        """
        known = np.concatenate([self._last, confidences])
        sums = np.concatenate([[0.0], np.cumsum(known)])
        ends = np.arange(len(self._last) + 1, len(known) + 1)
        full = ends[ends >= WINDOW]
        tail = known[-WINDOW:].mean()
        low = ((sums[full] - sums[full - WINDOW]) / WINDOW).min() if len(full) else tail
        self._last = known[-(WINDOW - 1) :]
        return {CONF_MEAN: float(np.mean(confidences)), CONF_LOW: float(low), CONF_TAIL: float(tail)}


def probabilities(logprobs: Sequence[float]) -> dict[str, float]:
    """Computes how likely the tokens of a forced answer are (DEER, arXiv 2504.15895).

    Args:
        logprobs: log-probabilities of its tokens, in nats, at least one.

    Returns:
        `PROBE_P_MEAN` and `PROBE_P_GEO`.
    """
    values = np.asarray(logprobs)
    return {PROBE_P_MEAN: float(np.exp(values).mean()), PROBE_P_GEO: float(np.exp(values.mean()))}


def hedges(text: str) -> bool:
    """Tells whether a text hedges (Dynasor-CoT, arXiv 2412.20993).

    Args:
        text: what the model writes after a forced answer.

    Returns:
        Whether it has one of the words wait, hold, but, okay, no and hmm.
    """
    return _HEDGE.search(text) is not None
