"""Evaluation: players over questions and seeds, on the same episodes."""

from __future__ import annotations

import dataclasses
import functools
import platform
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from autotts_jax import figures
from autotts_jax.checks import check_callback, check_choice, check_float, check_int
from autotts_jax.collect.loading import loaded
from autotts_jax.commands import without_secrets
from autotts_jax.core.costs import CostModel
from autotts_jax.core.devices import usable_cores
from autotts_jax.core.forks import refuse_forks
from autotts_jax.core.pool import ReplayPool
from autotts_jax.core.rollout import ROUND_LIMIT, check_budget
from autotts_jax.core.view import StopReason, View
from autotts_jax.errors import InputError, InputWarning
from autotts_jax.experiments import plots
from autotts_jax.experiments.choosing import Chosen, choose
from autotts_jax.experiments.files import (
    FILES,
    PAIRED_COLUMNS,
    SUMMARY_COLUMNS,
    episodes_table,
    results_folder,
    rows_table,
    write_csv,
    write_manifest,
)
from autotts_jax.experiments.frontier import Comparison, compare
from autotts_jax.experiments.report.charts import frontiers
from autotts_jax.experiments.report.evaluation import evaluation_report
from autotts_jax.experiments.summary import (
    DEFAULT_OBJECTIVE,
    Objective,
    Row,
    Setting,
    groups,
    questions_at,
    setting_named,
    settings_of,
    summarise,
)
from autotts_jax.experiments.tables import Table, comparison_table, summary_table
from autotts_jax.pages import rendering
from autotts_jax.pages.notebook import shown
from autotts_jax.policies.early_stopping import WINDOW
from autotts_jax.policies.player import Play, Player, fitting, warn_of_distance
from autotts_jax.policies.players import all_refused, as_players
from autotts_jax.policies.sealed.player import SealedPlayer
from autotts_jax.policies.sealed.program import ProgramPlayer
from autotts_jax.policies.sealed.worker_pool import SEALED, Sealing
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.replay.matrix import ProbeMatrix
from autotts_jax.replay.orders import BranchOrders, paper64_orders, repo100_orders
from autotts_jax.replay.scale import Scale
from autotts_jax.replay.signals import keep_signals
from autotts_jax.terminal import counted_branches

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_SEED = 2**32 - 1
"""The largest seed of a branch order."""

MAX_BRANCHES = 64
"""The most branches that an episode opens where nothing else is asked for."""

MAX_SEEDS = 1_000_000
"""The most seeds of an evaluation; their episodes are kept in memory."""

PROTOCOLS = {"repo100": 100, "paper64": 64}
"""Resampling protocols and their number of seeds."""

OnProgress = Callable[[str, int, int], None]
"""Called with what is running, how many of its episodes have ended, and how many it has, 0 for unknown."""


@dataclasses.dataclass(frozen=True)
class Frontiers:
    """How accuracy grows with cost: the settings of an evaluation, and swept controllers on equal terms.

    Attributes:
        rows: every setting on every model and benchmark.
        comparisons: every swept controller against every setting of the reference controller; empty where
            fewer than two controllers were swept over two values or more.
    """

    rows: tuple[Row, ...]
    comparisons: tuple[Comparison, ...]

    def table(self) -> Table:
        """Shows the comparisons, those of a benchmark by the mean of its models.

        Returns:
            A table that prints in 80 columns and that a notebook shows; without comparisons it says so.
        """
        return comparison_table(self.comparisons)

    def summary(self) -> pa.Table:
        """Gives the comparisons.

        Returns:
            An Arrow table with the attributes of `Comparison` as columns.
        """
        return rows_table(Comparison, self.comparisons)

    def _repr_html_(self) -> str:
        return shown(self.table().html(), lambda: frontiers(self.rows))


