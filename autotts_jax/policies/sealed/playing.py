"""The child's side of players in JAX: it plays rollouts on a matrix without gold, and single episodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from autotts_jax.core.mdp import Admissible
from autotts_jax.core.observed import ObservedPool
from autotts_jax.core.pool import BranchPool
from autotts_jax.core.rollout import COLUMNS as RESULTS
from autotts_jax.core.stepping import Decision, Executor, Operation, answer_keys
from autotts_jax.policies.player import ControllerPlayer, Player
from autotts_jax.policies.scaling import constants, scaled
from autotts_jax.replay.dataset import EXACT, Cell, ProbeDataset, Question
from autotts_jax.replay.matrix import NONE, ProbeMatrix
from autotts_jax.replay.orders import BranchOrders
from autotts_jax.sandbox.channel import Channel

_ACTIONS = tuple(field.name for field in dataclasses.fields(Admissible))

COLUMNS = tuple(name for name in RESULTS if name != "answer")
"""What a child says of each episode besides the answer."""


SIGNAL = "signal."
"""What the names of signals begin with among arrays."""

MOST_CONSTANTS, LONGEST_NAME = 64, 100
"""Constants of a controller that are tuned, and characters of the name of one, at most."""


def matrix_arrays(matrix: ProbeMatrix) -> dict[str, np.ndarray]:
    """What a child is told of a probe matrix: all but gold and cells; `SIGNAL` begins the names of signals.

    Args:
        matrix: the matrix.
    """
    names = ("answers", "lengths", "tokens", "interval")
    signals = {SIGNAL + name: np.asarray(values) for name, values in matrix.signals.items()}
    return {name: np.asarray(getattr(matrix, name)) for name in names} | signals


def play(channel: Channel, player: Player, says: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Plays all episodes that the parent asks for, and sends what they came to.

    Args:
        channel: to the parent.
        player: the player.
        says: size of the vocabulary, the budget, and factors of constants.
        arrays: the matrix, and branch orders as ``table`` and ``group``.
    """
    if says["factors"] and isinstance(player, ControllerPlayer):
        controllers = tuple(scaled(controller, says["factors"]) for controller in player.controllers)
        player = dataclasses.replace(player, controllers=controllers)
    size, branches = says["vocabulary"], arrays["answers"].shape[1]
    questions = len(arrays["answers"])
    matrix = ProbeMatrix(
        answers=arrays["answers"],
        lengths=arrays["lengths"],
        tokens=arrays["tokens"],
        interval=arrays["interval"],
        gold=np.full(questions, NONE, np.int16),
        cell=np.zeros(questions, np.int32),
        vocabulary=size,
        signals=_signals(arrays),
    )
    spelled = tuple(map(str, range(size)))
    dataset = ProbeDataset(
        matrix,
        tuple(Question(index, "", "", spelled) for index in range(questions)),
        (Cell("", "", branches, "", ""),),
        EXACT,
    )
    told = 0

    def tell(done: int) -> None:
        nonlocal told
        if done > told:
            told = done
            channel.send({"done": done})

    orders = BranchOrders(arrays["table"], arrays["group"])
    played = player.play(dataset, orders, budget=says["budget"], on_progress=tell)
    answer = np.array([NONE if text is None else int(text) for text in played.answer.flat], np.int32)
    columns = {name: np.asarray(getattr(played, name), np.int32) for name in COLUMNS}
    channel.send(
        {"compile_seconds": played.compile_seconds}, columns | {"answer": answer.reshape(played.answer.shape)}
    )


def constants_of(player: Player) -> tuple[str, ...]:
    """Names the constants of a player's controllers.

    Args:
        player: the player.

    Returns:
        At most `MOST_CONSTANTS` names, of which all can be shown; none of a player that is no controller.
    """
    names = constants(player.controllers[0]) if isinstance(player, ControllerPlayer) else ()
    return tuple(filter(is_name, names))[:MOST_CONSTANTS]


def is_name(value: Any) -> bool:
    """Tells whether something can be the name of a constant.

    Args:
        value: anything.
    """
    return isinstance(value, str) and value.isprintable() and 0 < len(value) <= LONGEST_NAME


