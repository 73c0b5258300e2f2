"""The benchmark: fixed tasks, parts of the questions, and a normalised score for whoever can play."""

from __future__ import annotations

import dataclasses
import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, Float
from rich.console import RenderableType

from autotts_jax.checks import check_callback, check_choice, check_int, check_label, check_text, nearest
from autotts_jax.collect.loading import loaded
from autotts_jax.core.controller import Controller, Family
from autotts_jax.envs.environment import Environment, Observation
from autotts_jax.envs.making import find_environment, make
from autotts_jax.envs.params import branches_of_cells, gamma_range
from autotts_jax.envs.registry import TASK_SETTINGS
from autotts_jax.errors import InputError
from autotts_jax.experiments.evaluation import Evaluation, OnProgress, evaluate, warn_of_refusal
from autotts_jax.experiments.files import (
    FILES,
    MANIFEST,
    results_folder,
    rows_table,
    write_csv,
    write_manifest,
)
from autotts_jax.experiments.random_play import RandomPlayer
from autotts_jax.experiments.summary import Objective, questions_at, standard_error
from autotts_jax.experiments.tables import Table, add_row, difference, numbers_table, thousands
from autotts_jax.intervals import Uncertain, equal_weights
from autotts_jax.policies.player import Play, Player, name_of
from autotts_jax.policies.players import CONTROLLERS, NEURAL, as_player
from autotts_jax.policies.sealed.worker_pool import SEALED, Sealing
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.replay.parts import PARTS, part_of
from autotts_jax.sandbox.process import SandboxError
from autotts_jax.terminal import counted_branches, styled

PUBLISHED = ("sc", "asc", "esc", "parallel-probe", "cmc")
"""The published controllers; the best of them has score 1."""

LOWEST, BEST = "sc@1", "published"
"""Names of the entries with score 0 and score 1."""

REFERENCE = "reference "
"""What the names of players begin with that nobody asked for."""

TUNED = " tuned"
"""What the names of players end with whose setting is chosen."""

RANDOM = "random"
"""Name of the agent that plays admissible actions at random."""

SEEDS = 20
"""Branch orders that each question is played under, …"""

FEWEST_SEEDS = 5
"""… and the fewest of them, and of training seeds of a learner."""

GAMMAS = 5
"""Values of γ that stand for a range."""


@dataclasses.dataclass(frozen=True)
class Task:
    """What is played: data, width, γ, and what agents see and do.

    Attributes:
        name: the name.
        data: name of the embedded data; None where whoever plays it names files.
        max_branches: W, branches that an episode can open.
        gamma: least and largest γ, the price of an interval; equal where it is fixed.
        environment: the id of the environment that agents play in.
        steps: environment steps at which sample efficiency is reported.

    Raises:
        InputError: one of them is something else, or out of range.
    """

    name: str
    data: str | None
    max_branches: int
    gamma: tuple[float, float]
    environment: str
    steps: tuple[int, ...]

    def __post_init__(self) -> None:
        check_label("a task's name", self.name)
        if self.data is not None:
            check_text(f"the data of task {self.name!r}", self.data)
        check_int("max_branches", self.max_branches, 1)
        if not isinstance(self.gamma, tuple) or len(self.gamma) != 2:
            raise InputError(f"gamma is {self.gamma!r:.60}, but it must be the least and the largest γ")
        gamma_range(self.gamma)
        find_environment(self.environment)
        if not isinstance(self.steps, tuple):
            raise InputError(f"steps is {self.steps!r:.60}, but it must be a tuple of whole numbers")
        for steps in self.steps:
            check_int("an entry of steps", steps, 1)

    @property
    def gammas(self) -> tuple[float, ...]:
        """The values of γ that the objective is averaged over."""
        low, high = self.gamma
        return (low,) if low == high else tuple(np.geomspace(low, high, GAMMAS).tolist())

    def load(self, data: ProbeDataset | str | Path | Sequence[str | Path] | None = None) -> ProbeDataset:
        """Loads the questions of all parts.

        Args:
            data: a dataset, or what `autotts_jax.load` takes, for a task without data of its own.

        Returns:
            The questions.

        Raises:
            InputError: the task has data of its own and other data is given, or it has none and none is, or
                the data has too few branches.
        """
        dataset = loaded(self._data(data))
        if (branches := branches_of_cells(dataset.matrix).min()) < self.max_branches:
            raise InputError(
                f"the data has {counted_branches(branches)} a question, fewer than the {self.max_branches} "
                f"of the task {self.name!r}; give other data"
            )
        return dataset

    def settings(
        self,
        part: str = "train",
        data: ProbeDataset | str | Path | Sequence[str | Path] | None = None,
        obs: str = "features",
    ) -> dict[str, Any]:
        """Gives the settings of the task's environment, for `gymnasium.make`, `sb3_vec_env` or `make`.

        They are plain JSON where the data is named.

        Args:
            part: the questions that episodes are drawn from, a key of `autotts_jax.replay.PARTS`.
            data: see `load`.
            obs: what agents see, see `Environment`; with ``flat`` one vector, which has no action mask.

        Returns:
            ``data``, ``part``, ``max_branches``, ``gamma``, ``obs`` and ``mask_in_obs``.

        Raises:
            InputError: there is no such part, or see `load`.
        """
        return {
            "data": self._data(data),
            "part": check_choice("part", part, PARTS),
            "max_branches": self.max_branches,
            "gamma": list(self.gamma),
            "obs": obs,
            "mask_in_obs": obs != "flat",
        }

    def _data(
        self, data: ProbeDataset | str | Path | Sequence[str | Path] | None
    ) -> ProbeDataset | str | Path | Sequence[str | Path]:
        if (data is None) == (self.data is None):
            raise InputError(
                f"task {self.name!r} needs data; give the files of recorded matrices"
                if data is None
                else f"task {self.name!r} has data of its own, {self.data}; leave the other data out"
            )
        found = self.data if data is None else data
        assert found is not None
        return found