@dataclasses.dataclass(frozen=True, eq=False)
class Evaluation:
    """What `evaluate` played: tables, data frames, frontiers and files of it.

    ``dataclasses.replace(result, objective=Objective(1e-3))`` is the same evaluation under another objective.
    What ``latency`` and ``kv`` depend on is counted only where `evaluate` is asked for them.

    Attributes:
        dataset: the questions.
        plays: the episodes of each player.
        seeds: S, seeds 0 … S - 1.
        protocol: how branch orders were drawn from a seed.
        max_branches: W, branches that an episode could open.
        budget: token budget of an episode; None for no limit.
        objective: what an episode is worth in tables and files.
        baseline: name of the setting that gains and ratios are against; None for the first.
        probe_tokens: tokens that a probe adds to those of an episode, in tables and files.
        refused: what was wrong with players that have no results, by name: sealed code that failed or broke
            a limit.
    """

    dataset: ProbeDataset
    plays: tuple[Play, ...]
    seeds: int
    protocol: str = "repo100"
    max_branches: int = 64
    budget: int | None = None
    objective: Objective = DEFAULT_OBJECTIVE
    baseline: str | None = None
    probe_tokens: int = 0
    refused: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_objective(self.objective)

    @functools.cached_property
    def rows(self) -> tuple[Row, ...]:
        """One row for each benchmark, model and setting, then for each benchmark the mean of its models."""
        return tuple(summarise(self.dataset, self._settings, self.objective.gamma, self.baseline))

    @functools.cached_property
    def _settings(self) -> list[Setting]:
        return settings_of(self.dataset, self.plays, self.objective, self.probe_tokens)

    def table(self) -> Table:
        """Shows accuracy, tokens, cost and objective of each setting, with the gain over the first one.

        Where the evaluation has a baseline, the gain is over that, and the ratio of tokens is shown as well.

        Returns:
            A table that prints in 80 columns and that a notebook shows.
        """
        return summary_table(
            self.rows, self.plays, self.objective.model.kind, ratios=self.baseline is not None
        )

    def summary(self) -> pa.Table:
        """Gives the mean accuracy, cost and objective of each setting, one row a setting and model.

        Returns:
            An Arrow table with the columns of ``summary.csv``; ``.to_pandas()`` makes it a data frame.
        """
        return rows_table(SUMMARY_COLUMNS, self.rows)

    def paired(self, setting: str | None = None, baseline: str | None = None) -> pa.Table:
        """Gives what settings gain in accuracy and objective over another, with 95 % intervals.

        Args:
            setting: name of the setting, as ``cmc@0.5``; None for all.
            baseline: name of the other; None for that of the evaluation.

        Returns:
            An Arrow table with the columns of ``paired.csv``, one row a setting and model.

        Raises:
            InputError: there is no setting of that name.
        """
        rows: Sequence[Row] = self.rows
        if baseline is not None:
            rows = tuple(summarise(self.dataset, self._settings, self.objective.gamma, baseline))
        if setting is not None:
            name = setting_named(self._settings, setting).name
            rows = [row for row in rows if row.name == name]
        return rows_table(PAIRED_COLUMNS, rows)

    def choose(self, on: str | None = None) -> Chosen:
        """Chooses the setting of every swept controller on other questions than those it is judged on.

        For each model the setting is chosen that has the best objective.

        Args:
            on: the benchmark to choose on; the others judge. None for cross-fitting: the questions are dealt
                out to `FOLDS` folds, and each is judged with the setting that the other folds choose.

        Returns:
            The results with one setting a controller: ``table()`` and ``summary()``.

        Raises:
            InputError: there is no such benchmark, or no other.
        """
        return choose(self.dataset, self._settings, self.objective.gamma, self.rows[0].baseline, on)

    def power(self, gain: float) -> pa.Table:
        """Says how many questions it takes to tell a gain in accuracy over the baseline.

        Args:
            gain: the gain, at least 1e-6 and at most 1, as 0.02 for 2 points.

        Returns:
            An Arrow table with the columns ``model``, ``benchmark``, ``controller``, ``value`` and
            ``questions``: as many questions, which differ as much as the recorded ones, show the gain in four
            of five tests at 5 %; null where too few are recorded.

        Raises:
            InputError: the gain is not within its range.
        """
        gain = check_float("the gain", gain, least=1e-6, most=1)
        against = setting_named(self._settings, self.baseline)
        found = []
        for benchmark, model, positions in groups(self.dataset):
            questions = questions_at(self.dataset, positions)
            for one in self._settings:
                if one is not against:
                    gains = (one.correct.astype(float) - against.correct).mean(axis=0)[positions]
                    found.append((model, benchmark, one.controller, one.value, questions.needed(gains, gain)))
        kinds = (pa.string(), pa.string(), pa.string(), pa.float64(), pa.int64())
        names = ("model", "benchmark", "controller", "value", "questions")
        columns = zip(*found, strict=True) if found else [()] * len(names)
        return pa.table(
            {name: pa.array(column, kind) for name, column, kind in zip(names, columns, kinds, strict=True)}
        )

    def episodes(self) -> pa.Table:
        """Gives every episode: its answer, whether that is correct, its cost and why it ended.

        Returns:
            An Arrow table with the columns of ``episodes.parquet``, one row an episode.
        """
        return episodes_table(self.dataset, self.plays)

    def frontier(self) -> Frontiers:
        """Compares the accuracy-cost frontiers of the controllers that were swept over several values.

        Returns:
            The frontiers: ``table()`` and ``summary()``.
        """
        return Frontiers(self.rows, self._comparisons)

    @functools.cached_property
    def _comparisons(self) -> tuple[Comparison, ...]:
        return tuple(compare(self.dataset, self.plays, self.objective, self.probe_tokens))

    def figure(
        self, kind: str = "frontier", *, size: str = "page", panels: Sequence[str] | None = None
    ) -> Figure:
        """Draws the results for a paper; text stays text in PDF and SVG.

        Args:
            kind: ``frontier`` for accuracy against tokens, or ``gains`` for the gain in accuracy of each
                setting over the first one, with its 95 % interval.
            size: ``column`` for a column of a paper, 3.3 inches wide, or ``page``, 6.75 inches.
            panels: the cells to draw, as ``model/benchmark``, a panel each; all of them when None.

        Returns:
            The figure; ``.savefig("frontier.pdf")`` saves it.

        Raises:
            InputError: Matplotlib is missing, there is no such kind, size or cell, or there is one setting
                alone and so no gains.

        Example:
            >>> import autotts_jax as at
            >>> result = at.evaluate("smollm2", ["sc@8", "cmc@0.5"], seeds=2)
            >>> figure = result.figure("gains", size="column")
            >>> figure.get_size_inches()[0]
            np.float64(3.3)
        """
        draw = plots.KINDS[check_choice("kind of figure", kind, plots.KINDS)]
        return draw(plots.rows_of(self.rows, panels), size)

    def save(
        self, folder: str | Path, *, size: str = "page", panels: Sequence[str] | None = None
    ) -> list[Path]:
        """Writes the results as files, which appear together, when all are complete.

        These are ``episodes.parquet``, ``summary.csv``, ``paired.csv``, ``table.md``, ``table.tex`` and
        ``manifest.json``; ``frontier.csv`` where there are comparisons; where Matplotlib is installed, each
        kind of `figure` that there is as ``.pdf``, ``.png`` and ``.svg``; and where Altair is,
        ``report.html``, all of it in one page that needs no network. Files of an earlier evaluation are
        replaced or removed.

        Args:
            folder: where to write them; made if need be.
            size: size of the pictures, as `figure` takes it.
            panels: cells in the pictures, likewise.

        Returns:
            The files.

        Raises:
            InputError: there is no such size or cell, or the folder cannot be written to, or holds what no
                evaluation has written.
        """
        frontier = self.frontier()
        figures.width_of(size)
        rows = plots.rows_of(self.rows, panels)
        with results_folder(folder, FILES) as partial:
            pq.write_table(self.episodes(), partial / "episodes.parquet")
            write_csv(partial / "summary.csv", self.summary())
            write_csv(partial / "paired.csv", self.paired())
            (partial / "table.md").write_text(self.table().markdown(), encoding="utf-8")
            (partial / "table.tex").write_text(self.table().latex(), encoding="utf-8")
            if frontier.comparisons:
                write_csv(partial / "frontier.csv", frontier.summary())
            if figures.available():
                kinds = plots.KINDS if len(dict.fromkeys(row.name for row in rows)) > 1 else ("frontier",)
                for kind in kinds:
                    files = [partial / f"{kind}.{ending}" for ending in figures.FORMATS]
                    figures.save_figure(plots.KINDS[kind](rows, size), files)
            if rendering.available():
                (partial / "report.html").write_text(self._report(), encoding="utf-8")
            write_manifest(partial, self.manifest())
            names = sorted(file.name for file in partial.iterdir())
        return [Path(folder) / name for name in names]

    def _report(self) -> str:
        width = max(play.player.width or self.max_branches for play in self.plays)
        return evaluation_report(
            self.dataset,
            self.plays,
            self.objective,
            self.rows,
            self._comparisons,
            branch_orders(self.dataset, self.protocol, range(self.seeds), width),
            self.manifest(),
        )

    def __repr__(self) -> str:
        names = ", ".join(name for play in self.plays for name in play.player.names)
        return f"Evaluation of {names}: {len(self.dataset)} questions, {self.seeds} seeds"

    def _repr_html_(self) -> str:
        return shown(self.table().html(), lambda: frontiers(self.rows))

    def manifest(self) -> dict[str, Any]:
        """Says what made the results.

        Returns:
            Versions, devices, data, settings and wall times, for ``manifest.json``.
        """
        return provenance(self.dataset) | {
            "protocol": self.protocol,
            "seeds": self.seeds,
            "max_branches": self.max_branches,
            "budget": self.budget,
            "objective": dataclasses.asdict(self.objective),
            "baseline": setting_named(self._settings, self.baseline).name,
            "probe_tokens": self.probe_tokens,
            "controllers": [
                {
                    "name": play.player.name,
                    "values": play.player.values,
                    "episodes": int(play.tokens.size),
                    "compile_seconds": round(play.compile_seconds, 3),
                    "run_seconds": round(play.run_seconds, 3),
                    "seal": None if play.seal is None else dataclasses.asdict(play.seal),
                }
                for play in self.plays
            ],
            "refused": dict(self.refused),
        }


