"""A leak test for controllers: decisions must not depend on what an episode did not reveal."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from autotts_jax.core.controller import Controller
from autotts_jax.core.mdp import State
from autotts_jax.core.pool import ReplayPool, StopReason, winner
from autotts_jax.replay.generator import SYNTHETIC_MODELS, synthetic
from autotts_jax.replay.matrix import NONE, ProbeMatrix
from autotts_jax.typing import Array, Scalar

MOST_TOKENS = 50_000


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
    play = jax.jit(lambda matrix, question, order: play_episode(controller, matrix, question, order))
    rng = np.random.default_rng(seed)
    for episode in range(episodes):
        question = episode % matrix.num_questions
        order = rng.permutation(matrix.num_branches)[:max_branches]
        first, answer = play(matrix, question, order)
        scrambled, ids = scramble(matrix, question, order, first["state"], rng)
        second, second_answer = play(scrambled, question, order)
        changed = [
            name
            for name in first
            if not all(map(np.array_equal, jax.tree.leaves(first[name]), jax.tree.leaves(second[name])))
        ]
        if int(second_answer) != (NONE if answer == NONE else ids[answer]):
            changed.append("answer")
        if changed:
            raise AssertionError(
                f"question {question}: {', '.join(changed)} changed with what the episode did not reveal; "
                "use the public properties and methods of the pool alone, and compare keys for equality only"
            )


def play_episode(
    controller: Controller, matrix: ProbeMatrix, question: Scalar, order: Int[Array, " W"]
) -> tuple[dict[str, Any], Int[Array, ""]]:
    """Plays an episode to its end; under ``jit``.

    Args:
        controller: the controller.
        matrix: the probe matrix.
        question: index of the question.
        order: branches in opening order.

    Returns:
        Its final ``state``, its ``rounds`` and ``stop`` reason; and the id of its answer.
    """
    memory, pool = controller.start(ReplayPool.begin(matrix, question, order))

    def step(carry: tuple[Any, ReplayPool, Array, Array]) -> tuple[Any, ReplayPool, Array, Array]:
        memory, pool, rounds, _ = carry
        memory, pool, stop = controller.round(memory, pool)
        return memory, pool, rounds + 1, jnp.asarray(stop, jnp.int32)

    running = jnp.int32(StopReason.RUNNING)
    memory, pool, rounds, stop = jax.lax.while_loop(
        lambda carry: carry[3] == StopReason.RUNNING, step, (memory, pool, jnp.int32(0), running)
    )
    return {"state": pool.state, "rounds": rounds, "stop": stop}, winner(pool, controller.vote(memory, pool))


def scramble(
    matrix: ProbeMatrix, question: int, order: Int[np.ndarray, " W"], state: State, rng: np.random.Generator
) -> tuple[ProbeMatrix, Int[np.ndarray, " V"]]:
    """Replaces everything in a matrix that an episode did not reveal by noise.

    Args:
        matrix: the probe matrix.
        question: index of the episode's question.
        order: branches of the episode in opening order.
        state: its final state.
        rng: draws the noise.

    Returns:
        The matrix, and the new id of each old answer id.
    """
    answers, lengths, tokens = (
        np.array(array[question]) for array in (matrix.answers, matrix.lengths, matrix.tokens)
    )
    ids = rng.permutation(matrix.vocabulary).astype(np.int16)
    depth = np.zeros(matrix.num_branches, int)
    depth[order] = state.depth
    revealed = np.zeros(answers.shape, bool)
    bits = np.unpackbits(np.asarray(state.revealed).astype("<u4").view(np.uint8), axis=1, bitorder="little")
    revealed[order] = bits[:, : answers.shape[1]]

    unfinished = depth <= lengths
    longest = answers.shape[1] - 1
    lengths = np.where(unfinished, rng.integers(np.clip(depth, 1, longest), longest + 1), lengths)
    tokens = np.where(unfinished, rng.integers(1, MOST_TOKENS, matrix.num_branches), tokens)
    noise = rng.integers(0, matrix.vocabulary, answers.shape).astype(np.int16)
    answers = np.where(revealed, np.where(answers < 0, answers, ids[answers]), noise)

    def replaced(array: Array, row: Any) -> np.ndarray:
        array = np.array(array)
        array[question] = row
        return array

    scrambled = dataclasses.replace(
        matrix,
        answers=replaced(matrix.answers, answers),
        lengths=replaced(matrix.lengths, lengths),
        tokens=replaced(matrix.tokens, tokens),
        gold=replaced(matrix.gold, rng.integers(0, matrix.vocabulary)),
    )
    return scrambled, ids
