"""Means of episodes: accuracy, cost and objective, with their uncertainty."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from statistics import NormalDist

import numpy as np

from autotts_jax.checks import check_float
from autotts_jax.core.costs import MOST_GAMMA, CostModel, Spent, as_cost, spent_by
from autotts_jax.errors import InputError
from autotts_jax.policies.player import Play, name_of
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.resampling import adjusted_p_values, equal_weights, interval
from autotts_jax.resampling import p_value as p_value
from autotts_jax.resampling import paired_bootstrap as paired_bootstrap
from autotts_jax.resampling import resampled_means as resampled_means

ALL_MODELS = "mean of models"
"""Name of the rows that average the models of a benchmark."""

DETECTABLE = NormalDist().inv_cdf(0.975) + NormalDist().inv_cdf(0.8)
"""Standard errors of the smallest difference that a test at 5 % finds four times in five."""


@dataclasses.dataclass(frozen=True)
class Objective:
    """The objective of an episode: 1{correct} - γ·C.

    Attributes:
        gamma: γ, the weight of a unit of cost.
        kappa_probe: κ_probe, intervals charged for a probe.
        unit: what the cost C is: ``intervals`` (Σ l_i + κ_probe·#Ω), ``tokens``, ``latency``, ``flops``,
            ``kv`` or ``usd``, or a `CostModel`, which says on which machine.
    """

    gamma: float = 1e-4
    kappa_probe: float = 0.0
    unit: str | CostModel = "intervals"

    def __post_init__(self) -> None:
        for name in ("gamma", "kappa_probe"):
            object.__setattr__(self, name, check_float(name, getattr(self, name), 0, most=MOST_GAMMA))
        if self.model.kind != "intervals" and self.kappa_probe:  # an unknown unit is refused in any case
            raise InputError(
                f"kappa_probe is counted in intervals; leave it out where the cost is {self.model.kind}"
            )

    @property
    def model(self) -> CostModel:
        """The cost model."""
        return as_cost(self.unit)

    def cost(self, play: Play, dataset: ProbeDataset) -> np.ndarray:
        """Computes the cost of each episode.

        Args:
            play: the episodes.
            dataset: their questions.

        Returns:
            The costs, in the unit of the model. Shape (V, S, Q).

        Raises:
            InputError: a cell's model has no profile, or is unpriced; or the cost depends on what episodes
                had to wait for, which was not counted when they were played.
        """
        matrix = dataset.matrix
        if self.model.waits and play.critical_path is None and play.seal is None:
            raise InputError(
                f"the cost is {self.model.kind}, but {play.player.name} was played without counting what its "
                f"episodes wait for; evaluate it with cost={self.model.kind!r}"
            )
        return self.cost_of(spent_by(play, np.asarray(matrix.interval), matrix.max_depth), dataset)

    def cost_of(self, spent: Spent, dataset: ProbeDataset) -> np.ndarray:
        """Computes the cost of what was spent on each question.

        Args:
            spent: what was spent. Shape (..., Q).
            dataset: the questions.

        Returns:
            The costs, in the unit of the model. Shape (..., Q).

        Raises:
            InputError: as `cost`.
        """
        if self.model.kind == "intervals":
            return spent.intervals + self.kappa_probe * spent.probes
        models = [cell.model for cell in dataset.cells]
        model = self.model.of_models(models).of_cells(np.asarray(dataset.matrix.cell))
        return np.asarray(model.of(spent))

    def of(self, play: Play, dataset: ProbeDataset) -> np.ndarray:
        """Computes the objective of each episode.

        Args:
            play: the episodes.
            dataset: their questions.

        Returns:
            Shape (V, S, Q).

        Raises:
            InputError: as `cost`.
        """
        return play.correct - self.gamma * self.cost(play, dataset)


DEFAULT_OBJECTIVE = Objective()


@dataclasses.dataclass(frozen=True)
class Row:
    """The results of one setting of a player on one model and benchmark.

    Attributes:
        model: the model, or `ALL_MODELS`.
        benchmark: the benchmark.
        controller: the controller's name.
        value: β, γ, number of branches, or None.
        accuracy: mean of 1{correct}, in 0 … 1.
        accuracy_se: standard error of it over seeds; NaN with one seed.
        accuracy_question_se: standard error of it over questions, each the mean of its seeds.
        tokens: mean tokens per episode.
        sequential_tokens: mean sequential tokens per episode.
        cost: mean cost of an episode, in the unit of the objective.
        objective: mean objective of an episode.
        objective_se: standard error of it over seeds; NaN with one seed.
        gain: accuracy minus that of the first setting.
        gain_low: lower end of the 95 % interval of ``gain``, by paired bootstrap over questions.
        gain_high: upper end of it.
        gain_p: two-sided p-value of ``gain`` by the same bootstrap; NaN of the first setting,
            and with one question.
        gain_p_adjusted: it, adjusted by Benjamini and Hochberg for the settings of this model and benchmark.
        gain_detectable: the smallest gain that as many questions, which differ as much, show in four of five
            tests at 5 %; NaN where all questions gain the same.
        objective_gain: objective minus that of the first setting.
        objective_gain_low: lower end of its 95 % interval, likewise.
        objective_gain_high: upper end of it.
        tokens_ratio: tokens over those of the first setting; NaN where these are 0.
        ratio_low: lower end of its 95 % interval, by the same bootstrap.
        ratio_high: upper end of it.
        cost_ratio: the same of the cost.
        cost_ratio_low: lower end of its interval.
        cost_ratio_high: upper end of it.
    """

    model: str
    benchmark: str
    controller: str
    value: float | None
    accuracy: float
    accuracy_se: float
    accuracy_question_se: float
    tokens: float
    sequential_tokens: float
    cost: float
    objective: float
    objective_se: float
    gain: float
    gain_low: float
    gain_high: float
    gain_p: float
    gain_p_adjusted: float
    gain_detectable: float
    objective_gain: float
    objective_gain_low: float
    objective_gain_high: float
    tokens_ratio: float
    ratio_low: float
    ratio_high: float
    cost_ratio: float
    cost_ratio_low: float
    cost_ratio_high: float

    @property
    def name(self) -> str:
        """The name of the setting, ``controller@value``."""
        return name_of(self.controller, self.value)


def summarise(dataset: ProbeDataset, plays: Sequence[Play], objective: Objective) -> Iterator[Row]:
    """Averages the episodes of each setting.

    Args:
        dataset: the questions.
        plays: the episodes of each player.
        objective: what an episode is worth.

    Yields:
        One row for each benchmark, model and setting, then for each benchmark the mean of its models.
    """
    cells = dataset.cells
    for benchmark in dict.fromkeys(cell.benchmark for cell in cells):
        members = [index for index, cell in enumerate(cells) if cell.benchmark == benchmark]
        for index in members:
            yield from _rows(dataset, plays, objective, benchmark, cells[index].model, [index])
        if len(members) > 1:
            yield from _rows(dataset, plays, objective, benchmark, ALL_MODELS, members)


def _rows(
    dataset: ProbeDataset,
    plays: Sequence[Play],
    objective: Objective,
    benchmark: str,
    model: str,
    cells: Sequence[int],
) -> list[Row]:
    questions = np.concatenate([dataset.cell_questions(cell) for cell in cells])
    texts = [dataset.questions[question].text for question in questions]
    weight = equal_weights(np.asarray(dataset.matrix.cell)[questions])
    first: tuple[np.ndarray, ...] | None = None  # correct, objective, tokens and cost by question
    rows: list[Row] = []

    def mean(per_episode: np.ndarray) -> np.ndarray:
        """Weighted mean over questions; (S, Q) to (S,)."""
        return per_episode[:, questions] @ weight

    for play in plays:
        costs = objective.cost(play, dataset)
        worth = play.correct - objective.gamma * costs
        for index, value in enumerate(play.player.values):
            columns = [of[index] for of in (play.correct, worth, play.tokens, costs)]
            correct, objectives, _, cost = columns
            by_question = tuple(of[:, questions].mean(axis=0) for of in columns)
            first = first or by_question
            gain, objective_gain = by_question[0] - first[0], by_question[1] - first[1]
            gains = resampled_means(gain, weight, texts)
            low, high = interval(gains)
            objective_low, objective_high = paired_bootstrap(objective_gain, weight, texts)
            tokens_ratio, cost_ratio = (
                (
                    float(_ratio(mine @ weight, its @ weight)),
                    *interval(_ratio(*(resampled_means(of, weight, texts) for of in (mine, its)))),
                )
                for mine, its in zip(by_question[2:], first[2:], strict=True)
            )
            accuracy, objective_by_seed = mean(correct), mean(objectives)
            rows.append(
                Row(
                    model,
                    benchmark,
                    play.player.name,
                    value,
                    accuracy=float(accuracy.mean()),
                    accuracy_se=standard_error(accuracy),
                    accuracy_question_se=float(np.std(resampled_means(by_question[0], weight, texts))),
                    tokens=float(mean(play.tokens[index]).mean()),
                    sequential_tokens=float(mean(play.sequential_tokens[index]).mean()),
                    cost=float(mean(cost).mean()),
                    objective=float(objective_by_seed.mean()),
                    objective_se=standard_error(objective_by_seed),
                    gain=float(gain @ weight),
                    gain_low=low,
                    gain_high=high,
                    gain_p=p_value(gains) if rows and len(set(texts)) > 1 else math.nan,
                    gain_p_adjusted=math.nan,
                    gain_detectable=DETECTABLE * round(float(np.std(gains)), 12) or math.nan,
                    objective_gain=float(objective_gain @ weight),
                    objective_gain_low=objective_low,
                    objective_gain_high=objective_high,
                    tokens_ratio=tokens_ratio[0],
                    ratio_low=tokens_ratio[1],
                    ratio_high=tokens_ratio[2],
                    cost_ratio=cost_ratio[0],
                    cost_ratio_low=cost_ratio[1],
                    cost_ratio_high=cost_ratio[2],
                )
            )
    if len(rows) > 1:
        adjusted = adjusted_p_values(np.array([row.gain_p for row in rows[1:]]))
        rows[1:] = [
            dataclasses.replace(row, gain_p_adjusted=float(p))
            for row, p in zip(rows[1:], adjusted, strict=True)
        ]
    return rows


def _ratio(spent: np.ndarray, first: np.ndarray) -> np.ndarray:
    """What was spent over what the first setting spent, NaN where a budget left it nothing."""
    return spent / np.where(first > 0, first, np.nan)


def standard_error(per_seed: np.ndarray) -> float:
    """Computes the standard error of the mean of per-seed values (S,); NaN with one seed."""
    if len(per_seed) < 2:
        return float("nan")
    return float(np.std(per_seed, ddof=1) / np.sqrt(len(per_seed)))