ROUNDS = "WidthDepthRounds-v0"


def _registered(name: str, steps: tuple[int, ...]) -> Task:
    """A task that has ids of its own."""
    settings = TASK_SETTINGS[name]
    low, high = settings["gamma"]
    return Task(name, settings["data"], settings["max_branches"], (low, high), ROUNDS, steps)


TASKS: Mapping[str, Task] = {
    task.name: task
    for task in (
        _registered("laptop", (10_000, 100_000, 1_000_000)),
        _registered("easy", (10_000, 100_000, 1_000_000)),
        _registered("medium", (10_000, 100_000, 1_000_000)),
        _registered("hard", (10_000, 100_000, 1_000_000)),
        _registered("arithmetic", (100_000, 1_000_000, 10_000_000)),
        _registered("frontier", (100_000, 1_000_000, 10_000_000)),
        Task("recorded", None, 64, (1e-5, 3e-4), ROUNDS, (100_000, 1_000_000, 10_000_000)),
    )
}
"""The tasks by name."""


class Agent:
    """Anything that turns a batch of observations into actions, as a policy for `evaluate` and `bench`.

    Args:
        act: a function of the observations of a Gymnasium vector environment that returns its actions, as
            ``jax.jit(jax.vmap(f))`` for a function f of one observation; or a model with the ``predict`` of
            Stable-Baselines3.
        env: the functional environment that it plays in, as `autotts_jax.make` returns it.

    Raises:
        InputError: one of them is something else.
    """

    def __init__(self, act: Any, env: Environment):
        self._predict = getattr(act, "predict", None)
        if self._predict is None:
            if act is None:
                raise InputError("act is None, but it must be a function of observations, or a model")
            check_callback("act", act, "observations")
        elif not callable(self._predict):
            raise InputError(f"the predict of act is {self._predict!r:.60}, but it must be a method")
        if not isinstance(env, Environment):
            raise InputError(
                f"env is {env!r:.60}, but it must be an environment, as autotts_jax.make returns it first"
            )
        self.env = env
        self._act = act
        takes = inspect.signature(self._predict).parameters if self._predict else {}
        self._takes_masks = "action_masks" in takes

    def __repr__(self) -> str:
        acting = getattr(self._act, "__name__", type(self._act).__name__)
        return f"Agent({acting}) in {type(self.env).__name__} with {self.env.max_branches} branches"

    def predict(
        self,
        observation: Observation,
        state: Any = None,
        episode_start: Bool[np.ndarray, " L"] | None = None,
        deterministic: bool = False,
        action_masks: Bool[np.ndarray, "L A"] | None = None,
    ) -> tuple[Any, Any]:
        """Decides for a batch of L episodes, as `autotts_jax.policies.HostPolicy` does.

        Args:
            observation: the observations, as in Gymnasium.
            state: what the model remembers; passed on to it.
            episode_start: where an episode begins; passed on.
            deterministic: whether to play the likeliest action; passed on.
            action_masks: the action masks; passed on to a ``predict`` that has an argument of this name.

        Returns:
            The actions, and what the model remembers from now on.
        """
        if self._predict is None:
            return np.asarray(self._act(observation)), None
        masks = {"action_masks": action_masks} if self._takes_masks else {}
        return self._predict(
            observation, state=state, episode_start=episode_start, deterministic=deterministic, **masks
        )


