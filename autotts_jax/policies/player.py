"""What a player is: the contract between those who can be evaluated and whatever plays them."""

from __future__ import annotations

import abc
import dataclasses
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np
from jaxtyping import Bool, Int

from autotts_jax.checks import check_label
from autotts_jax.core import stepping
from autotts_jax.core.controller import Controller, check_fields, checked_act, checked_answer, checked_init
from autotts_jax.core.rollout import Episodes, Hooks, Results, prepare_rollout, rollout
from autotts_jax.core.stepping import Decision, Ended, Executor
from autotts_jax.core.view import Lookups, View, is_left_out
from autotts_jax.core.votes import Vote
from autotts_jax.errors import InputError, InputWarning
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.replay.orders import BranchOrders
from autotts_jax.replay.scale import Scale
from autotts_jax.typing import Array

Prepared: TypeAlias = "Callable[[Callable[[int], None] | None], Play]"
"""Plays episodes, and calls a function, if it is given one, with how many have ended."""


class Player(abc.ABC):
    """Anything that can be evaluated, traced and asked: a controller, a released program, a policy.

    A player has one setting or several, which differ in a value such as β. It plays many episodes of recorded
    questions at a time with `play`, and one episode of whatever kind, operation by operation, with
    `play_episode`.

    Attributes:
        name: the name in results.
        values: the value of each setting; None for a setting without one.
        value_name: what the values are called: ``β``, ``γ``, ``branches``.
        width: branches that its episodes can open; None where the caller chooses.
        trusted: whether it is code from outside this package that runs in this process, unchecked.
        signals: names of the signals that it reads; it cannot be played without them.
    """

    name: str
    values: tuple[float | None, ...]
    value_name: str = "value"
    width: int | None = None
    trusted: bool = False
    signals: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each setting, ``name@value``."""
        return tuple(name_of(self.name, value) for value in self.values)

    def check(self, width: int) -> None:
        """Checks that the player can play, before anything is played.

        Args:
            width: W, branches that an episode can open.

        Raises:
            InputError: it cannot.
        """
        check_label("the name of a player", self.name)
        if self.width not in (None, width):
            raise InputError(f"{self.name} opens {self.width} branches, but episodes have {width}")

    @abc.abstractmethod
    def prepare(
        self,
        dataset: ProbeDataset,
        orders: BranchOrders,
        *,
        budget: int | None = None,
        processes: int = 1,
        critical_path: bool = False,
    ) -> Prepared:
        """Does what comes before playing, such as compiling. Players are prepared side by side.

        Args:
            dataset: Q questions.
            orders: S branch orders of each question, of a length W that the player can play.
            budget: token budget of an episode; None for no limit.
            processes: worker processes for players that run in Python alone.
            critical_path: count the tokens on the critical path, where rounds are seen: not of programs, nor
                of code in a process of its own.

        Returns:
            A function, to be called once, that plays every question under every branch order, with every
            setting: V x S x Q episodes. It is given None, or a function that it calls now and then with the
            number of episodes that have ended. It raises an `InputError` where the player fails.

        Raises:
            InputError: the player failed.
        """

    def play(
        self,
        dataset: ProbeDataset,
        orders: BranchOrders,
        *,
        on_progress: Callable[[int], None] | None = None,
        **settings: Any,
    ) -> Play:
        """Plays every question under every branch order, with every setting; see `prepare`.

        Args:
            dataset: Q questions.
            orders: S branch orders of each question.
            on_progress: called now and then with the number of episodes that have ended.
            **settings: as for `prepare`.

        Returns:
            The V x S x Q episodes.

        Raises:
            InputError: the player failed.
        """
        return self.prepare(dataset, orders, **settings)(on_progress)

    def watch(
        self,
        dataset: ProbeDataset,  # noqa: ARG002
        orders: BranchOrders,  # noqa: ARG002
        episodes: Episodes,  # noqa: ARG002
        *,
        budget: int | None = None,  # noqa: ARG002
    ) -> Results | None:
        """Plays a few episodes of those that `play` plays, and looks at them after each round.

        Args:
            dataset: Q questions.
            orders: S branch orders of each question.
            episodes: question, branch order and setting of each episode.
            budget: token budget of an episode; None for no limit.

        Returns:
            The results with what was ``shown``; None of a player that has no rounds, or plays elsewhere.

        Raises:
            InputError: there are more episodes than can be watched.
        """
        return None

    @abc.abstractmethod
    def play_episode(
        self, executor: Executor, on_decision: Callable[[Decision], None] | None = None
    ) -> Ended:
        """Plays one episode, one operation at a time, with the only setting.

        Args:
            executor: carries out the operations; nothing is opened yet.
            on_decision: called after every operation that changed something.

        Returns:
            How the episode ended.

        Raises:
            InputError: the player has several settings, or failed.
        """

    def settings(self) -> tuple[Player, ...]:
        """Gives a player for each setting."""
        if len(self.values) == 1:
            return (self,)
        return tuple(self.only([index]) for index in range(len(self.values)))

    def only(self, kept: Sequence[int]) -> Player:
        """Gives a player with some of the settings.

        Args:
            kept: their indices in ``values``.
        """
        return self._with(values=tuple(self.values[index] for index in kept))

    def _with(self, **fields: Any) -> Player:
        """This player with other fields; all players are dataclasses."""
        return dataclasses.replace(self, **fields)  # type: ignore[type-var]

    @property
    def trained_on(self) -> Scale | None:
        """The scale of what a learned player was trained on; None where it was not, or does not say."""
        return None

    def votes_with_finals(self, view: View) -> bool:  # noqa: ARG002
        """Tells whether finished branches alone vote for the player's answer once there are any.

        Args:
            view: an episode in which nothing is opened.
        """
        return False

    def decides_by_probes(self, view: View) -> bool | None:  # noqa: ARG002
        """Tells whether what it does depends on answers that branches give before their ends.

        Args:
            view: an episode, of shapes and dtypes.

        Returns:
            None of a player that cannot be asked, such as a program.
        """
        return None

    def check_single(self) -> None:
        """Checks that the player has a single setting.

        Raises:
            InputError: it has several.
        """
        if len(self.values) != 1:
            raise InputError(
                f"{self.name} has {len(self.values)} settings, but this takes one controller at one value; "
                f"choose one, as {self.names[0]}, or of a Family by member()"
            )


@dataclasses.dataclass(frozen=True, eq=False)
class Play:
    """The episodes of one player: V values x S seeds x Q questions.

    Attributes:
        player: the player.
        answer: answer texts, None for no answer.
        correct: whether the answer is the gold answer.
        tokens: tokens charged.
        intervals: Σ l_i, intervals read on all branches.
        probes: #Ω, probes read.
        sequential_tokens: tokens that have to be generated one after another, a proxy for latency.
        branches: branches opened.
        rounds: rounds of the controller; None for a released program, which has none.
        stop_reason: `StopReason`; None for a released program.
        compile_seconds: wall time of tracing and compiling.
        run_seconds: wall time of running.
        seal: how code from outside this package was run; None for this package's own.
        critical_path: tokens on the critical path: the most that each round reads of one branch, summed;
            None where nobody asked for them, or the rounds are not seen.
    """

    player: Player
    answer: np.ndarray[Any, Any]
    correct: Bool[np.ndarray, "V S Q"]
    tokens: Int[np.ndarray, "V S Q"]
    intervals: Int[np.ndarray, "V S Q"]
    probes: Int[np.ndarray, "V S Q"]
    sequential_tokens: Int[np.ndarray, "V S Q"]
    branches: Int[np.ndarray, "V S Q"]
    rounds: Int[np.ndarray, "V S Q"] | None
    stop_reason: Int[np.ndarray, "V S Q"] | None
    compile_seconds: float
    run_seconds: float
    seal: Seal | None = None
    critical_path: Int[np.ndarray, "V S Q"] | None = None


@dataclasses.dataclass(frozen=True)
class Seal:
    """How code from outside this package was run, and what its results were checked for.

    Attributes:
        level: the sandbox's level, ``kernel`` or ``process``; None where it ran in this process.
        checks: the checks that it passed; none of code that ran in this process.
        spellings: whether it was shown answers as they are spelled.
    """

    level: str | None = None
    checks: tuple[str, ...] = ()
    spellings: bool = False


def warn_of_distance(player: Player, scale: Scale) -> None:
    """Warns where questions are far from what a learned player was trained on."""
    if player.trained_on and (far := scale.beyond(player.trained_on)):
        warnings.warn(
            f"{player.name} was trained on {far}; measure it before you rely on it, or train one for this",
            InputWarning,
            stacklevel=3,
        )


def check_branches_of(player: Player, width: int) -> None:
    """Checks that no setting of a player reads more branches than an episode can open.

    Raises:
        InputError: one does.
    """
    for name, value in zip(player.names, player.values, strict=True):
        if player.value_name == "branches" and value is not None and value > width:
            raise InputError(
                f"{name} reads more branches than an episode can open; give it at most {width}, or raise "
                "max_branches if the data has more"
            )


def fitting(player: Player, width: int) -> Player | None:
    """Leaves out the settings of a family that read more branches than an episode can open.

    Returns:
        The player with the others; None where no setting fits.
    """
    if player.value_name != "branches" or len(player.values) == 1:
        return player
    kept = [index for index, value in enumerate(player.values) if value is None or value <= width]
    if len(kept) == len(player.values):
        return player  # itself, by which its play is found
    return player.only(kept) if kept else None


def name_of(name: str, value: float | None) -> str:
    """Writes a setting as ``name@value``, as `autotts_jax.policies.select` reads it."""
    return name if value is None else f"{name}@{value:g}"


@dataclasses.dataclass(frozen=True)
class ControllerPlayer(Player):
    """Controllers of one class.

    Attributes:
        name: the name in results.
        controllers: the controller of each setting.
        values: the value of each setting.
        value_name: what the values are called: ``β``, ``γ``, ``branches``.
        width: branches that an episode can open, where the controllers say so.
        trusted: see `Player`.
    """

    name: str
    controllers: tuple[Controller, ...]
    values: tuple[float | None, ...] = (None,)
    value_name: str = "value"
    width: int | None = None
    trusted: bool = False

    def check(self, width: int) -> None:
        """Checks the controllers' fields, and that none reads more branches than an episode can open."""
        super().check(width)
        for controller in self.controllers:
            check_fields(controller)
        check_branches_of(self, width)
        for controller in self.controllers:
            branches = getattr(controller, "branches", None)
            if isinstance(branches, int | np.integer) and not 1 <= branches <= width:
                raise InputError(
                    f"{type(controller).__name__}.branches is {branches}, but an episode opens 1 to {width} "
                    "of them; give it as many, or change max_branches"
                )

    def prepare(
        self,
        dataset: ProbeDataset,
        orders: BranchOrders,
        *,
        budget: int | None = None,
        processes: int = 1,  # noqa: ARG002
        critical_path: bool = False,
    ) -> Prepared:
        """Compiles the rollout."""
        episodes = all_episodes(self, dataset, orders)
        hooks = Hooks(critical_path=critical_path)
        run = prepare_rollout(self.controllers, dataset.matrix, orders, episodes, budget=budget, hooks=hooks)
        return lambda on_progress: play_of(self, dataset, orders, run(on_progress))

    def watch(
        self,
        dataset: ProbeDataset,
        orders: BranchOrders,
        episodes: Episodes,
        *,
        budget: int | None = None,
    ) -> Results | None:
        """Plays the episodes by what `play` has compiled, if that was with as many branch orders."""
        room = len(self.values) * orders.num_rows * len(dataset)
        return rollout(
            self.controllers, dataset.matrix, orders, episodes, budget=budget, watch=True, capacity=room
        )

    def play_episode(
        self, executor: Executor, on_decision: Callable[[Decision], None] | None = None
    ) -> Ended:
        """Plays one episode with the controller."""
        self.check_single()
        return stepping.play(self.controllers[0], executor, on_decision)

    @property
    def signals(self) -> tuple[str, ...]:  # type: ignore[override]  # the controllers say it
        """Names of the signals that the controllers read."""
        return self.controllers[0].signals

    @property
    def trained_on(self) -> Scale | None:
        """The scale of what the controllers were trained on."""
        return self.controllers[0].trained_on

    def only(self, kept: Sequence[int]) -> Player:
        """Gives a player with some of the controllers."""
        controllers = tuple(self.controllers[index] for index in kept)
        return self._with(controllers=controllers, values=tuple(self.values[index] for index in kept))

    def votes_with_finals(self, view: View) -> bool:
        """Tells whether the controllers hold a vote of finished branches."""
        held = False

        def elect(voters: Array, rank: Array | None) -> Vote:  # noqa: ARG001
            nonlocal held
            held = True
            return Vote.nobody(view.width)

        def look(view: View) -> Any:
            memory, seen = self._first_look(view, elect)
            memory, _ = checked_act(self.controllers[0], memory, seen)
            return checked_answer(self.controllers[0], memory, seen).leader

        jax.eval_shape(look, view)
        return held

    def decides_by_probes(self, view: View) -> bool:
        """Tells whether a controller reads step by step, and looks at more than votes of finals for it."""
        reads_on = False

        def look(view: View) -> Any:
            nonlocal reads_on
            memory, seen = self._first_look(view, lambda voters, rank: Vote.nobody(view.width))  # noqa: ARG005
            memory, action = checked_act(self.controllers[0], memory, seen)
            reads_on = action.advance is not None or not is_left_out(action.open)
            return memory, {name: part for name, part in action._asdict().items() if part is not None}

        traced = jax.make_jaxpr(look)(view).jaxpr
        leaves = jax.tree_util.tree_leaves_with_path(view)
        names = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in leaves]
        keys = [given for name, given in zip(names, traced.invars, strict=True) if name in _KEYS]
        used = [part for step in traced.eqns for part in step.invars] + traced.outvars
        return reads_on and any(part is key for key in keys for part in used)

    def _first_look(self, view: View, elect: Callable[..., Vote]) -> tuple[Any, View]:
        """A memory, and a view whose votes of finals are held by a function."""
        seen = dataclasses.replace(view, _lookups=Lookups(lambda branch: view.answer_keys[branch], elect))
        return checked_init(self.controllers[0], seen)[0], seen


