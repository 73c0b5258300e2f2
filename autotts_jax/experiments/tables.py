"""Tables for people: in a terminal by Rich, in a notebook as HTML, as text elsewhere."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from rich import box
from rich import table as rich_table
from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding

from autotts_jax.collect.estimate import ANSWER, Estimate
from autotts_jax.collect.store import Store
from autotts_jax.collect.trajectories import Usage
from autotts_jax.core.costs import UNITS, CostName
from autotts_jax.experiments import markup
from autotts_jax.experiments.frontier import Comparison
from autotts_jax.experiments.summary import Row
from autotts_jax.intervals import FEWEST
from autotts_jax.policies.player import Play, name_of
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.replay.statistics import cell_statistics, question_statistics
from autotts_jax.terminal import printable, styled

WIDTH = 80
"""Columns of a table as text and as HTML."""

UNLIMITED = 10_000
"""Columns in which any table fits."""

SETTINGS_SHOWN = 5
"""Most settings of the reference controller that a printed comparison has; its file has them all."""

QUESTIONS_SHOWN = 20
"""Most questions that a printed table has."""

COMMON_ERRORS = 0.2
"""Share of ``ERR`` from which it is called common."""

Z = 1.96
"""Standard errors that a 95 % interval reaches to each side."""

SEEDS_MATTER = 0.5
"""Standard error over seeds, as a share of that of an interval, from which more seeds would narrow it."""

TOO_FEW = f"n/a: fewer than {FEWEST} questions, from which nothing can be claimed about others"

BOUND_SIGNS = {"": "", "at most": "≤ ", "at least": "≥ ", "none": "≶ "}
"""Signs before a ratio, by what it bounds."""

HTML = "<pre style=\"font-family:Menlo,'DejaVu Sans Mono',consolas,monospace\">{code}</pre>"


class Table:
    """Tables with their notes: Rich prints them in a terminal, and a notebook shows them.

    ``str(table)`` is the text in 80 columns, and what a pickled table keeps. What does not fit a terminal is
    a list instead, so that no name and no number is cut.
    """

    def __init__(
        self, parts: Callable[[int], Iterable[RenderableType]], remarks: Sequence[RenderableType] = ()
    ):
        """Makes a table.

        Args:
            parts: gives what to show, from top to bottom, for a number of columns.
            remarks: what follows about the run, which LaTeX leaves out.
        """
        self._parts, self._remarks = parts, remarks

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        width = options.max_width
        for part in (*self._parts(width), *self._remarks):
            if isinstance(part, rich_table.Table):
                whole = console.measure(part, options=options.update(width=UNLIMITED)).maximum
                yield from _as_list(part) if whole > width else [part]
            else:
                yield part

    def __str__(self) -> str:
        console = Console(file=io.StringIO(), width=WIDTH, color_system=None)
        with console.capture() as shown:
            console.print(self)
        return "\n".join(line.rstrip() for line in shown.get().splitlines())

    __repr__ = __str__

    def html(self) -> str:
        """Gives the table as HTML, as a notebook shows it."""
        console = Console(file=io.StringIO(), width=WIDTH, record=True)
        console.print(self)
        return console.export_html(inline_styles=True, code_format=HTML)

    _repr_html_ = html

    def markdown(self) -> str:
        """Writes the tables and their notes as Markdown."""
        return markup.markdown((*self._parts(UNLIMITED), *self._remarks))

    def latex(self) -> str:
        """Writes each table with the notes as a float of LaTeX, which needs the package ``booktabs``."""
        return markup.latex(self._parts(UNLIMITED))

    def __reduce__(self) -> tuple[Callable[[str], Table], tuple[str]]:
        return _of_text, (str(self),)


def _of_text(text: str) -> Table:
    """The table that a text was."""
    return Table(lambda _: [styled(text, lines=True)])


def plain_table(title: str | None = None) -> rich_table.Table:
    """Makes a table without columns, with little around it so that it fits 80 columns."""
    line = None if title is None else styled(title, style="bold")
    table = rich_table.Table(title=line, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False)
    table.padding = 0
    return table


def _as_list(table: rich_table.Table) -> Iterator[RenderableType]:
    """A table as lines: the first cell of each row, and below it the others with their headings.

    Rows in bold, and those without a name, say themselves what their values are.
    """
    if table.title:
        yield styled(str(table.title), style="bold")
    first, *headings = (str(column.header) for column in table.columns)
    for row, cells in zip(
        table.rows, zip(*(column.cells for column in table.columns), strict=True), strict=True
    ):
        name, *values = map(str, cells)
        if name:
            yield styled(f"{first} {name}".strip(), style=row.style or "")
        if row.style == "bold" or not name:
            lines = [" ".join(filter(None, values))]
        else:
            named = zip(headings, values, strict=True)
            lines = [f"{heading}: {value}" if heading and value else value for heading, value in named]
        yield from (Padding(styled(line), (0, 0, 0, 2)) for line in lines if line)


def numbers_table(title: str | None, headings: Sequence[str], first: str = "") -> rich_table.Table:
    """Makes a table of numbers without rows."""
    table = plain_table(title)
    table.add_column(styled(first), overflow="fold")
    for heading in headings:
        table.add_column(styled(heading), justify="right", no_wrap=True)
    return table


def add_row(table: rich_table.Table, *cells: str, style: str | None = None) -> None:
    """Adds a row whose cells are shown unchanged, even where they look like Rich's markup."""
    table.add_row(*map(styled, cells), style=style)