@dataclasses.dataclass(frozen=True)
class Score:
    """What an entry came to on a task, averaged over γ.

    Attributes:
        name: the entry.
        steps: environment steps that a learner was trained for; None where that is not said.
        training_seeds: policies that a learner brought, one of each training seed; 0 for controllers.
        setting: the settings that were chosen on ``train`` and ``validation``, by γ; empty without a choice.
        objective: mean objective of an episode.
        objective_se: standard error of it over training seeds, where there are several, or branch orders.
        score: 0 for SC@1, and 1 for the best published controller; NaN where that is no better than SC@1.
        score_low: lower end of its 95 % interval over questions and seeds; that of SC@1 itself is 0.
        score_high: upper end of it.
        gain: objective minus that of the baseline, whose own gain is 0, as are the ends of its interval.
        gain_low: lower end of its 95 % interval over questions and seeds.
        gain_high: upper end of it.
        accuracy: mean of 1{correct}, in 0 … 1.
        tokens: mean tokens of an episode.
    """

    name: str
    steps: int | None
    training_seeds: int
    setting: str
    objective: float
    objective_se: float
    score: float
    score_low: float
    score_high: float
    gain: float
    gain_low: float
    gain_high: float
    accuracy: float
    tokens: float


@dataclasses.dataclass(frozen=True, eq=False)
class Benchmark:
    """What `bench` has measured.

    Attributes:
        task: the task.
        part: the questions that were scored.
        questions: number of distinct questions among them.
        scores: SC@1, the best published controller, and every entry that was not refused.
        evaluation: the episodes, of all parts.
        baseline: name of the entry that gains are measured over.
    """

    task: Task
    part: str
    questions: int
    scores: tuple[Score, ...]
    evaluation: Evaluation
    baseline: str = BEST

    def table(self) -> Table:
        """Shows the scores.

        Returns:
            A table that prints in 80 columns and that a notebook shows.
        """
        return Table(self._parts)

    def summary(self) -> pa.Table:
        """Gives the scores.

        Returns:
            An Arrow table with the attributes of `Score` as columns.
        """
        return rows_table(Score, self.scores)

    def save(self, folder: str | Path) -> list[Path]:
        """Writes ``scores.csv`` and ``manifest.json``; they replace the files of an evaluation.

        Args:
            folder: where to write them; made if need be.

        Returns:
            The files.

        Raises:
            InputError: the folder cannot be written to, or holds what no evaluation has written.
        """
        manifest = self.evaluation.manifest() | {
            "task": dataclasses.asdict(self.task),
            "part": self.part,
            "baseline": self.baseline,
        }
        with results_folder(folder, FILES) as partial:
            write_csv(partial / "scores.csv", self.summary())
            write_manifest(partial, manifest)
        return [Path(folder) / name for name in ("scores.csv", MANIFEST)]

    def __repr__(self) -> str:
        return f"Benchmark {self.task.name}, {self.part}: {', '.join(score.name for score in self.scores)}"

    def _repr_html_(self) -> str:
        return self.table().html()

    def _parts(self, _: int) -> Iterator[RenderableType]:
        low, high = self.task.gamma
        gamma = f"{low:g}" if low == high else f"{low:g} … {high:g}"
        title = f"{self.task.name}, {self.part}: {self.questions} questions, γ = {gamma}"
        over = "best" if self.baseline == BEST else self.baseline
        table = numbers_table(title, ["objective", "ktokens", "score, 95 %", f"Δ {over}, 95 %"])
        for one in self.scores:
            score = f"{one.score:z.2f}"
            if one.score_low != one.score_high:  # they are equal where it is compared with itself
                score += f" [{one.score_low:z.2f}, {one.score_high:z.2f}]"
            add_row(
                table,
                _shown(one.name, one.steps),
                f"{one.objective:z.3f} ± {one.objective_se:.3f}",
                thousands(one.tokens),
                "" if np.isnan(one.score) else score,
                "" if one.gain_low == one.gain_high else difference(one.gain, one.gain_low, one.gain_high),
            )
        yield table
        yield styled(
            "objective: mean of 1{correct} - γ·cost ± standard error over seeds; score: 0 for\n"
            f"sc@1, 1 for the best published controller; Δ {over}: gain in objective over "
            f"{'it' if self.baseline == BEST else over};\n"
            "95 % intervals over questions and seeds",
            "dim",
            lines=True,
        )
        if np.isnan(self.scores[1].score):
            yield styled("there are no scores, for here the best published controller is no better", "dim")
        for one in self.scores:
            if one.setting:
                yield styled(f"{one.name}: {one.setting}, chosen on train and validation", "dim")
            if one.training_seeds:
                said = f"{one.training_seeds} training seed{'s' * (one.training_seeds > 1)}"
                said += f", fewer than {FEWEST_SEEDS}" * (one.training_seeds < FEWEST_SEEDS)
                if self.task.steps and one.steps not in (None, *self.task.steps):
                    said += f"; not comparable with {', '.join(map(_short, self.task.steps))} steps"
                yield styled(f"{_shown(one.name, one.steps)}: {said}", "dim")


