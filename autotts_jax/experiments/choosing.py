"""Settings chosen on other questions than those they are judged on."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, Int
from rich.console import RenderableType

from autotts_jax.errors import InputError
from autotts_jax.experiments.files import PAIRED_COLUMNS, SUMMARY_COLUMNS, rows_table
from autotts_jax.experiments.summary import Row, Setting, setting_named, summarise
from autotts_jax.experiments.tables import Table, summary_table
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.terminal import styled

FOLDS = 5
"""Parts of the questions in cross-fitting."""


@dataclasses.dataclass(frozen=True)
class Chosen:
    """What settings reach that were chosen on other questions.

    Attributes:
        rows: one row for each benchmark, model and controller; where a setting was chosen, without a value.
        settings: the chosen settings of each controller, and how many questions each was played on.
    """

    rows: tuple[Row, ...]
    settings: Mapping[str, Mapping[str, int]]

    def table(self) -> Table:
        """Shows accuracy, tokens and objective, and which settings were chosen.

        Returns:
            A table that prints in 80 columns and that a notebook shows.
        """

        def parts(_: int) -> Iterator[RenderableType]:
            yield summary_table(self.rows)
            yield styled("chosen on other questions:", style="dim")
            for name, settings in self.settings.items():
                counts = ", ".join(f"{setting} for {count}" for setting, count in settings.items())
                yield styled(f"{name}: {counts} questions", style="dim")

        return Table(parts)

    def summary(self) -> pa.Table:
        """Gives the rows.

        Returns:
            An Arrow table with the columns of ``summary.csv``, then those of ``paired.csv``.
        """
        return rows_table(tuple(dict.fromkeys(SUMMARY_COLUMNS + PAIRED_COLUMNS)), self.rows)

    def _repr_html_(self) -> str:
        return self.table().html()


def choose(
    dataset: ProbeDataset, settings: Sequence[Setting], gamma: float, baseline: str, on: str | None
) -> Chosen:
    """Chooses the setting of every swept controller on other questions than those it is judged on.

    Args:
        dataset: the questions.
        settings: the episodes of every setting.
        gamma: γ of the objective that chooses.
        baseline: name of the setting that the chosen ones are compared with, which stays as it is.
        on: the benchmark to choose on; None for cross-fitting.

    Raises:
        InputError: there is no such benchmark, or no other, or too few questions to deal out.
    """
    parts = list(_cross_fitted(dataset) if on is None else _apart(dataset, on))
    judged = np.flatnonzero(np.any([judges for _, judges in parts], axis=0))
    models = np.array([cell.model for cell in dataset.cells])[np.asarray(dataset.matrix.cell)]
    by_name: dict[str, list[Setting]] = {}
    for setting in settings:
        by_name.setdefault(setting.controller, []).append(setting)
    found = [setting_named(settings, baseline)]
    chosen: dict[str, Counter[str]] = {}
    for name, swept in by_name.items():
        if len(swept) == 1:
            found += [one for one in swept if one is not found[0]]
            continue
        worth = np.stack([(one.correct - gamma * one.cost).mean(axis=0) for one in swept])
        which = np.zeros(len(dataset), int)
        for chooses, judges in parts:
            for model in np.unique(models):
                own = models == model
                if (own & judges).any():
                    which[own & judges] = worth[:, own & chooses].mean(axis=1).argmax()
        found.append(_picked(name, swept, which))
        chosen[name] = Counter(swept[index].name for index in which[judged])
    columns = [
        dataclasses.replace(one, **{name: getattr(one, name)[:, judged] for name in COLUMNS}) for one in found
    ]
    rows = tuple(summarise(dataset.select(judged), columns, gamma))
    return Chosen(rows, {name: dict(counts.most_common()) for name, counts in chosen.items()})


COLUMNS = ("correct", "tokens", "sequential_tokens", "cost")
"""What a setting has of each episode."""


def _picked(name: str, swept: Sequence[Setting], which: Int[np.ndarray, " Q"]) -> Setting:
    """The episodes of each question under the setting that was chosen for it."""
    every = np.arange(len(which))
    columns = (np.stack([getattr(one, of) for one in swept])[which, :, every].T for of in COLUMNS)
    return Setting(name, None, *columns)


def _cross_fitted(dataset: ProbeDataset) -> Iterator[tuple[Bool[np.ndarray, " Q"], Bool[np.ndarray, " Q"]]]:
    """The questions that choose and that judge, by fold; a question of several models is in one."""
    distinct, question = np.unique([one.text for one in dataset.questions], return_inverse=True)
    if len(distinct) < FOLDS:
        raise InputError(f"{len(distinct)} questions cannot be dealt out to {FOLDS} folds; give more")
    fold = np.random.default_rng(0).permutation(len(distinct))[question] % FOLDS
    for one in range(FOLDS):
        yield fold != one, fold == one


def _apart(dataset: ProbeDataset, on: str) -> Iterator[tuple[Bool[np.ndarray, " Q"], Bool[np.ndarray, " Q"]]]:
    """The questions of a benchmark, which choose, and those of the others, which judge."""
    benchmarks = np.array([cell.benchmark for cell in dataset.cells])
    chooses = (benchmarks == on)[np.asarray(dataset.matrix.cell)]
    names = ", ".join(dict.fromkeys(benchmarks))
    if chooses.all() or not chooses.any():
        raise InputError(f"on is {on!r:.60}, but it must be one of several benchmarks; there are {names}")
    for model in {cell.model for cell in dataset.cells}:
        if {on} == {cell.benchmark for cell in dataset.cells if cell.model == model}:
            continue
        if on not in {cell.benchmark for cell in dataset.cells if cell.model == model}:
            raise InputError(f"{model} has no questions of {on}, on which its settings could be chosen")
    yield chooses, ~chooses