# --- evaluations ----------------------------------------------------------------------------------------


def summary_table(
    rows: Sequence[Row], plays: Sequence[Play] = (), cost: CostName = "intervals", ratios: bool = False
) -> Table:
    """Accuracy and cost, and the objective: two tables a benchmark, in them a section for each model.

    A cost that is not in tokens or intervals has a table of its own, and so have tokens where their ratios to
    those of the baseline are wanted.
    """
    baseline = rows[0].baseline
    other = cost not in ("intervals", "tokens")

    def parts(_: int) -> Iterator[RenderableType]:
        for benchmark in dict.fromkeys(row.benchmark for row in rows):
            of_benchmark = [row for row in rows if row.benchmark == benchmark]
            yield _summary(benchmark, of_benchmark)
            if ratios:
                yield _tokens(benchmark, of_benchmark)
            if other:
                yield _costs(benchmark, of_benchmark, cost)
            yield _objectives(benchmark, of_benchmark)
        yield styled(
            "[ ]: 95 % interval over questions, each with its recorded branches; seq. kt:\n"
            "sequential ktokens; objective: mean of 1{correct} - γ·cost; Δ: gain over\n"
            f"{printable(baseline)}, on the same episodes" + "; ratio: to its tokens" * ratios,
            "dim",
            lines=True,
        )
        yield from few_note(row.accuracy_low for row in rows)

    hint = seeds_hint(rows)
    seals = [f"{how}: {', '.join(names)}" for how, names in _seals(plays).items()]
    return Table(parts, [styled(line, style="dim") for line in (*[hint] * bool(hint), *seals)])


def few_note(lows: Iterable[float]) -> Iterator[RenderableType]:
    """Says why intervals are missing, where questions are too few."""
    if any(map(math.isnan, lows)):
        yield styled(TOO_FEW, style="dim")


def seeds_hint(rows: Sequence[Row]) -> str:
    """Says of which setting more seeds would make an interval narrower, the one that gains most by them.

    Returns:
        The hint; empty where the standard errors over seeds are all small beside the intervals.
    """
    errors = [
        (se / max((high - low) / 2 / Z, 1e-9), se, row.name, what)
        for row in rows
        for what, se, low, high in (
            ("accuracy", row.accuracy_se, row.accuracy_low, row.accuracy_high),
            ("Δ accuracy", row.gain_se, row.gain_low, row.gain_high),
        )
        if se > SEEDS_MATTER * (high - low) / 2 / Z > 0
    ]
    if not errors:
        return ""
    _, se, name, what = max(errors)
    return (
        f"seeds: the {what} of {printable(name)} has a standard error of {100 * se:.1f} points over seeds, "
        "which is not small beside its interval; play more seeds"
    )


def _seals(plays: Sequence[Play]) -> dict[str, list[str]]:
    """Names of players by how they were run; without those of this package."""
    names: dict[str, list[str]] = {}
    for play in plays:
        if play.seal is not None:
            shown = ", shown spellings" if play.seal.spellings else ""
            how = "unchecked" if play.seal.level is None else f"sealed ({play.seal.level}{shown})"
            names.setdefault(how, []).append(play.player.name)
    return names


def _summary(benchmark: str, rows: Sequence[Row]) -> rich_table.Table:
    """Accuracy and cost."""

    def cells(row: Row) -> tuple[str, ...]:
        accuracy = percent(row.accuracy, row.accuracy_low, row.accuracy_high)
        return accuracy, thousands(row.tokens), thousands(row.sequential_tokens)

    def gain(row: Row) -> str:
        return points(row.gain, row.gain_low, row.gain_high)

    headings = ["accuracy, % [95 %]", "ktokens", "seq. kt", "Δ accuracy [95 %]"]
    return _with_gains(benchmark, headings, rows, cells, gain)


