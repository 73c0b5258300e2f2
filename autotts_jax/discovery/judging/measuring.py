"""Measuring candidates that are whole files of code, written by somebody nobody trusts.

A candidate plays sealed (`autotts_jax.policies.sealed`). What comes back over the seal is a `Measurement`:
numbers, and feedback for the author of the next candidate. Feedback shows answers as labels that mean
nothing outside an episode, and never shows a gold answer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from autotts_jax.core.stepping import ReplayExecutor, begin_pool
from autotts_jax.discovery.judging import tuning
from autotts_jax.discovery.judging.judge import Judge, Outcome, price
from autotts_jax.discovery.judging.promotion import falls, gain_over
from autotts_jax.discovery.programs.source import NAME
from autotts_jax.errors import InputError
from autotts_jax.experiments.tracing import describe_steps, follow
from autotts_jax.policies.player import ControllerPlayer, Play
from autotts_jax.policies.players import of_code
from autotts_jax.policies.sealed.player import SealedPlayer
from autotts_jax.policies.sealed.program import ProgramPlayer
from autotts_jax.policies.sealed.worker_pool import Sealing
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.replay.matrix import NONE
from autotts_jax.replay.orders import BranchOrders
from autotts_jax.sandbox.process import PACKAGE, Sandbox
from autotts_jax.user_code import UserCode

LIMITS = Sandbox(seconds=60, cpu_seconds=240, wall_seconds=240)
"""Limits of the processes that a candidate plays in, where nothing else is said."""

MAX_SOURCE = 1 << 16
"""Bytes of a candidate's file at most."""

MAX_FAILURE = 2000
"""Characters of the message of a failure at most."""

TRACE = "trace at β = "
"""What a trace in feedback begins with."""

TRACE_LINES = 12
"""Lines of a trace at most; of a longer episode the first and the last are shown."""

TRACE_COLUMNS = 100
"""Characters of a line of a trace at most."""

_ENTRY = """

if "{name}" in globals() and not hasattr({name}, "solve"):
    from autotts_jax.core.controller import Family
    {name} = Family("{name}", {betas}, {name}, "β")
"""
"""What is added to a file: a function of β becomes a family of controllers."""


@dataclasses.dataclass(frozen=True)
class Measurement:
    """How a candidate was measured.

    Attributes:
        metrics: numbers by name, of which ``objective`` is the one to maximise; None of a candidate that
            failed.
        feedback: text of bounded length for the author of the next candidate; for one that failed, why.
        level: what the sandbox was worth, ``kernel`` or ``process``; None of a candidate that failed.
        source: the text of the file with tuned constants, which is what was measured; None of a file that was
            measured as it is.
        untuned: metrics of the file before its constants were tuned; None where they were not.
    """

    metrics: dict[str, Any] | None
    feedback: str
    level: str | None = None
    source: str | None = None
    untuned: dict[str, Any] | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Course:
    """What candidates are measured on: the same questions in the same branch orders, and whom to beat.

    Attributes:
        data: Q questions.
        orders: R branch orders of each question.
        betas: B values of β, in increasing order.
        unit: tokens of a branch of mean length.
        group: the same number for the same question asked of several models. Shape (Q,).
        incumbent: the incumbent's episodes, in these orders.
        sandbox: limits of the processes that candidates play in.
        settings: values of β that candidates are played at: those of `betas`, or one of candidates without β,
            which are judged at the prices of all of `betas` with it.
        traces: whether feedback shows episodes.
        tries: settings of a controller's constants that are tried before it is measured; 0 to measure it as
            it is. They are rounded down to a multiple of 8.
    """

    data: ProbeDataset
    orders: BranchOrders
    betas: tuple[float, ...]
    unit: float
    group: Int[np.ndarray, " Q"]
    incumbent: Play
    sandbox: Sandbox
    settings: tuple[float, ...]
    traces: bool
    tries: int

    @classmethod
    def of(
        cls,
        judge: Judge,
        incumbent: ControllerPlayer,
        questions: Int[np.ndarray, " Q"],
        rows: Sequence[int],
        betas: Sequence[float],
        sandbox: Sandbox = LIMITS,
        settings: Sequence[float] | None = None,
        traces: bool = True,
        tries: int = 0,
    ) -> Course:
        """Plays the incumbent, and makes sure that this machine offers the sandbox.

        Args:
            judge: has the questions.
            incumbent: whom to beat.
            questions: the questions that are played.
            rows: rows of the search's branch orders.
            betas: the values of β, in increasing order.
            sandbox: limits of the processes that candidates play in.
            settings: values of β that candidates are played at; None for `betas`.
            traces: whether feedback shows episodes.
            tries: settings of a controller's constants that are tried before it is measured.

        Raises:
            InputError: constants are to be tuned, and what that needs is not installed.
            LevelError: the machine does not offer the sandbox.
        """
        if tries:
            tuning.check_installed()
        settings = tuple(betas if settings is None else settings)
        of_code(_code(f"class {NAME}:\n    solve = None\n", settings), sealing=Sealing(sandbox=sandbox))
        data, orders = judge.part(questions, judge.search, rows)
        played = incumbent.play(data, orders)
        group = judge.group[questions]
        return cls(data, orders, tuple(betas), judge.unit, group, played, sandbox, settings, traces, tries)