_Choice = tuple[Play, int]
"""A play, and one of its settings."""

_Runs = Sequence[Sequence[Sequence[Play]]]
"""Plays to choose a setting from, for each training seed and γ, or for each training seed and all γ."""


class _Played(NamedTuple):
    """What an entry has played; ``training_seeds`` as in `Score`."""

    name: str
    steps: int | None
    runs: _Runs
    training_seeds: int = 0


class _Worth(NamedTuple):
    """The scored episodes, averaged over γ.

    Attributes:
        correct: 1{correct}. Shape (R, S, Q).
        cost: γ·C. Shape (R, S, Q).
        settings: the names of the settings.
    """

    correct: np.ndarray
    cost: np.ndarray
    settings: list[str]

    @property
    def objective(self) -> np.ndarray:
        """1{correct} - γ·C."""
        return self.correct - self.cost

    def equals(self, other: _Worth) -> bool:
        """Whether these are episodes of the same settings."""
        same = np.array_equal(self.correct, other.correct) and np.array_equal(self.cost, other.cost)
        return same and self.settings == other.settings


@dataclasses.dataclass(frozen=True)
class _Entry:
    """Who is scored: for each training seed, a player for each γ, or one for all.

    Attributes:
        name: the name in results.
        steps: environment steps that it was trained for, if it says so.
        runs: the players of each training seed.
        learned: whether these are policies that somebody trained.
    """

    name: str
    steps: int | None
    runs: tuple[tuple[Player, ...], ...]
    learned: bool