def percent(share: float, low: float, high: float) -> str:
    """Writes a share, such as an accuracy, and its interval in percent.

    Args:
        share: the share, in 0 … 1.
        low: lower end of its interval; NaN where nothing can be claimed.
        high: upper end of it.
    """
    return f"{100 * share:.1f} {brackets(low, high, lambda end: f'{100 * end:.1f}')}"


def brackets(low: float, high: float, write: Callable[[float], str]) -> str:
    """Writes an interval in brackets.

    Args:
        low: its lower end; NaN where nothing can be claimed.
        high: its upper end.
        write: writes an end.
    """
    return "[n/a]" if math.isnan(low) else f"[{write(low)}, {write(high)}]"


def _tokens(benchmark: str, rows: Sequence[Row]) -> rich_table.Table:
    """The tokens, and their ratio to those of the baseline."""

    def ratio(row: Row) -> str:
        return ratio_text(row.tokens_ratio, row.ratio_low, row.ratio_high)

    headings = ["ktokens", "ratio [95 %]"]
    return _with_gains(f"{benchmark}, tokens", headings, rows, lambda row: (thousands(row.tokens),), ratio)


def _costs(benchmark: str, rows: Sequence[Row], cost: CostName) -> rich_table.Table:
    """The cost, and its ratio to that of the baseline."""

    def ratio(row: Row) -> str:
        return ratio_text(row.cost_ratio, row.cost_ratio_low, row.cost_ratio_high)

    headings = [f"{cost}, {UNITS[cost]}", "ratio [95 %]"]
    return _with_gains(f"{benchmark}, {cost}", headings, rows, lambda row: (f"{row.cost:.3g}",), ratio)


def _objectives(benchmark: str, rows: Sequence[Row]) -> rich_table.Table:
    """The objective."""

    def cells(row: Row) -> tuple[str, ...]:
        return (objective_text(row),)

    def gain(row: Row) -> str:
        return difference(row.objective_gain, row.objective_gain_low, row.objective_gain_high)

    headings = ["objective [95 %]", "Δ objective [95 %]"]
    return _with_gains(f"{benchmark}, objective", headings, rows, cells, gain)


def _with_gains(
    title: str,
    headings: Sequence[str],
    rows: Sequence[Row],
    cells: Callable[[Row], tuple[str, ...]],
    gain: Callable[[Row], str],
) -> rich_table.Table:
    """A table with a section for each model; the last column, where there is a second setting, has gains."""
    compared = any(row.name != row.baseline for row in rows)
    table = numbers_table(title, headings if compared else headings[:-1])
    for model in dict.fromkeys(row.model for row in rows):
        add_row(table, model, style="bold")
        for row in rows:
            if row.model == model:
                gained = "" if row.name == row.baseline else gain(row)
                add_row(table, row.name, *cells(row), *[gained] * compared)
        table.add_section()
    return table


def thousands(tokens: float) -> str:
    """Writes tokens in thousands, with three digits or more from 1,000 on."""
    return f"{tokens / 1000:.{1 if tokens >= 10_000 else 2}f}"


def points(gain: float, low: float, high: float) -> str:
    """Writes a difference of accuracies and its interval in percentage points.

    Args:
        gain: the difference, in 0 … 1.
        low: lower end of the interval.
        high: upper end of it.
    """
    interval = brackets(low, high, lambda end: f"{100 * end:+z.1f}")
    return f"{100 * gain:+z.1f} {interval}".replace("inf", "∞")


def objective_text(row: Row) -> str:
    """Writes an objective and its interval."""
    return f"{_shown(row.objective)} {brackets(row.objective_low, row.objective_high, _shown)}"


def difference(gain: float, low: float, high: float) -> str:
    """Writes a difference of objectives and its interval."""
    return f"{_shown(gain, '+')} {brackets(low, high, lambda end: _shown(end, '+'))}"


def _shown(objective: float, sign: str = "") -> str:
    """Writes an objective; it is below 1, but can be far below 0."""
    return format(objective, f"{sign}.3e" if abs(objective) >= 1e6 else f"{sign}z.3f")


def ratio_text(ratio: float, low: float, high: float, bound: str = "") -> str:
    """Writes a ratio and its interval."""
    interval = brackets(low, high, lambda end: f"{end:.2f}")
    return f"{BOUND_SIGNS[bound]}{ratio:.2f} {interval}".replace("inf", "∞")