def evaluate(
    data: ProbeDataset | str | Path | Sequence[str | Path],
    players: Any,
    *,
    protocol: str = "repo100",
    seeds: int | None = None,
    max_branches: int | None = None,
    budget: int | None = None,
    objective: Objective = DEFAULT_OBJECTIVE,
    cost: str | CostModel | None = None,
    baseline: str | None = None,
    probe_tokens: int = 0,
    processes: int = 1,
    sealing: Sealing = SEALED,
    on_progress: OnProgress | None = None,
) -> Evaluation:
    """Plays every player on the same episodes, each question under each seed.

    Args:
        data: the questions: a dataset, or whatever `autotts_jax.load` takes.
        players: one player or several, or a mapping of names to players. A player is a text such as
            ``"cmc@0.5"``, ``"sc"`` for all values of a family, ``"neural@1e-4"`` or
            ``"path/to/file.py:NAME@0.5"``; a controller or a family of controllers; the class of a released
            program; or a policy for an environment, as an `Agent`.
        protocol: how the branches of a question are drawn from a seed: ``repo100``, 100 seeds of one order a
            cell, or ``paper64``, 64 seeds of one order a question.
        seeds: S, to play seeds 0 … S - 1; the number of the protocol when None.
        max_branches: W, branches that an episode can open; None for 64, or for as many as a question has
            where these are fewer. Settings of a family that read more are left out. The episodes of a policy
            have the W of its environment, and open the same branches first.
        budget: token budget of an episode; None for no limit. What would exceed it is not carried out. If it
            is too small for any branch, episodes end without an answer, and an `InputWarning` is given.
        objective: how the results value an episode. Policies that come without a γ of their own observe the
            objective's.
        cost: the unit of the objective in place of its own; tables, files and frontiers are about it, too.
        baseline: name of the setting that gains and ratios are against, as ``"sc@64"``; None for the first.
        probe_tokens: tokens that a probe adds to those of an episode in tables, files and frontiers, and to
            its cost where that is in tokens. Play is the same: a budget does not count them.
        processes: processes for released programs.
        sealing: how released programs, and other code from files and modules, are run: by default in a
            process without gold answers, confined by the kernel, with the results checked.
        on_progress: called with what is running, how many of its episodes have ended, and how many it has.

    Returns:
        The results: ``table()``, ``summary()``, ``episodes()``, ``paired()``, ``frontier()``,
        ``figure(kind)`` and ``save(folder)``.

    Raises:
        InputError: the arguments do not fit together, or every player failed. Where some sealed players fail
            or break a limit, the results of the others are there, and an `InputWarning` says which are not.
            Exceptions of controllers and policies that run in this process are passed on.

    Example:
        >>> import autotts_jax as at
        >>> data = at.load("smollm2")
        >>> result = at.evaluate(data, ["sc@8", "cmc@0.5"], seeds=5)
        >>> print(result.table())
        arithmetic
                              accuracy, % [95 %] ktokens seq. kt Δ accuracy [95 %]
        ──────────────────────────────────────────────────────────────────────────
        SmolLM2-135M-Instruct
        sc@8                   17.0 [10.7, 27.6]    0.46    0.11
        cmc@0.5                18.0 [10.8, 29.8]    1.19    0.11 +1.0 [-3.9, +5.5]
        arithmetic, objective
                                  objective [95 %]      Δ objective [95 %]
        ──────────────────────────────────────────────────────────────────
        SmolLM2-135M-Instruct
        sc@8                  0.164 [0.100, 0.270]
        cmc@0.5               0.164 [0.091, 0.283] +0.001 [-0.049, +0.047]
        [ ]: 95 % interval over questions, each with its recorded branches; seq. kt:
        sequential ktokens; objective: mean of 1{correct} - γ·cost; Δ: gain over
        sc@8, on the same episodes
        seeds: the Δ accuracy of cmc@0.5 has a standard error of 1.5 points over seeds,
        which is not small beside its interval; play more seeds
        >>> len(result.episodes())
        400
    """
    refuse_forks()
    _check_protocol(protocol)
    check_callback(
        "on_progress", on_progress, "what is running", "episodes that have ended", "episodes in all"
    )
    data = loaded(data)
    _check_objective(objective)
    if cost is not None:
        objective = dataclasses.replace(objective, unit=cost)
    objective.model.of_models([cell.model for cell in data.cells])
    seeds = check_int("the number of seeds", PROTOCOLS[protocol] if seeds is None else seeds, 1, MAX_SEEDS)
    max_branches = widest(data, max_branches)
    processes = check_int("processes", processes, 1)
    probe_tokens = check_int("probe_tokens", probe_tokens, 0, 2**31 - 1)
    budget = check_budget(budget)
    refused: dict[str, InputError] = {}
    gamma = objective.gamma if objective.model.kind == "intervals" else None
    made = as_players(players, gamma, sealing, refused)
    made = [player for player in within(made, max_branches) if player is not None]
    _check_distinct(made)
    _check_baseline(made, baseline)
    widths = [check_width(data, max_branches, player) for player in made]
    scale = Scale.of(data.matrix)
    for player, width in zip(made, widths, strict=True):
        player.check(width)
        check_probes(data, player)
        keep_signals(data.matrix, player.signals, player.name)  # before anything is played
        warn_of_distance(player, scale)
    orders = branch_orders(data, protocol, range(seeds), max(widths))

    double = jax.config.read("jax_enable_x64")  # `jax.enable_x64` holds for the thread that calls it alone

    def prepare(player: Player, width: int) -> Callable[[Callable[[int], None] | None], Play]:
        with jax.enable_x64(double):
            return player.prepare(
                data,
                orders.first(width),
                budget=budget,
                processes=processes,
                critical_path=objective.model.waits,
            )

    plays = []
    threads = ThreadPoolExecutor(usable_cores())
    try:
        prepared = threads.map(prepare, made, widths)  # all side by side, while the first ones play
        for player in made:
            report = _reporter(player, seeds * len(data), on_progress)
            play = next(prepared)
            try:
                plays.append(play(report))
            except InputError as error:
                if not isinstance(player, SealedPlayer | ProgramPlayer):
                    raise
                refused[player.name if len(player.names) > 1 else player.names[0]] = error
                continue
            warn_of_no_branch(player.name, budget, int(plays[-1].branches.max()))
            _warn_of_round_limit(player.name, plays[-1].stop_reason)
    finally:
        threads.shutdown(cancel_futures=True)
    if not plays:
        raise all_refused(refused)
    for name, problem in refused.items():
        warn_of_refusal(name, problem)
    said = {name: str(problem) for name, problem in refused.items()}
    if baseline is not None and not any(baseline in play.player.names for play in plays):
        raise InputError(f"the baseline {baseline} has no results: {'; '.join(said.values())}")
    return Evaluation(
        data,
        tuple(plays),
        seeds,
        protocol,
        max_branches,
        budget,
        objective,
        baseline,
        probe_tokens,
        said,
    )


