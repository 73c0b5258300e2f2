"""One episode, decision by decision."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from rich.console import RenderableType

from autotts_jax import styles
from autotts_jax.checks import check_bool, check_choice, check_int
from autotts_jax.collect.loading import loaded
from autotts_jax.core.forks import refuse_forks
from autotts_jax.core.rollout import check_budget
from autotts_jax.core.stepping import Decision, Ended, ReplayExecutor, begin_pool
from autotts_jax.core.view import UNREVEALED, StopReason
from autotts_jax.core.votes import confidence_table
from autotts_jax.envs.rendering import (
    answer_cells,
    answer_colours,
    answer_label,
    episode_figure,
    short_answer,
    signal_cells,
    signal_ends,
)
from autotts_jax.errors import InputError
from autotts_jax.experiments.evaluation import (
    MAX_SEED,
    branch_orders,
    check_probes,
    check_width,
    warn_of_no_branch,
    widest,
)
from autotts_jax.experiments.files import results_folder
from autotts_jax.experiments.report.charts import drawn_episode
from autotts_jax.experiments.tables import WIDTH, Table, add_row, plain_table, thousands
from autotts_jax.figures import FORMATS, available, save_figure
from autotts_jax.pages.notebook import shown
from autotts_jax.pages.rendering import Drawn
from autotts_jax.policies.player import warn_of_distance
from autotts_jax.policies.players import as_player
from autotts_jax.policies.sealed.worker_pool import SEALED, Sealing
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.replay.matrix import NONE
from autotts_jax.replay.orders import recorded_orders
from autotts_jax.replay.scale import Scale
from autotts_jax.replay.signals import keep_signals
from autotts_jax.terminal import styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN_VOTES = 3
OTHER_COLUMNS = 40
"""Characters that a line of the table has beside branches and votes, which share the rest."""
SIGNAL_COLUMNS = 14
"""Those of a signal."""
NARROWEST = 8
"""Characters that branches and votes have at least."""


@dataclasses.dataclass(frozen=True)
class TraceStep:
    """One operation of a player, and the vote after it.

    Attributes:
        decision: the operation; the last of an episode has the action ``answer`` and the branch that gives
            the answer.
        votes: votes by answer, most first.
        final: whether the votes are final answers of finished branches; latest answers of active ones if not,
            or of all where none is active.
        confidence: confidence of that vote.
        signals: what the player reads of the decision's branches after it, by the name of the signal; None
            where nothing is revealed.
    """

    decision: Decision
    votes: dict[str, int]
    final: bool
    confidence: float
    signals: dict[str, list[float | None]] = dataclasses.field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """Tokens charged so far."""
        return self.decision.tokens

    @property
    def round(self) -> int:
        """Round of the controller; 0 is its start."""
        return self.decision.round


@dataclasses.dataclass(frozen=True)
class Trace:
    """An episode that was played; lists have one entry a branch that was opened, in opening order.

    Attributes:
        title: player, cell, question, and the seed or that the order is the recorded one.
        steps: what was decided, in order; the last is the answer.
        answer: the answer given, None for no answer.
        gold: the gold answer.
        stop_reason: why the episode ended.
        finished: whether the branch was read to its end.
        pruned: whether the branch was pruned.
        shown: the answers at the depths of the branch, None at a depth that was not revealed.
        signals: likewise the values of each signal that the player reads, by the name of the signal.
    """

    title: str
    steps: list[TraceStep]
    answer: str | None
    gold: str
    stop_reason: StopReason
    finished: list[bool]
    pruned: list[bool]
    shown: list[list[str | None]]
    signals: dict[str, list[list[float | None]]] = dataclasses.field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """Tokens charged for the episode."""
        return self.steps[-1].tokens

    @property
    def rounds(self) -> int:
        """Rounds that were played."""
        return self.steps[-1].round

    def table(self) -> Table:
        """Shows the episode, a line a decision; rounds that decide the same share a line.

        Returns:
            A table that prints in 80 columns or more and that a notebook shows.
        """
        return Table(self._parts)

    def figure(self, *, size: str = "page") -> Figure:
        """Draws the episode: branches as rows, depth as columns, coloured by answer.

        Each signal that the player reads has a panel of its own beside that, coloured by value. Text stays
        text in PDF and SVG.

        Args:
            size: ``column`` for a column of a paper, 3.3 inches wide, or ``page``, 6.75 inches.

        Returns:
            The figure.

        Raises:
            InputError: Matplotlib is missing, or there is no such size.
        """
        given = "no answer" if self.answer is None else short_answer(self.answer)
        title = f"{self.title}\nanswered {given}, right is {short_answer(self.gold)}"
        return episode_figure(
            title,
            self.shown,
            self.finished,
            self.pruned,
            answer=self.answer,
            gold=self.gold,
            signals=self.signals,
            size=size,
        )

    def save(self, folder: str | Path) -> list[Path]:
        """Writes ``trace.jsonl``, and ``trace.pdf``, ``.png`` and ``.svg`` where Matplotlib is installed.

        The first line of ``trace.jsonl`` is about the episode; each line after it is a decision.

        Args:
            folder: where to write them; made if need be.

        Returns:
            The files.

        Raises:
            InputError: the folder cannot be written to.
        """
        episode = {
            "title": self.title,
            "answer": self.answer,
            "gold": self.gold,
            "correct": self.answer == self.gold,
            "stop_reason": self.stop_reason.name.lower(),
            "tokens": self.tokens,
        }
        lines = [episode, *map(_as_line, self.steps)]
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        pictures = [f"trace.{kind}" for kind in FORMATS]
        with results_folder(folder, (*pictures, "trace.jsonl")) as partial:
            (partial / "trace.jsonl").write_text(text, encoding="utf-8")
            if available():
                save_figure(self.figure(), [partial / name for name in pictures])
            names = sorted(file.name for file in partial.iterdir())
        return [Path(folder) / name for name in names]

    def __repr__(self) -> str:
        return f"Trace of {self.title}: {len(self.steps)} decisions, answer {self.answer}"

    def _repr_html_(self) -> str:
        colour = answer_colours(self.shown, self.answer, self.gold)
        legend = {answer_label(text, self.answer, self.gold): of for text, of in colour.items()}
        legend["other answers"] = styles.MINOR

        def draw() -> list[Drawn]:
            answers = drawn_episode(
                self.title, answer_cells(self.shown, colour), self.finished, self.pruned, legend
            )
            return [answers, *(self._drawn_signal(name) for name in self.signals)]

        return shown(self.table().html(), draw)

    def _drawn_signal(self, name: str) -> Drawn:
        values = self.signals[name]
        ends = signal_ends(values)
        (colours,) = signal_cells([ends])  # by the same scale
        legend = {f"{end:.3g}": colour for end, colour in zip(ends, colours, strict=True)}
        return drawn_episode(name, signal_cells(values), self.finished, self.pruned, legend)

    def _parts(self, width: int) -> Iterator[RenderableType]:
        table = plain_table()
        table.padding = (0, 1, 0, 0)
        half = (max(width, WIDTH) - OTHER_COLUMNS - SIGNAL_COLUMNS * len(self.steps[-1].signals)) // 2
        read = tuple(self.steps[-1].signals)
        for heading in ("round", "action", "branches", "votes", "confidence", "ktokens", *read):
            table.add_column(
                heading,
                justify="right" if heading in ("confidence", "ktokens", *read) else "left",
                max_width=max(half, NARROWEST) if heading in ("branches", "votes") else None,
                no_wrap=heading not in ("branches", "votes"),
            )
        for cells in describe_steps(self.steps):
            add_row(table, *cells)
        yield styled(self.title, style="bold")
        yield table
        right = "right" if self.answer == self.gold else f"wrong, it is {self.gold}"
        reason = self.stop_reason.name.lower().replace("_", " ")
        yield styled("votes: final answers, (latest answers) in brackets", style="dim")
        if read:
            yield styled("signals: least to largest of the decision's branches", style="dim")
        yield styled(f"answer {self.answer} ({right}); stopped: {reason}")


def trace(
    data: ProbeDataset | str | Path | Sequence[str | Path],
    player: Any,
    *,
    cell: str | None = None,
    question: int = 0,
    seed: int = 0,
    protocol: str = "repo100",
    budget: int | None = None,
    max_branches: int | None = None,
    recorded: bool = False,
    sealing: Sealing = SEALED,
) -> Trace:
    """Plays one episode, decision by decision; it is the episode that `autotts_jax.evaluate` plays.

    Args:
        data: the questions: a dataset, or whatever `autotts_jax.load` takes.
        player: a player with a single setting, as `autotts_jax.evaluate` takes it.
        cell: ``model/benchmark``; the first cell when None.
        question: position of the question in its cell.
        seed: seed of the branch order.
        protocol: how the order is drawn from the seed, as in `autotts_jax.evaluate`.
        budget: token budget; None for no limit.
        max_branches: W, branches that the episode can open, None as in `autotts_jax.evaluate`; the
            environment of a policy has its own.
        recorded: whether the branches are opened in the order in which they were recorded, as a live episode
            with the seed of the collection opens them; no seed and no protocol go with it.
        sealing: how code from files and modules is run, as in `autotts_jax.evaluate`.

    Returns:
        The episode: ``table()``, ``figure()``, ``save(folder)``.

    Raises:
        InputError: there is no such cell or question, the recorded order is asked for with a seed or a
            protocol, or the player has several settings or failed. Exceptions of controllers
            and policies that run in this process are passed on.

    Example:
        >>> import autotts_jax as at
        >>> trace = at.trace(at.load("smollm2"), "cmc@0", question=4)
        >>> print(trace.table())
        cmc@0 on SmolLM2-135M-Instruct/arithmetic, question 4, seed 0
        round  action   branches  votes        confidence  ktokens
        ───────────────────────────────────────────────────────────
        0      open     0-1       (12:1 10:1)       0.500     0.02
        1      advance  +1: 0-1   (12:1 10:1)       0.500     0.03
        2      advance  +1: 0-1   22:1              0.750     0.04
        3-4    advance  +1: 1     22:1              0.750     0.06
        5      open     2         22:1              0.750     0.07
        6      advance  +1: 1-2   22:2              0.875     0.08
        7      advance  +1: 1     22:2              0.875     0.09
        7      answer   0         22:2              0.875     0.09
        votes: final answers, (latest answers) in brackets
        answer 22 (right); stopped: decided
    """
    refuse_forks()
    data = loaded(data)
    question, seed = check_int("question", question, least=None), check_int("seed", seed, 0, MAX_SEED)
    if check_bool("recorded", recorded) and (seed, protocol) != (0, "repo100"):
        raise InputError("the recorded order is not drawn; leave the seed and the protocol out")
    playing = as_player(player, sealing=sealing)
    playing.check_single()
    width = check_width(data, widest(data, max_branches), playing)
    budget = check_budget(budget)
    playing.check(width)
    check_probes(data, playing)
    warn_of_distance(playing, Scale.of(data.matrix))
    row, name = _find(data, cell, question)
    orders = recorded_orders(len(data), width) if recorded else branch_orders(data, protocol, [seed], width)
    order = orders.of(row, 0)
    asked = data.questions[row]
    matrix = jax.device_put(keep_signals(data.matrix, playing.signals, playing.name))
    executor = ReplayExecutor(begin_pool(matrix, row, order, budget), asked.answer)
    finals = playing.votes_with_finals(executor.view())
    steps, ended = follow(playing.play_episode, executor, finals, playing.signals)
    opened = int(executor.view().opened)
    warn_of_no_branch(playing.names[0], budget, opened)
    drawn = "recorded order" if recorded else f"seed {seed}"
    view = executor.view()
    keys = np.asarray(view.revealed_keys)[:opened]
    depths = np.asarray(view.depth)[:opened].tolist()

    def at_depths(value: Callable[[tuple[int, int]], Any]) -> list[list[Any]]:
        """Looks up a value by branch and depth, as far as the branches were read; None where unrevealed."""
        places = ([(branch, k) for k in range(depth)] for branch, depth in enumerate(depths))
        return [[None if keys[place] == UNREVEALED else value(place) for place in row] for row in places]

    def signal_of(name: str) -> list[list[Any]]:
        values = np.asarray(data.matrix.signals[name])[row, np.asarray(order)]
        return at_depths(lambda place: float(values[place]))

    return Trace(
        title=f"{playing.names[0]} on {name}, question {question}, {drawn}",
        steps=steps,
        answer=ended.answer,
        gold=asked.gold,
        stop_reason=ended.stop_reason,
        finished=np.asarray(view.finished)[:opened].tolist(),
        pruned=(~np.asarray(view.active)[:opened]).tolist(),
        shown=at_depths(lambda place: asked.answer(int(keys[place]))),
        signals={name: signal_of(name) for name in playing.signals},
    )


def follow(
    play: Callable[[ReplayExecutor, Callable[[Decision], None]], Ended],
    executor: ReplayExecutor,
    finals: bool = False,
    signals: Sequence[str] = (),
) -> tuple[list[TraceStep], Ended]:
    """Plays an episode and notes what is decided.

    Returns:
        What was decided, the answer last, and how the episode ended.
    """
    steps: list[TraceStep] = []

    def note(decision: Decision) -> None:
        steps.append(_step(decision, executor, finals, None, signals))

    ended = play(executor, note)
    leader = [] if ended.leader == NONE else [ended.leader]
    tokens = int(executor.view().tokens)
    answer = Decision(ended.rounds, "answer", leader, [0] * len(leader), [ended.answer] * len(leader), tokens)
    return [*steps, _step(answer, executor, finals, ended.answer, signals)], ended


def _find(dataset: ProbeDataset, cell: str | None, question: int) -> tuple[int, str]:
    """Row of the matrix and name of the cell of a question."""
    names = [known.name for known in dataset.cells]
    name = names[0] if cell is None else check_choice("cell", cell, names)
    rows = dataset.cell_questions(names.index(name))
    if not 0 <= question < len(rows):
        raise InputError(f"{name} has no question {question}; it has 0 … {len(rows) - 1}")
    return int(rows[question]), name


def _step(
    decision: Decision, executor: ReplayExecutor, finals: bool, answer: str | None, signals: Sequence[str]
) -> TraceStep:
    view = executor.view()
    finished, active = np.asarray(view.finished), np.asarray(view.active)
    if not active.any():  # those that a controller has left early are pruned, and still vote
        active = np.asarray(view.depth) > 0
    final = finals and bool(finished.any())
    answers = executor.answers(np.flatnonzero(finished if final else active).tolist())
    votes = Counter(text for text in answers if text is not None).most_common()
    # Among answers with as many votes the given one leads; the controller knows which came first.
    votes.sort(key=lambda vote: (-vote[1], vote[0] != answer))
    top = [count for _, count in votes] + [0, 0]
    confidence = float(confidence_table(view.width)[top[0], top[1]])
    values = {name: np.asarray(view.signal(name))[list(decision.branches)] for name in signals}
    noted = {
        name: [None if np.isnan(value) else float(value) for value in row] for name, row in values.items()
    }
    return TraceStep(decision, dict(votes), final, confidence, noted)


def describe_steps(steps: Sequence[TraceStep]) -> Iterator[tuple[str, ...]]:
    """Writes an episode as lines; rounds that decide the same share one.

    Yields:
        Round, action, branches, votes, confidence and ktokens, then each signal that was noted.
    """
    for first, last in _alike(steps):
        yield (
            _rounds(first.decision.round, last.decision.round),
            first.decision.action,
            describe_branches(first.decision),
            describe_votes(first),
            f"{last.confidence:.3f}",
            thousands(last.decision.tokens),
            *map(_span, last.signals.values()),
        )


def _span(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    ends = dict.fromkeys(f"{end:.3g}" for end in (min(known), max(known))) if known else ()
    return " … ".join(ends)


def _rounds(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _alike(steps: Sequence[TraceStep]) -> Iterator[tuple[TraceStep, TraceStep]]:
    """First and last step of each run of rounds that decide one thing, the same, with the same votes."""
    alone = Counter(step.decision.round for step in steps)

    def what(numbered: tuple[int, TraceStep]) -> tuple[Any, ...]:
        number, step = numbered
        decision = step.decision
        if alone[decision.round] > 1:
            return (number,)
        return (decision.action, decision.branches, decision.intervals, step.votes, step.final, step.signals)

    for _, run in groupby(enumerate(steps), key=what):
        same = [step for _, step in run]
        yield same[0], same[-1]


def describe_branches(decision: Decision) -> str:
    """Writes branches as ranges, by the intervals read where they were advanced: ``+1: 0-3, 7; +2: 4``."""
    if decision.action != "advance":
        return _ranges(decision.branches)
    steps: dict[int, list[int]] = {}
    for branch, intervals in zip(decision.branches, decision.intervals, strict=True):
        steps.setdefault(intervals, []).append(branch)
    return "; ".join(f"+{count}: {_ranges(branches)}" for count, branches in sorted(steps.items()))


def describe_votes(step: TraceStep) -> str:
    """Writes the leading votes, ``204:5 12:1 …``; in brackets where they are not of finished branches."""
    votes = list(step.votes.items())
    parts = [f"{answer[:12]}:{count}" for answer, count in votes[:SHOWN_VOTES]]
    text = " ".join(parts + ["…"] * (len(votes) > SHOWN_VOTES))
    return text if step.final else f"({text})"


def _ranges(numbers: Sequence[int]) -> str:
    """``[0, 1, 2, 7]`` as ``0-2, 7``."""
    runs = groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
    spans = [[number for _, number in run] for _, run in runs]
    return ", ".join(f"{s[0]}-{s[-1]}" if len(s) > 1 else str(s[0]) for s in spans)


def _as_line(step: TraceStep) -> dict[str, Any]:
    """A step as a flat record."""
    votes = {"votes": step.votes, "final": step.final, "confidence": step.confidence}
    signals = {"signals": step.signals} if step.signals else {}
    return dataclasses.asdict(step.decision) | votes | signals
