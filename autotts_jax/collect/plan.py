"""What a collection collects: the plan, the units that it is split into, and the branches that they hold."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable
from typing import NamedTuple

from autotts_jax.collect.engine import Finish
from autotts_jax.collect.problem import Problem
from autotts_jax.collect.trajectories import Sampling, Usage, check_differing
from autotts_jax.errors import InputError


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to collect: everything that the probe matrix depends on.

    Attributes:
        model: name of the model in results.
        benchmark: name of the questions in results.
        questions: the problems.
        num_branches: N, trajectories of each question.
        chunk: branches of a unit.
        sampling: how trajectories are sampled and probed.
        answers: how answers are found in texts, a specification for `extractor`.
        keep_text: whether to keep the texts of the trajectories.

    Raises:
        InputError: a number is below 1, there is no question, or all branches would be the same.
    """

    model: str
    benchmark: str
    questions: tuple[Problem, ...]
    num_branches: int = 128
    chunk: int = 16
    sampling: Sampling = dataclasses.field(default_factory=Sampling)
    answers: str = "auto"
    keep_text: bool = False

    def __post_init__(self) -> None:
        for name in ("num_branches", "chunk"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; it must be at least 1")
        check_differing(self.sampling)
        if not self.questions:
            raise InputError("the plan has no question; give at least one")

    def units(self, collected: Iterable[Unit] = ()) -> list[Unit]:
        """Splits the work into units, which end at multiples of the chunk.

        Args:
            collected: units to leave out because they were collected, of any sizes.

        Returns:
            The other units, question by question.
        """
        done = {(unit.question, branch) for unit in collected for branch in unit.branches}
        units = []
        for q in range(len(self.questions)):
            missing = [b for b in range(self.num_branches) if (q, b) not in done]
            # Neighbours have one distance to their place in the list.
            runs = itertools.groupby(enumerate(missing), lambda at: (at[1] - at[0], at[1] // self.chunk))
            for _, run in runs:
                branches = [b for _, b in run]
                units.append(Unit(q, branches[0], len(branches)))
        return units


class Unit(NamedTuple):
    """Some branches of a question, which are collected and written together.

    Attributes:
        question: index of the question in the plan.
        first: index of the first branch.
        size: number of branches.
    """

    question: int
    first: int
    size: int

    @property
    def branches(self) -> range:
        """Indices of the branches."""
        return range(self.first, self.first + self.size)


@dataclasses.dataclass(frozen=True)
class Branch:
    """One collected trajectory.

    Attributes:
        probes: answers at Δ, 2Δ, … tokens before its end, at least one.
        tokens: T, its number of tokens.
        final: its final answer.
        finish: why it ended.
        probe_tokens: tokens generated for each probe, and for the final answer if it was forced.
        draws: all forced answers of each probe and of the final one, if there are several of each.
        logprobs: mean log-probability of the tokens of each interval, in nats, if asked for.
        text: the generated text, if asked for.
    """

    probes: list[str]
    tokens: int
    final: str
    finish: Finish
    probe_tokens: list[int]
    draws: list[list[str]] | None = None
    logprobs: list[float] | None = None
    text: str | None = None


class Collected(NamedTuple):
    """A finished unit.

    Attributes:
        unit: which unit it is.
        branches: its branches.
        usage: what the engine did for it.
    """

    unit: Unit
    branches: list[Branch]
    usage: Usage
