"""A conformance check for controllers: what evaluation, training and live control rely on."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import operator
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Int

from autotts_jax.checks import whole
from autotts_jax.core import stepping
from autotts_jax.core.controller import Controller, Family, Memory, check_fields
from autotts_jax.core.pool import BranchPool
from autotts_jax.core.rollout import COLUMNS, Episodes, Hooks, rollout
from autotts_jax.core.scrambling import Revealed, scramble
from autotts_jax.core.stepping import Decision, Executor, ReplayExecutor, Visible
from autotts_jax.errors import InputError
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.replay.generator import SYNTHETIC_MODELS, synthetic
from autotts_jax.replay.matrix import NONE, ProbeMatrix
from autotts_jax.replay.orders import BranchOrders
from autotts_jax.replay.signals import keep_signals
from autotts_jax.testing.executors import WrittenAheadExecutor
from autotts_jax.typing import Array

STEPPED = 3
"""Episodes that are also played one operation at a time, which is slow."""

UNTRACEABLE: tuple[type[Exception], ...] = (
    jax.errors.JAXTypeError,
    jax.errors.NonConcreteBooleanIndexError,
)

NOT_THE_CONTROLLERS = tuple(str(Path(file).parent) for file in (jax.__file__, stepping.__file__, __file__))
"""Folders of code that calls a controller or is called by it."""

USE_THE_POOL = "Use only the public properties and methods of the pool, and compare keys for equality only."
KEEP_IN_MEMORY = (
    "Keep everything that the controller remembers in its memory; do not use randomness, the time, or "
    "callbacks that keep a state."
)
USE_ONE_POOL = (
    "Treat all kinds of pools alike, call each operation on the pool that the one before returned, and keep "
    "the pool out of jax.lax control flow. Count the rounds that advance_rounds returns, and do nothing else "
    "in a round that calls read_until."
)
TRACE = (
    "Fields, memory and the pool are traced; use jnp.where, jnp.minimum or first_of instead of if, min() and "
    "int()."
)

Spell = Callable[[int], str | None]
Played = dict[str, np.ndarray]
"""What episodes came to: `COLUMNS` and the fields of `Revealed` by name, one entry an episode."""


def check_controller(
    controller: Controller | Family,
    data: ProbeDataset | ProbeMatrix | None = None,
    *,
    max_branches: int = 24,
    episodes: int = 24,
    seed: int = 0,
) -> None:
    """Plays a controller in several ways and checks that it decides the same in all of them.

    The checks, in this order:

    1. *Compilation*: the controller can be traced, and all members of a family share one compilation.
    2. *Purity*: an episode is the same when it is played again, and when it is played alone, with the
       episodes in another order.
    3. *Scramble*: an episode is the same when everything that it did not reveal is replaced by noise (deeper
       answers and signals, unopened branches, lengths and tokens of unfinished branches, the gold answer),
       and the ids of answers are permuted.
    4. *Equality*: a few episodes are the same when they are played one operation at a time, and when the
       matrix holds only what was read so far, as with a running language model.

    Args:
        controller: a controller, or a family. The members of a family share the episodes.
        data: what to play on; a small synthetic dataset when None.
        max_branches: W, branches that an episode can open; fewer if a question has fewer.
        episodes: episodes to play, at least one for each member; the questions take turns.
        seed: seed of the branch orders and of the noise.

    Raises:
        AssertionError: a check failed. The message names it, shows the first decision that differed, and says
            what to do.
        InputError: a method returns something else than `Controller` requires, the data lacks a signal that
            the controller reads, or an argument is wrong.

    Example:
        >>> from autotts_jax.policies import SelfConsistency
        >>> from autotts_jax.testing import check_controller
        >>> check_controller(SelfConsistency(8), episodes=4)
    """
    members = _members(controller)
    _check_one_compilation(members)
    if data is None:
        reads = bool(next(iter(members.values())).signals)
        data = synthetic(seed=1, models=SYNTHETIC_MODELS[1:2], questions=6, branches=32, signals=reads)
    rng = np.random.default_rng(seed)
    trial = _Trial.draw(
        members,
        data,
        whole("max_branches", max_branches, 1),
        max(whole("episodes", episodes, 1), len(members)),
        rng,
    )
    played = trial.play(trial.matrix)
    _check_pure(trial, played)
    _check_scrambled(trial, played, rng)
    _check_equal_everywhere(trial, played)


# --- compilation ----------------------------------------------------------------------------------------


def _members(controller: Controller | Family) -> dict[str, Controller]:
    """The controllers to check by name."""
    if isinstance(controller, Controller):
        return {type(controller).__name__: controller}
    if not isinstance(controller, Family):
        raise InputError(f"controller is {controller!r:.60}, but it must be a Controller or a Family of them")
    if not controller.values:
        raise AssertionError(f"{controller.name} has no values; a family needs at least one")
    return {f"{controller.name}@{value:g}": controller.member(value) for value in controller.values}


def _check_one_compilation(members: dict[str, Controller]) -> None:
    """Checks that JAX takes all members for the same program with other numbers."""
    name, first = next(iter(members.items()))
    kind = type(first).__name__
    if jax.tree_util.all_leaves((first,)):
        raise AssertionError(
            f"{name} fails the compilation check: class {kind} is no pytree; decorate it with "
            "@jax.tree_util.register_dataclass above @dataclasses.dataclass(frozen=True)"
        )
    structure: Callable[[Any], Any] = jax.tree.structure
    leaves = dict(jax.tree_util.tree_leaves_with_path(first))
    for other_name, other in members.items():
        both = f"{name} and {other_name} fail the compilation check: "
        if type(other) is not type(first):
            raise AssertionError(
                f"{both}one is a {kind}, the other a {type(other).__name__}; make all members of one class"
            )
        if structure(other) != structure(first):
            raise AssertionError(
                f"{both}{_static_difference(first, other)}, so JAX compiles again for each value; make every "
                "hyper-parameter a traced field, a number or an array of one shape"
            )
        for path, leaf in jax.tree_util.tree_leaves_with_path(other):
            ours, theirs = jax.typeof(leaves[path]), jax.typeof(leaf)
            if ours != theirs:
                raise AssertionError(
                    f"{both}field {jax.tree_util.keystr(path, simple=True)} is {ours} in one and {theirs} in "
                    "the other, so JAX compiles again; give it one type and one shape"
                )


def _static_difference(first: Any, other: Any) -> str:
    """Describes how the trees of two members of a family differ."""
    traced = {getattr(path[0], "name", None) for path, _ in jax.tree_util.tree_leaves_with_path(first)}
    static = [field.name for field in dataclasses.fields(first) if field.name not in traced]
    values = [(name, getattr(first, name), getattr(other, name)) for name in static]
    differing = [
        f"field {name} is static, and {ours!r} in one but {theirs!r} in the other"
        for name, ours, theirs in values
        if ours != theirs
    ]
    return " and ".join(differing) or "their fields hold trees of different structures"


@contextlib.contextmanager
def _tracing(failure: str, advice: str, *errors: type[Exception]) -> Iterator[None]:
    """Makes an `AssertionError` of what JAX raises where a controller cannot be traced."""
    try:
        yield
    except (*UNTRACEABLE, *errors) as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [
            f"\n  {Path(frame.filename).name}, line {frame.lineno}: {frame.line}"
            for frame in frames
            if not frame.filename.startswith(NOT_THE_CONTROLLERS)
        ]
        problem = str(error).partition("\n")[0]
        raise AssertionError(
            f"{failure}{''.join(lines[-1:])}\n  {type(error).__name__}: {problem}\n{advice}"
        ) from error


# --- playing --------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Trial:
    """The episodes of a check, each on a question of its own.

    Attributes:
        names: names of the controllers.
        controllers: the controllers.
        setting: index of the controller of each episode. Shape (E,).
        matrix: the question of each episode.
        orders: its branch order. Shape (E, W).
        source: the position of its question in the data. Shape (E,).
        spell: the text of an answer id, for each episode.
    """

    names: tuple[str, ...]
    controllers: tuple[Controller, ...]
    setting: Int[np.ndarray, " E"]
    matrix: ProbeMatrix
    orders: Int[np.ndarray, "E W"]
    source: Int[np.ndarray, " E"]
    spell: tuple[Spell, ...]

    @classmethod
    def draw(
        cls,
        members: dict[str, Controller],
        data: ProbeDataset | ProbeMatrix,
        max_branches: int,
        episodes: int,
        rng: np.random.Generator,
    ) -> _Trial:
        """Draws the branch orders of the episodes."""
        matrix = data.matrix if isinstance(data, ProbeDataset) else data
        name, first = next(iter(members.items()))
        check_fields(first)
        matrix = keep_signals(matrix, first.signals, name)
        source = np.arange(episodes) % matrix.num_questions
        recorded = [np.flatnonzero(lengths) for lengths in np.asarray(matrix.lengths)[source]]
        width = min(max_branches, *map(len, recorded))
        return cls(
            names=tuple(members),
            controllers=tuple(members.values()),
            setting=np.linspace(0, len(members) - 1, episodes).round().astype(np.int32),
            matrix=jax.tree.map(np.asarray, matrix).select(source),
            orders=np.stack([rng.permutation(branches)[:width] for branches in recorded]).astype(np.int32),
            source=source,
            spell=tuple(_spelling(data, question) for question in source.tolist()),
        )

    def play(self, matrix: ProbeMatrix, *, alone: bool = False) -> Played:
        """Plays all episodes side by side, or each alone, beginning with the last."""
        episodes = np.arange(len(self.source))[:: -1 if alone else 1]
        zeros = np.zeros(len(episodes), np.int32)
        orders = BranchOrders(self.orders[:, None], np.arange(len(episodes), dtype=np.int32))
        with _tracing(f"{self.names[0]} fails the compilation check: it cannot be compiled", TRACE):
            results = rollout(
                self.controllers,
                matrix,
                orders,
                Episodes(episodes, zeros, self.setting[episodes]),
                lanes=1 if alone else len(episodes),
                devices=jax.local_devices()[:1],
                hooks=Hooks(at_end=_revealed),
            )
        played = {name: getattr(results, name) for name in COLUMNS} | results.ends._asdict()
        return {name: column[episodes] for name, column in played.items()}

    def replay(
        self, episode: int, matrix: ProbeMatrix | None = None, ids: Int[np.ndarray, " V"] | None = None
    ) -> ReplayExecutor:
        """An executor at the start of an episode; ``ids`` are the recorded ones of those of a matrix."""
        matrix = jax.device_put(self.matrix if matrix is None else matrix)
        # As in live episodes, where final answers are not known at the start.
        spell = self.spell[episode]
        spelled = spell if ids is None else lambda key: spell(int(ids[key]))
        return ReplayExecutor.begin(matrix, episode, self.orders[episode], spelled, equivalence=False)

    def rounds(self, episode: int, rounds: int) -> list[Decision]:
        """What each round of an episode changes in a rollout, the start being part of the first."""
        results = rollout(
            [self.controller(episode)],
            self.matrix,
            BranchOrders(self.orders[:, None], np.arange(len(self.source), dtype=np.int32)),
            Episodes(np.array([episode]), np.zeros(1, np.int32), np.zeros(1, np.int32)),
            devices=jax.local_devices()[:1],
            hooks=Hooks(after_round=_seen, rounds=rounds),
        )
        seen, keys = jax.tree.map(lambda column: column[0], results.records)
        decisions = []
        before = jax.tree.map(lambda column: np.zeros_like(column[0]), seen)
        for number in range(rounds):
            after = jax.tree.map(operator.itemgetter(number), seen)
            spelled = np.array([self.spell[episode](key) for key in keys[number].tolist()], object)
            answers = functools.partial(np.take, spelled)
            decision = stepping.decision_between(before, after, number + 1, "round", answers)
            if decision is not None:
                decisions.append(decision)
            before = after
        return decisions

    def step(self, episode: int, executor: Executor) -> tuple[list[Decision], dict[str, int]]:
        """Plays an episode one operation at a time: its decisions, and `COLUMNS` of it."""
        decisions: list[Decision] = []
        failure = "fails the equality check: it cannot be played one operation at a time"
        with _tracing(f"{self.title(episode)} {failure}", USE_ONE_POOL, TypeError):
            ended = stepping.play(self.controller(episode), executor, decisions.append)
        return decisions, stepping.results_of(ended, executor.pool)

    def decisions(self, episode: int, executor: Executor) -> list[Decision]:
        """The decisions in an episode as far as it can be played one operation at a time."""
        try:
            return self.step(episode, executor)[0]
        except AssertionError:
            return []

    def controller(self, episode: int) -> Controller:
        return self.controllers[self.setting[episode]]

    def failure(self, check: str, change: _Change, when: str, difference: str, advice: str) -> AssertionError:
        return AssertionError(
            f"{self.title(change.episode)} fails the {check} check: the episode changes {when}\n"
            f"  {change.what}\n{difference}\n{advice}"
        )

    def title(self, episode: int) -> str:
        return f"{self.names[self.setting[episode]]} on question {self.source[episode]} (episode {episode})"


def _spelling(data: ProbeDataset | ProbeMatrix, question: int) -> Spell:
    """Spells the answers of a question; noise has ids that the question may not have."""
    vocabulary = data.questions[question].vocabulary if isinstance(data, ProbeDataset) else ()

    def spell(key: int) -> str | None:
        if key == NONE:
            return None
        return vocabulary[key] if key < len(vocabulary) else f"#{key}"

    return spell


def _revealed(controller: Controller, memory: Memory, pool: BranchPool) -> Revealed:  # noqa: ARG001
    return Revealed.of(pool)


def _seen(controller: Controller, memory: Memory, pool: BranchPool) -> tuple[Visible, Array]:  # noqa: ARG001
    return stepping.look(pool), pool.answer_keys


# --- the checks -----------------------------------------------------------------------------------------


def _check_pure(trial: _Trial, played: Played) -> None:
    for alone, how in ((False, "again"), (True, "alone and in another order")):
        if change := _first_change(played, trial.play(trial.matrix, alone=alone)):
            first, second = (trial.decisions(change.episode, trial.replay(change.episode)) for _ in range(2))
            difference = _first_difference(first, second)
            raise trial.failure("purity", change, f"when it is played {how}", difference, KEEP_IN_MEMORY)


def _check_scrambled(trial: _Trial, played: Played, rng: np.random.Generator) -> None:
    matrix, old_ids = trial.matrix, []
    for episode, order in enumerate(trial.orders):
        kept = Revealed(**{name: played[name][episode] for name in Revealed._fields})
        matrix, ids = scramble(matrix, episode, order, kept, rng)
        old_ids.append(np.append(np.argsort(ids), NONE))  # NONE is -1, the last entry
    other = trial.play(matrix)
    other["answer"] = np.stack(old_ids)[np.arange(len(old_ids)), other["answer"]]
    if change := _first_change(played, other):
        scrambled = trial.replay(change.episode, matrix, old_ids[change.episode])
        first = trial.decisions(change.episode, trial.replay(change.episode))
        difference = _first_difference(first, trial.decisions(change.episode, scrambled))
        raise trial.failure("scramble", change, "with what it did not reveal", difference, USE_THE_POOL)


def _check_equal_everywhere(trial: _Trial, played: Played) -> None:
    last = len(trial.source) - 1
    for episode in sorted(set(np.linspace(0, last, STEPPED).round().astype(int).tolist())):
        replayed = {name: int(played[name][episode]) for name in COLUMNS}
        decisions, stepped = trial.step(episode, trial.replay(episode))
        if stepped != replayed:
            rounds = trial.rounds(episode, replayed["rounds"])
            difference = _first_difference(rounds, _merged(decisions))
            change = _Change(episode, _described_change(replayed, stepped))
            when = "when it is played one operation at a time"
            raise trial.failure("equality", change, when, difference, USE_ONE_POOL)
        ahead = WrittenAheadExecutor(trial.matrix, episode, trial.orders[episode], trial.spell[episode])
        live_decisions, live = trial.step(episode, ahead)
        if (live_decisions, live) != (decisions, stepped):
            difference = _first_difference(decisions, live_decisions)
            change = _Change(episode, _described_change(stepped, live))
            raise trial.failure("equality", change, "when it is played live", difference, USE_THE_POOL)


class _Change(NamedTuple):
    """An episode that differs between two plays, and in what."""

    episode: int
    what: str


def _first_change(first: Played, second: Played) -> _Change | None:
    """Finds the first episode that differs."""
    for episode in range(len(first["answer"])):
        before, after = ({name: column[episode] for name, column in p.items()} for p in (first, second))
        if any(not np.array_equal(before[name], after[name]) for name in before):
            return _Change(episode, _described_change(before, after))
    return None


def _described_change(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Describes how two plays of an episode differ in what they came to."""
    changed = [f"{name} {before[name]} → {after[name]}" for name in COLUMNS if before[name] != after[name]]
    return ", ".join(changed) or "other decisions, the same results"


