"""What a collection collects: the plan, the units that it is split into, and the branches that they hold."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from autotts_jax.checks import check_bool, check_int, check_text
from autotts_jax.collect.answers import CODE, MAX_CODE
from autotts_jax.collect.code_grader import read_tests
from autotts_jax.collect.engine import Finish
from autotts_jax.collect.graders import BY_TESTS
from autotts_jax.collect.problem import Problem
from autotts_jax.collect.signals import FORCED
from autotts_jax.collect.trajectories import Sampling, Usage, check_differing, last_depth, majority
from autotts_jax.commands import HIDDEN, hide
from autotts_jax.errors import InputError
from autotts_jax.parsing import MAX_VALUES
from autotts_jax.replay.flat import MAX_BRANCHES, MAX_TOKENS
from autotts_jax.replay.matrix import MAX_ENTRIES
from autotts_jax.replay.spelling import MAX_LENGTH


@dataclasses.dataclass(frozen=True)
class EngineSpec:
    """What generates the branches, as far as they depend on it; `engine_spec` makes one.

    Attributes:
        kind: name of the engine, as in `ENGINES`.
        model: the model's folder or Hugging Face id, or the name under which a server serves it.
        options: the engine's options, JSON.
        files_sha256: hash of what is in the folders that the model and its tokenizer are, as `engine_spec`
            computes it; None if they are in none.

    Raises:
        InputError: something is not text that UTF-8 can write, or no JSON.
    """

    kind: str
    model: str | None = None
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    files_sha256: str | None = None

    def __post_init__(self) -> None:
        check_text("the engine", self.kind)
        if self.model is not None:
            check_text("the engine's model", self.model)
        try:
            check_text("an engine option", json.dumps(self.options, ensure_ascii=False))
        except (TypeError, ValueError) as error:
            raise InputError(f"the engine's options are not JSON: {error}") from error

    def without_secrets(self) -> EngineSpec:
        """Leaves the secrets out of the options.

        Returns:
            The description, without options that are secrets and with `HIDDEN` for those inside of others.
        """
        public = {name: hide(value, name) for name, value in self.options.items()}
        return dataclasses.replace(self, options={k: v for k, v in public.items() if v != HIDDEN})


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
        engine: what generates the branches; None if that is not said.
        grader: which answers are equal, a specification for `open_grader`; it may change later.
        answers_sha256: hash of the file that ``answers`` names, as `source_sha256` returns it; a store fills
            it in.
        completions_sha256: hash of the completions that are probed, as `Completions` has it; None if branches
            are sampled.

    Raises:
        InputError: a number is out of range, all branches would be the same, there is no question, one is
            there twice or without an answer or tests, the matrix would be too large, or signals of sampled
            tokens are asked for where none are sampled.
    """

    model: str
    benchmark: str
    questions: tuple[Problem, ...]
    num_branches: int = 128
    chunk: int = 16
    sampling: Sampling = dataclasses.field(default_factory=Sampling)
    answers: str = "auto"
    keep_text: bool = False
    engine: EngineSpec | None = None
    grader: str = "math"
    answers_sha256: str | None = None
    completions_sha256: str | None = None

    def __post_init__(self) -> None:
        for name, most in (("num_branches", MAX_BRANCHES), ("chunk", None)):
            object.__setattr__(self, name, check_int(name, getattr(self, name), 1, most))
        check_bool("keep_text", self.keep_text)
        check_differing(self.sampling)
        for name in ("model", "benchmark", "answers", "grader"):
            check_text(name, getattr(self, name))
        for question in self.questions:
            if not isinstance(question, Problem):
                raise InputError(
                    f"a question is {question!r:.60}, but it must be an autotts_jax.collect.Problem"
                )
            check_text("a question", question.text)
            check_text("a reference answer", question.gold)
        untold = [name for name in self.sampling.signals if name not in FORCED]
        if self.completions_sha256 is not None and untold:
            raise InputError(
                f"{', '.join(untold)}: signals of tokens that are sampled, and of completions that exist "
                f"already none are; ask for {', '.join(sorted(FORCED))} alone"
            )
        if not self.questions:
            raise InputError("the plan has no question; give at least one")
        # What is collected at such cost must be data afterwards.
        texts = [question.text for question in self.questions]
        if len(set(texts)) < len(texts):
            raise InputError("the plan has a question twice; keep one of them")
        for question in self.questions:
            if not question.gold.strip():
                raise InputError(f"{question.text!r:.60} has no reference answer; give one, or leave it out")
            if self.grader in BY_TESTS:
                read_tests(question.gold)
        depths = self.sampling.max_depth
        longest = max(self.sampling.max_tokens, self.sampling.interval * depths)
        if self.num_branches * longest > MAX_TOKENS:
            raise InputError(
                f"{self.num_branches:,} branches of up to {longest:,} tokens are more than the "
                f"{MAX_TOKENS:,} that can be counted; collect fewer or shorter branches"
            )
        sampling, draws = self.sampling, self.sampling.probes_per_prefix
        values = 2 + (draws if draws > 1 else 0) + len(sampling.signals)  # of each interval
        if min(self.chunk, self.num_branches) * depths * values > MAX_VALUES:
            raise InputError(
                f"a unit of {self.chunk:,} branches of {depths:,} depths would have more than {MAX_VALUES:,} "
                "values; choose a smaller chunk"
            )
        if len(texts) * self.num_branches * depths > MAX_ENTRIES:
            raise InputError(
                f"{len(texts):,} questions × {self.num_branches:,} branches × {depths:,} depths are more "
                f"than {MAX_ENTRIES:,}; collect a part of the questions"
            )

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
        signals: values at each depth that can be read, by name, if asked for; none that the engine did not
            tell.
        text: the generated text, if asked for.
    """

    probes: list[str]
    tokens: int
    final: str
    finish: Finish
    probe_tokens: list[int]
    draws: list[list[str]] | None = None
    signals: dict[str, list[float]] | None = None
    text: str | None = None

    def problems(self, plan: Plan) -> Iterator[str]:
        """Finds what is wrong with the branch under a plan.

        Args:
            plan: the plan.

        Yields:
            What is wrong; each problem supposes that there was none before it.
        """
        sampling, answers = plan.sampling, [*self.probes, self.final]
        interval, most, draws = sampling.interval, sampling.max_tokens, sampling.probes_per_prefix
        if not 1 <= self.tokens <= most:
            yield f"{self.tokens} tokens are not in 1 … {most}"
        if len(answers) != last_depth(self.tokens, interval):
            yield f"{len(self.probes)} probes are not those of {self.tokens} tokens, each {interval}"
        if self.finish is Finish.length and self.tokens < most:
            yield f"it was cut off after {self.tokens} tokens, before {most}"
        if plan.answers == CODE:
            if not all(0 < len(answer) <= MAX_CODE for answer in answers):
                yield f"an answer is not code of 1 to {MAX_CODE} characters"
        elif not all(
            0 < len(answer) <= MAX_LENGTH and answer == " ".join(answer.split()) for answer in answers
        ):
            yield f"an answer is not a line of 1 to {MAX_LENGTH} characters"
        if len(self.probe_tokens) != len(answers):
            yield f"{len(self.probe_tokens)} probe_tokens are not those of {len(answers)} answers"
        if not all(0 <= tokens <= draws * sampling.probe_tokens for tokens in self.probe_tokens):
            yield f"an entry of probe_tokens is not in 0 … {draws * sampling.probe_tokens}"
        for name, values in (self.signals or {}).items():
            if name not in sampling.signals:
                yield f"the signal {name!r:.60} was not asked for"
            if len(values) != len(answers) or not all(map(math.isfinite, values)):
                yield f"the signal {name} is not {len(answers)} finite numbers, one for each answer"
        asked = ("draws", draws > 1), ("signals", bool(sampling.signals)), ("text", plan.keep_text)
        for name, kept in asked:
            if (getattr(self, name) is not None) != kept:
                yield f"{name} {'is missing' if kept else 'was not asked for'}"
        if self.draws is not None:
            forced = -(-self.tokens // interval) - 1  # before its end
            last = 1 if self.finish is Finish.stop else draws  # an answer in the text was not drawn
            counts = [draws] * forced + [last] * (len(answers) - forced)
            if list(map(len, self.draws)) != counts or list(map(majority, self.draws)) != answers:
                yield "draws are not those of the probes and the final answer"


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
