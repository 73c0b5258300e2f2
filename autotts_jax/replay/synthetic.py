"""The default dataset: made-up probe matrices whose statistics look like those of recorded ones.

Four models of growing strength answer one made-up benchmark. Nothing recorded is copied: a cell is drawn from
the few named parameters of a `SyntheticModel`, in the order in which a real cell comes about:

1. the *benchmark*, the same for every model: how hard each question is, how much work it takes, which numbers
   are the right and the tempting wrong answers;
2. *ease* of each question for one model: the chance that a branch ends in the right answer. It spreads so
   widely that most questions are either hopeless or certain;
3. the *outcome* of each branch: right, or one of the wrong answers, few of them tempting and many rare;
4. the *length* of each branch: longer on harder questions, and longer when it goes wrong;
5. the *probes*: a branch guesses, keeps most guesses for a while, and settles on its final answer some
   intervals before its end.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence

import numpy as np
from scipy.special import expit, ndtri

from autotts_jax.errors import InputError
from autotts_jax.replay.dataset import EXACT, Cell, ProbeDataset, Question, stack
from autotts_jax.replay.matrix import NONE, ProbeMatrix

BENCHMARK = "synthetic"
INTERVAL = 500
TOKEN_LIMIT = 41_500
"""Tokens after which a branch is cut off."""
MIN_PROBES, MAX_PROBES = 3, 80
NUMBERS = 1000
"""Answers are the numbers from 0 to 999."""
ERR = "ERR"

AGREEMENT = 0.85
"""Correlation between the hardness of a question in general and for one model."""
HARD_IS_LONG = 0.75
"""Correlation between the hardness of a question and its work."""
KEEP = 0.55
"""Chance that an unsettled branch gives the same answer at the next probe."""
FIRST_GUESS = 0.55
"""Chance that a fresh guess at the very start is the one that everybody has first; it fades with progress."""
ECHO = 0.1
"""Chance that a fresh guess is what some branch of the question ends with."""


@dataclasses.dataclass(frozen=True)
class SyntheticModel:
    """How one made-up model answers.

    Attributes:
        name: the model's name in the cell.
        ability: log-odds of a right branch on a question of middling hardness.
        spread: standard deviation of those log-odds over questions; large means hopeless or certain.
        length: probes of a typical branch on a question of middling work.
        length_spread: how much lengths differ between questions, in log-odds of the share of the limit.
        wander: how much they differ between branches of a typical question, likewise.
        ramble: how much longer wrong branches are, in units of ``wander``.
        settle_right: intervals before its end at which a typical long, right branch settles.
        settle_wrong: the same for wrong branches.
        summary: tokens that a branch writes after its last probe, for each of its probes.
        errors: chance that a fresh guess on a typical question is the answer "ERR".
        temptation: how far wrong answers gather on the most tempting; 0 spreads them log-uniformly.
    """

    name: str
    ability: float
    spread: float
    length: float
    length_spread: float
    wander: float
    ramble: float
    settle_right: float
    settle_wrong: float
    summary: float
    errors: float
    temptation: float


SYNTHETIC_MODELS = (
    SyntheticModel("synthetic-S", -4.6, 3.2, 29, 0.65, 0.55, 0.7, 8, 3.5, 13, 0.04, 0.25),
    SyntheticModel("synthetic-M", -0.4, 3.2, 29, 0.85, 0.5, 1.1, 10, 5.0, 15, 0.08, 0.35),
    SyntheticModel("synthetic-L", 2.2, 3.6, 23, 0.95, 0.5, 1.1, 10, 5.0, 14, 0.25, 0.6),
    SyntheticModel("synthetic-XL", 2.8, 3.6, 24, 0.95, 0.45, 1.1, 11, 6.0, 14, 0.15, 0.6),
)
"""Calibrated against four recorded models of 0.6, 1.7, 4 and 8 billion parameters."""


@dataclasses.dataclass(frozen=True)
class _Benchmark:
    """What the questions are like, whoever answers them.

    Attributes:
        hardness: standard normal. Shape (Q,).
        work: standard normal, what a question takes apart from its hardness. Shape (Q,).
        temptation: standard normal. Shape (Q,).
        numbers: the right answer, then the wrong ones, most tempting first. Shape (Q, NUMBERS).
    """

    hardness: np.ndarray
    work: np.ndarray
    temptation: np.ndarray
    numbers: np.ndarray


def _even_normals(rng: np.random.Generator, count: int) -> np.ndarray:
    """Standard normals, one from each of ``count`` equally likely strata, shuffled: few questions, little noise."""
    return ndtri((rng.permutation(count) + rng.uniform(0.05, 0.95, count)) / count)


def _benchmark(rng: np.random.Generator, questions: int) -> _Benchmark:
    return _Benchmark(
        hardness=_even_normals(rng, questions),
        work=_even_normals(rng, questions),
        temptation=_even_normals(rng, questions),
        numbers=rng.permuted(np.tile(np.arange(NUMBERS), (questions, 1)), axis=1),
    )


def _correlated(correlation: float, with_: np.ndarray, independent: np.ndarray) -> np.ndarray:
    return correlation * with_ + np.sqrt(1 - correlation**2) * independent


def _wrong_ranks(rng: np.random.Generator, temptation: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Ranks 1 .. NUMBERS - 1 from a truncated Pareto law with one exponent for each question (axis 0)."""
    a = temptation.reshape(-1, *(1,) * (len(shape) - 1))
    u = rng.random(shape)
    return np.minimum((1 - u * (1 - NUMBERS**-a)) ** (-1 / a), NUMBERS - 1).astype(np.int16)


