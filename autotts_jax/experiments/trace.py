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
import jax.numpy as jnp
import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from autotts_jax.core import mdp
from autotts_jax.core import pool as branch_pool
from autotts_jax.core.controller import Controller, Memory
from autotts_jax.core.mdp import Scalar
from autotts_jax.core.pool import ReplayPool, StopReason
from autotts_jax.core.rollout import check_budget, end_of_round
from autotts_jax.core.votes import Vote, confidence_table
from autotts_jax.envs.rendering import episode_figure, short_answer
from autotts_jax.errors import InputError
from autotts_jax.experiments.evaluation import branch_orders, check_widths
from autotts_jax.experiments.files import results_folder
from autotts_jax.experiments.plots import available, save_figure
from autotts_jax.experiments.tables import thousands
from autotts_jax.policies.players import Selection
from autotts_jax.replay.dataset import ProbeDataset, Question
from autotts_jax.replay.matrix import NONE
from autotts_jax.typing import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN_VOTES = 3
OTHER_COLUMNS = 40
"""Characters that a line of the view has beside branches and votes, which share the rest."""


@dataclasses.dataclass(frozen=True)
class Decision:
    """One action of a controller, and how the vote stands after it.

    Attributes:
        round: round of the controller; 0 is its start.
        action: ``open``, ``advance``, ``probe``, ``prune``, ``read`` or ``answer``.
        branches: branches that it changed, by opening order.
        intervals: intervals read on each of them.
        votes: votes by answer, most first.
        final: whether the votes are final answers of finished branches; latest answers of active ones if not.
        confidence: confidence of that vote.
        tokens: tokens charged so far.
    """

    round: int
    action: str
    branches: list[int]
    intervals: list[int]
    votes: dict[str, int]
    final: bool
    confidence: float
    tokens: int


@dataclasses.dataclass(frozen=True)
class EpisodeTrace:
    """A played episode; lists have one entry a branch that was opened, in opening order.

    Attributes:
        title: controller, cell, question and seed.
        decisions: what was decided, in order; the last is the answer.
        answer: the answer given, None for no answer.
        gold: the right answer.
        stop_reason: why it ended.
        finished: whether the branch was read to its end.
        pruned: whether it was given up.
        shown: the answers at its depths, None at a depth that was not revealed.
    """

    title: str
    decisions: list[Decision]
    answer: str | None
    gold: str
    stop_reason: StopReason
    finished: list[bool]
    pruned: list[bool]
    shown: list[list[str | None]]


def trace_episode(
    dataset: ProbeDataset,
    selection: Selection,
    *,
    cell: str | None = None,
    question: int = 0,
    seed: int = 0,
    protocol: str = "repo100",
    budget: int | None = None,
    max_branches: int = 64,
) -> EpisodeTrace:
    """Plays one episode.

    Args:
        dataset: the questions.
        selection: one controller at one value.
        cell: ``model/benchmark``; the first cell when None.
        question: position of the question in its cell.
        seed: seed of the branch order.
        protocol: how the order is drawn from the seed.
        budget: token budget; None for no limit.
        max_branches: W.

    Raises:
        InputError: there is no such cell, question or single controller.
    """
    if len(selection.controllers) != 1:
        raise InputError(
            "a trace shows one controller at one value, as cmc with --beta 0.5 or sc@8; "
            "released programs cannot be traced"
        )
    check_widths(dataset, [selection], max_branches)
    check_budget(budget)
    row, name = _find(dataset, cell, question)
    order = branch_orders(dataset, protocol, [seed], max_branches)[0, row]
    replay = ReplayPool.begin(jax.device_put(dataset.matrix), row, jnp.asarray(order), budget)
    recorder = _Recorder(dataset.questions[row], _votes_on_finals(selection.controllers[0], replay))
    replay, stop = _play(selection.controllers[0], recorder, replay)
    state = branch_pool.state_of(replay)
    opened = int(state.opened)
    return EpisodeTrace(
        title=f"{selection.labels[0]} on {name}, question {question}, seed {seed}",
        decisions=recorder.decisions,
        answer=recorder.answer,
        gold=dataset.questions[row].gold,
        stop_reason=stop,
        finished=np.asarray(replay.finished)[:opened].tolist(),
        pruned=(~np.asarray(state.active)[:opened]).tolist(),
        shown=_shown(dataset, row, order, state),
    )


def _find(dataset: ProbeDataset, cell: str | None, question: int) -> tuple[int, str]:
    """Row of the matrix and name of the cell of a question."""
    names = [known.name for known in dataset.cells]
    name = names[0] if cell is None else cell
    if name not in names:
        raise InputError(f"there is no cell {name}; there are {', '.join(names)}")
    rows = dataset.cell_questions(names.index(name))
    if not 0 <= question < len(rows):
        raise InputError(f"{name} has no question {question}; it has 0 … {len(rows) - 1}")
    return int(rows[question]), name


def _votes_on_finals(controller: Controller, replay: ReplayPool) -> bool:
    """Whether the controller has finished branches vote; known from what it asks the pool for."""
    asked: set[str] = set()

    def run(replay):
        memory, pool = controller.start(_RecordingPool(replay, [], asked))
        return controller.vote(*controller.round(memory, pool)[:2])

    jax.eval_shape(run, replay)
    return "vote_finals" in asked