def provenance(dataset: ProbeDataset) -> dict[str, Any]:
    """Says what results were made with, and of which data.

    Returns:
        Versions, devices, the command and the data, for a manifest.
    """
    packages = ("autotts-jax", "jax", "jaxlib", "numpy", "scipy")
    return {
        "versions": {"python": platform.python_version()}
        | {package: metadata.version(package) for package in packages},
        "devices": [str(device.device_kind) for device in jax.local_devices()],
        "command": without_secrets(sys.argv),
        "data": [{"cell": cell.name, "source": cell.source, "sha256": cell.sha256} for cell in dataset.cells],
        "encoding": dataset.encoding,
    }


def branch_orders(dataset: ProbeDataset, protocol: str, seeds: Sequence[int], width: int) -> BranchOrders:
    """Draws the branches that each question opens under each of S seeds.

    Args:
        dataset: the questions.
        protocol: a key of `PROTOCOLS`.
        seeds: S seeds.
        width: W, the first branches of an order that are kept.

    Returns:
        The orders, a row a seed.

    Raises:
        InputError: there is no such protocol, a seed is not a whole number from 0 on, or a question has fewer
            branches.
    """
    _check_protocol(protocol)
    if isinstance(seeds, str) or not isinstance(seeds, Sequence) or not seeds:
        raise InputError(f"seeds is {seeds!r:.60}, but it must be a list of at least one seed")
    seeds = [check_int("a seed", seed, 0, MAX_SEED) for seed in seeds]
    check_int("width", width, 1, min(cell.num_branches for cell in dataset.cells))
    if protocol == "repo100":
        of_cells = [repo100_orders(cell.num_branches, seeds)[:, :width] for cell in dataset.cells]
        return BranchOrders(np.stack(of_cells), np.asarray(dataset.matrix.cell))
    table = np.empty((len(dataset), len(seeds), width), np.int16)
    for index, cell in enumerate(dataset.cells):
        of_cell = dataset.cell_questions(index)
        drawn = paper64_orders(len(of_cell), cell.num_branches, seeds)
        table[of_cell] = drawn[..., :width].swapaxes(0, 1)
    return BranchOrders(table, np.arange(len(dataset)))