def measure(source: str, course: Course) -> Measurement:
    """Plays a candidate sealed and measures it; whatever goes wrong in it becomes feedback, not an error.

    The file gives the name ``candidate`` to a function of β in [0, 1] that returns a controller, or to a
    class ``X(config)`` with ``solve(question)``, where ``config["beta"]`` is β.

    Args:
        source: the text of the file.
        course: what it is measured on.
    """
    if len(source) > MAX_SOURCE:
        return Measurement(None, f"the file has {len(source)} characters; {MAX_SOURCE} are allowed")
    try:
        player = _player(source, course.settings, course.sandbox)
    except InputError as error:
        return _failure(error)
    if course.tries and isinstance(player, SealedPlayer):
        try:
            tuned = _measure_tuned(source, player, course)
        except InputError as error:
            return _failure(error)
        if tuned is not None:
            return tuned
    return _measure(player, course)


def _measure_tuned(source: str, player: SealedPlayer, course: Course) -> Measurement | None:
    """Tunes a controller and measures it; None where that brings nothing."""

    def objective(play: Play) -> float:
        return float(outcome_of(play, course.unit).objective(course.betas)[0])

    data, orders = course.data, course.orders
    untuned, factors = tuning.best_factors(player, data, orders, objective, course.tries, source)
    if not factors:
        return None
    tuned = tuning.with_factors(source, NAME, factors)
    measured = _measure(_player(tuned, course.settings, course.sandbox), course)
    before = _metrics(outcome_of(untuned, course.unit), course)
    if measured.metrics is None or measured.metrics["objective"] <= before["objective"]:
        return None
    return dataclasses.replace(measured, source=tuned, untuned=before)


def _measure(player: SealedPlayer | ProgramPlayer, course: Course) -> Measurement:
    try:
        play = player.play(course.data, course.orders)
        telling = _telling(play, course) if course.traces else ()
        traces = [line for episode in telling for line in _trace(player, episode, play, course)]
    except InputError as error:
        return _failure(error)
    assert play.seal is not None
    metrics = _metrics(outcome_of(play, course.unit), course)
    if not np.isfinite(metrics["objective"]):
        return Measurement(None, "its objective is not a number")
    return Measurement(metrics, "\n".join([*_summary(metrics, course), *traces]), play.seal.level)


def _failure(error: InputError) -> Measurement:
    return Measurement(None, str(error).replace(f"{PACKAGE.parent}/", "")[:MAX_FAILURE])


def play_sealed(
    source: str, data: ProbeDataset, orders: BranchOrders, betas: Sequence[float], sandbox: Sandbox = LIMITS
) -> Play:
    """Plays a candidate sealed.

    Args:
        source: the text of its file.
        data: the questions.
        orders: branch orders of each question.
        betas: the values of β.
        sandbox: limits of the processes that it plays in.

    Raises:
        InputError: the candidate failed.
    """
    return _player(source, betas, sandbox).play(data, orders)


def outcome_of(play: Play, unit: float) -> Outcome:
    """Computes means over branch orders.

    Args:
        play: the episodes of one player.
        unit: tokens of a branch of mean length.
    """
    columns = (play.correct, play.tokens / unit, play.branches)
    return Outcome(*(np.mean(column, axis=1, dtype=float)[None] for column in columns))


def _code(source: str, betas: Sequence[float]) -> UserCode:
    entry = _ENTRY.format(name=NAME, betas=tuple(map(float, betas)))
    return UserCode(f"{NAME}.py:{NAME}", NAME, source + entry)


def _player(source: str, betas: Sequence[float], sandbox: Sandbox) -> SealedPlayer | ProgramPlayer:
    player = of_code(_code(source, betas), sealing=Sealing(sandbox=sandbox))
    if isinstance(player, ProgramPlayer):
        return dataclasses.replace(player, values=tuple(betas))
    if player.values != tuple(betas):
        raise InputError(f"{NAME} must be a function of β that returns a controller, or a class with solve")
    return player


# --- numbers --------------------------------------------------------------------------------------------


def _best_settings(course: Course, betas: Sequence[float]) -> Int[np.ndarray, " B"]:
    """The incumbent's setting that is best at each β's price."""
    outcome = outcome_of(course.incumbent, course.unit)
    accuracy, cost = outcome.accuracy[0].mean(axis=1), outcome.cost[0].mean(axis=1)
    return (accuracy - price(betas)[:, None] * cost).argmax(axis=1)


