"""The synthetic dataset: generated probe matrices whose statistics resemble those of recorded ones.

Four models of growing strength answer one synthetic benchmark. Nothing recorded is copied: a cell is drawn
from the few parameters of a `SyntheticModel`, in the order in which a real cell comes about:

1. the *benchmark*, the same for every model: how hard each question is, how much work it takes, which numbers
   are the right answer, the tempting wrong ones, and the ones met on the way;
2. the *traits* of each question for one model, above all its ease, the chance that a branch ends in the right
   answer. Ease spreads so widely that most questions are either hopeless or certain;
3. the *final answer* of each branch: right, or one of the wrong ones, a few of them tempting and many rare;
4. the *length* of each branch: longer on harder questions, and longer if it fails where most succeed;
5. the *probes*: a branch guesses, keeps a guess for a while, and settles on its final answer some intervals
   before its end, with occasional lapses.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy.special import expit, logit, ndtri

from autotts_jax.errors import InputError
from autotts_jax.parsing import parse_json
from autotts_jax.replay.dataset import EXACT, Cell, ProbeDataset, Question, stack
from autotts_jax.replay.matrix import NONE, ProbeMatrix
from autotts_jax.replay.signals import DTYPE, SIGNALS

BENCHMARK = "synthetic"
WINDOW = 4  # intervals of the windows of confidence, about 2,048 tokens
INTERVAL = 500
MIN_PROBES, MAX_PROBES = 3, 80
TOKEN_LIMIT = 41_500  # where a branch is cut off
REMAINDER = -400, 4200  # least and most tokens of a branch beyond its last probe

# Answers are drawn as ranks: 0 is right, 1 to 999 are wrong, the most tempting first. One of the
# tempting ones is what every branch is drawn to at the start.
NUMBERS = 1000
RIGHT, FIRST_GUESS, ERR = 0, 2, NUMBERS

# What the models share, fitted to recorded cells.
LONGEST = 88  # probes that no branch would reach, were it not cut off before
AGREEMENT = 0.93  # correlation of a question's hardness for one model with its hardness for all
HARD_IS_LONG = 0.8  # correlation of a question's work with its hardness
LURE_SPREAD = 0.4  # standard deviation over questions of how strongly answers concentrate
WANDER_SPREAD = 0.4  # the same of the logarithm of `SyntheticModel.wander`
RAMBLE = 2.5  # how much longer a wrong branch is on a certain question, in units of its wander
OVERSHOOT, JITTER = 165, 100  # tokens by which the last probe lies beyond the end, were there no summary
SUMMARY_SPREAD = 0.6  # standard deviation of the logarithm of the summary's tokens
ERR_AT_END = 0.1  # how much rarer "ERR" is as a final answer than as a guess
ERR_AT_MOST = 0.6  # chance of "ERR" as a guess on the worst questions
FIRST = 0.45  # chance that a guess at the very start is everybody's first; fades with progress
ECHO = 0.1  # chance that a guess is what some branch of the question ends with
HABIT = 0.5  # how much more strongly guesses concentrate than wrong final answers
KEEP = 0.45  # chance that an unsettled branch keeps its guess for another interval
LAPSE = 0.04  # chance that a settled branch says something else
SETTLE_SPREAD = 1.2  # standard deviation over branches of the logarithm of `SyntheticModel.settle`
SETTLE_WRONG = 0.6  # wrong branches settle in this share of the time before the end


@dataclasses.dataclass(frozen=True)
class SyntheticModel:
    """Parameters of one synthetic model.

    Attributes:
        name: the model's name in its cell.
        ability: log-odds of a right branch on a question of medium hardness.
        spread: standard deviation of those log-odds over questions; large means hopeless or certain.
        length: probes of a typical branch on a typical question.
        length_spread: standard deviation of lengths over questions, in log-odds of the share of `LONGEST`.
        wander: the same over the branches of a typical question.
        settle: intervals before its end at which a typical long branch settles, if it is right.
        summary: tokens that a branch typically generates at its end, for each of its probes.
        errors: chance that a guess on a typical question is the answer "ERR".
        lure: how strongly wrong answers concentrate on the most tempting; 0 spreads them log-uniformly.
    """

    name: str
    ability: float
    spread: float
    length: float
    length_spread: float
    wander: float
    settle: float
    summary: float
    errors: float
    lure: float


# Fitted to recorded models of 0.6, 1.7, 4 and 8 billion parameters.
SYNTHETIC_MODELS = (
    SyntheticModel("synthetic-S", -4.6, 3.5, 28, 0.7, 0.65, 10, 16, 0.035, 0.25),
    SyntheticModel("synthetic-M", -0.3, 5.0, 28, 0.9, 0.50, 14, 17, 0.050, 0.40),
    SyntheticModel("synthetic-L", 3.4, 6.0, 23, 1.0, 0.45, 14, 17, 0.130, 0.60),
    SyntheticModel("synthetic-XL", 4.0, 6.0, 24, 1.0, 0.45, 15, 16, 0.060, 0.60),
)
"""The models of the synthetic data, from the weakest to the strongest."""

FITTED_MODELS: Mapping[str, SyntheticModel] = {
    row["name"]: SyntheticModel(**row)
    for row in parse_json(Path(__file__).with_name("fitted_models.json").read_bytes())
}
"""A model fitted to each of 26 recorded cells, by ``benchmarks/fit_generator.py``; by name."""


@dataclasses.dataclass(frozen=True)
class _Benchmark:
    """What the questions have in common for all models.

    Attributes:
        hardness: standard normal. Shape (Q, 1).
        work: standard normal, what a question takes whatever its hardness. Shape (Q, 1).
        lure: standard normal, how strongly its wrong answers concentrate. Shape (Q, 1).
        numbers: the answer of each rank. Shape (Q, NUMBERS + 1).
    """

    hardness: np.ndarray
    work: np.ndarray
    lure: np.ndarray
    numbers: np.ndarray


@dataclasses.dataclass(frozen=True)
class _Traits:
    """What the questions are like for one model; all of shape (Q, 1).

    Attributes:
        ease: chance that a branch is right.
        work: standard normal; lengths follow it.
        lure: exponent of the law of wrong answers.
        errors: chance that a guess is "ERR".
    """

    ease: np.ndarray
    work: np.ndarray
    lure: np.ndarray
    errors: np.ndarray


def synthetic(
    seed: int = 0,
    models: Sequence[SyntheticModel] = SYNTHETIC_MODELS,
    questions: int = 30,
    branches: int = 128,
    signals: bool = False,
) -> ProbeDataset:
    """Generates a dataset, one cell a model.

    The same arguments give the same dataset, as far as NumPy promises it for ``default_rng``; compare
    ``Cell.sha256`` to tell whether two are the same. A model's cell does not depend on the other models.

    Args:
        seed: seed of the benchmark and of the branches, not negative.
        models: the models; their names must differ.
        questions: Q, questions of the benchmark.
        branches: N, branches of each model for each question.
        signals: whether the branches have signals, those of `SIGNALS`. They are made up, so that controllers
            have something to read, and fitted to nothing; the answers are the same without.

    Returns:
        Cells ``<model>/synthetic`` in the order of ``models``, in encoding `EXACT`, with an interval of 500
        tokens. The answers are numbers and "ERR", which votes like any other.

    Raises:
        InputError: a size or the seed is out of range, or there is no model or two have the same name.
    """
    if seed < 0 or questions < 1 or branches < 1:
        raise InputError(
            f"cannot draw {questions} questions x {branches} branches from seed {seed}; "
            "give at least one of each and a seed that is not negative"
        )
    benchmark = _benchmark(np.random.default_rng(seed), questions)
    cells = [_cell(model, benchmark, branches, seed) for model in models]
    if signals:
        cells = [
            cell.with_signals(_signals(np.random.default_rng([seed, *model.name.encode(), 1]), cell.matrix))
            for cell, model in zip(cells, models, strict=True)
        ]
    return stack(cells)


def _cell(model: SyntheticModel, benchmark: _Benchmark, branches: int, seed: int) -> ProbeDataset:
    """The answers of one model to the benchmark."""
    rng = np.random.default_rng([seed, *model.name.encode()])
    traits = _traits(rng, model, benchmark)
    finals = _finals(rng, traits, branches)
    lengths = _lengths(rng, model, traits, finals == RIGHT)
    tokens = _tokens(rng, model, lengths)
    probes = _probes(rng, model, traits, finals, lengths)
    answers, gold, vocabularies = _encode(probes, lengths, benchmark.numbers)
    matrix = ProbeMatrix(
        answers=answers,
        lengths=lengths,
        tokens=tokens,
        gold=gold,
        interval=np.full(len(gold), INTERVAL, np.int32),
        cell=np.zeros(len(gold), np.int32),
        vocabulary=max(map(len, vocabularies)),
    )
    digest = hashlib.sha256(b"".join(array.tobytes() for array in (answers, lengths, tokens, gold)))
    return ProbeDataset(
        matrix=matrix,
        questions=tuple(
            Question(index, f"Synthetic question {index}", vocabulary[gold[index]], vocabulary)
            for index, vocabulary in enumerate(vocabularies)
        ),
        cells=(Cell(model.name, BENCHMARK, branches, f"synthetic(seed={seed})", digest.hexdigest()),),
        encoding=EXACT,
    )


def _benchmark(rng: np.random.Generator, questions: int) -> _Benchmark:
    ranked = rng.permuted(np.tile(np.arange(NUMBERS), (questions, 1)), axis=1)
    return _Benchmark(
        hardness=_even_normals(rng, questions),
        work=_even_normals(rng, questions),
        lure=_even_normals(rng, questions),
        numbers=np.pad(ranked, ((0, 0), (0, 1)), constant_values=ERR),
    )


def _traits(rng: np.random.Generator, model: SyntheticModel, benchmark: _Benchmark) -> _Traits:
    questions = len(benchmark.hardness)
    hardness = _mix(AGREEMENT, benchmark.hardness, _even_normals(rng, questions))
    return _Traits(
        ease=expit(model.ability - model.spread * hardness),
        work=_mix(HARD_IS_LONG, hardness, benchmark.work),
        lure=model.lure + LURE_SPREAD * benchmark.lure,
        errors=np.minimum(model.errors * np.exp(_even_normals(rng, questions)), ERR_AT_MOST),
    )


def _even_normals(rng: np.random.Generator, count: int) -> np.ndarray:
    """Standard normals, one from each of ``count`` equally likely strata: few questions, yet a fair sample.

    Shape (count, 1).
    """
    return ndtri((rng.permutation(count) + rng.uniform(0.05, 0.95, count)) / count)[:, None]


def _mix(correlation: float, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Standard normals correlated to the standard normals ``x``; the rest of them is ``y``."""
    return correlation * x + np.sqrt(1 - correlation**2) * y


