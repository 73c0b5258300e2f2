"""Means of episodes: accuracy, cost and objective, with their uncertainty."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float, Int

from autotts_jax.checks import check_float
from autotts_jax.core.costs import MOST_GAMMA, CostModel, Spent, as_cost, spent_by
from autotts_jax.errors import InputError
from autotts_jax.intervals import DETECTABLE, adjusted_p_values, equal_weights
from autotts_jax.intervals import Questions as Questions
from autotts_jax.intervals import Uncertain as Uncertain
from autotts_jax.policies.player import Play, name_of
from autotts_jax.replay.dataset import ProbeDataset

ALL_MODELS = "mean of models"
"""Name of the rows that average the models of a benchmark."""


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

    Intervals hold 95 % and are over questions, each with its recorded branches (`Questions`). They and
    p-values are NaN where there are too few questions to claim anything.

    Attributes:
        model: the model, or `ALL_MODELS`.
        benchmark: the benchmark.
        controller: the controller's name.
        value: β, γ, number of branches, or None.
        baseline: the name of the setting that gains and ratios are against; the baseline's own gain is 0.
        accuracy: mean of 1{correct}, in 0 … 1.
        accuracy_low: lower end of its interval.
        accuracy_high: upper end of it.
        accuracy_se: its standard error over seeds, which more seeds make smaller; NaN with one seed.
        tokens: mean tokens per episode, those of probes included where they are counted.
        sequential_tokens: mean sequential tokens per episode.
        cost: mean cost of an episode, in the unit of the objective.
        objective: mean objective of an episode.
        objective_low: lower end of its interval.
        objective_high: upper end of it.
        objective_se: its standard error over seeds; NaN with one seed.
        gain: accuracy minus that of the baseline.
        gain_low: lower end of its interval.
        gain_high: upper end of it.
        gain_se: its standard error over seeds; NaN with one seed.
        gain_p: two-sided p-value of ``gain``, below 5 % where the interval leaves 0 out; NaN of the baseline.
        gain_p_adjusted: it, adjusted by Benjamini and Hochberg for the settings of this model and benchmark.
        gain_detectable: the smallest gain that as many questions, which differ as much, show in four of five
            tests at 5 %.
        objective_gain: objective minus that of the baseline.
        objective_gain_low: lower end of its interval.
        objective_gain_high: upper end of it.
        tokens_ratio: tokens over those of the baseline; NaN where these are 0.
        ratio_low: lower end of its interval.
        ratio_high: upper end of it.
        cost_ratio: the same of the cost.
        cost_ratio_low: lower end of its interval.
        cost_ratio_high: upper end of it.
    """

    model: str
    benchmark: str
    controller: str
    value: float | None
    baseline: str
    accuracy: float
    accuracy_low: float
    accuracy_high: float
    accuracy_se: float
    tokens: float
    sequential_tokens: float
    cost: float
    objective: float
    objective_low: float
    objective_high: float
    objective_se: float
    gain: float
    gain_low: float
    gain_high: float
    gain_se: float
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

    @property
    def cell(self) -> str:
        """The name of the model on the benchmark, ``model/benchmark``."""
        return f"{self.model}/{self.benchmark}"


@dataclasses.dataclass(frozen=True, eq=False)
class Setting:
    """The episodes of one setting of a player.

    Attributes:
        controller: the player's name.
        value: the setting's value.
        correct: 1{correct} of each episode.
        tokens: tokens of each.
        sequential_tokens: sequential tokens of each.
        cost: cost of each, in the unit of the objective.
    """

    controller: str
    value: float | None
    correct: Float[np.ndarray, "S Q"]
    tokens: Float[np.ndarray, "S Q"]
    sequential_tokens: Float[np.ndarray, "S Q"]
    cost: Float[np.ndarray, "S Q"]

    @property
    def name(self) -> str:
        """The name of the setting, ``controller@value``."""
        return name_of(self.controller, self.value)


def settings_of(
    dataset: ProbeDataset, plays: Sequence[Play], objective: Objective, probe_tokens: int = 0
) -> list[Setting]:
    """Gives the episodes of every setting of every player."""
    found = []
    for play in plays:
        tokens = play.tokens + probe_tokens * play.probes.astype(np.int64)
        cost = tokens if objective.model.kind == "tokens" else objective.cost(play, dataset)
        for index, value in enumerate(play.player.values):
            columns = (of[index] for of in (play.correct, tokens, play.sequential_tokens, cost))
            found.append(Setting(play.player.name, value, *columns))
    return found


def summarise(
    dataset: ProbeDataset, settings: Sequence[Setting], gamma: float, baseline: str | None = None
) -> Iterator[Row]:
    """Averages the episodes of each setting.

    Yields:
        One row for each benchmark, model and setting, then for each benchmark the mean of its models.
    """
    against = setting_named(settings, baseline)
    for benchmark, model, positions in groups(dataset):
        yield from _rows(dataset, settings, against, gamma, benchmark, model, positions)