def _metrics(outcome: Outcome, course: Course) -> dict[str, Any]:
    theirs = outcome_of(course.incumbent, course.unit)
    best = _best_settings(course, course.betas)
    prices = price(course.betas)[:, None]
    gain = outcome.accuracy[0] - prices * outcome.cost[0]
    gain = (gain - theirs.accuracy[0][best] + prices * theirs.cost[0][best]).mean(axis=0)
    decreasing = falls(outcome.cost[0], course.settings)

    def means(values: Float[np.ndarray, "1 B Q"], digits: int) -> list[float]:
        return [round(float(value), digits) for value in values[0].mean(axis=1)]

    return {
        "objective": round(float(outcome.objective(course.betas)[0]), 6),
        "gain": round(float(gain.mean()), 6),
        "gain_low": round(gain_over(gain, course.group).lower(0.025), 6),
        "gain_high": round(-gain_over(-gain, course.group).lower(0.025), 6),
        "beta": list(course.settings),
        "accuracy": means(outcome.accuracy, 4),
        "tokens": means(outcome.cost * course.unit, 1),
        "branches": means(outcome.width, 2),
        "cost": round(float(outcome.cost.mean()), 4),
        "width": round(float(outcome.width.mean()), 4),
        "monotone": not decreasing,
        "falls": list(decreasing),
    }


def _summary(metrics: dict[str, Any], course: Course) -> Iterator[str]:
    yield f"objective {metrics['objective']:.4f} (mean over β of accuracy minus price(β) · tokens)"
    yield "   β  accuracy    tokens  branches"
    columns = (metrics[name] for name in ("beta", "accuracy", "tokens", "branches"))
    for beta, accuracy, tokens, branches in zip(*columns, strict=True):
        yield f"{beta:4.2f}  {accuracy:8.3f}  {tokens:8.0f}  {branches:8.1f}"
    if len(course.settings) == 1:
        pass  # There is no other β to spend more or less than.
    elif metrics["monotone"]:
        yield "mean tokens do not fall as β rises, as it must be"
    else:
        shown = ", ".join(f"{beta:g}" for beta in metrics["falls"])
        yield f"mean tokens FALL from β = {shown} to the next; a larger β must spend more"
    yield (
        f"gain over {course.incumbent.player.name} (at each β the setting that is best at that price): "
        f"{metrics['gain']:+.4f} [{metrics['gain_low']:+.4f}, {metrics['gain_high']:+.4f}], 95 % interval "
        "over questions"
    )


# --- traces ---------------------------------------------------------------------------------------------


class _Telling(NamedTuple):
    """An episode that says much: its β, row of the branch orders and question, and why it is shown."""

    setting: int
    row: int
    question: int
    why: str


def _telling(play: Play, course: Course) -> Iterator[_Telling]:
    """At the least, middle and largest β: a wrong answer that need not be, and a dear one."""
    best = _best_settings(course, course.settings)
    for setting in sorted({0, len(course.settings) // 2, len(course.settings) - 1}):
        theirs = course.incumbent
        right, tokens = play.correct[setting], play.tokens[setting]
        right_too, fewer = theirs.correct[best[setting]], theirs.tokens[best[setting]]
        lost = _most(right_too.mean(axis=0) - right.mean(axis=0), right_too & ~right)
        if lost is not None:
            cost = f"wrong, where {theirs.player.name} is right with {fewer[lost]} tokens"
            yield _Telling(setting, *lost, cost)
        excess = tokens - fewer.astype(float)
        dear = _most(np.where(right & right_too, excess, 0).mean(axis=0), right & right_too & (excess > 0))
        if dear is not None:
            cost = f"right but dear: {theirs.player.name} is right with {fewer[dear]} tokens"
            yield _Telling(setting, *dear, cost)


def _most(weight: Float[np.ndarray, " Q"], among: Bool[np.ndarray, "R Q"]) -> tuple[int, int] | None:
    """The first row of the heaviest question; None where there is none."""
    if not among.any():
        return None
    question = int(np.where(among.any(axis=0), weight, -np.inf).argmax())
    return int(among[:, question].argmax()), question


def _trace(
    player: SealedPlayer | ProgramPlayer, episode: _Telling, play: Play, course: Course
) -> Iterator[str]:
    """Plays an episode again, one look at a time, and writes it down."""
    order = course.orders.of(episode.question, episode.row)
    labels: dict[int, str] = {}

    def label(answer: int) -> str | None:
        return None if answer == NONE else labels.setdefault(answer, f"a{len(labels)}")

    matrix = jax.device_put(course.data.matrix)
    executor = ReplayExecutor(begin_pool(matrix, episode.question, order), label)
    steps, ended = follow(player.settings()[episode.setting].play_episode, executor)
    spent = int(play.tokens[episode.setting, episode.row, episode.question])
    yield ""
    yield f"{TRACE}{course.settings[episode.setting]:g}: {episode.why}; this one takes {spent}"
    yield "round | action | branches | votes of latest answers | confidence | ktokens"
    lines = [" | ".join(cells)[:TRACE_COLUMNS] for cells in describe_steps(steps)]
    if len(lines) > TRACE_LINES:
        half = TRACE_LINES // 2
        lines = [*lines[:half], f"… {len(lines) - TRACE_LINES + 1} lines …", *lines[-half + 1 :]]
    yield from lines
    yield f"answered {ended.answer}; stopped: {ended.stop_reason.name.lower()}"
