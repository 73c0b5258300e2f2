"""No controller sees what was not revealed: scrambling it changes no decision."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from autotts_jax.core import StopReason
from autotts_jax.policies import CMC, AdaptiveConsistency, EarlyStopping, ParallelProbe, SelfConsistency
from autotts_jax.replay import SYNTHETIC_MODELS, synthetic
from autotts_jax.testing import check_controller

BRANCHES, WIDTH = 32, 24
QUESTIONS = 6


@pytest.fixture(scope="module")
def matrix():
    return synthetic(seed=1, models=SYNTHETIC_MODELS[1:2], questions=QUESTIONS, branches=BRANCHES).matrix


def leaks(controller, matrix) -> bool:
    """Whether scrambling what was not revealed changes what a controller does."""
    try:
        check_controller(controller, matrix, max_branches=WIDTH)
    except AssertionError:
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