def bench(
    task: str | Task = "laptop",
    players: Any = (),
    *,
    data: ProbeDataset | str | Path | Sequence[str | Path] | None = None,
    part: str = "test",
    seeds: int = SEEDS,
    baseline: str = BEST,
    sealing: Sealing = SEALED,
    on_progress: OnProgress | None = None,
) -> Benchmark:
    """Scores players on a task: 0 is what SC@1 reaches, and 1 what the best published controller does.

    Everybody plays the same episodes, by `evaluate`. What has several settings, as the families of the
    published controllers, has its setting chosen for each γ on the questions of ``train`` and ``validation``.

    Args:
        task: a key of `TASKS`, or a task of one's own.
        players: a player or several, or a mapping of names to players. A player is what `evaluate` takes;
            ``"random"``; ``"neural"`` or another policy without γ, which is shown the γ of the task; or an
            agent: a function of the observations of the task's vector environment, or a model with
            ``predict`` (see `Agent`). In a mapping, a list of players are the policies of several training
            seeds, and a mapping of numbers of environment steps to such are those of several lengths.
        data: the questions of a task that has none of its own; see `autotts_jax.load`.
        part: the questions that are scored, ``train``, ``validation`` or ``test``.
        seeds: branch orders that each question is played under, seeds 0 … S - 1; at least 5.
        baseline: name of the entry that gains are measured over: ``published``, ``sc@1`` or one of
            ``players`` without training seeds.
        sealing: how code from files and modules is run; see `evaluate`.
        on_progress: see `evaluate`.

    Returns:
        The scores: ``table()``, ``summary()`` and ``save(folder)``.

    Raises:
        InputError: there is no such task or part, the arguments do not fit together, or a player failed.

    Example:
        >>> import autotts_jax as at
        >>> result = at.bench("laptop", ["sc@8"], seeds=5)
        >>> [score.name for score in result.scores]
        ['sc@1', 'published', 'sc@8']
    """
    if not isinstance(task, Task):
        task = TASKS[check_choice("task", task, TASKS)]
    check_choice("part", part, PARTS)
    seeds = check_int("seeds", seeds, FEWEST_SEEDS)
    dataset = task.load(data)
    parts = part_of(dataset)
    published = [family for name in PUBLISHED if (family := _family(name, task)).values]
    lowest = as_player(dataclasses.replace(CONTROLLERS["sc"], name=f"{REFERENCE}lowest", values=(1,)))
    references = [
        as_player(dataclasses.replace(family, name=f"{REFERENCE}{family.name}")) for family in published
    ]
    refused: dict[str, str] = {}
    entries = list(_entries(players, task, dataset, sealing, refused))
    _check_names(entries)
    over = _baseline(baseline, entries)
    evaluation = evaluate(
        dataset,
        [
            lowest,
            *references,
            *(player for entry in entries for run in entry.runs for player in run),
        ],
        seeds=seeds,
        max_branches=task.max_branches,
        objective=Objective(task.gammas[0]),
        sealing=sealing,
        on_progress=on_progress,
    )
    evaluation = dataclasses.replace(evaluation, refused=refused | dict(evaluation.refused))
    plays = {id(play.player): play for play in evaluation.plays}
    low, best = [[[plays[id(lowest)]]]], [[[plays[id(reference)] for reference in references]]]
    played: list[_Played | None] = [_Played(LOWEST, None, low), _Played(BEST, None, best)]
    for entry in entries:
        if all(id(player) in plays for run in entry.runs for player in run):
            runs = [[[plays[id(player)]] for player in run] for run in entry.runs]
            played.append(_Played(entry.name, entry.steps, runs, len(runs) if entry.learned else 0))
        else:
            played.append(None)  # it was refused
    of_baseline = played[over]
    if of_baseline is None:
        raise InputError(f"the baseline {baseline} has no results; choose another one")
    measure = _Measure(dataset, task, parts, part, low, best, of_baseline.runs)
    scores = tuple(measure.score(one) for one in played if one is not None)
    return Benchmark(task, part, measure.questions, scores, evaluation, baseline)


def _check_names(entries: Sequence[_Entry]) -> None:
    """Checks that the rows of the table can be told apart."""
    counts = Counter((entry.name, entry.steps) for entry in entries)
    if twice := [_shown(*row) for row, count in counts.items() if count > 1]:
        raise InputError(f"{', '.join(twice)}: given more than once; name your own, as {{'mine': agent}}")


def _baseline(name: str, entries: Sequence[_Entry]) -> int:
    """Finds the place of the baseline after SC@1, the best published controller and the entries."""
    names = [entry.name for entry in entries]
    fixed = {LOWEST: 0, BEST: 1}
    for index, entry in enumerate(entries, 2):
        if len(entry.runs) == 1 and names.count(entry.name) == 1:
            fixed.setdefault(entry.name, index)
    if name not in tuple(fixed):
        raise InputError(
            f"baseline is {name!r}, but it must be {LOWEST}, {BEST} or an entry with one training seed and "
            f"one length; {nearest(name, fixed)}"
        )
    return fixed[name]