def comparison_table(comparisons: Sequence[Comparison]) -> Table:
    """Swept controllers on equal terms: one table a benchmark, of the mean of its models.

    A controller's section has a line for some settings of the reference controller.
    """
    cost = comparisons[0].cost_name if comparisons else ""
    reference = max((one.reference_branches for one in comparisons), default=0)

    def parts(_: int) -> Iterator[RenderableType]:
        for benchmark in dict.fromkeys(comparison.benchmark for comparison in comparisons):
            yield _comparison([one for one in comparisons if one.benchmark == benchmark])
        if not comparisons:
            yield styled("no frontiers: fewer than two controllers were swept over two values or more")
        else:
            yield styled(
                f"{cost} ratio: {cost} at which the frontier has the setting's accuracy, over that\n"
                f"of the reference's (of settings as played: with a baseline); Δ accuracy:\n"
                f"accuracy at the setting's {cost}, less that of the same frontier; both with\n"
                "their 95 % interval over questions, each with its recorded branches; ≤, ≥: the\n"
                "cheapest setting, of the controller or of the reference, is more accurate than\n"
                "that, and a cheaper one might do; ≶: both are;\n"
                f"hypervolume: mean accuracy over budgets up to the {cost} of {reference} branches,\n"
                "each spent on the best setting within it; Δ hypervolume: in points, less the\n"
                "reference's; regret: accuracy missing to the best of these controllers, mean\n"
                "over the same budgets",
                "dim",
                lines=True,
            )

    return Table(parts)


def _comparison(comparisons: Sequence[Comparison]) -> rich_table.Table:
    model = comparisons[-1].model  # the mean of the models, where there are several, comes last
    reference = comparisons[-1].reference
    cost = comparisons[-1].cost_name
    shown_in = "ktokens" if cost == "tokens" else f"{cost}, {UNITS[cost]}"
    headings = ["accuracy, %", shown_in, f"{cost} ratio [95 %]", "Δ accuracy [95 %]"]
    table = numbers_table(f"{comparisons[-1].benchmark}, {model}: against {reference}", headings)
    by_controller: dict[str, list[Comparison]] = {}
    for comparison in comparisons:
        if comparison.model == model:
            by_controller.setdefault(comparison.controller, []).append(comparison)
    settings = len(by_controller[reference])
    shown = np.linspace(0, settings - 1, min(settings, SETTINGS_SHOWN)).round().astype(int)
    for controller, lines in by_controller.items():
        areas = f"hypervolume {lines[0].hypervolume:.4f}", f"regret {lines[0].regret:.4f}"
        add_row(table, controller, "", "", *areas, style="bold")
        if controller != reference:
            one = lines[0]
            gain = one.hypervolume_gain, one.hypervolume_gain_low, one.hypervolume_gain_high
            add_row(table, "", "", "", "Δ hypervolume", points(*gain))
            for index in shown:
                add_row(table, *matched(lines[index]))
        table.add_section()
    return table


def matched(comparison: Comparison) -> tuple[str, ...]:
    """Writes a comparison as a line: the setting, its accuracy and cost, and what they are matched by."""
    ratio, low, high = comparison.cost_ratio, comparison.ratio_low, comparison.ratio_high
    gain = comparison.accuracy_gain, comparison.gain_low, comparison.gain_high
    return (
        name_of(comparison.reference, comparison.value),
        f"{100 * comparison.accuracy:.1f}",
        thousands(comparison.cost) if comparison.cost_name == "tokens" else f"{comparison.cost:.3g}",
        "not reached" if math.isnan(ratio) else ratio_text(ratio, low, high, comparison.ratio_bound),
        f"too few {comparison.cost_name}" if math.isnan(gain[0]) else points(*gain),
    )


# --- data -----------------------------------------------------------------------------------------------


def statistics_table(dataset: ProbeDataset) -> Table:
    """Tabulates statistics of the cells of a dataset: a table for each benchmark, a column for each model.

    Args:
        dataset: the dataset.
    """

    def parts(_: int) -> Iterator[RenderableType]:
        for benchmark in dict.fromkeys(cell.benchmark for cell in dataset.cells):
            members = [index for index, cell in enumerate(dataset.cells) if cell.benchmark == benchmark]
            columns = [cell_statistics(dataset, index) for index in members]
            table = numbers_table(benchmark, [dataset.cells[index].model for index in members])
            for name in columns[0]:
                add_row(table, name, *(_number(column[name]) for column in columns))
            yield table

    return Table(parts)


