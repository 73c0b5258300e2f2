"""Golden episodes, decided by controllers, played through the atomic environments one action at a time."""

import functools
from pathlib import Path

import gymnasium
import jax
import numpy as np
import pytest

import autotts_jax as at
from autotts_jax.core import Episodes, Hooks, StopReason, rollout
from autotts_jax.envs import WidthDepth
from autotts_jax.experiments import branch_orders
from autotts_jax.policies import CONTROLLERS

pytestmark = [pytest.mark.shipped, pytest.mark.slow]

CELL, SEEDS, WIDTH = "synthetic-L/synthetic", 5, 64
ROUNDS = 120
"""More than any of the episodes has."""
BRANCH, ANSWER, CONTINUE, PROBE, PRUNE = 0, 1, 2, 2 + WIDTH, 2 + 2 * WIDTH
"""Atomic actions; the last three are those of branch 0."""
GOLDEN = {
    "cmc_beta0.5": ("cmc", 0.5, "majority"),
    "cmc_beta1.0": ("cmc", 1.0, "majority"),
    "asc64": ("asc", 64, "majority"),
    "parallel_probe64": ("parallel-probe", 64, "latest"),
}
"""Family, value and equivalent aggregation of each golden method."""


@pytest.fixture(scope="module")
def data():
    return at.load("synthetic")


@pytest.fixture(scope="module")
def matrix(data):
    return jax.device_put(data.matrix)


@pytest.fixture(scope="module")
def orders(data):
    return branch_orders(data, "repo100", range(SEEDS), WIDTH)


@pytest.fixture(scope="module")
def episodes(data):
    """All questions of the cell, seed after seed."""
    questions = data.cell_questions([cell.name for cell in data.cells].index(CELL))
    seed, question = (axis.reshape(-1) for axis in np.meshgrid(range(SEEDS), questions, indexing="ij"))
    return Episodes(question.astype(np.int32), seed.astype(np.int32), np.zeros(len(seed), np.int32))


@pytest.fixture(scope="module")
def actions(matrix, orders, episodes):
    """Every episode's atomic actions, by golden method. Shape (E, T); ANSWER fills up to the longest."""
    found = {}
    for method, (family, value, _) in GOLDEN.items():
        controller = CONTROLLERS[family].make(value)
        hooks = Hooks(after_round=shown, rounds=ROUNDS)
        results = rollout([controller], matrix, orders, episodes, hooks=hooks)
        assert (results.stop_reason != StopReason.RUNNING).all()
        found[method] = [
            # The look at which an episode ends is not a round.
            atomic_actions(depth[: rounds + 1], active[: rounds + 1], read=method == "asc64")
            for depth, active, rounds in zip(*results.records, results.rounds, strict=True)
        ]
    longest = max(len(sequence) for sequences in found.values() for sequence in sequences)
    return {
        method: np.array(
            [sequence + [ANSWER] * (longest + 1 - len(sequence)) for sequence in sequences], np.int32
        )
        for method, sequences in found.items()
    }


@pytest.fixture(scope="module")
def golden():
    """``correct`` or ``tokens`` of every episode, seed after seed."""
    arrays = np.load(Path(__file__).parent / "golden" / f"{CELL.replace('/', '_')}.npz")
    return lambda method, what: arrays[f"{method}/{what}"][:SEEDS].reshape(-1)


def shown(_controller, _memory, pool):
    return pool.depth, pool.active


def atomic_actions(depth, active, read):
    """Translates an episode to atomic actions, without ANSWER.

    Args:
        depth: depth of each branch after each round. Shape (T, W).
        active: which branches are active then. Shape (T, W).
        read: whether branches are read in one call, which reveals their final answers only.
    """
    found = []
    before, was_active = np.zeros_like(depth[0]), np.zeros_like(active[0])
    for after, is_active in zip(depth, active, strict=True):
        intervals = after - before
        # The deepest branch comes first: the order of completion breaks ties in the vote.
        for branch in np.argsort(-before, kind="stable").tolist():
            reads = [CONTINUE + branch] if read else [CONTINUE + branch, PROBE + branch]
            if before[branch] > 0:
                found += reads * intervals[branch]
            elif intervals[branch]:
                first = [BRANCH] if read else [BRANCH, PROBE + branch]
                found += first + reads * (intervals[branch] - 1)
                found += [PROBE + branch] if read else []
        found += (PRUNE + np.flatnonzero(was_active & ~is_active)).tolist()
        before, was_active = after, is_active
    return found


@functools.partial(jax.jit, static_argnums=0)
def play(env, params, question, order, actions):
    """Plays E sequences of actions, (E, T): the last step's info, and whether any action was invalid."""
    key = jax.random.key(0)
    _, states = jax.vmap(lambda question, order: env.reset_env(key, params, question, order))(question, order)

    def step(states, actions):
        _, states, _, answered, info = jax.vmap(lambda s, a: env.step_env(key, s, a, params))(states, actions)
        return states, (answered, info["invalid_action"], info["tokens"], info["correct"])

    states, (answered, invalid, tokens, correct) = jax.lax.scan(step, states, actions.T)
    return answered[-1], invalid.any(axis=0), tokens[-1], correct[-1], states.pool.opened


@pytest.mark.parametrize("method", GOLDEN)
def test_atomic_actions_reproduce_the_golden_episodes(matrix, orders, episodes, actions, golden, method):
    question, order = episodes.question, orders.of(episodes.question, episodes.row).astype(np.int32)
    env = WidthDepth(WIDTH, obs="features", aggregate=GOLDEN[method][2])
    params = env.make_params(matrix)
    assert actions[method].shape[1] <= env.default_max_steps(matrix.max_depth)
    answered, invalid, tokens, correct, opened = play(env, params, question, order, actions[method])
    assert np.all(answered)
    assert not np.any(invalid)
    np.testing.assert_array_equal(correct, golden(method, "correct"))
    stepwise = 0
    if method == "asc64":
        beyond = matrix.interval[question, None] * matrix.lengths[question[:, None], order]
        beyond = np.maximum(beyond - matrix.tokens[question[:, None], order], 0)
        stepwise = np.sum(beyond * (np.arange(WIDTH) < opened[:, None]), axis=1)
        assert stepwise.any()
    np.testing.assert_array_equal(tokens, golden(method, "tokens") + stepwise)


def test_gymnasium_gives_the_same(episodes, actions, golden):
    env = gymnasium.make("WidthDepth-v0", data="synthetic", max_branches=WIDTH)
    for method in ("cmc_beta0.5", "cmc_beta1.0", "asc64"):
        shortest = np.argsort((actions[method] != ANSWER).sum(axis=1))[:2]
        for episode in shortest.tolist():
            question, seed = int(episodes.question[episode]), int(episodes.row[episode])
            env.reset(options={"question": question, "order": seed})
            for action in actions[method][episode]:
                _, _, terminated, truncated, info = env.step(action)
                assert not info["invalid_action"]
                assert not truncated
                if terminated:
                    break
            assert terminated
            assert info["correct"] == golden(method, "correct")[episode]
            assert info["tokens"] == golden(method, "tokens")[episode] or method == "asc64"
    env.close()