def widest(dataset: ProbeDataset, max_branches: int | None) -> int:
    """Gives how many branches an episode can open where a player does not fix it itself."""
    if max_branches is None:
        return min(MAX_BRANCHES, *(cell.num_branches for cell in dataset.cells))
    return check_int("max_branches", max_branches, 1)


def default_controllers(dataset: ProbeDataset, max_branches: int | None = None) -> tuple[str, ...]:
    """Names the controllers to compare where nothing else is said: as wide as the data allows.

    Args:
        dataset: the questions; without probes, controllers that decide by them are left out.
        max_branches: as in `evaluate`.
    """
    width = widest(dataset, max_branches)
    names = ["sc", "asc", *(["esc"] if width >= WINDOW else [])]
    probing = ["parallel-probe"] if dataset.without_probes is None else []
    return (*(f"{name}@{width}" for name in names + probing), *(["cmc"] if probing else []))


def within(players: Sequence[Player], width: int) -> list[Player | None]:
    """Leaves out the settings of families that read more branches than an episode can open, with a warning.

    Args:
        players: the players.
        width: W.

    Returns:
        Each player with its other settings, None without any.

    Raises:
        InputError: no setting of any player is left.
    """
    kept = [fitting(player, width) for player in players]
    names = {name for player in kept if player for name in player.names}
    if dropped := [name for player in players for name in player.names if name not in names]:
        message = f"{', '.join(dropped)}: left out, since an episode opens at most {width} branches"
        if not names:
            raise InputError(f"{message}, and no setting is left; name one, as sc@{width}")
        warnings.warn(message, InputWarning, stacklevel=3)
    return kept


