"""Measures whether a critic helps, by how the candidates that it judged turned out.

How a candidate turned out is known once it has been executed. A program succeeds if it reaches the last rung
of its round; a file, if it is better than the best of those that its author was shown or, if there was none,
if it does not fail. Lift is the success rate of accepted candidates over the success rate of all candidates.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import scipy.optimize
import scipy.stats

from autotts_jax.discovery.archive.archive import END, Record, read_manifest, read_records
from autotts_jax.discovery.archive.records import WRITTEN

MIN_EXECUTED = 100
"""Candidates that a critic has judged and that were executed, at least, before it gates."""

CONFIDENCE = 0.95
"""Confidence of the interval of the lift, from whose lower end on it gates."""


@dataclasses.dataclass(frozen=True)
class Lift:
    """A critic's lift over the base rate.

    Attributes:
        executed: candidates that were judged and executed.
        base_rate: estimated share of successes among all that were judged.
        precision: share of successes among those that were accepted and executed.
        recall: estimated share of the successes that were accepted.
        lift: precision over the base rate; NaN where nothing has succeeded.
        low: lower end of its 95 % interval.
        high: upper end.
    """

    executed: int
    base_rate: float
    precision: float
    recall: float
    lift: float
    low: float
    high: float

    @property
    def gates(self) -> bool:
        """Whether the critic has shown that it helps."""
        return self.executed >= MIN_EXECUTED and self.low > 1


@dataclasses.dataclass(frozen=True)
class Tally:
    """Counts of the candidates that a critic has judged.

    Attributes:
        judged: all of them.
        passed: those that it has accepted.
        accepted: those that it has accepted and that were executed.
        accepted_hits: of these, those that succeeded.
        rejected: those that it has rejected and that were executed, those to audit the critic included.
        rejected_hits: of these, those that succeeded.
    """

    judged: int
    passed: int
    accepted: int
    accepted_hits: int
    rejected: int
    rejected_hits: int

    @classmethod
    def of(cls, records: Iterable[Record]) -> Tally:
        """Counts.

        Args:
            records: records of candidates; those of a file's parents stand before its own.
        """
        by_number: dict[int, Record] = {}
        counts = dict.fromkeys((field.name for field in dataclasses.fields(cls)), 0)
        for record in records:
            by_number[record["number"]] = record
            if not is_judged(record):
                continue
            accepts = record["critic"]["accepts"]
            counts["judged"] += 1
            counts["passed"] += accepts
            if "gated" not in record:
                verdict = "accepted" if accepts else "rejected"
                counts[verdict] += 1
                counts[f"{verdict}_hits"] += succeeds(record, by_number)
        return cls(**counts)

    @property
    def lift(self) -> Lift:
        """The lift and its interval.

        What is executed of the rejected ones stands for all of them. For a given share of accepted candidates
        the lift rises with the ratio of both rates of success, and so has the ends of that ratio's interval.
        """
        share = self.passed / self.judged if self.judged else math.nan
        precision = _share(self.accepted_hits, self.accepted)
        missed = _share(self.rejected_hits, self.rejected)
        among_accepted = share * precision if share else 0.0
        among_rejected = (1 - share) * missed if share < 1 else 0.0
        base = among_accepted + among_rejected
        low, high = ratio_interval(self.accepted_hits, self.accepted, self.rejected_hits, self.rejected)
        return Lift(
            executed=self.accepted + self.rejected,
            base_rate=base,
            precision=precision,
            recall=among_accepted / base if base else math.nan,
            lift=precision / base if base else math.nan,
            low=_lift(low, share),
            high=_lift(high, share),
        )


@dataclasses.dataclass(frozen=True)
class CriticReport:
    """How a run's critic has done, and what it has cost.

    Attributes:
        name: the critic.
        lift: its lift, over all searches.
        gated: candidates that it has kept from being executed.
        cpu_seconds: CPU time that executing what it rejected has cost, or would have cost.
        tokens: tokens paid for its verdicts.
        dollars: what they cost; None where nobody knows. Gating saves no dollars, as files are paid for
            before they can be judged.
        improvements: rounds that it judged whose best candidate was the best of its search so far.
        lost: those of them in which it had rejected that candidate.
    """

    name: str
    lift: Lift
    gated: int
    cpu_seconds: float
    tokens: int
    dollars: float | None
    improvements: int
    lost: int

    def __str__(self) -> str:
        of = self.lift
        verdicts = f"{of.executed:,} candidates judged and executed, {self.gated:,} gated"
        rates = f"base rate {of.base_rate:.1%}, precision {of.precision:.1%}, recall {of.recall:.1%}"
        lift = f"lift {of.lift:.2f} [{of.low:.2f}, {of.high:.2f}]".replace("inf", "∞")
        dollars = "unpriced" if self.dollars is None else f"${self.dollars:.4f}"
        paid = f"; verdicts took {self.tokens:,} tokens ({dollars})" if self.tokens else ""
        if not of.executed and not self.gated:
            return f"critic {self.name}: no candidate judged{paid}"
        return "\n".join(
            [
                f"critic {self.name}: {verdicts}",
                f"{rates}; {lift}, 95 % interval",
                f"rejected candidates are {self.cpu_seconds / 60:.2f} CPU minutes and "
                f"{self.lost} of {self.improvements} improvements{paid}",
            ]
        )


def is_judged(record: Record) -> bool:
    """Tells whether a critic has given a verdict on a candidate."""
    return "critic" in record and record["critic"]["score"] is not None


def score_of(record: Record) -> float | None:
    """Returns a candidate's score; None where it has none that candidates of other rounds compare with."""
    if record["kind"] == WRITTEN:
        return float(record["metrics"]["objective"]) if record["metrics"] else None
    return float(record["scores"][-1]) if "cost" in record else None


