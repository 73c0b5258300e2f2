"""A leak test for controllers: decisions must not depend on what an episode did not reveal."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jaxtyping import Int

from autotts_jax.core.controller import Controller, Memory
from autotts_jax.core.mdp import State
from autotts_jax.core.pool import UNREVEALED, ReplayPool
from autotts_jax.core.rollout import Episodes, Hooks, rollout
from autotts_jax.core.scrambling import scramble
from autotts_jax.replay.generator import SYNTHETIC_MODELS, synthetic
from autotts_jax.replay.matrix import NONE, ProbeMatrix
from autotts_jax.replay.orders import BranchOrders
from autotts_jax.typing import Array


def check_controller(
    controller: Controller,
    matrix: ProbeMatrix | None = None,
    *,
    max_branches: int = 24,
    episodes: int = 24,
    seed: int = 0,
) -> None:
    """Checks that a controller behaves the same whatever an episode did not reveal.

    Each episode is played twice. Before the second time, deeper answers, unopened branches, lengths and
    tokens of unfinished branches and the gold answer are replaced by noise, and the ids of answers are
    permuted.

    Args:
        controller: the controller.
        matrix: the probe matrix to play on; a small synthetic one when None.
        max_branches: W, branches that an episode can open.
        episodes: episodes to play; questions take turns.
        seed: seed of the branch orders and of the noise.

    Raises:
        AssertionError: the final state, the number of rounds, the stop reason or the answer of an episode
            changed.

    Example:
        >>> from autotts_jax.policies import CMC
        >>> from autotts_jax.testing import check_controller
        >>> check_controller(CMC.of_beta(0.2), episodes=2)
    """
    if matrix is None:
        matrix = synthetic(seed=1, models=SYNTHETIC_MODELS[1:2], questions=6, branches=32).matrix
    rng = np.random.default_rng(seed)
    for episode in range(episodes):
        question = episode % matrix.num_questions
        order = rng.permutation(matrix.num_branches)[:max_branches]
        first, answer = _play(controller, matrix, question, order)
        scrambled, ids = scramble(matrix, question, order, first["state"], rng)
        second, second_answer = _play(controller, scrambled, question, order)
        changed = [
            name
            for name in first
            if not all(map(np.array_equal, jax.tree.leaves(first[name]), jax.tree.leaves(second[name])))
        ]
        if second_answer != (NONE if answer == NONE else ids[answer]):
            changed.append("answer")
        if changed:
            raise AssertionError(
                f"question {question}: {', '.join(changed)} changed with what the episode did not reveal; "
                "use the public properties and methods of the pool alone, and compare keys for equality only"
            )


def _play(
    controller: Controller, matrix: ProbeMatrix, question: int, order: Int[np.ndarray, " W"]
) -> tuple[dict[str, Any], int]:
    """Plays an episode: its final state, its rounds and its stop reason; and the id of its answer."""
    orders = BranchOrders(order[None, None], np.zeros(matrix.num_questions, np.int32))
    episode = Episodes(np.array([question]), np.zeros(1, int), np.zeros(1, int))
    device = jax.local_devices()[:1]
    played = rollout([controller], matrix, orders, episode, lanes=1, devices=device, hooks=HOOKS)
    state, _ = jax.tree.map(lambda leaf: leaf[0], played.ends)
    return {"state": state, "rounds": played.rounds, "stop": played.stop_reason}, int(played.answer[0])


def _final_state(controller: Controller, memory: Memory, pool: ReplayPool) -> tuple[State, Array]:  # noqa: ARG001
    # Looking at the revealed answers has the rollout keep which they are.
    return pool.state, pool.revealed_keys == UNREVEALED


HOOKS = Hooks(at_end=_final_state)  # type: ignore[arg-type]  # a rollout's pools are of this kind