def _outcomes(
    rng: np.random.Generator, ease: np.ndarray, temptation: np.ndarray, errors: np.ndarray, shape: tuple[int, ...]
) -> np.ndarray:
    """Ranks of answers: 0 with chance ``ease``, else a wrong one or, seldom, ``ERR``. Axis 0 is the question."""
    column = (slice(None), *(None,) * (len(shape) - 1))
    ranks = _wrong_ranks(rng, temptation, shape)
    ranks[rng.random(shape) < errors[column]] = NUMBERS
    ranks[rng.random(shape) < ease[column]] = 0
    return ranks


def _lengths(rng, model, work, right):
    questions, _ = right.shape
    wander = model.wander * np.exp(0.4 * _even_normals(rng, questions))
    middle = np.log(model.length / (LENGTH_LIMIT - model.length)) + model.length_spread * work
    odds = middle[:, None] + wander[:, None] * (rng.standard_normal(right.shape) + model.ramble * ~right)
    return np.clip(np.rint(LENGTH_LIMIT * expit(odds)), MIN_PROBES, MAX_PROBES).astype(np.int32)


def _tokens(rng, model, lengths):
    summary = model.summary * lengths * np.exp(0.5 * rng.standard_normal(lengths.shape))
    remainder = np.maximum(summary + rng.normal(-110, 110, lengths.shape), -400)
    return np.minimum(INTERVAL * lengths + np.rint(remainder), TOKEN_LIMIT).astype(np.int32)


def _probes(rng, model, ease, temptation, errors, finals, lengths):
    """Ranks; shape (Q, N, K)."""
    shape = (*lengths.shape, int(lengths.max()) + 1)
    depth = np.arange(shape[2])
    progress = depth / lengths[..., None]
    guesses = _wrong_ranks(rng, temptation, shape)
    kind = rng.random(shape)
    guesses = _outcomes(rng, ECHO * ease, temptation, errors, shape)
    first = rng.random(shape) < FIRST_GUESS * (1 - np.minimum(progress, 1)) ** 2
    guesses = np.where(first, FIRST_RANK, guesses)
    fresh = rng.random(shape) >= KEEP
    fresh[..., 0] = True
    held = np.maximum.accumulate(np.where(fresh, depth, 0), axis=2)
    guesses = np.take_along_axis(guesses, held, axis=2)
    settle = np.where(finals == 0, model.settle_right, model.settle_wrong) * np.exp(
        rng.standard_normal(lengths.shape)
    )
    settled = np.ceil(settle * lengths / (settle + lengths))
    guesses = np.where(depth >= (lengths - settled)[..., None], finals[..., None], guesses)
    return guesses


LENGTH_LIMIT = 83
FIRST_RANK = 3


def _cell(model, benchmark, branches, rng):
    Q = len(benchmark.hardness)
    hardness = _correlated(AGREEMENT, benchmark.hardness, _even_normals(rng, Q))
    ease = expit(model.ability - model.spread * hardness)
    work = _correlated(HARD_IS_LONG, hardness, benchmark.work)
    temptation = model.temptation - 0.15 * hardness + 0.4 * benchmark.temptation
    errors = np.minimum(model.errors * np.exp(1.0 * _even_normals(rng, Q)), 0.6)
    finals = _outcomes(rng, ease, temptation, 0.1 * errors, (Q, branches))
    lengths = _lengths(rng, model, work, finals == 0)
    tokens = _tokens(rng, model, lengths)
    ranks = _probes(rng, model, ease, temptation, errors, finals, lengths)
    return ranks, lengths, tokens
