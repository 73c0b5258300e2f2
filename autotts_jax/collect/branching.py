"""A probe matrix of gathered answers: branches, their probes if there are any, and their signals."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from autotts_jax.collect.grader import Grader
from autotts_jax.collect.known_questions import GatheredQuestion
from autotts_jax.collect.signals import Windows, rounded
from autotts_jax.collect.trajectories import last_depth
from autotts_jax.errors import DataError
from autotts_jax.replay.dataset import EXACT, Cell, ProbeDataset, Question
from autotts_jax.replay.encoding import encode_exact
from autotts_jax.replay.flat import FlatMatrix, to_dataset
from autotts_jax.replay.matrix import NONE
from autotts_jax.replay.signals import DTYPE
from autotts_jax.replay.spelling import ERROR

RAGGED = ("cut", "keep", "refuse")
"""What happens to questions that have more completions than others."""

_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500)
"""Lengths of an interval where the data does not say what one is; the last is that of the released data."""
_RESOLUTION, _DEPTHS = 16, 2000
"""Intervals of a branch: at least in the mean, and at most."""


_NAMED = 3
"""Questions that a message names."""


@dataclasses.dataclass(frozen=True)
class ImportedBranch:
    """A branch of the matrix; without probes, its final answer alone."""

    answers: tuple[str, ...]
    tokens: int
    confidences: np.ndarray | None = None


def of_completions(one: GatheredQuestion) -> list[ImportedBranch]:
    """The branches of a question, without probes; with confidences where all have some."""
    told = (
        one.confidences if all(found is not None for found in one.confidences) else [None] * len(one.answers)
    )
    return [
        ImportedBranch((answer,), count, confidences)
        for answer, count, confidences in zip(one.answers, one.tokens, told, strict=True)
    ]


def in_rounds(one: GatheredQuestion) -> list[ImportedBranch]:
    """The branches of a question, with a probe at the end of each round."""
    budgets = sorted(one.rounds)
    step = budgets[0]
    if budgets != [step * n for n in range(1, len(budgets) + 1)]:
        raise DataError(
            one.record.file,
            f"the rounds of its question end at {', '.join(map(str, budgets[:8]))} tokens; give every "
            "round from the first on, each as long",
        )
    sizes = {len(branches) for branches in one.rounds.values()}
    if len(sizes) > 1:
        raise DataError(
            one.record.file,
            f"the rounds of its question have {min(sizes)} to {max(sizes)} branches; complete them",
        )
    branches = []
    for rounds in zip(*(one.rounds[budget] for budget in budgets), strict=True):
        last = next((n for n, one_round in enumerate(rounds) if one_round.ended), len(rounds) - 1)
        final = rounds[last]
        ended = final.final if final.ended and final.final != ERROR else final.probe
        tail = min(max(final.tokens, 1), step) if final.ended else step
        probes = [one_round.probe for one_round in rounds[: max(1, last)]]
        branches.append(ImportedBranch((*probes, ended), last * step + tail))
    return branches


def find_interval(
    gathered: Mapping[str, GatheredQuestion],
    branches: Iterable[Sequence[ImportedBranch]],
    wanted: int | None,
) -> int:
    """Δ: that of the rounds, what is wanted, or a round number that fits the lengths."""
    first = next(iter(gathered.values()))
    steps = {min(one.rounds) for one in gathered.values() if one.rounds}
    if steps and (len(steps) > 1 or wanted not in (None, *steps)):
        found = " and ".join(f"{step:,}" for step in sorted(steps)[:_NAMED])
        raise DataError(
            first.record.file,
            f"its rounds have {found} tokens, and a matrix one interval; import questions with rounds of the "
            "same length together, and without --interval",
        )
    if steps:
        return steps.pop()
    if wanted is not None:
        return wanted
    lengths = [branch.tokens for of_question in branches for branch in of_question]
    fine = max((step for step in _STEPS if step * _RESOLUTION <= statistics.fmean(lengths)), default=1)
    return max(fine, -(-max(lengths) // _DEPTHS))


def graded(
    grader: Grader, gathered: Mapping[str, GatheredQuestion], branches: Mapping[str, Sequence[ImportedBranch]]
) -> tuple[dict[str, str], dict[str, list[ImportedBranch]]]:
    """All answers in their canonical forms."""
    golds: dict[str, str] = {}
    forms: dict[str, list[ImportedBranch]] = {}
    for text, one in gathered.items():
        gold = one.gold or ""
        golds[text] = grader.reference(gold)
        if golds[text] == ERROR:
            raise DataError(
                one.record.file,
                f"the reference answer {gold!r:.60} of {one.record.place} is none that the grader can "
                "compare; correct it, or name another grader",
            )
        distinct = list(dict.fromkeys(answer for branch in branches[text] for answer in branch.answers))
        form = dict(zip(distinct, grader.forms(distinct, gold), strict=True))
        forms[text] = [
            dataclasses.replace(branch, answers=tuple(form[answer] for answer in branch.answers))
            for branch in branches[text]
        ]
    return golds, forms


def even_groups(
    file: Path, branches: Mapping[str, Sequence[ImportedBranch]], ragged: str
) -> tuple[list[dict[str, Sequence[ImportedBranch]]], list[str]]:
    """Questions with as many branches each: one group, or a group for each number."""
    counts = {text: len(own) for text, own in branches.items()}
    least, most = min(counts.values()), max(counts.values())
    if least == most:
        return [dict(branches)], []
    fewest = [text for text, count in counts.items() if count < most]
    named = ", ".join(f"{text!r:.60}" for text in fewest[:_NAMED]) + (", …" * (len(fewest) > _NAMED))
    if ragged == "refuse":
        raise DataError(
            file,
            f"its questions have {least} to {most} completions, the fewer of them {named}; complete them, or "
            "use --ragged cut or keep",
        )
    if ragged == "keep":
        sizes = sorted(set(counts.values()), reverse=True)
        groups = [{text: own for text, own in branches.items() if len(own) == size} for size in sizes]
        told = ", ".join(f"{len(group)} with {size}" for group, size in zip(groups, sizes, strict=True))
        return groups, [f"its questions have {least} to {most} completions, and are a cell each: {told}"]
    total, kept = sum(counts.values()), least * len(counts)
    return [{text: own[:least] for text, own in branches.items()}], [
        f"its questions have {least} to {most} completions; the first {least} of each are used and "
        f"{total - kept:,} of {total:,} are left out. The fewer are those of {named}; --ragged keep keeps all"
    ]


def make_dataset(
    file: Path,
    cell: Cell,
    groups: Sequence[Mapping[str, Sequence[ImportedBranch]]],
    golds: Mapping[str, str],
    interval: int,
) -> ProbeDataset:
    """The matrix: a cell for each group of questions."""
    cells, questions, gold_ids, of_cell = [], [], [], []
    answers: list[np.ndarray] = []
    lengths: list[int] = []
    tokens: list[int] = []
    signals: dict[str, list[float]] = {}
    numbers = {text: n for n, text in enumerate(golds)}
    shown = all(
        branch.confidences is not None for group in groups for own in group.values() for branch in own
    )
    for group in groups:
        count = len(next(iter(group.values())))
        name = cell.benchmark if len(groups) == 1 else f"{cell.benchmark}-{count}"
        cells.append(dataclasses.replace(cell, benchmark=name, num_branches=count))
        for text, branches in group.items():
            encoded = encode_exact(
                [answer for branch in branches for answer in branch.answers], golds[text], file, numbers[text]
            )
            ids = iter(encoded.ids.tolist())
            for branch in branches:
                depth = last_depth(branch.tokens, interval)
                own = [next(ids) for _ in branch.answers]
                row = np.full(depth if len(own) == 1 else len(own), NONE, np.int16)
                row[-len(own) :] = own
                answers.append(row)
                lengths.append(len(row) - 1)
                tokens.append(branch.tokens)
                if shown:
                    for signal, series in _signals(branch, interval, len(row)).items():
                        signals.setdefault(signal, []).extend(series)
            questions.append(Question(numbers[text], text, golds[text], encoded.vocabulary))
            gold_ids.append(encoded.gold)
            of_cell.append(len(cells) - 1)
    flat = FlatMatrix(
        answers=np.concatenate(answers),
        lengths=np.array(lengths, np.int32),
        tokens=np.array(tokens, np.int32),
        gold=np.array(gold_ids, np.int16),
        interval=np.full(len(questions), interval, np.int32),
        cell=np.array(of_cell, np.int32),
        signals={name: np.array(series, DTYPE) for name, series in signals.items()},
    )
    return to_dataset(file, flat, cells, questions, EXACT)


def _signals(branch: ImportedBranch, interval: int, depths: int) -> dict[str, list[float]]:
    """The confidences of a branch at each depth; a branch of one interval shows them twice."""
    windows = Windows()
    series: dict[str, list[float]] = {}
    assert branch.confidences is not None
    for start in range(0, branch.tokens, interval):
        for name, value in windows.add(branch.confidences[start : start + interval].tolist()).items():
            series.setdefault(name, []).append(rounded(value))
    return {
        name: (found * depths)[:depths] if len(found) < depths else found for name, found in series.items()
    }