class _Measure:
    """Scores plays on the questions of a part, with settings chosen on ``train`` and ``validation``."""

    def __init__(
        self,
        dataset: ProbeDataset,
        task: Task,
        parts: np.ndarray,
        part: str,
        low: _Runs,
        best: _Runs,
        baseline: _Runs,
    ):
        cell = np.asarray(dataset.matrix.cell)
        self._dataset = dataset
        self._gammas = task.gammas
        self._known, self._scored = np.flatnonzero(parts != "test"), np.flatnonzero(parts == part)
        self._known_weight = equal_weights(cell[self._known])
        self._over = questions_at(dataset, self._scored)
        worths = (self._worth(self._chosen(runs)) for runs in (low, best, baseline))
        self._low, best_worth, self._baseline = worths
        self._unit = self._mean(best_worth.objective) - self._mean(self._low.objective)

    @property
    def questions(self) -> int:
        """Number of distinct questions that are scored."""
        return self._over.number

    def score(self, played: _Played) -> Score:
        """Scores what was played by each training seed for each γ."""
        name, steps, runs, training_seeds = played
        chosen = self._chosen(runs)
        worth = self._worth(chosen)
        by_seed = worth.objective @ self._over.weight
        unit = self._unit if self._unit > 0 else np.nan
        over_low, gain = self._gain(worth, self._low), self._gain(worth, self._baseline)
        several = any(len(play.player.values) > 1 for run in runs for plays in run for play in plays)
        return Score(
            name=name,
            steps=steps,
            training_seeds=training_seeds,
            setting=", ".join(dict.fromkeys(worth.settings)) if several else "",
            objective=self._mean(worth.objective),
            objective_se=standard_error(by_seed.mean(axis=1) if len(runs) > 1 else by_seed[0]),
            score=over_low.value / unit,
            score_low=over_low.interval[0] / unit,
            score_high=over_low.interval[1] / unit,
            gain=gain.value,
            gain_low=gain.interval[0],
            gain_high=gain.interval[1],
            accuracy=self._mean(worth.correct),
            tokens=self._mean(self._average(chosen, lambda play, _: play.tokens)),
        )

    def _chosen(self, runs: _Runs) -> list[list[_Choice]]:
        """The best play and setting of each training seed for each γ."""
        return [
            [self._choose(run[index % len(run)], gamma) for index, gamma in enumerate(self._gammas)]
            for run in runs
        ]

    def _choose(self, plays: Sequence[Play], gamma: float) -> _Choice:
        """The setting with the best objective at a γ on the questions of ``train`` and ``validation``."""
        choices = [(play, index) for play in plays for index in range(len(play.player.values))]
        if len(choices) == 1:
            return choices[0]
        objective = Objective(gamma)
        worth = [
            objective.of(play, self._dataset)[index][:, self._known].mean(axis=0) @ self._known_weight
            for play, index in choices
        ]
        return choices[int(np.argmax(worth))]

    def _worth(self, chosen: list[list[_Choice]]) -> _Worth:
        def cost(play: Play, gamma: float) -> np.ndarray:
            return gamma * Objective(gamma).cost(play, self._dataset)

        correct = self._average(chosen, lambda play, _: play.correct)
        settings = [_name(play, index) for choices in chosen for play, index in choices]
        return _Worth(correct, self._average(chosen, cost), settings)

    def _average(
        self, chosen: list[list[_Choice]], column: Callable[[Play, float], np.ndarray]
    ) -> Float[np.ndarray, "R S Q"]:
        """A column of the scored episodes, averaged over γ."""
        by_gamma = [
            [column(play, gamma)[index] for (play, index), gamma in zip(choices, self._gammas, strict=True)]
            for choices in chosen
        ]
        return np.mean(by_gamma, axis=1)[..., self._scored]

    def _mean(self, values: Float[np.ndarray, "R S Q"]) -> float:
        return float(values.mean(axis=(0, 1)) @ self._over.weight)

    def _gain(self, mine: _Worth, its: _Worth) -> Uncertain:
        if mine.equals(its):
            return Uncertain(0.0, np.zeros(1))  # it is compared with itself
        return self._over.gain(mine.correct - its.correct, mine.cost - its.cost)


def _shown(name: str, steps: int | None) -> str:
    """Writes a name with the environment steps."""
    return name if steps is None else f"{name}/{_short(steps)}"


def _short(steps: int) -> str:
    """Writes environment steps, in thousands or millions where these are a multiple."""
    for unit, letter in ((1_000_000, "M"), (1_000, "k")):
        if steps % unit == 0:
            return f"{steps // unit}{letter}"
    return str(steps)


def _name(play: Play, index: int) -> str:
    return name_of(play.player.name.removeprefix(REFERENCE).removesuffix(TUNED), play.player.values[index])


def _family(name: str, task: Task) -> Family:
    """A family of controllers, with the settings that a task has branches for."""
    family = CONTROLLERS[name]
    if family.value_name != "branches":
        return family
    values = tuple(value for value in family.values if value <= task.max_branches)
    return dataclasses.replace(family, values=values)


