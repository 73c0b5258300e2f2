"""Ablations: what a search finds without one of its parts, over several seeds, beside what it finds with all.

Every arm plays the same seeds with the same budget, each as an ordinary run in a folder of its own. What is
compared is the test: the gain on the questions that each search has left out.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from rich.console import RenderableType

from autotts_jax.checks import check_int
from autotts_jax.collect.loading import loaded
from autotts_jax.discovery.critics.critic import Critic, paid_of
from autotts_jax.discovery.critics.nearest import NEAREST
from autotts_jax.discovery.entry import discover
from autotts_jax.discovery.judging.promotion import gain_over
from autotts_jax.discovery.proposers.named import as_proposer
from autotts_jax.discovery.proposers.protocol import Proposer, Writer
from autotts_jax.discovery.results.found import Discovery
from autotts_jax.discovery.search import SearchProgress
from autotts_jax.errors import InputError
from autotts_jax.experiments.tables import Table, add_row, plain_table
from autotts_jax.files import destination, write_atomically
from autotts_jax.replay import ProbeDataset
from autotts_jax.terminal import styled

DEFAULT = "default"
"""The arm that the others are compared with."""


TABLE = "ablation.csv"
"""The file that holds an ablation's table."""


OnRun = Callable[[str, int, SearchProgress], None]
"""Called after every round of a run, with its arm and seed."""


@dataclasses.dataclass(frozen=True)
class Arm:
    """The results of one arm of an ablation; means over seeds.

    Attributes:
        arm: what is left out, or added.
        seeds: runs.
        gain: gain on questions left out, in the objective.
        gain_low: lower end of its 95 % interval over seeds and questions.
        gain_high: upper end.
        difference: this gain less that of the default, on the same seeds and questions; None of the default.
        difference_low: lower end of its 95 % interval.
        difference_high: upper end.
        promoted: runs whose result was promoted.
        candidates: candidates that a run tried.
        cpu_minutes: CPU time of a run.
        tokens: tokens that a run paid for, those of a critic included.
        dollars: what they cost; None where nobody knows.
    """

    arm: str
    seeds: int
    gain: float
    gain_low: float
    gain_high: float
    difference: float | None
    difference_low: float | None
    difference_high: float | None
    promoted: int
    candidates: float
    cpu_minutes: float
    tokens: float
    dollars: float | None