def _wrong(rng: np.random.Generator, lure: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Ranks of wrong answers: a Pareto law on 1 .. NUMBERS - 1 with exponent ``lure``, of either sign."""
    ranks = (1 - rng.random(shape) * (1 - NUMBERS**-lure)) ** (-1 / lure)
    return np.minimum(ranks, NUMBERS - 1).astype(np.int16)


def _finals(rng: np.random.Generator, traits: _Traits, branches: int) -> np.ndarray:
    """Rank of the final answer of every branch. Shape (Q, N)."""
    shape = (len(traits.ease), branches)
    wrong = np.where(rng.random(shape) < ERR_AT_END * traits.errors, ERR, _wrong(rng, traits.lure, shape))
    return np.where(rng.random(shape) < traits.ease, RIGHT, wrong)


def _lengths(
    rng: np.random.Generator, model: SyntheticModel, traits: _Traits, right: np.ndarray
) -> np.ndarray:
    """Probes of every branch: a logit-normal share of the longest. Shape (Q, N)."""
    wander = model.wander * np.exp(WANDER_SPREAD * _even_normals(rng, len(right)))
    steps = rng.standard_normal(right.shape) + RAMBLE * traits.ease * ~right
    odds = logit(model.length / LONGEST) + model.length_spread * traits.work + wander * steps
    return np.clip(np.rint(LONGEST * expit(odds)), MIN_PROBES, MAX_PROBES).astype(np.int32)


def _tokens(rng: np.random.Generator, model: SyntheticModel, lengths: np.ndarray) -> np.ndarray:
    """Tokens of every branch. Shape (Q, N)."""
    summary = model.summary * lengths * np.exp(SUMMARY_SPREAD * rng.standard_normal(lengths.shape))
    remainder = np.clip(summary - rng.normal(OVERSHOOT, JITTER, lengths.shape), *REMAINDER)
    return np.minimum(INTERVAL * lengths + np.rint(remainder), TOKEN_LIMIT).astype(np.int32)


def _probes(
    rng: np.random.Generator,
    model: SyntheticModel,
    traits: _Traits,
    finals: np.ndarray,
    lengths: np.ndarray,
) -> np.ndarray:
    """Ranks of what branches answer, the final answer from the last probe on. Shape (Q, N, K)."""
    depth = np.arange(lengths.max() + 1)
    left = np.maximum(lengths[..., None] - depth, 0)  # intervals from a probe to the end, itself included
    guesses = _guesses(rng, traits, finals, left / lengths[..., None])
    settle = model.settle * np.exp(SETTLE_SPREAD * rng.standard_normal(lengths.shape))
    settle *= np.where(finals == RIGHT, 1, SETTLE_WRONG)
    settle = 1 / (1 / settle + 1 / lengths)  # short branches have little time to settle in
    lapse = rng.random(left.shape) < LAPSE
    settled = (left <= 1) | (left <= settle[..., None]) & ~lapse
    return np.where(settled, finals[..., None], guesses)


def _guesses(rng: np.random.Generator, traits: _Traits, finals: np.ndarray, ahead: np.ndarray) -> np.ndarray:
    """Ranks of what branches answer while unsettled. Shape (Q, N, K).

    Numbers met on the way are seldom tempting final answers: their law runs from the other end of the ranks.

    Args:
        rng: the generator.
        traits: of the questions.
        finals: ranks of the final answers. Shape (Q, N).
        ahead: share of the branch that is still to come, from 1 down to 0. Shape (Q, N, K).
    """
    shape = ahead.shape
    questions, branches, _ = shape
    others = rng.integers(branches, size=(questions, ahead[0].size))
    echoes = np.take_along_axis(finals, others, axis=1).reshape(shape)
    guesses = NUMBERS - _wrong(rng, traits.lure[..., None] + HABIT, shape)
    guesses = np.where(rng.random(shape) < traits.errors[..., None], ERR, guesses)
    guesses = np.where(rng.random(shape) < ECHO, echoes, guesses)
    guesses = np.where(rng.random(shape) < FIRST * ahead**2, FIRST_GUESS, guesses)
    made_at = np.where(rng.random(shape) < KEEP, 0, np.arange(shape[2]))
    return np.take_along_axis(guesses, np.maximum.accumulate(made_at, axis=2), axis=2)


def _encode(
    ranks: np.ndarray, lengths: np.ndarray, numbers: np.ndarray
) -> tuple[np.ndarray, np.ndarray, list[tuple[str, ...]]]:
    """Answer ids, small for each question and without meaning: the order of the numbers that occur.

    Returns:
        Answer ids, shape (Q, N, K); ids of the right answers, shape (Q,); answers by id, Q tuples.
    """
    question = np.arange(len(ranks))
    read = np.arange(ranks.shape[2]) <= lengths[..., None]
    answers = numbers[question[:, None, None], ranks]
    occurs = np.zeros(numbers.shape, bool)
    occurs[np.broadcast_to(question[:, None, None], ranks.shape)[read], answers[read]] = True
    occurs[question, numbers[:, RIGHT]] = True
    ids = (np.cumsum(occurs, axis=1) - 1).astype(np.int16)
    return (
        np.where(read, ids[question[:, None, None], answers], np.int16(NONE)),
        ids[question, numbers[:, RIGHT]],
        [tuple("ERR" if n == ERR else str(n) for n in np.flatnonzero(row)) for row in occurs],
    )


def _signals(rng: np.random.Generator, matrix: ProbeMatrix) -> dict[str, np.ndarray]:
    """Signals by which right and settled branches look a little surer. Each of shape (Q, N, K)."""
    answers, shape = np.asarray(matrix.answers), matrix.answers.shape
    finals = np.asarray(matrix.finals())[..., None]
    settled = answers == finals
    right = finals == np.asarray(matrix.gold)[:, None, None]
    sure = rng.standard_normal((*shape[:2], 1)) + 0.7 * right
    confidence = 12 + 1.5 * sure + rng.standard_normal(shape)
    sums = np.cumsum(np.pad(confidence, ((0, 0), (0, 0), (1, 0))), axis=2)
    depth = np.arange(1, shape[2] + 1)
    first = np.maximum(depth - WINDOW, 0)
    tail = (sums[..., depth] - sums[..., first]) / (depth - first)
    probability = expit(1 + 1.5 * settled + 0.5 * sure + rng.standard_normal(shape))
    signals = {
        "conf_mean": confidence,
        "conf_low": tail - 0.5 * np.abs(rng.standard_normal(shape)),
        "conf_tail": tail,
        "logprob_mean": -np.exp(-1 - 0.3 * sure + 0.2 * rng.standard_normal(shape)),
        "probe_p_mean": probability,
        "probe_p_geo": probability**1.3,
        "probe_hedge": rng.random(shape) < np.where(settled, 0.1, 0.6),
        "eat": 2 * np.exp(-1.2 * settled - 0.2 * sure + 0.3 * rng.standard_normal(shape)),
    }
    return {name: signals[name].astype(DTYPE) for name in SIGNALS}