def collection_table(store: Store) -> Table:
    """Tabulates the progress of a collection, and what it has cost so far.

    Args:
        store: the store of the collection.
    """
    done, plan = store.done(), store.plan
    usage = sum((collected.usage for collected in done), Usage())
    branches = [branch for collected in done for branch in collected.branches]
    probe_tokens = usage.forced / max(usage.probes, 1)
    table = numbers_table(f"{plan.model}/{plan.benchmark}", ["collection"])
    for name, value in {
        "questions": len(plan.questions),
        "branches": f"{len(branches):,} of {len(plan.questions) * plan.num_branches:,}",
        "tokens written": f"{usage.generated:,}",
        "tokens a branch": f"{sum(branch.tokens for branch in branches) / max(len(branches), 1):,.0f}",
        "probes": f"{usage.probes:,}",
        "tokens a probe": f"{probe_tokens:.1f}",
        "κ_probe": f"{probe_tokens / plan.sampling.interval:.4f}",
        "prompt tokens cached": f"{usage.cached / max(usage.prompted, 1):.0%}",
    }.items():
        add_row(table, name, str(value))
    return Table(lambda _: [table, *(styled(line, "dim") for line in _made_with(store))])


def _made_with(store: Store) -> list[str]:
    """A line for each run that worked on a collection with other versions than the one before."""
    engine = store.plan.engine
    lines = (
        [] if engine is None else [f"engine {engine.kind}" + (f": {engine.model}" if engine.model else "")]
    )
    for run in store.runs:
        versions = run.get("versions")
        if isinstance(versions, dict):
            lines.append("made with " + ", ".join(f"{name} {version}" for name, version in versions.items()))
    return list(dict.fromkeys(lines))


def estimate_table(found: Estimate, rate: float | None = None) -> Table:
    """What a collection will take: an upper bound, and what to expect by what was collected.

    Args:
        found: the estimate.
        rate: tokens a second that the engine writes; None if that is not known.
    """
    costs = {"at most": found.most} | ({"expected": found.expected} if found.expected else {})
    table = plain_table()
    table.add_column("")
    for heading in costs:
        table.add_column(heading, justify="right", no_wrap=True)
    add_row(table, "tokens of branches", *(f"{cost.generated:,}" for cost in costs.values()))
    add_row(table, "tokens of forced answers", *(f"{cost.forced:,}" for cost in costs.values()))
    add_row(table, "disk, MB", *(f"{cost.disk / 1e6:,.1f}" for cost in costs.values()))
    if rate is not None:
        add_row(table, "time, h", *(f"{cost.tokens / rate / 3600:,.2f}" for cost in costs.values()))
    notes = [f"at most: all as long as they can be, and answers of {ANSWER} characters"]
    if found.expected:
        notes.append(f"expected: as the {found.collected:,} branches that are there")
    else:
        notes.append("for what to expect, collect some first, as with --limit 1, into the same folder")
    if rate is None:
        notes.append("for the time, say how fast the engine writes: --tokens-per-second")
    first = (
        f"to collect: {found.branches - found.collected:,} of {found.branches:,} branches of "
        f"{found.questions:,} questions"
    )
    return Table(lambda _: [styled(first, "bold"), table, *(styled(note, "dim") for note in notes)])


def questions_table(dataset: ProbeDataset) -> Table:
    """Tabulates accuracy and the share of ``ERR`` by question, with a suggestion where ``ERR`` is common.

    Of many questions, those with the most ``ERR`` and then the lowest accuracy are shown.

    Args:
        dataset: the dataset.
    """
    found = question_statistics(dataset)
    worst_first = sorted(range(len(found)), key=lambda q: (-found[q].error_share, found[q].accuracy))
    shown = sorted(worst_first[:QUESTIONS_SHOWN])

    def parts(columns: int) -> Iterator[RenderableType]:
        some = f"{len(shown)} of {len(found)} " if len(shown) < len(found) else ""
        table = plain_table(f"{some}questions")
        room = max(columns - 44, 10)
        table.add_column("", overflow="fold", max_width=room)
        for heading in ("gold", "accuracy, %", "ERR, %"):
            table.add_column(heading, justify="right", overflow="fold", max_width=16)
        for q in shown:
            question = dataset.questions[q]
            text = textwrap.shorten(printable(question.text), room, placeholder=" …")
            add_row(table, text, question.gold, *map(_percent, found[q]))
        add_row(
            table,
            "mean of all",
            "",
            *(_percent(float(np.mean(column))) for column in zip(*found, strict=True)),
        )
        yield table
        often = sum(row.error_share >= COMMON_ERRORS for row in found)
        if often:
            yield styled(
                f"{often} of {len(found)} questions have ERR, no answer, in {COMMON_ERRORS:.0%} or more of "
                "their probes and finals. Look at some texts (--keep-text), and try more --probe-tokens, "
                "other --answers, or a --probe-suffix that asks for the answer alone."
            )

    return Table(parts)


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.1f}" if value >= 10 else f"{value:.3f}"