def _play(controller: Controller, recorder: _Recorder, replay: ReplayPool) -> tuple[ReplayPool, StopReason]:
    start = _Recorded(lambda _, pool: (*controller.start(pool), StopReason.RUNNING))
    play = _Recorded(controller.round)
    memory, replay, reason = start(None, replay, recorder)
    while reason == StopReason.RUNNING:
        recorder.round += 1
        memory, replay, reason = play(memory, replay, recorder)
        reason = StopReason(int(end_of_round(reason, replay, recorder.round)))
    recorder.end(replay, jax.jit(controller.vote)(memory, replay))
    return replay, reason


class _Recorded:
    """A compiled step of a controller that also gives the pool after each action it took.

    Which actions a step takes, changing something or not, is known from tracing it.
    """

    def __init__(self, step: Callable):
        self._actions: tuple[str, ...] = ()

        @jax.jit
        def run(memory, replay):
            recording = _RecordingPool(replay, [], set())
            memory, pool, reason = step(memory, recording)
            self._actions = tuple(action for action, _ in recording.log)
            return memory, pool.replay, jnp.asarray(reason), [after for _, after in recording.log]

        self._run = run

    def __call__(self, memory: Memory, replay: ReplayPool, recorder: _Recorder):
        memory, last, reason, pools = self._run(memory, replay)
        for action, before, after in zip(self._actions, [replay, *pools], pools, strict=False):
            recorder.note(action, before, after)
        return memory, last, reason


def _shown(dataset: ProbeDataset, row: int, order: np.ndarray, state: mdp.State) -> list[list[str | None]]:
    revealed = np.unpackbits(
        np.asarray(state.revealed).astype("<u4").view(np.uint8), axis=1, bitorder="little"
    )
    return [
        [
            dataset.questions[row].answer(int(dataset.matrix.answers[row, branch, k])) if bits[k] else None
            for k in range(depth)
        ]
        for branch, bits, depth in zip(
            order, revealed, state.depth[: int(state.opened)].tolist(), strict=False
        )
    ]


class _Recorder:
    """Notes what happens in an episode; votes are of final answers where the controller asks for them."""

    def __init__(self, question: Question, finals: bool):
        self.question = question
        self.finals = finals
        self.decisions: list[Decision] = []
        self.round = 0
        self.answer: str | None = None

    def note(self, action: str, before: ReplayPool, after: ReplayPool) -> None:
        """Adds an action, if it changed anything."""
        read = np.asarray(after.depth) - np.asarray(before.depth)
        shown = np.asarray(branch_pool.state_of(after).shown) != np.asarray(
            branch_pool.state_of(before).shown
        )
        changed = np.flatnonzero(
            (read != 0) | shown | (np.asarray(after.active) != np.asarray(before.active))
        )
        if changed.size:
            self._add(action, changed, read[changed], after)

    def end(self, replay: ReplayPool, vote: Vote) -> None:
        """Adds the answer."""
        self.answer = self.question.answer(int(branch_pool.leader_answer(replay, vote)))
        leader = np.array([vote.leader]) if vote.leader != NONE else np.array([], int)
        self._add("answer", leader, np.zeros_like(leader), replay)

    def _add(self, action: str, branches: np.ndarray, intervals: np.ndarray, pool: ReplayPool) -> None:
        final = self.finals and bool(jnp.any(pool.finished))
        voters = np.asarray(pool.finished if final else pool.active)
        ids = np.asarray(branch_pool.answer_ids(pool))[voters]
        votes = Counter(str(self.question.answer(i)) for i in ids.tolist() if i != NONE).most_common()
        # Of answers with as many votes the given one leads; the controller knows which came first.
        votes.sort(key=lambda vote: (-vote[1], vote[0] != self.answer))
        top = [count for _, count in votes] + [0, 0]
        self.decisions.append(
            Decision(
                self.round,
                action,
                branches.tolist(),
                intervals.tolist(),
                dict(votes),
                final,
                float(confidence_table(pool.width)[top[0], top[1]]),
                int(pool.tokens),
            )
        )


@dataclasses.dataclass(frozen=True)
class _RecordingPool:
    """A pool that shows what ``replay`` shows, and notes what it is asked for and what it is told to do.

    Attributes:
        replay: the pool.
        log: every action, with the pool after it.
        asked: names of all that was asked for.
    """

    replay: ReplayPool
    log: list[tuple[str, ReplayPool]]
    asked: set[str]

    def __getattr__(self, name: str) -> Any:
        self.asked.add(name)
        return getattr(self.replay, name)

    def _act(self, action: str, *arguments: Any) -> _RecordingPool:
        after = getattr(self.replay, action)(*arguments)
        self.log.append((action, after))
        return _RecordingPool(after, self.log, self.asked)

    def open(self, count: Scalar, probe: bool = True) -> _RecordingPool:
        return self._act("open", count, probe)

    def advance(self, count: Array, probe: bool = True) -> _RecordingPool:
        return self._act("advance", count, probe)

    def probe(self, mask: Array) -> _RecordingPool:
        return self._act("probe", mask)

    def prune(self, mask: Array) -> _RecordingPool:
        return self._act("prune", mask)

    def read(self, count: Scalar) -> _RecordingPool:
        return self._act("read", count)


