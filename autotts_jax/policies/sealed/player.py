"""Controllers and policies that somebody else wrote, as players: they run sealed, and are checked."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Int

from autotts_jax.core.pool import StopReason
from autotts_jax.core.scrambling import Revealed, scramble
from autotts_jax.core.stepping import (
    Decision,
    Ended,
    Executor,
    Operation,
    ReplayExecutor,
    Stepper,
    results_of,
)
from autotts_jax.policies.player import Play, Player, Seal, answer_texts, check_branches_of
from autotts_jax.policies.sealed.cast import Cast, fail_if_failed, place
from autotts_jax.policies.sealed.playing import COLUMNS, MOST_CONSTANTS, Labels, is_name, matrix_arrays, seen
from autotts_jax.replay.dataset import ProbeDataset
from autotts_jax.replay.matrix import NONE, ProbeMatrix
from autotts_jax.replay.orders import BranchOrders
from autotts_jax.replay.signals import check_signals, keep_signals
from autotts_jax.sandbox.process import Child, SandboxError

CHECKED = 8
"""Episodes that are checked at least, each of another question while there are some; one of each setting."""

MOST_OPERATIONS = 100_000
"""Operations of an episode that is played one operation at a time, so that each episode ends."""

STEPPED, SCRAMBLE = "stepped replay", "scramble"
"""The checks, as results name them."""


class _Checked(NamedTuple):
    """An episode that is checked: setting, row of the branch orders and question."""

    setting: int
    row: int
    question: int


@dataclasses.dataclass(frozen=True, eq=False)
class SealedPlayer(Player):
    """A controller, a family of them, or a policy, in processes that hold no gold answers.

    One process plays all episodes on a matrix without gold, in which the ids of answers are permuted. As it
    holds what an episode does not reveal, another one, which sees nothing of that, plays some of the episodes
    as well: one operation at a time, on a pool that this process keeps, and on a matrix in which everything
    that the episode did not reveal is noise. Both must come to the same. It plays first, and is ended.

    Attributes:
        name: the name in results.
        cast: processes that have loaded the code.
        values: the value of each setting.
        value_name: what the values are called.
        width: branches that an episode can open, where the code says so.
        signals: names of the signals that it reads.
    """

    name: str
    cast: Cast
    values: tuple[float | None, ...] = (None,)
    value_name: str = "value"
    width: int | None = None
    signals: tuple[str, ...] = ()

    def play(
        self,
        dataset: ProbeDataset,
        orders: BranchOrders,
        *,
        budget: int | None = None,
        processes: int = 1,  # noqa: ARG002
        critical_path: bool = False,  # noqa: ARG002
        on_progress: Callable[[int], None] | None = None,
    ) -> Play:
        """Plays all episodes in one rollout of the child, and checks some of them in another."""
        self.check(orders.width, budget)
        began = time.perf_counter()
        matrix = keep_signals(dataset.matrix, self.signals, self.name)
        with (
            self.cast.children(1, fresh=1) as ((child,), (fresh,)),
            concurrent.futures.ThreadPoolExecutor(1) as beside,
        ):
            check = _Check(self, matrix, orders, budget)
            warming = time.perf_counter()
            # Both at the same time: nothing that they are given depends on what will be checked.
            for one in (child, fresh):
                one.resume()
            warm = beside.submit(check.warm_up, fresh)
            try:
                self.rollout(child, _short(matrix), orders, budget)
                warm.result()
            except BaseException:
                fresh.close()
                raise
            warmed = time.perf_counter() - warming
            # One after the other from now on: what knows all answers could tell them, and what knows which
            # episodes are checked could tell those.
            child.pause()
            checked = draw_checked(len(self.values), orders.num_rows, len(dataset))
            check.play(fresh, checked)
            fresh.close()
            child.resume()
            played = self.rollout(child, matrix, orders, budget, on_progress)
            check.compare(
                played,
                {
                    episode: f"{self.names[episode.setting]}: the episode of "
                    f"{place(dataset, episode.question, episode.row)},"
                    for episode in checked
                },
            )
            level = child.level
        played["compile_seconds"] += warmed
        seal = Seal(level, (STEPPED,) if budget is not None else (STEPPED, SCRAMBLE))
        return self._graded(dataset, played, began, seal)

    @contextlib.contextmanager
    def with_factors(
        self, dataset: ProbeDataset, orders: BranchOrders
    ) -> Iterator[tuple[tuple[str, ...], Callable[[Mapping[str, float]], Play]]]:
        """Lends a process that plays all episodes with other constants, without another compilation.

        What it comes to is not checked; see `autotts_jax.policies.scaling` for how constants change.

        Args:
            dataset: the questions.
            orders: branch orders of each question.

        Yields:
            Names of the constants, none where the code is no controller; and a function that plays with a
            factor for each of them.

        Raises:
            InputError: the player failed.
        """
        matrix = keep_signals(dataset.matrix, self.signals, self.name)
        with self.cast.child() as child:

            def play(factors: Mapping[str, float]) -> Play:
                began = time.perf_counter()
                played = self.rollout(child, matrix, orders, None, factors=factors)
                return self._graded(dataset, played, began, Seal(child.level))

            message = child.ask({"do": "constants"}, {})
            fail_if_failed(message)
            yield _names(child, message.says.get("constants")), play

    def _graded(self, dataset: ProbeDataset, played: dict[str, Any], began: float, seal: Seal) -> Play:
        ids = played.pop("answer")
        elapsed = time.perf_counter() - began
        compiling = min(played.pop("compile_seconds"), elapsed)
        return Play(
            self,
            answer=answer_texts(dataset, ids),
            correct=(ids != NONE) & (ids == np.asarray(dataset.matrix.gold)),
            **played,
            compile_seconds=compiling,
            run_seconds=elapsed - compiling,
            seal=seal,
        )

    def play_episode(
        self, executor: Executor, on_decision: Callable[[Decision], None] | None = None
    ) -> Ended:
        """Plays one episode with the controller in its process."""
        self.check_single()
        with self.cast.child() as child:
            return self.step(child, 0, executor, on_decision)

    def check(self, width: int, budget: int | None = None) -> None:
        """Checks that no setting reads more branches than an episode can open."""
        super().check(width, budget)
        check_branches_of(self, width)

    def settings(self) -> tuple[Player, ...]:
        """Gives a player for each setting."""
        if len(self.values) == 1:
            return (self,)
        return tuple(
            dataclasses.replace(self, cast=self.cast.at(value), values=(value,)) for value in self.values
        )

    # --- in a child ----------------------------------------------------------------------------------------

    def rollout(
        self,
        child: Child,
        matrix: ProbeMatrix,
        orders: BranchOrders,
        budget: int | None,
        on_progress: Callable[[int], None] | None = None,
        factors: Mapping[str, float] | None = None,
    ) -> dict[str, Any]:
        """Has a child play every question under every branch order with every setting.

        Args:
            child: the child.
            matrix: the questions, whose gold answers it does not get.
            orders: branch orders of each question.
            budget: token budget of an episode; None for no limit.
            on_progress: called with the number of episodes that have ended.
            factors: see `autotts_jax.policies.scaling`; None to play the code as it is.

        Returns:
            Ids of answers and what `COLUMNS` lists, of shape (V, S, Q), and seconds of compiling.

        Raises:
            InputError: the player failed, or sent what cannot be.
        """
        questions, size = np.shape(matrix.answers)[0], matrix.vocabulary
        draw = np.random.default_rng(secrets.randbits(64))
        ids = draw.permuted(np.tile(np.arange(size), (questions, 1)), axis=1)
        at = np.arange(questions)[:, None, None]
        answers = np.asarray(matrix.answers)
        arrays = matrix_arrays(matrix) | {
            "answers": np.where(answers == NONE, NONE, ids[at, answers]).astype(np.int16),
            "table": np.asarray(orders.table),
            "group": np.asarray(orders.group),
        }
        says = {"do": "play", "vocabulary": size, "budget": budget, "factors": dict(factors or {})}
        done, episodes = 0, len(self.values) * orders.num_rows * questions
        most = (1 + len(COLUMNS)) * episodes * np.dtype(np.int32).itemsize
        message = child.ask(says, arrays, most)
        while "done" in message.says:
            before, done = done, _whole(child, message.says["done"])
            # A rollout fills up its queues with episodes that nobody asked for.
            if not before < done <= 2 * episodes + 1024:
                raise child.broke_protocol("progress that cannot be")
            if on_progress is not None:
                on_progress(min(done, episodes))
            message = child.receive(most)
        fail_if_failed(message)
        shape = (len(self.values), orders.num_rows, questions)
        for name in ("answer", *COLUMNS):
            column = message.arrays.get(name)
            if column is None or column.dtype != np.int32 or column.shape != shape:
                raise child.broke_protocol(f"results without {name}")
        seconds = message.says.get("compile_seconds")
        if not isinstance(seconds, float) or not 0 <= seconds < 1e6:
            raise child.broke_protocol("results without a time")
        played = {name: message.arrays[name] for name in COLUMNS}
        answer = message.arrays["answer"]
        _check_ranges(child, played, answer, size, orders.width)
        back = np.argsort(ids, axis=1)
        played["answer"] = np.where(answer == NONE, NONE, back[np.arange(questions), answer])
        return played | {"compile_seconds": seconds}

    def step(
        self,
        child: Child,
        setting: int,
        executor: Executor,
        on_decision: Callable[[Decision], None] | None = None,
    ) -> Ended:
        """Has a child play one episode, whose operations are carried out here.

        Args:
            child: the child.
            setting: number of the setting.
            executor: carries out the operations; nothing is opened yet.
            on_decision: called after every operation that changed something.

        Raises:
            InputError: the player failed, or asked for what cannot be.
        """
        told: list[Decision] = []
        check_signals(self.signals, executor.pool.signals, self.name, "this episode shows")
        stepper = Stepper(executor, None if on_decision is None else told.append)
        labels = Labels(executor.pool.num_keys)

        def shown() -> dict[str, np.ndarray]:
            return seen(executor.pool, labels.of(np.asarray(executor.pool.revealed_keys)))

        tell, most = on_decision is not None, executor.pool.width * np.dtype(np.int32).itemsize
        child.send({"do": "episode", "setting": setting, "tell": tell}, shown())
        for _ in range(MOST_OPERATIONS):
            message = child.receive(most)
            fail_if_failed(message)
            if "operation" in message.says:
                stepper.carry_out(_operation(child, message.says, message.arrays.get("argument"), executor))
                child.send({}, shown())
            elif "round" in message.says:
                number = _whole(child, message.says["round"])
                for decision in told:
                    assert on_decision is not None
                    on_decision(dataclasses.replace(decision, round=number))
                told.clear()
            else:
                return _ended(child, message.says, executor)
        raise child.broke_protocol(f"more than {MOST_OPERATIONS} operations in one episode")


class _Check:
    """Plays some episodes again in a child that has seen none of them.

    Args:
        player: the player.
        matrix: the probe matrix.
        orders: branch orders.
        budget: token budget; None for no limit.
    """

    def __init__(self, player: SealedPlayer, matrix: ProbeMatrix, orders: BranchOrders, budget: int | None):
        self._player = player
        self._matrix = matrix
        self._orders = orders
        self._budget = budget

    def warm_up(self, child: Child) -> None:
        """Has the child compile what it will play, on questions and branch orders that there are not."""
        draw = np.random.default_rng(secrets.randbits(64))
        number = _number_checked(len(self._player.values), len(self._matrix.gold))
        orders = np.stack(
            [draw.permutation(self._matrix.num_branches)[: self._orders.width] for _ in range(number)]
        ).astype(self._orders.table.dtype)
        noise = self._matrix.select(np.zeros(number, int))
        noise = dataclasses.replace(noise, interval=np.full_like(noise.interval, 500))
        nothing = Revealed.nothing(self._orders.width, self._matrix.max_depth)
        for row, order in enumerate(orders):
            noise, _ = scramble(noise, row, order, nothing, draw)
        self._play_batch(child, noise, orders)
        self._step(child, noise.select(np.array([0])), orders[0], setting=0)

    def play(self, child: Child, episodes: Sequence[_Checked]) -> None:
        """Has the child play episodes, twice."""
        draw = np.random.default_rng(secrets.randbits(64))
        self._episodes, self._stepped, self._ids = episodes, {}, {}
        noise = self._matrix.select(np.array([episode.question for episode in episodes]))
        orders = np.stack(
            [np.asarray(self._orders.of(episode.question, episode.row)) for episode in episodes]
        )
        for row, (episode, order) in enumerate(zip(episodes, orders, strict=True)):
            question = self._matrix.select(np.array([episode.question]))
            self._stepped[episode], kept = self._step(child, question, order, episode.setting)
            noise, self._ids[episode] = scramble(noise, row, order, kept, draw)
        # A budget that refuses a branch tells its length, which noise would change.
        self._scrambled = self._play_batch(child, noise, orders) if self._budget is None else None

    def compare(self, played: dict[str, Any], names: Mapping[_Checked, str]) -> None:
        """Raises a `SandboxError` where an episode came to something else than those that were played."""
        for row, episode in enumerate(self._episodes):
            before = _of_episode(played, episode)
            how = "played one operation at a time, on what is revealed alone"
            _require_equal(before, self._stepped[episode], how, names[episode])
            if self._scrambled is not None:
                if before["answer"] != NONE:
                    before["answer"] = int(self._ids[episode][before["answer"]])
                after = _of_episode(self._scrambled, (episode.setting, 0, row))
                how = "played where all that it did not reveal is noise"
                _require_equal(before, after, how, names[episode])

    def _play_batch(
        self, child: Child, matrix: ProbeMatrix, orders: Int[np.ndarray, "E W"]
    ) -> dict[str, Any]:
        """Plays each question in an order of its own, with all settings."""
        each = BranchOrders(orders[:, None], np.arange(len(orders), dtype=np.int32))
        return self._player.rollout(child, matrix, each, self._budget)

    def _step(
        self, child: Child, matrix: ProbeMatrix, order: Int[np.ndarray, " W"], setting: int
    ) -> tuple[dict[str, int], Revealed]:
        executor = ReplayExecutor.begin(jax.device_put(matrix), 0, order, str, budget=self._budget)
        ended = self._player.step(child, setting, executor)
        return results_of(ended, executor.pool), Revealed.of(executor.pool)


def _number_checked(settings: int, questions: int) -> int:
    return max(settings, min(CHECKED, questions))


def draw_checked(settings: int, rows: int, questions: int) -> list[_Checked]:
    """Draws the episodes that are checked: of every setting, and of as many questions as can be.

    Args:
        settings: number of settings.
        rows: number of rows of the branch orders.
        questions: number of questions.
    """
    draw = np.random.default_rng(secrets.randbits(64))
    number = _number_checked(settings, questions)
    setting, question = (np.resize(draw.permutation(size), number) for size in (settings, questions))
    row = draw.integers(rows, size=number)
    return [
        _Checked(*map(int, drawn)) for drawn in zip(draw.permutation(setting), row, question, strict=True)
    ]


def _short(matrix: ProbeMatrix) -> ProbeMatrix:
    """A matrix of the same shape that says nothing of the questions, and takes no time to play."""
    ones = np.ones_like(matrix.lengths)
    return dataclasses.replace(
        matrix,
        answers=np.zeros_like(matrix.answers),
        lengths=ones,
        tokens=ones,
        signals={name: np.zeros_like(values) for name, values in matrix.signals.items()},
    )


def _of_episode(played: Mapping[str, Any], at: tuple[int, int, int]) -> dict[str, int]:
    """What an episode came to: that of a setting, row and question."""
    return {name: int(played[name][at]) for name in ("answer", *COLUMNS)}


def _require_equal(before: dict[str, int], after: dict[str, int], how: str, name: str) -> None:
    differ = [column for column in before if before[column] != after[column]]
    if differ:
        shown = "; ".join(
            f"{column.replace('_', ' ')} {before[column]}, then {after[column]}" for column in differ
        )
        raise SandboxError(
            f"{name} came to something else when it was {how}: {shown}. Its decisions depend on what the "
            "episode does not reveal, or on what it keeps outside its memory; "
            "autotts_jax.testing.check_controller shows the first decision that differs"
        )


def _check_ranges(
    child: Child, played: dict[str, np.ndarray], answer: np.ndarray, size: int, width: int
) -> None:
    """Checks that results can be: what is charged, and how it hangs together."""
    if np.any(answer < NONE) or np.any(answer >= size):
        raise child.broke_protocol("an answer that does not exist")
    for name in COLUMNS:
        if np.any(played[name] < 0):
            raise child.broke_protocol(f"negative {name}")
    if np.any(played["branches"] > width):
        raise child.broke_protocol("more branches than there are")
    if np.any(played["sequential_tokens"] > played["tokens"]):
        raise child.broke_protocol("more sequential tokens than tokens")
    if np.any(played["stop_reason"] > max(StopReason)):
        raise child.broke_protocol("an unknown reason to stop")


def _operation(child: Child, says: Any, argument: np.ndarray | None, executor: Executor) -> Operation:
    """The operation that a child asks for."""
    action, pool = says["operation"], executor.pool
    wanted = {
        "open": ((), np.int32),
        "read": ((), np.int32),
        "advance": ((pool.width,), np.int32),
        "probe": ((pool.width,), np.bool_),
        "prune": ((pool.width,), np.bool_),
    }
    shape, dtype = wanted.get(action, (None, None)) if isinstance(action, str) else (None, None)
    if argument is None or argument.shape != shape or argument.dtype != dtype:
        raise child.broke_protocol("an operation that does not exist")
    if dtype == np.int32:
        argument = np.clip(argument, 0, max(pool.width, pool.max_depth))
    return Operation(action, argument, says.get("probe") is not False)


def _ended(child: Child, says: Any, executor: Executor) -> Ended:
    """What a child says an episode came to."""
    pool = executor.pool
    leader, stop = says.get("leader"), says.get("stop_reason")
    rounds, sequential = _whole(child, says.get("rounds")), _whole(child, says.get("sequential_tokens"))
    opened, tokens, least = int(pool.opened), int(pool.tokens), int(np.max(pool.branch_tokens))
    if not isinstance(leader, int) or not NONE <= leader < opened:
        raise child.broke_protocol("an answer of a branch that is not open")
    if not isinstance(stop, int) or stop not in set(StopReason) or not least <= sequential <= tokens:
        raise child.broke_protocol("an end that cannot be")
    answer = None if leader == NONE else executor.answers([leader])[0]
    return Ended(answer, leader, StopReason(stop), rounds, sequential)


def _names(child: Child, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MOST_CONSTANTS or not all(map(is_name, value)):
        raise child.broke_protocol("something else than names of constants")
    return tuple(dict.fromkeys(value))


def _whole(child: Child, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**31:
        raise child.broke_protocol(f"a {type(value).__name__} or too large a number where a number belongs")
    return value