def succeeds(record: Record, by_number: dict[int, Record]) -> bool:
    """Tells whether a candidate that was executed succeeded."""
    score = score_of(record)
    if score is None or record["kind"] != WRITTEN:
        return score is not None
    parents = [score_of(by_number[parent]) for parent in record["parents"] if parent in by_number]
    return all(parent is None or score > parent for parent in parents)


def report(name: str, rounds: Sequence[tuple[list[Record], float]], orders: Sequence[int]) -> CriticReport:
    """Makes the report on a critic.

    Args:
        name: the critic.
        rounds: the candidates' records of each round, and the CPU seconds that the round took.
        orders: branch orders that each rung of programs plays.
    """
    everything = [record for records, _ in rounds for record in records]
    opinions = [record["critic"] for record in everything if "critic" in record]
    priced = [opinion.get("dollars", 0.0) for opinion in opinions]
    cpu_seconds, improvements, lost = 0.0, 0, 0
    best: dict[tuple[int | None, str], float] = {}
    for records, spent in rounds:
        rejected = [record for record in records if is_judged(record) and not record["critic"]["accepts"]]
        cpu_seconds += spent * _part_of(rejected, records, orders)
        scores = [(score, record) for record in records if (score := score_of(record)) is not None]
        if scores:
            top, found = max(scores, key=lambda scored: scored[0])
            search = found["fold"], found["kind"]
            if is_judged(found) and top > best.get(search, -math.inf):
                improvements += 1
                lost += not found["critic"]["accepts"]
            best[search] = max(top, best.get(search, -math.inf))
    return CriticReport(
        name=name,
        lift=Tally.of(everything).lift,
        gated=sum("gated" in record for record in everything),
        cpu_seconds=cpu_seconds,
        tokens=sum(opinion.get("tokens", 0) for opinion in opinions),
        dollars=None if None in priced else float(sum(priced)),
        improvements=improvements,
        lost=lost,
    )


def read_report(folder: Path) -> CriticReport | None:
    """Makes the report on the critic of a run, after its last whole round.

    Returns:
        The report; None of a run without a critic.

    Raises:
        InputError: the folder holds no run.
        DataError: a file in it is damaged.
    """
    manifest = read_manifest(folder)
    if manifest.get("critic") is None:
        return None
    rounds: list[tuple[list[Record], float]] = []
    candidates: list[Record] = []
    before = 0.0
    for record in read_records(folder):
        if record["kind"] == END:
            if candidates:
                rounds.append((candidates, record["cpu_seconds"] - before))
            candidates, before = [], record["cpu_seconds"]
        elif "proposer" in record:
            candidates.append(record)
    return report(manifest["critic"], rounds, [orders for _, orders in manifest["rungs"]])


def _part_of(rejected: Sequence[Record], records: Sequence[Record], orders: Sequence[int]) -> float:
    """What the rejected candidates cost, as a share of what the round cost.

    A program that is not executed saves the first rung: in the others another one takes its place.
    """
    if records[0]["kind"] == WRITTEN:
        return len(rejected) / max(sum("gated" not in record for record in records), 1)
    played = sum(sum(orders[: len(record.get("scores", ()))]) for record in records)
    return len(rejected) * orders[0] / max(played, 1)


# --- intervals ------------------------------------------------------------------------------------------


def ratio_interval(hits: int, of: int, other_hits: int, other_of: int) -> tuple[float, float]:
    """Computes the confidence interval of the ratio of two rates by inverting the score test (Koopman 1984).

    Returns:
        Its ends; 0 and infinity where nothing is known.
    """
    if not of or not other_of:
        return 0.0, math.inf
    z = float(scipy.stats.norm.ppf((1 + CONFIDENCE) / 2))

    def statistic(log_ratio: float) -> float:
        ratio = math.exp(log_ratio)
        a = (of + other_of) * ratio
        b = ratio * (of + other_hits) + hits + other_of
        root = math.sqrt(max(b * b - 4 * a * (hits + other_hits), 0.0))
        # The smaller root in this form does not cancel where it is small.
        other_rate = 2 * (hits + other_hits) / (b + root)
        rate = min(ratio * other_rate, 1.0)
        variance = rate * (1 - rate) / of + ratio**2 * other_rate * (1 - other_rate) / other_of
        difference = hits / of - ratio * other_hits / other_of
        return difference / math.sqrt(variance) if variance > 0 else math.copysign(math.inf, difference)

    low = _root(lambda at: statistic(at) - z) if hits else 0.0
    high = _root(lambda at: statistic(at) + z) if other_hits else math.inf
    return low, high


def _root(function: Callable[[float], float]) -> float:
    return math.exp(scipy.optimize.bisect(lambda at: max(min(function(at), 1e9), -1e9), -30, 30))


def _share(hits: int, of: int) -> float:
    return hits / of if of else math.nan


def _lift(ratio: float, accepted: float) -> float:
    """The lift of a critic that accepts a share, where accepted ones succeed so many times as often."""
    if math.isnan(accepted):
        return ratio
    if accepted == 1:
        return 1.0
    if math.isinf(ratio):
        return 1 / accepted if accepted else math.inf
    return ratio / (accepted * ratio + 1 - accepted)
