"""Evaluation: controllers and policies over questions and seeds, on the same episodes."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from autotts_jax.core.rollout import Episodes, check_budget, rollout
from autotts_jax.errors import InputError
from autotts_jax.policies.players import Selection, label
from autotts_jax.policies.programs import RESULT, evaluate_program, program_episodes, question_records
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.replay.orders import paper64_orders, repo100_orders

PROTOCOLS = {"repo100": 100, "paper64": 64}
"""Resampling protocols and their number of seeds."""

Progress = Callable[[str, int, int], None]
"""Told what is running, how many of its episodes have ended, and how many it has; 0 where that is unknown."""


@dataclasses.dataclass(frozen=True)
class Play:
    """The episodes of one selected controller: V values x S seeds x Q questions.

    Attributes:
        selection: what was played.
        answer: answer text, None for no answer. Shape (V, S, Q), as are the following.
        correct: whether it is the gold answer.
        tokens: tokens charged.
        intervals: Σ l_i.
        probes: |Ω|.
        sequential_tokens: latency proxy in tokens.
        branches: branches opened.
        rounds: rounds of the controller; None for a released program, which has none.
        stop_reason: `StopReason`; None for a released program.
        compile_seconds: wall time of tracing and compiling.
        run_seconds: wall time of running.
    """

    selection: Selection
    answer: np.ndarray
    correct: np.ndarray
    tokens: np.ndarray
    intervals: np.ndarray
    probes: np.ndarray
    sequential_tokens: np.ndarray
    branches: np.ndarray
    rounds: np.ndarray | None
    stop_reason: np.ndarray | None
    compile_seconds: float
    run_seconds: float


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What `evaluate` played.

    Attributes:
        dataset: the questions.
        seeds: S, seeds 0 … S - 1.
        plays: one for each selection.
    """

    dataset: ProbeDataset
    seeds: int
    plays: tuple[Play, ...]


def evaluate(
    dataset: ProbeDataset,
    selections: Sequence[Selection],
    *,
    protocol: str = "repo100",
    seeds: int | None = None,
    max_branches: int = 64,
    budget: int | None = None,
    processes: int = 1,
    on_progress: Progress | None = None,
) -> Evaluation:
    """Plays every selected controller and policy on the same episodes.

    Args:
        dataset: the questions.
        selections: controllers and policies, and their values.
        protocol: a key of `PROTOCOLS`.
        seeds: S; by protocol when None.
        max_branches: W, branches that an episode can open; a policy's episodes have its environment's W, and
            the same branches come first.
        budget: token budget; None for no limit.
        processes: worker processes for released programs.
        on_progress: told how far the run is.

    Raises:
        InputError: the arguments do not fit together, or a released program failed.
    """
    _check_protocol(protocol)
    seeds = PROTOCOLS[protocol] if seeds is None else seeds
    if seeds < 1:
        raise InputError(f"the number of seeds is {seeds}, but it must be at least 1")
    _check_distinct(selections)
    check_widths(dataset, selections, max_branches)
    check_budget(budget)
    if budget is not None and any(selection.program for selection in selections):
        raise InputError("released programs know no token budget; leave --budget out for them")
    widest = max(selection.width or max_branches for selection in selections)
    all_orders = branch_orders(dataset, protocol, range(seeds), widest)
    plays = []
    for selection in selections:
        orders = all_orders[..., : selection.width or max_branches]
        report = _reporter(selection, seeds * len(dataset), on_progress)
        if selection.program:
            plays.append(_play_program(dataset, selection, orders, processes, report))
        else:
            plays.append(_play_controllers(dataset, selection, orders, budget, report))
    return Evaluation(dataset, seeds, tuple(plays))


def branch_orders(dataset: ProbeDataset, protocol: str, seeds: Sequence[int], width: int) -> np.ndarray:
    """The branches that each question opens under each of S seeds, in opening order. Shape (S, Q, W)."""
    _check_protocol(protocol)
    orders = np.empty((len(seeds), len(dataset), width), np.int32)
    for index, cell in enumerate(dataset.cells):
        of_cell = dataset.cell_questions(index)
        if protocol == "repo100":
            drawn = repo100_orders(cell.num_branches, seeds)[:, None]
        else:
            drawn = paper64_orders(len(of_cell), cell.num_branches, seeds)
        orders[:, of_cell] = drawn[..., :width]
    return orders