def _entries(
    players: Any, task: Task, dataset: ProbeDataset, sealing: Sealing, refused: MutableMapping[str, str]
) -> Iterator[_Entry]:
    """Yields whom a user gives, with names that tell them apart, but for those whose code does not load."""
    env, _ = make(task.environment, dataset, max_branches=task.max_branches, mask_in_obs=True)
    for name, steps, specs, learned in _named(players):
        learned = learned or any(map(_is_policy, specs))
        if len(specs) == 1 and isinstance(specs[0], str) and specs[0] == RANDOM:
            specs = [RandomPlayer(env, seed) for seed in range(FEWEST_SEEDS)]
            name, learned = name or RANDOM, True
        try:
            runs = [_by_gamma(spec, task, env, sealing) for spec in specs]
        except SandboxError as error:
            refused[name or str(specs[0])] = str(error)
            warn_of_refusal(name or str(specs[0]), error)
            continue
        shown = name or (specs[0] if isinstance(specs[0], str) else runs[0][0].name)
        for seed, run in enumerate(runs):
            for index, player in enumerate(run):
                if player.width not in (None, task.max_branches):
                    raise InputError(
                        f"{shown} opens {player.width} branches in its environment, but task {task.name!r} "
                        f"has {task.max_branches}; give it an environment of as many"
                    )
                own = name or player.name
                own += f" at {steps} steps" if steps is not None else ""
                own += TUNED if len(player.values) > 1 else ""
                own += f" of seed {seed}" if len(runs) > 1 else ""
                own += f" for γ {task.gammas[index]:g}" if len(run) > 1 else ""
                if own != player.name:
                    run[index] = dataclasses.replace(player, name=own)  # type: ignore[type-var]
        yield _Entry(shown, steps, tuple(map(tuple, runs)), learned)


def _named(players: Any) -> Iterator[tuple[str | None, int | None, Sequence[Any], bool]]:
    """Yields name, steps and players of whom a user gives, and whether these are of training seeds."""
    if isinstance(players, list | tuple):
        for one in players:
            yield from _named(one)
    elif isinstance(players, Mapping):
        for name, given in players.items():
            if check_label("the name of an entry", name) in (LOWEST, BEST):
                raise InputError(f"an entry is called {name}, but so is a reference; give it another name")
            lengths = given if isinstance(given, Mapping) else {None: given}
            listed = {
                steps: specs if isinstance(specs, list | tuple) else [specs]
                for steps, specs in lengths.items()
            }
            if not listed or not all(listed.values()):
                raise InputError(f"{name} has no policies; give one of each training seed")
            for steps, specs in listed.items():
                if len({spec if isinstance(spec, str) else id(spec) for spec in specs}) < len(specs):
                    raise InputError(f"{name} has a policy twice; give one of each training seed")
                trained = specs is lengths[steps]  # a list
                if steps is not None:
                    trained, steps = True, check_int(f"the steps that {name} was trained for", steps, 1)
                yield name, steps, specs, trained
    else:
        yield None, None, [players], False


def _by_gamma(spec: Any, task: Task, env: Environment, sealing: Sealing) -> list[Player]:
    """Makes a player for each γ of a task, or one for all if it does not depend on γ."""
    if isinstance(spec, str):
        last = spec.rpartition(":")[2]
        if spec in CONTROLLERS:
            spec = _family(spec, task)
        elif spec.partition(":")[0] == NEURAL and "@" not in last:
            return [as_player(f"{spec}@{gamma!r}") for gamma in task.gammas]
        elif "@" in last:
            return [as_player(spec, sealing=sealing)]
    if isinstance(spec, Player | Controller | Family):
        return [as_player(spec)]
    if _is_agent(spec):
        spec = Agent(spec, env)
    return [as_player(spec, gamma=gamma, sealing=sealing) for gamma in task.gammas]


def _is_policy(spec: Any) -> bool:
    """Whether something is an object that plays in an environment."""
    return isinstance(getattr(spec, "env", None), Environment) or _is_agent(spec)


def _is_agent(spec: Any) -> bool:
    """Whether something is a function of observations, or a model without an environment of this package."""
    if isinstance(spec, str | type) or isinstance(getattr(spec, "env", None), Environment):
        return False
    if hasattr(spec, "predict"):
        return True
    # A function without parameters makes a policy, as everywhere.
    return callable(spec) and bool(inspect.signature(spec).parameters)
