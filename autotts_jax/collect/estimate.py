"""What a collection will take, estimated before an engine is started."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from autotts_jax.collect.engine import Finish
from autotts_jax.collect.plan import Branch, Plan
from autotts_jax.collect.signals import EAT
from autotts_jax.collect.store import preview
from autotts_jax.collect.trajectories import Usage

ANSWER = 10
"""Characters that an answer is taken to have where none was collected."""

TOKEN_BYTES = 5
"""Bytes that the text of a token is taken to have."""

_AROUND = 16
"""Bytes around an answer in the finished matrix."""


@dataclasses.dataclass(frozen=True)
class Cost:
    """Tokens and disk space for some branches.

    Attributes:
        generated: tokens of the branches.
        forced: tokens of their forced answers.
        disk: bytes of the folder.
    """

    generated: int
    forced: int
    disk: int

    @property
    def tokens(self) -> int:
        """All tokens that the engine writes."""
        return self.generated + self.forced


@dataclasses.dataclass(frozen=True)
class Estimate:
    """What is missing of a collection, and what it will take.

    Attributes:
        questions: number of questions.
        branches: branches of all questions.
        collected: branches that the folder has.
        most: what the others take if each is as long as it can be, and each forced answer.
        expected: what they take if they are as those collected; None where none is.
    """

    questions: int
    branches: int
    collected: int
    most: Cost
    expected: Cost | None


def estimate(plan: Plan, folder: str | Path) -> Estimate:
    """Estimates what a collection will take; no engine is started, and nothing is written.

    The upper bound has T tokens a branch, unless branches exist already, and a probe at every multiple of Δ
    and at the end. Of disk space it is a guess: answers of `ANSWER` characters, `TOKEN_BYTES` bytes a token
    where texts are kept.

    Args:
        plan: what to collect.
        folder: where to collect it; absent, empty, or with a part of it.

    Returns:
        The estimate for what is missing.

    Raises:
        InputError: the folder holds something else or another plan.
        DataError: a file is damaged.
    """
    done, missing = preview(Path(folder), plan)
    branches = len(plan.questions) * plan.num_branches
    collected = sum(unit.unit.size for unit in done)
    left = sum(unit.size for unit in missing)
    sampling, longest = plan.sampling, _longest(plan)
    probes = sampling.max_depth * sampling.probes_per_prefix
    forced = sampling.probe_tokens + sampling.probe_tail + (EAT in sampling.signals)
    most = Cost(
        left * sampling.max_tokens if plan.completions_sha256 is None else 0,
        left * probes * forced,
        left * (_in_unit(longest) + _in_matrix(longest)),
    )
    expected = None
    if collected:
        usage = sum((unit.usage for unit in done), Usage())
        share = left / collected
        size = sum(path.stat().st_size for path in (Path(folder) / "units").glob("*.json"))
        size += sum(_in_matrix(branch) for unit in done for branch in unit.branches)
        expected = Cost(*(round(share * x) for x in (usage.generated, usage.forced, size)))
    return Estimate(len(plan.questions), branches, collected, most, expected)


def _longest(plan: Plan) -> Branch:
    """A branch that is as long as it can be."""
    sampling, answer = plan.sampling, "x" * ANSWER
    depths, draws = sampling.max_depth, sampling.probes_per_prefix
    return Branch(
        probes=[answer] * (depths - 1),
        tokens=sampling.max_tokens,
        final=answer,
        finish=Finish.length,
        probe_tokens=[draws * sampling.probe_tokens] * depths,
        draws=[[answer] * draws] * depths if draws > 1 else None,
        signals={name: [-0.33325] * depths for name in sampling.signals} if sampling.signals else None,
        text="x" * (TOKEN_BYTES * sampling.max_tokens) if plan.keep_text else None,
    )


def _in_unit(branch: Branch) -> int:
    """Bytes that a branch takes in its unit."""
    return len(json.dumps({name: value for name, value in dataclasses.asdict(branch).items() if value}))


def _in_matrix(branch: Branch) -> int:
    """Bytes that a branch takes in the finished matrix, which has final answers twice."""
    answers = sum(len(answer) + _AROUND for answer in (*branch.probes, branch.final, branch.final))
    return answers + sum(len(json.dumps(values)) for values in (branch.signals or {}).values())