def play_episode(
    channel: Channel, player: Player, says: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> None:
    """Plays one episode, whose operations the parent carries out.

    Args:
        channel: to the parent.
        player: a player with a single setting.
        says: whether the parent wants to know the rounds of decisions.
        arrays: what `seen` gave in the beginning.
    """

    def tell(decision: Decision) -> None:
        channel.send({"round": decision.round})

    ended = player.play_episode(PipeExecutor(channel, arrays), tell if says["tell"] else None)
    channel.send(
        {
            "leader": int(ended.leader),
            "stop_reason": int(ended.stop_reason),
            "rounds": int(ended.rounds),
            "sequential_tokens": int(ended.sequential_tokens),
        }
    )


class PipeExecutor(Executor):
    """Has the parent carry out operations, and knows what it shows.

    Args:
        channel: to the parent.
        arrays: what `seen` gave in the beginning.
    """

    pool: ObservedPool

    def __init__(self, channel: Channel, arrays: Mapping[str, np.ndarray]):
        self._channel = channel
        self.pool = _pool(arrays)

    def carry_out(self, operation: Operation) -> None:
        """Asks the parent to carry out an operation."""
        says = {"operation": operation.action, "probe": operation.probe}
        argument = np.asarray(operation.argument)
        argument = argument if argument.dtype == bool else argument.astype(np.int32)
        self.pool = _pool(self._channel.ask(says, {"argument": argument}).arrays)

    def answers(self, branches: Sequence[int]) -> list[str | None]:
        """Gives the labels of answers, which only the parent can spell."""
        labels = np.asarray(answer_keys(self.pool))[list(branches)].tolist()
        return [None if label == NONE else str(label) for label in labels]


def _pool(arrays: Mapping[str, np.ndarray]) -> ObservedPool:
    parts = dict(arrays)
    allowed = Admissible(*(parts.pop(f"admissible_{name}") for name in _ACTIONS))
    shown = {"budget": None, **{name: part for name, part in parts.items() if not name.startswith(SIGNAL)}}
    return ObservedPool(  # type: ignore[abstract]
        admissible=allowed,
        latest_signals=_signals(arrays),
        **shown,  # type: ignore[arg-type]
    )


def _signals(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The signals among arrays, by name."""
    return {name.removeprefix(SIGNAL): array for name, array in arrays.items() if name.startswith(SIGNAL)}


def seen(pool: BranchPool, labels: np.ndarray) -> dict[str, np.ndarray]:
    """What is shown of a pool.

    Args:
        pool: the pool.
        labels: label of the answer at each depth, in place of its keys. Shape (W, K).
    """
    fields = dict(jax.device_get(_look(pool)))
    allowed = fields.pop("admissible")
    fields |= {f"admissible_{name}": getattr(allowed, name) for name in _ACTIONS}
    budget = {} if pool.budget is None else {"budget": np.asarray(pool.budget, np.int32)}
    return {name: np.asarray(field) for name, field in fields.items()} | budget | {"revealed_keys": labels}


@jax.jit
def _look(pool: BranchPool) -> dict[str, Any]:
    names = ("depth", "active", "finished", "admissible", "interval", "intervals", "probes", "branch_tokens")
    signals = {SIGNAL + name: pool.signal(name) for name in pool.signals}
    return {name: getattr(pool, name) for name in (*names, "tokens")} | signals


class Labels:
    """Numbers answers in the order in which an episode reveals them, in place of a pool's keys.

    Args:
        num_keys: an upper bound of the keys.
    """

    def __init__(self, num_keys: int):
        self._label = np.full(num_keys, NONE, np.int32)
        self._count = 0

    def of(self, keys: np.ndarray) -> np.ndarray:
        """Gives the label of the answer at each depth.

        Args:
            keys: `BranchPool.revealed_keys` after each operation in turn. Shape (W, K).
        """
        revealed = keys[keys >= 0]
        for key in dict.fromkeys(revealed[self._label[revealed] == NONE].tolist()):
            self._label[key] = self._count
            self._count += 1
        return np.where(keys >= 0, self._label[keys], keys).astype(np.int32)
