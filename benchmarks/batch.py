"""Compares allocators on sets of questions: accuracy under one budget, and the share of what can be won.

    python benchmarks/batch.py path/to/finals/*aime2024*.jsonl --train 'path/to/finals/*math500*.jsonl'

Each file is a cell, as `import_answers` reads it. The weights of `learned` are trained on the files of
--train, which should have other questions, and written to learned.json; without it they are those of the
package, which were trained on all of these files. Budgets are those of 2 to 32 branches for every question.
Beside the allocators stands ASC on each question by itself, without a shared budget: of 63 settings the best
one within the mean budget on one half of the questions is played on the other half. And an oracle that knows
how often each answer is given, but not which is right: what it leaves to the oracle is in wrong majorities.
"""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

import autotts_jax as at
from autotts_jax.core import Readings, devices, read_through, spend
from autotts_jax.experiments import ORACLE, Questions, branch_orders
from autotts_jax.policies import ALLOCATORS, save_weights
from autotts_jax.replay import NONE
from autotts_jax.training import train_allocator

BRANCHES = (2, 4, 8, 16, 32)
"""Mean branches of a question that budgets are for."""

THRESHOLDS = (0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99, 0.999)
CAPS = (1, 2, 4, 8, 16, 32, 80)
SPLITS = 10
"""Random halves of the questions."""

PER_QUESTION = "ASC by question"
OF_VOTES = "oracle of votes"


def main(
    files: Annotated[list[Path], typer.Argument(help="Files, a cell each, of one benchmark.")],
    seeds: Annotated[int, typer.Option(help="Branch orders to play.")] = 100,
    width: Annotated[int, typer.Option(help="Branches that a question can read.")] = 80,
    train: Annotated[Path | None, typer.Option(help="Pattern of the files to train weights on.")] = None,
) -> None:
    devices.configure()
    allocators = [*ALLOCATORS, ORACLE]
    if train is not None:
        others = [at.import_answers(file).dataset for file in sorted(train.parent.glob(train.name))]
        learned = train_allocator(others)
        print(f"learned on {len(others)} cells: {learned}")
        save_weights("learned.json", learned)
        allocators[allocators.index("learned")] = "learned.json"
    names = [*ALLOCATORS, PER_QUESTION, OF_VOTES, ORACLE]
    accuracy, spent, low, high = [], [], [], []  # by cell, then (allocator, budget)
    for file in files:
        data = at.import_answers(file).dataset
        tokens = np.asarray(data.matrix.tokens)
        budgets = [int(number * tokens.mean() * len(data)) for number in BRANCHES]
        played = at.evaluate_batch(data, allocators, budgets=budgets, seeds=seeds, max_branches=width)
        correct = {play.name: play.correct.mean(axis=1) for play in played.plays}
        used = {play.name: play.tokens.sum(axis=2).mean(axis=1) / budgets for play in played.plays}
        orders = branch_orders(data, "repo100", range(seeds), width)
        readings = read_through(ALLOCATORS["asc"], data.matrix, orders)
        correct[PER_QUESTION], costs = by_question(readings, data.matrix.gold, np.array(budgets) / len(data))
        used[PER_QUESTION] = costs * len(data) / budgets
        correct[OF_VOTES], used[OF_VOTES] = by_votes(data, budgets, seeds=seeds, max_branches=width)
        texts = [question.text for question in data.questions]
        questions = Questions(np.full(len(data), 1 / len(data)), texts)
        rule = correct[PER_QUESTION]
        pairs = [zip(correct[name], rule, strict=True) for name in names]
        ends = np.array([[questions.gain(mine - its).interval for mine, its in pair] for pair in pairs])
        accuracy.append([correct[name].mean(axis=1) for name in names])
        spent.append([used[name] for name in names])
        low.append(ends[..., 0])
        high.append(ends[..., 1])
        print(f"played {data.cells[0].name}")
    show(names, *map(np.array, (accuracy, spent, low, high)))
    began = time.perf_counter()
    spend(read_through(ALLOCATORS["dirichlet"], data.matrix, orders), np.array(budgets))
    print(f"\none allocator on the last cell, {seeds} seeds: {time.perf_counter() - began:.1f} s")