def setting_named(settings: Sequence[Setting], name: str | None) -> Setting:
    """Finds a setting by its name.

    Raises:
        InputError: there is none of that name.
    """
    for setting in settings:
        if name in (None, setting.name):
            return setting
    names = ", ".join(setting.name for setting in settings)
    raise InputError(f"no setting is called {name!r:.80}; there are {names}")


def groups(dataset: ProbeDataset) -> Iterator[tuple[str, str, Int[np.ndarray, " Q"]]]:
    """Yields what has rows of its own: each benchmark and model, then the mean of the benchmark's models.

    Yields:
        The benchmark, the model or `ALL_MODELS`, and the positions of their questions.
    """
    cells = dataset.cells
    for benchmark in dict.fromkeys(cell.benchmark for cell in cells):
        members = [index for index, cell in enumerate(cells) if cell.benchmark == benchmark]
        for index in members:
            yield benchmark, cells[index].model, dataset.cell_questions(index)
        if len(members) > 1:
            yield benchmark, ALL_MODELS, np.concatenate([dataset.cell_questions(cell) for cell in members])


def questions_at(dataset: ProbeDataset, positions: Int[np.ndarray, " Q"]) -> Questions:
    """Takes some questions, of which every cell counts the same."""
    weight = equal_weights(np.asarray(dataset.matrix.cell)[positions])
    return Questions(weight, [dataset.questions[position].text for position in positions])


def _rows(
    dataset: ProbeDataset,
    settings: Sequence[Setting],
    against: Setting,
    gamma: float,
    benchmark: str,
    model: str,
    positions: Int[np.ndarray, " Q"],
) -> list[Row]:
    questions = questions_at(dataset, positions)

    def by_question(of: Setting, name: str) -> Float[np.ndarray, " Q"]:
        return getattr(of, name)[:, positions].mean(axis=0)

    def over_seeds(per_episode: Float[np.ndarray, "S Q"]) -> float:
        return standard_error(per_episode[:, positions] @ questions.weight)

    its_correct, its_tokens, its_cost = (by_question(against, name) for name in ("correct", "tokens", "cost"))
    rows: list[Row] = []
    for one in settings:
        correct, tokens, cost = (by_question(one, name) for name in ("correct", "tokens", "cost"))
        accuracy = questions.mean(correct)
        objective = questions.mean(correct, cost=gamma * cost)
        gain = questions.gain(correct - its_correct)
        objective_gain = questions.gain(correct - its_correct, cost=gamma * (cost - its_cost))
        tokens_ratio, cost_ratio = questions.ratio(tokens, its_tokens), questions.ratio(cost, its_cost)
        own = one is against
        rows.append(
            Row(
                model,
                benchmark,
                one.controller,
                one.value,
                against.name,
                accuracy.value,
                *accuracy.interval,
                accuracy_se=over_seeds(one.correct),
                tokens=float(tokens @ questions.weight),
                sequential_tokens=float(by_question(one, "sequential_tokens") @ questions.weight),
                cost=float(cost @ questions.weight),
                objective=objective.value,
                objective_low=objective.interval[0],
                objective_high=objective.interval[1],
                objective_se=over_seeds(one.correct - gamma * one.cost),
                gain=gain.value,
                gain_low=0.0 if own else gain.interval[0],
                gain_high=0.0 if own else gain.interval[1],
                gain_se=over_seeds(one.correct.astype(float) - against.correct),
                gain_p=math.nan if own else gain.p,
                gain_p_adjusted=math.nan,
                gain_detectable=math.nan if own else DETECTABLE * gain.se,
                objective_gain=objective_gain.value,
                objective_gain_low=0.0 if own else objective_gain.interval[0],
                objective_gain_high=0.0 if own else objective_gain.interval[1],
                tokens_ratio=tokens_ratio.value,
                ratio_low=tokens_ratio.interval[0],
                ratio_high=tokens_ratio.interval[1],
                cost_ratio=cost_ratio.value,
                cost_ratio_low=cost_ratio.interval[0],
                cost_ratio_high=cost_ratio.interval[1],
            )
        )
    tested = [index for index, one in enumerate(settings) if one is not against]
    adjusted = adjusted_p_values(np.array([rows[index].gain_p for index in tested]))
    for index, p in zip(tested, adjusted, strict=True):
        rows[index] = dataclasses.replace(rows[index], gain_p_adjusted=float(p))
    return rows


def standard_error(per_seed: np.ndarray) -> float:
    """Computes the standard error of the mean of per-seed values (S,); NaN with one seed."""
    if len(per_seed) < 2:
        return float("nan")
    return float(np.std(per_seed, ddof=1) / np.sqrt(len(per_seed)))
