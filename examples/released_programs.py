"""Five controllers as programs of the released AutoTTS interface.

Each is a class ``X(config=None)`` whose ``solve(question)`` returns an answer; nothing is imported from
autotts_jax. They are run by name, e.g. ``examples/released_programs.py:OptimalController``. Where votes tie,
the answer that was voted for first wins.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from scipy.stats import beta


def majority(answers: Iterable[str]) -> str | None:
    """The most frequent answer; None where there is none."""
    votes = Counter(answers)
    return max(votes, key=votes.__getitem__, default=None)


def confidence(top1: int, top2: int) -> float:
    """How sure ``top1`` votes against ``top2`` make a majority: ``1 - BetaCDF(0.5; top1 + 1, top2 + 1)``."""
    return beta.sf(0.5, top1 + 1, top2 + 1)


def leader(votes: Counter[str]) -> tuple[str | None, float]:
    """The answer with the most votes and its confidence; None and 0 without votes."""
    if not votes:
        return None, 0.0
    (winner, top1), (_, top2) = [*votes.most_common(2), (None, 0)][:2]
    return winner, confidence(top1, top2)


class SelfConsistency:
    """SC@n: the majority of n branches read in full."""

    def __init__(self, config: Mapping[str, Any] | None = None):
        self.max_samples = (config or {}).get("max_samples", 64)

    def solve(self, question) -> str | None:
        return majority(question.get_new_branch_final_answer() for _ in range(self.max_samples))


class AdaptiveConsistency:
    """ASC: reads branches in full, one by one, until the majority is sure enough."""

    def __init__(self, config: Mapping[str, Any] | None = None):
        config = config or {}
        self.max_samples = config.get("max_samples", 64)
        self.threshold = config.get("threshold", 0.95)

    def solve(self, question) -> str | None:
        votes: Counter[str] = Counter()
        winner = None
        for read in range(1, self.max_samples + 1):
            votes[question.get_new_branch_final_answer()] += 1
            winner, sure = leader(votes)
            if read >= 2 and sure > self.threshold:
                break
        return winner


class EarlyStoppingConsistency:
    """ESC: reads windows of full branches until one is unanimous."""

    def __init__(self, config: Mapping[str, Any] | None = None):
        config = config or {}
        self.max_samples = config.get("max_samples", 64)
        self.window = config.get("window_size", 8)

    def solve(self, question) -> str | None:
        answers: list[str] = []
        for _ in range(self.max_samples // self.window):
            window = [question.get_new_branch_final_answer() for _ in range(self.window)]
            if len(set(window)) == 1:
                return window[0]
            answers += window
        return majority(answers)


@dataclass(slots=True)
class Branch:
    """A branch as a controller sees it.

    Attributes:
        index: its number in the question.
        answer: its latest answer.
        finished: whether that is its final answer.
        strays: rounds in a row in which it disagreed with the winner.
        reads: intervals read since it was opened.
    """

    index: int
    answer: str
    finished: bool = False
    strays: int = 0
    reads: int = 0

    @classmethod
    def open(cls, question) -> Branch:
        answer, index, finished = question.probe_new()
        return cls(index, answer, finished)

    def read(self, question, intervals: int) -> None:
        for _ in range(intervals):
            self.answer, self.finished = question.probe_more(self.index)
            self.reads += 1
            if self.finished:
                break

    def watch(self, winner: str | None) -> None:
        self.strays = 0 if self.answer == winner else self.strays + 1


class ParallelProbe:
    """Parallel-Probe: reads n branches side by side, prunes strays, stops when the majority is stable."""

    def __init__(self, config: Mapping[str, Any] | None = None):
        config = config or {}
        self.num_chains = config.get("num_chains", 64)
        self.stable_steps = config.get("T", 40)
        self.prune_patience = config.get("prune_patience", 7)
        self.warm_up = config.get("warm_up", 15)
        self.max_steps = config.get("max_steps", 100)
        self.burst = config.get("probe_burst", 1)

    def solve(self, question) -> str | None:
        kept = [Branch.open(question) for _ in range(self.num_chains)]
        winner, stable = None, 0
        for step in range(self.max_steps):
            running = [branch for branch in kept if not branch.finished]
            for branch in running:
                branch.read(question, self.burst)
            previous, winner = winner, majority(branch.answer for branch in kept)
            if step >= self.warm_up and len(kept) > 1:
                remaining = self._prune(kept, winner)
                if len(remaining) < len(kept):
                    kept = remaining
                    winner = majority(branch.answer for branch in kept)
            stable = stable + 1 if winner == previous else 0
            if stable >= self.stable_steps or all(branch.finished for branch in kept):
                break
        return winner

    def _prune(self, kept: list[Branch], winner: str | None) -> list[Branch]:
        # Somebody gave the winner's answer, so at least one branch remains.
        for branch in kept:
            if not branch.finished:
                branch.watch(winner)
        return [branch for branch in kept if branch.finished or branch.strays < self.prune_patience]


class OptimalController:
    """CMC(beta), the Confidence Momentum Controller: the program that AutoTTS discovered.

    Finished branches vote. It reads on, and opens further branches, until the smoothed confidence of that
    vote is high and no longer falls.
    """

    max_rounds = 500

    def __init__(self, config: Mapping[str, Any] | None = None):
        b = min(max((config or {}).get("beta", 0.5), 0.0), 1.0)
        self.initial_branches = max(2, round(2 + 6 * b))
        self.max_branches = min(64, round(4 + 60 * b))
        self.warm_up = max(2, round(2 + 8 * b))
        self.patience = max(3, round(3 + 9 * b))
        self.momentum_window = max(2, round(2 + 6 * b))
        self.alpha = round(0.70 - 0.40 * b, 4)
        self.threshold = round(0.85 + 0.12 * b, 4)
        self.slack = round(0.04 - 0.03 * b, 4)
        self.burst = max(1, round(1 + 2 * b))
        self.widen = max(1, round(1 + 3 * b))
        self.trend = round(0.04 - 0.03 * b, 4)
        self.min_complete = max(2, round(2 + 3 * b))

    def solve(self, question) -> str | None:
        live = [Branch.open(question) for _ in range(self.initial_branches)]
        opened = len(live)
        votes: Counter[str] = Counter()
        winner, sure = leader(votes)
        ema = 0.0
        history: deque[float] = deque(maxlen=self.momentum_window)
        for step in range(self.max_rounds):
            ema = self._smooth(ema, sure)
            warm = step >= self.warm_up
            if warm and winner is not None:
                live = self._abandon(live, winner)
            live = self._read(question, live, votes, winner if warm else None)
            winner, sure = leader(votes)
            ema = self._smooth(ema, sure)
            history.append(ema)
            momentum = ema - history[0]
            is_sure = ema >= self.threshold
            if warm and votes.total() >= self.min_complete and is_sure and momentum >= -self.slack:
                break
            if not live:
                break
            if momentum <= self.trend and step >= max(1, self.warm_up // 2) and not is_sure:
                fresh = min(self.widen, self.max_branches - opened)
                live += [Branch.open(question) for _ in range(fresh)]
                opened += fresh
        return majority(branch.answer for branch in live) if winner is None else winner

    def _smooth(self, ema: float, sure: float) -> float:
        return (1 - self.alpha) * ema + self.alpha * sure

    def _abandon(self, live: list[Branch], winner: str) -> list[Branch]:
        """The branches that remain when those that disagreed for long are given up; two always remain."""
        for branch in live:
            branch.watch(winner)
        strays = [branch for branch in live if branch.strays >= self.patience]
        strays.sort(key=lambda branch: -branch.strays)
        given_up = {branch.index for branch in strays[: max(0, len(live) - 2)]}
        return [branch for branch in live if branch.index not in given_up]

    def _read(self, question, live: list[Branch], votes: Counter[str], favourite: str | None) -> list[Branch]:
        """Reads every live branch on, those with the favourite answer in bursts; the finished ones vote."""
        for branch in sorted(live, key=lambda branch: -branch.reads):
            branch.read(question, self.burst if branch.answer == favourite else 1)
            if branch.finished:
                votes[branch.answer] += 1
        return [branch for branch in live if not branch.finished]