def by_question(readings: Readings, gold: np.ndarray, budgets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """ASC on each question by itself, its setting chosen on other questions.

    Args:
        readings: those of ``asc``, whose urgency is one less the confidence.
        gold: the gold answers.
        budgets: mean tokens of a question.

    Returns:
        The mean correctness of each question under each budget, and the mean tokens of a question.
    """
    seeds, questions, width = readings.cost.shape
    number = np.arange(1, width + 1)
    costs = readings.cost.cumsum(axis=-1)
    right = (readings.answer == np.asarray(gold)[:, None]) & (readings.answer != NONE)
    doubts = np.concatenate([readings.urgency[..., 1:], np.zeros((seeds, questions, 1))], axis=-1)
    reached = []  # by setting: correctness and tokens of each question
    for threshold in THRESHOLDS:
        for cap in CAPS:
            stops = ((doubts < 1 - threshold) & (number >= 2)) | (number >= cap)
            place = np.argmax(stops, axis=-1)[..., None]
            reached.append(
                [
                    np.take_along_axis(table, place, axis=-1)[..., 0].mean(axis=0)
                    for table in (right[..., 1:], costs)
                ]
            )
    correct, tokens = np.array(reached).swapaxes(0, 1)
    mean_correct, mean_tokens = np.zeros((2, len(budgets), questions))
    rng = np.random.default_rng(0)
    for _ in range(SPLITS):
        halves = np.array_split(rng.permutation(questions), 2)
        for fitted, other in (halves, halves[::-1]):
            for b, budget in enumerate(budgets):
                within = tokens[:, fitted].mean(axis=1) <= budget
                score = np.where(within, correct[:, fitted].mean(axis=1), -tokens[:, fitted].mean(axis=1))
                best = np.argmax(score)  # where none is within the budget, the cheapest
                mean_correct[b, other] += correct[best, other] / SPLITS
                mean_tokens[b, other] += tokens[best, other] / SPLITS
    return mean_correct, mean_tokens.mean(axis=1)


def by_votes(data: at.ProbeDataset, budgets: list[int], **played: int) -> tuple[np.ndarray, np.ndarray]:
    """Plays the oracle with the answer that is given most often in place of the gold answer.

    Returns:
        The mean correctness of each question under each budget, and the share of the budget that is spent.
    """
    finals, gold = np.asarray(data.matrix.finals()), np.asarray(data.matrix.gold)
    most = [np.bincount(answers[answers != NONE], minlength=1).argmax() for answers in finals]
    believed = dataclasses.replace(data.matrix, gold=np.array(most, gold.dtype))
    (play,) = at.evaluate_batch(
        dataclasses.replace(data, matrix=believed), ORACLE, budgets=budgets, **played
    ).plays
    right = (play.answer != NONE) & (play.answer == gold)
    return right.mean(axis=1), play.tokens.sum(axis=2).mean(axis=1) / budgets


def show(
    names: list[str], accuracy: np.ndarray, spent: np.ndarray, low: np.ndarray, high: np.ndarray
) -> None:
    """Prints three tables; arrays are by cell, allocator and budget."""
    gain = accuracy - accuracy[:, :1]
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(gain[:, -1:] > 0.002, gain / gain[:, -1:], np.nan)
    table(
        "accuracy in %, mean of cells; share of the oracle's gain over uniform in %, median of cells",
        names,
        lambda a, b: f"{100 * accuracy[:, a, b].mean():.1f}; {100 * np.nanmedian(share[:, a, b]):z.0f}",
    )
    table("tokens spent in % of the budget", names, lambda a, b: f"{100 * spent[:, a, b].mean():.0f}")
    table(
        f"cells significantly better; worse than {PER_QUESTION}",
        names,
        lambda a, b: f"{(low[:, a, b] > 0).sum()}; {(high[:, a, b] < 0).sum()}",
    )


def table(title: str, names: list[str], cell) -> None:
    print(f"\n{title}\n\n| allocator | {' | '.join(map(str, BRANCHES))} |\n|{'---|' * (len(BRANCHES) + 1)}")
    for a, name in enumerate(names):
        print(f"| {name} | {' | '.join(cell(a, b) for b in range(len(BRANCHES)))} |")


if __name__ == "__main__":
    typer.run(main)