def check_width(dataset: ProbeDataset, max_branches: int, player: Player | None = None) -> int:
    """The branches that an episode can open, which every question has; a player may say how many."""
    width = player.width if player and player.width else max_branches
    for cell in dataset.cells:
        if cell.num_branches < width:
            whose, where = "an episode can open", "max_branches"
            if player and player.width:
                whose = f"{player.name} opens in its environment"
                where = "max_branches of that environment"
            raise InputError(
                f"{cell.name} has {counted_branches(cell.num_branches)} a question, fewer than the {width} "
                f"that {whose}; set {where} to {cell.num_branches} or less"
            )
    return width


def check_probes(dataset: ProbeDataset, player: Player) -> None:
    """Checks that a player that decides by probes has some to read.

    Raises:
        InputError: a cell has answers and lengths alone, and what the player does depends on probes.
    """
    if dataset.without_probes is None:
        return
    width = player.width or dataset.matrix.num_branches

    def begin(matrix: ProbeMatrix) -> View:
        return ReplayPool.begin(matrix, 0, np.arange(width)).view(detached=True)

    by_probes = player.decides_by_probes(jax.eval_shape(begin, dataset.matrix))
    if by_probes:
        dataset.check_probes(f"{player.name} decides by")
    if by_probes is None:
        warnings.warn(
            f"{player.name} cannot be asked what it decides by, and {dataset.without_probes} has no answers "
            "before the end of a branch; rely on its results only if it reads branches in full",
            InputWarning,
            stacklevel=3,
        )


