"""The episodes of a report: which questions controllers disagree on, and what happened in a few of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from autotts_jax.core.rollout import Episodes, Results, ShownRounds
from autotts_jax.core.view import StopReason
from autotts_jax.experiments.summary import Objective
from autotts_jax.policies.player import Play
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.replay.orders import BranchOrders

WATCHED = 24
"""Questions of which a report shows an episode."""

LISTED = 500
"""Questions that a report lists."""


class BestSetting(NamedTuple):
    """The setting of a controller that a report shows question by question: that of the best objective.

    Attributes:
        play: the episodes of its player.
        setting: which of the player's settings it is.
    """

    play: Play
    setting: int

    @property
    def name(self) -> str:
        """The name of the setting."""
        return self.play.player.names[self.setting]

    @property
    def correct(self) -> np.ndarray:
        """Whether the answers are right. Shape (S, Q)."""
        return self.play.correct[self.setting]


class Watched(NamedTuple):
    """A controller whose episodes were watched.

    Attributes:
        one: its setting.
        results: the episodes.
        shown: what they showed.
    """

    one: BestSetting
    results: Results
    shown: ShownRounds


def best_settings(
    dataset: ProbeDataset, plays: Sequence[Play], objective: Objective
) -> dict[str, BestSetting]:
    """Chooses a setting of each controller, by its mean objective over all questions."""
    best: dict[str, tuple[float, BestSetting]] = {}
    for play in plays:
        worth = objective.of(play, dataset).mean(axis=(1, 2))
        setting = int(np.argmax(worth))
        name = play.player.name
        if name not in best or worth[setting] > best[name][0]:
            best[name] = float(worth[setting]), BestSetting(play, setting)
    return {name: chosen for name, (_, chosen) in best.items()}


def by_disagreement(dataset: ProbeDataset, chosen: Mapping[str, BestSetting]) -> np.ndarray:
    """Orders questions by how much the controllers' accuracies differ, then by how uncertain they are."""
    accuracy = np.stack([one.correct.mean(axis=0) for one in chosen.values()])
    spread = np.ptp(accuracy, axis=0)
    sure = np.abs(accuracy.mean(axis=0) - 0.5)
    return np.lexsort((np.arange(len(dataset)), sure.round(9), -spread.round(9)))


def watched_episodes(
    dataset: ProbeDataset,
    chosen: Mapping[str, BestSetting],
    ranked: np.ndarray,
    orders: BranchOrders,
    max_branches: int,
    budget: int | None,
) -> list[dict[str, Any]]:
    """Plays an episode of some questions again, and notes what every controller did in each round.

    Every cell has as many of the questions as another; each is played under the seed under which most
    controllers differ. The script of the page reads what is returned: nothing where no player can be watched.
    """
    questions = _questions(dataset, ranked)
    right = np.stack([one.correct[:, questions] for one in chosen.values()])
    seeds = np.minimum(right.sum(axis=0), (~right).sum(axis=0)).argmax(axis=0)
    watched: dict[str, Watched] = {}
    for name, one in chosen.items():
        episodes = Episodes(questions, seeds, np.full_like(questions, one.setting))
        width = one.play.player.width or max_branches
        results = one.play.player.watch(dataset, orders.first(width), episodes, budget=budget)
        if results is not None and results.shown is not None:
            watched[name] = Watched(one, results, ShownRounds(*map(np.asarray, results.shown)))
    if not watched:
        return []
    return [
        _episode(dataset, int(question), int(seed), np.asarray(orders.of(question, seed)), index, watched)
        for index, (question, seed) in enumerate(zip(questions, seeds, strict=True))
    ]


def _questions(dataset: ProbeDataset, ranked: np.ndarray) -> np.ndarray:
    """The first of each cell, then the second, and so on."""
    cell = np.asarray(dataset.matrix.cell)[ranked]
    turn = np.zeros(len(ranked), int)
    for index in range(len(dataset.cells)):
        here = cell == index
        turn[here] = np.arange(here.sum())
    return ranked[np.argsort(turn, kind="stable")[:WATCHED]]


def _episode(
    dataset: ProbeDataset,
    question: int,
    seed: int,
    order: np.ndarray,
    index: int,
    watched: Mapping[str, Watched],
) -> dict[str, Any]:
    """One question under one seed, as all controllers played it."""
    asked = dataset.questions[question]
    deepest = np.zeros(len(order), int)
    for played in watched.values():
        last = np.asarray(played.shown.depth[index, -1])
        deepest[: len(last)] = np.maximum(deepest[: len(last)], last)
    answers = np.asarray(dataset.matrix.answers)[question]
    lengths = np.asarray(dataset.matrix.lengths)[question]
    shown = [answers[branch, :depth].tolist() for branch, depth in zip(order, deepest, strict=True) if depth]
    used = [key for key, _ in Counter(key for branch in shown for key in branch if key >= 0).most_common()]
    place = {key: number for number, key in enumerate(used)}
    cell = dataset.cells[int(dataset.matrix.cell[question])]
    return {
        "cell": cell.name,
        "question": asked.index,
        "text": asked.text,
        "gold": asked.gold,
        "seed": seed,
        "answers": [asked.answer(key) for key in used],
        "ends": [int(lengths[branch]) + 1 for branch in order[: len(shown)]],
        "shown": [[place.get(key, -1) for key in branch] for branch in shown],
        "plays": {name: _played(played, question, seed, index) for name, played in watched.items()},
    }


def _played(played: Watched, question: int, seed: int, index: int) -> dict[str, Any]:
    """What a controller did: the round in which each depth of each branch was read, and was revealed."""
    one, results, shown = played
    depth, revealed_depth, probed, active, tokens = (np.asarray(column[index]) for column in shown)
    rounds = int(results.rounds[index])
    branches = []
    for branch in range(int(results.branches[index])):
        read, seen = _when(depth[:, branch], revealed_depth[:, branch], probed[:, branch])
        gone = np.flatnonzero((depth[:, branch] > 0) & ~active[:, branch])
        branches.append([read, None if seen == read else seen, int(gone[0]) if gone.size else -1])
    return {
        "setting": one.name,
        "answer": one.play.answer[one.setting, seed, question],
        "correct": bool(results.correct[index]),
        "stop": StopReason(int(results.stop_reason[index])).name.lower().replace("_", " "),
        "tokens": tokens[: rounds + 1].tolist(),
        "branches": branches,
    }


def _when(depth: np.ndarray, revealed_depth: np.ndarray, probed: np.ndarray) -> tuple[list[int], list[int]]:
    """The rounds in which each depth of a branch was read and revealed, -1 where it was not.

    What a round reveals of a branch are the last depths up to the deepest one that is revealed.
    """
    last = int(depth[-1])
    read = np.searchsorted(depth, np.arange(1, last + 1)).tolist()
    seen = np.full(last, -1)
    for round_number in np.flatnonzero(np.diff(probed, prepend=0)).tolist():
        before = probed[round_number - 1] if round_number else 0
        end = revealed_depth[round_number]
        seen[end - (probed[round_number] - before) : end] = round_number
    return read, seen.tolist()