@dataclasses.dataclass(frozen=True)
class Ablation:
    """The results of an ablation.

    Attributes:
        arms: the arms, the default first.
        runs: the runs of each arm, by its name, in the order of the seeds.
    """

    arms: list[Arm]
    runs: dict[str, list[Discovery]]

    def csv(self) -> str:
        """Writes the arms as CSV; what is not known is empty."""
        text = io.StringIO()
        writer = csv.DictWriter(text, [field.name for field in dataclasses.fields(Arm)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(dataclasses.asdict(arm) for arm in self.arms)
        return text.getvalue()

    def table(self) -> Table:
        """Makes a table of the arms."""

        def parts(_: int) -> Iterator[RenderableType]:
            table = plain_table()
            headings = ("gain, points", "less default's", "promoted", "cand.", "CPU min", "dollars")
            for heading in ("", *headings):
                table.add_column(heading, justify="right" if heading else "left")
            for arm in self.arms:
                add_row(
                    table,
                    arm.arm,
                    _points(arm.gain, arm.gain_low, arm.gain_high),
                    _points(arm.difference, arm.difference_low, arm.difference_high),
                    f"{arm.promoted} of {arm.seeds}",
                    f"{arm.candidates:,.0f}",
                    f"{arm.cpu_minutes:.1f}",
                    "unpriced" if arm.dollars is None else f"{arm.dollars:.2f}",
                )
            yield table
            yield styled(
                "gain: of the objective on the incumbent, on questions that searches left out, in\n"
                "points, with its 95 % interval over seeds and questions; a\n"
                "difference whose interval holds 0 is not told from none",
                lines=True,
            )

        return Table(parts)


def ablate(
    data: ProbeDataset | str | Path | Sequence[str | Path] = "synthetic",
    *,
    out: str | Path = "runs/ablation",
    seeds: int = 3,
    proposers: Sequence[str | Proposer | Writer] = ("rules",),
    incumbent: Any = "cmc",
    candidates: int | None = None,
    cpu_minutes: float | None = None,
    max_branches: int | None = None,
    critic: str | Critic = NEAREST,
    on_run: OnRun | None = None,
) -> Ablation:
    """Compares searches without β, with a critic and, where files are written, without traces.

    Every run is kept in ``out/ARM/SEED``, and the table in ``out/ablation.csv``. The same call continues
    them after an interruption, or with a larger budget.

    Args:
        data: the questions: a dataset, or names, files, folders and globs, as `autotts_jax.load` takes them.
        out: the folder of the runs.
        seeds: runs of each arm, with the seeds 0, 1, …
        proposers: as `autotts_jax.discover` takes them.
        incumbent: as `autotts_jax.discover` takes it.
        candidates: candidates that each run tries in all; None for no limit.
        cpu_minutes: CPU time of each run's rounds, as `autotts_jax.discover` takes it.
        max_branches: W, as in `autotts_jax.evaluate`.
        critic: the critic of the arm that has one.
        on_run: called after every round, with the arm and the seed of its run.

    Raises:
        InputError: as `autotts_jax.discover` does.
    """
    folder = destination(out)
    check_int("seeds", seeds, 1)
    data = loaded(data)
    data.check_probes("discover ablate looks for controllers that decide by")
    proposers = [as_proposer(proposer) for proposer in proposers]
    switches: dict[str, dict[str, Any]] = {
        DEFAULT: {},
        "no-beta": {"beta": False},
        "critic": {"critic": critic},
    }
    if any(isinstance(proposer, Writer) for proposer in proposers):
        switches["no-traces"] = {"traces": False}
    runs: dict[str, list[Discovery]] = {arm: [] for arm in switches}
    for seed in range(seeds):
        for arm, switch in switches.items():
            found = discover(
                data,
                out=folder / arm / str(seed),
                proposers=proposers,
                incumbent=incumbent,
                candidates=candidates,
                cpu_minutes=cpu_minutes,
                seed=seed,
                max_branches=max_branches,
                on_round=on_run and functools.partial(on_run, arm, seed),
                **switch,
            )
            runs[arm].append(found)
    texts = [question.text for question in data.questions]
    group = np.unique(texts, return_inverse=True)[1]
    ablation = Ablation([_arm(arm, runs, group) for arm in runs], runs)
    write_atomically(folder / TABLE, ablation.csv().encode())
    return ablation


def _arm(arm: str, runs: dict[str, list[Discovery]], group: Int[np.ndarray, " Q"]) -> Arm:
    gain, default = _gains(runs[arm]), _gains(runs[DEFAULT])
    low, high = gain_over(gain, group).interval
    less_low, less_high = gain_over(gain - default, group).interval
    first = arm == DEFAULT
    paid = [_paid(found) for found in runs[arm]]
    dollars = [of for _, of in paid]
    return Arm(
        arm=arm,
        seeds=len(gain),
        gain=float(gain.mean()),
        gain_low=low,
        gain_high=high,
        difference=None if first else float((gain - default).mean()),
        difference_low=None if first else less_low,
        difference_high=None if first else less_high,
        promoted=sum(found.promoted for found in runs[arm]),
        candidates=float(np.mean([len(found.candidates) for found in runs[arm]])),
        cpu_minutes=float(np.mean([found.cpu_seconds for found in runs[arm]])) / 60,
        tokens=float(np.mean([tokens for tokens, _ in paid])),
        dollars=None if None in dollars else float(np.mean([of for of in dollars if of is not None])),
    )


def _gains(runs: Sequence[Discovery]) -> Float[np.ndarray, "S Q"]:
    tests = [found.test for found in runs]
    for found, test in zip(runs, tests, strict=True):
        if test is None or "gains" not in test:
            raise InputError(f"{found.folder} holds no gains on single questions; begin it anew elsewhere")
    return np.array([test["gains"] for test in tests if test is not None])


def _paid(found: Discovery) -> tuple[float, float | None]:
    """Tokens and dollars that a run has paid, its critic included."""
    tokens, dollars = 0.0, 0.0
    known = True
    for record in found.candidates:
        of_critic = paid_of(record)
        tokens += record.get("tokens", 0) + of_critic[0]
        dollars += (record.get("dollars") or 0.0) + of_critic[1]
        known &= record.get("dollars", 0.0) is not None
        known &= record.get("critic", {}).get("dollars", 0.0) is not None
    return tokens, dollars if known else None


def _points(value: float | None, low: float | None, high: float | None) -> str:
    if value is None or low is None or high is None:
        return ""
    return f"{100 * value:+.2f} [{100 * low:+.2f}, {100 * high:+.2f}]"
