"""A conformance check for controllers: what evaluation, training and live control rely on."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Int

from autotts_jax.checks import check_int
from autotts_jax.core import stepping
from autotts_jax.core.controller import UNTRACEABLE, Controller, Family, check_fields
from autotts_jax.core.rollout import COLUMNS, Episodes, rollout
from autotts_jax.core.stepping import Decision, ReplayExecutor, begin_pool
from autotts_jax.errors import InputError
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.replay.generator import SYNTHETIC_MODELS, synthetic
from autotts_jax.replay.matrix import NONE, ProbeMatrix
from autotts_jax.replay.orders import BranchOrders
from autotts_jax.replay.signals import keep_signals

STEPPED = 3
"""Episodes that are also played one look at a time, which is slow."""

KEEP_IN_MEMORY = (
    "Keep everything that the controller remembers in its memory, the jax.random.key_data of a random key, "
    "too; do not use other randomness, the time, or callbacks that keep a state."
)
COMPARE_KEYS = "Compare the keys of answers for equality only."
REPEAT = (
    "Return the same action again as often as its repeat says, and count the rounds by view.rounds, which "
    "tells how many were played at once."
)
TRACE = (
    "Fields, memory and the view are traced; use jnp.where, jnp.minimum or first_of instead of if, min() and "
    "int()."
)

Spell = Callable[[int], str | None]
Played = dict[str, np.ndarray]
"""What episodes came to: `COLUMNS` by name, one entry an episode."""


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
    3. *Keys*: an episode is the same when the ids of answers are permuted.
    4. *Equality*: a few episodes are the same when they are played one look at a time, as with a running
       language model, where no action is repeated at once.

    What an episode does not reveal no controller can see, so nothing has to be checked for that.

    Args:
        controller: a controller, or a family. The members of a family share the episodes.
        data: what to play on; a small synthetic dataset when None.
        max_branches: W, branches that an episode can open; fewer if a question has fewer.
        episodes: episodes to play, at least one for each member; the questions take turns.
        seed: seed of the branch orders and of the permutations.

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
        check_int("max_branches", max_branches, 1),
        max(check_int("episodes", episodes, 1), len(members)),
        rng,
    )
    played = trial.play(trial.matrix)
    _check_pure(trial, played)
    _check_keys(trial, played, rng)
    _check_stepped(trial, played)


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
            f"{name} fails the compilation check: class {kind} is not a pytree; decorate it with "
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
def _tracing(failure: str) -> Iterator[None]:
    """Makes an `AssertionError` of what a controller raises that cannot be traced."""
    try:
        yield
    except InputError as error:
        if not isinstance(error.__cause__, UNTRACEABLE):
            raise
        raise AssertionError(f"{failure}\n  {error}") from error
    except UNTRACEABLE as error:
        raise AssertionError(f"{failure}\n  {type(error).__name__}: {error}\n{TRACE}") from error


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
        with _tracing(f"{self.names[0]} fails the compilation check: it cannot be compiled"):
            results = rollout(
                self.controllers,
                matrix,
                orders,
                Episodes(episodes, zeros, self.setting[episodes]),
                lanes=1 if alone else len(episodes),
                devices=jax.local_devices()[:1],
            )
        return {name: getattr(results, name)[episodes] for name in COLUMNS}

    def step(
        self, episode: int, matrix: ProbeMatrix | None = None, ids: Int[np.ndarray, " V"] | None = None
    ) -> tuple[list[Decision], dict[str, int]]:
        """Plays an episode one look at a time: its decisions, and `COLUMNS` of it.

        Args:
            episode: the episode.
            matrix: the matrix; the trial's own when None.
            ids: the recorded ids of those of the matrix.
        """
        matrix = jax.device_put(self.matrix if matrix is None else matrix)
        spell = self.spell[episode]
        spelled = spell if ids is None else lambda key: spell(int(ids[key]))
        # As in live episodes, where final answers are not known at the start.
        pool = begin_pool(matrix, episode, self.orders[episode], equivalence=False)
        executor = ReplayExecutor(pool, spelled)
        decisions: list[Decision] = []
        ended = stepping.play(self.controller(episode), executor, decisions.append)
        return decisions, stepping.results_of(ended, executor.view())

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


# --- the checks -----------------------------------------------------------------------------------------


def _check_pure(trial: _Trial, played: Played) -> None:
    for alone, how in ((False, "again"), (True, "alone and in another order")):
        if change := _first_change(played, trial.play(trial.matrix, alone=alone)):
            (first, _), (second, _) = (trial.step(change.episode) for _ in range(2))
            difference = _first_difference(first, second)
            raise trial.failure("purity", change, f"when it is played {how}", difference, KEEP_IN_MEMORY)


def _check_keys(trial: _Trial, played: Played, rng: np.random.Generator) -> None:
    matrix = trial.matrix
    ids = rng.permutation(matrix.vocabulary).astype(np.int16)
    answers, gold = (np.where(known < 0, known, ids[known]) for known in (matrix.answers, matrix.gold))
    permuted = dataclasses.replace(matrix, answers=answers, gold=gold)
    old_ids = np.append(np.argsort(ids), NONE)  # NONE is -1, the last entry
    other = trial.play(permuted)
    other["answer"] = old_ids[other["answer"]]
    if change := _first_change(played, other):
        first, second = trial.step(change.episode), trial.step(change.episode, permuted, old_ids)
        difference = _first_difference(first[0], second[0])
        raise trial.failure("keys", change, "with the keys of answers", difference, COMPARE_KEYS)


def _check_stepped(trial: _Trial, played: Played) -> None:
    last = len(trial.source) - 1
    for episode in sorted(set(np.linspace(0, last, STEPPED).round().astype(int).tolist())):
        replayed = {name: int(played[name][episode]) for name in COLUMNS}
        decisions, stepped = trial.step(episode)
        if stepped != replayed:
            change = _Change(episode, _described_change(replayed, stepped))
            shown = "\n".join(f"  {_described(decision)}" for decision in decisions[-5:])
            difference = f"Its last decisions, one look at a time:\n{shown}"
            when = "when it is played one look at a time"
            raise trial.failure("equality", change, when, difference, REPEAT)


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
    return ", ".join(changed)


# --- decisions ------------------------------------------------------------------------------------------


def _first_difference(first: Sequence[Decision], second: Sequence[Decision]) -> str:
    """Shows the first decision in which two plays of an episode differ."""
    for before, after in itertools.zip_longest(first, second):
        if before != after:
            return (
                f"First decision that differs:\n  before: {_described(before)}\n  after:  {_described(after)}"
            )
    return "Played one look at a time, it makes the same decisions both times."


def _described(decision: Decision | None) -> str:
    if decision is None:
        return "none, the episode is over"
    return (
        f"round {decision.round}: {decision.action}, branches {decision.branches}, intervals "
        f"{decision.intervals}, answers {decision.answers}, {decision.tokens} tokens in all"
    )