# --- decisions ------------------------------------------------------------------------------------------


def _first_difference(first: Sequence[Decision], second: Sequence[Decision]) -> str:
    """Shows the first decision in which two plays of an episode differ."""
    for before, after in itertools.zip_longest(first, second):
        if before != after:
            return (
                f"First decision that differs:\n  before: {_described(before)}\n  after:  {_described(after)}"
            )
    return "Played one operation at a time, it makes the same decisions both times."


def _described(decision: Decision | None) -> str:
    if decision is None:
        return "none, the episode is over"
    return (
        f"round {decision.round}: {decision.action}, branches {decision.branches}, intervals "
        f"{decision.intervals}, answers {decision.answers}, {decision.tokens} tokens in all"
    )


def _merged(decisions: Sequence[Decision]) -> list[Decision]:
    """Makes one decision of all those of a round, the start being part of the first."""
    merged = []
    for number, round_ in itertools.groupby(decisions, key=lambda decision: max(decision.round, 1)):
        intervals: Counter[int] = Counter()
        answers: dict[int, str | None] = {}
        for decision in round_:
            intervals.update(dict(zip(decision.branches, decision.intervals, strict=True)))
            answers.update(zip(decision.branches, decision.answers, strict=True))
        branches = sorted(answers)
        merged.append(
            Decision(
                round=number,
                action="round",
                branches=branches,
                intervals=[intervals[branch] for branch in branches],
                answers=[answers[branch] for branch in branches],
                tokens=decision.tokens,
            )
        )
    return merged
