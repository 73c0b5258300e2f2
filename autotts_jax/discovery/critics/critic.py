"""Critics score candidates before they are executed, and, once proven, decide which ones are.

A critic runs in the shadow at first: its verdicts are recorded, and every candidate is executed. It gates
only where its record shows that it helps (`autotts_jax.discovery.critics.report`), and then a share of what
it rejects is still executed, so that its record stays unbiased. It learns from its own search alone:
what other searches have seen of the questions that this one leaves out must not reach it.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from autotts_jax.discovery.archive.archive import Record
from autotts_jax.discovery.archive.records import START
from autotts_jax.discovery.critics.report import Tally

AUDITED = 0.1
"""Share of the rejected candidates that are executed where a critic gates."""


class Opinion(NamedTuple):
    """A critic's opinion of a candidate.

    Attributes:
        score: how promising it is; larger is better. None where the critic has not come to a verdict.
        accepts: whether it is worth executing.
        transcript: name of the file that holds what a model was asked and replied; None without one.
        tokens: tokens that were paid for it.
        dollars: what they cost; None where nobody knows.
    """

    score: float | None
    accepts: bool
    transcript: str | None = None
    tokens: int = 0
    dollars: float | None = 0.0

    def to_json(self) -> dict[str, Any]:
        """Returns the opinion as a JSON object."""
        said: dict[str, Any] = {"score": self.score, "accepts": self.accepts}
        if self.transcript is not None:
            said |= {"transcript": self.transcript, "tokens": self.tokens, "dollars": self.dollars}
        return said


@runtime_checkable
@runtime_checkable
class Critic(Protocol):
    """Judges candidates before they are executed. It keeps nothing that cannot be computed again."""

    @property
    def name(self) -> str:
        """Its name in a run's manifest."""

    def judge(
        self,
        records: Sequence[Record],
        past: Sequence[Record],
        folder: Path,
        round_number: int,
    ) -> list[Opinion | None]:
        """Judges candidates.

        Args:
            records: their records, without what executing them would add.
            past: the records of this search's rounds before, in order.
            folder: the run's folder.
            round_number: number of the round in the run.

        Returns:
            An opinion of each; None of those that it cannot judge.
        """


@dataclasses.dataclass(frozen=True)
class Gate:
    """Has a critic judge candidates, and keeps from being executed what a proven critic rejects.

    Attributes:
        critic: the critic.
        folder: the run's folder.
        seed: the seed that audits are drawn with.
    """

    critic: Critic
    folder: Path
    seed: int
    _past: dict[int | None, list[Record]] = dataclasses.field(default_factory=lambda: defaultdict(list))

    def take(self, records: Sequence[Record]) -> None:
        """Takes the records of the candidates of a round that has ended."""
        for record in records:
            self._past[record["fold"]].append(record)

    def judge(self, records: Sequence[Record], round_number: int) -> None:
        """Adds what the critic says to a round's records, and ``gated`` where one is not to be executed."""
        new = [record for record in records if record["proposer"] != START]
        if not new:
            return
        past = self._past[new[0]["fold"]]
        gates = Tally.of(past).lift.gates
        audited = np.random.default_rng([self.seed, 2, round_number]).random(len(new)) < AUDITED
        opinions = self.critic.judge(new, past, self.folder, round_number)
        for record, opinion, audit in zip(new, opinions, audited, strict=True):
            if opinion is not None:
                record["critic"] = opinion.to_json()
                if gates and not opinion.accepts and not audit:
                    record["gated"] = True


def paid_of(record: Record) -> tuple[int, float]:
    """Returns the tokens and dollars that a verdict has cost, as far as that is known."""
    opinion = record.get("critic", {})
    return opinion.get("tokens", 0), opinion.get("dollars") or 0.0