_KEYS = ("answer_keys", "_labels", "_revealed_keys")
"""The fields of a view that hold answers."""


def all_episodes(player: Player, dataset: ProbeDataset, orders: BranchOrders) -> Episodes:
    """Lists every question under every branch order with every setting."""
    setting, row, question = np.indices((len(player.values), orders.num_rows, len(dataset)))
    return Episodes(question.reshape(-1), row.reshape(-1), setting.reshape(-1))


def play_of(player: Player, dataset: ProbeDataset, orders: BranchOrders, results: Results) -> Play:
    """Makes a player's play of what a rollout of `all_episodes` came to."""
    shape = (len(player.values), orders.num_rows, len(dataset))
    columns = results._asdict()
    columns = {name: column.reshape(shape) for name, column in columns.items() if np.ndim(column) == 1}
    columns["answer"] = answer_texts(dataset, columns["answer"])
    return Play(
        player,
        **columns,
        compile_seconds=results.compile_seconds,
        run_seconds=results.run_seconds,
        seal=Seal() if player.trusted else None,
    )


def answer_texts(dataset: ProbeDataset, ids: Int[np.ndarray, "V S Q"]) -> np.ndarray[Any, Any]:
    """Spells answers.

    Returns:
        The texts, None for ``NONE``. Shape (V, S, Q).
    """
    texts = np.full((len(dataset), dataset.matrix.vocabulary + 1), None, dtype=object)
    for row, question in enumerate(dataset.questions):
        texts[row, : len(question.vocabulary)] = question.vocabulary
    return texts[np.arange(len(dataset)), ids]  # NONE is -1, the last column