def _play_controllers(dataset, selection: Selection, orders, budget, report) -> Play:
    seeds, questions, width = orders.shape
    shape = (len(selection.values), seeds, questions)
    setting, seed, question = (axis.reshape(-1) for axis in np.indices(shape))
    play = selection.host.rollout if selection.host else functools.partial(rollout, selection.controllers)
    results = play(
        dataset.matrix,
        orders.reshape(-1, width),
        Episodes(question, seed * questions + question, setting),
        budget=budget,
        on_progress=report,
    )
    columns = {name: column.reshape(shape) for name, column in results._asdict().items() if np.ndim(column)}
    columns["answer"] = _answer_texts(dataset, columns["answer"])
    return Play(
        selection,
        **columns,
        compile_seconds=results.compile_seconds,
        run_seconds=results.run_seconds,
    )


def _play_program(dataset, selection: Selection, orders, processes, report) -> Play:
    began = time.perf_counter()
    assert selection.program is not None
    records = question_records(dataset)
    episodes = program_episodes(orders, range(len(orders)))
    parts = []
    for index, beta in enumerate(selection.values):
        config = None if beta is None else {"beta": beta}
        before = index * len(episodes)
        on_progress = report and (lambda done, before=before: report(before + done))
        parts.append(evaluate_program(selection.program, config, records, episodes, processes, on_progress))
    played = np.stack(parts).reshape(len(parts), *orders.shape[:2])
    return Play(
        selection,
        **{name: played[name] for name in RESULT.names or ()},
        rounds=None,
        stop_reason=None,
        compile_seconds=0.0,
        run_seconds=time.perf_counter() - began,
    )


def _answer_texts(dataset: ProbeDataset, ids: np.ndarray) -> np.ndarray:
    """Answer texts of ids (V, S, Q), None for ``NONE``."""
    texts = np.full((len(dataset), dataset.matrix.vocabulary + 1), None, dtype=object)
    for row, question in enumerate(dataset.questions):
        texts[row, : len(question.vocabulary)] = question.vocabulary
    return texts[np.arange(len(dataset)), ids]  # NONE is -1, the last column


def _reporter(selection: Selection, episodes: int, on_progress: Progress | None):
    if on_progress is None:
        return None
    total = episodes * len(selection.values)
    on_progress(f"{selection.name}: {'starting' if selection.program else 'compiling'}", 0, 0)
    return lambda done: on_progress(selection.name, done, total)


def _check_protocol(protocol: str) -> None:
    if protocol not in PROTOCOLS:
        raise InputError(f"unknown protocol {protocol!r}; choose one of {', '.join(PROTOCOLS)}")


def _check_distinct(selections: Sequence[Selection]) -> None:
    """Raises an `InputError` where results could not be told apart."""
    labels = Counter(label for selection in selections for label in selection.labels)
    twice = [label for label, count in labels.items() if count > 1]
    if twice:
        raise InputError(
            f"{', '.join(twice)}: selected more than once; give each controller and value once, and classes "
            "of your own different names"
        )


def check_widths(dataset: ProbeDataset, selections: Sequence[Selection], width: int) -> None:
    """Raises an `InputError` where W exceeds a cell's branches, or a controller's exceed W."""
    for cell in dataset.cells:
        for selection in selections:
            if cell.num_branches < (selection.width or 0):
                raise InputError(
                    f"policy {selection.name} has an environment of {selection.width} branches, but "
                    f"{cell.name} has {cell.num_branches} a question; make the environment with "
                    f"max_branches={cell.num_branches} or less"
                )
        if cell.num_branches < width:
            raise InputError(
                f"{cell.source}: {cell.name} has {cell.num_branches} branches a question, fewer than the "
                f"{width} that an episode can open; give --max-branches {cell.num_branches} or less"
            )
    for selection in selections:
        for controller, value in zip(selection.controllers, selection.values, strict=False):
            if controller.value_name == "branches" and value is not None and value > width:
                raise InputError(
                    f"{label(selection.name, value)} reads more branches than an episode can open; give it "
                    f"at most {width}, or raise --max-branches"
                )