def warn_of_refusal(name: str, problem: InputError) -> None:
    """Warns that a sealed player has no results, because it failed or broke a limit."""
    warnings.warn(f"{name} has no results: {problem}", InputWarning, stacklevel=3)


def warn_of_no_branch(name: str, budget: int | None, opened: int) -> None:
    """Warns where a player did nothing, or could do nothing within a budget."""
    if opened == 0:
        reason = (
            "it read nothing, and so has no answer; have it open one"
            if budget is None
            else f"a budget of {budget} tokens may be less than the first interval of a branch, or than what "
            "its first step reads; give more"
        )
        warnings.warn(f"{name} opened no branch: {reason}", InputWarning, stacklevel=3)


def _warn_of_round_limit(name: str, stop_reason: np.ndarray | None) -> None:
    """Warns where episodes were cut off because a controller did not stop."""
    if stop_reason is not None and (cut := np.count_nonzero(stop_reason == StopReason.ROUND_LIMIT)):
        warnings.warn(
            f"{name} did not stop in {cut} of {stop_reason.size} episodes, which were cut off after "
            f"{ROUND_LIMIT:,} rounds; let act return a StopReason where it is done",
            InputWarning,
            stacklevel=3,
        )


def _reporter(player: Player, episodes: int, on_progress: OnProgress | None) -> Callable[[int], None] | None:
    if on_progress is None:
        return None
    total = episodes * len(player.values)
    on_progress(f"{player.name}: starting", 0, 0)
    return lambda done: on_progress(player.name, done, total)


def _check_protocol(protocol: str) -> None:
    check_choice("protocol", protocol, PROTOCOLS)


def _check_objective(objective: Objective) -> None:
    if not isinstance(objective, Objective):
        raise InputError(f"objective is {objective!r:.60}, but it must be an autotts_jax.Objective")


def _check_baseline(players: Sequence[Player], baseline: str | None) -> None:
    names = [name for player in players for name in player.names]
    if baseline is not None and baseline not in names:
        raise InputError(
            f"no setting is called {baseline!r:.80}, the baseline; give it among the controllers as well: "
            f"there are {', '.join(names)}"
        )


def _check_distinct(players: Sequence[Player]) -> None:
    """Raises an `InputError` where results could not be told apart."""
    names = Counter(name for player in players for name in player.names)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise InputError(
            f"{', '.join(twice)}: given more than once; give each player and value once, and name your own, "
            "in Python as {'mine': policy}"
        )
    kinds = {(player.name, type(player), player.trusted) for player in players}
    shared = [name for name, count in Counter(name for name, *_ in kinds).items() if count > 1]
    if shared:
        raise InputError(
            f"{', '.join(shared)}: the name of two different controllers; name yours "
            "otherwise, in Python as {'mine': policy}"
        )
