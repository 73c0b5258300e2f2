"""No controller sees what was not revealed: scrambling it changes no decision."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from autotts_jax.core import ReplayPool, StopReason, winner
from autotts_jax.policies import CMC, AdaptiveConsistency, EarlyStopping, ParallelProbe, SelfConsistency
from autotts_jax.replay import SYNTHETIC_MODELS, synthetic

BRANCHES, WIDTH = 32, 24
QUESTIONS = 6


@pytest.fixture(scope="module")
def matrix():
    return synthetic(seed=1, models=SYNTHETIC_MODELS[1:2], questions=QUESTIONS, branches=BRANCHES).matrix


def play(controller, matrix, question, order):
    """Plays an episode: its final state, rounds and stop reason, and the id of its answer."""
    memory, pool = controller.start(ReplayPool.begin(matrix, question, order))

    def step(carry):
        memory, pool, rounds, _ = carry
        memory, pool, stop = controller.round(memory, pool)
        return memory, pool, rounds + 1, jnp.asarray(stop, jnp.int32)

    running = jnp.int32(StopReason.RUNNING)
    memory, pool, rounds, stop = jax.lax.while_loop(
        lambda carry: carry[3] == StopReason.RUNNING, step, (memory, pool, jnp.int32(0), running)
    )
    answer = winner(pool, controller.vote(memory, pool))
    return {"state": pool.state, "rounds": rounds, "stop": stop}, answer


def scramble(matrix, question, order, state, rng):
    """Changes everything in a matrix that an episode, which ended in ``state``, did not reveal.

    Returns:
        The matrix and the new id of each old answer id.
    """
    answers, lengths, tokens = (
        np.array(a[question]) for a in (matrix.answers, matrix.lengths, matrix.tokens)
    )
    ids = rng.permutation(matrix.vocabulary).astype(np.int16)
    depth = np.zeros(BRANCHES, int)
    depth[order] = state.depth
    shown = np.zeros(answers.shape, bool)
    bits = np.unpackbits(np.asarray(state.revealed).astype("<u4").view(np.uint8), axis=1, bitorder="little")
    shown[order] = bits[:, : answers.shape[1]]

    unfinished = depth <= lengths
    longest = answers.shape[1] - 1
    lengths = np.where(unfinished, rng.integers(np.clip(depth, 1, longest), longest + 1), lengths)
    tokens = np.where(unfinished, rng.integers(1, 50_000, BRANCHES), tokens)
    noise = rng.integers(0, matrix.vocabulary, answers.shape).astype(np.int16)
    answers = np.where(shown, np.where(answers < 0, answers, ids[answers]), noise)

    def put(array, row):
        array = np.array(array)
        array[question] = row
        return array

    scrambled = dataclasses.replace(
        matrix,
        answers=put(matrix.answers, answers),
        lengths=put(matrix.lengths, lengths),
        tokens=put(matrix.tokens, tokens),
        gold=put(matrix.gold, rng.integers(0, matrix.vocabulary)),
    )
    return scrambled, ids


def leaks(controller, matrix) -> bool:
    """Whether scrambling what was not revealed changes what a controller does."""
    run = jax.jit(lambda matrix, question, order: play(controller, matrix, question, order))
    rng = np.random.default_rng(0)
    for trial in range(4 * QUESTIONS):
        question = trial % QUESTIONS
        order = rng.permutation(BRANCHES)[:WIDTH]
        did, answer = run(matrix, question, order)
        other, ids = scramble(matrix, question, order, did["state"], rng)
        did_again, answer_again = run(other, question, order)
        same = all(map(np.array_equal, jax.tree.leaves(did), jax.tree.leaves(did_again)))
        if not same or int(answer_again) != (ids[answer] if answer >= 0 else answer):
            return True
    return False


@pytest.mark.parametrize(
    "controller",
    [
        SelfConsistency(8),
        AdaptiveConsistency(WIDTH),
        EarlyStopping(WIDTH),
        ParallelProbe(16, stability=8, prune_patience=3, warm_up=4),
        CMC.of_beta(0.2),
    ],
    ids=lambda controller: type(controller).__name__,
)
def test_shipped_controllers_see_only_what_they_revealed(controller, matrix):
    assert not leaks(controller, matrix)


class Cheat(SelfConsistency):
    """Opens a number of branches that depends on what it must not see."""

    def peek(self, pool):
        raise NotImplementedError

    def start(self, pool):
        return None, pool.open(4)

    def round(self, memory, pool):
        return memory, pool.open(jnp.where(self.peek(pool) % 2 == 0, 2, 0)), StopReason.DECIDED

    def vote(self, memory, pool):  # noqa: ARG002
        return pool.vote(pool.active)


def cheat(name, peek):
    kind = dataclasses.dataclass(frozen=True)(type(name, (Cheat,), {"peek": lambda _, pool: peek(pool)}))
    return jax.tree_util.register_dataclass(kind)(1)


def matrix_behind(pool):
    return pool._matrix  # noqa: SLF001  # what a cheat would do


@pytest.mark.parametrize(
    "controller",
    [
        cheat("Gold", lambda pool: matrix_behind(pool).gold[pool.hidden.question]),
        cheat("Length", lambda pool: pool.hidden.length[0]),
        cheat("Tokens", lambda pool: pool.hidden.tokens[0]),
        cheat("Deeper", lambda pool: matrix_behind(pool).answers.reshape(-1)[pool.hidden.start[0] + 3]),
        cheat("Unopened", lambda pool: matrix_behind(pool).answers.reshape(-1)[pool.hidden.start[-1]]),
        cheat("AnswerId", lambda pool: pool.answer_keys[0]),
    ],
    ids=lambda controller: type(controller).__name__,
)
def test_controllers_that_cheat_are_caught(controller, matrix):
    assert leaks(controller, matrix)


def test_an_honest_controller_of_the_same_make_is_not(matrix):
    assert not leaks(cheat("Honest", lambda pool: pool.labels[0] + pool.depth[1]), matrix)