# --- views ----------------------------------------------------------------------------------------------


def print_trace(trace: EpisodeTrace, console: Console) -> None:
    """The episode as a table, a line a decision; rounds that do the same share a line."""
    table = Table(title=trace.title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    table.show_edge, table.padding = False, (0, 1, 0, 0)
    half = max((console.width - OTHER_COLUMNS) // 2, 8)
    for heading in ("round", "action", "branches", "votes", "confidence", "ktokens"):
        table.add_column(
            heading,
            justify="right" if heading in ("confidence", "ktokens") else "left",
            max_width=half if heading in ("branches", "votes") else None,
            no_wrap=True,
        )
    for first, last in _alike(trace.decisions):
        table.add_row(
            str(first.round) if first.round == last.round else f"{first.round}-{last.round}",
            first.action,
            describe_branches(first),
            describe_votes(first),
            f"{last.confidence:.3f}",
            thousands(last.tokens),
        )
    console.print(table)
    right = "right" if trace.answer == trace.gold else f"wrong, it is {trace.gold}"
    reason = trace.stop_reason.name.lower().replace("_", " ")
    console.print("votes: final answers, (latest answers) in brackets", style="dim")
    console.print(f"answer {trace.answer} ({right}); stopped: {reason}")


def _alike(decisions: Sequence[Decision]) -> Iterator[tuple[Decision, Decision]]:
    """First and last decision of each run of rounds that decide one thing, the same, with the same votes."""
    alone = Counter(decision.round for decision in decisions)

    def what(numbered: tuple[int, Decision]) -> tuple:
        number, decision = numbered
        if alone[decision.round] > 1:
            return (number,)
        return (decision.action, decision.branches, decision.intervals, decision.votes, decision.final)

    for _, run in groupby(enumerate(decisions), key=what):
        same = [decision for _, decision in run]
        yield same[0], same[-1]


def describe_branches(decision: Decision) -> str:
    """Branches as ranges, by the intervals read where they were advanced: ``+1: 0-3, 7; +2: 4``."""
    if decision.action != "advance":
        return _ranges(decision.branches)
    steps: dict[int, list[int]] = {}
    for branch, intervals in zip(decision.branches, decision.intervals, strict=True):
        steps.setdefault(intervals, []).append(branch)
    return "; ".join(f"+{count}: {_ranges(branches)}" for count, branches in sorted(steps.items()))


def describe_votes(decision: Decision) -> str:
    """The leading votes, ``204:5 12:1 …``; in brackets where they are not of finished branches."""
    votes = list(decision.votes.items())
    parts = [f"{answer[:12]}:{count}" for answer, count in votes[:SHOWN_VOTES]]
    text = " ".join(parts + ["…"] * (len(votes) > SHOWN_VOTES))
    return text if decision.final else f"({text})"


def _ranges(numbers: Sequence[int]) -> str:
    """``[0, 1, 2, 7]`` as ``0-2, 7``."""
    runs = groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
    spans = [[number for _, number in run] for _, run in runs]
    return ", ".join(f"{s[0]}-{s[-1]}" if len(s) > 1 else str(s[0]) for s in spans)


def write_trace(folder: str | Path, trace: EpisodeTrace) -> list[Path]:
    """Writes ``trace.jsonl``, and ``trace.png`` and ``trace.svg`` where Matplotlib is installed.

    The first line of ``trace.jsonl`` is about the episode; each line after it is a decision.

    Args:
        folder: where to write them; made if need be.
        trace: the episode.

    Returns:
        The files.

    Raises:
        InputError: the folder cannot be written to.
    """
    episode = {
        "title": trace.title,
        "answer": trace.answer,
        "gold": trace.gold,
        "correct": trace.answer == trace.gold,
        "stop_reason": trace.stop_reason.name.lower(),
        "tokens": trace.decisions[-1].tokens,
    }
    lines = [episode, *(dataclasses.asdict(decision) for decision in trace.decisions)]
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    with results_folder(folder) as partial:
        (partial / "trace.jsonl").write_text(text, encoding="utf-8")
        if available():
            save_figure(trace_figure(trace), [partial / "trace.png", partial / "trace.svg"])
        names = sorted(file.name for file in partial.iterdir())
    return [Path(folder) / name for name in names]


def trace_figure(trace: EpisodeTrace) -> Figure:
    """Draws an episode: branches as rows, depth as columns, coloured by answer.

    Args:
        trace: the episode.

    Raises:
        InputError: Matplotlib is missing.
    """
    given = "no answer" if trace.answer is None else short_answer(trace.answer)
    title = f"{trace.title}\nanswered {given}, right is {short_answer(trace.gold)}"
    return episode_figure(
        title, trace.shown, trace.finished, trace.pruned, answer=trace.answer, gold=trace.gold
    )
